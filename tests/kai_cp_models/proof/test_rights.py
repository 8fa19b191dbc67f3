"""Rights: what may be taken is the same pair by pair of queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from kai_cp_models.actions.asking import at_first
from kai_cp_models.arrays import Mask
from kai_cp_models.fairness.reclaim import VictimFilter, reclaim_conceivable
from kai_cp_models.fairness.runtime import granted
from kai_cp_models.ledger import Ledger
from kai_cp_models.proof.departures import Departures
from kai_cp_models.proof.rights import Coming, Rights
from tests.properties.reasking import read
from tests.support.clusters import random_cluster


class PairByPair(Rights):
    """The same, with the time that each pair of queues says."""

    @property
    def _reclaimed(self) -> Mask:
        tree, snapshot = self._book.tree, self._snapshot
        seconds = np.full(len(tree.index) + 1, np.nan)
        found = self._departures.old_enough(seconds)
        for _ in range(len(tree.index) + 1):
            lost = self._departures.given(self._freely | found)
            victims = VictimFilter(self._book, lost, self._gained)
            for one in self._coming:
                able = [x for x in one.asked if reclaim_conceivable(self._book, one.queue, x, lost=lost)]
                levels = victims.victims(tree.index[one.queue], able) if able else np.array([-1])
                for i in tree.leaf_rows[np.resize(levels, len(tree.leaf_rows)) >= 0].tolist():
                    least = granted(snapshot, self._book.name(i), "reclaim", one.queue)
                    seconds[i] = np.fmin(seconds[i], least)
            found = self._departures.old_enough(seconds)
        return found


def _coming(departures: Departures) -> Mapping[Coming, int]:
    waiting = at_first(departures.base).groups.values()
    asks = (one.ask for one in waiting if one.ask is not None and one.refusal is None)
    return {Coming.of(departures, ask, True): 1 for ask in asks}


@pytest.mark.parametrize("method", ["lca", "queue"])
@pytest.mark.parametrize("first", [0, 25, 50])
def test_queues_at_once_take_what_each_takes_of_each(first: int, method: Literal["lca", "queue"]) -> None:
    taken = 0
    for seed in range(first, first + 25):
        snapshot = read(random_cluster(seed))
        policy = replace(snapshot.policy, reclaim_resolve_method=method)
        if not policy.plugin("proportion") or "reclaim" not in policy.actions:
            continue
        snapshot = replace(snapshot, policy=policy)
        departures = Departures(Ledger.of(snapshot), ())
        coming = _coming(departures)
        at_once, pairs = Rights(departures, coming).taken, PairByPair(departures, coming).taken
        assert (at_once == pairs).all()
        taken += int(at_once.sum())
    assert taken > 25
