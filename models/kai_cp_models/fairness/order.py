"""Order: which pod group is next to be served, and which is first to give way (3.5, 3.6).

The queue tree is walked level by level; a queue stands for the best group below it. The keys of
queues and the heads of leaves are kept, and only the path of what changed is looked at again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Self

from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.book import QueueBook, row
from kai_cp_models.fairness.totals import SCALE
from kai_cp_models.snapshot import UNLIMITED, GroupKey, PodGroup, Snapshot

SortKey = tuple[int, int, float, str, str]
"""Order of groups inside a leaf queue; smaller is served first and gives way last."""
Entry = tuple[SortKey, Amounts]
"""A group's sort key, and its size: the next batch (fair order) or all that it holds (victim order)."""
Rank = tuple[bool, bool, int, bool, float, float]
"""Steps 1 to 6 of the queue order (3.5); smaller is served first and gives way last."""


def group_sort_key(group: PodGroup, elastic_state: int) -> SortKey:
    """Order of a group inside its leaf queue (3.6).

    ``elastic_state``: 0 below the minimum in any pod set, 1 exactly at it, 2 above. The namespace
    only tells groups of one name apart.
    """
    return (-group.priority, elastic_state, group.created, group.key.name, group.key.namespace)


class QueueTreeOrder(ABC):
    """Groups waiting in the leaves of the queue tree, popped one at a time.

    Groups in queues that do not exist or have children are left out: no action ever considers them (1.1).
    After a change of ``book`` call ``charged`` for the queue that was charged.
    """

    def __init__(self, snapshot: Snapshot, book: QueueBook, entries: Mapping[GroupKey, Entry]) -> None:
        self._snapshot = snapshot
        self._book = book
        tree = book.tree
        self._paths = tuple(path.tolist() for path in tree.paths)
        self._height = [-len(path) for path in self._paths]
        self._fair_share = book.fair_share_floor.tolist()
        self._quota = [_bounds(quota) for quota in book.quota.tolist()]
        self._share = [_bounds(shares) for shares in book.allocatable_share.tolist()]
        self._without = [tuple(r for r in range(3) if shares[r] == 0) for shares in self._share]
        """Resources of which a queue has no share at all."""
        self._priority = [-queue.priority for queue in tree.queues]
        self._divisors = [_divisors(shares, book.cluster) for shares in book.allocatable_share.tolist()]
        self._seniority = [(queue.created, queue.name) for queue in tree.queues]
        self._waiting: list[list[tuple[SortKey, GroupKey]]] = [[] for _ in tree.queues]
        self._entries: dict[GroupKey, Entry] = {}
        self._heads: list[GroupKey | None] = [None for _ in tree.queues]
        """The group each queue stands for."""
        self._ranks: list[Rank | None] = [None for _ in tree.queues]
        for group, entry in entries.items():
            leaf = self._leaf(group)
            if leaf is not None:
                self._waiting[leaf].append((entry[0], group))
                self._entries[group] = entry
        for waiting in self._waiting:
            waiting.sort()
        self._stale = set(range(len(tree.queues)))

    def __len__(self) -> int:
        return len(self._entries)

    def fork(self, book: QueueBook) -> Self:
        """An independent order in the same state; ``book``: equal to the one followed so far."""
        result: Self = copy(self)
        result._book = book
        result._waiting = [list(waiting) for waiting in self._waiting]
        result._entries = dict(self._entries)
        result._heads, result._ranks = list(self._heads), list(self._ranks)
        result._stale = set(self._stale)
        return result

    def push(self, group: GroupKey, entry: Entry) -> None:
        """Let a group wait (again), or replace its entry."""
        leaf = self._leaf(group)
        if leaf is None:
            return
        self.discard(group)
        insort(self._waiting[leaf], (entry[0], group))
        self._entries[group] = entry
        self._stale.update(self._paths[leaf])

    def discard(self, group: GroupKey) -> None:
        """Take a group out if it waits."""
        entry = self._entries.pop(group, None)
        leaf = self._leaf(group)
        if entry is not None and leaf is not None:
            waiting = self._waiting[leaf]
            del waiting[bisect_left(waiting, (entry[0], group))]
            self._stale.update(self._paths[leaf])

    def charged(self, queue: str) -> None:
        """The book changed for ``queue`` (and with it for its ancestors)."""
        self._stale.update(self._paths[self._book.index(queue)])

    def use(self, book: QueueBook, queue: str) -> None:
        """Follow another book from now on, which differs from the last one along the path of ``queue``."""
        self._book = book
        self.charged(queue)

    def peek(self) -> GroupKey | None:
        """The group that ``pop`` would give."""
        for i in sorted(self._stale, key=self._height.__getitem__):
            self._refresh(i)
        self._stale.clear()
        first = self._choose(self._book.tree.roots)
        return None if first is None else self._heads[first]

    def pop(self) -> GroupKey | None:
        """Take the next group out; None when no group waits."""
        group = self.peek()
        if group is not None:
            self.discard(group)
        return group

    def _leaf(self, group: GroupKey) -> int | None:
        leaf = self._book.tree.index.get(self._snapshot.group_by_key[group].queue)
        return None if leaf is None or self._book.tree.children[leaf] else leaf

    def _refresh(self, i: int) -> None:
        """Look again which group queue ``i`` stands for and where that puts it; children come first."""
        children = self._book.tree.children[i]
        if children:
            best = self._choose(children)
            head = None if best is None else self._heads[best]
        else:
            head = self._first(self._waiting[i]) if self._waiting[i] else None
        self._heads[i] = head
        self._ranks[i] = None if head is None else self._rank(i, self._entries[head][1])

    def _dominant(self, i: int, amounts: Sequence[int]) -> float:
        """Dominant share (3.5, end)."""
        by = self._divisors[i]
        return max(amounts[0] / by[0], amounts[1] / by[1], amounts[2] / by[2])

    def _standing(
        self, i: int, allocated: Sequence[int], counted: Sequence[int]
    ) -> tuple[bool, bool, int, bool]:
        """Steps 1 to 4; ``counted``: what steps 2 and 4 look at."""
        fair, quota, without = self._fair_share[i], self._quota[i], self._without[i]
        over_utilised = allocated[0] > fair[0] and allocated[1] > fair[1] and allocated[2] > fair[2]
        beyond = counted[0] > quota[0] or counted[1] > quota[1] or counted[2] > quota[2]
        unentitled = bool(without) and any(counted[resource] > 0 for resource in without)
        return over_utilised, beyond, self._priority[i], unentitled

    @abstractmethod
    def _first(self, waiting: list[tuple[SortKey, GroupKey]]) -> GroupKey:
        """The group that a leaf stands for."""

    @abstractmethod
    def _rank(self, i: int, amounts: Amounts) -> Rank:
        """Steps 1 to 6 for queue ``i`` with a head of this size."""

    @abstractmethod
    def _choose(self, siblings: Sequence[int]) -> int | None:
        """The sibling that comes next; None when no group waits below any."""

    def _ties(self, siblings: Sequence[int], best: Rank) -> list[int]:
        return [i for i in siblings if self._ranks[i] == best]


