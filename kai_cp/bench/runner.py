"""Run one case in a process of its own: read, decide, audit, measure."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from kai_cp.bench.cases import Case
from kai_cp.bench.fair import first_difference
from kai_cp.bench.follow import following
from kai_cp.bench.generate import NOW
from kai_cp.bench.outcome import Deed, admitted_groups, most_gpus, outcome
from kai_cp.bench.records import CaseResult, Moment, Peer, origin
from kai_cp.decisions import stage_document
from kai_cp.worker import Channel, Worker
from kai_cp_models import collection
from kai_cp_models.plan import REJECTED, Plan, Stage
from kai_cp_models.pods import Pod, PodStatus
from kai_cp_models.queries.cluster import faults, solver_seconds
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot

PROOF_GAP = 1e-6
KILL_AFTER = 10.0
"""A case that takes this many times its budget, plus a minute for reading, is ended."""


@dataclass(frozen=True, slots=True)
class BenchTask:
    """A case, and what else to measure. ``peer`` is (name, its decisions, its seconds), each None if
    unknown.
    """

    case: Case
    settings: Settings
    digest: str
    peer: tuple[str, tuple[Deed, ...] | None, float | None] | None = None
    second_cycle: bool = False
    file: Path | None = None
    """Where the snapshot of a generated case is, if it was written to a file."""

    @property
    def source(self) -> Path | bytes:
        """What is read: a file, or the text of a case that is generated here."""
        return self.file or self.case.path or orjson.dumps(self.case.raw())


def run(task: BenchTask) -> CaseResult | str:
    """The result of a case, or one line with the reason why there is none."""
    if task.case.path is not None:
        return _run(task)
    with tempfile.TemporaryDirectory() as folder:
        # Another process generates the cluster, so that its memory is not measured.
        task = replace(task, file=Path(folder, "snapshot.json"))
        with Worker(_generate) as worker:
            reply = worker.run(task)
        return _run(task) if reply.end == "done" else f"{task.case.name}: not generated: {reply.failure}"


def _generate(task: BenchTask, channel: Channel) -> None:
    assert task.file is not None
    task.file.write_bytes(orjson.dumps(task.case.raw()))


def _run(task: BenchTask) -> CaseResult | str:
    limit = 60.0 + KILL_AFTER * task.settings.solver.budget_seconds + 0.03 * task.case.nodes
    with Worker(_job, decides_once=True) as worker:
        reply = worker.run(task, deadline=time.monotonic() + limit)
    if isinstance(reply.answer, CaseResult):
        return reply.answer
    if reply.end == "late":
        return f"{task.case.name}: no answer after {limit:.0f} s"
    return f"{task.case.name}: {reply.failure or 'no answer'}\n{reply.details}".rstrip()


def _job(task: BenchTask, channel: Channel) -> None:
    channel.answer(measure(task))


def errors_of(snapshot: Snapshot, plan: Plan, settings: Settings) -> Iterator[str]:
    """What is wrong with an answer: rules that it breaks, and what the engine dropped or did not decide."""
    yield from (f"checker: {line}" for line in faults(snapshot, plan, settings))
    for stage in plan.stages:
        if stage.kind == REJECTED:
            yield f"the engine's own plan was rejected: {stage.name}"
    for one in plan.unscheduled:
        if one.reason == "InternalError":
            yield f"{one.group} was not decided: {one.message}"


def measure(task: BenchTask) -> CaseResult:
    """Read, decide and audit in this process."""
    from kai_cp.reader import parse
    from kai_cp.reader.container import load_items
    from kai_cp_models.engine import decide

    case, now = task.case, NOW.timestamp()
    source = task.source
    begin, worked = time.monotonic(), time.process_time()
    with collection.no_collection(for_good=True):
        snapshot = parse(load_items(source).raw, now=now, use_up=True)
    read, read_cpu = time.monotonic() - begin, time.process_time() - worked
    answers: list[tuple[float, Plan]] = []
    solving = solver_seconds()
    start, worked = time.monotonic(), time.process_time()
    plan = decide(snapshot, task.settings, emit=lambda p: answers.append((time.monotonic() - start, p)))
    decided, worked = time.monotonic() - start, time.process_time() - worked
    solving = solver_seconds() - solving
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    deeds = _deeds(plan)
    ours = outcome(snapshot, deeds)
    second = _second_cycle(source, task) if task.second_cycle else {}
    pending = [pod for pod in snapshot.pods if pod.status is PodStatus.PENDING]
    gap = max((s.gap for s in plan.stages), default=0.0)
    return CaseResult(
        suite=case.suite,
        case=case.name,
        seed=case.seed,
        budget_seconds=task.settings.solver.budget_seconds,
        nodes=len(snapshot.nodes),
        running_pods=sum(pod.node is not None for pod in snapshot.pods),
        pending_pods=len(pending),
        pending_groups=len({pod.group for pod in pending}),
        seconds={
            "read": round(read, 4),
            "read_cpu": round(read_cpu, 4),
            **{k: round(v, 4) for k, v in plan.timings.items()},
            "model": round(max(0.0, plan.timings["solve"] - solving), 4),
            "solve": round(solving, 4),
            "decide": round(decided, 4),
            "decide_cpu": round(worked, 4),
        },
        second_cycle_seconds=second.pop("all", None),
        second_cycle_cpu=second.pop("cpu", None),
        second_cycle_parts=second,
        most_gpus=most_gpus(snapshot),
        peak_memory_mib=round(peak, 1),
        status=_status(plan.stages),
        gap=gap,
        stages=tuple(map(stage_document, plan.stages)),
        outcome=ours,
        moments=_moments(snapshot, answers),
        peer=_peer(snapshot, task, deeds),
        errors=tuple(errors_of(snapshot, plan, task.settings)),
        origin=origin(task.digest),
    )


def _deeds(plan: Plan) -> tuple[Deed, ...]:
    return tuple((decision.kind, decision.pod) for decision in plan.decisions)


def _status(stages: Sequence[Stage]) -> str:
    if all(stage.status == "OPTIMAL" or stage.gap <= PROOF_GAP for stage in stages):
        return "OPTIMAL"
    return "GREEDY" if all(stage.status == "GREEDY" for stage in stages) else "FEASIBLE"


def _moments(snapshot: Snapshot, answers: Sequence[tuple[float, Plan]]) -> tuple[Moment, ...]:
    found: list[Moment] = []
    for seconds, plan in answers:
        o = outcome(snapshot, _deeds(plan))
        moment = Moment(seconds=round(seconds, 4), admitted_gpus=o.admitted_gpus, lost_gpus=o.lost_gpus)
        if not found or (found[-1].admitted_gpus, found[-1].lost_gpus) != (o.admitted_gpus, o.lost_gpus):
            found.append(moment)
    return tuple(found)


def _peer(snapshot: Snapshot, task: BenchTask, deeds: Sequence[Deed]) -> Peer | None:
    if task.peer is None:
        return None
    name, theirs, seconds = task.peer
    if theirs is None:
        return Peer(name=name, outcome=None, seconds=seconds)
    known = [deed for deed in theirs if deed[1] in snapshot.pod_by_key]
    here = admitted_groups(snapshot, (key for kind, key in deeds if kind != "Evict"))
    there = admitted_groups(snapshot, (key for kind, key in known if kind != "Evict"))
    return Peer(
        name=name,
        outcome=outcome(snapshot, known),
        seconds=seconds,
        only_here=len(here - there),
        only_there=len(there - here),
        first=first_difference(snapshot, task.settings, here, there),
    )


def _second_cycle(source: Path | bytes, task: BenchTask) -> dict[str, float]:
    """Seconds of the next cycle of one process, after its plan was carried out and one percent of the pods
    ended.

    ``read`` (from the changed list) and ``answer`` (to the first checked plan) are parts of ``all``; ``cpu``
    is the processor time of all threads in it.
    """
    from kai_cp.reader import ParseMemo, load, parse
    from kai_cp_models.engine import decide

    now = NOW.timestamp()
    memo = ParseMemo()
    with collection.following(first=True):
        raw = load(source).raw
        before = parse(raw, now=now, memo=memo)
    plan = decide(before, task.settings)
    changed = following(raw, plan, {pod.key for pod in _every_hundredth(before.pods)}, now)
    start, worked = time.monotonic(), time.process_time()
    with collection.following(first=False):
        snapshot = parse(changed, now=now + 1, memo=memo)
    read = time.monotonic()
    answers: list[float] = []
    decide(snapshot, task.settings, emit=lambda _: answers.append(time.monotonic() - read))
    done, worked = time.monotonic(), time.process_time() - worked
    parts = (("read", read - start), ("answer", answers[0]), ("all", done - start), ("cpu", worked))
    return {name: round(value, 4) for name, value in parts}


def _every_hundredth(pods: Sequence[Pod]) -> Sequence[Pod]:
    return pods[::100]
