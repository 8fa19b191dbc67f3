"""What a pod takes of a node over time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.snapshot import GPU, MILLI, Pod

Vector = NDArray[np.int64]


def demand(pod: Pod) -> Vector:
    """[D] what a pod takes of a node; a share counts as whole devices, so that it can only be too much."""
    need = np.array(pod.spec.requests, dtype=np.int64)
    if pod.spec.gpu.shares:
        need[GPU] = MILLI * pod.spec.gpu.devices
    return need
