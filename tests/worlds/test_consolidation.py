"""Consolidation on worlds that no recorded case covers: its ceiling, and rules that do not apply to it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kai_cp_models.actions import admit
from kai_cp_models.budget import MOST_PATIENT_WORK
from kai_cp_models.engine import decide
from kai_cp_models.settings import Settings, SolverSettings
from kai_cp_models.snapshot import Snapshot, Topology, TopologyConstraint
from tests.support.plans import evicted, lost, placed, reasons, solved
from tests.support.worlds import (
    NOW,
    PLUGINS,
    cluster,
    gpu_bound,
    group,
    leaf,
    node,
    pod,
    pods,
    queue,
    spec,
    tree,
)

ACTIONS = ("allocate", "consolidation")


def scattered(movers: int = 3, trigger: dict[str, Any] | None = None, **more: Any) -> Snapshot:
    """One GPU is used on each of ``movers`` nodes, and 8 - ``movers`` on a last one; a group needs a
    whole node. Any small pod may move to the last node, so one move is enough for one trigger.
    """
    members = [pod(f"v{i}-0", f"n{i}") for i in range(movers)]
    members += [pod("last-0", "z", spec=spec(8 - movers)), pod("t-0", spec=spec(8))]
    groups = [*(group(f"v{i}", last_start=NOW - 10) for i in range(movers)), group("t", **(trigger or {}))]
    nodes = [*(node(f"n{i}") for i in range(movers)), node("z")]
    policy = {"actions": ACTIONS, "plugins": PLUGINS | {"nodeplacement"}, **more}
    return cluster(members, groups, nodes, **policy)


def test_a_promised_place_that_it_changes_is_its_own() -> None:
    """Allocate puts ``a`` on n0, which ``t`` needs as a whole."""
    only = spec(8, node_selector=(("name", "n0"),))
    members = [pod("v-0", "n0", spec=spec(2)), pod("f-0", "n1"), pod("a-0"), pod("t-0", spec=only)]
    groups = [group("v", last_start=NOW - 10), group("f", preemptible=False), group("t", created=1.0)]
    nodes = [node("n0", labels={"name": "n0"}), node("n1")]
    found = cluster(members, groups, nodes, actions=ACTIONS, plugins=PLUGINS | {"nodeplacement"})
    places = {d.pod.name: (d.node, d.action) for d in solved(found).decisions if d.kind != "Evict"}
    assert places["a-0"] == ("n1", "consolidation")


@pytest.mark.parametrize("first", ["e", "t"])
def test_a_group_keeps_its_pods_but_an_equal_one_may_move_them(first: str) -> None:
    """Either needs a whole node. A pod of e runs on n1 and fits on n2 as well; it moves for t, not for e."""
    members = [pod("e-0", "n1"), pod("f-0", "n2"), pod("e-1", spec=spec(2)), pod("t-0", spec=spec(2))]
    groups = [group("f", preemptible=False), *(group(one, priority=50 + (one == first)) for one in "et")]
    found = cluster(
        members, groups, [node("n1", gpus=2), node("n2", gpus=2)], actions=ACTIONS, plugins=PLUGINS
    )
    assert placed(solved(found)) == {"t-0"}


def test_a_place_of_this_cycle_changes_before_a_running_pod_restarts() -> None:
    """t needs n9 as a whole, and a, which runs there, fits only n2. Allocate has given what is idle there to
    w, which fits n3 as well. So a alone restarts, and w starts at once on n3; r could give way as well.
    """
    only = spec(4, node_selector=(("name", "n9"),))
    members = [
        *(pod("a-0", "n9", spec=spec(2, cpus=4)), pod("r-0", "n2", spec=spec(2))),
        *(pod("x-0", "n3", spec=spec(1, cpus=6)), *pods("w", 2), pod("t-0", spec=only)),
    ]
    nodes = [node("n9", gpus=4, labels={"name": "n9"}), node("n2", gpus=4), node("n3", gpus=3, cpus=8)]
    groups = [*map(group, "arxt"), group("w", 2)]
    plan = solved(cluster(members, groups, nodes, actions=ACTIONS))
    assert (evicted(plan), lost(plan)) == ({"a-0"}, set())
    assert {d.pod.name for d in plan.decisions if d.kind == "Bind"} == {"w-0", "w-1"}


@pytest.mark.parametrize("limit", [1, 2])
def test_a_pod_whose_queue_is_over_its_limit_does_not_move(
    limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    """t needs n1 as a whole. r fits n2, but it would start anew there, and its queue holds 2 GPUs."""
    members = [pod("r-0", "n1", spec=spec(2)), pod("s-0", "n2", spec=spec(2)), pod("t-0", spec=spec(4))]
    groups = [group("r", queue="p"), group("s", preemptible=False), group("t")]
    queues = [queue("p", limit=gpu_bound(limit)), queue()]
    nodes = [node("n1", gpus=4), node("n2", gpus=4)]
    plan = solved(cluster(members, groups, nodes, queues, actions=ACTIONS))
    assert (caplog.messages, evicted(plan)) == ([], set() if limit == 1 else {"r-0"})


def test_a_gang_whose_domain_was_torn_moves_inside_what_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """g ran in rack a before the label of n1 changed. The 2 GPUs that t asks for are on n0 or n2 once g-0 or
    x-0 has moved to the other; n1 is full.
    """
    rack = TopologyConstraint("dc", required="rack")
    members = [
        pod("g-0", "n0"),
        pod("g-1", "n1"),
        pod("x-0", "n2"),
        pod("y-0", "n1"),
        pod("t-0", spec=spec(2)),
    ]
    groups = [
        group("g", 2, constraint=rack),
        group("x", preemptible=False),
        group("t"),
    ]
    nodes = [node(name, gpus=2, labels={"rack": at}) for name, at in (("n0", "a"), ("n1", "b"), ("n2", "a"))]
    policy = {
        "actions": ACTIONS,
        "plugins": PLUGINS | {"topology"},
        "topologies": (Topology("dc", ("rack",)),),
    }
    plan = solved(cluster(members, groups, nodes, **policy))
    assert (caplog.messages, evicted(plan), placed(plan)) == ([], {"g-0"}, {"t-0"})


def test_one_move_and_no_pod_is_lost() -> None:
    plan = solved(scattered())
    assert placed(plan) == {"t-0"}
    assert len(evicted(plan)) == 1
    assert lost(plan) == set()


@pytest.mark.parametrize(
    ("waiting", "large_work", "seconds", "served"),
    [(50, 0, 20, 1), (51, 0, 20, 0), (51, MOST_PATIENT_WORK, 20, 1), (51, MOST_PATIENT_WORK, 1, 1)],
)
def test_a_large_cluster_moves_nothing_where_next_to_nothing_is_idle(
    monkeypatch: pytest.MonkeyPatch, waiting: int, large_work: float, seconds: float, served: int
) -> None:
    """Eight GPUs are idle, which one move makes usable; moves are worth it from a fiftieth of what is
    asked for. Whether the cluster is a large one decides, and not the budget.
    """
    monkeypatch.setattr(admit, "MOST_PATIENT_WORK", large_work)
    snapshot = cluster(
        [
            pod("v-0", "n1"),
            pod("last-0", "n2", spec=spec(7)),
            *(pod(f"t{i}-0", spec=spec(8)) for i in range(waiting)),
        ],
        [group("last", preemptible=False)],
        [node("n1"), node("n2")],
        actions=ACTIONS,
        plugins=PLUGINS | {"nodeplacement"},
    )
    settings = Settings(solver=SolverSettings(budget_seconds=seconds))
    plan = decide(snapshot, settings, deadline=time.monotonic() + 60)
    assert len(placed(plan)) == served


CEILINGS = [(0, False), (1, False), (2, True), (16, True), (-1, True)]


@pytest.mark.parametrize(("most", "served"), CEILINGS)
def test_the_ceiling_on_moved_groups(most: int, served: bool) -> None:
    """Two groups of one GPU are on n1, which the trigger needs whole: both must move."""
    snapshot = cluster(
        [pod("a-0", "n1"), pod("b-0", "n1"), pod("last-0", "n2", spec=spec(6)), pod("t-0", spec=spec(8))],
        [group("last", preemptible=False)],
        [node("n1"), node("n2")],
        actions=ACTIONS,
        max_consolidation_preemptees=most,
        plugins=PLUGINS | {"nodeplacement"},
    )
    plan = solved(snapshot)
    assert (placed(plan) == {"t-0"}) is served
    assert evicted(plan) == ({"a-0", "b-0"} if served else set())


def test_the_ceiling_counts_groups_not_pods() -> None:
    snapshot = cluster(
        [*pods("a", 2, "n1"), pod("last-0", "n2", spec=spec(6)), pod("t-0", spec=spec(8))],
        [group("a", 2), group("last", preemptible=False)],
        [node("n1"), node("n2")],
        actions=ACTIONS,
        max_consolidation_preemptees=1,
        plugins=PLUGINS | {"nodeplacement"},
    )
    assert evicted(solved(snapshot)) == {"a-0", "a-1"}


UNSERVED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("a non-preemptible trigger", {"preemptible": False}, {}),
    ("a delayed trigger", {"created": NOW, "preemption_delay_seconds": 60.0}, {}),
    ("a backed-off trigger", {"backed_off": True}, {}),
    ("GPU spread mode", {}, {"gpu_strategy": "spread"}),
    ("CPU spread mode", {}, {"cpu_strategy": "spread"}),
    ("an action that is off", {}, {"actions": ("allocate",)}),
]


@pytest.mark.parametrize(("trigger", "policy"), [x[1:] for x in UNSERVED], ids=[x[0] for x in UNSERVED])
def test_consolidation_does_not_serve_this_group(trigger: dict[str, Any], policy: dict[str, Any]) -> None:
    plan = solved(scattered(trigger=trigger, **policy))
    assert plan.decisions == ()
    assert "t" in reasons(plan)


def test_min_runtime_is_not_asked() -> None:
    """4.3: the pods that move started 10 s ago, and the minimum of an hour protects only against
    reclaim and preempt.
    """
    hour: dict[str, Any] = {
        "default_reclaim_min_runtime_seconds": 3600.0,
        "default_preempt_min_runtime_seconds": 3600.0,
    }
    assert len(evicted(solved(scattered(**hour)))) == 1


def test_queue_depth_caps_the_triggers() -> None:
    """Both would be served; with depth 1 only the older one is."""
    snapshot = cluster(
        [
            *(pod(f"v{i}-0", f"n{i}", spec=spec(4)) for i in range(4)),
            pod("s-0", spec=spec(8)),
            pod("t-0", spec=spec(8)),
        ],
        [group("s", created=2.0), group("t", created=1.0)],
        [node(f"n{i}") for i in range(4)],
        actions=ACTIONS,
        queue_depth={"consolidation": 1},
        plugins=PLUGINS | {"nodeplacement"},
    )
    plan = solved(snapshot)
    assert placed(plan) == {"t-0"}
    assert len(evicted(plan)) == 1


def test_non_preemptible_pods_do_not_move() -> None:
    snapshot = cluster(
        [pod("v-0", "n1", spec=spec(4)), pod("w-0", "n2", spec=spec(4)), pod("t-0", spec=spec(8))],
        [group("v", preemptible=False), group("w", preemptible=False)],
        [node("n1"), node("n2")],
        actions=ACTIONS,
    )
    assert solved(snapshot).decisions == ()


def test_a_group_that_does_not_fit_in_sum_is_refused_with_proof() -> None:
    snapshot = cluster(
        [pod("v-0", "n1", spec=spec(5)), pod("w-0", "n2", spec=spec(5)), pod("t-0", spec=spec(8))],
        nodes=[node("n1"), node("n2")],
        actions=ACTIONS,
    )
    plan = solved(snapshot)
    assert plan.decisions == ()
    assert [u.proved for u in plan.unscheduled] == [True]


def test_moving_does_not_cure_a_limit() -> None:
    snapshot = cluster(
        [pod("v-0", "n1", spec=spec(4)), pod("w-0", "n2", spec=spec(4)), pod("t-0", spec=spec(8))],
        nodes=[node("n1"), node("n2")],
        queues=[queue("q", limit=gpu_bound(8))],
        actions=ACTIONS,
    )
    plan = solved(snapshot)
    assert plan.decisions == ()
    assert reasons(plan) == {"t": "OverLimit"}


def test_a_role_of_one_pod_stays_before_one_of_several() -> None:
    """One of the gang's pods leaves n1; the launcher and the writer are the only pods of their roles."""
    roles = tree(3, leaf("launcher", 1), leaf("worker", 2), leaf("writer", 1))
    members = [
        pod(f"g-{i}", "n1", subgroup=role)
        for i, role in enumerate(("launcher", "worker", "worker", "writer"))
    ]
    snapshot = cluster(
        [*members, pod("t-0", spec=spec(5))],
        [group("g", root=roles)],
        [node("n1"), node("n2", gpus=1)],
        actions=ACTIONS,
    )
    assert evicted(solved(snapshot)) == {"g-2"}


