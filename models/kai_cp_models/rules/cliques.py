"""NVLink domains as a preference: a gang starts inside one where one has room for all of it.

Only nodes that name their domain (label ``nvidia.com/gpu.clique``) count, and only pod groups that ask for no
topology themselves. It is never a reason to wait: where no domain has the room now, any node will do, and
domains where the gang has pods already score higher.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from kai_cp_models.rules.protocol import Mask
from kai_cp_models.rules.scores import Score
from kai_cp_models.rules.table import NodeTable, Vector
from kai_cp_models.snapshot import GPU, Pod
from kai_cp_topology.records import CLIQUE_LABEL

_MOST_TRIED: Final = 4
"""Domains that are tried for a gang."""

CLOSE: Final = 10
"""A node in an NVLink domain where the gang has pods: above packing, below whether the room is free now."""


def domains(table: NodeTable, pods: Sequence[Pod], free: Vector, active_nodes: Vector) -> Iterator[Mask]:
    """[N] nodes of the NVLink domains whose GPUs may hold all pods, in the order to try.

    First the domains where pods of the gang are, then those with fewest free GPUs. ``free`` [N, D];
    ``active_nodes``: nodes of the gang's pods that have a place.
    """
    sizes = [pod.spec.requests[GPU] for pod in pods]
    codes = table.label(CLIQUE_LABEL).codes
    if not all(sizes) or (codes < 0).all() or (len(pods) < 2 and not len(active_nodes)):
        return
    present = set(codes[active_nodes].tolist())
    size = max(sizes)
    room = np.maximum(free[:, GPU], 0)
    count = int(codes.max()) + 1
    member = codes >= 0
    total = np.bincount(codes[member], weights=room[member], minlength=count)
    # Of the largest pods, none can use what is left of a node beyond multiples of its size.
    large = np.bincount(codes[member], weights=room[member] // size, minlength=count)
    enough = (total >= sum(sizes)) & (large >= sizes.count(size))
    order = sorted(np.flatnonzero(enough).tolist(), key=lambda d: (d not in present, total[d], d))
    for domain in order[:_MOST_TRIED]:
        yield codes == domain


def closeness(table: NodeTable, active_nodes: Vector) -> Score:
    """[N] score of nodes for one more pod of a gang that no single domain could take.

    A pair of GPUs in one domain has NVLink's bandwidth, any other the network's, so the fewer domains
    the better. ``active_nodes``: nodes of the gang's pods that have a place.
    """
    codes = table.label(CLIQUE_LABEL).codes
    present = np.unique(codes[active_nodes])
    result: Score = CLOSE * np.isin(codes, present[present >= 0]).astype(np.float64)
    return result
