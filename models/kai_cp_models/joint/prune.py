"""Fewer candidates for consolidation of large clusters: the nodes that are cheapest to clear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kai_cp_models.joint.offers import Ranked, gpu_weight
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.snapshot import GPU, MILLI

MOST_MOVABLE: Final = 600
"""Up to so many units all of them are candidates."""

_NODES_PER_POD: Final = 4
_FEWEST_NODES: Final = 32


def near_empty(ledger: Ledger, asks: Sequence[Ask], ranked: Sequence[Ranked]) -> list[Ranked]:
    """Units on the nodes where the least has to move to make room for the largest pod asked for.

    What is left out may be part of a plan, so a refusal that rests on the rest is no proof.
    """
    free = (ledger.idle[:, GPU] + ledger.releasing[:, GPU]).astype(float)
    movable = np.zeros(len(free))
    for item in ranked:
        for pod in item.offer.pods:
            place = ledger.place_of(pod)
            if place is not None and item.offer.movable:
                movable[place[0]] += gpu_weight(pod)
    pods = [pod for ask in asks for pod in ask.pods]
    largest = max(pod.spec.requests[GPU] for pod in pods)
    missing = np.where(free + movable >= max(largest, MILLI), np.maximum(largest - free, 1), np.inf)
    count = max(_FEWEST_NODES, _NODES_PER_POD * len(pods))
    chosen = set(np.argsort(missing, kind="stable")[:count].tolist())
    return [
        item
        for item in ranked
        if any((place := ledger.place_of(pod)) is not None and place[0] in chosen for pod in item.offer.pods)
    ]
