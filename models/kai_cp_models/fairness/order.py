"""Order: which pod group is next to be served (3.5, 3.6).

``rank`` has its reverse: which group loses its places first. The queue tree is walked level by level; each
queue is represented by the first group below it. The ranks of queues and the first groups of leaves are kept,
and after a change only the queues on its path are computed again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Container, Iterable, Mapping, Sequence, Set
from copy import copy
from heapq import heappop, heappush
from itertools import chain, islice
from types import MappingProxyType
from typing import Self

from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.pods import GroupKey
from kai_cp_models.snapshot import PodGroup, Snapshot

SortKey = tuple[bool, int, int, float, str, str]
"""Order of groups inside a leaf queue; smaller is served first and loses its places last."""
Entry = tuple[SortKey, Amounts]
"""A group's sort key, and the size of its next batch, pessimistic."""
_Head = tuple[bool, Amounts]
"""What ranks a queue by the group that represents it: whether it has no promise, and its next batch."""
_Waiting = tuple[SortKey, GroupKey, _Head]
Rank = tuple[bool, bool, bool, int, bool, float, float]
"""Whether the first group has no promise, and steps 1 to 6 of the queue order (3.5); smaller is served
first."""


def group_sort_key(group: PodGroup, elastic_state: int, *, promised: bool = False) -> SortKey:
    """Order of a group inside its leaf queue (3.6).

    ``elastic_state``: 0 below the minimum in any pod set, 1 exactly at it, 2 above. The namespace
    only tells groups of one name apart. Points for waiting count as priority (``aging``); a running group has
    none. ``promised``: its next batch has promised places (``Ledger.promised``), and so comes first.
    """
    own = -group.priority - group.aged, elastic_state, group.created
    return (not promised, *own, group.key.name, group.key.namespace)


