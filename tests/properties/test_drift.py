"""A legal cluster that drifts: labels and objects go, amounts change after pods got their places.

What runs may then lie where no new pod could go. The engine and the checker mean the same all the same: no
action fails or is refused, and what is sent breaks no rule.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import pytest

from kai_cp_models.check import violations
from kai_cp_models.engine import decide
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.settings import Settings
from tests.properties.reasking import logged, read
from tests.support.clusters import random_cluster
from tests.support.extras import TOGETHER, everything
from tests.support.objects import Object
from tests.support.options import with_options
from tests.support.stateful import stateful

SEEDS = 24
"""Clusters of each kind."""
_KINDS = ("nodes", "podGroups", "queues", "topologies", "resourceClaims", "deviceClasses", "resourceSlices")
_STRAYS = {"kai.scheduler/subgroup-name": "zzz", "runai-gpu-group": "a"}


def drifted(cluster: Object, rng: Random) -> Object:
    """The cluster after changes that the API server allows."""
    objects = cluster["rawObjects"]
    for node in objects["nodes"]:
        offers, labels = node["status"]["allocatable"], node["metadata"]["labels"]
        offers.update({name: rng.choice("01") for name in offers if rng.random() < 0.08})
        node["metadata"]["labels"] = {name: text for name, text in labels.items() if rng.random() > 0.12}
        if rng.random() < 0.05:
            node["spec"]["unschedulable"] = True
    for kind in _KINDS:
        objects[kind] = [one for one in objects.get(kind) or () if rng.random() > 0.08]
    for queue in objects["queues"]:
        for amounts in (queue["spec"].get("resources") or {}).values():
            amounts.update(
                {name: rng.choice((0, 1, -1)) for name in ("limit", "quota") if rng.random() < 0.1}
            )
    for pod in objects["pods"]:
        labels = pod["metadata"]["labels"]
        labels.update({name: text for name, text in _STRAYS.items() if rng.random() < 0.06})
    for group in objects["podGroups"]:
        if rng.random() < 0.03:
            group["spec"]["minMember"] = rng.choice((0, 1, 5))
    return cluster


MADE: tuple[Callable[[int], tuple[Object, Settings]], ...] = (
    lambda seed: (random_cluster(seed), TOGETHER),
    lambda seed: (everything(seed), TOGETHER),
    with_options,
    stateful,
)


@pytest.mark.parametrize("made", MADE)
def test_no_action_fails_where_a_cluster_drifted(made: Callable[[int], tuple[Object, Settings]]) -> None:
    for seed in range(SEEDS):
        cluster, settings = made(seed)
        snapshot, told = read(drifted(cluster, Random(seed)), settings), list[str]()
        with logged(told):
            plan = decide(snapshot, settings, deadline=time.monotonic() + 120)
        assert (seed, told) == (seed, [])
        assert violations(prepare(snapshot, settings)[0], plan, settings.rules) == [], seed
