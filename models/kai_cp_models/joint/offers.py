"""What running pod groups could give up, and in which order policy takes it (3.6, 4.3, 4.6, 5.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.order import VictimOrder, group_sort_key
from kai_cp_models.fairness.reclaim import victim_allowed
from kai_cp_models.fairness.runtime import granted, protected
from kai_cp_models.joint.problem import Ask, Offer
from kai_cp_models.ledger import Ledger
from kai_cp_models.snapshot import (
    ACTIVE_USED,
    GPU,
    MILLI,
    ActionName,
    GpuKind,
    GroupKey,
    Pod,
    PodGroup,
)

Bucket = tuple[str, int, int]
"""Units that only age tells apart: leaf queue, priority, elastic state."""
Age = tuple[float, float]
"""Last start and creation; what is younger goes first."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """An offer with its place in the reverse fair order.

    ``rank``: position when everything is popped; 0 goes first. ``weight``: milli-GPUs plus one per pod,
    the measure of the threshold. ``work``: lost GPU-milliseconds, see ``lost_work``.
    """

    offer: Offer
    rank: int
    bucket: Bucket
    age: Age
    holds: Amounts
    weight: int
    work: int


class Charges:
    """What placed pods are charged for in their queue, at the nodes where they are; alike pods once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._claims = ledger.snapshot.extras.get("claim_milli_gpus", {})
        self._known: dict[tuple[object, ...], Amounts] = {}

    def of(self, pods: Iterable[Pod]) -> Amounts:
        """The charge of all of them; nothing for those without a place."""
        return amounts.total(
            self._one(pod, place[0]) for pod in pods if (place := self._ledger.place_of(pod))
        )

    def _one(self, pod: Pod, node: int) -> Amounts:
        by_node = node if pod.spec.gpu.kind is GpuKind.MEMORY else None
        kind = (id(pod.spec), by_node, pod.key if pod.key in self._claims else None)
        known = self._known.get(kind)
        if known is None:
            snapshot = self._ledger.snapshot
            known = self._known[kind] = amounts.accepted(snapshot, pod, snapshot.nodes[node])
        return known


def milli_gpus(pod: Pod) -> int:
    """Milli-GPUs of a pod: a share counts its portion, a memory share a whole device."""
    gpu = pod.spec.gpu
    return gpu.devices * (gpu.milli_portion or MILLI) if gpu.shares else pod.spec.requests[GPU]


def gpu_weight(pod: Pod) -> int:
    """Milli-GPUs of a pod, plus one: what counts when pods are given up or moved."""
    return milli_gpus(pod) + 1


def ranked_offers(cycle: Cycle, asks: Sequence[Ask], action: ActionName) -> list[Ranked]:
    """Every unit that some ask may disturb, in reverse fair order."""
    ledger = cycle.ledger
    chains: dict[GroupKey, list[tuple[Offer, int]]] = {}
    reach = {entitlement(ledger, ask, action): Reach(ledger, ask, action) for ask in asks}
    by_queue = cycle.snapshot.preemptible_groups
    if action == "preempt":
        asking = {ask.group.queue for ask in asks}
        by_queue = {queue: groups for queue, groups in by_queue.items() if queue in asking}
    # One of each scope tells what all of them disturb, but for its own group.
    scopes = {one.scope(by_queue): one for one in reach.values()}
    own = {ask.group.key for ask in asks} if action == "consolidation" else set()
    for group in (group for groups in by_queue.values() for group in groups):
        if group.key in own or any(one.disturbs(group) for one in scopes.values()):
            chain = _chain(cycle, group)
            if chain:
                chains[group.key] = chain
    age = _ages(cycle, chains)
    entries = {}
    charges = Charges(ledger)
    holds = {key: [charges.of(offer.pods) for offer, _ in chain] for key, chain in chains.items()}
    position = dict.fromkeys(chains, 0)
    for key in chains:
        entries[key] = _entry(cycle, key, chains, holds, 0)
    order = VictimOrder(cycle.snapshot, ledger.book, entries)
    found: list[Ranked] = []
    while (popped := order.pop()) is not None:
        group = cycle.snapshot.group_by_key[popped]
        k = position[popped]
        offer, state = chains[popped][k]
        weight = sum(gpu_weight(pod) for pod in offer.pods)
        found.append(
            Ranked(
                offer,
                len(found),
                (group.queue, group.priority, state),
                (_started(cycle, offer), group.created),
                holds[popped][k],
                weight,
                0 if offer.placed_now else weight * age[popped],
            )
        )
        position[popped] = k + 1
        if k + 1 < len(chains[popped]):
            order.push(popped, _entry(cycle, popped, chains, holds, k + 1))
    return found


def _entry(
    cycle: Cycle,
    key: GroupKey,
    chains: Mapping[GroupKey, list[tuple[Offer, int]]],
    holds: Mapping[GroupKey, list[Amounts]],
    k: int,
) -> tuple[tuple[int, int, float, str, str], Amounts]:
    group = cycle.snapshot.group_by_key[key]
    priority, state, created, name, namespace = group_sort_key(group, chains[key][k][1])
    # What started last has the least work to lose; creation decides where that is equal or unknown.
    age = f"{created:020.6f}"
    started = _started(cycle, chains[key][k][0])
    return (priority, state, started, age + name, namespace), amounts.total(holds[key][k:])


