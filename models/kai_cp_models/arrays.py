"""Arrays by what their elements are.

A docstring names the axes of each array: ``[N]`` nodes, ``[D]`` dimensions of a node's vector, ``[N, D]``
both; others by name, such as ``[device]`` and ``[domain]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")
Name = TypeVar("Name")

Mask = NDArray[np.bool_]
"""Yes or no for every element, mostly for every node."""
Ints = NDArray[np.int64]
"""Integers: amounts, counts, positions."""
Floats = NDArray[np.float64]
"""Scores, ratios and costs; no model ever sees them."""


def numbered(*columns: Ints | Floats) -> Ints:
    """A number for each row, from 0 on: equal ones for rows that are equal in all columns."""
    found = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, codes = np.unique(column, return_inverse=True)
        found = np.unique(found * len(values) + codes, return_inverse=True)[1]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Kept(Generic[Item]):
    """A sequence of objects that never change, and so are known by identity from one sequence to the next."""

    items: tuple[Item, ...] = ()
    ids: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """[I] ``id`` of each; they are held, so that no other object can have it."""

    def follow(self, items: Sequence[Item]) -> tuple[Kept[Item], Ints, Ints]:
        """The sequence that comes after this one, and its ``origin``: [I] and positions."""
        after = Kept(tuple(items), np.fromiter(map(id, items), np.int64, len(items)))
        return after, *self.origin(after)

    def origin(self, after: Kept[Item]) -> tuple[Ints, Ints]:
        """[I] where each object of another sequence was in this one, or -1; and positions in this one of what
        the other does not have."""
        ids, last, left = after.ids, self.ids, np.ones(len(self.ids), dtype=bool)
        if not len(last):
            return np.full(len(ids), -1), np.flatnonzero(left)
        # Nearly all are as before, and were made in this order: sorting and searching have little to do.
        order = np.argsort(last, kind="stable")
        found = order[np.searchsorted(last, ids, sorter=order).clip(max=len(order) - 1)]
        origin = np.where(last[found] == ids, found, -1)
        left[origin[origin >= 0]] = False
        gone = np.flatnonzero(left)
        # Malformed objects, such as two nulls, may be one.
        return origin, gone[~np.isin(last[gone], ids, assume_unique=True, kind="sort")]


class FollowedItems(Generic[Item, Name]):
    """A sequence of objects that never change, and their names."""

    def __init__(self) -> None:
        self._kept: Kept[Item] = Kept()
        self._names: list[Name] = []

    def follow(
        self, items: Sequence[Item], name: Callable[[Item], Name]
    ) -> tuple[list[tuple[Name, Item]], list[Name]]:
        """What came since the last sequence, with names, and the names of what left."""
        last = self._names
        self._kept, origin, gone = self._kept.follow(items)
        left = [last[i] for i in gone.tolist()]
        came = [(name(items[i]), items[i]) for i in np.flatnonzero(origin < 0).tolist()]
        # The same name as before: what looks it up compares no text.
        known = {one: one for one in left}
        came = [(known.get(one, one), item) for one, item in came]
        fresh = iter(came)
        self._names = [last[i] if i >= 0 else next(fresh)[0] for i in origin.tolist()]
        return came, left
