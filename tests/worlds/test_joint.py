"""Worlds in which one decision at a time misses what the joint answer finds (formulation 1).

Every world is solved twice: by the engine, and trigger by trigger without changing earlier decisions.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from kai_cp_models.actions.allocate import allocate
from kai_cp_models.cycle import Cycle
from kai_cp_models.engine import ACTIONS
from kai_cp_models.ledger import Ledger
from kai_cp_models.plan import Decision
from kai_cp_models.pods import Pod, PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.snapshot import Snapshot, Topology, TopologyConstraint
from tests.support.plans import SETTINGS, bound, evicted, lost, placed, reasons, solved
from tests.support.worlds import (
    PLUGINS,
    cluster,
    fraction,
    gpu_bound,
    gpu_memory,
    group,
    node,
    pod,
    pods,
    queue,
    spec,
)

RACK = TopologyConstraint("fabric", "rack")
PACKING = PLUGINS | {"nodeplacement", "nodeavailability"}
FABRIC = (Topology("fabric", ("rack",)),)


def cycle_of(snapshot: Snapshot) -> Cycle:
    deadline = time.monotonic() + 600
    return Cycle(snapshot, SETTINGS, Ledger.of(snapshot), deadline)


def greedily(snapshot: Snapshot) -> set[str]:
    """Pods that the greedy pass of allocate places: first fit on the best score, in fair order."""
    cycle = cycle_of(snapshot)
    allocate(cycle)
    return {d.pod.name for d in cycle.decisions()}


def one_by_one(snapshot: Snapshot, action: ActionName, *triggers: str) -> list[Decision]:
    """Decisions of an action that knows one trigger only, runs to its end, and then gets the next one."""
    found: list[Decision] = []
    for trigger in triggers:
        alone = replace(snapshot, pods=tuple(p for p in snapshot.pods if _concerns(p, trigger)))
        cycle = cycle_of(alone)
        ACTIONS[action](cycle)
        found += cycle.decisions()
        snapshot = _after(snapshot, cycle.decisions())
    return found


def _concerns(one: Pod, trigger: str) -> bool:
    """The trigger's pods, and all pods that have a place or are nominated."""
    return one.status is not PodStatus.PENDING or (one.group is not None and one.group.name == trigger)


def _after(snapshot: Snapshot, decisions: tuple[Decision, ...]) -> Snapshot:
    """Decisions so far stand: lost pods are gone, placed ones run where they were placed."""
    at = {d.pod: d.node for d in decisions if d.kind != "Evict"}
    gone = {d.pod for d in decisions if d.kind == "Evict"} - set(at)
    kept = [
        replace(p, node=at[p.key], status=PodStatus.RUNNING) if p.key in at else p
        for p in snapshot.pods
        if p.key not in gone
    ]
    return replace(snapshot, pods=tuple(kept))


# --- allocate ------------------------------------------------------------------------------------


def test_two_resources_bind() -> None:
    """a (1 GPU, 1 CPU) fits anywhere; b (1 GPU, 6 CPUs) needs wide, c (4 GPUs, 1 CPU) needs deep.
    Binpack puts a on the node with fewer GPUs, wide. There it takes the GPU that b needs, while deep
    has a fifth one.
    """
    snapshot = cluster(
        [
            pod("a-0", spec=spec(1, cpus=1)),
            pod("b-0", spec=spec(1, cpus=6)),
            pod("c-0", spec=spec(4, cpus=1)),
        ],
        [group(name, created=float(i)) for i, name in enumerate("abc")],
        [node("deep", gpus=5, cpus=4), node("wide", gpus=1, cpus=6)],
        plugins=PACKING,
    )
    assert "b-0" not in greedily(snapshot)
    plan = solved(snapshot)
    assert bound(plan) == {"a-0": "deep", "b-0": "wide", "c-0": "deep"}


