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

HELD = "deleted pods that do not end, or pods of no pod group, hold the rest, and neither can be stopped"
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
