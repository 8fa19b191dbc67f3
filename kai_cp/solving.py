"""One snapshot from file to ``decisions/1``: the job of ``solve``'s worker, and its budget.

Reading, deciding and writing all happen in the worker, so nothing large crosses the pipe: it sends
finished documents, the first of them before anything is decided.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from kai_cp.decisions import to_json
from kai_cp.reader.container import Source, UnreadableSnapshot
from kai_cp.worker import Channel, Reply, Worker
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Plan, PodStatus, Snapshot, Stage, Unscheduled

DECIDING: Final = 0.75
"""Share of the budget that is left for deciding however long start-up and reading took."""
DECIDING_SECONDS: Final = 1.0
"""So much of a small budget is left for deciding, whatever its share."""
ENGINE: Final = 0.95
"""Share of the time for deciding after which the engine itself ends; the rest is for writing."""
GRACE: Final = 0.08
"""Share of the budget that the parent waits beyond it before it kills the worker."""


@dataclass(frozen=True, slots=True)
class Task:
    """One snapshot to be solved.

    ``data``: its bytes, when there is no path. ``started``: ``time.monotonic()`` when work on it began.
    ``usage``: historic share of the cluster by queue.
    """

    source: Source
    data: bytes | None
    now: float
    settings: Settings
    usage: Mapping[str, Any] | None
    started: float


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a task.

    ``document``: JSON, None when the input could not be read. ``problem``: one line that names the input,
    when it was bad or the engine failed. ``late``: stopped at the deadline; the document is the last sent.
    """

    source: Source
    document: bytes | None
    problem: str = ""
    details: str = ""
    late: bool = False


def deadline(started: float, read_at: float, budget: float) -> float:
    """When an answer is due: a budget after the start, but with enough of it left after reading."""
    return max(started + budget, read_at + max(DECIDING * budget, min(budget, DECIDING_SECONDS)))


def solve(worker: Worker, task: Task) -> Result:
    """Have the worker solve one snapshot."""
    return _result(task.source, worker.run(task))


def _result(source: Source, reply: Reply) -> Result:
    if isinstance(reply.answer, str):
        return Result(source, None, reply.answer)
    if reply.end != "failed":
        return Result(source, reply.answer, late=reply.end == "late")
    if reply.answer is None:
        return Result(source, None, f"{source.path}: reading failed: {reply.failure}", reply.details)
    problem = f"{source.path}: the engine failed: {reply.failure}; the last checked answer counts"
    return Result(source, reply.answer, problem, reply.details)


def job(task: Task, channel: Channel) -> None:
    """The worker's side: read, decide, and send every better document, or why there is none (a text)."""
    from kai_cp.reading import read
    from kai_cp_models.engine import decide

    began = time.monotonic()
    budget = task.settings.solver.budget_seconds
    data = task.source.path if task.data is None else task.data
    try:
        snapshot, digest = read(data, now=task.now, settings=task.settings, usage=task.usage)
    except UnreadableSnapshot as problem:
        channel.answer(str(problem))
        return
    read_at = time.monotonic()
    due = deadline(task.started, read_at, budget)
    channel.until(due + GRACE * budget)

    def send(plan: Plan) -> None:
        begin = time.monotonic()
        timings = (
            {"read": read_at - began} if plan.timings else {"read": read_at - began, "solve": begin - read_at}
        )
        document = to_json(snapshot, plan, sha256=digest, timings=timings)
        document["timings"]["write"] = round(time.monotonic() - begin, 6)
        channel.answer(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))

    def send_interim(plan: Plan) -> None:
        send(interim(snapshot, plan))

    send_interim(Plan())
    send(decide(snapshot, task.settings, deadline=read_at + ENGINE * (due - read_at), emit=send_interim))


def interim(snapshot: Snapshot, plan: Plan) -> Plan:
    """``plan`` as it stands if time ends now: who was not looked at is named, and no stage is left out."""
    decided = {decision.group for decision in plan.decisions if decision.kind != "Evict"}
    explained = {entry.group for entry in plan.unscheduled}
    waiting = {
        pod.group
        for pod in snapshot.pods
        if pod.group is not None and pod.status is PodStatus.PENDING and pod.group in snapshot.group_by_key
    }
    missing = tuple(
        Unscheduled(group, "NotDecidedInTime", "the budget ended before this pod group was looked at", False)
        for group in sorted(waiting - decided - explained)
    )
    solved = {stage.name.split(":")[0] for stage in plan.stages}
    skipped = tuple(
        Stage(action, "GREEDY", gap=1.0) for action in snapshot.policy.actions if action not in solved
    )
    return replace(plan, unscheduled=plan.unscheduled + missing, stages=plan.stages + skipped)
