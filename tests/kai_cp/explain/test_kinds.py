"""Fixes that change the workload itself."""

from __future__ import annotations

import pytest

from kai_cp.explain.document import Explainer
from kai_cp.explain.draft import Draft
from kai_cp_models.pods import GroupKey
from kai_cp_models.settings import FixKind, Settings
from tests.kai_cp.explain.clusters import NOW, cluster, racks
from tests.support.objects import Object
from tests.support.tiny import node, pod

X = GroupKey("default", "x")
FIRM: Object = {"preemptibility": "non-preemptible"}


def entry_for(raw: Object, kind: FixKind) -> Object:
    """The explanation of x, with fixes of one kind."""
    return Explainer(Draft(raw, NOW), Settings(), budget=60.0, kinds=(kind,)).explain(X)


@pytest.mark.parametrize("sizes", [(1, 4), (4, 1), (4, 0)])
def test_one_request_for_all_is_not_proposed_where_pods_ask_differently(sizes: tuple[int, int]) -> None:
    """Two GPUs for each pod would raise what one of them asks for: that is no smaller request."""
    pods = [pod(f"x{i}", gpus=size, group="x") for i, size in enumerate(sizes)]
    raw = cluster(
        [node("n0", gpus=4)], [pod("r", "n0", gpus=1), *pods], groups={"r": FIRM, "x": {"minMember": 2}}
    )
    entry = entry_for(raw, "reduce-request")
    assert (entry["fixes"], [one["because"] for one in entry["noFix"]]) == (
        [],
        ["its pods do not all ask for the same number of GPUs, or share of one"],
    )


@pytest.mark.parametrize(("asked", "value", "amount"), [("0.75", 0.5, 0.25), ("0.505", 0.5, 0.005)])
def test_a_share_becomes_smaller_by_what_the_operation_takes_off(
    asked: str, value: float, amount: float
) -> None:
    """Half a GPU is free."""
    raw = cluster(
        [node("n0", gpus=1)],
        [
            pod("r", "n0", notes={"gpu-fraction": "0.5"}, shares=["g"]),
            pod("x", notes={"gpu-fraction": asked}),
        ],
        groups={"r": FIRM},
    )
    (fix,) = entry_for(raw, "reduce-request")["fixes"]
    assert (fix["ops"][0]["value"], fix["amount"], fix["least"]) == (value, amount, "proved")


def test_a_node_that_is_cordoned_and_tainted_counts_twice() -> None:
    """Both have to go, and each is one operation."""
    tainted = [{"key": "ml", "effect": "NoSchedule"}]
    raw = cluster([node("n0", gpus=1, taints=tainted, unschedulable=True)], [pod("x", gpus=1)])
    (fix,) = entry_for(raw, "uncordon")["fixes"]
    assert (fix["amount"], fix["unit"], len(fix["ops"])) == (2, "cordons and taints", 2)


@pytest.mark.parametrize(
    ("field", "value", "level", "amount"),
    [
        ("requiredTopologyLevel", "rak", "zone", 2),
        ("preferredTopologyLevel", "rak", None, 2),
        ("topology", "dcc", None, 1),
    ],
)
def test_a_topology_or_level_that_does_not_exist_is_given_up_for_one_that_does(
    field: str, value: str, level: str | None, amount: int
) -> None:
    """Each rack has one GPU, x needs two: the zone has them. What is preferred only goes with the whole."""
    raw = racks()
    (group,) = raw["rawObjects"]["podGroups"]
    group["spec"]["topologyConstraint"] |= {field: value}
    (fix,) = entry_for(raw, "relax-topology")["fixes"]
    assert (fix["ops"][0]["level"], fix["amount"]) == (level, amount)
