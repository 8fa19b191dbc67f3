"""The steps that compare sibling queues (3.5), as far as charges do not change them, for all queues."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.totals import SCALE
from kai_cp_models.pods import UNLIMITED

QueueStanding = tuple[bool, bool, int, bool]
"""Steps 1 to 4 of the queue order; smaller is served first and loses last."""


class QueueSteps:
    """The comparison of the queues of a book; queues are rows of its arrays."""

    def __init__(self, book: QueueBook) -> None:
        queues = book.tree.queues
        self._fair_share = book.fair_share_floor
        self._quota = [_bounds(quota) for quota in book.quota]
        self._share = [_bounds(shares) for shares in book.allocatable_share.tolist()]
        self._without = [tuple(r for r in range(3) if shares[r] == 0) for shares in self._share]
        """Resources of which a queue has no share."""
        self._priority = [-queue.priority for queue in queues]
        self.divisors = [_divisors(shares, book.cluster) for shares in book.allocatable_share.tolist()]
        """The divisors of each queue's holdings for its dominant share."""
        self._seniority = [(queue.created, queue.name) for queue in queues]

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

    def first(self, ties: Sequence[int]) -> int:
        """The queue that is served first, of queues equal in steps 1 to 6 (steps 7 and 8)."""
        return self._tie(ties, min, 1) if len(ties) > 1 else ties[0]

    def last(self, ties: Sequence[int]) -> int:
        """The queue that loses first, of queues equal in steps 1 to 6 (steps 7 and 8 reversed)."""
        return self._tie(ties, max, -1) if len(ties) > 1 else ties[0]

    def _tie(self, ties: Sequence[int], choose: Callable[..., int], sign: int) -> int:
        shares = self._share
        candidates: Iterable[int] = ties
        distinct = {shares[i] for i in ties}
        if len(distinct) > 1:
            # Step 7 leaves most pairs open, and step 8 decides those. Pair by pair the result can be a
            # circle, so the pairs that step 7 decides are taken first.
            open_ = {
                share for share in distinct if not any(_before(other, share, sign) for other in distinct)
            }
            candidates = [i for i in ties if shares[i] in open_]
        return choose(candidates, key=self._seniority.__getitem__)


def _before(left: tuple[float, ...], right: tuple[float, ...], sign: int) -> bool:
    return left != right and all(sign * a <= sign * b for a, b in zip(left, right, strict=True))


def _bounds(shares: Sequence[float]) -> tuple[float, ...]:
    return tuple(math.inf if share == UNLIMITED else share for share in shares)


def _divisors(shares: Sequence[float], cluster: Amounts) -> tuple[float, ...]:
    """The share; the cluster's amount if the share is unlimited; a thousandth of a unit if there is none."""
    found = []
    for share, most, scale in zip(shares, cluster, SCALE, strict=True):
        basis = float(most) if share == UNLIMITED else share
        found.append(basis if basis > 0 else scale / 1000)
    return tuple(found)
