"""Rank: which running pod group loses its places first, the exact reverse of the fair order (3.6).

Victims are taken one after the other, always from the queue that is last in the fair order. The book does not
change: taken units count as gone in step 5 only. So the sequence of a queue does not depend on what other
queues give, and sequences are merged by their first elements. An element that is to go earlier than the one
before it in its sequence is taken directly after that one. So each element counts with the latest position up
to it, and the merge is a sort.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints
from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.book import QueueBook

_NOTHING: Final = np.zeros(0, dtype=np.int64)


def victim_order(book: QueueBook, queues: Ints, groups: Ints, turns: Ints, gives: Ints) -> Ints:
    """[U] the units in the order in which policy takes them.

    ``queues``: where each is in the book, -1 for one that does not exist. ``groups``: ascending, so that the
    units of a group follow one another. ``turns``: by the sort key within the leaf; the largest goes first,
    and no two groups have an equal one. A unit that would go before the one it follows goes directly after
    it. ``gives``: [U, 3] the charge of each.

    Groups in queues that do not exist or have children are left out.
    """
    # Counted down group by group, the smallest so far is that of the group.
    apart = (groups - groups.max(initial=0)) * (turns.max(initial=0) + 1)
    turns = np.minimum.accumulate(turns - apart) + apart
    order = np.lexsort((-turns, queues))
    parts = np.split(order, np.flatnonzero(np.diff(queues[order])) + 1)
    ranges = {int(queues[part[0]]): part for part in parts if len(part)}
    sums = np.cumsum(gives[::-1], axis=0)[::-1]
    # What the group of each unit still holds when it is reached.
    left = sums - np.append(sums, [(0, 0, 0)], axis=0)[np.searchsorted(groups, groups, "right")]
    return _Merge(book, gives, left, ranges).below(-1)


class _Merge:
    """The sequences of queues, merged up the tree; ``left``: what the group of each unit holds with it."""

    def __init__(self, book: QueueBook, gives: Ints, left: Ints, leaves: Mapping[int, Ints]) -> None:
        self._book = book
        self._gives = gives
        self._left = left
        self._steps = book.steps
        self._leaves = {i: units for i, units in leaves.items() if i >= 0 and not book.tree.children[i]}
        self._children = defaultdict[int, set[int]](set)
        """Queues that give something, below each (-1: at the top)."""
        for leaf in self._leaves:
            line = book.tree.lines[leaf]
            for child, parent in zip(line, (*line[1:], -1), strict=True):
                self._children[parent].add(child)

    def below(self, parent: int) -> Ints:
        """The units below a queue (-1: all) in the order in which they are taken."""
        found = self._leaves.get(parent)
        if found is not None:
            return found
        sequences = {i: self.below(i) for i in sorted(self._children[parent])}
        if len(sequences) < 2:
            return next(iter(sequences.values()), _NOTHING)
        held = {i: self._book.held[i] for i in sequences}
        standing = {
            i: (self._steps.standing(i, held[i], held[i]), self._steps.dominant(i, held[i])) for i in held
        }
        places = {one: float(k) for k, one in enumerate(sorted({one for one, _ in standing.values()}))}
        lengths = [len(units) for units in sequences.values()]
        members = np.repeat(list(sequences), lengths)
        units = np.concatenate(list(sequences.values()))
        first = np.repeat([places[standing[i][0]] for i in sequences], lengths)
        fifth = np.concatenate([self._fifth(i, held[i], units) for i, units in sequences.items()])
        sixth = np.repeat([standing[i][1] for i in sequences], lengths)
        order = np.lexsort((-sixth, -fifth, -first))
        ranks = np.stack((first, fifth, sixth))[:, order]
        self._settle_ties(order, ranks, members[order])
        return units[order]

    def _fifth(self, i: int, held: Amounts, units: Ints) -> NDArray[np.float64]:
        """Step 5 of each unit: the smallest dominant share so far, without its group and all before it."""
        gives = self._gives[units]
        gone = np.cumsum(gives, axis=0) - gives + self._left[units]
        shares = (np.array(held, dtype=np.int64) - gone) / np.array(self._steps.divisors[i])
        return np.minimum.accumulate(shares.max(axis=1))

    def _settle_ties(self, order: Ints, ranks: NDArray[np.float64], members: Ints) -> None:
        """Steps 7 and 8 where units of several queues have one rank, in place."""
        starts = np.flatnonzero(np.concatenate(([True], (ranks[:, 1:] != ranks[:, :-1]).any(axis=0))))
        ends = np.append(starts[1:], len(order))
        mixed = np.minimum.reduceat(members, starts) != np.maximum.reduceat(members, starts)
        places: dict[tuple[int, ...], dict[int, int]] = {}
        for start, end in zip(starts[mixed].tolist(), ends[mixed].tolist(), strict=True):
            here = members[start:end]
            tied = tuple(np.unique(here).tolist())
            place = places.get(tied)
            if place is None:
                place = places[tied] = {i: k for k, i in enumerate(self._steps.in_turn(tied, -1))}
            turn = np.argsort([place[i] for i in here.tolist()], kind="stable")
            order[start:end] = order[start:end][turn]
