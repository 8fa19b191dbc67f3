"""Gangs that preempt serves by moving running pods, beside a group that allocate bound on idle capacity.

The group comes after everything that runs, so preempt may move nothing for it; nor does anything that moves
for the gang move for the group. The checker refuses no such plan, and no group is left out.
``KAI_CP_MOVED_WORLDS`` sets how many worlds are drawn.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from kai_cp_models.engine import decide
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Shares, Snapshot
from tests.support.worlds import cluster, group, node, pod, queue, spec

SETTINGS = Settings.model_validate({"objective": {"goals": ["lost_gpus"]}})
"""Moves cost nothing, so that plans have many."""
FOUND = (13, 129, 609)
"""Worlds in which a moved pod leaves a node on which allocate bound a pod."""
SEEDS = (*FOUND, *range(10_000, 10_000 + int(os.environ.get("KAI_CP_MOVED_WORLDS", "20"))))


def drawn(seed: int) -> Snapshot:
    """Up to three pods run; gang t asks for two nodes with 3 free GPUs, and u for one GPU."""
    rng = Random(seed)
    sizes = [rng.choice((3, 4)) for _ in range(3)]
    free, pods, groups = list(sizes), [], []
    for i in range(rng.choice((2, 2, 3))):
        size, at = rng.choice((1, 2)), rng.randrange(3)
        if free[at] >= size:
            free[at] -= size
            pods.append(pod(f"r{i}-0", f"n{at}", spec=spec(size)))
            groups.append(group(f"r{i}", priority=50))
    pods += [*(pod(f"t-{k}", spec=spec(3)) for k in range(2)), pod("u-0", spec=spec(1))]
    groups += [group("t", 2, priority=rng.choice((90, 100))), group("u", priority=10)]
    limit = Shares(-1, -1, rng.choice((sum(sizes) - 1, -1)))
    nodes = [node(f"n{i}", gpus=size) for i, size in enumerate(sizes)]
    return cluster(pods, groups, nodes, [queue("q", limit=limit)], actions=("allocate", "preempt"))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_group_is_left_out_for_a_place_that_was_idle(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    plan = decide(drawn(seed), SETTINGS)
    assert caplog.messages == []
    assert "InternalError" not in {row.reason for row in plan.unscheduled}
