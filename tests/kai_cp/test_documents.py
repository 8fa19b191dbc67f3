"""Documents match their published types: every key is known, none is missing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kai_cp.decisions import to_json
from kai_cp.documents import DOCUMENTS, NAMES, problems, schema
from kai_cp_models.plan import Estimate, Plan, Reservation, Unscheduled
from kai_cp_models.pods import GroupKey
from tests.support.worlds import cluster, pod

ROOT = Path(__file__).parents[2]
DEMO_PATH = ROOT / "examples" / "demo-cluster.json"
NOW = "2026-11-20T12:00:00Z"
DEMO, CHANGED, DECISIONS, OTHER_DECISIONS, CONFIG, JOB = (
    f"{name}.json" for name in ("demo", "changed", "decisions", "other", "config", "job")
)


@pytest.mark.parametrize("name", NAMES)
def test_every_document_has_a_schema(name: str) -> None:
    found = schema(name)
    assert found["$id"] == f"kai-cp:{name}"
    assert json.dumps(found)
    assert '"additionalProperties": false' not in json.dumps(found) or name.startswith("bench"), (
        "keys may be added"
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_key_has_a_meaning(name: str) -> None:
    """Documents, their parts and all keys have a description in words."""
    found = schema(name)
    parts = {**found.get("$defs", {}), **({name: found} if "properties" in found else {})}
    assert [title for title, part in parts.items() if not part.get("description")] == []
    assert [
        f"{title}.{key}"
        for title, part in parts.items()
        for key, meaning in part.get("properties", {}).items()
        if len(meaning.get("description", "")) < 5
    ] == []


WRITTEN_BY = {
    "decisions/1": [
        ["solve", DEMO, "-o", "json"],
        ["solve", DEMO, "--queue", "vision", "-o", "json"],
        ["plan", DEMO, DECISIONS, "-o", "json"],
    ],
    "inspection/1": [["inspect", DEMO, "-o", "json"], ["inspect", DEMO, "--queue", "vision", "-o", "json"]],
    "pending/1": [["pending", DEMO, DECISIONS, "-o", "json"]],
    "queues/1": [["queues", DEMO, DECISIONS, "-o", "json"]],
    "queue-why/1": [["queues", DEMO, DECISIONS, "--why", "language", "-o", "json"]],
    "evictions/1": [["evictions", DEMO, DECISIONS, "-o", "json"]],
    "audit/1": [["audit", DEMO, DECISIONS, "-o", "json"]],
    "check/1": [["check", DEMO, DECISIONS, "-o", "json"]],
    "decision-diff/1": [["diff", DECISIONS, OTHER_DECISIONS, "-o", "json"]],
    "snapshot-diff/1": [["diff", DEMO, CHANGED, "-o", "json"]],
    "explanation/1": [["explain", DEMO, "--all", "--now", NOW, "-o", "json"]],
    "whatif/1": [
        ["what-if", DEMO, "--drain", "gpu-3", "--bound", "-o", "json"],
        [
            "what-if",
            DEMO,
            "--until-settled",
            "--least",
            "stop",
            "--for",
            "podgroup/default/replay",
            "-o",
            "json",
        ],
    ],
    "reservations/1": [["reserve", DEMO, "-o", "json"]],
    "defrag/1": [
        ["defrag", DEMO, "-o", "json"],
        ["defrag", DEMO, "--for", "gang=1x8", "-o", "json"],
    ],
    "topology/1": [["topology", DEMO, "-o", "json"]],
    "migration/1": [["migrate", CONFIG, "-o", "json"]],
    "admission-verdict/1": [["admit", JOB]],
    "grouping/1": [["group", JOB]],
}
"""By document: the command lines that write it. Names in capitals stand for files of ``desk``."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the commands read."""
    folder = tmp_path_factory.mktemp("desk")
    snapshot = json.loads(DEMO_PATH.read_bytes())
    (folder / DEMO).write_text(json.dumps(snapshot))
    snapshot["rawObjects"]["nodes"][0]["metadata"]["labels"]["new"] = "1"
    del snapshot["rawObjects"]["nodes"][1]
    (folder / CHANGED).write_text(json.dumps(snapshot))
    for source, target in ((DEMO, DECISIONS), (CHANGED, OTHER_DECISIONS)):
        (folder / target).write_text(ran(folder, ["solve", source, "--now", NOW, "-o", "json"]))
    meta = {"name": "train", "namespace": "team-a", "uid": "1", "labels": {"kai.scheduler/queue": "q"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
    pod["spec"] = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "x"}]}
    (folder / JOB).write_text(json.dumps(pod))
    config = {"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "kai"}, "spec": {}}
    (folder / CONFIG).write_text(json.dumps(config))
    return folder


def ran(folder: Path, words: list[str]) -> str:
    """The output of a command."""
    command = [sys.executable, "-m", "kai_cp", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == (words[0] == "diff"), f"{words}: {done.stderr}"  # 1: the answers differ.
    return done.stdout


@pytest.mark.parametrize(
    ("name", "words"), [(name, words) for name, lines in WRITTEN_BY.items() for words in lines]
)
def test_commands_write_documents_of_the_published_schemas(desk: Path, name: str, words: list[str]) -> None:
    document = json.loads(ran(desk, words))
    assert problems(name, document) == []
    assert document.get("schema", name) == name


def test_every_document_is_written_by_a_command_and_published() -> None:
    sources = "".join(path.read_text("utf-8") for path in ROOT.glob("*/**/*.py") if "tests" not in path.parts)
    found = set(re.findall(r"""(?:SCHEMA: Final = |"schema": )"([a-z-]+/[0-9]+)\"""", sources))
    assert len(found) > 10
    assert found - set(NAMES) == {"reservation/1"}  # An object's annotation.
    assert {*WRITTEN_BY, "view/1"} == set(DOCUMENTS)  # A page holds it: tests/kai_cp/view.
    page = (ROOT / "docs" / "reference-json.md").read_text("utf-8")
    assert [name for name in NAMES if f"## {name}\n" not in page] == []


def test_reservations_of_a_cycle_are_as_published() -> None:
    """The demo cluster lacks them: reservations and estimates of a cycle that plans ahead."""
    reservation = Reservation(
        GroupKey("ns", "gang"), "q", "kept", 2e6, 2e6, 1e6, {"n1": 8, "n2": 0.5}, ("rack", "a"),
        (GroupKey("ns", "old"),), ("n1",), 1.5, 0.0, (), "", "waits for old",
    )  # fmt: skip
    left = Unscheduled(GroupKey("ns", "g"), "NoRoomNow", "full", False, estimate=Estimate("none", None, 2))
    cycle = Plan(unscheduled=(left,), reservations=(reservation,))
    assert problems("decisions/1", to_json(cluster([pod("g-0")]), cycle)) == []


def test_a_key_that_is_missing_or_unknown_is_named() -> None:
    assert problems("pending/1", {"schema": "pending/1", "now": "x", "pending": [], "more": 1}) == [
        "more: Extra inputs are not permitted"
    ]
    assert problems("queues/1", {"schema": "queues/1", "now": "x"}) == ["queues: Field required"]
