"""An admission policy that refuses pods outside the best mix that is still possible.

A pod of 810 milli-GPUs leaves 190 that hardly any other request fits, and a pod that needs many CPUs strands
the GPUs beside it. A policy that admits everything that fits therefore ends at about 96.4 % of the GPUs of
the list ``default``, however well it packs. If demand exceeds capacity, some pods are refused in any case;
this policy refuses those whose place serves others better. Every ``EVERY`` arrivals the fluid relaxation
computes the mix that uses most GPUs, given what runs and what is expected to arrive until ``UNTIL``; until
the next time, every class is admitted at the pace of that mix. The published policies never refuse a pod that
fits and do not know when arrivals end, so this different service is reported separately.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kai_cp.bench.openb.problem import bins_of, items_of
from kai_cp.bench.openb.trace import Classes, Nodes
from kai_cp_models.arrays import Ints
from kai_cp_models.bounds import Fluid

EVERY: Final = 200
"""Arrivals between two solutions."""
UNTIL: Final = 1.22
"""GPUs asked for, as a multiple of those there are, from which on nothing is refused: a reserve for what the
relaxation does not see, such as whole nodes for pods that need them."""
CPU: Final = 0.75
"""Part of the free CPUs that the relaxation may use; real nodes pack worse than its pools."""
CPU_WORTH: Final = 0.002
"""Milli-GPUs that a milli-CPU of a pod without GPUs is worth, so that such pods are served where they cost no
GPU."""


class TraceAdmission:
    """Admits each class at the pace of the best mix."""

    def __init__(self, nodes: Nodes, classes: Classes) -> None:
        bins, models, _ = bins_of(nodes)
        items = items_of(classes, models, classes.count)
        worth = np.where(classes.gpus > 0, classes.total, CPU_WORTH * classes.cpu)
        self._fluid = Fluid(items, bins, worth.tolist())
        self._total = classes.total
        self._cpu = classes.cpu
        self._all_cpus = int(nodes.cpu.sum())
        self._frequency = classes.count / classes.count.sum()
        self._mean = float((classes.total * self._frequency).sum())
        self._expected = UNTIL * nodes.total_milli_gpus
        self._asked = 0
        self._arrived = 0
        self._rate = np.ones(len(classes))
        self._credit = np.full(len(classes), 0.5)

    def admits(self, c: int, running: Ints) -> bool:
        """Whether the arriving pod may be placed. ``running``: number of placed pods of each class."""
        if self._arrived % EVERY == 0:
            self._plan(running)
        self._arrived += 1
        self._asked += int(self._total[c])
        self._credit[c] += self._rate[c]
        if self._credit[c] < 1 - 1e-6:
            return False
        self._credit[c] -= 1
        return True

    def _plan(self, running: Ints) -> None:
        coming = max(0.0, self._expected - self._asked) / self._mean * self._frequency
        used = float((self._cpu * running).sum()) / self._all_cpus
        placed = self._fluid.solve(
            (running + coming).tolist(), running.tolist(), cpu=used + CPU * (1.0 - used)
        ).placed
        some = coming > 0
        self._rate = np.ones(len(coming))
        self._rate[some] = np.clip((placed - running)[some] / coming[some], 0.0, 1.0)
