"""The openb cluster and a demand as items and bins of the bounds."""

from __future__ import annotations

from collections import Counter

from kai_cp.bench.openb.trace import Classes, Nodes
from kai_cp_models.bounds import Bin, BinItem


def bins_of(nodes: Nodes) -> tuple[list[Bin], list[int]]:
    """Bins of equal nodes, and the model of each bin."""
    columns = (column.tolist() for column in (nodes.cpu, nodes.memory, nodes.gpus, nodes.model))
    counts = Counter(zip(*columns, strict=True))
    bins = [Bin(cpu, memory, gpus, count) for (cpu, memory, gpus, _), count in counts.items()]
    return bins, [model for *_, model in counts]


def items_of(classes: Classes, model_of_bin: list[int]) -> list[BinItem]:
    """One item per class."""
    return [
        BinItem(
            cpu=int(classes.cpu[c]),
            memory=int(classes.memory[c]),
            gpus=int(classes.gpus[c]),
            milli=int(classes.milli[c]),
            allowed=tuple(bool(classes.allowed[c, model]) for model in model_of_bin),
        )
        for c in range(len(classes))
    ]
