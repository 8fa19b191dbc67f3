"""Random clusters with the objects of the stateful rules, options on: no plan ever breaks a rule.

``KAI_CP_DEVICE_CLUSTERS`` sets how many clusters are tried, ``KAI_CP_DEVICE_FIRST`` the first seed.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from kai_cp.reader import parse
from kai_cp_models.check import violations
from kai_cp_models.engine import FAILED, REJECTED, decide
from kai_cp_models.plan import Plan
from kai_cp_models.settings import Settings
from tests.support import objects as raw
from tests.support.clusters import random_cluster
from tests.support.extras import KINDS, with_extras

COUNT = int(os.environ.get("KAI_CP_DEVICE_CLUSTERS", "30"))
FIRST = int(os.environ.get("KAI_CP_DEVICE_FIRST", "0"))
SETTINGS = Settings.model_validate(
    {
        "solver": {"budget_seconds": 20, "patience": 1000},
        "rules": {"topology_spread": True, "pod_disruption_budgets": True},
    }
)


def kinds(seed: int) -> frozenset[str]:
    """Half of the kinds."""
    rng = Random(seed)
    return frozenset(name for name in sorted(KINDS) if rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_no_plan_breaks_a_rule(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """The engine drops its own illegal plans, or leaves out a group: a refused plan is a failure as well."""
    emitted: list[Plan] = []
    snapshot = parse(with_extras(random_cluster(seed), seed, kinds(seed)), now=raw.NOW.timestamp())
    for one in (decide(snapshot, SETTINGS, emit=emitted.append), *emitted):
        assert violations(snapshot, one, SETTINGS.rules) == []
        assert not [stage.name for stage in one.stages if stage.kind in (REJECTED, FAILED)]
    assert caplog.messages == []
