"""Order: which pod group is next to be served (3.5, 3.6).

``rank`` has its reverse: which group loses its places first. The queue tree is walked level by level; each
queue is represented by the first group below it. The ranks of queues and the first groups of leaves are kept,
and after a change only the queues on its path are computed again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Mapping, Sequence
from copy import copy
from itertools import islice, repeat
from types import MappingProxyType
from typing import Self

from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.steps import QueueSteps
from kai_cp_models.pods import GroupKey
from kai_cp_models.snapshot import PodGroup, Snapshot

SortKey = tuple[int, int, float, str, str]
"""Order of groups inside a leaf queue; smaller is served first and loses its places last."""
Entry = tuple[SortKey, Amounts]
"""A group's sort key, and the size of its next batch, pessimistic."""
_Waiting = tuple[SortKey, GroupKey, Amounts]
Rank = tuple[bool, bool, int, bool, float, float]
"""Steps 1 to 6 of the queue order (3.5); smaller is served first."""


def group_sort_key(group: PodGroup, elastic_state: int) -> SortKey:
    """Order of a group inside its leaf queue (3.6).

    ``elastic_state``: 0 below the minimum in any pod set, 1 exactly at it, 2 above. The namespace
    only tells groups of one name apart. Points for waiting count as priority (``aging``); a running group has
    none.
    """
    return (-group.priority - group.aged, elastic_state, group.created, group.key.name, group.key.namespace)


