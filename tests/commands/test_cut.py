"""A cycle that the deadline has cut short says so, whichever command asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kai_cp.test_cli import DEMO, run

AT_ONCE = 0.000001
SAID = "Cut short by the deadline during allocate: a larger budget may find more"


@pytest.mark.parametrize("command", ["solve", "pending", "queues", "evictions", "audit", "plan", "reserve"])
def test_a_cut_is_told_beside_the_time_of_the_snapshot(command: str) -> None:
    cut = run(command, DEMO, "--budget", AT_ONCE).stdout
    assert f"As of 2026-11-20T11:58:20Z. {SAID}." in cut.splitlines()
    assert "Cut short" not in run(command, DEMO).stdout


@pytest.mark.parametrize(
    ("command", "rest"), [("explain", ["--all", "--no-fixes"]), ("what-if", ["--until-settled"])]
)
def test_explanations_and_what_ifs_tell_it_too(tmp_path: Path, command: str, rest: list[str]) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text(f"solver: {{budget_seconds: {AT_ONCE}}}\n")
    line = (command, DEMO, *rest, "--config", config)
    assert f"As of 2026-11-20T11:58:20Z, demo-cluster. {SAID}" in " ".join(run(*line).stdout.split())


def test_documents_name_what_was_cut() -> None:
    assert (
        json.loads(run("reserve", DEMO, "--budget", AT_ONCE, "-o", "json").stdout)["cutDuring"] == "allocate"
    )
    assert "cutDuring" not in json.loads(run("reserve", DEMO, "-o", "json").stdout)
