"""Runs the engine in a process of its own and sends it only what changed.

If a solver overruns its budget or dies, the last checked plan counts, and a fresh process gets the whole
snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from kai_cp import memory
from kai_cp.json_types import Object
from kai_cp.kube.api.store import ObjectKey, key_of
from kai_cp.kube.scheduler.decider import Decided
from kai_cp.reader import ParseMemo, parse
from kai_cp.worker import Channel, Reply, Worker
from kai_cp_models.arrays import FollowedItems
from kai_cp_models.collection import following
from kai_cp_models.plan import Plan, Unscheduled
from kai_cp_models.queries.reading import claims_wait
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import SetAside
from kai_cp_models.turns import Turns

GRACE_SECONDS: Final = 20.0
"""The engine ends at its budget by itself; one that is this late hangs, and is ended."""
LONGEST_STRETCH: Final = 16.0


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one list of ``rawObjects``: new or changed objects (a JSON list), and keys that were
    removed.

    Text crosses the pipe, so the depth of an object does not matter to the sender.
    """

    upserts: bytes
    removed: list[ObjectKey]


@dataclass(frozen=True, slots=True)
class CycleTask:
    """A snapshot as its difference from the one before, or from nothing if ``fresh``."""

    fresh: bool
    rest: Mapping[str, Any]
    lists: Mapping[str, Changes | None]
    now: float
    usage: Mapping[str, Any] | None
    settings: Settings
    budget: float
    """Seconds for deciding, reading excluded."""


@dataclass(frozen=True, slots=True)
class Noted:
    """Findings that only the worker can make while reading, since it alone evaluates claim selectors."""

    set_aside: tuple[SetAside, ...]
    waiting: tuple[Unscheduled, ...]
    unfinished: bool
    again_at: float | None
    dear: frozenset[str]


@dataclass
class SnapshotMirror:
    """The worker's copy of the snapshot, and its cache of parsed objects."""

    lists: dict[str, dict[ObjectKey, Object]] = field(default_factory=dict)
    served: dict[str, list[Object] | None] = field(default_factory=dict)
    """Lists of the last snapshot, sorted by key; None: the list is not served."""
    memo: ParseMemo = field(default_factory=ParseMemo)
    turns: Turns = field(default_factory=Turns)

    def apply(self, task: CycleTask) -> dict[str, Any]:
        """Apply a task's changes; returns the whole snapshot."""
        if task.fresh:
            self.lists.clear()
            self.served.clear()
        for name, changes in task.lists.items():
            if changes is None:
                self.lists.pop(name, None)
                self.served[name] = None
                continue
            items = self.lists.setdefault(name, {})
            for key in changes.removed:
                items.pop(key, None)
            items.update((key_of(item), item) for item in orjson.loads(changes.upserts))
            self.served[name] = [items[key] for key in sorted(items)]
        return {**task.rest, "rawObjects": dict(self.served)}


_MIRROR: Final = SnapshotMirror()


def job(task: CycleTask, channel: Channel) -> None:
    """The worker's side: apply the changes, read, decide, and send every checked plan."""
    from kai_cp_models.engine import decide

    memory.bound(task.settings.limits.memory_bytes)
    with following(first=task.fresh):
        snapshot = parse(
            _MIRROR.apply(task),
            now=task.now,
            usage=task.usage,
            memo=_MIRROR.memo,
            limits=task.settings.limits,
            user_label=task.settings.users.label,
        )
    turn = _MIRROR.turns.take(snapshot, task.budget)
    unfinished = (bool(turn.waiting) and turn.again_at is None) or claims_wait(snapshot)
    channel.progress(Noted(snapshot.set_aside, turn.waiting, unfinished, turn.again_at, turn.dear))
    deadline = time.monotonic() + task.budget
    channel.until(deadline + GRACE_SECONDS)
    decide(turn.snapshot, task.settings, deadline=deadline, emit=channel.answer)


