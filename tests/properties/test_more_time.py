"""More time never gives an answer that is worse by the first goal in which the two differ; see ``comparing``.

``KAI_CP_TIME_CLUSTERS`` sets how many clusters are tried, ``KAI_CP_TIME_FIRST`` the first seed.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise

import pytest

from kai_cp_models.engine import decide
from kai_cp_models.settings import Settings
from tests.properties.comparing import first_difference
from tests.properties.reasking import read
from tests.support.clusters import random_cluster

COUNT = int(os.environ.get("KAI_CP_TIME_CLUSTERS", "16"))
FIRST = int(os.environ.get("KAI_CP_TIME_FIRST", "0"))
BUDGETS = (0.05, 0.5, 5.0)
"""Budgets in seconds, which give that much work; the clock itself leaves an hour."""
HOUR_SECONDS = 3_600


def with_budget(seconds: float) -> Settings:
    return Settings.model_validate({"solver": {"budget_seconds": seconds, "patience": 50}})


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_more_time_is_never_worse(seed: int) -> None:
    snapshot = read(random_cluster(seed))
    plans = [decide(snapshot, with_budget(b), deadline=time.monotonic() + HOUR_SECONDS) for b in BUDGETS]
    for less, more in pairwise(plans):
        what, better = first_difference(snapshot, less, more, with_budget(BUDGETS[-1]))
        assert better >= 0, what
