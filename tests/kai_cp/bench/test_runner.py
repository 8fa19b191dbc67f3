"""Outcomes by hand, one case end to end, and what makes a run fail."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from kai_cp.bench import peers, runner
from kai_cp.bench.cases import Case, generated_cases, recorded_cases
from kai_cp.bench.cli import app
from kai_cp.bench.fair import first_difference
from kai_cp.bench.generate import NOW, SHAPES
from kai_cp.bench.generate.objects import (
    GangSpec,
    NodeShape,
    PodRequest,
    RawCluster,
    ago,
    group,
    node,
    pod,
    queue,
)
from kai_cp.bench.outcome import most_gpus, outcome
from kai_cp.bench.records import AdmissionDifference, CaseResult, read, write
from kai_cp.bench.report import page
from kai_cp.bench.runner import BenchTask, measure, run
from kai_cp.reader import parse
from kai_cp_models import engine
from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan, Unscheduled
from kai_cp_models.pods import GroupKey, PodKey, PodStatus
from kai_cp_models.settings import Settings, SolverSettings
from kai_cp_models.snapshot import Snapshot

QUICK = Settings(solver=SolverSettings(budget_seconds=0.3))


@pytest.fixture(scope="module")
def result() -> CaseResult:
    found = run(BenchTask(Case("scale", "mixed-6-s1", None, "mixed", 6, 1), QUICK, "digest"))
    assert isinstance(found, CaseResult)
    return found


def test_outcome_by_hand() -> None:
    snapshot = parse(SHAPES["mixed"](6, 1), now=NOW.timestamp())
    running = [p for p in snapshot.pods if p.node is not None and p.spec.gpu.devices >= 1]
    waiting = [p for p in snapshot.pods if p.status is PodStatus.PENDING]
    lost, moved, bound = running[0], running[1], waiting[0]
    found = outcome(
        snapshot,
        [("Evict", lost.key), ("Evict", moved.key), ("Nominate", moved.key), ("Bind", bound.key)],
    )
    gpus = [p.spec.gpu.devices * p.spec.gpu.milli_portion / 1000 for p in (lost, moved, bound)]
    assert (found.lost_gpus, found.moved_gpus, found.bound_gpus) == pytest.approx(gpus)
    assert (found.moved_pods, found.evicted_pods, found.groups_admitted) == (1, 2, 1)
    assert found.nominated_gpus == 0
    assert found.lost_gpu_hours > 0


def test_the_most_gpus_by_hand() -> None:
    """Two nodes of 8 with 5 and a quarter in use; the pods ask for 3, then for 12."""
    raw = RawCluster()
    raw.nodes += [node(f"node-{i}", NodeShape(), {}) for i in range(2)]
    raw.queues.append(queue("q", 16, ago(9000)))

    def add(name: str, request: PodRequest, place: str | None, gpu_group: str = "") -> None:
        gang = GangSpec(name, "q", request, age_seconds=900)
        raw.groups.append(group(gang, running=place is not None))
        raw.pods.append(pod(gang, 0, place, gpu_group))

    def most() -> float:
        return most_gpus(parse(raw.snapshot(), now=NOW.timestamp()))

    add("whole", PodRequest(4), "node-0")
    add("left", PodRequest(1), "node-1")
    add("share", PodRequest(fraction=0.25), "node-1", "group-0")
    add("small", PodRequest(3), None)
    assert most() == 3
    add("large", PodRequest(8), None)
    add("single", PodRequest(1), None)
    assert most() == 10.75
    raw.pods[1]["metadata"]["deletionTimestamp"] = ago(5)
    assert most() == 11.75
    raw.nodes[0]["spec"]["unschedulable"] = True
    assert most() == 7.75


def test_the_second_cycle_is_measured_beside_the_first() -> None:
    found = measure(BenchTask(Case("scale", "mixed-6-s1", None, "mixed", 6, 1), QUICK, "", second_cycle=True))
    assert set(found.second_cycle_parts) == {"read", "answer"}
    assert found.second_cycle_seconds is not None
    assert sum(found.second_cycle_parts.values()) <= found.second_cycle_seconds + 1e-3
    first = found.seconds["read"] + found.seconds["decide"]
    assert found.second_cycle_share == pytest.approx(found.second_cycle_seconds / first)
    assert found.second_answer_share is not None
    assert found.second_cycle_cpu is not None
    worked = found.seconds["read_cpu"] + found.seconds["decide_cpu"]
    assert found.second_cpu_share == pytest.approx(found.second_cycle_cpu / worked)
    assert found.most_gpus is not None
    assert found.outcome.gained_gpus <= found.most_gpus
    assert f"{found.outcome.gained_gpus:g} of {found.most_gpus:g}" in page([found])


def test_a_case_is_measured(result: CaseResult) -> None:
    assert result.errors == ()
    assert result.seconds["decide"] > 0
    assert result.seconds["model"] > 0
    assert set(result.seconds) >= {"read", "prepare", "model", "solve", "check"}
    assert result.peak_memory_mib > 10
    assert {s["name"].split(":")[0] for s in result.stages} >= {"allocate"}
    assert result.moments[-1].admitted_gpus == result.outcome.admitted_gpus


def test_records_survive_the_file(result: CaseResult, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    write(path, [result])
    write(path, [result])
    assert list(read(path)) == [result, result]


def test_page_is_self_contained(result: CaseResult) -> None:
    text = page([result])
    assert "mixed-6-s1" in text
    assert "<svg" in text
    for outside in ("<script", 'href="http', 'src="http', "@import"):
        assert outside not in text


def test_a_wrong_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def accuse(snapshot: Snapshot, plan: Plan, settings: object) -> list[str]:
        return ["node n holds more than it has"]

    monkeypatch.setattr(runner, "faults", accuse)
    found = measure(BenchTask(Case("scale", "quiet-4-s1", None, "quiet", 4, 1), QUICK, ""))
    assert found.errors == ("checker: node n holds more than it has",)
    assert "node n holds more than it has" in page([found])


def test_a_group_that_an_action_was_decided_without_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer holds, as the group is left out; but the engine and its checker disagreed."""
    left = Unscheduled(
        GroupKey("default", "j"), "InternalError", "left out of reclaim: over its limit", False
    )

    def decided(*args: object, **options: object) -> Plan:
        return replace(decide(*args, **options), unscheduled=(left,))  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "decide", decided)
    found = measure(BenchTask(Case("scale", "quiet-4-s1", None, "quiet", 4, 1), QUICK, ""))
    assert found.errors == ("default/j was not decided: left out of reclaim: over its limit",)


