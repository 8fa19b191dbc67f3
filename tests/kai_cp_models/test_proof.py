"""Proofs of refusals in tiny worlds, argued by hand; random clusters are asked again in
``tests/properties/test_proofs.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kai_cp.reader import parse
from kai_cp_models.check import violations
from kai_cp_models.engine import decide
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.policy import ActionName
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.rules.stateful.storage import state as storage
from kai_cp_models.settings import Limits, Settings
from kai_cp_models.snapshot import Snapshot
from tests.support.devices import (
    DRIVER,
    aligned,
    capacity,
    claim,
    claims,
    csi_driver,
    device,
    device_class,
    exact,
    kind_is,
    slice_of,
    storage_class,
    volume_claim,
    volumes,
    zones,
)
from tests.support.objects import LEVELS, NOW, Object, ago
from tests.support.plans import bound, placed, solved
from tests.support.tiny import MIB_PER_GPU, cluster, node, pod, queue, world

FAR = 3600.0
LITTLE = 0.01
"""A budget in seconds that is worth too little work for any model."""
PLENTY = 20.0


def beside(app: str) -> Object:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_a_pod_that_leaves_without_ever_having_a_place_spoils_no_proof() -> None:
    """Pods of 3, 3 and 2 GPUs need more than two nodes of 4. A stale gang has such a pod."""
    leaving = pod("stale-1", gpus=1, group="stale")
    leaving["metadata"]["deletionTimestamp"] = ago(-20)
    since = {"annotations": {"kai.scheduler/stale-podgroup-timestamp": ago(900)}}
    snapshot = world(
        [node("n0", gpus=4), node("n1", gpus=4)],
        [
            pod("stale-0", "n0", gpus=1, group="stale"),
            leaving,
            *(pod(f"wide-{i}", gpus=n, group="wide") for i, n in enumerate((3, 3, 2))),
        ],
        groups={"stale": {"minMember": 3, **since}, "wide": {"minMember": 3}},
        actions="allocate, stalegangeviction",
    )
    (waiting,) = solved(snapshot).unscheduled
    assert (waiting.group, waiting.proved) == (GroupKey("default", "wide"), True)


@pytest.mark.parametrize("budget", [LITTLE, PLENTY])
@pytest.mark.parametrize(("wanted", "proved"), [("gang", False), ("nothing", True)])
def test_a_partner_that_waits_may_come_although_it_was_refused(
    budget: float, wanted: str, proved: bool
) -> None:
    """The gang fits in one way only (small and large on deep, wide on wide), which the greedy pass misses and
    a model finds. The refusal of a pod that wants to join it is not sure."""
    snapshot = world(
        [node("wide", gpus=1), node("deep", {"cpu": "3"}, gpus=5)],
        [
            pod("a-small", gpus=1, labels={"app": "gang"}, group="gang"),
            pod("b-wide", gpus=1, labels={"app": "gang"}, group="gang", requests={"cpu": "6"}),
            pod("c-large", gpus=4, labels={"app": "gang"}, group="gang"),
            pod("joins", affinity=beside(wanted)),
        ],
        groups={"gang": {"minMember": 3}},
        actions="allocate, reclaim",
        plugins=("nodeplacement", "nodeavailability"),
    )
    settings = Settings.model_validate({"solver": {"budget_seconds": budget}})
    plan = decide(snapshot, settings, deadline=time.monotonic() + FAR)
    waits = {one.group.name: one.proved for one in plan.unscheduled}
    if budget == LITTLE:
        assert waits == {"gang": False, "joins": proved}
    else:
        assert len(bound(plan)) == (3 if proved else 4)
        assert waits == ({"joins": True} if proved else {})


LATE = {"preemptionDelay": "9h"}
"""Fields of a pod group that may not evict yet."""
RACKS = {"topology": "fabric", "requiredTopologyLevel": "rack"}


def revised(name: str, seconds: float, one: Object) -> Object:
    """A pod of a revision of the Deployment web, so old."""
    owner = {"kind": "ReplicaSet", "name": f"web-{name}", "controller": True}
    one["metadata"]["labels"]["pod-template-hash"] = name
    one["metadata"] |= {"ownerReferences": [owner], "creationTimestamp": ago(seconds)}
    return one


def evicts(name: str, on: str, action: ActionName, *triggers: str, group: str = "") -> Decision:
    keys = tuple(GroupKey("default", trigger) for trigger in triggers)
    return Decision(
        "Evict", PodKey("default", name), GroupKey("default", group or name), on, action, triggers=keys
    )


def waits(name: str, on: str, action: ActionName = "allocate", *, group: str = "", gpu: str = "") -> Decision:
    names = (gpu,) if gpu else ()
    key = GroupKey("default", group or name)
    return Decision("Nominate", PodKey("default", name), key, on, action, gpu_groups=names)


def binds(name: str, on: str, *, group: str = "") -> Decision:
    return Decision("Bind", PodKey("default", name), GroupKey("default", group or name), on, "allocate")


def gang(name: str, size: int, **more: Any) -> list[Object]:
    """Pods of one GPU of one pod group, the first ones ``on`` the nodes that are named."""
    nodes = more.pop("on", ())
    places = [*nodes, *[""] * (size - len(nodes))]
    return [pod(f"{name}-{i}", on, gpus=1, group=name, **more) for i, on in enumerate(places)]


def first_only(snapshot: Snapshot, *actions: str) -> Snapshot:
    """Some actions look at the first pod group of each queue only, which is out of reach for them."""
    return replace(snapshot, policy=replace(snapshot.policy, queue_depth=dict.fromkeys(actions, 1)))


def a_further_pod_may_evict(refutable: bool) -> tuple[Snapshot, Plan]:
    """What the second pod of elastic preempts leaves a GPU for late, which may not evict yet."""
    snapshot = world(
        [node(gpus=3)],
        [
            *gang("victim", 2, on=("n0", "n0")),
            pod("huge", gpus=9, priority="inference"),
            *gang("elastic", 2 if refutable else 1, priority="build"),
            pod("late", gpus=1, priority="build"),
        ],
        groups={"victim": {"minMember": 2}, "late": LATE, **({} if refutable else {"elastic": LATE})},
        actions="allocate, preempt",
    )
    better = [
        binds("elastic-0", "n0", group="elastic"),
        *(evicts(f"victim-{i}", "n0", "preempt", "elastic", group="victim") for i in range(2)),
        waits("elastic-1", "n0", "preempt", group="elastic"),
        waits("late", "n0", "preempt"),
    ]
    return first_only(snapshot, "preempt"), Plan(tuple(better))


def what_was_placed_freely_may_evict(refutable: bool) -> tuple[Snapshot, Plan]:
    """first, which got the free GPU, might as well preempt; late fits only there."""
    snapshot = world(
        [node("n0", gpus=1, labels={"kind": "old"}), node("n1", gpus=1)],
        [
            pod("victim", "n1", gpus=1, priority="train" if refutable else "build"),
            pod("first", gpus=1, priority="build"),
            pod("late", gpus=1, priority="build", nodeSelector={"kind": "old"}),
        ],
        groups={"late": LATE},
        queues=[queue("q")],
        actions="allocate, preempt",
    )
    better = [
        binds("late", "n0"),
        evicts("victim", "n1", "preempt", "first"),
        waits("first", "n1", "preempt"),
    ]
    return snapshot, Plan(tuple(better))


def one_that_comes_later_may_evict(refutable: bool) -> tuple[Snapshot, Plan]:
    """What a preempts is enough for a and late, but b, which comes after late, takes the rest."""
    snapshot = world(
        [node(gpus=2)],
        [
            *gang("victim", 2, on=("n0", "n0"), priority="low"),
            pod("late", gpus=1, priority="build"),
            *[pod(name, gpus=1) for name in "ab"],
        ],
        groups={"victim": {"minMember": 2}, "late": LATE},
        actions="allocate, preempt" if refutable else "allocate",
    )
    better = [
        *(evicts(f"victim-{i}", "n0", "preempt", "a", group="victim") for i in range(2)),
        waits("a", "n0", "preempt"),
        waits("late", "n0", "preempt"),
    ]
    return snapshot, Plan(tuple(better))


def a_gang_may_move_to_another_rack(refutable: bool) -> tuple[Snapshot, Plan]:
    """wide needs both nodes of rack a, where a gang runs that may go to rack b as a whole."""
    racks, priority = "aabb", "train" if refutable else "build"
    snapshot = world(
        [
            node(f"n{i}", gpus=2, labels={LEVELS[0]: "x", LEVELS[1]: rack, "wide": str(rack == "a")})
            for i, rack in enumerate(racks)
        ],
        [
            *gang("moves", 2, on=("n0", "n1"), priority=priority),
            pod("huge", gpus=9),
            *(pod(f"wide-{i}", gpus=2, group="wide", nodeSelector={"wide": "True"}) for i in range(2)),
        ],
        groups={
            "moves": {"minMember": 2, "topologyConstraint": RACKS},
            "wide": {"minMember": 2},
        },
        actions="allocate, consolidation",
    )
    better = [
        *(evicts(f"moves-{i}", f"n{i}", "consolidation", "wide", group="moves") for i in range(2)),
        *(waits(f"wide-{i}", f"n{i}", "consolidation", group="wide") for i in range(2)),
        *(waits(f"moves-{i}", f"n{i + 2}", "consolidation", group="moves") for i in range(2)),
    ]
    return first_only(snapshot, "consolidation"), Plan(tuple(better))


def memory_is_less_of_a_larger_gpu(refutable: bool) -> tuple[Snapshot, Plan]:
    """Half of the small GPU is a quarter of the large one, where the half that pair asks for still fits."""
    large = {"nvidia.com/gpu.memory": str(MIB_PER_GPU * (2 if refutable else 1))}
    memory = {"gpu-memory": str(MIB_PER_GPU // 2)}
    snapshot = world(
        [node("n0", gpus=1), node("n1", gpus=1, labels=large)],
        [
            pod("moves", "n0", notes=memory, shares=["s"]),
            pod("huge", gpus=9),
            pod("pair-0", gpus=1, group="pair"),
            pod("pair-1", notes={"gpu-fraction": "0.7"}, group="pair"),
        ],
        groups={"pair": {"minMember": 2}},
        actions="allocate, consolidation",
    )
    better = [
        evicts("moves", "n0", "consolidation", "pair"),
        waits("pair-0", "n0", "consolidation", group="pair"),
        waits("pair-1", "n1", "consolidation", group="pair", gpu="new"),
        waits("moves", "n1", "consolidation", gpu="new"),
    ]
    return first_only(snapshot, "consolidation"), Plan(tuple(better))


def a_gang_that_ends_gives_back_quota(refutable: bool) -> tuple[Snapshot, Plan]:
    """The gang gets its missing pod; without it, it ends although it cannot be preempted."""
    since = {"annotations": {"kai.scheduler/stale-podgroup-timestamp": ago(900 if refutable else 5)}}
    snapshot = world(
        [node(gpus=2)],
        [pod("waits", gpus=2, priority="build"), *gang("stale", 2, on=("n0",), priority="build")],
        groups={"stale": {"minMember": 2, **since}},
        queues=[queue("q", quota={"gpu": 2})],
        actions="allocate, stalegangeviction",
    )
    return snapshot, Plan((evicts("stale-0", "n0", "stalegangeviction", group="stale"), waits("waits", "n0")))


def without_shares_every_queue_may_reclaim(refutable: bool) -> tuple[Snapshot, Plan]:
    """Fair shares forbid it, but they may be switched off."""
    snapshot = world(
        [node(gpus=1)],
        [pod("victim", "n0", gpus=1, queue="rich"), pod("waits", gpus=1, queue="poor")],
        queues=[queue("rich", quota={"gpu": 1}), queue("poor", quota={"gpu": 0})],
        actions="allocate, reclaim",
    )
    off = frozenset({"proportion"} if refutable else ())
    policy = replace(snapshot.policy, plugins=snapshot.policy.plugins - off)
    better = [evicts("victim", "n0", "reclaim", "waits"), waits("waits", "n0", "reclaim")]
    return replace(snapshot, policy=policy), Plan(tuple(better))


def a_gang_may_borrow_in_part(refutable: bool) -> tuple[Snapshot, Plan]:
    """The old pod gives back what the new one of the gang takes; the other one has the quota that is left."""
    lends = queue("q", quota={"gpu": 2 if refutable else 1})
    lends["metadata"]["annotations"] = {"kai-cp/rollout": "1h"}
    snapshot = world(
        [node(gpus=3)],
        [
            revised("r1", 90_000, pod("web-0", "n0", gpus=1, group="web", priority="build")),
            revised("r2", 60, pod("pair-0", gpus=1, group="pair", priority="build")),
            pod("pair-1", gpus=1, group="pair", priority="build"),
        ],
        groups={"pair": {"minMember": 2}},
        queues=[lends],
    )
    return snapshot, Plan(tuple(binds(f"pair-{i}", "n0", group="pair") for i in range(2)))


def budgeted(name: str, allowed: int) -> Object:
    """A PodDisruptionBudget of the pods of app ``held``."""
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "held"}}},
        "status": {"disruptionsAllowed": allowed},
    }


def what_one_leaves_of_a_budget_another_uses(refutable: bool) -> tuple[Snapshot, Plan]:
    """high may preempt other, but does not, so the budget lets moves go, which makes room for wide."""
    snapshot = world(
        [node("n0", gpus=2, labels={"kind": "old"}), node("n1", gpus=2)],
        [
            pod("moves", "n0", gpus=1, labels={"app": "held"}),
            pod("other", "n1", gpus=1, labels={"app": "held"}, queue="r"),
            pod("huge", gpus=9),
            pod("high", gpus=9, queue="r", priority="build"),
            pod("wide", gpus=2, nodeSelector={"kind": "old"}),
        ],
        queues=[queue("q"), queue("r")],
        actions="allocate, consolidation, preempt",
        podDisruptionBudgets=[budgeted("b", int(refutable))],
    )
    better = [
        evicts("moves", "n0", "consolidation", "wide"),
        waits("wide", "n0", "consolidation"),
        waits("moves", "n1", "consolidation"),
    ]
    return first_only(snapshot, "consolidation"), Plan(tuple(better))


def of_two_whose_time_is_over_another_may_end(refutable: bool) -> tuple[Snapshot, Plan]:
    """The budget lets one of them end: here a, or b, on whose node late would fit."""
    started = {"kai.scheduler/last-start-timestamp": ago(7_200)}
    over = {"annotations": {"kai-cp/max-runtime": "1h", **started}}
    snapshot = world(
        [node("n0", gpus=1), node("n1", gpus=1, labels={"kind": "old"})],
        [
            *(pod(name, f"n{i}", gpus=1, labels={"app": "held"}) for i, name in enumerate("ab")),
            pod("late", gpus=1, nodeSelector={"kind": "old"}),
        ],
        groups={"a": over, "b": over if refutable else {"annotations": started}},
        podDisruptionBudgets=[budgeted("b", 1)],
    )
    return snapshot, Plan((evicts("b", "n1", "maxruntime"), waits("late", "n1")))


STARTED: Object = {"annotations": {"kai.scheduler/last-start-timestamp": ago(10)}}
"""Fields of a pod group that started a moment ago."""


def a_protected_group_keeps_its_minimum_anywhere(refutable: bool) -> tuple[Snapshot, Plan]:
    """The victim keeps one of two pods, and which one stays depends on the node that is needed (4.7)."""
    snapshot = world(
        [node("n0", gpus=1, labels={"kind": "old"}), node("n1", gpus=1)],
        [
            *gang("victim", 2, on=("n0", "n1")),
            pod("waits", gpus=1, priority="build", nodeSelector={"kind": "old"}),
        ],
        groups={"victim": STARTED | {"minMember": 1 if refutable else 2}},
        actions="allocate, preempt",
        minruntime={"defaultPreemptMinRuntime": "10m"},
    )
    better = [evicts("victim-0", "n0", "preempt", "waits", group="victim"), waits("waits", "n0", "preempt")]
    return snapshot, Plan(tuple(better))


def a_protected_group_keeps_its_minimum_in_a_pod_that_comes(refutable: bool) -> tuple[Snapshot, Plan]:
    """The second pod of the victim gets the free GPU, so the first is more than its minimum."""
    snapshot = world(
        [node("n0", gpus=1, labels={"kind": "old"}), node("n1", gpus=1)],
        [
            *gang("victim", 2 if refutable else 1, on=("n0",)),
            *([] if refutable else [pod("other", gpus=1)]),
            pod("waits", gpus=1, priority="build", nodeSelector={"kind": "old"}),
        ],
        groups={"victim": STARTED},
        actions="allocate, preempt",
        minruntime={"defaultPreemptMinRuntime": "10m"},
    )
    comes = binds("victim-1", "n1", group="victim") if refutable else binds("other", "n1")
    leaves = evicts("victim-0", "n0", "preempt", "waits", group="victim")
    return snapshot, Plan((comes, leaves, waits("waits", "n0", "preempt")))


def what_subgroups_need_goes_as_one_unit(refutable: bool) -> tuple[Snapshot, Plan]:
    """rich is due two GPUs and holds four. A unit may take it below that: the minimum of both subgroups is
    one unit (4.4), of two pod groups it is two."""
    pods = gang("a", 2, on=("n0", "n0"), queue="rich") + gang("b", 2, on=("n0", "n0"), queue="rich")
    for one in pods if refutable else ():
        meta = one["metadata"]
        meta["labels"]["kai.scheduler/subgroup-name"] = meta["annotations"]["pod-group-name"]
        meta["annotations"]["pod-group-name"] = "both"
    parts = [{"name": name, "minMember": 2} for name in "ab"]
    two = {"minMember": 2}
    snapshot = world(
        [node("n0", gpus=4), node("n1", gpus=2)],
        [*pods, pod("other", "n1", gpus=2, queue="other"), pod("waits", gpus=4, queue="poor")],
        groups={"both": {"minMember": None, "minSubGroup": 1, "subGroups": parts}, "a": two, "b": two},
        queues=[
            queue("poor", quota={"gpu": 4}),
            *(queue(one, quota={"gpu": 2}) for one in ("rich", "other")),
        ],
        actions="allocate, reclaim",
    )
    groups = {name: "both" if refutable else name for name in "ab"}
    better = [
        evicts(f"{name}-{i}", "n0", "reclaim", "waits", group=groups[name]) for name in "ab" for i in range(2)
    ]
    return snapshot, Plan((*better, waits("waits", "n0", "reclaim")))


def of_two_pod_sets_either_may_grow(refutable: bool) -> tuple[Snapshot, Plan]:
    """The gang has its minimum; a further pod of a is too large, one of b is not. Which comes first depends
    on what both have."""
    parts = [{"name": name, "minMember": 1} for name in "ab"]
    pods = gang("grows", 4 if refutable else 3, on=("n0", "n0"))
    for one, name in zip(pods, "abab", strict=False):
        one["metadata"]["labels"]["kai.scheduler/subgroup-name"] = name
    pods[2]["spec"]["nodeSelector"] = {"kind": "none"}
    snapshot = world([node(gpus=3)], pods, groups={"grows": {"minMember": None, "subGroups": parts}})
    return snapshot, Plan((binds(f"grows-{3 if refutable else 2}", "n0", group="grows"),))


HOLES = {
    a_further_pod_may_evict: "late",
    what_was_placed_freely_may_evict: "late",
    one_that_comes_later_may_evict: "late",
    a_gang_may_move_to_another_rack: "wide",
    memory_is_less_of_a_larger_gpu: "pair",
    a_gang_that_ends_gives_back_quota: "waits",
    without_shares_every_queue_may_reclaim: "waits",
    a_gang_may_borrow_in_part: "pair",
    what_one_leaves_of_a_budget_another_uses: "wide",
    of_two_whose_time_is_over_another_may_end: "late",
    a_protected_group_keeps_its_minimum_anywhere: "waits",
    a_protected_group_keeps_its_minimum_in_a_pod_that_comes: "waits",
    what_subgroups_need_goes_as_one_unit: "waits",
    of_two_pod_sets_either_may_grow: "grows",
}
"""Tiny worlds, each with a group that the engine refuses and another permitted plan serves."""


@pytest.mark.parametrize("refutable", [True, False])
@pytest.mark.parametrize("made", HOLES)
def test_a_group_that_another_permitted_plan_serves_is_not_called_impossible(
    made: Callable[[bool], tuple[Snapshot, Plan]], refutable: bool
) -> None:
    snapshot, better = made(refutable)
    group = GroupKey("default", HOLES[made])
    rules = {"rollouts": True, "pod_disruption_budgets": True}
    settings = Settings.model_validate(
        {"solver": {"budget_seconds": PLENTY}, "rules": rules, "max_runtime": {"enforce": True}}
    )
    plan = decide(snapshot, settings, deadline=time.monotonic() + FAR)
    proved = {one.group: one.proved for one in plan.unscheduled}
    assert (violations(prepare(snapshot, settings)[0], better, settings.rules) == []) == refutable
    assert group.name not in placed(plan)
    assert group.name in {name.partition("-")[0] for name in placed(better)}
    assert proved[group] == (not refutable)


@pytest.mark.parametrize(("state", "leaves"), [("Running", False), ("Releasing", True), ("Stuck", True)])
def test_a_protected_group_gives_up_no_pod_for_one_that_leaves(state: str, leaves: bool) -> None:
    """The victim started a moment ago, and its minimum is one pod."""
    snapshot = world(
        [node(gpus=1)],
        [
            pod("victim-0", "n0", gpus=1, group="victim"),
            pod("victim-1", "n0", group="victim", state=state),
            pod("waits", gpus=1, priority="build"),
        ],
        groups={"victim": STARTED},
        actions="allocate, preempt",
        minruntime={"defaultPreemptMinRuntime": "10m"},
    )
    plan = decide(snapshot, Settings(), deadline=time.monotonic() + FAR)
    assert [one.proved for one in plan.unscheduled] == [leaves]


def test_a_pod_that_runs_in_a_queue_that_does_not_exist_costs_no_proof() -> None:
    """Consolidation could move its share to a larger GPU; what it gives up is charged to no queue."""
    large = {"nvidia.com/gpu.memory": str(MIB_PER_GPU * 2)}
    memory = {"gpu-memory": str(MIB_PER_GPU // 2)}
    snapshot = world(
        [node("n0", gpus=1), node("n1", gpus=1, labels=large)],
        [
            pod("orphan", "n0", notes=memory, shares=["s"], queue="gone"),
            pod("huge", gpus=9),
            pod("waits", gpus=2),
        ],
        actions="allocate, consolidation, reclaim",
    )
    settings = Settings.model_validate({"solver": {"budget_seconds": PLENTY}})
    plan = decide(snapshot, settings, deadline=time.monotonic() + FAR)
    assert {one.group.name: one.proved for one in plan.unscheduled} == {"huge": True, "waits": True}


def test_a_queue_does_not_rise_where_nothing_is_idle() -> None:
    """All GPUs run: two of queue fixed, which has no quota, but cannot be preempted, and one each of a and b,
    whose quotas are two. What waits for one of these might take from the other only once that holds its
    quota, for which there is no room.
    """
    running = [("fixed", "build", 2), ("a", "train", 1), ("b", "train", 1)]
    snapshot = world(
        [node("n0", gpus=4)],
        [
            *(
                pod(f"{name}-{i}", "n0", gpus=1, queue=name, priority=priority)
                for name, priority, count in running
                for i in range(count)
            ),
            *(pod(f"{name}-late", gpus=1, queue=name) for name in "ab"),
        ],
        queues=[queue("top", "")]
        + [queue(name, quota={"gpu": most}) for name, most in (("fixed", 0), ("a", 2), ("b", 2))],
        actions="allocate, reclaim",
    )
    settings = Settings.model_validate({"solver": {"budget_seconds": PLENTY}})
    plan = decide(snapshot, settings, deadline=time.monotonic() + FAR)
    assert {one.group.name: one.proved for one in plan.unscheduled} == {"a-late": True, "b-late": True}


@pytest.mark.parametrize(("size", "waits"), [(2, {}), (3, {"gang": True})])
def test_a_queue_loses_no_more_to_reclaim_than_it_holds_above_its_due(
    size: int, waits: Mapping[str, bool]
) -> None:
    """Of 8 GPUs two run what cannot be preempted, and a holds 6 of a quota of 4. So two may be reclaimed for
    b, whose quota is 4, one by one.
    """
    snapshot = world(
        [node("n0", {"cpu": "20"}, gpus=8)],
        [
            *(pod(f"fixed-{i}", "n0", gpus=1, queue="fixed", priority="build") for i in range(2)),
            *(pod(f"a-{i}", "n0", gpus=1, queue="a") for i in range(6)),
            *gang("gang", size, queue="b"),
        ],
        groups={"gang": {"minMember": size}},
        queues=[queue("top", "")]
        + [queue(name, quota={"gpu": most}) for name, most in (("fixed", 0), ("a", 4), ("b", 4))],
        actions="reclaim",
    )
    settings = Settings.model_validate({"solver": {"budget_seconds": PLENTY}})
    plan = decide(snapshot, settings, deadline=time.monotonic() + FAR)
    assert {one.group.name: one.proved for one in plan.unscheduled if one.group.name == "gang"} == waits


def parts(cards: int) -> Object:
    """Cards of seven slices each, whose devices are single slices and the first four together."""
    counters = [
        {"name": f"card{g}", "counters": {f"s{i}": {"value": "1"} for i in range(7)}} for g in range(cards)
    ]

    def part(card: int, first: int, count: int) -> Object:
        drawn = {f"s{i}": {"value": "1"} for i in range(first, first + count)}
        draws = [{"counterSet": f"card{card}", "counters": drawn}]
        return device(f"{card}-{first}-{count}", kind=str(count), consumesCounters=draws)

    made = [part(g, first, 1) for g in range(cards) for first in range(7)]
    return slice_of("n0", *made, *(part(g, 0, 4) for g in range(cards)), sharedCounters=counters)


@pytest.mark.parametrize(
    ("cards", "quarters", "served", "proved"),
    [(2, 2, True, False), (2, 3, False, True), (8, 8, False, False)],
)
def test_a_search_for_devices_that_gave_up_proves_nothing(
    cards: int, quarters: int, *, served: bool, proved: bool
) -> None:
    """Each card can give one part of four slices beside single ones, if these are its last ones. With eight
    cards, the search tries the first ones for longer than it lasts."""
    ones = exact(cards, name="one", selectors=kind_is("1"))
    wants = [ones, exact(quarters, name="four", selectors=kind_is("4"))]
    snapshot = world(
        [node("n0")],
        [pod("x", resourceClaims=claims("c"))],
        resourceSlices=[parts(cards)],
        deviceClasses=[device_class()],
        resourceClaims=[claim("c", *wants)],
    )
    plan = decide(snapshot, Settings(), deadline=time.monotonic() + FAR)
    assert placed(plan) == ({"x"} if served else set())
    assert [one.proved for one in plan.unscheduled] == ([] if served else [proved])


def test_a_search_for_volumes_that_gave_up_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three claims of 5 GiB, and two capacities of 6 GiB each."""
    snapshot = world(
        [node("n0")],
        [pod("x", volumes=volumes("c", "d", "e"))],
        csiDrivers=[csi_driver()],
        csiStorageCapacities=[capacity(name, "6Gi", "kubernetes.io/hostname", "n0") for name in "ab"],
        storageClasses=[storage_class("net")],
        persistentVolumeClaims=[volume_claim(name, storage_class="net") for name in "cde"],
    )
    for choices, proved in ((storage.CHOICES, True), (0, False)):
        monkeypatch.setattr(storage, "CHOICES", choices)
        plan = decide(snapshot, Settings(), deadline=time.monotonic() + FAR)
        assert not plan.decisions
        assert [one.proved for one in plan.unscheduled] == [proved]


