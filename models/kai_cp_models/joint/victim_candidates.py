"""The units that running pod groups could give up, in the order in which policy takes them (3.6, 4.3, 4.6,
5.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import Amounts, milli_gpus
from kai_cp_models.fairness.rank import Giving, victim_order
from kai_cp_models.fairness.reclaim import victim_allowed
from kai_cp_models.fairness.runtime import granted, protected
from kai_cp_models.joint.policy import RECLAIM, EvictionPolicy
from kai_cp_models.joint.problem import Ask, EvictionUnit
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_USED, UNLIMITED, GroupKey, Pod, PodKey
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.units import Gang

Bucket = tuple[str, int, int]
"""Leaf queue, priority and elastic state: units with the same key differ in age only."""
Age = tuple[float, float]
"""Last start and creation; the younger goes first."""


@dataclass(slots=True, eq=False)
class VictimCandidate:
    """A unit with its place in the reverse fair order.

    ``rank``: its position, 0 goes first. ``weight``: milli-GPUs plus one per pod,
    the measure of the threshold. ``work``: lost GPU-milliseconds, see ``lost_work``.
    """

    unit: EvictionUnit
    rank: int
    bucket: Bucket
    age: Age
    holds: Amounts
    weight: int
    work: int


def charged(ledger: Ledger, pods: Iterable[Pod]) -> Amounts:
    """What queues are charged for the pods at the nodes where they are; nothing for those without a place."""
    charge, place_of = ledger.fixed.charge, ledger.place_of
    return amounts.total(charge(pod, place[0]) for pod in pods if (place := place_of(pod)))


def within_ceiling(ratio: float, moved: Iterable[Pod], asks: Iterable[Ask]) -> bool:
    """Whether at most as many GPUs move as the settings allow for these asks.

    ``ratio``: ``ObjectiveSettings.max_moved_gpus_per_admitted_gpu``.
    """
    if ratio == UNLIMITED:
        return True
    return sum(map(milli_gpus, moved)) <= ratio * sum(milli_gpus(pod) for ask in asks for pod in ask.pods)


def gpu_weight(pod: Pod) -> int:
    """Milli-GPUs of a pod, plus one: its weight when it is lost or moved."""
    return milli_gpus(pod) + 1


def victim_candidates(cycle: Cycle, asks: Sequence[Ask], policy: EvictionPolicy) -> list[VictimCandidate]:
    """Every unit that some ask may disturb, in reverse fair order."""
    ledger = cycle.ledger
    chains: dict[GroupKey, _Chain] = {}
    relying, joined = ledger.relying(), _joined(cycle, policy)
    for group in _disturbed(cycle, asks, policy):
        if not ledger.has_places(group.key):
            continue
        pods = ledger.fixed.gangs[group.key].pods if joined else ()
        shares = any(not joined.isdisjoint(pod.gpu_groups) and pod.key not in ledger.held for pod in pods)
        if shares or group.key in cycle.left_out:
            continue
        chain = _chain(cycle, group, policy, relying)
        if chain.units:
            chains[group.key] = chain
    age = _ages(cycle, chains)
    found: list[VictimCandidate] = []
    for key, k in victim_order(ledger.book, {key: chain.giving for key, chain in chains.items()}):
        chain = chains[key]
        unit, weight = chain.units[k], chain.weights[k]
        group = unit.group
        found.append(
            VictimCandidate(
                unit,
                len(found),
                (group.queue, group.priority, chain.states[k]),
                (_started(cycle, unit), group.created),
                chain.giving.gives[k],
                weight,
                0 if unit.placed_now else weight * age[key],
            )
        )
    return found


def _joined(cycle: Cycle, policy: EvictionPolicy) -> frozenset[str]:
    """The shared GPUs of the snapshot that pods have joined in this action; no pod joins one that goes away
    (2.6), so those who share it stay."""
    ledger = cycle.ledger
    return frozenset(
        name
        for key, held in ledger.held.items()
        if held.gpu_groups and cycle.placed_by.get(key) == policy.name
        for name in held.gpu_groups
        if not ledger.devices[held.node, name].new
    )


def _disturbed(cycle: Cycle, asks: Sequence[Ask], policy: EvictionPolicy) -> Iterator[PodGroup]:
    """The running pod groups that some ask may disturb (4.3), as ``VictimFilter`` tells them one by one."""
    by_queue = cycle.snapshot.preemptible_groups
    if policy.own_queue:
        above: dict[str, int] = {}
        for ask in asks:
            queue, priority = ask.group.queue, ask.group.priority
            above[queue] = max(priority, above.get(queue, priority))
        for queue, highest in above.items():
            yield from (group for group in by_queue.get(queue, ()) if group.priority < highest)
    elif not policy.may_lose:
        own = {ask.group.key for ask in asks}
        for groups in by_queue.values():
            yield from (group for group in groups if group.key not in own)
    else:
        ledger = cycle.ledger
        kinds = {ask.kind: ask for ask in asks}.values()
        reach = {entitlement(ask, policy): VictimFilter(ledger, ask, policy) for ask in kinds}
        for queue, groups in by_queue.items():
            if any(one.reclaims_from(queue) for one in reach.values()):
                yield from groups


class _Chain(NamedTuple):
    """The eviction units of a group in order (5.4), each with the group's elastic state before it leaves."""

    units: tuple[EvictionUnit, ...]
    states: tuple[int, ...]
    weights: tuple[int, ...]
    giving: Giving


