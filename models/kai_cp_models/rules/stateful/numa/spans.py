"""The fewest zones of a node that hold a demand together, for all nodes at once."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints

MOST_SETS: Final = 4096
"""The most zone sets that are examined; a node that would need more counts as unable. 12 zones have fewer."""

MOST_CELLS: Final = 1 << 20
"""The most numbers that are compared at once."""


@lru_cache(maxsize=64)
def zone_sets(zones: int, widest: int) -> Ints:
    """[S, Z] one row for each set of up to ``widest`` zones: smaller sets first, then by zone order."""
    sets = (chosen for size in range(1, widest + 1) for chosen in combinations(range(zones), size))
    rows = [[int(zone in chosen) for zone in range(zones)] for chosen in islice(sets, MOST_SETS)]
    return np.array(rows, dtype=np.int64).reshape(len(rows), zones)


def left_out(zones: int) -> bool:
    """Whether some sets of up to this many zones are left out."""
    return (1 << zones) - 1 > MOST_SETS


def spans(free: Ints, demand: Ints, exists: NDArray[np.bool_], *, widest: int) -> NDArray[np.int64]:
    """[N] size of the smallest zone set that holds the demand; 0: no set of up to ``widest`` zones.

    ``free`` [N, Z, D], ``demand`` [N, D] (0 where the node's zones do not list a dimension).
    """
    sets = zone_sets(free.shape[1], min(widest, free.shape[1]))
    found = np.zeros(len(free), dtype=np.int64)
    if not len(sets):
        return found
    step = max(1, MOST_CELLS // (sets.size * free.shape[2]))
    for start in range(0, len(free), step):
        part = slice(start, start + step)
        fits = _holding(sets, free[part], demand[part], exists[part])
        found[part] = np.where(fits.any(axis=1), sets[fits.argmax(axis=1)].sum(axis=1), 0)
    return found


def _holding(sets: Ints, free: Ints, demand: Ints, exists: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[N, S] whether a node has all zones of a set, and they hold the demand together."""
    whole = ~(~exists @ (sets.T > 0))
    fits: NDArray[np.bool_] = whole & (sets @ np.maximum(free, 0) >= demand[:, None, :]).all(axis=2)
    return fits


def first_set(free: Ints, demand: Ints, zones: int) -> tuple[int, ...]:
    """The smallest zone set of one node that holds the demand, the lowest of its size; () if none.

    ``free`` [Z, D], ``demand`` [D].
    """
    sets = zone_sets(zones, zones)
    exists = np.ones((1, zones), dtype=np.bool_)
    fits = _holding(sets, free[None, :zones], demand[None], exists)[0]
    return tuple(np.flatnonzero(sets[fits.argmax()]).tolist()) if fits.any() else ()


def spread_over(free: Ints, demand: Ints, chosen: tuple[int, ...]) -> Ints:
    """[Z, D] the amount that each zone of a set gives: as much as it has, starting with the first zone."""
    given = np.zeros_like(free)
    left = demand.copy()
    for zone in chosen:
        given[zone] = np.minimum(np.maximum(free[zone], 0), left)
        left = left - given[zone]
    return given
