"""Arrays by what their elements are. Where one is taken or given, its shape is said: [N], or [N, D]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
"""Yes or no for every element, mostly for every node."""
Ints = NDArray[np.int64]
"""Integers: amounts, counts, positions."""
Floats = NDArray[np.float64]
"""Scores, ratios and costs; no model ever sees them."""
