"""Fewer candidates in large clusters: nodes that are cheap to clear, units that policy takes first."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import numpy as np

from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.joint.counting import Counting
from kai_cp_models.joint.evicting import Due
from kai_cp_models.joint.offers import Ranked, gpu_weight
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.snapshot import GPU, MILLI, Pod

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


def shallow(
    counting: Counting, asks: Sequence[Ask], ranked: Sequence[Ranked], dues: Sequence[Due], book: QueueBook
) -> int | None:
    """How many of ``ranked`` (in reverse fair order) must be open before counting allows all asks.

    Units that no trigger may take while its queue holds no more than its due are passed over (4.4). None
    when even all of them are too few. The threshold of a plan (formulation 1.4.2) is hardly ever deeper.
    """
    wanted = counting.demand(pod for ask in asks for pod in ask.pods)
    asked = wanted > 0
    pods: list[list[Pod]] = []
    left = {level: list(book.allocated_of(level)) for due in dues for level, _ in due.bounds.values()}
    paths = {
        queue: {book.name(i) for i in book.path(queue).tolist()}
        for queue in {item.offer.group.queue for item in ranked}
    }
    for o, item in enumerate(ranked):
        queue = item.offer.group.queue
        terms = [due.bounds[queue] for due in dues if queue in due.bounds and o in due.takes]
        open_ = not left or any(
            bound is not None and have > bound
            for level, bounds in terms
            for have, bound in zip(left[level], bounds, strict=True)
        )
        pods.append(list(item.offer.pods) if open_ else [])
        if open_:
            for level in left.keys() & paths[queue]:
                left[level] = [have - gives for have, gives in zip(left[level], item.holds, strict=True)]

    def enough(count: int) -> bool:
        room = counting.room(pod for some in pods[:count] for pod in some)
        return bool((wanted[asked] <= room[asked]).all())

    if not enough(len(pods)):
        return None
    return bisect_left(range(len(pods)), True, key=enough)
