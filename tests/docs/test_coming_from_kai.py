"""Where the engine decides otherwise than KAI on purpose; docs/coming-from-kai.md says why.

Each world is the smallest one in which the two differ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kai_cp_models.check import violations
from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan
from kai_cp_models.pods import Pod
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot, Topology, TopologyConstraint
from tests.support.worlds import NOW, cluster, group, leaf, node, pod, pods, spec, tree

RACKS = Topology("racks", ("rack",))
IN_ONE_RACK = TopologyConstraint("racks", required="rack")


def solved(snapshot: Snapshot, **objective: float) -> Plan:
    plan = decide(
        snapshot,
        Settings.model_validate({"solver": {"budget_seconds": 20, "patience": 1000}, "objective": objective}),
    )
    assert violations(snapshot, plan) == []
    return plan


def names(plan: Plan, *kinds: str) -> set[str]:
    return {d.pod.name for d in plan.decisions if d.kind in kinds}


def reason(plan: Plan, name: str) -> tuple[str, bool]:
    return next((row.reason, row.proved) for row in plan.unscheduled if row.group.name == name)


def selecting(pool: str, gpus: int) -> Any:
    return spec(gpus, node_selector=(("pool", pool),))


def running(name: str, where: str, gpus: int = 1, **more: Any) -> Pod:
    return pod(name, where, spec=spec(gpus), **more)


# --- gangs -------------------------------------------------------------------------------------------


def test_enough_subgroups_are_no_torn_gang() -> None:
    """One of two subgroups is needed and runs; KAI counts the minimum of the other one, too, and evicts
    it.
    """
    for needed, evicted in ((1, set()), (2, {"g-0"})):
        root = tree(needed, leaf("a", 1), leaf("b", 1))
        torn = group("g", root=root, stale_since=NOW - 600)
        plan = solved(cluster([pod("g-0", "n1", subgroup="a")], [torn]))
        assert names(plan, "Evict") == evicted


def test_a_protected_group_gives_up_the_subgroup_that_it_does_not_need() -> None:
    root = tree(1, leaf("a", 1), leaf("b", 1))
    young = group("g", root=root, last_start=NOW - 10)
    urgent = group("h", priority=100)
    world = cluster(
        [pod("g-0", "n1", subgroup="a"), pod("g-1", "n1", subgroup="b"), pod("h-0")],
        [young, urgent],
        [node(gpus=2)],
        default_preempt_min_runtime_seconds=3600,
    )
    plan = solved(world)
    assert names(plan, "Evict") == {"g-1"}
    assert names(plan, "Nominate") == {"h-0"}


def test_the_subgroups_that_are_ready_start() -> None:
    """One of two is needed. The first one has one pod of two, and KAI chooses it nevertheless."""
    root = tree(1, leaf("a", 2), leaf("b", 1))
    plan = solved(cluster([pod("g-0", subgroup="a"), pod("g-1", subgroup="b")], [group("g", root=root)]))
    assert names(plan, "Bind") == {"g-1"}


# --- topology ----------------------------------------------------------------------------------------


def racks(*gpus: int) -> list[Any]:
    return [node(f"n{i}", count, labels={"rack": f"r{i}"}) for i, count in enumerate(gpus)]


def test_a_required_level_holds_across_subgroups_and_actions() -> None:
    """Its first subgroup runs in rack r0, so the second one goes to r0, too, or waits."""
    root = tree(2, leaf("a", 1), leaf("b", 1), constraint=IN_ONE_RACK)
    members = [pod("g-0", "n0", subgroup="a"), pod("g-1", subgroup="b")]
    for free, bound in ((1, set()), (2, {"g-1"})):
        plan = solved(cluster(members, [group("g", root=root)], racks(free, 8), topologies=(RACKS,)))
        assert names(plan, "Bind") == bound
        assert {d.node for d in plan.decisions} <= {"n0"}


def test_a_required_level_holds_across_the_batches_of_a_cycle() -> None:
    """The gang of one pod gets a rack; the extra pod, placed later in the cycle, stays in that rack."""
    elastic = group("g", 1, constraint=IN_ONE_RACK)
    plan = solved(cluster(pods("g", 2), [elastic], racks(1, 1), topologies=(RACKS,)))
    assert len(names(plan, "Bind")) == 1


# --- victims -----------------------------------------------------------------------------------------


def test_a_trigger_that_finds_no_place_leaves_nothing_behind() -> None:
    """The first trigger is impossible; the next one evicts what it needs itself, and nothing else."""
    world = cluster(
        [*pods("v", 1, "n1"), *pods("w", 1, "n1"), *pods("big", 2, spec=spec(2)), pod("small-0")],
        [group("big", 2, priority=100), group("small", priority=90)],
        [node(gpus=2)],
    )
    plan = solved(world)
    assert len(names(plan, "Evict")) == 1
    assert {trigger.name for d in plan.decisions for trigger in d.triggers} == {"small"}
    assert names(plan, "Nominate") == {"small-0"}


def test_the_pod_that_started_last_goes_first_however_old_its_object_is() -> None:
    """``old`` was created first and restarted a minute ago; ``new`` has run for a day."""
    world = cluster(
        [running("old-0", "n1"), running("new-0", "n1"), pod("h-0")],
        [
            group("old", created=1.0, last_start=NOW - 60),
            group("new", created=2.0, last_start=NOW - 86_400),
            group("h", priority=100),
        ],
        [node(gpus=2)],
    )
    assert names(solved(world), "Evict") == {"old-0"}


def test_a_victim_moves_to_idle_gpus_and_not_into_the_place_of_another_victim() -> None:
    """Only n1 suits the trigger. Losing ``b`` so that ``a`` can move there would be two restarts
    instead of one.
    """
    world = cluster(
        [running("a-0", "n1"), running("b-0", "n2"), pod("h-0", spec=selecting("x", 1))],
        [group("a", created=1.0), group("b", created=2.0), group("h", priority=100)],
        [node("n1", 1, labels={"pool": "x"}), node("n2", 1)],
        actions=("allocate", "preempt"),
    )
    lost = solved(world)
    assert names(lost, "Evict") == {"a-0"}
    assert names(lost, "Nominate") == {"h-0"}
    idle = replace(world, nodes=(world.nodes[0], node("n2", 2)))
    moved = solved(idle)
    assert names(moved, "Evict") == {"a-0"}
    assert names(moved, "Nominate") == {"a-0", "h-0"}


def test_fewer_moves_decide_between_equal_losses() -> None:
    """For ``t`` either old ``x`` is lost, or new ``y`` is lost and ``z`` moves. ``u`` takes the oldest
    one in any case.
    """
    world = cluster(
        [
            running("x-0", "n1"),
            running("y-0", "n2"),
            running("z-0", "n2"),
            running("w-0", "n3", 2),
            pod("t-0", spec=selecting("a", 2)),
            pod("u-0", spec=selecting("b", 2)),
        ],
        [
            group("w", created=1.0),
            group("x", created=2.0),
            group("z", created=3.0),
            group("y", created=4.0),
            group("t", priority=100),
            group("u", priority=100),
        ],
        [
            node("n1", 2, labels={"pool": "a"}),
            node("n2", 2, labels={"pool": "a"}),
            node("n3", 2, labels={"pool": "b"}),
        ],
    )
    assert names(solved(world), "Evict") == {"w-0", "x-0"}


def test_consolidation_counts_the_groups_that_move() -> None:
    """Two pod groups have to move for one; the limit holds for each trigger and counts only moved groups."""
    world = cluster(
        [running("a-0", "n1"), running("b-0", "n1"), running("c-0", "n2"), pod("h-0", spec=spec(4))],
        nodes=[node("n1", 4), node("n2", 4)],
        actions=("allocate", "consolidation"),
    )
    assert names(solved(world), "Evict") == {"c-0"}
    full = cluster(
        [
            running("a-0", "n1"),
            running("b-0", "n1"),
            *(running(f"c{i}-0", "n2") for i in range(2)),
            pod("h-0", spec=spec(4)),
        ],
        nodes=[node("n1", 4), node("n2", 4)],
        actions=("allocate", "consolidation"),
        max_consolidation_preemptees=1,
    )
    plan = solved(full)
    assert not plan.decisions
    assert reason(plan, "h")[0] == "NodeFragmented"
    raised = replace(full, policy=replace(full.policy, max_consolidation_preemptees=2))
    assert len(names(solved(raised), "Evict")) == 2


def test_a_place_of_this_cycle_is_withdrawn_and_never_evicted() -> None:
    """Allocate gives ``late`` the free GPU; preempt needs both for ``h``."""
    world = cluster(
        [running("early-0", "n1"), pod("late-0"), pod("h-0", spec=spec(2))],
        [group("early"), group("late"), group("h", priority=100)],
        [node(gpus=2)],
    )
    plan = solved(world)
    assert names(plan, "Evict") == {"early-0"}
    assert names(plan, "Nominate") == {"h-0"}
    assert not names(plan, "Bind")
    assert reason(plan, "late") == ("Withdrawn", True)


def test_the_ceiling_on_moved_gpus_holds() -> None:
    """``a`` has to leave n1 for ``h``. It may move to n2 if as many GPUs may move as are admitted."""
    world = cluster(
        [running("a-0", "n1", 2), pod("h-0", spec=selecting("x", 1))],
        [group("a"), group("h", priority=100)],
        [node("n1", 2, labels={"pool": "x"}), node("n2", 2)],
    )
    for ceiling, nominated in ((-1, {"a-0", "h-0"}), (2, {"a-0", "h-0"}), (1, {"h-0"}), (0, {"h-0"})):
        plan = solved(world, max_moved_gpus_per_admitted_gpu=ceiling)
        assert names(plan, "Evict") == {"a-0"}
        assert names(plan, "Nominate") == nominated
