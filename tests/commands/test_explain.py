"""The commands explain and what-if as users type them: exit status, and one line for each error."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from tests.kai_cp.explain.clusters import cluster
from tests.kai_cp.test_cli import run
from tests.support.tiny import node, pod, queue

ANSWERED, BAD_INPUT, WRONG_USAGE = 0, 1, 2
NOW = "2026-11-20T12:00:00Z"


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """One node of 2 GPUs; x asks for 3, and the member count of pod group broken is not a whole number."""
    world = cluster([node("n0", gpus=2)], [pod("x", gpus=3), pod("broken", gpus=1)])
    groups = {item["metadata"]["name"]: item for item in world["rawObjects"]["podGroups"]}
    groups["broken"]["spec"]["minMember"] = "many"
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(world))
    return path


@pytest.mark.parametrize("target", ["podgroup/default/x", "pod/default/x", "--all"])
def test_an_answer_begins_with_the_state_and_writes_nothing(snapshot: Path, target: str) -> None:
    before = snapshot.read_bytes()
    done = run("explain", snapshot, target, "--no-fixes", "--now", NOW)
    assert (done.returncode, done.stderr) == (ANSWERED, "")
    assert done.stdout.startswith("PENDING  podgroup default/x")
    assert done.stdout.endswith(f"\nAs of    {NOW}, snapshot\n")
    assert [path.name for path in snapshot.parent.iterdir()] == ["snapshot.json"]
    assert snapshot.read_bytes() == before


def test_a_malformed_object_is_set_aside_and_its_explanation_says_what_is_wrong(snapshot: Path) -> None:
    done = run("explain", snapshot, "podgroup/default/broken", "--no-fixes", "--now", NOW)
    assert (done.returncode, done.stdout) == (BAD_INPUT, "")
    assert "podgroup default/broken is left out of all decisions: spec.minMember" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_name_before_the_snapshot_is_told_the_order(snapshot: Path) -> None:
    done = run("explain", "podgroup/default/x", snapshot)
    assert (done.returncode, done.stdout) == (WRONG_USAGE, "")
    said = f"kai-cp: the snapshot comes first: kai-cp explain {snapshot} podgroup/default/x\n"
    assert done.stderr == said


def test_standard_input_comes_first_where_a_file_has_the_name_of_the_pod_group(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x").touch()
    done = run("explain", "-", "x", "--no-fixes", "--now", NOW, data=snapshot.read_bytes())
    assert done.stdout.startswith("PENDING  podgroup default/x")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain", "podgroup/default/xx"], ["default/xx", "default/x"]),
        (["explain", "pod/default/y"], ["default/y", "default/x"]),
        (["explain", "queue/q"], ["queue/q"]),
        (["explain", "--all", "--kinds", "magic"], ["magic"]),
        (["explain"], ["--all"]),
        (["what-if", "--drain", "n1"], ["n1", "n0"]),
        (["what-if", "--add-nodes", "n0=many"], ["many"]),
        (["what-if", "--add-nodes", "n0=1000000"], ["1,000,000", "10,000"]),
        (["what-if", "--set-queue", "nope.gpu.limit=1"], ["nope"]),
        (["what-if", "--enable", "preemt"], ["preemt", "preempt"]),
        (["what-if", "--stop", "pod/default/x,pod/default/z"], ["default/z"]),
        (["what-if", "--least", "nodes:n9", "--for", "all"], ["n9", "n0"]),
        (["what-if", "--least", "nodes:n0", "--for", "podgroup/default/z"], ["default/z"]),
        (["what-if", "--after", "soon"], ["soon"]),
    ],
)
def test_wrong_usage_is_one_line_with_the_name_and_the_nearest(
    snapshot: Path, words: list[str], said: list[str]
) -> None:
    done = run(words[0], snapshot, *words[1:], "--now", NOW)
    assert (done.returncode, done.stdout) == (WRONG_USAGE, "")
    assert [part for part in said if part not in done.stderr] == []
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("text", [None, "kind: [", "kind: Secret\nmetadata: {name: s}", "kind: Pod", ""])
def test_a_bad_file_to_add_is_bad_input(snapshot: Path, tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "more.yaml"
    if text is not None:
        path.write_text(text)
    done = run("what-if", snapshot, "--add", path, "--now", NOW)
    assert (done.returncode, done.stdout) == (BAD_INPUT, "")
    assert done.stderr.count("\n") == 1
    assert "more.yaml" in done.stderr


@pytest.mark.parametrize("command", ["explain", "what-if"])
def test_a_bad_snapshot_is_bad_input(tmp_path: Path, command: str) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text("{")
    done = run(command, path, "--all" if command == "explain" else "--bound", "--now", NOW)
    assert (done.returncode, done.stdout) == (BAD_INPUT, "")
    assert "Traceback" not in done.stderr


def test_without_now_every_command_reads_the_snapshot_as_of_the_same_time(snapshot: Path) -> None:
    solved = json.loads(run("solve", snapshot, "-o", "json").stdout)
    explained = json.loads(run("explain", snapshot, "--all", "--no-fixes", "-o", "json").stdout)
    asked = json.loads(run("what-if", snapshot, "--cordon", "n0", "-o", "json").stdout)
    assert explained["now"] == asked["now"] == solved["now"] < "2026-11-20T13"
    ages = {entry["podGroup"]: entry["waitingSeconds"] for entry in explained["explanations"]}
    assert ages == {entry["podGroup"]: entry["ageSeconds"] for entry in solved["unscheduled"]}


def test_a_gang_that_was_just_nominated_waits_for_its_next_increment(tmp_path: Path) -> None:
    """Reclaim gives x its first pod, and preempt finds nothing for the second one: the next cycle
    continues.
    """
    world = cluster(
        [node("n0", gpus=2)],
        [pod("v", "n0", gpus=2, queue="o"), *(pod(f"x-{i}", gpus=2, group="x") for i in range(2))],
        queues=[queue("q", quota={"gpu": 2}), queue("o", quota={"gpu": 0})],
    )
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(world))
    (waiting,) = json.loads(run("solve", path, "-o", "json").stdout)["unscheduled"]
    assert (waiting["podGroup"], waiting["reason"]) == ("default/x", "NextIncrement")
    assert run("explain", path, "podgroup/default/x").stdout.startswith("ADMITTED  podgroup default/x")


@pytest.mark.parametrize(
    "words", [["solve", "-o", "json"], ["explain", "--all", "--no-fixes"], ["what-if", "--cordon", "n0"]]
)
def test_a_named_pipe_is_opened_once(snapshot: Path, words: list[str]) -> None:
    """Only in regular files is the time of a recorded cycle looked for, because a second reader of a
    pipe waits for ever.
    """
    pipe = snapshot.with_name("pipe.json")
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_bytes, args=(snapshot.read_bytes(),), daemon=True).start()
    done = run(words[0], pipe, *words[1:])
    assert (done.returncode, done.stderr) == (ANSWERED, "")
