"""Our policy without migration: a linear program prices free capacity, and each pod goes to the best node.

Before the first pod arrives, the fluid relaxation of the whole demand is solved once. Its prices show which
requests are scarce because they fill gaps that nothing else fills. A node's potential is then

* the best use of its free devices at these prices, with its CPUs as the second limit (Lagrange: the
  least over a grid of CPU prices of the value of each device by itself plus the CPUs at that price);
* minus a part of the expected fragment (as in fragmentation gradient descent);
* minus a part of the GPUs that its free CPUs could not feed if the usual mix of pods came.

The pod goes where the potential falls least; among nearly equal ones, to the smallest nodes first. Like
the published policy it knows the distribution of requests, and never refuses a pod that fits.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kai_cp.bench.openb.cluster import TraceCluster
from kai_cp.bench.openb.policies import Fragments, PotentialPolicy
from kai_cp.bench.openb.problem import bins_of, items_of
from kai_cp_models.arrays import Floats, Ints
from kai_cp_models.bounds import fluid_prices, room_values

DEMAND: Final = 1.05
"""GPUs asked for in the relaxation, as a multiple of those there are. Scarcer than the real demand, so that
prices do not count on a perfect choice among surplus pods."""
FRAGMENT: Final = 0.06
"""Weight of the expected fragment."""
STRANDED: Final = 0.6
"""Weight of GPUs without CPUs to feed them."""
NEARLY: Final = 60.0
"""Potentials that differ by fewer milli-GPUs count as equal."""
MIXES: Final = 7
"""Points of the distribution of CPUs per GPU."""
CPU_PRICES: Final = (
    np.array([0, 2, 4, 8, 12, 16, 20, 25, 30, 40, 50, 60, 80, 100, 130, 170, 220, 300, 400, 600]) / 1000
)
"""Milli-GPUs per milli-CPU."""


class Priced(PotentialPolicy):
    """Least loss of potential at the prices of a fluid relaxation."""

    name = "kai_cp prices"

    def __init__(self, cluster: TraceCluster) -> None:
        super().__init__(cluster)
        k, nodes = cluster.classes, cluster.nodes
        self.fragments = Fragments(cluster)
        bins, models, _ = bins_of(nodes)
        demand = k.count * (DEMAND * nodes.total_milli_gpus / float((k.total * k.count).sum()))
        self.prices = prices = fluid_prices(items_of(k, models, k.count), bins, demand.tolist())
        worth = []
        for model in range(len(nodes.models)):
            one = np.flatnonzero((k.gpus == 1) & k.allowed[:, model])
            gains = (k.total - prices.pods)[one][None, :] - CPU_PRICES[:, None] * k.cpu[one][None, :]
            worth.append(room_values(gains, k.milli[one]).T)
        self._worth = np.stack(worth)
        """[model, room / 10, CPU price]: most value that fits into a device with that room."""
        self._cpu_per_gpu = _quantiles(cluster)
        self._rank = np.argsort(np.argsort(nodes.gpus, kind="stable"), kind="stable")

    def potential(self, left: Ints, cpu: Ints, model: Ints) -> Floats:
        filled = self._worth[model[:, None], left // 10].sum(axis=1)
        best = (filled + cpu[:, None] * CPU_PRICES).min(axis=1)
        free = left.sum(axis=1)
        unfed = np.maximum(0.0, free[:, None] - cpu[:, None] / self._cpu_per_gpu).mean(axis=1)
        total: Floats = best - FRAGMENT * self.fragments.amount(left, cpu, model) - STRANDED * unfed
        return total

    def scale(self, gain: Floats) -> Floats:
        return np.floor(gain / NEARLY + 1e-6)

    def choose(self, c: int) -> tuple[int, tuple[int, ...]] | None:
        scores = self.scores(c)
        highest = scores.max()
        if highest == -np.inf:
            return None
        equal = np.flatnonzero(scores == highest)
        node = int(equal[self._rank[equal].argmin()])
        return node, self.devices(c, node)


def _quantiles(cluster: TraceCluster) -> Floats:
    """CPUs per GPU of the demand, at ``MIXES`` evenly spaced points of the GPUs asked for."""
    k = cluster.classes
    asks = k.gpus > 0
    need = k.cpu[asks] / k.total[asks]
    order = np.argsort(need)
    share = np.cumsum((k.total * k.count)[asks][order]) / float((k.total * k.count)[asks].sum())
    points = (np.arange(MIXES) + 0.5) / MIXES
    found: Floats = need[order][np.searchsorted(share, points)]
    return found
