"""Rights: of siblings that stand alike two are asked for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from kai_cp_models.actions.asking import at_first
from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.reclaim import reclaim_conceivable
from kai_cp_models.ledger import Ledger
from kai_cp_models.proof.departures import Departures
from kai_cp_models.proof.rights import Coming, Rights
from tests.properties.reasking import read
from tests.support.clusters import random_cluster


class EveryQueue(Rights):
    """The same, with every queue asked."""

    def _reclaiming(
        self, asking: Mapping[str, set[Amounts]], lost: Sequence[Amounts]
    ) -> Iterator[tuple[str, Sequence[Amounts]]]:
        for queue, asks in asking.items():
            able = [x for x in asks if reclaim_conceivable(self._book, queue, x, lost=lost)]
            if able or not self._snapshot.policy.plugin("proportion"):
                yield queue, able or list(asks)


@pytest.mark.parametrize("first", [0, 25, 50])
def test_two_of_siblings_that_stand_alike_take_what_all_of_them_take(first: int) -> None:
    taken = 0
    for seed in range(first, first + 25):
        base = Ledger.of(read(random_cluster(seed)))
        departures = Departures(base, ())
        waiting = at_first(base).groups.values()
        asks = (one.ask for one in waiting if one.ask is not None and one.refusal is None)
        coming = {Coming.of(departures, ask, True): 1 for ask in asks}
        few, every = Rights(departures, coming).taken, EveryQueue(departures, coming).taken
        assert few == every
        taken += len(few)
    assert taken > 25
