"""Preempt on worlds that no recorded case covers: min runtime, limits, withdrawn triggers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kai_cp_models.plan import REJECTED
from kai_cp_models.pods import LabelSelector, PodAffinityTerm, PodStatus, Requirement
from kai_cp_models.snapshot import Queue, Shares, Snapshot
from tests.support import tiny
from tests.support.plans import SETTINGS, bound, evicted, lost, nominated, placed, reasons, solved
from tests.support.worlds import (
    NOW,
    PLUGINS,
    cluster,
    fraction,
    gpu_bound,
    group,
    node,
    pod,
    pods,
    queue,
    spec,
)

ACTIONS = ("allocate", "preempt")


def world(*queues: Queue, minimum: int = 8, **more: Any) -> Snapshot:
    """A group of priority 10 has held all 8 GPUs for 100 s; one of priority 60 asks for one."""
    return cluster(
        [*pods("v", 8, "n1"), pod("t-0")],
        [group("v", minimum, priority=10, last_start=NOW - 100), group("t", priority=60)],
        queues=queues,
        **{"actions": ACTIONS, **more},
    )


def test_a_gang_goes_as_a_whole_and_an_elastic_one_shrinks() -> None:
    assert lost(solved(world())) == {f"v-{i}" for i in range(8)}
    assert lost(solved(world(minimum=1))) == {"v-7"}


@pytest.mark.parametrize("created", [-1.0, 5.0, 20.0])
def test_no_running_group_makes_way_for_one_of_its_own_priority(created: float) -> None:
    """t may stop x on n1 or y on n2, of its queue and below it; w, as high as these, only z, which is of no
    use to it. So t takes one of their nodes, and w none.
    """
    there = {"node_selector": (("zone", "a"),)}
    members = [
        *(pod(f"{name}-0", node, spec=spec(4)) for name, node in zip("xyz", ("n1", "n2", "n3"), strict=True)),
        *(pod(f"{name}-0", spec=spec(4, **there)) for name in "wt"),
    ]
    ages = {"x": 10.0, "y": 11.0, "w": created}
    groups = [group(name, priority=50, created=age) for name, age in ages.items()]
    groups += [group("z", priority=10), group("t", priority=90)]
    zones = {"n1": "a", "n2": "a", "n3": "b"}
    nodes = [node(name, gpus=4, labels={"zone": zone}) for name, zone in zones.items()]
    plan = solved(cluster(members, groups, nodes, actions=ACTIONS))
    assert (len(lost(plan)), set(nominated(plan))) == (1, {"t-0"})
    assert lost(plan) <= {"x-0", "y-0"}


def leaf(name: str, parent: str | None = None, seconds: float | None = None) -> Queue:
    return queue(name, parent, preempt_min_runtime_seconds=seconds)


RUNTIMES: list[tuple[str, tuple[Queue, ...], dict[str, Any], bool]] = [
    ("the default protects", (), {"default_preempt_min_runtime_seconds": 101.0}, False),
    ("until it is over", (), {"default_preempt_min_runtime_seconds": 100.0}, True),
    ("the reclaim value is another one", (), {"default_reclaim_min_runtime_seconds": 1000.0}, True),
    ("the leaf's value", (leaf("q", None, 200),), {}, False),
    ("the nearest value: the leaf's", (leaf("d", None, 200), leaf("q", "d", 0)), {}, True),
    ("the nearest value: the parent's", (leaf("d", None, 200), leaf("q", "d")), {}, False),
]


@pytest.mark.parametrize(
    ("queues", "policy", "taken"), [x[1:] for x in RUNTIMES], ids=[x[0] for x in RUNTIMES]
)
def test_min_runtime(queues: tuple[Queue, ...], policy: dict[str, Any], taken: bool) -> None:
    assert bool(evicted(solved(world(*queues, **policy)))) is taken


def test_a_protected_elastic_group_gives_up_surplus_only() -> None:
    """Minimum 7 of 8, and the trigger asks for 2 pods: one surplus pod is not enough, and the others
    are protected.
    """
    snapshot = cluster(
        [*pods("v", 8, "n1"), *pods("t", 2)],
        [group("v", 7, priority=10, last_start=NOW - 100), group("t", 2, priority=60)],
        actions=ACTIONS,
        default_preempt_min_runtime_seconds=200.0,
    )
    assert evicted(solved(snapshot)) == set()
    assert lost(solved(world(minimum=7, default_preempt_min_runtime_seconds=200.0))) == {"v-7"}


VICTIMS: list[tuple[str, dict[str, Any], dict[str, Any], bool]] = [
    ("strictly lower priority", {"priority": 59}, {"priority": 60}, True),
    ("not equal", {"priority": 60}, {"priority": 60}, False),
    ("not higher", {"priority": 70}, {"priority": 60}, False),
    ("not what is non-preemptible", {"priority": 10, "preemptible": False}, {"priority": 60}, False),
    ("not of another queue", {"priority": 10, "queue": "r"}, {"priority": 60}, False),
    ("for a non-preemptible trigger too", {"priority": 10}, {"priority": 120, "preemptible": False}, True),
]


@pytest.mark.parametrize(
    ("victim", "trigger", "taken"), [x[1:] for x in VICTIMS], ids=[x[0] for x in VICTIMS]
)
def test_which_victims_may_be_taken(victim: dict[str, Any], trigger: dict[str, Any], taken: bool) -> None:
    snapshot = cluster(
        [*pods("v", 8, "n1"), pod("t-0")],
        [group("v", **victim), group("t", **trigger)],
        queues=[queue("q"), queue("r")],
        actions=ACTIONS,
    )
    assert bool(evicted(solved(snapshot))) is taken


def test_victims_free_the_queue_s_limit() -> None:
    """8 GPUs, 4 idle; the queue may hold 4. The place is idle, but the limit is not free yet."""
    snapshot = cluster(
        [pod("v-0", "n1", spec=spec(4)), pod("t-0", spec=spec(4))],
        [group("v", priority=10), group("t", priority=60)],
        queues=[queue("q", limit=gpu_bound(4))],
        actions=ACTIONS,
    )
    plan = solved(snapshot)
    assert lost(plan) == {"v-0"}
    assert set(nominated(plan)) == {"t-0"}
    assert bound(plan) == {}


GOES, STUCK = PodStatus.RELEASING, PodStatus.STUCK_IN_RELEASING
LIMIT, QUOTA = {"limit": gpu_bound(4)}, {"quota": gpu_bound(4)}


@pytest.mark.parametrize(
    ("status", "bounds", "of_old", "outcome"),
    [
        (GOES, LIMIT, {"queue": "q"}, "nominated"),
        (GOES, LIMIT, {"queue": "sibling"}, "nominated"),
        (GOES, LIMIT, {"queue": "other"}, "bound"),
        (GOES, QUOTA, {"queue": "q", "preemptible": False}, "nominated"),
        (GOES, QUOTA, {"queue": "q", "preemptible": True}, "bound"),
        (GOES, {}, {"queue": "q"}, "bound"),
        (STUCK, LIMIT, {"queue": "q"}, "OverLimit"),
        (STUCK, LIMIT, {"queue": "sibling"}, "OverLimit"),
        (STUCK, LIMIT, {"queue": "other"}, "bound"),
        (STUCK, QUOTA, {"queue": "q", "preemptible": False}, "NonPreemptibleOverQuota"),
        (STUCK, QUOTA, {"queue": "q", "preemptible": True}, "bound"),
    ],
)
def test_pods_that_terminate_count_in_bounds(
    status: PodStatus, bounds: dict[str, Any], of_old: dict[str, Any], outcome: str
) -> None:
    """old terminates on 4 of 8 GPUs; t needs the others. ``bounds``: of the queue above q and its sibling."""
    queues = [queue("top", **bounds), queue("q", "top"), queue("sibling", "top"), queue("other")]
    snapshot = cluster(
        [pod("old-0", "n1", spec=spec(4), status=status), pod("t-0", spec=spec(4))],
        [group("old", **of_old), group("t", preemptible=False)],
        queues=queues,
        actions=ACTIONS,
    )
    plan = solved(snapshot)
    found = {"bound": set(bound(plan)), "nominated": set(nominated(plan))}
    if outcome in found:
        assert found[outcome] == {"t-0"}
    else:
        assert reasons(plan) == {"t": outcome}


def test_non_preemptible_quota_is_not_freed_by_preemptible_victims() -> None:
    """Non-preemptible pods hold all of the quota of 4, so a non-preemptible trigger may not exceed it."""
    snapshot = cluster(
        [pod("a-0", "n1", spec=spec(4)), pod("v-0", "n1", spec=spec(4)), pod("t-0", spec=spec(4))],
        [
            group("a", priority=120, preemptible=False),
            group("v", priority=10),
            group("t", priority=130, preemptible=False),
        ],
        queues=[queue("q", quota=gpu_bound(4))],
        actions=ACTIONS,
    )
    plan = solved(snapshot)
    assert plan.decisions == ()
    assert reasons(plan) == {"t": "NonPreemptibleOverQuota"}


def test_lowest_priority_first() -> None:
    snapshot = cluster(
        [pod("u-0", "n1", spec=spec(4)), pod("v-0", "n1", spec=spec(4)), pod("t-0", spec=spec(4))],
        [group("u", priority=30), group("v", priority=20), group("t", priority=60)],
        actions=ACTIONS,
    )
    assert lost(solved(snapshot)) == {"v-0"}


def test_the_newest_of_equal_ones_first() -> None:
    snapshot = cluster(
        [pod("u-0", "n1", spec=spec(4)), pod("v-0", "n1", spec=spec(4)), pod("t-0", spec=spec(4))],
        [group("u", created=1.0), group("v", created=2.0), group("t", priority=60)],
        actions=ACTIONS,
    )
    assert lost(solved(snapshot)) == {"v-0"}


# --- across actions (formulation 1.5) -------------------------------------------------------------


def test_a_place_of_this_cycle_is_withdrawn_not_evicted() -> None:
    """n1 has 4 free beside v. Allocate gives them to l; h needs all 8 and has a higher priority than
    both. v is evicted; l gets no decision at all, and its message says why it waits.
    """
    snapshot = cluster(
        [pod("v-0", "n1", spec=spec(4)), pod("l-0", spec=spec(4)), pod("h-0", spec=spec(8))],
        [group("v", priority=10), group("l", priority=20), group("h", priority=60)],
        actions=ACTIONS,
    )
    plan = solved(snapshot)
    assert evicted(plan) == {"v-0"}
    assert placed(plan) == {"h-0"}
    assert reasons(plan) == {"l": "Withdrawn"}


def test_a_place_on_a_shared_gpu_that_a_pod_has_joined_is_not_withdrawn() -> None:
    """Allocate puts l on the GPU of r. In queue a, t takes the part of r and joins the GPU, which stays
    because of l. In queue b, u would find room in the place of l as well; then the GPU that t joined
    would go away.
    """
    portions = {"l": 200, "t": 500, "u": 500}
    snapshot = cluster(
        [
            pod("r-0", "n1", spec=fraction(600), gpu_groups=["d"]),
            *(pod(f"{name}-0", spec=fraction(portion)) for name, portion in portions.items()),
        ],
        [
            group("r", queue="a", priority=10),
            group("l", queue="b", priority=20),
            group("t", queue="a", priority=60),
            group("u", queue="b", priority=60),
        ],
        [node(gpus=1)],
        [queue("a", priority=200), queue("b")],
        actions=ACTIONS,
    )
    plan = solved(snapshot)
    assert lost(plan) == {"r-0"}
    assert placed(plan) == {"l-0", "t-0"}


def test_two_actions_serve_a_queue_each_in_its_own_way() -> None:
    """t of q needs 4 GPUs of n1, where v holds 8 and is due 4: reclaim. h of q needs all of n2, where u
    of its own queue holds 4: preempt. Every pod is tied to its node, so the plans do not meet.
    """
    on = {name: (("host", name),) for name in ("n1", "n2")}
    snapshot = cluster(
        [
            *pods("v", 8, "n1", spec=spec(node_selector=on["n1"])),
            pod("u-0", "n2", spec=spec(4)),
            pod("t-0", spec=spec(4, node_selector=on["n1"])),
            pod("h-0", spec=spec(8, node_selector=on["n2"])),
        ],
        [
            group("v", queue="v"),
            group("u", priority=10),
            group("t", priority=20),
            group("h", priority=60),
        ],
        [node(name, labels={"host": name}) for name in ("n1", "n2")],
        [queue("q", quota=gpu_bound(12)), queue("v", quota=gpu_bound(4))],
        actions=("allocate", "reclaim", "preempt"),
    )
    plan = solved(snapshot)
    assert placed(plan) == {"t-0", "h-0"}
    assert evicted(plan) == {"u-0", "v-4", "v-5", "v-6", "v-7"}


def test_a_move_for_a_withdrawn_trigger_is_inherited() -> None:
    """Consolidation frees a node for l, which then loses it to h of higher priority. n1 holds m (2) and
    n2 v (6): one of them moves to the other node, and l is nominated. h needs 8, too; it is not
    preemptible, so consolidation does not serve it. h takes the node of l, whose place is withdrawn.
    The moved group is of h's queue and of lower priority, so the move is now for h.
    """
    snapshot = cluster(
        [
            pod("m-0", "n1", spec=spec(2)),
            pod("v-0", "n2", spec=spec(6)),
            pod("l-0", spec=spec(8)),
            pod("h-0", spec=spec(8)),
        ],
        [
            group("m", priority=40),
            group("v", priority=40),
            group("l", priority=20),
            group("h", priority=120, preemptible=False),
        ],
        [node("n1"), node("n2")],
        actions=("allocate", "consolidation", "preempt"),
    )
    plan = solved(snapshot)
    assert placed(plan) == {"h-0"}
    assert len(evicted(plan)) == 1
    assert lost(plan) == set()
    assert {d.triggers for d in plan.decisions if d.kind == "Evict"} == {
        tuple(g.key for g in snapshot.groups if g.key.name == "h")
    }


def test_a_place_stays_for_which_the_trigger_may_not_move_others() -> None:
    """As above, but the movable groups are of another queue: preempt for h may not disturb them, so l keeps
    the place that was cleared for it.
    """
    snapshot = cluster(
        [
            pod("m-0", "n1", spec=spec(2)),
            pod("v-0", "n2", spec=spec(6)),
            pod("l-0", spec=spec(8)),
            pod("h-0", spec=spec(8)),
        ],
        [
            group("m", queue="other", priority=40),
            group("v", queue="other", priority=40),
            group("l", priority=20),
            group("h", priority=120, preemptible=False),
        ],
        [node("n1"), node("n2")],
        [queue("q"), queue("other")],
        actions=("allocate", "consolidation", "preempt"),
    )
    plan = solved(snapshot)
    assert placed(plan) == {"l-0"}
    assert lost(plan) == set()
    assert not any(stage.kind == REJECTED for stage in plan.stages)


# --- queue by queue (4.5) -------------------------------------------------------------------------


def two_queues(**more: Any) -> Snapshot:
    """Queue a runs 12 of 16 GPUs, and ta (4) waits; queue b runs 4, and tb (2) waits; each is due 8. va
    in a (4 GPUs) and vb in b (2 GPUs) have priority 10; all other running groups have a higher
    priority than the triggers.
    """
    return cluster(
        [
            pod("wa-0", "n1", spec=spec(8)),
            pod("va-0", "n2", spec=spec(4)),
            pod("wb-0", "n2", spec=spec(2)),
            pod("vb-0", "n2", spec=spec(2)),
            pod("ta-0", spec=spec(4)),
            pod("tb-0", spec=spec(2)),
        ],
        [
            group("wa", queue="a", priority=70),
            group("va", queue="a", priority=10),
            group("wb", queue="b", priority=70),
            group("vb", queue="b", priority=10),
            group("ta", queue="a", priority=60),
            group("tb", queue="b", priority=60),
        ],
        [node("n1"), node("n2")],
        [queue("a", quota=gpu_bound(8)), queue("b", quota=gpu_bound(8))],
        actions=("preempt",),
        **more,
    )


def test_two_queues_preempt_in_one_cycle() -> None:
    """b holds less than it is due. If all were evicted at once, the fair order would be tb, vb, ta, and
    vb would return to the place of va. But a loses va to its own priorities, and b, which may take
    nothing from a by preemption, has no part in that.
    """
    plan = solved(two_queues())
    assert placed(plan) == {"ta-0", "tb-0"}
    assert lost(plan) == {"va-0", "vb-0"}
    triggers = {d.pod.name: [key.name for key in d.triggers] for d in plan.decisions if d.kind == "Evict"}
    assert triggers == {"va-0": ["ta"], "vb-0": ["tb"]}


def test_a_queue_without_a_plan_does_not_stop_the_other() -> None:
    """tb asks for 4, and b can free 2 for it: refused. a preempts nevertheless."""
    snapshot = two_queues()
    larger = [replace(p, spec=spec(4)) if p.key.name == "tb-0" else p for p in snapshot.pods]
    plan = solved(replace(snapshot, pods=tuple(larger)))
    assert placed(plan) == {"ta-0"}
    assert lost(plan) == {"va-0"}
    assert [u.group.name for u in plan.unscheduled] == ["tb"]


# --- a large gang for a small trigger (formulation 1.4) -----------------------------------------------------


def gang_or_single(pods_of_gang: int, size: int) -> Snapshot:
    """A gang on whole nodes, younger than a job of one GPU on n0; t asks for one GPU. Both have
    priority 10 and the same elastic state; all other pods on n0 have a higher priority than the
    trigger.
    """
    return cluster(
        [
            *(pod(f"gang-{i}", f"n{1 + i * size // 8}", spec=spec(size)) for i in range(pods_of_gang)),
            pod("single-0", "n0"),
            pod("rest-0", "n0", spec=spec(7)),
            pod("t-0"),
        ],
        [
            group("gang", pods_of_gang, priority=10, created=2.0),
            group("single", priority=10, created=1.0),
            group("rest", priority=70),
            group("t", priority=60),
        ],
        [node(f"n{i}") for i in range(1 + pods_of_gang * size // 8)],
        actions=ACTIONS,
    )


STEPS: list[tuple[str, int, int, int, bool]] = [
    # (what, pods of the gang, GPUs of each, the setting, whether the gang is evicted)
    ("64 GPUs for one are seven steps of 8 too many", 8, 8, 8, False),
    ("not a step of 64", 8, 8, 64, True),
    ("63 are a step of 63", 8, 8, 63, False),
    ("8 for one are no step of 8: age decides", 8, 1, 8, True),
    ("16 are one", 16, 1, 8, False),
    ("with steps of one GPU 2 are too many", 2, 4, 1, False),
]


@pytest.mark.parametrize(
    ("members", "size", "step", "gang"), [x[1:] for x in STEPS], ids=[x[0] for x in STEPS]
)
def test_a_large_gang_is_not_stopped_because_it_is_younger(
    members: int, size: int, step: int, gang: bool
) -> None:
    objective = SETTINGS.objective.model_copy(update={"lost_beyond_step_gpus": step})
    plan = solved(gang_or_single(members, size), SETTINGS.model_copy(update={"objective": objective}))
    assert placed(plan) == {"t-0"}
    assert lost(plan) == ({f"gang-{i}" for i in range(members)} if gang else {"single-0"})


def test_priority_comes_before_size() -> None:
    """A single job of a higher priority than the gang is not evicted instead of it, however large the
    gang.
    """
    snapshot = gang_or_single(8, 8)
    groups = [replace(g, priority=11) if g.key.name == "single" else g for g in snapshot.groups]
    plan = solved(replace(snapshot, groups=tuple(groups)))
    assert lost(plan) == {f"gang-{i}" for i in range(8)}


def test_a_pod_that_never_ran_goes_before_a_running_one() -> None:
    """Consolidation frees n1 for w; t, which consolidation does not serve, then needs a whole node. w
    has waited for long and v has run for seconds only, but withdrawing the place of w stops no pod.
    """
    members = [
        pod("a-0", "n1"),
        pod("full-0", "n2", spec=spec(7)),
        pod("v-0", "n3", spec=spec(8)),
        pod("w-0", spec=spec(8)),
        pod("t-0", spec=spec(8)),
    ]
    groups = [
        group("full", preemptible=False),
        group("v", priority=10, last_start=NOW - 10),
        group("w", priority=10),
        group("t", priority=60, preemptible=False),
    ]
    snapshot = cluster(
        members,
        groups,
        [node(f"n{i}") for i in (1, 2, 3)],
        actions=("allocate", "consolidation", "preempt"),
        plugins=PLUGINS | {"nodeplacement", "nodeavailability"},
    )
    plan = solved(snapshot)
    assert placed(plan) == {"t-0"}
    assert lost(plan) == set()
    assert reasons(plan) == {"w": "Withdrawn"}


@pytest.mark.parametrize("others", [0, 1])
def test_a_nominated_pod_keeps_what_it_needs_beside_it(others: int, caplog: pytest.LogCaptureFixture) -> None:
    """b waits for the GPU that r leaves, beside a, which its affinity needs. So t may not take a, which would
    go first; with another victim it takes that one."""
    company = PodAffinityTerm(LabelSelector((Requirement("app", "In", ("a",)),)), "host", None, 0)
    members = [
        pod("a-0", "n1", labels={"app": "a"}),
        pod("r-0", "n1", status=PodStatus.RELEASING),
        pod("b-0", spec=spec(1, pod_affinity=(company,))),
        *pods("v", others, "n2"),
        pod("t-0"),
    ]
    priorities = {"a": 10, "v": 20, "t": 60, "b": 70}
    nodes = [node(name, gpus=count, labels={"host": name}) for name, count in (("n1", 2), ("n2", 1))]
    groups = [group(name, priority=priority) for name, priority in priorities.items()]
    plan = solved(cluster(members, groups, nodes[: 1 + others], actions=ACTIONS))
    assert caplog.messages == []
    assert nominated(plan) == {"b-0": "n1"} | ({"t-0": "n2"} if others else {})
    assert evicted(plan) == ({"v-0"} if others else set())


@pytest.mark.parametrize(("pinned", "stops"), [(False, "v"), (True, "r")])
def test_a_right_to_one_victim_is_none_to_the_others(*, pinned: bool, stops: str) -> None:
    """h outranks all; w outranks only v, which holds 4 of the 8 GPUs that w needs. If r, u and v stopped for
    both, u would stop for w, which has its priority. h alone needs v, or r where it fits only n0.
    """
    only = {"nodeSelector": {"at": "0"}} if pinned else {}
    snapshot = tiny.world(
        [tiny.node("n0", gpus=4, labels={"at": "0"}), tiny.node("n1", gpus=8)],
        [
            *(tiny.pod("w", gpus=8), tiny.pod("h", gpus=4, priority="build-preemptible", **only)),
            *(tiny.pod("r", "n0", gpus=4), tiny.pod("u", "n1", gpus=4)),
            tiny.pod("v", "n1", gpus=4, priority="low"),
        ],
        actions="allocate, preempt",
    )
    plan = solved(snapshot)
    assert (lost(plan), placed(plan)) == ({stops}, {"h"})


def test_a_gang_that_moves_a_pod_for_the_first_moves_no_other_for_one_without_a_right(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """h outranks the gang v, of which v-0 moves for it. w outranks only z, which helps it in sum, but on n4 x
    stays; on n2 it would take the place of v-1, which has no reason to move but w."""
    at = [{"node_selector": (("at", name),)} for name in "ab"]
    members = [
        *(pod("v-0", "n1"), pod("v-1", "n2", spec=spec(2)), pod("x-0", "n4"), pod("z-0", "n4")),
        *(pod("h-0", spec=spec(**at[0])), pod("w-0", spec=spec(2, **at[1]))),
    ]
    priorities = {"h": 90, "w": 50, "x": 50, "z": 10}
    groups = [group("v", 2, priority=50), *(group(name, priority=p) for name, p in priorities.items())]
    sizes = {"n1": (1, "a"), "n2": (2, "b"), "n3": (3, "c"), "n4": (2, "b")}
    nodes = [node(name, gpus=gpus, labels={"at": zone}) for name, (gpus, zone) in sizes.items()]
    plan = solved(cluster(members, groups, nodes, actions=ACTIONS))
    assert (placed(plan), evicted(plan), caplog.messages) == ({"h-0"}, {"v-0"}, [])


@pytest.mark.parametrize("elsewhere", [0, 4])
@pytest.mark.parametrize("resource", ["cpu", "nvidia.com/gpu"])
def test_idle_capacity_elsewhere_gives_no_right(resource: str, elsewhere: int) -> None:
    """As before, beside nodes with one idle GPU each, which w cannot use, or with pods that ask for CPUs."""

    def asks(count: int) -> dict[str, Any]:
        return {"requests": {"cpu": "0", "memory": "1Gi", resource: str(count)}}

    snapshot = tiny.world(
        [
            *(
                tiny.node(f"n{i}", {"cpu": str(size), "nvidia.com/gpu": str(size)})
                for i, size in enumerate((4, 8))
            ),
            *(tiny.node(f"x{i}", {"cpu": "1", "nvidia.com/gpu": "1"}) for i in range(elsewhere)),
        ],
        [
            *(tiny.pod("w", **asks(8)), tiny.pod("h", priority="build-preemptible", **asks(4))),
            *(tiny.pod("r", "n0", **asks(4)), tiny.pod("u", "n1", **asks(4))),
            tiny.pod("v", "n1", priority="low", **asks(4)),
        ],
        actions="allocate, preempt",
    )
    plan = solved(snapshot)
    assert (lost(plan), placed(plan)) == ({"v"}, {"h"})


@pytest.mark.parametrize(
    ("priority", "gpus"), [("train", 4), ("build-preemptible", 4), ("build-preemptible", 8)]
)
def test_a_right_is_not_lent_to_others(priority: str, gpus: int) -> None:
    """h outranks r and v, w only r. Where h took v so that w gets r, v would stop for w, which has no right
    to it.
    """
    snapshot = tiny.world(
        [tiny.node("n0", gpus=4), tiny.node("n1", gpus=gpus)],
        [
            *(tiny.pod("w", gpus=4), tiny.pod("h", gpus=4, priority="build")),
            *(tiny.pod("r", "n0", gpus=4, priority="low"), tiny.pod("v", "n1", gpus=gpus, priority=priority)),
        ],
        actions="allocate, preempt",
    )
    plan = solved(snapshot)
    assert (lost(plan), placed(plan)) == ({"r"}, {"h"})


def test_a_group_that_lost_its_pods_to_the_first_asks_anew(caplog: pytest.LogCaptureFixture) -> None:
    """As before; r would also start a second pod, which it may no more once h has stopped the first."""
    low: dict[str, Any] = {"group": "r", "priority": "low", "gpus": 4}
    snapshot = tiny.world(
        [tiny.node("n0", gpus=4), tiny.node("n1", gpus=4)],
        [
            *(tiny.pod("w", gpus=4), tiny.pod("h", gpus=4, priority="build")),
            *(tiny.pod("r-0", "n0", **low), tiny.pod("r-1", **low), tiny.pod("v", "n1", gpus=4)),
        ],
        actions="allocate, preempt",
    )
    plan = solved(snapshot)
    assert (lost(plan), placed(plan), caplog.messages) == ({"r-0"}, {"h"}, [])


def test_a_group_whose_place_goes_to_another_takes_what_it_may_itself() -> None:
    """Allocate gives w the idle GPU of n1, which t needs with that of x; w may stop y as well."""
    there = {"node_selector": (("zone", "a"),)}
    members = [pod("x-0", "n1"), pod("y-0", "n2"), pod("t-0", spec=spec(2, **there)), pod("w-0")]
    groups = [group(name, priority=p) for name, p in (("x", 10), ("y", 20), ("t", 100), ("w", 50))]
    plan = solved(
        cluster(
            members, groups, [node("n1", gpus=2, labels={"zone": "a"}), node("n2", gpus=1)], actions=ACTIONS
        )
    )
    assert nominated(plan).keys() == {"t-0", "w-0"}
    assert lost(plan) == {"x-0", "y-0"}


def test_no_pod_moves_for_what_fits_beside_it_only_to_serve_one_without_a_right_to_it() -> None:
    """t fits without evictions. For u x might move off n2; but u may stop y alone, so it does, the eviction
    names it, and t starts now."""
    members = [
        *pods("t", 2, spec=spec(2)),
        *(
            pod(f"{name}-0", at, spec=spec(n))
            for name, at, n in (("y", "n3", 2), ("x", "n2", 1), ("z", "n3", 1))
        ),
        pod("u-0", spec=spec(2)),
    ]
    groups = [group(name, priority=p) for name, p in (("y", 40), ("x", 50), ("z", 50), ("u", 45))]
    nodes = [node(f"n{i}", gpus=gpus) for i, gpus in ((1, 3), (2, 4), (3, 3))]
    snapshot = cluster(members, [group("t", 2, priority=90), *groups], nodes, actions=("preempt",))
    plan = solved(snapshot)
    assert (set(bound(plan)), set(nominated(plan)), lost(plan)) == ({"t-0", "t-1"}, {"u-0"}, {"y-0"})
    assert [d.triggers for d in plan.decisions if d.kind == "Evict"] == [(group("u").key,)]


def test_left_overs_of_reclaim_were_not_there_when_it_began() -> None:
    """t stops x in their queue. g is within its share only without x, which gets a place again from what the
    large v leaves over; so that place is reclaim's, and the checker counts it as such."""
    at = [{"node_selector": (("zone", name),)} for name in ("n1", "n2")]
    members = [
        *(pod("x-0", "n1"), pod("v-0", "n2", spec=spec(3))),
        *(pod("t-0", spec=spec(**at[0])), pod("g-0", spec=spec(**at[1]))),
    ]
    groups = [
        group("x"),
        group("t", priority=75),
        group("g", priority=40),
        group("v", queue="r", priority=10),
    ]
    none = Shares(1, 1, 0)
    queues = [
        queue("q", quota=gpu_bound(2), weight=none),
        queue("r", quota=gpu_bound(0), weight=none),
    ]
    nodes = [node(name, gpus=gpus, labels={"zone": name}) for name, gpus in (("n1", 1), ("n2", 3))]
    order = ("preempt", "reclaim")
    plan = solved(cluster(members, groups, nodes, queues, actions=order))
    assert (placed(plan), lost(plan)) == ({"t-0", "g-0"}, {"v-0"})
    assert {d.action for d in plan.decisions if d.pod.name == "x-0"} == {"preempt", "reclaim"}


def test_no_pod_of_preempt_comes_home_to_a_queue_that_would_then_have_reclaimed_too_much() -> None:
    """g-0 stops x in their queue, g-1 reclaims the gang v, which leaves over the GPU of x; with x there, g-1
    would be beyond the share of its queue."""
    members = [
        *(pod("x-0", "n1"), pod("v-0", "n1"), pod("v-1", "n2")),
        *(pod(f"g-{i}", spec=spec(node_selector=(("zone", f"n{i + 1}"),))) for i in range(2)),
    ]
    groups = [
        group("x", queue="r", priority=10),
        group("v", 2, priority=10),
        group("g", queue="r", priority=75),
    ]
    none = Shares(1, 1, 0)
    queues = [queue(name, quota=gpu_bound(gpus), weight=none) for name, gpus in (("q", 0), ("r", 2))]
    nodes = [node(name, gpus=gpus, labels={"zone": name}) for name, gpus in (("n1", 2), ("n2", 1))]
    plan = solved(cluster(members, groups, nodes, queues, actions=("preempt", "reclaim")))
    assert (placed(plan), lost(plan)) == ({"g-0", "g-1"}, {"x-0", "v-0", "v-1"})
