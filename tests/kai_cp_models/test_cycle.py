"""The order in which a cycle states its decisions."""

from __future__ import annotations

from math import inf

from kai_cp_models.cycle import Cycle
from kai_cp_models.ledger import Ledger
from kai_cp_models.policy import ActionName
from kai_cp_models.settings import Settings
from tests.support.worlds import cluster, node, pods


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
        cycle.admitted(action, one.group, [one])
    assert [decision.pod for decision in cycle.decisions()] == [a0.key, b0.key, a1.key]


def test_decisions_follow_every_change_of_the_cycle() -> None:
    """A place is given, another action takes it over, it moves, and it is taken back."""
    snapshot = cluster(pods("a", 1), nodes=[node("n1"), node("n2")])
    cycle, (one,) = Cycle(snapshot, Settings(), Ledger.of(snapshot), inf), snapshot.pods

    def told() -> list[tuple[str, str, str]]:
        assert cycle.decisions() is cycle.decisions()
        assert cycle.save().decisions() == cycle.decisions()
        return [(d.kind, d.node, d.action) for d in cycle.decisions()]

    assert told() == []
    cycle.ledger.place(one, 0, pipelined=True)
    assert told() == [("Nominate", "n1", "allocate")]
    cycle.placed_by[one.key] = "reclaim"
    assert told() == [("Nominate", "n1", "reclaim")]
    cycle.ledger.unplace(one)
    cycle.ledger.place(one, 1, pipelined=False)
    assert told() == [("Bind", "n2", "reclaim")]
    cycle.ledger.unplace(one)
    assert told() == []
