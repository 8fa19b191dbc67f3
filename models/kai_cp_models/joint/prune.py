"""Fewer candidates in large clusters: the nodes that are cheap to clear and the units that policy takes
first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

import numpy as np

from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.reclaim import over
from kai_cp_models.joint.counting import Counting
from kai_cp_models.joint.evicting import ReclaimBound
from kai_cp_models.joint.problem import Ask
from kai_cp_models.joint.victim_candidates import VictimCandidate, gpu_weight
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GPU, MILLI


def cheapest_nodes_to_drain(
    ledger: Ledger, asks: Sequence[Ask], ranked: Sequence[VictimCandidate], keep: Collection[int] = ()
) -> list[VictimCandidate]:
    """Units on the nodes where the least has to move so that the largest pod asked for fits.

    ``keep``: ranks of units that stay candidates in any case.

    Units that are left out may be part of a plan, so a refusal based on the others is no proof.
    """
    free = (ledger.idle[:, GPU] + ledger.releasing[:, GPU]).astype(float)
    movable = np.zeros(len(free))
    nodes: list[list[int]] = []
    for item in ranked:
        pods = item.unit.pods
        places = [(place[0], pod) for pod in pods if (place := ledger.place_of(pod)) is not None]
        nodes.append([node for node, _ in places])
        if item.unit.movable:
            for node, pod in places:
                movable[node] += gpu_weight(pod)
    wanted = [pod for ask in asks for pod in ask.pods]
    largest = max(pod.spec.requests[GPU] for pod in wanted)
    missing = np.where(free + movable >= max(largest, MILLI), np.maximum(largest - free, 1), np.inf)
    count = max(LIMITS.fewest_nodes, LIMITS.nodes_per_pod * len(wanted))
    chosen = set(np.argsort(missing, kind="stable")[:count].tolist())
    return [
        item
        for item, here in zip(ranked, nodes, strict=True)
        if item.rank in keep or not chosen.isdisjoint(here)
    ]


def victim_prefix(
    counting: Counting,
    asks: Sequence[Ask],
    ranked: Sequence[VictimCandidate],
    bounds: Sequence[ReclaimBound],
    book: QueueBook,
    *,
    again: Sequence[Ask] = (),
) -> list[int] | None:
    """The first units of ``ranked`` (in reverse fair order) that free enough for all asks by counting.

    Returns their positions. Units that no trigger may take while its queue holds no more than its due are
    passed over (4.4), as are those of asking groups. None when even all units are too few. The threshold of a
    plan (formulation 1.4) is hardly ever deeper than the last of them.

    ``again``: asks that count twice, as far as there are units, because counting ignores where capacity is.
    """
    open_ = list(_units_in_turn(asks, ranked, bounds, book))
    rooms = counting.rooms(counting.leaving(pod for o in open_ for pod in ranked[o].unit.pods))
    rooms = rooms[list(accumulate((len(ranked[o].unit.pods) for o in open_), initial=0))]

    def first(asks: Sequence[Ask]) -> int | None:
        wanted = counting.demand(pod for ask in asks for pod in ask.pods)
        enough = np.all(rooms[:, wanted > 0] >= wanted[wanted > 0], axis=1)
        return int(enough.argmax()) if enough[-1] else None

    count = first(asks)
    if count is not None and again:
        more = first([*asks, *again])
        count = len(open_) if more is None else more
    return None if count is None else open_[:count]


def _units_in_turn(
    asks: Sequence[Ask], ranked: Sequence[VictimCandidate], bounds: Sequence[ReclaimBound], book: QueueBook
) -> Iterator[int]:
    """Units that may go one after the other, in reverse fair order."""
    left = {level: list(book.allocated_of(level)) for bound in bounds for level, _ in bound.bounds.values()}
    paths = {
        queue: {book.name(i) for i in book.line(queue)} & left.keys()
        for queue in {item.unit.group.queue for item in ranked}
    }
    taken = {o for bound in bounds for o in bound.takes}
    # A unit goes only after those before it in its group's chain.
    closed = {ask.group.key for ask in asks}
    for o, item in enumerate(ranked):
        group = item.unit.group
        terms = [
            bound.bounds[group.queue] for bound in bounds if group.queue in bound.bounds and o in bound.takes
        ]
        may_go = not left or any(over(left[level], bounds) for level, bounds in terms)
        if o not in taken or not may_go or group.key in closed:
            closed.add(group.key)
            continue
        yield o
        for level in paths[group.queue]:
            left[level] = [have - gives for have, gives in zip(left[level], item.holds, strict=True)]
