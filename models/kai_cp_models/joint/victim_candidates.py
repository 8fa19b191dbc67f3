"""The units that running pod groups could give up, in the order in which policy takes them (3.6, 4.3, 4.6,
5.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import Amounts, milli_gpus
from kai_cp_models.fairness.rank import Giving, victim_order
from kai_cp_models.fairness.reclaim import victim_allowed
from kai_cp_models.fairness.runtime import granted, protected
from kai_cp_models.joint.policy import RECLAIM, EvictionPolicy
from kai_cp_models.joint.problem import Ask, EvictionUnit, Owed
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_USED, UNLIMITED, GroupKey, Pod, PodKey
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.units import Gang, Unit

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
    held = list(map(ledger.charge_of, pods))
    return held[0] if len(held) == 1 else amounts.total(held)


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
    ledger, there = cycle.ledger, cycle.ledger.with_places
    given, joined = _Given.of(cycle, policy), _joined(cycle, policy)
    chains: dict[_Chain, _Chain] = {}
    for group in disturbed(cycle, asks, policy):
        if group.key not in there or group.key in cycle.left_out:
            continue
        pods = ledger.fixed.gangs[group.key].pods if joined else ()
        if any(not joined.isdisjoint(pod.gpu_groups) and pod.key not in ledger.held for pod in pods):
            continue
        chain = _chain(cycle, group, given)
        chains[chain] = chain
    ages = _ages(cycle, chains)
    found: list[VictimCandidate] = []
    for chain, k in victim_order(ledger.book, chains):
        unit, bucket, age, weight = chain.units[k]
        work = 0 if unit.placed_now else weight * ages[chain]
        found.append(VictimCandidate(unit, len(found), bucket, age, chain.gives[k], weight, work))
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


def disturbed(cycle: Cycle, asks: Sequence[Ask], policy: EvictionPolicy) -> Iterator[PodGroup]:
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


@dataclass(slots=True, eq=False)
class _Chain(Giving):
    """The eviction units of a group in order (5.4), each with its bucket, its age and its weight."""

    group: PodGroup
    units: list[tuple[EvictionUnit, Bucket, Age, int]]


def _chain(cycle: Cycle, group: PodGroup, given: _Given) -> _Chain:
    """What a group could give up; computed once a cycle while its pods are as the snapshot has them."""
    ledger, key = cycle.ledger, group.key
    gang = ledger.fixed.gangs[key]
    if key in ledger.touched:
        movable = ledger.state(gang).satisfied
        return _linked(cycle, gang, _left(cycle, gang, given), movable=movable)
    known = ledger.fixed.chains.get(key)
    if not isinstance(known, _Chain):
        units = ((unit, False, ()) for unit in gang.units_at_first)
        known = ledger.fixed.chains[key] = _linked(cycle, gang, units, movable=gang.at_first.satisfied)
    return known


_Left = tuple[Unit, bool, Owed]
"""A unit, whether its pods got their places in this cycle, and what was evicted for these."""


def _linked(cycle: Cycle, gang: Gang, units: Iterable[_Left], *, movable: bool) -> _Chain:
    """The chain of these units."""
    group, ledger = gang.group, cycle.ledger
    keys: list[tuple[Any, ...]] = []
    found: list[tuple[EvictionUnit, Bucket, Age, int]] = []
    for k, (unit, new, owed) in enumerate(units):
        # The group that started last loses the least work; creation decides where starts are equal.
        last = group.created if group.last_start is None else group.last_start
        age = cycle.snapshot.now if new else last, group.created
        keys.append((-group.priority, unit.elastic_state, *age, group.key.name, group.key.namespace))
        bucket = group.queue, group.priority, unit.elastic_state
        one = EvictionUnit(group, unit.pods, k, unit.whole, new, movable, owed)
        found.append((one, bucket, age, sum(map(gpu_weight, unit.pods))))
    return _Chain(group.queue, keys, [charged(ledger, one.pods) for one, *_ in found], group, found)


class _Given(NamedTuple):
    """What an action must know of the places that the cycle gave, to take some back (formulation 1.5).

    ``kept``: pod groups whose places stay. ``owed``: what was evicted for each other trigger. ``relying``:
    see ``Ledger.relying``.
    """

    policy: EvictionPolicy
    kept: Set[GroupKey]
    owed: Mapping[GroupKey, Owed]
    relying: Set[PodKey]

    @staticmethod
    def of(cycle: Cycle, policy: EvictionPolicy) -> _Given:
        """What holds at the start of a run of the action."""
        relying, evictions = cycle.ledger.relying(), cycle.evicted_by.values()
        if any(eviction.action == RECLAIM.name for eviction in evictions):
            # Reclaim counted on the places that allocate gave.
            return _Given(policy, cycle.ledger.touched.keys(), {}, relying)
        # What was evicted for several is still needed by the others, and moves evict nothing for good.
        stay = (one for one in evictions if len(one.triggers) > 1 or not policy.may_lose)
        kept = {key for one in stay for key in one.triggers}
        owed: dict[GroupKey, Owed] = {}
        for pod, one in ((cycle.snapshot.pod_by_key[key], one) for key, one in cycle.evicted_by.items()):
            for trigger in one.triggers:
                if pod.group is not None:
                    owed[trigger] = (*owed.get(trigger, ()), (cycle.snapshot.group_by_key[pod.group], pod))
        return _Given(policy, kept, owed, relying)


def _left(cycle: Cycle, gang: Gang, given: _Given) -> Iterator[_Left]:
    """The units of a gang that the cycle has changed, as far as they may still be disturbed."""
    ledger, owed = cycle.ledger, given.owed.get(gang.group.key, ())
    # A promised start that has come gives way to groups that outrank it in its queue, and to no others
    # (12.8). A place that others of the cycle may rely on stays as well.
    promised = (cycle.placed_by.get(pod.key) == "reservation" for pod in gang.pods)
    kept = (
        gang.group.key in given.kept
        or (not given.policy.own_queue and any(promised))
        or ledger.relied_on(gang.pods, given.relying)
    )
    for unit in gang.units(ledger.status):
        placed = [pod.key in ledger.held for pod in unit.pods]
        if any(_moved(cycle, pod) for pod in unit.pods) or (kept and any(placed)):
            break
        yield unit, all(placed), owed if any(placed) else ()
        # They are taken with the first of its places.
        owed = () if any(placed) else owed


def _moved(cycle: Cycle, pod: Pod) -> bool:
    """Whether an earlier action of the cycle moved the pod; it is not disturbed twice."""
    return pod.key in cycle.ledger.held and pod.status in ACTIVE_USED


def _ages(cycle: Cycle, chains: Iterable[_Chain]) -> dict[_Chain, int]:
    """Seconds of work that each group would lose per device: those since its last start, capped (formulation
    1.4).

    A group whose start is unknown counts with the mean of the known ones, so that publishing a start does no
    harm.
    """
    now, cap = cycle.snapshot.now, cycle.settings.objective.lost_work_cap_seconds
    starts = ((chain, chain.group.last_start) for chain in chains if chain.units)
    ages = {chain: None if start is None else int(min(max(now - start, 1), cap)) for chain, start in starts}
    known = [age for age in ages.values() if age is not None]
    neutral = sum(known) // len(known) if known else 1
    return {chain: neutral if age is None else age for chain, age in ages.items()}


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
        self._entitlement = entitlement(ask, policy)
        self._allowed: dict[str, bool] = {}
        self._granted: dict[str, float] = {}

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
        """Whether this unit may be taken, with all that was evicted for it."""
        if not self._gives_way(unit.group, stops=unit.whole and not unit.placed_now):
            return False
        return all(self._gives_way(group, stops=True) for group, _ in unit.owed)

    def _gives_way(self, group: PodGroup, *, stops: bool) -> bool:
        """Whether pods of the group may be evicted or moved; one that ``stops`` must have run long enough."""
        if not group.preemptible or group.key == self._group.key:
            return False
        if self._policy.own_queue:
            guarded = group.priority + group.aged_at_start
            reached = group.queue == self._group.queue and guarded < self._group.priority
        else:
            reached = not self._policy.may_lose or self.reclaims_from(group.queue)
        if not (reached and stops):
            return reached
        return not protected(self._ledger.snapshot, group, self._undisturbed(group.queue))

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
        owing: Set[str],
        known: dict[object, frozenset[int]],
    ) -> frozenset[int]:
        """Ranks of the units of each queue that may be taken.

        ``owing``: the queues of units with which other pods are taken. ``known``: a cache, added to. Equal
        sets are one object, because comparing large ones takes long.
        """
        policy = self._policy
        scope: list[tuple[object, ...]] = []
        for queue, mine in by_queue.items():
            if policy.by_share and not self.reclaims_from(queue):
                continue
            # What decides which units of the queue may be taken.
            alone = policy.own_queue or queue in owing
            key = queue, self._undisturbed(queue), self._entitlement if alone else ()
            if key not in known:
                known[key] = frozenset(item.rank for item in mine if self.takes(item.unit))
            scope.append(key)
        if tuple(scope) not in known:
            found = frozenset[int]().union(*map(known.__getitem__, scope))
            known[tuple(scope)] = known.setdefault(found, found)
        return known[tuple(scope)]
