"""Graceful rollouts, an option that KAI lacks: new pods run beside the old ones that they replace (3.8).

Quotas count only the larger revision of a workload in rollout, because the old pods give the smaller one back
(docs/inference.md). Only a batch of the new revision is admitted this way, and it evicts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from kai_cp_models.arrays import Floats
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import NOTHING, Amounts
from kai_cp_models.plan import RolloutHolding
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, MILLI, Pod, PodKey
from kai_cp_models.records.notes import ROLLOUT, unread_of
from kai_cp_models.rules.stateful.protocol import LeavingState, Lent, RuleState
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import SetAside, Snapshot

NAME: Final = "rollouts"
OLD_NODE: Final = 100.0
"""Score of a node that the old revision will give back: below capacity that is free now, above packing
(6)."""

_OLD: Final = 0
_NEW: Final = 1


class RolledOut(NamedTuple):
    """What is in rollout. ``queue``: a leaf queue."""

    namespace: str
    name: str
    queue: str


@dataclass(frozen=True, slots=True)
class Rollout:
    """The newest revision of a workload that has others. ``began``: when its first pod was created."""

    revision: str
    began: float


def active(snapshot: Snapshot, options: OptionalRules) -> bool:
    """Whether the option is on and some queue uses it."""
    return options.rollouts and any(queue.notes.rollout is not None for queue in snapshot.queues)


def open(snapshot: Snapshot) -> RuleState:
    """What old and new revisions hold."""
    return RolloutState(snapshot)


def set_aside(snapshot: Snapshot) -> Iterator[SetAside]:
    """Annotations that cannot be read."""
    for queue in snapshot.queues:
        for one in unread_of(queue.notes, (ROLLOUT,)):
            yield SetAside(f"Queue {queue.name}", one.reason, one.field)


def problems(snapshot: Snapshot, options: OptionalRules) -> tuple[SetAside, ...]:
    """``set_aside`` where the option is on."""
    return tuple(set_aside(snapshot)) if active(snapshot, options) else ()


def holdings(rules: Iterable[RuleState]) -> tuple[RolloutHolding, ...]:
    """What workloads in rollout hold in the state of a ledger; nothing where the rule is off."""
    return tuple(one for rule in rules if isinstance(rule, RolloutState) for one in rule.holdings())


def lending(snapshot: Snapshot) -> Mapping[str, float]:
    """For how many seconds each leaf queue lends quota to a rollout: the shortest time stated on its path."""
    said = {queue.name: queue.notes.rollout for queue in snapshot.queues}
    found = {}
    for leaf in snapshot.leaf_queues:
        times = [time for name in snapshot.queue_path[leaf] if (time := said[name]) is not None]
        if times:
            found[leaf] = min(times)
    return found


def _members(snapshot: Snapshot) -> Iterator[tuple[RolledOut, Pod]]:
    """Pods that may be part of a rollout: they cannot be preempted and name their revision."""
    groups = snapshot.group_by_key
    for pod in snapshot.pods:
        group = groups.get(pod.group) if pod.group is not None and pod.revision is not None else None
        if group is not None and pod.revision is not None and not group.preemptible:
            yield RolledOut(pod.key.namespace, pod.revision.workload, group.queue), pod


def _newest(pods: Iterable[Pod]) -> Rollout | None:
    """The revision whose first pod was created last; None where there is no other."""
    first: dict[str, float] = {}
    for pod in pods:
        assert pod.revision is not None
        name = pod.revision.name
        first[name] = min(pod.created, first.get(name, pod.created))
    began, newest = max((created, name) for name, created in first.items())
    return Rollout(newest, began) if len(first) > 1 else None


class RolloutState(LeavingState):
    """What the revisions of every workload in rollout hold, and where."""

    name = NAME

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._sides: dict[PodKey, tuple[RolledOut, int]] = {}
        """The pods of workloads in rollout, as ``_OLD`` or ``_NEW``."""
        self._late: dict[PodKey, str] = {}
        """New pods of rollouts whose time is over, with the message."""
        self._holds: dict[tuple[RolledOut, int], Amounts] = {}
        self._old_on: dict[tuple[RolledOut, int], int] = {}
        """How many old pods are on a node."""
        self._running: dict[RolledOut, tuple[str, float]] = {}
        """Newest revision of every workload in rollout, and when its time is over."""
        times = lending(snapshot)
        workloads: dict[RolledOut, list[Pod]] = {}
        for workload, pod in _members(snapshot):
            if workload.queue in times:
                workloads.setdefault(workload, []).append(pod)
        for workload, pods in workloads.items():
            rollout = _newest(pods)
            if rollout is not None:
                self._enter(workload, rollout, pods, times[workload.queue])
        for pod in snapshot.pods:
            node = snapshot.node_index.get(pod.node or "")
            if pod.key in self._sides and node is not None and pod.status in ACTIVE_ALLOCATED:
                self._count(pod, node, 1)

    def _enter(self, workload: RolledOut, rollout: Rollout, pods: Iterable[Pod], seconds: float) -> None:
        age = self._snapshot.now - rollout.began
        if age <= seconds:
            self._running[workload] = rollout.revision, rollout.began + seconds
        for pod in pods:
            new = pod.revision is not None and pod.revision.name == rollout.revision
            if age <= seconds:
                self._sides[pod.key] = workload, _NEW if new else _OLD
            elif new:
                self._late[pod.key] = (
                    f"; the rollout of {workload.name} began {age:.0f} s ago, "
                    f"its queue lends quota for {seconds:.0f} s ({ROLLOUT})"
                )

    def detach(self) -> None:
        super().detach()
        self._holds, self._old_on = dict(self._holds), dict(self._old_on)

    def concerns(self, pod: Pod) -> bool:
        return pod.key in self._sides

    def score(self, pod: Pod) -> Floats | None:
        workload, side = self._sides.get(pod.key, (None, _OLD))
        nodes = [n for (owner, n), count in self._old_on.items() if owner == workload and count > 0]
        if side == _OLD or not nodes:
            return None
        found = np.zeros(len(self._snapshot.nodes))
        found[nodes] = OLD_NODE
        return found

    def lent(self, pods: Sequence[Pod], asked: Amounts, *, beside: Amounts = NOTHING) -> Lent | None:
        sides = {self._sides.get(pod.key) for pod in pods}
        mine = sides.pop() if len(sides) == 1 else None
        if mine is None or mine[1] == _OLD:
            late = {self._late.get(pod.key, "") for pod in pods}
            words = late.pop() if len(late) == 1 else ""
            return Lent({}, words) if words else None
        found: dict[str, Amounts] = {}
        for workload in {workload for workload, _ in self._holds} | {mine[0]}:
            new = amounts.add(self._holds.get((workload, _NEW), NOTHING), beside)
            if workload == mine[0]:
                new = amounts.add(new, asked)
            given = amounts.least(self._holds.get((workload, _OLD), NOTHING), new)
            for queue in self._snapshot.queue_path.get(workload.queue, ()):
                found[queue] = amounts.add(found.get(queue, NOTHING), given)
        return Lent(found)

    def holdings(self) -> Iterator[RolloutHolding]:
        """What the workloads in rollout hold, by name."""
        for workload, (revision, until) in sorted(self._running.items()):
            old, new = (self._holds.get((workload, side), NOTHING)[GPU] / MILLI for side in (_OLD, _NEW))
            yield RolloutHolding(*workload, revision, until, old, new)

    def place(self, pod: Pod, node: int, *, pipelined: bool) -> None:
        self._count(pod, node, 1)

    def remove(self, pod: Pod, node: int) -> None:
        self._count(pod, node, -1)

    def _leave(self, pod: Pod, sign: int) -> None:
        node = self._snapshot.node_index.get(pod.node or "")
        if node is not None and pod.status in ACTIVE_ALLOCATED:
            self._count(pod, node, -sign)

    def _count(self, pod: Pod, node: int, sign: int) -> None:
        workload, side = place = self._sides[pod.key]
        cost = amounts.accepted(self._snapshot, pod, self._snapshot.nodes[node])
        change = amounts.add if sign > 0 else amounts.subtract
        self._holds[place] = change(self._holds.get(place, NOTHING), cost)
        if side == _OLD:
            self._old_on[workload, node] = self._old_on.get((workload, node), 0) + sign
