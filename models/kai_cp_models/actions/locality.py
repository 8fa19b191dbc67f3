"""Locality: place again what the solver placed, where that brings the pods of a gang closer together.

The solver decides what is admitted and knows nothing of distances. Every group that has a place still has one
afterwards, and bound pods stay bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from kai_cp_models.domains.locality import Fabric
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import Placer
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, GroupKey, PodStatus
from kai_cp_models.units import Gang

_Asks = Mapping[GroupKey, Sequence[Ask]]


def draw_together(base: Ledger, asks: Sequence[Ask], made: Ledger, *, pipeline_only: bool = False) -> Ledger:
    """``made``, in which ``asks`` have places that they lacked in ``base``, with gangs closer together.

    All are placed again, the largest first. Where that leaves some out or binds fewer pods, gangs are placed
    one by one.
    """
    fabric = base.fixed.close_fabric
    gangs: dict[GroupKey, list[Ask]] = defaultdict(list)
    for ask in asks:
        gangs[ask.group.key].append(ask)
    if fabric is None or not any(_distance(fabric, made, parts[0].gang) > 1 for parts in gangs.values()):
        return made
    anew = None if pipeline_only else _anew(base, gangs, made)
    if anew is not None and _total(fabric, anew, gangs) < _total(fabric, made, gangs):
        return anew
    for parts in gangs.values():
        made = _part_drawn_together(fabric, made, parts, pipeline_only=pipeline_only)
    return made


def _anew(base: Ledger, gangs: _Asks, made: Ledger) -> Ledger | None:
    ledger = base.copy()
    sizes = {key: sum(milli_gpus(pod) for ask in parts for pod in ask.pods) for key, parts in gangs.items()}
    for key in sorted(gangs, key=lambda key: -sizes[key]):
        for ask in gangs[key]:
            outcome = Placer(ask.gang).place(ledger, ask.batch, consume=True)
            if not isinstance(outcome, Ledger) or not _as_good(outcome, made, ask):
                return None
            ledger = outcome
    return ledger


def _part_drawn_together(
    fabric: Fabric, made: Ledger, parts: Sequence[Ask], *, pipeline_only: bool
) -> Ledger:
    gang = parts[0].gang
    before = _distance(fabric, made, gang)
    if before < 2 or made.relied_on(gang.pods):
        return made
    ledger = made.copy()
    for ask in parts:
        for pod in ask.pods:
            ledger.unplace(pod)
    for ask in parts:
        outcome = Placer(gang, pipeline_only=pipeline_only).place(ledger, ask.batch)
        if not isinstance(outcome, Ledger) or not _as_good(outcome, made, ask):
            return made
        ledger = outcome
    return ledger if _distance(fabric, ledger, gang) < before else made


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


def _total(fabric: Fabric, ledger: Ledger, gangs: _Asks) -> int:
    return sum(_distance(fabric, ledger, parts[0].gang) for parts in gangs.values())