def _started(cycle: Cycle, unit: EvictionUnit) -> float:
    """Seconds of the epoch at which the group last started, or was created; now if it got its place now."""
    group = unit.group
    if unit.placed_now:
        return cycle.snapshot.now
    return group.created if group.last_start is None else group.last_start


def _chain(cycle: Cycle, group: PodGroup, policy: EvictionPolicy, relying: Set[PodKey]) -> _Chain:
    """What a group could give up; computed once a cycle while its pods are as the snapshot has them."""
    ledger = cycle.ledger
    gang = ledger.fixed.gangs[group.key]
    if group.key in ledger.touched:
        return _linked(cycle, group, _touched(cycle, gang, policy, relying))
    known = ledger.fixed.chains.get(group.key)
    if not isinstance(known, _Chain):
        movable = gang.satisfied_at_first
        units = [
            (EvictionUnit(group, unit.pods, k, unit.whole, False, movable), unit.elastic_state)
            for k, unit in enumerate(gang.units_at_first)
        ]
        known = ledger.fixed.chains[group.key] = _linked(cycle, group, units)
    return known


def _linked(cycle: Cycle, group: PodGroup, units: Sequence[tuple[EvictionUnit, int]]) -> _Chain:
    # The group that started last loses the least work; creation decides where starts are equal or unknown.
    name = f"{group.created:020.6f}{group.key.name}"
    keys = [
        (-group.priority, state, _started(cycle, unit), name, group.key.namespace) for unit, state in units
    ]
    return _Chain(
        tuple(unit for unit, _ in units),
        tuple(state for _, state in units),
        tuple(sum(map(gpu_weight, unit.pods)) for unit, _ in units),
        Giving(group.queue, keys, [charged(cycle.ledger, unit.pods) for unit, _ in units]),
    )


def _touched(
    cycle: Cycle, gang: Gang, policy: EvictionPolicy, relying: Set[PodKey]
) -> list[tuple[EvictionUnit, int]]:
    """The units of a gang that the cycle has changed, as far as they may still be disturbed.

    ``relying``: see ``Ledger.relying``.
    """
    ledger, group = cycle.ledger, gang.group
    movable = gang.satisfied(group.root, ledger.status)
    # Reclaim counted on the places that allocate gave, so these are not withdrawn any more. A promised start
    # that has come gives way to groups that outrank it in its queue, and to no others (12.8). A place that
    # others of the cycle may rely on stays as well.
    kept = (
        group.key in cycle.kept
        or any(eviction.action == RECLAIM.name for eviction in cycle.evicted_by.values())
        or (not policy.own_queue and any(cycle.placed_by.get(pod.key) == "reservation" for pod in gang.pods))
        or ledger.relied_on(gang.pods, relying)
    )
    found: list[tuple[EvictionUnit, int]] = []
    for k, unit in enumerate(gang.units(ledger.status)):
        if any(_moved(cycle, pod) for pod in unit.pods):
            break
        if kept and any(pod.key in ledger.held for pod in unit.pods):
            break
        new = all(pod.key in ledger.held for pod in unit.pods)
        found.append((EvictionUnit(group, unit.pods, k, unit.whole, new, movable), unit.elastic_state))
    return found