def test_two_resources_bind_for_every_pair() -> None:
    """Two nodes of 4 GPUs and 8 CPUs; all pods ask for 4 CPUs, two for one GPU and two for three. Every
    node must take a small and a large pod. In the fair order the two small ones come first, and
    binpack puts them on one node: all its CPUs are used, and one large pod has no place.
    """
    snapshot = cluster(
        [
            pod("a-0", spec=spec(1, cpus=4)),
            pod("b-0", spec=spec(1, cpus=4)),
            pod("c-0", spec=spec(3, cpus=4)),
            pod("d-0", spec=spec(3, cpus=4)),
        ],
        [group(name, created=float(i)) for i, name in enumerate("abcd")],
        [node("n1", gpus=4, cpus=8), node("n2", gpus=4, cpus=8)],
        plugins=PACKING,
    )
    assert len(greedily(snapshot)) == 3
    assert placed(solved(snapshot)) == {"a-0", "b-0", "c-0", "d-0"}


def test_single_pods_keep_out_of_a_gang_s_rack() -> None:
    """Rack r has 4 + 4 free, rack s 5 on one node: the gang of 2 x 4 fits only in r. Greedily the
    single pod comes first and goes where it leaves least, to r, and the gang waits.
    """
    snapshot = cluster(
        [pod("single-0"), *pods("gang", 2, spec=spec(4))],
        [group("single", created=1.0), group("gang", 2, created=2.0, constraint=RACK)],
        [
            node("r1", gpus=4, labels={"rack": "r"}),
            node("r2", gpus=4, labels={"rack": "r"}),
            node("s1", gpus=5, labels={"rack": "s"}),
        ],
        topologies=FABRIC,
        plugins=PACKING,
    )
    assert greedily(snapshot) == {"single-0"}
    plan = solved(snapshot)
    assert bound(plan)["single-0"] == "s1"
    assert {bound(plan)["gang-0"], bound(plan)["gang-1"]} == {"r1", "r2"}


def test_the_joint_answer_is_not_worse_where_greedy_is_right() -> None:
    snapshot = cluster([*pods("a", 2, spec=spec(4)), *pods("b", 1, spec=spec(8))], [group("a", 2)])
    assert greedily(snapshot) == placed(solved(snapshot)) == {"a-0", "a-1"}


# --- eviction actions ----------------------------------------------------------------------------


def test_one_victim_serves_two_triggers() -> None:
    """Two triggers of 2. The victims differ only in size: x and y of 3 on n1 and n2, z of 4 on n3.
    Alone, each trigger takes a small one, because less work is lost: 6 GPUs and two groups in the
    end. Together they fit into the place of z.
    """
    snapshot = cluster(
        [
            pod("x-0", "n1", spec=spec(3)),
            pod("y-0", "n2", spec=spec(3)),
            pod("z-0", "n3", spec=spec(4)),
            pod("s-0", spec=spec(2)),
            pod("t-0", spec=spec(2)),
        ],
        [*(group(x, priority=10) for x in "xyz"), *(group(x, priority=60) for x in "st")],
        [node("n1", gpus=3), node("n2", gpus=3), node("n3", gpus=4)],
        actions=("allocate", "preempt"),
    )
    alone = {d.pod.name for d in one_by_one(snapshot, "preempt", "s", "t") if d.kind == "Evict"}
    assert alone == {"x-0", "y-0"}
    plan = solved(snapshot)
    assert placed(plan) == {"s-0", "t-0"}
    assert lost(plan) == {"z-0"}


def test_one_victim_serves_a_trigger_of_each_kind() -> None:
    """The big victim frees 4 GPUs, one for each of four triggers, and four small victims stay."""
    small = [pod(f"v{i}-0", f"n{i}") for i in range(4)]
    triggers = [pod(f"t{i}-0") for i in range(4)]
    groups = [group(f"v{i}", priority=20) for i in range(4)]
    groups += [group("big", priority=10), *(group(f"t{i}", priority=60) for i in range(4))]
    snapshot = cluster(
        [*small, pod("big-0", "n4", spec=spec(4)), *triggers],
        groups,
        [*(node(f"n{i}", gpus=1) for i in range(4)), node("n4", gpus=4)],
        actions=("allocate", "preempt"),
    )
    plan = solved(snapshot)
    assert evicted(plan) == {"big-0"}
    assert placed(plan) == {f"t{i}-0" for i in range(4)}