def test_no_least_moves_are_claimed_where_a_whole_gang_could_leave_its_domain() -> None:
    """t needs all of a or of c. Three pods leave c. The two of g could go from a and b to d together, but
    models move a pod only inside its domain."""
    rack = TopologyConstraint("dc", required="rack")
    big, sizes, racks = spec(3, node_selector=(("big", "yes"),)), (3, 1, 3, 3), "rrst"
    nodes = [
        node(name, gpus=gpus, labels={"rack": where, "big": "yes" if name in "ac" else "no"})
        for name, gpus, where in zip("abcd", sizes, racks, strict=True)
    ]
    members = [
        pod("g-0", "a"),
        pod("g-1", "b"),
        *(pod(f"s{i}-0", "c") for i in range(3)),
        pod("t-0", spec=big),
    ]
    groups = [group("g", 2, constraint=rack), *(group(f"s{i}") for i in range(3)), group("t")]
    plan = solved(
        cluster(
            members,
            groups,
            nodes,
            actions=ACTIONS,
            plugins=PLUGINS | {"topology"},
            topologies=(Topology("dc", ("rack",)),),
        )
    )
    (stage,) = (stage for stage in plan.stages if stage.name == "consolidation: moved pods")
    assert (placed(plan) & {"t-0"}, stage.status) == ({"t-0"}, "FEASIBLE")
    assert stage.objective == len(evicted(plan)) == 3


