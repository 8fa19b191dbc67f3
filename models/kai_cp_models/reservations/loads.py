"""What queues hold at later instants, against their limits, quotas and shares (12.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kai_cp_models.fairness.amounts import Amounts, total
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.quota_checks import in_words
from kai_cp_models.joint.victim_candidates import charged
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_ALLOCATED, UNLIMITED, GroupKey, Pod
from kai_cp_models.reservations.state import Hold, TimeState
from kai_cp_models.reservations.times import NEVER
from kai_cp_models.snapshot import PodGroup

LoadBound = Literal["limit", "quota", "share"]


@dataclass(frozen=True, slots=True)
class Beyond:
    """A bound of a queue that would be exceeded at an instant."""

    bound: LoadBound
    queue: str
    message: str


@dataclass(frozen=True, slots=True)
class Load:
    """A group that counts in a queue from ``start`` to ``end``. ``reserved``: its share counts then.

    ``checked``: quotas admit it now, as they admit a rollout beyond them (3.8); only what other groups were
    promised counts against it.
    """

    group: PodGroup
    cost: Amounts
    start: float
    end: float
    reserved: bool
    checked: bool = False


@dataclass(eq=False)
class Loads:
    """Queue totals over time, seen from a ledger, by the queue's position in its book."""

    state: TimeState
    ledger: Ledger
    gone: Mapping[GroupKey, float] = field(default_factory=dict)
    """Groups that leave earlier than the state knows."""
    _known: dict[float, QueueBook] = field(default_factory=dict)

    def __post_init__(self) -> None:
        snapshot, ledger, bounds = self.ledger.snapshot, self.ledger, self.state.occupancy.bounds
        leaving = (snapshot.pod_by_key[key].group for key in bounds)
        touched = dict.fromkeys((*ledger.touched, *(key for key in leaving if key is not None)))
        standing = self._charged()
        self._ending: list[tuple[float, str, Amounts, bool]] = [
            (min(end, self.gone.get(group.key, NEVER)), group.queue, cost, group.preemptible)
            for group, end, cost in standing
            if group.key not in touched and min(end, self.gone.get(group.key, NEVER)) < NEVER
        ]
        for group in (snapshot.group_by_key[key] for key in touched if key in snapshot.group_by_key):
            if group.queue not in snapshot.queue_by_name:
                continue
            new = self.state.untils.get(group.key, NEVER)
            old = min(self.state.times.end(group.key), self.gone.get(group.key, NEVER))
            parts: dict[float, list[Pod]] = {}
            for pod in snapshot.members[group.key]:
                if ledger.status(pod) in ACTIVE_ALLOCATED:
                    end = new if pod.key in ledger.held else min(old, bounds.get(pod.key, NEVER))
                    parts.setdefault(end, []).append(pod)
            for end, part in parts.items():
                if end < NEVER:
                    self._ending.append((end, group.queue, charged(ledger, part), group.preemptible))

    def add(self, group: PodGroup, pods: Sequence[Pod]) -> None:
        """Follow the ledger, in which pods of a group have got their places; nothing else has changed
        there."""
        end, cost = self.state.untils.get(group.key, NEVER), charged(self.ledger, pods)
        self._ending.append((end, group.queue, cost, group.preemptible))
        for instant, book in self._known.items():
            if instant < end:
                book.charge(group.queue, cost, group.preemptible)

    def _charged(self) -> Sequence[tuple[PodGroup, float, Amounts]]:
        """Running groups that no cycle has touched: when they end by themselves, and what they cost."""
        times, snapshot, charge = self.state.times, self.ledger.snapshot, self.ledger.fixed.charge
        if times.charges is None:
            times.charges = []
            for group in snapshot.groups:
                pods = [p for p in snapshot.members[group.key] if p.status in ACTIVE_ALLOCATED]
                at = [(pod, snapshot.node_index[pod.node]) for pod in pods if pod.node in snapshot.node_index]
                if at and group.queue in snapshot.queue_by_name:
                    cost = total(charge(pod, node) for pod, node in at)
                    times.charges.append((group, times.end(group.key), cost))
        return times.charges

    def at(self, instant: float) -> QueueBook:
        """What queues hold at an instant, without any reservation."""
        known = self._known.get(instant)
        if known is None:
            book = self.ledger.book.copy()
            for end, queue, cost, preemptible in self._ending:
                if end <= instant:
                    book.charge(queue, cost, preemptible, -1)
            known = self._known[instant] = book
        return known

    def beyond(self, one: Load, others: Sequence[Load]) -> Beyond | None:
        """The first bound that ``one`` beside ``others`` would break while it runs, or None."""
        loads = [one, *others]
        for start in sorted({load.start for load in loads if one.start <= load.start < one.end}):
            found = self._beyond_at(start, one, loads)
            if found is not None:
                return found
        return None

    def _beyond_at(self, start: float, one: Load, loads: Sequence[Load]) -> Beyond | None:
        book = self.ledger.book
        line = book.line(one.group.queue)
        known = self.at(start)
        total = {q: list(known.held[q]) for q in line}
        bounded, firm = known.bound_by(line), known.bound_by(line, firm=True)
        strict = {q: list(firm[q]) for q in line}
        sharing: set[int] = set()
        promised: set[int] = set()
        for load in loads:
            if not load.start <= start < load.end:
                continue
            path = book.line(load.group.queue)
            if load.reserved and load.start == start and self._within_share:
                sharing.update(path)
            for q in set(path) & total.keys():
                total[q] = [a + b for a, b in zip(total[q], load.cost, strict=True)]
                if not load.group.preemptible:
                    if load.reserved:
                        promised.add(q)
                    strict[q] = [a + b for a, b in zip(strict[q], load.cost, strict=True)]
        for q in line:
            for r in (r for r, amount in enumerate(one.cost) if amount):
                used = total[q][r] + bounded[q][r] - known.held[q][r]
                if _over(book.limit[q][r], used):
                    return self._beyond("limit", q, r, book.limit[q][r], used)
                counts = not one.group.preemptible and (q in promised or not one.checked)
                if counts and _over(book.firm_quota[q][r], strict[q][r]):
                    return self._beyond("quota", q, r, book.firm_quota[q][r], strict[q][r])
                share = book.allocatable_share_floor[q][r]
                if q in sharing and _over(share, total[q][r]):
                    return self._beyond("share", q, r, share, total[q][r])
        return None

    @property
    def _within_share(self) -> bool:
        return self.state.times.settings.reservations.within == "fair_share"

    def _beyond(self, bound: LoadBound, q: int, resource: int, most: int, used: int) -> Beyond:
        queue = self.ledger.book.name(q)
        words = {"limit": "limit", "quota": "quota of non-preemptible pods", "share": "allocatable share"}
        most_words, used_words, _ = in_words(resource, most, used, 0)
        return Beyond(bound, queue, f"queue {queue}: {words[bound]} {most_words}, it would hold {used_words}")


def _over(most: int, used: int) -> bool:
    return most != UNLIMITED and used > most


def loads_of(holds: Iterable[Hold], without: GroupKey | None = None) -> list[Load]:
    """The loads of holds."""
    return [
        Load(hold.ask.group, hold.shape.cost, hold.start, hold.end, True)
        for hold in holds
        if hold.key != without
    ]
