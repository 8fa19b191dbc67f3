"""The least change for several pod groups together, and amounts in the units of the queue's fields."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.explain.cycle import Cycles
from kai_cp.explain.draft import Draft
from kai_cp.explain.least import Least, targets_of
from kai_cp_models.settings import Settings
from tests.kai_cp.explain.clusters import NOW, cluster
from tests.support import objects as raw
from tests.support.tiny import node, pod, queue

FIRM: raw.Object = {"preemptibility": "non-preemptible"}


def least(world: raw.Object, kind: str, targets: str = "all", most: int = 20) -> dict[str, Any]:
    """The answer for a cluster as it is."""
    cycles = Cycles(Settings())
    decided = cycles.decide(Draft(world, NOW))
    return Least.of(kind, targets_of(targets, decided), most).answer(cycles, decided)


def waiting(*pods: raw.Object, limit: dict[str, float]) -> raw.Object:
    """Pods that wait because of one limit, on a node on which all of them fit."""
    return cluster(
        [node("n0", {"cpu": "64", "memory": "64Gi"}, gpus=8)], list(pods), queues=[queue("q", limit=limit)]
    )


@pytest.mark.parametrize(
    ("world", "kind", "amount", "value", "below"),
    [
        # Two jobs of 1.5 CPUs: 3,000 milli-CPUs in all, 2,000 are allowed.
        (
            waiting(*(pod(x, requests={"cpu": "1500m"}) for x in "xy"), limit={"cpu": 2000}),
            "limit:q.cpu",
            1000,
            3000,
            {"amount": 500, "waiting": ["default/y"]},
        ),
        # Two jobs of 500 MB and a limit of 200 MB: after a raise of 300 MB one runs, after 800 both.
        (
            waiting(*(pod(x, requests={"memory": "500M"}) for x in "xy"), limit={"memory": 200}),
            "limit:q.memory",
            800,
            1000,
            {"amount": 300, "waiting": ["default/y"]},
        ),
        # Halves of GPUs: three of them where one fits.
        (
            waiting(*(pod(x, notes={"gpu-fraction": "0.5"}) for x in "xyz"), limit={"gpu": 0.5}),
            "limit:q.gpu",
            1,
            1.5,
            {"amount": 0.5, "waiting": ["default/z"]},
        ),
    ],
)
def test_a_raise_is_the_least_in_the_unit_of_the_field(
    world: raw.Object, kind: str, amount: float, value: float, below: object
) -> None:
    found = least(world, kind)
    assert (found["amount"], found["proof"]) == (amount, "proved")
    assert [op["value"] for op in found["ops"]] == [value]
    assert found["below"] == below


def test_one_stop_frees_capacity_for_two_targets() -> None:
    """One after the other, x would need two GPUs of small and y two more; big alone frees enough for both."""
    world = cluster(
        [node("n0", gpus=2), node("n1", gpus=4)],
        [pod("small", "n0", gpus=2), pod("big", "n1", gpus=4), pod("x", gpus=2), pod("y", gpus=2)],
        actions="allocate",
        groups={"small": FIRM, "big": FIRM},
    )
    found = least(world, "stop", "podgroup/default/x,podgroup/default/y")
    assert (found["amount"], found["proof"]) == (1, "proved")
    assert found["ops"] == [{"op": "stop", "pods": ["default/big"]}]


def test_moves_for_two_targets_are_one_operation() -> None:
    """Each target needs a whole node, and each node runs one small job; those fit on n2 and n3."""
    world = cluster(
        [node("n0", gpus=4), node("n1", gpus=4), node("n2", gpus=1), node("n3", gpus=1)],
        [pod("a", "n0", gpus=1), pod("b", "n1", gpus=1), pod("x", gpus=4), pod("y", gpus=4)],
        actions="allocate",
        groups={"a": FIRM, "b": FIRM},
    )
    found = least(world, "move")
    assert (found["amount"], found["proof"]) == (2, "proved")
    (op,) = found["ops"]
    assert sorted(one["pod"] for one in op["moves"]) == ["default/a", "default/b"]
    assert {one["node"] for one in op["moves"]} == {"n2", "n3"}
    assert found["below"]["amount"] == 1
    assert len(found["below"]["waiting"]) == 1


def test_no_number_of_nodes_is_proved_by_the_rule_that_stays() -> None:
    world = cluster([node("n0", gpus=2)], [pod("x", gpus=2)], queues=[queue("q", limit={"gpu": 1})])
    found = least(world, "nodes:n0", most=3)
    assert (found["amount"], found["proof"]) == (None, "proved")
    assert found["because"] == "no amount helps default/x against: the limit of q"


@pytest.mark.parametrize(
    ("limit", "because"),
    [
        (-1, "queue q has no limit of gpu"),
        (4, "what queue q holds and what waits below it is within its limit"),
    ],
)
def test_a_limit_that_is_in_nothings_way_cannot_help(limit: float, because: str) -> None:
    world = cluster([node("n0", gpus=1)], [pod("x", gpus=2)], queues=[queue("q", limit={"gpu": limit})])
    found = least(world, "limit:q.gpu")
    assert (found["amount"], found["proof"]) == (None, "proved")
    assert found["because"].startswith(because)


def test_nothing_is_needed_where_all_run() -> None:
    found = least(cluster([node("n0", gpus=1)], [pod("x", gpus=1)]), "nodes:n0")
    assert (found["amount"], found["ops"]) == (0, [])


def test_the_largest_change_that_was_tried_is_told_with_why_it_is_not_enough() -> None:
    """Four jobs of one GPU on one node and one more; then jobs of a queue whose parent has a limit, too."""
    world = cluster([node("n0", gpus=1)], [pod(f"x{i}", gpus=1) for i in range(4)])
    assert least(world, "nodes:n0", most=1)["because"] == (
        "even this does not help: add 1 node like n0; default/x2 would still wait: NoRoomInSum, needs 1 GPU; "
        "0 free in all"
    )
    queues = [queue("d", limit={"gpu": 1}), queue("q", parent="d", limit={"gpu": 1})]
    world = cluster([node("n0", gpus=4)], [pod("x0", gpus=1), pod("x1", gpus=1)], queues=queues)
    told = least(world, "limit:q.gpu")["because"]
    assert told.endswith("default/x1 would still wait: OverLimit, queue d: limit 1 GPU, used 1, needs 1")
