"""What every node has free, idle and promised. Rows for single nodes, columns for all of them.

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
    """Idle and releasing amounts of all nodes. The arrays that it returns are [N, D] and read-only, and show
    the moment of the last call.
    """

    def __init__(self, idle: Ints, releasing: Ints) -> None:
        self._idle: list[NodeAmounts] = list(map(tuple, idle.tolist()))
        self._releasing: list[NodeAmounts] = list(map(tuple, releasing.tolist()))
        self._columns = idle, releasing
        self._owned = True
        """Whether no copy shares the columns."""
        self._behind: set[int] = set()

    def copy(self) -> FreeCapacity:
        """An independent copy."""
        result = object.__new__(FreeCapacity)
        result._idle = self._idle.copy()
        result._releasing = self._releasing.copy()
        result._columns = self._columns
        self._owned = result._owned = False
        result._behind = self._behind.copy()
        return result

    def idle_on(self, node: int) -> NodeAmounts:
        """What is idle on a node."""
        return self._idle[node]

    def free_on(self, node: int) -> NodeAmounts:
        """What is left on a node once everything releasing is gone."""
        return tuple(map(add, self._idle[node], self._releasing[node]))

    def give(self, node: int, amounts: Sequence[int], *, releasing: bool) -> None:
        """Add amounts, negative ones too, to what is idle or releasing."""
        rows = self._releasing if releasing else self._idle
        rows[node] = tuple(map(add, rows[node], amounts))
        self._behind.add(node)

    def columns(self) -> tuple[Ints, Ints]:
        """Idle and releasing amounts of all nodes, both [N, D]."""
        if self._behind:
            if not self._owned:
                self._columns = self._columns[0].copy(), self._columns[1].copy()
                self._owned = True
            nodes = list(self._behind)
            self._columns[0][nodes] = [self._idle[node] for node in nodes]
            self._columns[1][nodes] = [self._releasing[node] for node in nodes]
            self._behind.clear()
        return _read_only(self._columns[0]), _read_only(self._columns[1])


def _read_only(array: Ints) -> Ints:
    view = array.view()
    view.flags.writeable = False
    return view