def test_moves_for_two_triggers_at_once() -> None:
    """Four nodes of 4 hold 1, 2, 2 and 3 pods: 3, 2, 2 and 1 are free. Both triggers ask for a whole
    node. The one pod of the first node joins the three, and two pods join the other two: two nodes
    are free.
    """
    held = [("a", "n1", 1), ("b", "n2", 2), ("c", "n3", 2), ("d", "n4", 3)]
    snapshot = cluster(
        [
            *(pod(f"{name}-0", where, spec=spec(gpus)) for name, where, gpus in held),
            *(pod(f"{name}-0", spec=spec(4)) for name in "st"),
        ],
        nodes=[node(f"n{i}", gpus=4) for i in range(1, 5)],
        actions=("allocate", "consolidation"),
        plugins=PACKING,
    )
    plan = solved(snapshot)
    assert placed(plan) == {"s-0", "t-0"}
    assert len(evicted(plan)) == 2
    assert not lost(plan)


def three_to_move(*, victims_first: bool) -> Snapshot:
    """The trigger asks for all 5 of n1, which holds 1 + 2 + 2; n2 has 2 free and n3 has 3. Only one
    plan works: a 2 fills n2, and the other 2 and the 1 fill n3. Best fit in the order 1, 2, 2 puts
    the 1 on n2 and one 2 on n3, and then the other 2 has no place.
    """
    created = 0.0 if victims_first else 2.0
    return cluster(
        [
            pod("a-0", "n1", spec=spec(1)),
            pod("b-0", "n1", spec=spec(2)),
            pod("c-0", "n1", spec=spec(2)),
            pod("s-0", spec=spec(5)),
        ],
        [*(group(x, created=created) for x in "abc"), group("s", created=1.0)],
        [node("n1", gpus=5), node("n2", gpus=2), node("n3", gpus=3)],
        actions=("allocate", "consolidation"),
        plugins=PACKING,
    )


@pytest.mark.parametrize("victims_first", [False, True])
def test_moves_that_best_fit_does_not_find(victims_first: bool) -> None:
    """Formulation 1.3 speaks about lost victims: a moved one takes nothing back, in whatever order
    groups come.
    """
    plan = solved(three_to_move(victims_first=victims_first))
    assert placed(plan) == {"s-0"}
    assert evicted(plan) == {"a-0", "b-0", "c-0"}
    assert not lost(plan)


def test_reclaim_takes_the_unit_that_fits_both() -> None:
    """Queue p holds 6 of 8 GPUs with a quota of 4: one pod of 2 on n1, one of 4 on n2, beside 2 free
    GPUs. Two triggers of queue q ask for 2 each and are entitled to 4. One fits as it is; the other
    one needs the 2 of n1, and nothing else is disturbed.
    """
    snapshot = cluster(
        [
            pod("a-0", "n1", spec=spec(2)),
            pod("b-0", "n2", spec=spec(4)),
            pod("s-0", spec=spec(2)),
            pod("t-0", spec=spec(2)),
        ],
        [group("a", queue="p"), group("b", queue="p"), group("s", queue="q"), group("t", queue="q")],
        [node("n1", gpus=4), node("n2", gpus=4)],
        [queue("p", quota=gpu_bound(4)), queue("q", quota=gpu_bound(4))],
        actions=("allocate", "reclaim"),
    )
    plan = solved(snapshot)
    assert evicted(plan) == {"a-0"}
    assert placed(plan) == {"s-0", "t-0"}


def test_places_of_the_model_keep_a_limit_that_depends_on_the_node(caplog: pytest.LogCaptureFixture) -> None:
    """m takes 3/8 of big's GPU or 3/4 of small's. w needs big, and both together then exceed 1.5 GPUs."""
    nodes = [node("big", gpus=1, gpu_memory_mib=80_000), node("small", gpus=1, cpus=4)]
    members = [pod("m-0", spec=gpu_memory(30_000)), pod("w-0", spec=spec(1, cpus=32))]
    queues = [queue("q", limit=gpu_bound(1.5))]
    plan = solved(cluster(members, [group("m", priority=60)], nodes, queues, actions=("allocate",)))
    assert placed(plan) == {"m-0"}
    assert [row.proved for row in plan.unscheduled] == [False]
    assert caplog.messages == []


