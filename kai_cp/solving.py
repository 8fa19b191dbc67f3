"""One snapshot from file to ``decisions/1``: the job of ``solve``'s worker, and its budget.

Reading, deciding and writing all happen in the worker, so nothing large crosses the pipe: it sends
finished documents, the first of them before anything is decided. The budget is counted from the end of
reading, which has a limit of its own (``limits.read_seconds``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from kai_cp import memory
from kai_cp.decisions import Asks, gpus_of, to_json
from kai_cp.reader.container import Source, UnreadableSnapshot
from kai_cp.worker import Channel, End, Reply, Worker
from kai_cp_models.plan import Plan, Stage, Unscheduled
from kai_cp_models.pods import PodKey
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot

ENGINE: Final = 0.95
"""Share of the budget after which the engine itself ends; the rest is for writing."""
GRACE: Final = 0.2
"""Share of the budget by which the answer may be late before the worker is killed."""
LEAST_GRACE_SECONDS: Final = 1.0
"""The answer may always be this late, because a small budget leaves no time for writing."""
SHORT_BUDGET_SECONDS: Final = 5.0
"""In a shorter budget, loading CP-SAT would take too large a share."""

MEMORY: Final = "it takes more memory than is allowed (limits.memory_bytes)"
_LATE: Final = "it could not be read in time; a larger limits.read_seconds allows more"


@dataclass(frozen=True, slots=True)
class SolvingTask:
    """One snapshot to be solved.

    ``data``: its bytes, when there is no path. ``now``: the time at which it is read; None: the time at
    which it was taken. ``usage``: historic share of the cluster by queue.
    """

    source: Source
    data: bytes | None
    now: float | None
    settings: Settings
    usage: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a decision: the last finished action (empty: none), and what its plan does."""

    action: str
    gpus_admitted: float
    gpus_lost: float
    unproved: Stage | None
    """The action's first stage that has a gap: the goal that matters most of those not proved."""


Watch = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class SolvingResult:
    """The result of a task.

    ``document``: JSON, None when the input could not be read. ``problem``: one line that names the input,
    when it was bad or the engine failed. ``end``: *late* when it was stopped at the deadline, *interrupted*
    by Ctrl-C; either way the document is the last one sent.
    """

    source: Source
    document: bytes | None
    problem: str = ""
    details: str = ""
    end: End = "done"

    @property
    def late(self) -> bool:
        """Whether it was stopped at the deadline."""
        return self.end == "late"

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped by Ctrl-C."""
        return self.end == "interrupted"


def solve(worker: Worker, task: SolvingTask, watch: Watch | None = None) -> SolvingResult:
    """Let the worker solve one snapshot; ``watch`` gets its progress."""
    return _result(task.source, worker.run(task, watch=watch))


def _result(source: Source, reply: Reply) -> SolvingResult:
    if isinstance(reply.answer, str):
        return SolvingResult(source, None, reply.answer)
    if reply.end == "late" and reply.answer is None:
        return SolvingResult(source, None, f"{source.path}: {_LATE}", end=reply.end)
    if reply.end == "interrupted" and reply.answer is None:
        return SolvingResult(source, None, f"{source.path}: it was not read", end=reply.end)
    if reply.end != "failed":
        return SolvingResult(source, reply.answer, end=reply.end)
    if reply.answer is None:
        failure = MEMORY if reply.failure == "MemoryError" else f"reading failed: {reply.failure}"
        return SolvingResult(source, None, f"{source.path}: {failure}", reply.details, "failed")
    problem = f"{source.path}: the engine failed: {reply.failure}; the last checked answer counts"
    return SolvingResult(source, reply.answer, problem, reply.details, "failed")


def job(task: SolvingTask, channel: Channel) -> None:
    """The worker's side: read, decide, and send every better document, or why there is none (a text)."""
    from kai_cp.reading import read
    from kai_cp_models.engine import decide
    from kai_cp_models.queries.cluster import load_solver

    began = time.monotonic()
    budget = task.settings.solver.budget_seconds
    grace = max(LEAST_GRACE_SECONDS, GRACE * budget)
    channel.until(began + task.settings.limits.read_seconds)
    memory.bound(task.settings.limits.memory_bytes)
    data = task.source.path if task.data is None else task.data
    try:
        snapshot, digest = read(data, now=task.now, settings=task.settings, usage=task.usage)
    except UnreadableSnapshot as problem:
        channel.answer(str(problem))
        return
    if budget < SHORT_BUDGET_SECONDS:
        load_solver()
    asks = Asks(snapshot)
    read_at = time.monotonic()
    channel.until(read_at + budget + grace)

    sent: Plan | None = None

    def send(plan: Plan) -> None:
        nonlocal sent
        if plan is sent:
            return
        sent = plan
        begin = time.monotonic()
        timings = (
            {"read": read_at - began} if plan.timings else {"read": read_at - began, "solve": begin - read_at}
        )
        document = to_json(snapshot, plan, sha256=digest, timings=timings, asks=asks)
        document["timings"]["write"] = round(time.monotonic() - begin, 6)
        channel.answer(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))

    def send_interim(plan: Plan) -> None:
        send(interim(snapshot, plan))
        channel.progress(progress(snapshot, plan))

    deadline = read_at + ENGINE * budget
    send_interim(Plan())
    send(decide(snapshot, task.settings, deadline=deadline, emit=send_interim))


def progress(snapshot: Snapshot, plan: Plan) -> Progress:
    """How far a plan has come."""
    placed = {decision.pod for decision in plan.decisions if decision.kind != "Evict"}
    evicted = {decision.pod for decision in plan.decisions if decision.kind == "Evict"}

    def gpus(pods: Iterable[PodKey]) -> float:
        known = (snapshot.pod_by_key[pod] for pod in pods if pod in snapshot.pod_by_key)
        return sum(gpus_of(snapshot, pod) for pod in known)

    action = plan.stages[-1].action if plan.stages else ""
    stages = (stage for stage in plan.stages if stage.action == action)
    return Progress(
        action=action,
        gpus_admitted=gpus(placed - evicted),
        gpus_lost=gpus(evicted - placed),
        unproved=next((stage for stage in stages if stage.gap), None),
    )


def interim(snapshot: Snapshot, plan: Plan) -> Plan:
    """``plan`` as the answer if time ends now: groups that no action has looked at are named, and no stage is
    left out."""
    known = {decision.group for decision in plan.decisions if decision.kind != "Evict"}
    known |= {entry.group for entry in plan.unscheduled}
    missing = tuple(
        Unscheduled(group, "NotDecidedInTime", "the budget ended before this pod group was looked at", False)
        for group in sorted(group.key for group in snapshot.waiting_groups if group.key not in known)
    )
    solved = {stage.action for stage in plan.stages}
    skipped = tuple(
        Stage(action, "", "GREEDY", gap=1.0) for action in snapshot.policy.actions if action not in solved
    )
    if not (missing or skipped):
        return plan
    return replace(plan, unscheduled=plan.unscheduled + missing, stages=plan.stages + skipped)