class FairOrder:
    """Groups waiting in the leaves of the queue tree, popped one at a time in the fair order.

    Groups in queues that do not exist or have children are left out: no action ever considers them (1.1).
    After a change of ``book`` call ``charged`` for the queue that was charged.
    """

    def __init__(self, snapshot: Snapshot, book: QueueBook, entries: Mapping[GroupKey, Entry]) -> None:
        self._groups = snapshot.group_by_key
        self._book = book
        self._steps, self._leaf_of, self._paths = book.steps, book.tree.leaves, book.tree.lines
        self._parents = book.tree.parents
        self._waiting: dict[int, list[_Waiting]] = {}
        """The groups of each leaf in order; a fork shares them."""
        self._own: set[int] = set()
        """The leaves whose groups no fork shares."""
        self._passed: dict[int, int] = {}
        """How many of them do not wait any more."""
        self._entries: tuple[dict[GroupKey, Entry], ...] = ()
        """The entries of all groups that were added, the last ones here and those before in what this is a
        fork of."""
        self._thinned: tuple[Set[GroupKey], Self] | None = None
        """The order that ``thinned`` made last, and for which groups."""
        self._forget()
        self._add(entries)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values())) - sum(self._passed.values())

    def fork(
        self,
        book: QueueBook,
        only: Collection[GroupKey] | None = None,
        also: Mapping[GroupKey, Entry] = MappingProxyType({}),
    ) -> Self:
        """An independent order of the groups that wait here, over another book of the same queues.

        ``only``: those of them that wait there, too; None: all. ``also``: what is added or replaced.
        """
        result: Self = copy(self)
        result._book, result._own, self._own, result._thinned = book, set(), set(), None
        if only is None:
            result._waiting, result._passed = dict(self._waiting), dict(self._passed)
        else:
            leaves: Set[int] = self._waiting.keys()
            # Most groups are hardly in fewer leaves.
            if 2 * len(only) < len(self):
                leaves &= {self._leaf_of.get(self._groups[group].queue) for group in only}
            left = ((i, islice(self._waiting[i], self._passed[i], None)) for i in leaves)
            result._waiting = {i: [one for one in waiting if one[1] in only] for i, waiting in left}
            result._passed = dict.fromkeys(result._waiting, 0)
        result._forget()
        result._add(also)
        return result

    def thinned(self, among: Iterable[GroupKey]) -> Self:
        """An order to fork where only these groups are looked for, as long as nothing is taken from this one.
        Of others that follow one another in a leaf and rank its queue alike, the first stands for all."""
        here = {group for group in among if any(group in some for some in self._entries)}
        if self._thinned is None or not here <= self._thinned[0]:
            order: Self = self.fork(self._book)
            for leaf, waiting in order._waiting.items():
                found, like = list[_Waiting](), None
                for one in islice(waiting, order._passed[leaf], None):
                    if (wanted := one[1] in here) or one[2] != like:
                        found.append(one)
                        like = None if wanted else one[2]
                order._waiting[leaf], order._passed[leaf] = found, 0
            self._thinned = here, order
        return self._thinned[1]

    def _forget(self) -> None:
        """Look at all queues again."""
        self._heads: dict[int, tuple[int, _Waiting]] = {}
        """The first group below each queue, and its leaf."""
        self._ranks: dict[int, Rank] = {}
        self._lines: dict[int, list[tuple[Rank, int, int]]] = {}
        """Below each queue (-1: at the top) a heap of those below which groups wait, by rank and age; what is
        not their rank any more is passed over."""
        self._by_size: dict[int, dict[_Head, Rank]] = {}
        """Ranks of each queue by its first group, until the queue is charged."""
        self._stale = set(self._waiting)
        """Queues from which on heads and ranks are to be computed again, up to the top."""

    def _add(self, entries: Mapping[GroupKey, Entry]) -> None:
        """Add groups, or replace their entries."""
        before, self._entries = self._entries, (*self._entries, dict(entries))
        grown: dict[int, list[_Waiting]] = {}
        for group, (key, amounts) in entries.items():
            leaf = self._leaf_of.get(self._groups[group].queue)
            if leaf is not None:
                grown.setdefault(leaf, []).append(_one(group, (key, amounts)))
        for leaf, found in grown.items():
            waiting = list(islice(self._waiting.get(leaf, ()), self._passed.get(leaf, 0), None))
            for one in found if waiting else ():
                group = one[1]
                old = next((some[group] for some in reversed(before) if group in some), None)
                if old is not None and (at := _place(waiting, _one(group, old))) is not None:
                    del waiting[at]
                insort(waiting, one)
            # Waiting groups come nearly in order, so that this takes hardly any time.
            self._waiting[leaf], self._passed[leaf] = waiting or sorted(found), 0
            self._stale.add(leaf)

    def push(self, group: GroupKey, entry: Entry) -> None:
        """Add a group that does not wait here."""
        leaf = self._leaf_of.get(self._groups[group].queue)
        if leaf is None:
            return
        if leaf not in self._own:
            self._waiting[leaf] = list(islice(self._waiting.get(leaf, ()), self._passed.get(leaf, 0), None))
            self._passed[leaf] = 0
            self._own.add(leaf)
        insort(self._waiting[leaf], _one(group, entry), self._passed[leaf])
        self._entries[-1][group] = entry
        self._stale.add(leaf)

    def charged(self, queue: str) -> None:
        """Note that the book changed for ``queue``, and so for its ancestors."""
        path = self._paths[self._book.index(queue)]
        self._stale.add(path[0])
        for i in path:
            self._by_size.pop(i, None)

    def use(self, book: QueueBook, queue: str) -> None:
        """Follow another book from now on, which differs from the last one along the path of ``queue``."""
        self._book = book
        self.charged(queue)

    def peek(self) -> GroupKey | None:
        """The group that ``pop`` would give."""
        head = self._head()
        return None if head is None else head[1][1]

    def rank_of(self, queue: int) -> Rank | None:
        """The rank of a queue at the last search for a group; None when no group waits below it."""
        return self._ranks.get(queue)

    def pop(
        self, among: Container[GroupKey] | None = None, before: list[GroupKey] | None = None
    ) -> GroupKey | None:
        """Remove the next group and return it; None when no group waits.

        ``among``: groups before the next one of these are removed as well, and added to ``before``; None: all
        are looked for.
        """
        alone = len(self._waiting) == 1
        while (head := self._head()) is not None:
            leaf, (_, group, like) = head
            waiting, path, passed = self._waiting[leaf], self._paths[leaf], self._passed[leaf] + 1
            found = among is None or group in among
            if not found and among is not None:
                # With another head the leaf still comes first if no queue of its path is worse off.
                first = {like: True}
                for _, group, other in islice(waiting, passed, None):
                    if not alone and other != like:
                        if other not in first:
                            ranks = ((self._rank(i, other), self._rank(i, like)) for i in path)
                            first[other] = all(its <= before for its, before in ranks)
                        if not first[other]:
                            break
                    passed += 1
                    if found := group in among:
                        break
            if before is not None and passed - found > self._passed[leaf]:
                before += (one[1] for one in islice(waiting, self._passed[leaf], passed - found))
            self._passed[leaf] = passed
            if passed < len(waiting) and waiting[passed][2] == like:
                after = leaf, waiting[passed]
                for i in path:
                    self._heads[i] = after
            else:
                self._stale.add(leaf)
            if found:
                return group
        return None

    def _head(self) -> tuple[int, _Waiting] | None:
        if len(self._waiting) == 1:
            # No rank decides.
            ((leaf, waiting),) = self._waiting.items()
            passed = self._passed[leaf]
            return (leaf, waiting[passed]) if passed < len(waiting) else None
        if len(self._stale) < 2:
            # A path begins with the leaf.
            path: Iterable[int] = self._paths[self._stale.pop()] if self._stale else ()
        else:
            stale = set(chain.from_iterable(self._paths[i] for i in self._stale))
            path = sorted(stale, key=lambda i: -len(self._paths[i]))
            self._stale.clear()
        for i in path:
            self._refresh(i)
        first = self._first(-1)
        return None if first is None else self._heads[first]

    def _refresh(self, i: int) -> None:
        """Compute the first group of queue ``i`` and its rank again; its children must be up to date."""
        waiting, passed = self._waiting.get(i, ()), self._passed.get(i, 0)
        if passed < len(waiting):
            self._heads[i] = i, waiting[passed]
        elif (best := self._first(i)) is not None:
            self._heads[i] = self._heads[best]
        else:
            self._ranks.pop(i, None)
            return
        rank = self._rank(i, self._heads[i][1][2])
        if self._ranks.get(i) != rank:
            self._ranks[i] = rank
            line = self._lines.setdefault(self._parents[i], [])
            heappush(line, (rank, self._steps.seniority[i], i))

    def _rank(self, i: int, head: _Head) -> Rank:
        """The rank of queue ``i`` when such a group represents it."""
        sizes = self._by_size.setdefault(i, {})
        if (known := sizes.get(head)) is not None:
            return known
        unpromised, amounts = head
        steps, held = self._steps, self._book.held[i]
        with_batch = (held[0] + amounts[0], held[1] + amounts[1], held[2] + amounts[2])
        rank = sizes[head] = (
            unpromised,
            *steps.standing(i, held, with_batch),
            steps.dominant(i, with_batch),
            steps.dominant(i, held),
        )
        return rank

    def _first(self, parent: int) -> int | None:
        """The queue below that comes next (-1: at the top); None when no group waits below any."""
        line, ranks = self._lines.get(parent, ()), self._ranks
        while line and ranks.get(line[0][2]) != line[0][0]:
            heappop(line)
        if not line:
            return None
        # In a heap, what is equal to the first hangs together.
        rank, ties, look = line[0][0], set[int](), [0]
        if self._steps.even[parent] or all(one[0] != rank for one in line[1:3]):
            return line[0][2]
        for at in look:
            if at < len(line) and line[at][0] == rank:
                look += (2 * at + 1, 2 * at + 2)
                if ranks.get(line[at][2]) == rank:
                    ties.add(line[at][2])
        return next(self._steps.in_turn(ties))


def _one(group: GroupKey, entry: Entry) -> _Waiting:
    return entry[0], group, (entry[0][0], entry[1])


def _place(waiting: Sequence[_Waiting], one: _Waiting) -> int | None:
    """Where it is among those that wait, in order; None: it does not wait."""
    at = bisect_left(waiting, one)
    return at if at < len(waiting) and waiting[at] == one else None