def test_shares_by_memory_go_where_a_limit_allows_them() -> None:
    """m takes 3/8 of a large GPU or 3/4 of a small one. w needs all of a, so m moves over: both stay
    within 1.5 GPUs only if m is on the other large GPU.
    """
    wide, large = (node(name, gpus=1, gpu_memory_mib=80_000, cpus=n) for name, n in (("a", 64), ("b", 4)))
    members = [pod("m-0", spec=gpu_memory(30_000)), pod("w-0", spec=spec(1, cpus=32))]
    nodes, queues = [wide, large, node("small", gpus=1, cpus=4)], [queue("q", limit=gpu_bound(1.5))]
    plan = solved(cluster(members, [group("m", priority=60)], nodes, queues, actions=("allocate",)))
    assert {d.pod.name: d.node for d in plan.decisions} == {"m-0": "b", "w-0": "a"}


@pytest.mark.parametrize("name", ["device", "new-0", "0"])
def test_a_shared_device_may_have_any_name(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """s would open a GPU of its own, but w needs two of three, so s joins r."""
    running = pod("r-0", "n1", spec=fraction(500), gpu_groups=(name,))
    members = [running, pod("s-0", spec=gpu_memory(20_000)), pod("w-0", spec=spec(2))]
    groups, plugins = [group("s", priority=60), group("w")], PLUGINS | {"gpuspread"}
    nodes, actions = [node("n1", gpus=3)], ("allocate",)
    plan = solved(cluster(members, groups, nodes, plugins=plugins, actions=actions))
    assert {d.pod.name: d.gpu_groups for d in plan.decisions} == {"s-0": (name,), "w-0": ()}
    assert caplog.messages == []


def test_a_limit_that_other_places_would_keep_leaves_allocate_unproved() -> None:
    """m takes 3/4 of the small GPU, so w would exceed the limit; with m on a large GPU it would not."""
    wide, large = (node(name, gpus=1, gpu_memory_mib=80_000, cpus=n) for name, n in (("b", 64), ("c", 4)))
    members = [pod("m-0", spec=gpu_memory(30_000)), pod("w-0", spec=spec(1, cpus=32))]
    nodes, queues = [wide, node("a", gpus=1, cpus=4), large], [queue("q", limit=gpu_bound(1.5))]
    plan = solved(cluster(members, [group("m", priority=60)], nodes, queues, actions=("allocate",)))
    assert {d.pod.name: d.node for d in plan.decisions} == {"m-0": "a"}
    assert reasons(plan) == {"w": "OverLimit"}
    assert [(stage.status, stage.objective, stage.bound) for stage in plan.stages] == [("GREEDY", 1, 0)]


def test_a_refusal_without_proof_stays_one_where_models_go_on_after_it() -> None:
    """As above; x needs b for both of its pods, which a model proves. Nothing shows that w gets no place."""
    wide, large = (node(name, gpus=1, gpu_memory_mib=80_000, cpus=n) for name, n in (("b", 64), ("c", 4)))
    both = [pod(f"x-{i}", spec=spec(1, cpus=33)) for i in range(2)]
    members = [pod("m-0", spec=gpu_memory(30_000)), pod("w-0", spec=spec(1, cpus=32)), *both]
    nodes, groups = [wide, node("a", gpus=1, cpus=4), large], [group("m", priority=60), group("x", 2, "r")]
    queues = [queue("q", limit=gpu_bound(1.5), priority=10), queue("r", priority=1)]
    plan = solved(cluster(members, groups, nodes, queues, actions=("allocate",)))
    assert reasons(plan) == {"w": "OverLimit", "x": "NodeFragmented"}
    assert [(stage.status, stage.objective, stage.bound) for stage in plan.stages] == [("FEASIBLE", 2, 1)]
