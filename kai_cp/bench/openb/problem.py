"""The openb cluster and a demand as items and bins of the bounds."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from kai_cp.bench.openb.cluster import TraceCluster
from kai_cp.bench.openb.trace import Classes, Nodes
from kai_cp_models.arrays import Ints
from kai_cp_models.bounds import Bin, BinItem


def bins_of(nodes: Nodes) -> tuple[list[Bin], list[int], Ints]:
    """Bins of equal nodes, the model of each bin, and the bin of every node."""
    keys: dict[tuple[int, int, int, int], int] = {}
    of_node = [
        keys.setdefault((int(cpu), int(memory), int(gpus), int(model)), len(keys))
        for cpu, memory, gpus, model in zip(nodes.cpu, nodes.memory, nodes.gpus, nodes.model, strict=True)
    ]
    counts = Counter(of_node)
    bins = [Bin(cpu, memory, gpus, counts[b]) for (cpu, memory, gpus, _), b in keys.items()]
    return bins, [key[3] for key in keys], np.array(of_node, dtype=np.int64)


def items_of(classes: Classes, model_of_bin: list[int], count: Ints) -> list[BinItem]:
    """One item per class, with ``count`` pods each."""
    return [
        BinItem(
            cpu=int(classes.cpu[c]),
            memory=int(classes.memory[c]),
            gpus=int(classes.gpus[c]),
            milli=int(classes.milli[c]),
            count=int(count[c]),
            allowed=tuple(bool(classes.allowed[c, model]) for model in model_of_bin),
        )
        for c in range(len(classes))
    ]


def patterns_of(cluster: TraceCluster, bin_of_node: Ints) -> list[tuple[int, tuple[int, ...]]]:
    """What each node carries now, as patterns to start the column generation with.

    ``bin_of_node``: [node]. A pattern is a bin and the number of pods of each class.
    """
    on_node: dict[int, Counter[int]] = defaultdict(Counter)
    for c, node, _devices in cluster.running.values():
        on_node[node][c] += 1
    width = len(cluster.classes)
    return [
        (int(bin_of_node[node]), tuple(counts[c] for c in range(width))) for node, counts in on_node.items()
    ]