def _moved(cycle: Cycle, pod: Pod) -> bool:
    """Whether an earlier action of the cycle moved the pod; it is not disturbed twice."""
    return pod.key in cycle.ledger.held and pod.status in ACTIVE_USED


def _ages(cycle: Cycle, chains: Mapping[GroupKey, object]) -> dict[GroupKey, int]:
    """Seconds of work that each group would lose per device: those since its last start, capped (formulation
    1.4).

    A group whose start is unknown counts with the mean of the known ones, so that publishing a start does no
    harm.
    """
    now, cap = cycle.snapshot.now, cycle.settings.objective.lost_work_cap_seconds
    known = {
        key: int(min(max(now - start, 1), cap))
        for key in chains
        if (start := cycle.snapshot.group_by_key[key].last_start) is not None
    }
    neutral = sum(known.values()) // len(known) if known else 1
    return {key: known.get(key, neutral) for key in chains}


def entitlement(ask: Ask, policy: EvictionPolicy) -> tuple[object, ...]:
    """Asks with equal entitlement may take the same units."""
    if not policy.may_lose:
        return ()
    if policy.own_queue:
        return (ask.group.queue, ask.group.priority)
    return (ask.group.queue, ask.asked)


class VictimFilter:
    """Which groups an ask may disturb, and which units it may take (4.3, 4.6); answers are kept by queue."""

    def __init__(self, ledger: Ledger, ask: Ask, policy: EvictionPolicy) -> None:
        self._ledger = ledger
        self._group = ask.group
        self._policy = policy
        self._asked = ask.asked
        self._allowed: dict[str, bool] = {}
        self._granted: dict[str, float] = {}

    def disturbs(self, group: PodGroup) -> bool:
        """Whether pods of the group may be evicted or moved at all."""
        if not group.preemptible or group.key == self._group.key:
            return False
        if not self._policy.may_lose:
            return True
        if self._policy.own_queue:
            guarded = group.priority + group.aged_at_start
            return group.queue == self._group.queue and guarded < self._group.priority
        return self.reclaims_from(group.queue)

    def reclaims_from(self, queue: str) -> bool:
        """Whether the victim filter lets the ask look at victims of the queue (4.4)."""
        allowed = self._allowed.get(queue)
        if allowed is None:
            allowed = self._allowed[queue] = (
                queue != self._group.queue
                and queue in self._ledger.snapshot.leaf_queues
                and victim_allowed(self._ledger.book, self._group.queue, self._asked, queue)
            )
        return allowed

    def takes(self, unit: EvictionUnit) -> bool:
        """Whether this unit may be taken: its group has run long enough, or gives up surplus only."""
        if not self.disturbs(unit.group):
            return False
        if not unit.whole or unit.placed_now:
            return True
        return not protected(self._ledger.snapshot, unit.group, self._undisturbed(unit.group.queue))

    def _undisturbed(self, queue: str) -> float:
        """Seconds that groups of the queue run undisturbed by this one (4.6)."""
        seconds = self._granted.get(queue)
        if seconds is None:
            seconds = granted(self._ledger.snapshot, queue, self._policy.name, self._group.queue)
            self._granted[queue] = seconds
        return seconds

    def takes_all(
        self,
        by_queue: Mapping[str, Sequence[VictimCandidate]],
        known: dict[tuple[str, float], frozenset[int]],
    ) -> frozenset[int]:
        """Ranks of the units of each queue that may be taken.

        ``known``: a cache, added to: what reclaim may take of a queue, by the seconds that the queue's groups
        run undisturbed.
        """
        if not self._policy.by_share:
            return frozenset(
                item.rank for mine in by_queue.values() for item in mine if self.takes(item.unit)
            )
        parts: list[frozenset[int]] = []
        for queue, mine in by_queue.items():
            if self.reclaims_from(queue):
                key = queue, self._undisturbed(queue)
                if key not in known:
                    known[key] = frozenset(item.rank for item in mine if self.takes(item.unit))
                parts.append(known[key])
        return frozenset[int]().union(*parts)

    def scope(self, queues: Iterable[str]) -> tuple[object, ...]:
        """What decides what an ask takes: asks with equal scopes may take the same units of ``queues``."""
        if self._policy.by_share:
            return (self._group.queue, *(queue for queue in queues if self.reclaims_from(queue)))
        return (self._group.queue, self._group.priority) if self._policy.own_queue else ()
