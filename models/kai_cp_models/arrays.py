"""Arrays by what their elements are.

A docstring names the axes of each array: ``[N]`` nodes, ``[D]`` dimensions of a node's vector, ``[N, D]``
both; others by name, such as ``[device]`` and ``[domain]``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
"""Yes or no for every element, mostly for every node."""
Ints = NDArray[np.int64]
"""Integers: amounts, counts, positions."""
Floats = NDArray[np.float64]
"""Scores, ratios and costs; no model ever sees them."""
