"""An estimate of the best result of a policy that may move pods and never refuses one that could fit.

Arrivals come in blocks. All pods admitted before stay, and from each block as many GPUs are admitted as the
fluid relaxation allows: pools of equal nodes instead of nodes, the best choice inside the block, any number
of moves, and divisible pods. A policy that refuses nothing cannot choose beyond a block, so the result is
close to the most that it can reach. It is not a strict bound: a policy that packs worse refuses some pods
early and may end higher because of that, just like a policy that refuses on purpose.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kai_cp.bench.openb.admission import CPU_WORTH
from kai_cp.bench.openb.problem import bins_of, items_of
from kai_cp.bench.openb.trace import Classes, Nodes
from kai_cp_models.arrays import Ints
from kai_cp_models.bounds import Fluid

BLOCK: Final = 100
"""Arrivals that are decided together."""


def repacked(nodes: Nodes, classes: Classes, sequence: Ints) -> float:
    """Milli-GPUs in use at the end. ``sequence``: the class of each arriving pod."""
    bins, models, _ = bins_of(nodes)
    worth = np.where(classes.gpus > 0, classes.total, CPU_WORTH * classes.cpu)
    fluid = Fluid(items_of(classes, models, classes.count), bins, worth.tolist())
    admitted = np.zeros(len(classes))
    for begin in range(0, len(sequence), BLOCK):
        block = np.bincount(sequence[begin : begin + BLOCK], minlength=len(classes))
        # Slightly below the admitted amount, so that rounding never makes the next problem infeasible.
        admitted = fluid.solve((admitted + block).tolist(), (admitted * (1 - 1e-9)).tolist()).placed
    return float(admitted @ classes.total)
