"""What taking all that any repacking fits leads to: the best of moves for a policy that refuses nothing.

Arrivals come in blocks. Everyone admitted before stays, and of a block as many GPUs are admitted as the
fluid relaxation has room for: pools of equal nodes instead of nodes, the best choice inside the block, any
number of moves, pods split at will. A policy that never refuses what it could make fit cannot choose which
to admit beyond a block, so this is close to the most that it reaches. It is no strict bound: one that packs
worse refuses some pods early and may end higher by that, as refusing on purpose does.
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
        # A trifle below what is admitted, so that rounding never makes the next question impossible.
        admitted = fluid.solve((admitted + block).tolist(), (admitted * (1 - 1e-9)).tolist()).placed
    return float(admitted @ classes.total)