class FairOrder(QueueTreeOrder):
    """Pending groups, the most deserving first. An entry's size is its next batch, pessimistic."""

    def _first(self, waiting: list[tuple[SortKey, GroupKey]]) -> GroupKey:
        return waiting[0][1]

    def _rank(self, i: int, amounts: Amounts) -> Rank:
        held = row(self._book.allocated, i)
        with_batch = (held[0] + amounts[0], held[1] + amounts[1], held[2] + amounts[2])
        standing = self._standing(i, held, with_batch)
        return (*standing, self._dominant(i, with_batch), self._dominant(i, held))

    def _choose(self, siblings: Sequence[int]) -> int | None:
        ranks = [rank for i in siblings if (rank := self._ranks[i]) is not None]
        if not ranks:
            return None
        ties = self._ties(siblings, min(ranks))
        if len(ties) == 1:
            return ties[0]
        smallest = _undominated(ties, self._share, sign=1)
        return min(smallest, key=lambda i: self._seniority[i])


class VictimOrder(QueueTreeOrder):
    """Running groups, the least deserving first: the exact reverse (3.6), the book left as it was.

    An entry's size is all that the group holds. What was popped counts as gone in step 5, and only
    there; a group that is pushed back shrunk counts as having given up the difference.
    """

    def __init__(self, snapshot: Snapshot, book: QueueBook, entries: Mapping[GroupKey, Entry]) -> None:
        super().__init__(snapshot, book, entries)
        self._gone = [[0, 0, 0] for _ in book.tree.queues]
        self._popped: set[GroupKey] = set()
        self._held = [row(book.allocated, i) for i in range(len(book.tree.queues))]
        self._steps = [
            (self._standing(i, held, held), self._dominant(i, held)) for i, held in enumerate(self._held)
        ]
        """What does not change: steps 1 to 4, and step 6."""

    def pop(self) -> GroupKey | None:
        """Take the next victim out, and count all that it holds as gone; None when none is left."""
        group = self.peek()
        if group is not None:
            self._count(group, self._entries[group][1], 1)
            self._popped.add(group)
            self.discard(group)
        return group

    def push(self, group: GroupKey, entry: Entry) -> None:
        """Offer a group (again); ``entry`` says what it still holds."""
        if group in self._popped:
            self._popped.remove(group)
            self._count(group, entry[1], -1)
        super().push(group, entry)

    def _count(self, group: GroupKey, amounts: Amounts, sign: int) -> None:
        leaf = self._leaf(group)
        if leaf is None:
            return
        for i in self._paths[leaf]:
            gone = self._gone[i]
            gone[0] += sign * amounts[0]
            gone[1] += sign * amounts[1]
            gone[2] += sign * amounts[2]

    def _first(self, waiting: list[tuple[SortKey, GroupKey]]) -> GroupKey:
        return waiting[-1][1]

    def _rank(self, i: int, amounts: Amounts) -> Rank:
        held, gone, (standing, dominant) = self._held[i], self._gone[i], self._steps[i]
        left = (
            held[0] - gone[0] - amounts[0],
            held[1] - gone[1] - amounts[1],
            held[2] - gone[2] - amounts[2],
        )
        return (*standing, self._dominant(i, left), dominant)

    def _choose(self, siblings: Sequence[int]) -> int | None:
        ranks = [rank for i in siblings if (rank := self._ranks[i]) is not None]
        if not ranks:
            return None
        ties = self._ties(siblings, max(ranks))
        if len(ties) == 1:
            return ties[0]
        largest = _undominated(ties, self._share, sign=-1)
        return max(largest, key=lambda i: self._seniority[i])


def _undominated(ties: list[int], shares: list[tuple[float, ...]], sign: int) -> list[int]:
    """Those before which no other tied queue belongs by step 7.

    Step 7 leaves most pairs open and step 8 decides those; taken pair by pair that can run in a
    circle, so the pairs that step 7 does decide go first.
    """

    def before(left: tuple[float, ...], right: tuple[float, ...]) -> bool:
        return left != right and all(sign * a <= sign * b for a, b in zip(left, right, strict=True))

    distinct = {shares[i] for i in ties}
    first = {share for share in distinct if not any(before(other, share) for other in distinct)}
    return [i for i in ties if shares[i] in first]


def _bounds(shares: Sequence[float]) -> tuple[float, ...]:
    return tuple(math.inf if share == UNLIMITED else share for share in shares)


def _divisors(shares: Sequence[float], cluster: Amounts) -> tuple[float, ...]:
    """What a holding is divided by: the share, the cluster if unlimited, a thousandth of a unit if none."""
    found = []
    for share, most, scale in zip(shares, cluster, SCALE, strict=True):
        basis = float(most) if share == UNLIMITED else share
        found.append(basis if basis > 0 else scale / 1000)
    return tuple(found)
