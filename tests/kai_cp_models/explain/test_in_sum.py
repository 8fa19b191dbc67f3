"""What is free in all, beside what pods need."""

from __future__ import annotations

import pytest

from kai_cp_models.explain.in_sum import InSum
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GPU
from tests.support import tiny


def test_a_cluster_without_nodes_is_short_of_shares_by_memory() -> None:
    """No GPU tells how large a part of it the memory is."""
    snapshot = tiny.world([], [tiny.pod(f"g-{i}", group="g", notes={"gpu-memory": "1000"}) for i in range(2)])
    short = InSum(Ledger.of(snapshot)).short(snapshot.pods)
    assert [(one.asked > 0, one.free) for one in short if one.dimension == GPU] == [(True, 0)]


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        (3, ("needs 6 GPUs for 3 pods; 4 free in all", "")),
        (
            4,
            (
                "needs 8 GPUs for 4 pods; 4 free in all",
                "needs 8 GPUs for 4 pods; all nodes together have 6, 2 too few",
            ),
        ),
    ],
)
def test_more_than_all_nodes_have_is_told_as_missing(pods: int, words: tuple[str, str]) -> None:
    """Three nodes of two GPUs, of which r holds two: what r might free does not help four pods."""
    nodes = [tiny.node(f"n{i}", gpus=2) for i in range(3)]
    asking = [tiny.pod(f"g-{i}", group="g", gpus=2) for i in range(pods)]
    snapshot = tiny.world(nodes, [tiny.pod("r", "n0", gpus=2), *asking])
    asked = [pod for pod in snapshot.pods if pod.key.name != "r"]
    in_sum = InSum(Ledger.of(snapshot))
    assert (in_sum.words(asked), in_sum.beyond(asked)) == words