@pytest.mark.parametrize(("count", "proved"), [(12, True), (14, False)])
def test_sets_of_zones_that_are_not_looked_at_prove_nothing(count: int, *, proved: bool) -> None:
    """Of more than 12 zones not all sets are looked at, and all zones together are the last one."""
    snapshot = world(
        [node("n0", {"cpu": "14"})],
        [pod("x", **aligned(14))],
        plugins=["numa"],
        nodeResourceTopologies=[zones("n0", *[1] * count, policy="restricted")],
    )
    plan = decide(snapshot, Settings(), deadline=time.monotonic() + FAR)
    assert not plan.decisions
    assert [one.proved for one in plan.unscheduled] == [proved]


@pytest.mark.parametrize(("most", "served", "proved"), [(1500, ["x"], [False]), (40, [], [True, True])])
def test_selectors_that_a_later_cycle_evaluates_prove_nothing(
    most: int, served: list[str], proved: list[bool]
) -> None:
    """Each selector takes some 250 steps, and 700 to be parsed. A namespace may take ``most`` in a cycle, and
    a claim never more."""
    ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(i, true)"
    wants = {
        name: exact(selectors=[{"cel": {"expression": f'{ten} && "{name}" != ""'}}]) for name in ("x", "y")
    }
    found = cluster(
        [node("n0")],
        [pod(name, resourceClaims=claims(name)) for name in wants],
        resourceSlices=[slice_of("n0", device("a"), device("b"))],
        deviceClasses=[device_class()],
        resourceClaims=[claim(name, one) for name, one in wants.items()],
    )
    limits = Limits(cel_steps_per_namespace=most, cel_steps_per_cycle=most)
    snapshot = parse(found, now=NOW.timestamp(), limits=limits)
    plan = decide(snapshot, Settings(), deadline=time.monotonic() + FAR)
    assert sorted(placed(plan)) == served
    assert [one.proved for one in plan.unscheduled] == proved


