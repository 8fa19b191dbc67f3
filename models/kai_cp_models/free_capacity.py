"""What every node has free, now and once everything releasing is gone. Rows for single nodes, columns for all
of them.

Rows are plain numbers and never changed in place, so copies share them; columns are updated from the rows
when they are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

from kai_cp_models.arrays import Ints

NodeAmounts = tuple[int, ...]
"""Amounts of one node in the order of ``Snapshot.dimensions``."""


class FreeCapacity:
    """Free amounts of all nodes: ``idle`` now, ``free`` once everything releasing is gone and everything
    promised is there. The arrays that it returns are [N, D] and read-only, and show the moment of the last
    call.
    """

    def __init__(self, idle: Ints, free: Ints) -> None:
        self.idle_on: list[NodeAmounts] = list(map(tuple, idle.tolist()))
        """By node, what is idle."""
        self.free_on: list[NodeAmounts] = list(map(tuple, free.tolist()))
        """By node, what is left once everything releasing is gone."""
        self._columns = idle, free
        self._owned = True
        """Whether no copy shares the columns."""
        self._behind: set[int] = set()

    def copy(self) -> FreeCapacity:
        """An independent copy."""
        result = object.__new__(FreeCapacity)
        result.idle_on, result.free_on = self.idle_on.copy(), self.free_on.copy()
        result._columns = self._columns
        self._owned = result._owned = False
        result._behind = self._behind.copy()
        return result

    def give(self, node: int, amounts: Sequence[int], *, later: bool) -> None:
        """Add amounts, negative ones too, to what is free; ``later``: not to what is idle now."""
        idle, free = self.idle_on[node], self.free_on[node]
        found = self.free_on[node] = tuple(map(add, free, amounts))
        if not later:
            # Mostly nothing releases.
            self.idle_on[node] = found if idle == free else tuple(map(add, idle, amounts))
        self._behind.add(node)

    def columns(self) -> tuple[Ints, Ints]:
        """Idle and free amounts of all nodes, both [N, D]."""
        if self._behind:
            if not self._owned:
                self._columns = self._columns[0].copy(), self._columns[1].copy()
                self._owned = True
            nodes = list(self._behind)
            self._columns[0][nodes] = [self.idle_on[node] for node in nodes]
            self._columns[1][nodes] = [self.free_on[node] for node in nodes]
            self._behind.clear()
        return _read_only(self._columns[0]), _read_only(self._columns[1])


def _read_only(array: Ints) -> Ints:
    view = array.view()
    view.flags.writeable = False
    return view
