"""Locality: how close the GPUs of a gang are to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np

from kai_cp_topology.records import CLIQUE_LABEL, HOSTNAME_LABEL, Locality, NodeFacts
from kai_cp_topology.scales import Scale
from kai_cp_topology.systems import system_of


def locality(nodes: Mapping[int, NodeFacts], scales: Sequence[Scale], gang: Mapping[int, int]) -> Locality:
    """The locality of a gang that holds ``gang[i]`` GPUs on ``nodes[i]``.

    ``nodes``: the gang's nodes, by their position in the ``scales``. The GPUs that it holds on a node are
    assumed to be the best choice on an empty node.
    """
    used = {i: count for i, count in gang.items() if count > 0}
    by_domain: dict[tuple[str, int], int] = {}
    for i, count in used.items():
        domain = _nvlink_domain(scales, i)
        by_domain[domain] = by_domain.get(domain, 0) + count
    label, hops = _meeting(scales, tuple(used))
    return Locality(
        _worst(nodes, used, joined=len(by_domain) == 1),
        hops,
        label,
        len(by_domain),
        gcd(*by_domain.values()),
    )


def _meeting(scales: Sequence[Scale], used: Sequence[int]) -> tuple[str, int]:
    """Label and hops of the closest scale at which all nodes share a place."""
    if len(used) < 2:
        return HOSTNAME_LABEL if used else "", 0
    for scale in scales:
        places = scale.places[np.array(used)]
        if places[0] and (places == places[0]).all():
            return scale.label, scale.hops
    return "", (scales[-1].hops if scales else 0) + 2


def _nvlink_domain(scales: Sequence[Scale], node: int) -> tuple[str, int]:
    """Identity of the NVLink domain of a node; the node itself if no domain is known."""
    if scales and scales[0].label == CLIQUE_LABEL and scales[0].places[node]:
        return "domain", int(scales[0].places[node])
    return "node", node


def _worst(nodes: Mapping[int, NodeFacts], used: Mapping[int, int], *, joined: bool) -> int | None:
    systems = {i: system_of(nodes[i]) for i in used}
    pairs = [
        systems[i].nvlink if count <= systems[i].island else systems[i].pcie
        for i, count in used.items()
        if count > 1
    ]
    if len(used) > 1:
        # A clique of an unknown product has NVLink of unknown speed, at least as fast as the network.
        pairs += [s.nvlink or s.network if joined else s.network for s in set(systems.values())]
    return min(pairs, default=None)
