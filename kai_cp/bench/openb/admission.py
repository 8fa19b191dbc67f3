"""Refusing early what would not be part of a good final mix.

A pod of 810 milli-GPUs leaves 190 that hardly any other request fits. A policy that takes whatever fits
therefore ends at about 97 % of the GPUs of the default list however well it packs, because the cluster is
full of such pods before better ones arrive. When more is asked for than there is, the fluid relaxation
says which share of each class a best mix admits; until ``UNTIL`` of the GPUs were asked for, every class
is admitted at that pace, afterwards whatever fits. This is a different service from the published
policies, which never refuse a pod that fits: it is reported separately.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from kai_cp.bench.openb.problem import bins_of, items_of
from kai_cp.bench.openb.trace import ARRIVALS, Classes, Nodes
from kai_cp_models.bounds import fluid_prices

UNTIL: Final = 0.7
"""GPUs asked for so far, as a multiple of those there are, from which on nothing is refused."""
SLACK: Final = 1.05
"""Pace above the relaxation's, because real nodes pack worse than its pools."""
CPU: Final = 0.85
"""Part of the CPUs that the relaxation may use, for the same reason."""


class Admission:
    """Admits each class at its pace; pods without GPUs always."""

    def __init__(self, nodes: Nodes, classes: Classes) -> None:
        bins, models, _ = bins_of(nodes)
        demand = classes.count * (
            ARRIVALS * nodes.total_milli_gpus / float((classes.total * classes.count).sum())
        )
        smaller = [replace(b, cpu=int(b.cpu * CPU)) for b in bins]
        placed = fluid_prices(items_of(classes, models, classes.count), smaller, demand.tolist()).placed
        self._rate = np.where(classes.gpus > 0, np.minimum(1.0, SLACK * placed / demand), 1.0)
        self._total = classes.total
        self._limit = UNTIL * nodes.total_milli_gpus
        self._asked = 0
        self._arrived = np.zeros(len(classes), dtype=np.int64)
        self._admitted = np.zeros(len(classes), dtype=np.int64)

    def admits(self, c: int) -> bool:
        """Whether the pod that arrives now may be placed."""
        self._arrived[c] += 1
        self._asked += int(self._total[c])
        if self._asked >= self._limit or self._admitted[c] <= self._rate[c] * self._arrived[c]:
            self._admitted[c] += 1
            return True
        return False
