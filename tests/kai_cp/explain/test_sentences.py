"""The sentence that says why a pod group waits."""

from __future__ import annotations

import json

import pytest

from kai_cp.explain.document import Explainer
from kai_cp.explain.draft import Draft
from kai_cp_models.pods import GroupKey
from kai_cp_models.settings import Settings
from tests.kai_cp.explain.clusters import NOW, cluster
from tests.support import objects
from tests.support.tiny import node, pod, queue

HELD = "the rest is held by pods that are being deleted or belong to no pod group; neither can be evicted"
THRICE = json.dumps({"uid": "default-x", "times": 3, "last": objects.ago(1)})
IMPOSSIBLE = "impossible on this hardware, whatever ends or is stopped"


@pytest.mark.parametrize(
    ("gpus", "free", "stuck", "end"),
    [(1, "0 are", True, HELD), (3, "0 are", True, IMPOSSIBLE), (3, "2 are", False, IMPOSSIBLE)],
)
def test_hardware_is_not_to_blame_for_a_deleted_pod_that_does_not_end(
    gpus: int, free: str, stuck: bool, end: str
) -> None:
    """r was deleted long ago and still holds both GPUs."""
    held = pod("r", "n0", gpus=2)
    held["metadata"]["deletionTimestamp"] = objects.ago(3600)
    raw = cluster([node("n0", gpus=2)], [*([held] if stuck else []), pod("x", gpus=gpus)])
    entry = Explainer(Draft(raw, NOW), Settings(), budget=60.0, kinds=()).explain(GroupKey("default", "x"))
    needs = f"needs {gpus} GPU{'s' * (gpus > 1)}; {free} free; all nodes together have 2"
    assert (entry["blocking"], entry["message"]) == ([["room:gpu"]], f"{needs}; {end}")


@pytest.mark.parametrize(
    ("group", "owed", "end"),
    [
        ({}, 1, "; queue q: fair share 1 GPU, used 1, needs 1"),
        ({"preemptionDelay": "2h"}, 2, "; it may evict others in "),
        (
            {"annotations": {"kai-cp/failures": THRICE}},
            2,
            " 3 times in a row; it gets what is free, and may ",
        ),
    ],
)
def test_numbers_that_the_cycle_knows_are_told(group: objects.Object, owed: int, end: str) -> None:
    """q holds one of two GPUs, and o the other; q owns one or both, so x may reclaim that, or could."""
    raw = cluster(
        [node("n0", gpus=2)],
        [pod("r", "n0", gpus=1), pod("v", "n0", gpus=1, queue="o"), pod("x", gpus=1)],
        groups={"x": group},
        queues=[queue("q", quota={"gpu": owed}), queue("o", quota={"gpu": 2 - owed})],
    )
    entry = Explainer(Draft(raw, NOW), Settings(), budget=60.0, kinds=()).explain(GroupKey("default", "x"))
    assert end in entry["message"], entry


def beside(key: str, app: str) -> objects.Object:
    """A required affinity to pods of ``app`` in one place of ``key``, or against them."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {key: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


KEPT = {"preemptibility": "non-preemptible"}
RACKS = {
    "metadata": {"name": "dc", "uid": "dc"},
    "spec": {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]},
}


def asks_for(level: str) -> objects.Object:
    """Two pods of one place of the level."""
    return {"minMember": 2, "topologyConstraint": {"topology": "dc", "requiredTopologyLevel": level}}


@pytest.mark.parametrize(
    ("pods", "x", "words"),
    [
        (  # r fills n0, and x must be beside it; n1 is idle, but the rule is in the way there.
            [pod("r", "n0", gpus=2), pod("x", gpus=1, **beside("podAffinity", "r"))],
            {},
            "pod affinity rules refuse 1 node; needs 1 GPU; 0 are free on nodes that accept it; what runs",
        ),
        (  # r and s are on both nodes, and x must be beside neither.
            [
                pod("r", "n0", gpus=1),
                pod("s", "n1", gpus=1, labels={"app": "r"}),
                pod("x", gpus=1, **beside("podAntiAffinity", "r")),
            ],
            {},
            "pod anti-affinity rules refuse 2 nodes; what runs there cannot be preempted",
        ),
        (  # One GPU is free on each node.
            [pod("r", "n0", gpus=1), pod("s", "n1", gpus=2)]
            + [pod(f"x{i}", gpus=1, group="x") for i in range(2)],
            asks_for("kubernetes.io/hostname"),
            "needs 1 GPU for each of 2 pods, all on one node; 2 are free, at most 1 on one node; what runs",
        ),
        (  # A pod of x runs in the rack of n0, which r fills; the rack of n1 is idle.
            [pod("r", "n0", gpus=1), pod("x0", "n0", gpus=1, group="x"), pod("x1", gpus=1, group="x")],
            asks_for("rack"),
            "needs 1 GPU, in the rack of its pods that run; 0 are free there; what runs there cannot be",
        ),
    ],
)
def test_free_capacity_behind_a_rule_is_not_counted(
    pods: list[objects.Object], x: objects.Object, words: str
) -> None:
    """Two nodes, each a rack; only x may be preempted."""
    nodes = [node(f"n{i}", gpus=2 + i, labels={"rack": f"r{i}"}) for i in range(2)]
    groups = {"r": KEPT, "s": KEPT, "x": x}
    raw = cluster(nodes, pods, groups=groups, topologies=[RACKS], actions="allocate, consolidation, preempt")
    entry = Explainer(Draft(raw, NOW), Settings(), budget=60.0, kinds=()).explain(GroupKey("default", "x"))
    assert entry["message"].startswith(words)


def test_idle_nodes_are_not_told_where_no_node_takes_a_pod_and_its_neighbour() -> None:
    """r fills any of the two nodes, and x must be beside it."""
    pods = [pod("r", "n0", gpus=2), pod("x", gpus=1, **beside("podAffinity", "r"))]
    raw = cluster([node(f"n{i}", gpus=2) for i in range(2)], pods, groups={"r": KEPT})
    entry = Explainer(Draft(raw, NOW), Settings(), budget=60.0, kinds=()).explain(GroupKey("default", "x"))
    words = "no placement of its next pod is possible with: free GPUs, each pod on one node, pod affinity"
    assert entry["message"] == f"{words}; impossible on these nodes, whatever ends or is stopped"
