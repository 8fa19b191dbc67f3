"""The joint problem of an action as plain values: the batches that ask for places, and the pods that could
leave.

*Asks* are batches that want a place, in fair order. *Units* are eviction units of running pod groups
(5.4) that may be lost or moved. Nothing here knows the solver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from kai_cp_models.fairness.amounts import NOTHING, Amounts
from kai_cp_models.fairness.order import Entry, group_sort_key
from kai_cp_models.frozen import record
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_USED, GroupKey, Pod, PodKey
from kai_cp_models.shapes import BatchShape
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.units import Batch, Gang, Gangs, GangState


class AskKind(NamedTuple):
    """What decides about an ask: asks of one kind are served or refused alike by every rule of an action.
    ``pinned``: the group, where its own running pods decide which nodes the others may take."""

    shape: BatchShape
    pinned: GroupKey | None
    queue: str
    priority: int
    preemptible: bool

    @property
    def bounds(self) -> tuple[object, ...]:
        """What decides how much a share by memory may be charged, which depends on the node: the limits of
        its queue, and the quota of what is not preemptible. Nothing for others, whose charge is known."""
        return (self.queue, self.preemptible) if self.shape.by_memory else ()

    @property
    def signature(self) -> tuple[object, ...]:
        """Asks with equal signatures are interchangeable where only capacity matters."""
        return self.shape, self.pinned, *self.bounds


@dataclass(slots=True, eq=False)
class Ask:
    """A batch that wants a place, see ``ask_of``. ``entry``: its entry in the fair order (3.5, 3.6). Without
    a batch, the ask is for the group's first one in the snapshot, which is made on demand; few are needed."""

    group: PodGroup
    gangs: Gangs
    entry: Entry
    kind: AskKind
    _batch: Batch | None = None

    @property
    def gang(self) -> Gang:
        """The gang of its group."""
        return self.gangs[self.group.key]

    @property
    def batch(self) -> Batch:
        """Its pods in the shape of the gang tree."""
        if self._batch is None:
            self._batch = self.gang.at_first.batch
        assert self._batch is not None
        return self._batch

    @property
    def pods(self) -> tuple[Pod, ...]:
        """Pods of the batch in placement order."""
        return self.batch.all_pods

    @property
    def promised(self) -> bool:
        """Whether its places are promised (4.2)."""
        return not self.entry[0][0]

    @property
    def asked(self) -> Amounts:
        """Its size in order, demand and reclaim, pessimistic (2.3)."""
        return self.entry[1]


def ask_of(
    ledger: Ledger, gang: Gang, batch: Batch, state: GangState | None = None, *, promises: bool = True
) -> Ask:
    """The batch of the gang as an ask. ``state``: of the gang; None: that in the ledger. ``promises``: those
    to its pods count."""
    group, shape = gang.group, ledger.fixed.shapes.of(batch)
    pinned = shape.scoped and (shape.leaves > 1 or any(ledger.place_of(pod) is not None for pod in gang.pods))
    kind = AskKind(shape, group.key if pinned else None, group.queue, group.priority, group.preemptible)
    state, promised = state or ledger.state(gang), promises and ledger.promised(batch.all_pods)
    entry = group_sort_key(group, state.elastic_state, promised=promised), shape.pessimistic
    return Ask(group, ledger.fixed.gangs, entry, kind, batch)


def examples(asks: Iterable[Ask]) -> list[Pod]:
    """One pod of each spec that these ask for; there are many asks and few shapes."""
    shapes = dict.fromkeys(ask.kind.shape for ask in asks)
    return list({pod.spec: pod for shape in shapes for pod in shape.examples}.values())


def further(ledger: Ledger, ask: Ask) -> Ask | None:
    """What the group of an ask that has its places asks for next (5.3); None: nothing."""
    batch = ledger.state(ask.gang).batch if len(ask.pods) < len(ask.gang.pods) else None
    return None if batch is None else ask_of(ledger, ask.gang, batch)


def in_turn(ask: Ask) -> Ask:
    """The ask in its own turn of the fair order, as if it were promised nothing."""
    return replace(ask, entry=(group_sort_key(ask.group, ask.entry[0][2]), ask.asked))