class FairOrder:
    """Groups waiting in the leaves of the queue tree, popped one at a time in the fair order.

    Groups in queues that do not exist or have children are left out: no action ever considers them (1.1).
    After a change of ``book`` call ``charged`` for the queue that was charged.
    """

    def __init__(self, snapshot: Snapshot, book: QueueBook, entries: Mapping[GroupKey, Entry]) -> None:
        self._groups = snapshot.group_by_key
        self._book = book
        self._steps = QueueSteps(book)
        tree = book.tree
        self._children, self._paths, self._roots = tree.children, tree.lines, tree.roots
        self._leaf_of = {queue.name: i for i, queue in enumerate(tree.queues) if not tree.children[i]}
        self._waiting: list[Sequence[_Waiting]] = [() for _ in tree.queues]
        """The groups of each leaf in order; a fork shares them."""
        self._passed = [0 for _ in tree.queues]
        """How many of them do not wait any more."""
        self._entries: tuple[dict[GroupKey, Entry], ...] = ()
        """The entries of all groups that were added, the last ones here and those before in what this is a
        fork of."""
        self._forget()
        self._add(entries)

    def __len__(self) -> int:
        return sum(map(len, self._waiting)) - sum(self._passed)

    def fork(
        self,
        book: QueueBook,
        only: Container[GroupKey] | None = None,
        also: Mapping[GroupKey, Entry] = MappingProxyType({}),
    ) -> Self:
        """An independent order of the groups that wait here, over another book of the same queues.

        ``only``: those of them that wait there, too; None: all. ``also``: what is added or replaced.
        """
        result: Self = copy(self)
        result._book = book
        if only is None:
            result._waiting, result._passed = list(self._waiting), list(self._passed)
        else:
            left = map(islice, self._waiting, self._passed, repeat(None))
            result._waiting = [[one for one in waiting if one[1] in only] for waiting in left]
            result._passed = [0 for _ in self._passed]
        result._forget()
        result._add(also)
        return result

    def _forget(self) -> None:
        """Look at all queues anew."""
        count = len(self._waiting)
        self._heads: list[tuple[int, _Waiting] | None] = [None] * count
        """The first group below each queue, and its leaf."""
        self._ranks: list[Rank | None] = [None] * count
        self._by_size: list[dict[Amounts, Rank]] = [{} for _ in range(count)]
        """Ranks of each queue by the size of its first group's batch, until the queue is charged."""
        self._stale = [self._paths[leaf] for leaf in self._leaf_of.values()]
        """Paths on which heads and ranks are to be computed again."""

    def _add(self, entries: Mapping[GroupKey, Entry]) -> None:
        """Add groups, or replace their entries."""
        before, self._entries = self._entries, (*self._entries, dict(entries))
        grown: dict[int, list[_Waiting]] = {}
        for group, (key, amounts) in entries.items():
            leaf = self._leaf_of.get(self._groups[group].queue)
            if leaf is not None:
                grown.setdefault(leaf, []).append((key, group, amounts))
        for leaf, found in grown.items():
            waiting = list(islice(self._waiting[leaf], self._passed[leaf], None))
            for one in found if waiting else ():
                group = one[1]
                old = next((some[group] for some in reversed(before) if group in some), None)
                if old is not None and (at := _place(waiting, (old[0], group, old[1]))) is not None:
                    del waiting[at]
                insort(waiting, one)
            # Waiting groups come nearly in order, so that this takes hardly any time.
            self._waiting[leaf], self._passed[leaf] = waiting or sorted(found), 0

    def push(self, group: GroupKey, entry: Entry) -> None:
        """Add a group that does not wait here."""
        leaf = self._leaf_of.get(self._groups[group].queue)
        if leaf is None:
            return
        waiting = list(self._waiting[leaf][self._passed[leaf] :])
        insort(waiting, (entry[0], group, entry[1]))
        self._entries[-1][group] = entry
        self._waiting[leaf], self._passed[leaf] = waiting, 0
        self._changed(self._paths[leaf])

    def charged(self, queue: str) -> None:
        """Note that the book changed for ``queue``, and so for its ancestors."""
        path = self._paths[self._book.index(queue)]
        self._changed(path)
        for i in path:
            self._by_size[i].clear()

    def use(self, book: QueueBook, queue: str) -> None:
        """Follow another book from now on, which differs from the last one along the path of ``queue``."""
        self._book = book
        self.charged(queue)

    def peek(self) -> GroupKey | None:
        """The group that ``pop`` would give."""
        head = self._head()
        return None if head is None else head[1][1]

    def rank_of(self, queue: int) -> Rank | None:
        """Steps 1 to 6 of a queue at the last search for a group; None when no group waits below it."""
        return self._ranks[queue]

    def pop(
        self, among: Container[GroupKey] | None = None, before: list[GroupKey] | None = None
    ) -> GroupKey | None:
        """Remove the next group and return it; None when no group waits.

        ``among``: groups before the next one of these are removed as well, and added to ``before``; None: all
        are looked for.
        """
        while (head := self._head()) is not None:
            leaf, (_, group, amounts) = head
            waiting, path, passed = self._waiting[leaf], self._paths[leaf], self._passed[leaf] + 1
            found = among is None or group in among
            if not found and among is not None:
                # With a head of another size the leaf still comes first if no queue of its path is worse off.
                first = {amounts: True}
                for _, group, size in islice(waiting, passed, None):
                    if size not in first:
                        first[size] = all(self._rank(i, size) <= self._rank(i, amounts) for i in path)
                    if not first[size]:
                        break
                    passed += 1
                    if found := group in among:
                        break
            if before is not None:
                before += (one[1] for one in islice(waiting, self._passed[leaf], passed - found))
            self._passed[leaf] = passed
            if passed < len(waiting) and waiting[passed][2] == amounts:
                after = leaf, waiting[passed]
                for i in path:
                    self._heads[i] = after
            else:
                self._changed(path)
            if found:
                return group
        return None

    def _changed(self, path: tuple[int, ...]) -> None:
        if path not in self._stale:
            self._stale.append(path)

    def _head(self) -> tuple[int, _Waiting] | None:
        # What is above several of these paths is computed once more after each, and so in the end from all.
        for path in self._stale:
            for i in path:
                self._refresh(i)
        self._stale.clear()
        first = self._choose(self._roots)
        return None if first is None else self._heads[first]

    def _refresh(self, i: int) -> None:
        """Compute the first group of queue ``i`` and its rank anew; its children must be up to date."""
        head: tuple[int, _Waiting] | None = None
        if children := self._children[i]:
            best = self._choose(children)
            head = None if best is None else self._heads[best]
        elif (passed := self._passed[i]) < len(self._waiting[i]):
            head = i, self._waiting[i][passed]
        self._heads[i] = head
        self._ranks[i] = None if head is None else self._rank(i, head[1][2])

    def _rank(self, i: int, amounts: Amounts) -> Rank:
        """Steps 1 to 6 for queue ``i`` with a first batch of this size."""
        known = self._by_size[i].get(amounts)
        if known is not None:
            return known
        steps, held = self._steps, self._book.held[i]
        with_batch = (held[0] + amounts[0], held[1] + amounts[1], held[2] + amounts[2])
        rank = self._by_size[i][amounts] = (
            *steps.standing(i, held, with_batch),
            steps.dominant(i, with_batch),
            steps.dominant(i, held),
        )
        return rank

    def _choose(self, siblings: Sequence[int]) -> int | None:
        """The sibling that comes next; None when no group waits below any."""
        ranks = self._ranks
        best: Rank | None = None
        ties: list[int] = []
        for i in siblings:
            rank = ranks[i]
            if rank is None:
                continue
            if best is None or rank < best:
                best, ties = rank, [i]
            elif rank == best:
                ties.append(i)
        return self._steps.first(ties) if ties else None


def _place(waiting: Sequence[_Waiting], one: _Waiting) -> int | None:
    """Where it is among those that wait, in order; None: it does not wait."""
    at = bisect_left(waiting, one)
    return at if at < len(waiting) and waiting[at] == one else None
