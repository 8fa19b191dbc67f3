"""What is free in all, beside what pods need."""

from __future__ import annotations

from kai_cp_models.explain.in_sum import InSum
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GPU
from tests.support import tiny


def test_a_cluster_without_nodes_is_short_of_shares_by_memory() -> None:
    """No GPU tells how large a part of it the memory is."""
    snapshot = tiny.world([], [tiny.pod(f"g-{i}", group="g", notes={"gpu-memory": "1000"}) for i in range(2)])
    short = InSum(Ledger.of(snapshot)).short(snapshot.pods)
    assert [(one.asked > 0, one.free) for one in short if one.dimension == GPU] == [(True, 0)]
