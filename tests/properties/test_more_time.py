"""More work and more patience never give an answer that is worse by the first goal in which the two differ,
and no search betters what another one calls optimal; see ``comparing``.

``KAI_CP_TIME_CLUSTERS`` sets how many clusters are tried, ``KAI_CP_TIME_FIRST`` the first seed. ``plain``
clusters have the default rules and goals, those with ``options`` drawn ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise, permutations

import pytest

from kai_cp_models.settings import Settings
from tests.properties.comparing import bettered, first_difference
from tests.properties.reasking import OTHER_SEARCHES, SETTINGS, decided, read, searching
from tests.support import objects as raw
from tests.support.clusters import random_cluster
from tests.support.options import with_options

COUNT = int(os.environ.get("KAI_CP_TIME_CLUSTERS", "16"))
FIRST = int(os.environ.get("KAI_CP_TIME_FIRST", "0"))
SEEDS = range(FIRST, FIRST + COUNT)
DRAWINGS: dict[str, Callable[[int], tuple[raw.Object, Settings]]] = {
    "plain": lambda seed: (random_cluster(seed), SETTINGS),
    "options": with_options,
}
MORE: dict[str, tuple[dict[str, object], ...]] = {
    "work": ({"budget_seconds": 0.05}, {"budget_seconds": 0.5}, {"budget_seconds": 5.0}),
    "patience": ({"patience": 0.05}, {"patience": 0.5}, {"patience": 50.0}),
}
"""Ever more of a setting of the solver. Budgets in seconds give that much work; the clock leaves an hour."""
SEARCHES: dict[str, dict[str, object]] = {
    "its own": {},
    "more patience": {"solver": {"patience": 200.0}},
    "another seed": {"solver": {"seed": 7}},
    **OTHER_SEARCHES,
}


@pytest.mark.parametrize(
    ("drawing", "seed", "what"), [(name, seed, what) for name in DRAWINGS for seed in SEEDS for what in MORE]
)
def test_more_is_never_worse(drawing: str, seed: int, what: str) -> None:
    cluster, settings = DRAWINGS[drawing](seed)
    snapshot = read(cluster, settings)
    plans = [decided(snapshot, searching(settings, {"solver": more})) for more in MORE[what]]
    for less, more in pairwise(plans):
        difference, better = first_difference(snapshot, less, more, settings)
        assert better >= 0, difference


FOUND = (7_700_261, 7_700_691, 7_700_716)
"""Clusters with options in which models of some of the plans told a bound for all."""


@pytest.mark.parametrize(
    ("drawing", "seed"),
    [*((name, seed) for name in DRAWINGS for seed in SEEDS[::2]), *(("options", seed) for seed in FOUND)],
)
def test_no_search_betters_what_is_called_optimal(drawing: str, seed: int) -> None:
    """No plan is below the bound of a stage of another that agrees with it in everything before."""
    cluster, settings = DRAWINGS[drawing](seed)
    snapshot = read(cluster, settings)
    plans = {
        words: (decided(snapshot, own), own)
        for words, own in ((words, searching(settings, more)) for words, more in SEARCHES.items())
    }
    for words, other in permutations(plans, 2):
        plan, own = plans[words]
        found = [stage for stage, below in bettered(snapshot, plan, plans[other][0], own) if below]
        assert found == [], f"a search with {words}, bettered by one with {other}"
