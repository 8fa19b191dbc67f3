"""The order in which a cycle states its decisions."""

from __future__ import annotations

from math import inf

from kai_cp_models.cycle import Cycle
from kai_cp_models.ledger import Ledger
from kai_cp_models.policy import ActionName
from kai_cp_models.settings import Settings
from tests.support.worlds import cluster, pods


def test_each_action_states_its_triggers_as_it_admitted_them() -> None:
    """Consolidation served the first pod of a; then reclaim served b, and after it the second pod of a."""
    snapshot = cluster([*pods("a", 2), *pods("b", 1)])
    a0, a1, b0 = snapshot.pods
    cycle = Cycle(snapshot, Settings(), Ledger.of(snapshot), inf)
    admitted: tuple[tuple[ActionName, int], ...] = (("consolidation", 0), ("reclaim", 2), ("reclaim", 1))
    for action, i in admitted:
        one = snapshot.pods[i]
        assert one.group is not None
        cycle.ledger.place(one, 0, pipelined=True)
        cycle.placed_by[one.key] = action
        cycle.admitted(action, one.group)
    assert [decision.pod for decision in cycle.decisions()] == [a0.key, b0.key, a1.key]
