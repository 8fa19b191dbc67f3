"""Fewest zones of a node that hold a demand together, for all nodes at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

MOST_SETS: Final = 4096
"""Zone sets looked at; beyond that a node counts as unable. 12 zones have fewer."""

Amounts = NDArray[np.int64]


def zone_sets(zones: int) -> Iterator[tuple[int, ...]]:
    """Sets of zones, smaller ones first, then in the order of the zones."""
    seen = 0
    for size in range(1, zones + 1):
        for chosen in combinations(range(zones), size):
            seen += 1
            if seen > MOST_SETS:
                return
            yield chosen


def spans(free: Amounts, demand: Amounts, exists: NDArray[np.bool_], *, widest: int) -> NDArray[np.int64]:
    """[N] size of the smallest zone set that holds the demand; 0: no set of up to ``widest`` zones.

    ``free`` [N, Z, D], ``demand`` [N, D] (0 where the node's zones do not list a dimension).
    """
    found = np.zeros(len(free), dtype=np.int64)
    room = np.maximum(free, 0)
    for chosen in zone_sets(free.shape[1]):
        if len(chosen) > widest or (found > 0).all():
            break
        picked = list(chosen)
        fits = exists[:, picked].all(axis=1) & (room[:, picked].sum(axis=1) >= demand).all(axis=1)
        found[(found == 0) & fits] = len(chosen)
    return found


def first_set(free: Amounts, demand: Amounts, zones: int) -> tuple[int, ...]:
    """The smallest zone set of one node that holds the demand, the lowest of its size; () if none.

    ``free`` [Z, D], ``demand`` [D].
    """
    room = np.maximum(free, 0)
    for chosen in zone_sets(zones):
        if (room[list(chosen)].sum(axis=0) >= demand).all():
            return chosen
    return ()


def spread_over(free: Amounts, demand: Amounts, chosen: tuple[int, ...]) -> Amounts:
    """[Z, D] what each zone of a set gives: as much as it has, the first zone first."""
    given = np.zeros_like(free)
    left = demand.copy()
    for zone in chosen:
        given[zone] = np.minimum(np.maximum(free[zone], 0), left)
        left = left - given[zone]
    return given