def test_the_measuring_process_does_not_generate_what_is_in_a_file(tmp_path: Path) -> None:
    """The shape is not known, so the case cannot be generated; its file is read in every cycle."""
    file = tmp_path / "snapshot.json"
    file.write_bytes(orjson.dumps(SHAPES["quiet"](4, 1)))
    task = BenchTask(Case("scale", "x", None, "none", 4, 1), QUICK, "", second_cycle=True, file=file)
    found = measure(task)
    assert (found.nodes, found.errors) == (4, ())
    assert found.second_cycle_seconds is not None


def test_a_case_that_cannot_be_generated_is_named() -> None:
    found = run(BenchTask(Case("scale", "x", None, "none", 4, 1), QUICK, ""))
    assert isinstance(found, str)
    assert found.startswith("x: not generated: KeyError: 'none'")


def test_first_difference_is_looked_for_in_the_fair_order() -> None:
    snapshot = parse(SHAPES["fill"](6, 1), now=NOW.timestamp())
    everyone = frozenset(group.key for group in snapshot.groups)
    assert first_difference(snapshot, QUICK, everyone, everyone) is None
    found = first_difference(snapshot, QUICK, everyone, frozenset())
    assert found is not None
    assert (found.turn, found.here) == (1, True)
    # Without the first group the other answer leads at turn 1, whatever else it lacks.
    first = next(key for key in everyone if f"{key.namespace}/{key.name}" == found.group)
    assert first_difference(snapshot, QUICK, everyone - {first}, frozenset({first})) == AdmissionDifference(
        group=found.group, turn=1, here=False
    )