@pytest.mark.parametrize(
    ("more", "proved"),
    [("x == 'b'", True), ("x.reverse() == 'b'", False), ("x ==", False), ("ip(x).family() == 4", False)],
)
def test_a_selector_that_kai_cp_cannot_evaluate_proves_nothing(more: str, proved: bool) -> None:
    """The device's kind is a. Kubernetes may know a function that kai-cp does not, also in an alternative or
    in the device class; then a device may satisfy the claim."""
    kind = more.replace("x", f"device.attributes['{DRIVER}'].kind")
    selectors = [{"cel": {"expression": kind}}]
    second = {"deviceClassName": "nic", "name": "s", "selectors": selectors}
    plain = {"deviceClassName": "nic", "name": "t", "count": 2}
    a = device("a", attributes={"kind": {"string": "a"}})
    for asked, classes in [
        (exact(selectors=selectors), [device_class()]),
        ({"name": "r", "firstAvailable": [plain, second]}, [device_class()]),
        (exact(), [device_class(selectors=selectors)]),
    ]:
        found = cluster(
            [node("n0")],
            [pod("x", resourceClaims=claims("x"))],
            resourceSlices=[slice_of("n0", a)],
            deviceClasses=classes,
            resourceClaims=[claim("x", asked)],
        )
        plan = decide(parse(found, now=NOW.timestamp()), Settings(), deadline=time.monotonic() + FAR)
        assert not plan.decisions
        (waiting,) = plan.unscheduled
        assert (waiting.reason, waiting.proved) == ("DependencyMissing", proved)