class Differ:
    """Finds what changed since the last call. Objects are compared by identity because they are immutable."""

    def __init__(self) -> None:
        self._lists: dict[str, Any] = {}
        self._sent: dict[str, FollowedItems[Object, ObjectKey]] = {}
        """By list."""
        self._fresh = True

    def forget(self) -> None:
        """Forget what was sent: the next process knows nothing."""
        self._lists.clear()
        self._sent.clear()
        self._fresh = True

    def task(
        self,
        raw: Mapping[str, Any],
        now: float,
        usage: Mapping[str, Any] | None,
        settings: Settings,
        budget: float = 1.0,
    ) -> CycleTask:
        """The task for ``raw``, which counts as sent from now on."""
        lists: dict[str, Changes | None] = {}
        for name, items in raw["rawObjects"].items():
            if not self._fresh and items is self._lists.get(name):
                continue
            self._lists[name] = items
            if items is None:
                # The worker forgets a list that is not served.
                self._sent.pop(name, None)
            lists[name] = None if items is None else self._changes(name, items)
        rest = {key: value for key, value in raw.items() if key != "rawObjects"}
        fresh, self._fresh = self._fresh, False
        return CycleTask(fresh, rest, lists, now, usage, settings, budget)

    def _changes(self, name: str, items: list[Object]) -> Changes:
        came, left = self._sent.setdefault(name, FollowedItems()).follow(items, key_of)
        removed = set(left).difference(key for key, _ in came)
        return Changes(orjson.dumps([item for _, item in came]), sorted(removed))


def stretched(stretch: float, plan: Plan, problem: str) -> float:
    """The factor by which the next budget exceeds the setting; doubled while a budget decides less than it
    leaves undecided.

    A cluster too large for its budget, or a machine too busy, must still make progress.
    """
    undecided = sum(entry.reason == "NotDecidedInTime" for entry in plan.unscheduled)
    if max(undecided, bool(problem)) > len(plan.decisions):
        return min(LONGEST_STRETCH, 2.0 * stretch)
    return max(1.0, stretch / 2.0)


class WorkerDecider:
    """Decides in a worker process, and meanwhile reads the snapshot here too, for the reports."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._worker = Worker(job, decides_once=True)
        self._worker.start()
        self._differ = Differ()
        self._memo = ParseMemo()
        self._stretch = 1.0
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="decide")

    def stop(self) -> None:
        """End the worker."""
        self._worker.stop()
        self._aside.shutdown(wait=False, cancel_futures=True)

    def __call__(self, raw: Mapping[str, Any], now: float, usage: Mapping[str, Any] | None) -> Decided:
        """Plan for ``raw``; if the engine fails or is late, return its last checked plan."""
        started = time.monotonic()
        budget = self._settings.solver.budget_seconds * self._stretch
        task = self._differ.task(raw, now, usage, self._settings, budget)
        noted: list[Noted] = []
        until = started + self._settings.limits.read_seconds
        pending = self._aside.submit(self._worker.run, task, until, noted.append)
        label = self._settings.users.label
        snapshot = parse(raw, now=now, usage=usage, memo=self._memo, judged=False, user_label=label)
        reply: Reply = pending.result()
        problem = ""
        if reply.end == "late":
            problem = "the engine was ended at its deadline"
        elif reply.end == "failed":
            problem = reply.failure
        if reply.end != "done":
            self._differ.forget()
            self._worker.stop()
        plan = reply.answer if reply.answer is not None else Plan()
        self._stretch = stretched(self._stretch, plan, problem)
        seconds = time.monotonic() - started
        if not noted:
            return Decided(snapshot, plan, seconds, problem)
        said = noted[0]
        snapshot = replace(snapshot, set_aside=said.set_aside)
        plan = replace(plan, unscheduled=plan.unscheduled + said.waiting)
        return Decided(snapshot, plan, seconds, problem, said.unfinished, said.again_at, said.dear)
