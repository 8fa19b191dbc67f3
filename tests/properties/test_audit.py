"""Random clusters against the independent checker: no plan of the engine ever breaks a rule.

``KAI_CP_AUDIT_CLUSTERS`` sets how many clusters are tried, ``KAI_CP_AUDIT_FIRST`` the first seed. A failing
seed is reproduced with ``DRAWINGS``: ``plain`` clusters; ``together`` with stateful rules, kinds of GPUs,
rollouts and reservations; ``options`` with all of it, the policy and the settings, too; ``stateful`` ones
dense in claims, volumes, terms between pods and ports; ``generated`` ones of the suite scale, with 5 to 60
nodes and the default patience.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from random import Random

import pytest

from benchmarks.beside_kai import drawn
from kai_cp_models.check import violations
from kai_cp_models.engine import FAILED, REJECTED, decide
from kai_cp_models.plan import Plan
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.settings import Settings
from tests.properties.reasking import HOUR_SECONDS, read
from tests.support import objects as raw
from tests.support.clusters import random_cluster
from tests.support.extras import TOGETHER, everything
from tests.support.options import with_options
from tests.support.rounds import advance
from tests.support.stateful import stateful

COUNT = int(os.environ.get("KAI_CP_AUDIT_CLUSTERS", "20"))
FIRST = int(os.environ.get("KAI_CP_AUDIT_FIRST", "0"))
SEEDS = range(FIRST, FIRST + COUNT)
SETTINGS = Settings.model_validate({"solver": {"budget_seconds": 20, "patience": 1000}})
HURRIED = Settings.model_validate({"solver": {"budget_seconds": 20}})
DRAWINGS: dict[str, Callable[[int], tuple[raw.Object, Settings]]] = {
    "plain": lambda seed: (random_cluster(seed), SETTINGS),
    "together": lambda seed: (everything(seed), TOGETHER),
    "options": with_options,
    "stateful": stateful,
    "generated": lambda seed: (drawn(2 * seed + 1, (), ())[1], HURRIED),
}
FOUND = {
    "plain": (91_015, 91_109, 94_067, 2_001_050, 7_100_082, 7_300_524, 7_300_727, 31_000_586),
    "together": (5_000_109, 5_100_113, 7_000_068, 7_000_193, 7_301_813, 32_000_116, 32_000_131),
    "options": (7_622_112, 7_622_152),
    "stateful": (),
    "generated": (1_108,),
}
"""Clusters of earlier audits: consolidation moved too many pod groups for one ask; a moved pod went home
although another had joined it where it moved; what left for a group without a place was given to another,
which may not take it; a reservation counted on a shared GPU that a pod does not let go; a trigger of reclaim
inherited a move of a withdrawn group, whose queue had lost too much to earlier ones (7,100,082); the checker
said that reclaim took more than surplus pods, because preempt took the others later (7,300,727); all pods of
a shared GPU were evicted for a later trigger of the action in which an earlier one had joined it (7,300,524);
a surplus pod came home while a pod set of its group, which leaves later, stayed away (7,301,813); maximum run
times ended groups beyond disruption budgets (7,622,112); a pod was bound in a queue that was at its limit
until evicted pods had left (7,622,152); a victim of reclaim came home beside places that reclaim had taken
back and given again, so that its department had too much (1,108).
"""
ROUNDS = 10
"""Rounds within which a cluster comes to rest; one reclaim may lead to another."""


@pytest.mark.parametrize(
    ("drawing", "seed"), [(name, seed) for name in DRAWINGS for seed in (*SEEDS, *FOUND[name])]
)
def test_no_plan_breaks_a_rule(drawing: str, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """The engine drops its own illegal plans, or leaves out a group: a refused plan is a failure as well."""
    emitted: list[Plan] = []
    cluster, settings = DRAWINGS[drawing](seed)
    snapshot = read(cluster, settings)
    plan = decide(snapshot, settings, emit=emitted.append, deadline=time.monotonic() + HOUR_SECONDS)
    seen = prepare(snapshot, settings)[0]
    for one in (*emitted, plan):
        assert violations(seen, one, settings.rules) == []
        assert not [stage.name for stage in one.stages if stage.kind in (REJECTED, FAILED)]
    assert caplog.messages == []


@pytest.mark.parametrize(("drawing", "seed"), [(name, seed) for name in DRAWINGS for seed in SEEDS])
def test_the_order_of_the_lists_does_not_matter(drawing: str, seed: int) -> None:
    """Every decision, promise, reason and proof is the same."""
    cluster, settings = DRAWINGS[drawing](seed)
    told = _told(cluster, settings)
    rng = Random(seed)
    for objects in filter(None, cluster["rawObjects"].values()):
        rng.shuffle(objects)
    assert _told(cluster, settings) == told


def _told(cluster: raw.Object, settings: Settings) -> tuple[object, ...]:
    plan = decide(read(cluster, settings), settings, deadline=time.monotonic() + HOUR_SECONDS)
    return plan.decisions, plan.reservations, plan.unscheduled, plan.turns


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_leads_to_rest(seed: int) -> None:
    """After some rounds of carrying out the plan and deciding again, two rounds in a row disrupt nothing."""
    cluster = random_cluster(seed)
    evicted: list[int] = []
    while evicted[-2:] != [0, 0] and len(evicted) < ROUNDS:
        snapshot = read(cluster)
        plan = decide(snapshot, SETTINGS)
        disrupts = [d for d in plan.decisions if d.kind == "Evict" and d.action != "stalegangeviction"]
        evicted.append(len(disrupts))
        cluster = advance(cluster, snapshot, plan)
    assert evicted[-2:] == [0, 0], evicted
