"""Order: which pod group is next to be served (3.5, 3.6). Its reverse, who gives way first, is ``rank``.

The queue tree is walked level by level; a queue stands for the best group below it. The ranks of
queues and the heads of leaves are kept, and only the path of what changed is looked at again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Self

from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.book import QueueBook, row
from kai_cp_models.fairness.steps import QueueSteps
from kai_cp_models.snapshot import GroupKey, PodGroup, Snapshot

SortKey = tuple[int, int, float, str, str]
"""Order of groups inside a leaf queue; smaller is served first and gives way last."""
Entry = tuple[SortKey, Amounts]
"""A group's sort key, and the size of its next batch, pessimistic."""
Rank = tuple[bool, bool, int, bool, float, float]
"""Steps 1 to 6 of the queue order (3.5); smaller is served first."""


def group_sort_key(group: PodGroup, elastic_state: int) -> SortKey:
    """Order of a group inside its leaf queue (3.6).

    ``elastic_state``: 0 below the minimum in any pod set, 1 exactly at it, 2 above. The namespace
    only tells groups of one name apart.
    """
    return (-group.priority, elastic_state, group.created, group.key.name, group.key.namespace)


class FairOrder:
    """Groups waiting in the leaves of the queue tree, popped one at a time, the most deserving first.

    Groups in queues that do not exist or have children are left out: no action ever considers them (1.1).
    After a change of ``book`` call ``charged`` for the queue that was charged.
    """

    def __init__(self, snapshot: Snapshot, book: QueueBook, entries: Mapping[GroupKey, Entry]) -> None:
        self._snapshot = snapshot
        self._book = book
        self._steps = QueueSteps(book)
        tree = book.tree
        self._paths = tuple(path.tolist() for path in tree.paths)
        self._height = [-len(path) for path in self._paths]
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
        if self._stale:
            for i in sorted(self._stale, key=self._height.__getitem__):
                self._refresh(i)
            self._stale.clear()
        first = self._choose(self._book.tree.roots)
        return None if first is None else self._heads[first]

    def pop(self) -> GroupKey | None:
        """Take the next group out; None when no group waits."""
        group = self.peek()
        leaf = None if group is None else self._leaf(group)
        if group is None or leaf is None:
            return None
        amounts = self._entries.pop(group)[1]
        waiting = self._waiting[leaf]
        del waiting[0]
        if waiting and self._entries[waiting[0][1]][1] == amounts:
            # The next one has the same size, so no queue of the path has another rank.
            for i in self._paths[leaf]:
                self._heads[i] = waiting[0][1]
        else:
            self._stale.update(self._paths[leaf])
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
            head = self._waiting[i][0][1] if self._waiting[i] else None
        self._heads[i] = head
        self._ranks[i] = None if head is None else self._rank(i, self._entries[head][1])

    def _rank(self, i: int, amounts: Amounts) -> Rank:
        """Steps 1 to 6 for queue ``i`` with a head of this size."""
        steps, held = self._steps, row(self._book.allocated, i)
        with_batch = (held[0] + amounts[0], held[1] + amounts[1], held[2] + amounts[2])
        return (
            *steps.standing(i, held, with_batch),
            steps.dominant(i, with_batch),
            steps.dominant(i, held),
        )

    def _choose(self, siblings: Sequence[int]) -> int | None:
        """The sibling that comes next; None when no group waits below any."""
        ranks = self._ranks
        found = [rank for i in siblings if (rank := ranks[i]) is not None]
        if not found:
            return None
        best = min(found)
        return self._steps.first([i for i in siblings if ranks[i] == best])