def runs(ledger: Ledger, ask: Ask) -> bool:
    """Whether pods of its group run already. None of them moves for it, as one of an equal ask might."""
    return any(ledger.place_of(pod) is not None for pod in ask.gang.pods)


Owed = tuple[tuple[PodGroup, Pod], ...]
"""Evicted pods of other groups."""


@record(slots=True, eq=False, frozen=True)
class EvictionUnit:
    """One eviction unit: ``chain`` is its position in its group's chain; unit k+1 is lost after k.

    ``whole``: losing it stops the group below its minimum. ``rank``: its position in the reverse fair order,
    0 goes first. ``weight``: milli-GPUs plus one per pod, the measure of the threshold. ``work``: lost
    GPU-milliseconds, see ``lost_work``.
    """

    group: PodGroup
    pods: tuple[Pod, ...]
    chain: int
    whole: bool
    movable: bool = True
    """False for a gang that runs below its minimum: it would only start below it again."""
    owed: Owed = ()
    """What the cycle evicted for the places of these pods: it is taken with them (formulation 1.5)."""
    rank: int = 0
    bucket: tuple[str, int, int] = "", 0, 0
    """Leaf queue, priority and elastic state: units with the same key differ in age only."""
    age: tuple[float, float] = 0.0, 0.0
    """Last start and creation; the younger goes first."""
    holds: Amounts = NOTHING
    weight: int = 0
    work: int = 0

    @property
    def running(self) -> Sequence[Pod]:
        """Those of the pods that run; others only lose a place of this cycle, which costs nothing, or get
        another one."""
        return [pod for pod in self.pods if pod.status in ACTIVE_USED]


def leaving_first(unit: EvictionUnit) -> Sequence[Pod]:
    """The pods of a unit in the order in which they move, where some of them do; also those that only got a
    place in this cycle, so that of plans that differ in nothing else one is the best.

    The next pod comes from the subgroup that is last in the order of 3.6 once the pod is gone: the one that
    keeps the largest part of its minimum. So a pod of several workers moves before a role that has one pod
    only.
    """
    minimum = {leaf.name: max(leaf.minimum, 1) for leaf in unit.group.root.leaves()}
    before = Counter[str]()
    kept: dict[PodKey, tuple[float, str]] = {}
    for pod in unit.pods:
        name = pod.subgroup or "default"
        kept[pod.key] = before[name] / minimum[name], name
        before[name] += 1
    return sorted(unit.pods, key=lambda pod: kept[pod.key], reverse=True)


Place: TypeAlias = tuple[int, tuple[str, ...]]
"""A node and, for a share, its GPU groups."""
GivenPlace: TypeAlias = tuple[int, tuple[str | int, ...]]
"""The same in an answer; a number stands for a device of the node that is not shared yet."""


@dataclass(frozen=True)
class Answer:
    """A solved problem pod by pod. ``places``: of every placed pod (asks and moved pods).

    ``asks``: those that are admitted. ``gone``: the pods that give up their places, as their unit is lost or
    they move.
    """

    places: Mapping[PodKey, GivenPlace]
    asks: Sequence[Ask]
    lost: Sequence[bool] = ()
    moved: frozenset[PodKey] = frozenset()
    gone: Sequence[Pod] = ()


def fits_in_place_of(ledger: Ledger, pod: Pod, other: Pod) -> bool:
    """Whether ``pod`` fits wherever ``other`` does: it asks for no more and accepts every node that ``other``
    accepts.

    False where more than requests and static rules decide: one may need a port or a device that the other
    does not.
    """
    mine, theirs = pod.spec, other.spec
    if mine.gpu.shares or theirs.gpu.shares or mine.scheduling_key != theirs.scheduling_key:
        return False
    # Of many kinds most pairs differ in this.
    if any(small > large for small, large in zip(mine.requests, theirs.requests, strict=True)):
        return False
    if any(rule.concerns(one) for rule in ledger.rules for one in (pod, other)):
        return False
    table = ledger.fixed.table
    return not bool((table.accepting(other) & ~table.accepting(pod)).any())