@pytest.mark.parametrize(
    ("priorities", "served", "left"),
    [
        pytest.param((10, 50, 10), {"w-0", "h-0"}, set(), id="w outranks both"),
        pytest.param((60, 50, 10), {"h-0"}, {"v-0"}, id="v outranks w"),
        pytest.param((50, 50, 50), {"h-0"}, {"v-0"}, id="all are equal"),
    ],
)
def test_a_later_action_may_take_what_was_moved(
    priorities: tuple[int, int, int], served: set[str], left: set[str]
) -> None:
    """v moves from n1 to n2 for w; h, which does not move others, needs n2 with what is there. v goes on
    running where w, with no right to v, then waits."""
    v, w, u = (group(name, priority=p) for name, p in zip("vwu", priorities, strict=True))
    only = {name: spec(2, node_selector=(("name", name),)) for name in ("n1", "n2")}
    members = [pod("v-0", "n1"), pod("u-0", "n2"), pod("w-0", spec=only["n1"]), pod("h-0", spec=only["n2"])]
    nodes = [node(name, gpus=2, labels={"name": name}) for name in only]
    groups = [v, w, u, group("h", priority=90, preemptible=False)]
    plan = solved(cluster(members, groups, nodes, actions=("allocate", "consolidation", "preempt")))
    assert (placed(plan), evicted(plan)) == (served, {"u-0", "v-0"} - left)
    assert {d.action for d in plan.decisions if d.kind == "Evict"} == {"preempt"}
