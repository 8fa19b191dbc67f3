"""Locality: place again what the solver placed, where that brings the pods of a gang closer together.

The solver decides what is admitted and knows nothing of distances. Every group that has a place still has one
afterwards, and bound pods stay bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import largest_first, place_all
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, PodStatus


def draw_together(
    asks: Sequence[Ask], made: Ledger, bare: Callable[[], Ledger], *, pipeline_only: bool = False
) -> Ledger:
    """``made``, in which ``asks`` have got places, with gangs closer together.

    All are placed again, the largest first. Where that leaves some out, binds fewer pods or is no closer, or
    where others rely on a place, all stay where they are. ``bare``: makes the ledger without these places.
    """
    fabric = made.fixed.close_fabric
    gangs = {ask.group.key: ask.gang for ask in asks if len(ask.gang.pods) > 1}
    if fabric is None or not gangs:
        return made

    def distances(ledger: Ledger) -> Sequence[int]:
        """How far apart the pods with whole GPUs of each gang are (``Fabric.distance``)."""
        gpus = ([pod for pod in gang.pods if pod.spec.requests[GPU]] for gang in gangs.values())
        active = ([pod for pod in pods if ledger.status(pod) in ACTIVE_ALLOCATED] for pods in gpus)
        return [fabric.distance(np.array(list(ledger.nodes_of(pods)), dtype=np.int64)) for pods in active]

    before = distances(made)
    if max(before) < 2 or made.relied_on([pod for ask in asks for pod in ask.gang.pods]):
        return made
    drawn, turns = bare(), largest_first(asks)
    last = 1 + max(i for i, ask in enumerate(turns) if ask.group.key in gangs)
    closer = place_all(drawn, turns[:last], pipeline_only=pipeline_only)
    closer = closer and sum(distances(drawn)) < sum(before)
    if not closer or not place_all(drawn, turns[last:], pipeline_only=pipeline_only):
        return made
    bound = (pod for ask in asks for pod in ask.pods if made.status(pod) is PodStatus.ALLOCATED)
    stays = all(drawn.status(pod) is PodStatus.ALLOCATED for pod in bound)
    return drawn if stays else made
