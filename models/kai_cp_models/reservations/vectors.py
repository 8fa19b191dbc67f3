"""What a pod takes of a node over time."""

from __future__ import annotations

import numpy as np

from kai_cp_models.arrays import Ints
from kai_cp_models.pods import GPU, MILLI, Pod


def demand(pod: Pod) -> Ints:
    """[D] what a pod takes of a node; a share counts as whole devices, so the result is never too small."""
    need = np.array(pod.spec.requests, dtype=np.int64)
    if pod.spec.gpu.shares:
        need[GPU] = MILLI * pod.spec.gpu.devices
    return need
