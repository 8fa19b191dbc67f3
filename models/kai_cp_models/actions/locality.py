"""Locality: place again what the solver placed, where that brings the pods of a gang closer together.

The solver decides what is admitted and knows nothing of distances. Every group that has a place still has one
afterwards, and bound pods stay bound.
"""

from __future__ import annotations

from collections import Counter, defaultdict
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
        gangs = (parts[0].gang for parts in some)
        return sum(_distance(fabric, ledger, gang) for gang in gangs if len(gang.pods) > 1)

    largest_first = sorted(gangs.values(), key=_size, reverse=True)
    far = [[parts] for parts in gangs.values() if distance(made, [parts]) > 1]
    if not far:
        return made
    drawn, found = made.copy(), made
    for some in (largest_first, *far):
        before = distance(drawn, some)
        drawn.mark()
        placed = _placed_again(drawn, fabric, some, before, pipeline_only=pipeline_only)
        if placed and distance(drawn, some) < before:
            drawn.keep()
            found = drawn
        else:
            drawn.back()
    return found


def _placed_again(
    ledger: Ledger, fabric: Fabric, gangs: Sequence[Sequence[Ask]], distance: int, *, pipeline_only: bool
) -> bool:
    """Place the gangs anew; False where one finds no place as good, where others rely on theirs, or where one
    gang has no place closer than ``distance``. The caller takes back what was done.
    """
    asks = [ask for parts in gangs for ask in parts]
    if ledger.relied_on([pod for ask in asks for pod in ask.gang.pods]):
        return False
    bound = {pod.key for ask in asks for pod in ask.pods if ledger.status(pod) is PodStatus.ALLOCATED}
    for ask in asks:
        for pod in ask.pods:
            ledger.unplace(pod)
    if len(gangs) == 1 and not _room_closer(ledger, fabric, asks, distance):
        return False
    for ask in asks:
        failure = Placer(ask.gang, pipeline_only=pipeline_only).place(ledger, ask.batch)
        # Every pod that was bound must be bound again.
        if failure is not None or any(
            pod.key in bound and ledger.status(pod) is not PodStatus.ALLOCATED for pod in ask.pods
        ):
            return False
    return True


def _room_closer(ledger: Ledger, fabric: Fabric, asks: Sequence[Ask], distance: int) -> bool:
    """Whether some place closer than ``distance`` has slots for all pods with whole GPUs of a gang.

    It is no more than necessary. Where stateful rules concern the pods, slots do not tell.
    """
    pods = [pod for ask in asks for pod in ask.pods if pod.spec.requests[GPU]]
    if any(rule.concerns(pod) for rule in ledger.rules for pod in pods):
        return True
    alike = {pod.spec: pod for pod in pods}
    counts = Counter(pod.spec for pod in pods)
    slots = [(ledger.slots(pod, now=False), counts[spec]) for spec, pod in alike.items()]
    return fabric.may_hold(slots, distance)


def _size(parts: Sequence[Ask]) -> int:
    return sum(milli_gpus(pod) for ask in parts for pod in ask.pods)


def _distance(fabric: Fabric, ledger: Ledger, gang: Gang) -> int:
    """How far apart the pods with whole GPUs of a gang are (``Fabric.distance``)."""
    nodes = {
        place[0]
        for pod in gang.pods
        if pod.spec.requests[GPU]
        and ledger.status(pod) in ACTIVE_ALLOCATED
        and (place := ledger.place_of(pod))
    }
    return 0 if len(nodes) < 2 else fabric.distance(np.array(list(nodes), dtype=np.int64))
