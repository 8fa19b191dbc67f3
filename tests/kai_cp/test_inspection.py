"""``inspect`` says how old the figures of historic usage are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kai_cp.reader import parse
from kai_cp.reader.recorded_usage import FETCHED_AT
from tests.kai_cp.kube.samples import queue, snapshot
from tests.kai_cp.test_cli import run

NOW = "2026-11-20T12:00:00Z"


def taken(usage: Any) -> dict[str, Any]:
    """A snapshot with one queue and these figures."""
    return {**snapshot(queues=[queue("a")]), "usage": usage}


def test_inspect_tells_the_age_of_the_figures(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    figures = {"fetchedAt": "2026-11-20T11:57:00Z", "queues": {"a": {"gpu": 0.25}}}
    file.write_text(json.dumps(taken(figures)))
    assert "Historic usage is 3m old." in run("inspect", file, "--now", NOW).stdout
    document = json.loads(run("inspect", file, "--now", NOW, "-o", "json").stdout)
    assert document["usage"] == {"fetchedAt": "2026-11-20T11:57:00Z", "ageSeconds": 180.0}
    file.write_text(json.dumps(snapshot(queues=[queue("a")])))
    assert "Historic usage" not in run("inspect", file, "--now", NOW).stdout


def test_the_figures_are_those_that_decide() -> None:
    found = parse(taken({"fetchedAt": NOW, "queues": {"a": {"gpu": 0.25}}}), now=1e9)
    assert found.queue_by_name["a"].usage.gpu == 0.25
    given = parse(
        taken({"fetchedAt": NOW, "queues": {"a": {"gpu": 0.25}}}), now=1e9, usage={"a": {"gpu": 0.5}}
    )
    assert given.queue_by_name["a"].usage.gpu == 0.5


@pytest.mark.parametrize("usage", [None, 1, {}, {"queues": 1}, {"queues": {"a": {}}, "fetchedAt": "x"}])
def test_figures_that_cannot_be_read_are_none(usage: Any) -> None:
    assert parse(taken(usage), now=1e9).extras[FETCHED_AT] is None
