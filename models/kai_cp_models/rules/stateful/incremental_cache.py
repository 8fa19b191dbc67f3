"""Answers per node that are needed often, while only a few nodes change in between."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints
from kai_cp_models.rules.stateful.forked import Forked


class IncrementalCache(Forked):
    """Arrays over the nodes by key; a question recomputes the nodes that changed since the last one."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._changes: list[int] = []
        self._known: dict[Hashable, tuple[int, NDArray[Any]]] = {}

    def detach(self) -> None:
        """After a shallow copy, copy what changes."""
        self._changes = list(self._changes)
        self._known = dict(self._known)

    def change(self, node: int) -> None:
        """Mark a node: answers for it may have changed."""
        self._changes.append(node)

    def answer(self, key: Hashable, compute: Callable[[Ints], NDArray[Any]]) -> NDArray[Any]:
        """The array [N] for ``key``, read-only for the caller.

        ``compute`` gives the values of the nodes at some positions.
        """
        position, values = self._known.get(key, (-1, None))
        if values is None:
            values = compute(np.arange(self._nodes, dtype=np.int64))
        elif position < len(self._changes):
            changed = np.unique(np.array(self._changes[position:], dtype=np.int64))
            values = values.copy()
            values[changed] = compute(changed)
        self._known[key] = (len(self._changes), values)
        return values
