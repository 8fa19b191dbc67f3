"""Locality: place again what the solver placed, where that brings the pods of a gang closer together.

The solver decides what is admitted and knows nothing of distances. Every group that has a place still has one
afterwards, and bound pods stay bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from kai_cp_models.domains.locality import Fabric
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import Placer
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, GroupKey, PodStatus
from kai_cp_models.units import Gang


def draw_together(asks: Sequence[Ask], made: Ledger, *, pipeline_only: bool = False) -> Ledger:
    """``made``, in which ``asks`` have got places, with gangs closer together.

    All are placed again, the largest first, and then gangs that are still far apart one by one; where that
    leaves some out, binds fewer pods or is no closer, they stay where they are.
    """
    fabric = made.fixed.close_fabric
    gangs: dict[GroupKey, list[Ask]] = defaultdict(list)
    for ask in asks:
        gangs[ask.group.key].append(ask)
    if fabric is None:
        return made

    def distance(ledger: Ledger, some: Iterable[Sequence[Ask]]) -> int:
        return sum(_distance(fabric, ledger, parts[0].gang) for parts in some)

    largest_first = sorted(gangs.values(), key=_size, reverse=True)
    far = [[parts] for parts in gangs.values() if distance(made, [parts]) > 1]
    for some in (largest_first, *far) if far else ():
        drawn = _placed_again(made, [ask for parts in some for ask in parts], pipeline_only=pipeline_only)
        if drawn is not None and distance(drawn, some) < distance(made, some):
            made = drawn
    return made


def _placed_again(made: Ledger, asks: Sequence[Ask], *, pipeline_only: bool) -> Ledger | None:
    """``made`` with the asks placed anew; None where one finds no place as good, or others rely on theirs."""
    if made.relied_on([pod for ask in asks for pod in ask.gang.pods]):
        return None
    ledger = made.copy()
    for ask in asks:
        for pod in ask.pods:
            ledger.unplace(pod)
    for ask in asks:
        outcome = Placer(ask.gang, pipeline_only=pipeline_only).place(ledger, ask.batch, consume=True)
        if not isinstance(outcome, Ledger) or not _as_good(outcome, made, ask):
            return None
        ledger = outcome
    return ledger


def _size(parts: Sequence[Ask]) -> int:
    return sum(milli_gpus(pod) for ask in parts for pod in ask.pods)


def _as_good(ledger: Ledger, made: Ledger, ask: Ask) -> bool:
    """Whether every pod of the ask that was bound still is."""
    bound = PodStatus.ALLOCATED
    return all(ledger.status(pod) is bound for pod in ask.pods if made.status(pod) is bound)


def _distance(fabric: Fabric, ledger: Ledger, gang: Gang) -> int:
    """How far apart the pods with whole GPUs of a gang are (``Fabric.distance``)."""
    places = [
        place[0]
        for pod in gang.pods
        if pod.spec.requests[GPU]
        and ledger.status(pod) in ACTIVE_ALLOCATED
        and (place := ledger.place_of(pod))
    ]
    return fabric.distance(np.unique(np.array(places, dtype=np.int64)))
