"""Arrays by what their elements are.

A docstring names the axes of each array: ``[N]`` nodes, ``[D]`` dimensions of a node's vector, ``[N, D]``
both; others by name, such as ``[device]`` and ``[domain]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")
Known = TypeVar("Known")

Mask = NDArray[np.bool_]
"""Yes or no for every element, mostly for every node."""
Ints = NDArray[np.int64]
"""Integers: amounts, counts, positions."""
Floats = NDArray[np.float64]
"""Scores, ratios and costs; no model ever sees them."""


def came_and_went(known: dict[int, Known], items: Sequence[Item]) -> tuple[list[Item], list[Known]]:
    """The items that are new, and what is known of those that are gone, which is forgotten.

    ``known``: by ``id`` of an item, which it must hold, so that no other item can have it; the caller adds
    the new ones.
    """
    here = np.fromiter(map(id, items), np.int64, len(items))
    there = np.fromiter(known, np.int64, len(known))
    # Malformed items, such as two nulls, may be one object, so only what is known is unique.
    came = [item for item in items if id(item) not in known]
    went = np.setdiff1d(there, here, assume_unique=True).tolist()
    return came, [known.pop(place) for place in went]