def _started(cycle: Cycle, offer: Offer) -> float:
    """Seconds of the epoch at which the group last started, or was created; now if it got its place now."""
    group = offer.group
    if offer.placed_now:
        return cycle.snapshot.now
    return group.created if group.last_start is None else group.last_start


def _chain(cycle: Cycle, group: PodGroup) -> list[tuple[Offer, int]]:
    """Eviction units of a group in order (5.4), each with the elastic state it leaves from."""
    ledger = cycle.ledger
    gang = ledger.fixed.gangs[group.key]
    if ledger.untouched(gang):
        movable = gang.satisfied_at_first
        return [
            (Offer(group, unit.pods, k, unit.whole, False, movable), unit.elastic_state)
            for k, unit in enumerate(gang.units_at_first)
        ]
    movable = gang.satisfied(group.root, ledger.status)
    # What was reclaimed counted on what allocate gave the queues, so that is not withdrawn any more.
    kept = not cycle.withdraws or any(eviction.action == "reclaim" for eviction in cycle.evicted_by.values())
    found: list[tuple[Offer, int]] = []
    for k, unit in enumerate(gang.units(ledger.status)):
        if any(_moved(cycle, pod) for pod in unit.pods):
            break
        if kept and any(pod.key in ledger.held for pod in unit.pods):
            break
        new = all(pod.key in ledger.held for pod in unit.pods)
        found.append((Offer(group, unit.pods, k, unit.whole, new, movable), unit.elastic_state))
    return found


def _moved(cycle: Cycle, pod: Pod) -> bool:
    """A pod that an earlier action of the cycle moved: it is not disturbed twice."""
    return pod.key in cycle.ledger.held and pod.status in ACTIVE_USED


def _ages(cycle: Cycle, chains: Mapping[GroupKey, object]) -> dict[GroupKey, int]:
    """Seconds of work each group would lose per device: since its last start, capped (1.4.3).

    A group whose start is unknown counts the mean of the known ones, so publishing it never harms.
    """
    now, cap = cycle.snapshot.now, cycle.settings.objective.lost_work_cap_seconds
    known = {
        key: int(min(max(now - start, 1), cap))
        for key in chains
        if (start := cycle.snapshot.group_by_key[key].last_start) is not None
    }
    neutral = sum(known.values()) // len(known) if known else 1
    return {key: known.get(key, neutral) for key in chains}


def entitlement(ledger: Ledger, ask: Ask, action: ActionName) -> tuple[object, ...]:
    """Asks with equal entitlement may take the same units."""
    if action == "consolidation":
        return ()
    if action == "preempt":
        return (ask.group.queue, ask.group.priority)
    return (ask.group.queue, amounts.pessimistic_batch(ledger.snapshot, ask.pods))


class Reach:
    """Whom an ask may disturb, and which units it may take (4.3, 4.6); answers are kept by queue."""

    def __init__(self, ledger: Ledger, ask: Ask, action: ActionName) -> None:
        self._ledger = ledger
        self._group = ask.group
        self._action = action
        self._asked = amounts.pessimistic_batch(ledger.snapshot, ask.pods)
        self._allowed: dict[str, bool] = {}
        self._granted: dict[str, float] = {}

    def disturbs(self, group: PodGroup) -> bool:
        """Whether pods of the group may be evicted or moved at all."""
        if not group.preemptible or group.key == self._group.key:
            return False
        if self._action == "consolidation":
            return True
        if self._action == "preempt":
            return group.queue == self._group.queue and group.priority < self._group.priority
        return self._may_reclaim(group.queue)

    def _may_reclaim(self, queue: str) -> bool:
        allowed = self._allowed.get(queue)
        if allowed is None:
            allowed = self._allowed[queue] = (
                queue != self._group.queue
                and queue in self._ledger.snapshot.leaf_queues
                and victim_allowed(self._ledger.book, self._group.queue, self._asked, queue)
            )
        return allowed

    def takes(self, offer: Offer) -> bool:
        """Whether this unit may be taken: its group has run long enough, or gives up surplus only."""
        if not self.disturbs(offer.group):
            return False
        if not offer.whole or offer.placed_now:
            return True
        group, snapshot = offer.group, self._ledger.snapshot
        seconds = self._granted.get(group.queue)
        if seconds is None:
            seconds = granted(snapshot, group.queue, self._action, self._group.queue)
            self._granted[group.queue] = seconds
        return not protected(snapshot, group, seconds)

    def scope(self, queues: Iterable[str]) -> tuple[object, ...]:
        """What decides over takes: asks with equal scopes may take the same units of ``queues``."""
        if self._action == "reclaim":
            return (self._group.queue, *(queue for queue in queues if self._may_reclaim(queue)))
        return (self._group.queue, self._group.priority) if self._action == "preempt" else ()
