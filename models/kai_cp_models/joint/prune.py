"""Fewer candidates in large clusters: the nodes that are cheap to clear and the units that policy takes
first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from itertools import accumulate

import numpy as np

from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.reclaim import ResourceBounds, over
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
    free = ledger.free[:, GPU].astype(float)
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


class VictimPrefix:
    """The first units of ``ranked`` (in reverse fair order) that free enough for all asks by counting.

    Units that no trigger may take while its queue holds no more than its due are passed over (4.4), as are
    those of asking groups. The threshold of a plan (formulation 1.4) is hardly ever deeper than the last.
    """

    def __init__(
        self,
        counting: Counting,
        asks: Sequence[Ask],
        ranked: Sequence[VictimCandidate],
        bounds: Sequence[ReclaimBound],
        book: QueueBook,
    ) -> None:
        self._counting, self._asks = counting, asks
        self._open = list(_units_in_turn(asks, ranked, bounds, book))
        rooms = counting.rooms(counting.leaving(pod for o in self._open for pod in ranked[o].unit.pods))
        self._rooms = rooms[list(accumulate((len(ranked[o].unit.pods) for o in self._open), initial=0))]

    def positions(self, again: Sequence[Ask] = ()) -> list[int] | None:
        """The positions of the units; None when even all are too few. ``again``: asks that count twice, as
        far as there are units, because counting ignores where capacity is.
        """
        count = self._first(self._asks)
        if count is not None and again:
            more = self._first([*self._asks, *again])
            count = len(self._open) if more is None else more
        return None if count is None else self._open[:count]

    def _first(self, asks: Sequence[Ask]) -> int | None:
        wanted = self._counting.demand(pod for ask in asks for pod in ask.pods)
        enough = np.all(self._rooms[:, wanted > 0] >= wanted[wanted > 0], axis=1)
        return int(enough.argmax()) if enough[-1] else None


def _units_in_turn(
    asks: Sequence[Ask], ranked: Sequence[VictimCandidate], bounds: Sequence[ReclaimBound], book: QueueBook
) -> Iterator[int]:
    """Units that may go one after the other, in reverse fair order."""
    left = {level: list(book.allocated_of(level)) for bound in bounds for level, _ in bound.bounds.values()}
    paths = {
        queue: {book.name(i) for i in book.line(queue)} & left.keys()
        for queue in {item.unit.group.queue for item in ranked}
    }
    terms: dict[str, list[tuple[Set[int], str, ResourceBounds]]] = {queue: [] for queue in paths}
    for bound in bounds:
        for queue, (level, due) in bound.bounds.items():
            terms[queue].append((bound.takes, level, due))
    taken = frozenset[int]().union(*(bound.takes for bound in bounds))
    # A unit goes only after those before it in its group's chain.
    closed = {ask.group.key for ask in asks}
    for o, item in enumerate(ranked):
        queue, key = item.unit.group.queue, item.unit.group.key
        may_go = not left or any(o in takes and over(left[level], due) for takes, level, due in terms[queue])
        if o not in taken or not may_go or key in closed:
            closed.add(key)
            continue
        yield o
        for level in paths[queue]:
            left[level] = [have - gives for have, gives in zip(left[level], item.holds, strict=True)]
