"""The steps that compare sibling queues (3.5), as far as charges do not change them, for all queues."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop

from kai_cp_models.arrays import Floats
from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.totals import SCALE, QueueTree
from kai_cp_models.pods import UNLIMITED

QueueStanding = tuple[bool, bool, int, bool]
"""Steps 1 to 4 of the queue order; smaller is served first and loses last."""
_Shares = tuple[float, ...]


class QueueSteps:
    """The comparison of the queues of a tree; arguments are rows of a book, as there."""

    def __init__(
        self,
        tree: QueueTree,
        fair_share_floor: Sequence[Amounts],
        quota: Sequence[Amounts],
        allocatable_share: Floats,
        cluster: Amounts,
    ) -> None:
        queues = tree.queues
        self._fair_share = fair_share_floor
        self._quota = [_bounds(each) for each in quota]
        self._share = [_bounds(shares) for shares in allocatable_share.tolist()]
        self._without = [tuple(r for r in range(3) if shares[r] == 0) for shares in self._share]
        """Resources of which a queue has no share."""
        self._priority = [-queue.priority for queue in queues]
        self.divisors = [_divisors(shares, cluster) for shares in allocatable_share.tolist()]
        """The divisors of each queue's holdings for its dominant share."""
        self._old = sorted(range(len(queues)), key=lambda i: (queues[i].created, queues[i].name))
        self.seniority = [0] * len(queues)
        """The place of each queue by age (step 8)."""
        for place, i in enumerate(self._old):
            self.seniority[i] = place
        self.even = {
            parent: len({self._share[i] for i in children}) < 2
            for parent, children in ((-1, tree.roots), *enumerate(tree.children))
        }
        """Whether the queues below each (-1: at the top) have equal shares, and step 7 sees no difference."""

    def dominant(self, i: int, amounts: Sequence[int]) -> float:
        """Dominant share (3.5, end)."""
        by = self.divisors[i]
        return max(amounts[0] / by[0], amounts[1] / by[1], amounts[2] / by[2])

    def standing(self, i: int, allocated: Sequence[int], counted: Sequence[int]) -> QueueStanding:
        """Steps 1 to 4; ``counted``: the amounts for steps 2 and 4."""
        fair, quota, without = self._fair_share[i], self._quota[i], self._without[i]
        over_utilised = allocated[0] > fair[0] and allocated[1] > fair[1] and allocated[2] > fair[2]
        beyond = counted[0] > quota[0] or counted[1] > quota[1] or counted[2] > quota[2]
        unentitled = bool(without) and any(counted[resource] > 0 for resource in without)
        return over_utilised, beyond, self._priority[i], unentitled

    def in_turn(self, ties: Iterable[int], sign: int = 1) -> Iterator[int]:
        """Queues equal in steps 1 to 6 as they are served (steps 7 and 8), or with ``sign`` -1 as they lose.

        Step 7 leaves most pairs open, and step 8 decides those. Pair by pair the result can be a circle, so
        the pairs that step 7 decides are taken first.
        """
        left: dict[_Shares, list[int]] = {}
        for i in ties:
            left.setdefault(self._share[i], []).append(sign * self.seniority[i])
        for places in left.values():
            heapify(places)
        open_: Sequence[_Shares] = ()
        while left:
            open_ = open_ or _before_others(left, sign)
            share = min(open_, key=lambda share: left[share][0])
            yield self._old[sign * heappop(left[share])]
            if not left[share]:
                del left[share]
                open_ = ()


def _before_others(distinct: Iterable[_Shares], sign: int) -> list[_Shares]:
    """The shares of which step 7 puts none behind another."""
    found: list[_Shares] = []
    for share in sorted(distinct, reverse=sign < 0):
        if not any(all(sign * a <= sign * b for a, b in zip(one, share, strict=True)) for one in found):
            found.append(share)
    return found


def _bounds(shares: Sequence[float]) -> _Shares:
    return tuple(math.inf if share == UNLIMITED else share for share in shares)


def _divisors(shares: Sequence[float], cluster: Amounts) -> _Shares:
    """The share; the cluster's amount if the share is unlimited; a thousandth of a unit if there is none."""
    found = []
    for share, most, scale in zip(shares, cluster, SCALE, strict=True):
        basis = float(most) if share == UNLIMITED else share
        found.append(basis if basis > 0 else scale / 1000)
    return tuple(found)
