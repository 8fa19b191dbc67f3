"""Proofs of refusals in tiny worlds, argued by hand; random clusters are asked again in
``tests/properties/test_proofs.py``.
"""

from __future__ import annotations

import time

import pytest

from kai_cp_models.engine import decide
from kai_cp_models.settings import Settings
from tests.support.objects import Object
from tests.support.plans import bound
from tests.support.tiny import node, pod, world

FAR = 3600.0
LITTLE = 0.01
"""A budget in seconds that is worth too little work for any model."""
PLENTY = 20.0


def beside(app: str) -> Object:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize("budget", [LITTLE, PLENTY])
@pytest.mark.parametrize(("wanted", "proved"), [("gang", False), ("nothing", True)])
def test_a_partner_that_waits_may_come_although_it_was_refused(
    budget: float, wanted: str, proved: bool
) -> None:
    """The gang fits in one way only (small and large on deep, wide on wide), which the greedy pass misses and
    a model finds. The refusal of a pod that wants to join it is not sure."""
    snapshot = world(
        [node("wide", gpus=1), node("deep", {"cpu": "3"}, gpus=5)],
        [
            pod("a-small", gpus=1, labels={"app": "gang"}, group="gang"),
            pod("b-wide", gpus=1, labels={"app": "gang"}, group="gang", requests={"cpu": "6"}),
            pod("c-large", gpus=4, labels={"app": "gang"}, group="gang"),
            pod("joins", affinity=beside(wanted)),
        ],
        groups={"gang": {"minMember": 3}},
        actions="allocate, reclaim",
        plugins=("nodeplacement", "nodeavailability"),
    )
    settings = Settings.model_validate({"solver": {"budget_seconds": budget}})
    plan = decide(snapshot, settings, deadline=time.monotonic() + FAR)
    waits = {one.group.name: one.proved for one in plan.unscheduled}
    if budget == LITTLE:
        assert waits == {"gang": False, "joins": proved}
    else:
        assert len(bound(plan)) == (3 if proved else 4)
        assert waits == ({"joins": True} if proved else {})