def test_groups_that_both_admit_are_charged_before_the_next_turn() -> None:
    raw = RawCluster()
    raw.nodes.append(node("node-0", NodeShape(), {}))
    for i, name in enumerate(("left", "right")):
        raw.queues.append(queue(name, 4, ago(9000 - i)))
        for j in range(2):
            gang = GangSpec(f"{name}-{j}", name, PodRequest(1), age_seconds=900 - j)
            raw.groups.append(group(gang, running=False))
            raw.pods.append(pod(gang, 0))
    snapshot = parse(raw.snapshot(), now=NOW.timestamp())
    everyone = frozenset(g.key for g in snapshot.groups)
    served: list[str] = []
    admitted: frozenset[GroupKey] = frozenset()
    while (step := first_difference(snapshot, QUICK, admitted, everyone)) is not None:
        served.append(step.group.removeprefix("default/"))
        admitted |= {k for k in everyone if k.name == served[-1]}
    assert served == ["left-0", "right-0", "left-1", "right-1"]


def test_against_a_directory_of_decisions_the_page_says_which_answer_is_ahead(tmp_path: Path) -> None:
    (tmp_path / "fill-4-s1.json").write_text(json.dumps({"decisions": [], "timings": {"solve": 0.5}}))
    page_file, out = tmp_path / "r.html", tmp_path / "r.jsonl"
    done = CliRunner().invoke(
        app,
        [
            *("--suite", "scale", "--shapes", "fill", "--nodes", "4", "--against", str(tmp_path)),
            *("--report", str(page_file), "--out", str(out)),
        ],
    )
    assert done.exit_code == 0, done.output
    (result,) = read(out)
    assert isinstance(result, CaseResult)
    assert result.peer is not None
    assert result.peer.first is not None
    assert (result.peer.first.turn, result.peer.first.here) == (1, True)
    text = page_file.read_text("utf-8")
    assert "ours in 1, theirs in 0" in text
    assert f"ours: {result.peer.first.group} (1.)" in text
    for stage in result.stages:
        assert f">{stage['name']}</td>" in text


def test_peers_from_recorded_lines_and_documents(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "kai_decisions.jsonl.gz", "wt") as file:
        line = {"case": "a", "decisions": [{"kind": "Bind", "namespace": "default", "pod": "p", "node": "n"}]}
        file.write(json.dumps(line) + "\n")
    (tmp_path / "kai_times.json").write_text(json.dumps({"a": {"kai_total_ms": [30.0, 10.0, 20.0]}}))
    found = peers.recorded(tmp_path)
    assert found.deeds["a"] == (("Bind", PodKey("default", "p")),)
    assert found.seconds["a"] == pytest.approx(0.02)
    folder = tmp_path / "older"
    folder.mkdir()
    document = {"decisions": line["decisions"], "timings": {"solve": 0.5, "check": 0.25}}
    (folder / "b.json").write_text(json.dumps(document))
    other = peers.directory(folder)
    assert other.deeds["b"] == (("Bind", PodKey("default", "p")),)
    assert other.seconds["b"] == pytest.approx(0.75)


def test_cases_are_selected_by_whole_names(tmp_path: Path) -> None:
    for name in ("mixed-50-s1", "mixed-500-s1", "Reclaim_10Node", "Reclaim_100Node"):
        (tmp_path / f"{name}.json.gz").write_bytes(b"")
    assert [c.name for c in recorded_cases(tmp_path, ["mixed-50"], [])] == ["mixed-50-s1"]
    assert [c.name for c in recorded_cases(tmp_path, [], [10])] == ["Reclaim_10Node"]
    assert len(generated_cases(["fill", "quiet"], [10, 20], [1, 2])) == 8


def test_command_line_writes_results_and_page(tmp_path: Path) -> None:
    out, report = tmp_path / "r.jsonl", tmp_path / "r.html"
    arguments = ["--suite", "scale", "--shapes", "quiet,fill", "--nodes", "4", "--seeds", "1-2"]
    done = CliRunner().invoke(app, [*arguments, "--out", str(out), "--report", str(report)])
    assert done.exit_code == 0, done.output
    assert len(list(read(out))) == 4
    assert report.read_text("utf-8").startswith("<!doctype html>")
