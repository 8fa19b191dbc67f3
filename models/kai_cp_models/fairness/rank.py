"""Rank: which running pod group gives way first, the exact reverse of the fair order (3.6).

Victims are taken one after the other, always from the queue that is last in the fair order. The book does not
change: taken units count as gone in step 5 only. So the sequence of a queue does not depend on what other
queues give, and sequences are merged by their first elements. An element that is to go earlier than the one
before it in its sequence is taken directly after that one. So each element counts with the latest position up
to it, and the merge is a sort.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints
from kai_cp_models.fairness.amounts import Amounts, add
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.steps import QueueSteps

Key = TypeVar("Key", bound=Hashable)

_NOTHING: Final = np.zeros(0, dtype=np.int64)


@dataclass(slots=True, eq=False)
class Giving:
    """What a pod group gives up, unit by unit.

    ``keys``: sort key of each unit within the leaf; the largest goes first, and no two groups have an equal
    one. A unit that would go before the one it follows goes directly after it. ``gives``: the charge of each
    unit. ``left``: what the group still holds when each unit is reached.
    """

    queue: str
    keys: Sequence[tuple[Any, ...]]
    gives: Sequence[Amounts]
    left: Sequence[Amounts] = field(init=False)

    def __post_init__(self) -> None:
        self.keys = list(accumulate(self.keys, min))
        self.left = list(accumulate(reversed(self.gives), add))[::-1]


def victim_order(book: QueueBook, givings: Mapping[Key, Giving]) -> list[tuple[Key, int]]:
    """All units as (group, position in its ``gives``) in the order in which policy takes them.

    Groups in queues that do not exist or have children are left out.
    """
    tree = book.tree
    leaves: dict[int, list[tuple[tuple[Any, ...], Key, int]]] = {}
    for name, giving in givings.items():
        i = tree.index.get(giving.queue)
        if i is not None and not tree.children[i]:
            leaves.setdefault(i, []).extend([(key, name, k) for k, key in enumerate(giving.keys)])
    units: list[tuple[Key, int]] = []
    gives: list[Amounts] = []
    left: list[Amounts] = []
    ranges: dict[int, Ints] = {}
    for i, found in leaves.items():
        # The sort is stable, so that the units of a group stay in their order.
        found.sort(key=itemgetter(0), reverse=True)
        ranges[i] = np.arange(len(units), len(units) + len(found))
        units += [(name, k) for _, name, k in found]
        gives += [givings[name].gives[k] for _, name, k in found]
        left += [givings[name].left[k] for _, name, k in found]
    order = _Merge(book, _rows(gives), _rows(left), ranges).below(tree.roots)
    return [units[u] for u in order.tolist()]


class _Merge:
    """The sequences of queues, merged up the tree; ``left``: what the group of each unit holds with it."""

    def __init__(self, book: QueueBook, gives: Ints, left: Ints, leaves: Mapping[int, Ints]) -> None:
        self._book = book
        self._steps = QueueSteps(book)
        self._gives = gives
        self._left = left
        self._leaves = leaves

    def below(self, siblings: Sequence[int]) -> Ints:
        """The units below all of ``siblings`` in the order in which they are taken."""
        sequences = {i: units for i in siblings if len(units := self._sequence(i))}
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

    def _sequence(self, i: int) -> Ints:
        children = self._book.tree.children[i]
        return self.below(children) if children else self._leaves.get(i, _NOTHING)

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
                place = places[tied] = self._places(tied)
            turn = np.argsort([place[i] for i in here.tolist()], kind="stable")
            order[start:end] = order[start:end][turn]

    def _places(self, tied: Sequence[int]) -> dict[int, int]:
        left = list(tied)
        found: dict[int, int] = {}
        while left:
            i = self._steps.last(left)
            found[i] = len(found)
            left.remove(i)
        return found


def _rows(amounts: list[Amounts]) -> Ints:
    return np.array(amounts, dtype=np.int64).reshape(-1, 3)
