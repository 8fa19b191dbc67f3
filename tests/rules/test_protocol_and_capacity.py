"""Form, capacity, shared GPUs, host ports and affinity: one legal and several illegal plans each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kai_cp_models.plan import Decision
from kai_cp_models.pods import GroupKey, LabelSelector, PodAffinityTerm, PodKey, PodStatus, Requirement
from tests.support.worlds import (
    bind,
    cluster,
    evict,
    fraction,
    gpu_memory,
    group,
    judged,
    named,
    node,
    nominate,
    pod,
    pods,
    spec,
)


def test_an_empty_plan_breaks_nothing() -> None:
    """That holds even if the snapshot itself is illegal: twelve GPUs run on a node of eight."""
    assert judged(cluster(pods("a", 12, "n1"))) == []


# --- protocol ----------------------------------------------------------------------------------


def test_bind_nominate_and_move_are_well_formed() -> None:
    running = pod("c-0", "n1", spec=spec(8))
    snapshot = cluster(
        [pod("a-0"), pod("b-0", spec=spec(8)), running], nodes=[node(), node("n2"), node("n3")]
    )
    move = (evict("c-0", "consolidation", "b"), nominate("c-0", "n2", "consolidation"))
    assert judged(snapshot, bind("a-0", "n3"), *move, nominate("b-0", "n1", "consolidation")) == []


@pytest.mark.parametrize(
    ("decisions", "words"),
    [
        ([bind("x-9")], ["no such pod"]),
        ([bind("a-0", "nowhere")], ["no such node", "nowhere"]),
        ([bind("r-0")], ["Bind", "r-0", "Running"]),
        ([bind("a-0"), bind("a-0")], ["2 times"]),
        ([bind("a-0"), nominate("a-0")], ["bound and nominated"]),
        ([nominate("r-0")], ["Running", "not evicted"]),
        ([nominate("gated-0")], ["Gated"]),
        ([evict("a-0", "preempt", "b")], ["does not run", "Pending"]),
        ([evict("dying-0", "preempt", "b")], ["does not run", "Releasing"]),
        ([evict("r-0", "preempt", "b", node="n2")], ["on node n1"]),
        ([bind("a-0"), evict("a-0", "preempt", "b")], ["bound and evicted"]),
        ([bind("half-0")], ["0 GPU groups", "1 needed"]),
        ([bind("half-0", gpu_groups=("x", "x"))], ["named twice"]),
        ([bind("a-0", gpu_groups=("x",))], ["1 GPU groups", "0 needed"]),
        ([bind("a-0", group="r")], ["belongs to pod group"]),
        ([nominate("b-0", action="preempt"), bind("a-0")], ["after a later action"]),
        ([nominate("b-0", action="preempt"), evict("r-0", "preempt", "b")], ["after", "was nominated"]),
        (
            [nominate("r-0", "n2", "consolidation"), evict("r-0", "consolidation", "b")],
            ["before it is evicted"],
        ),
        ([bind("lonely-0", group=None)], ["no pod group"]),
    ],
)
def test_form_is_named(decisions: list[Decision], words: list[str]) -> None:
    snapshot = cluster(
        [
            pod("a-0"),
            pod("b-0"),
            pod("r-0", "n1"),
            pod("gated-0", status=PodStatus.GATED),
            pod("dying-0", "n1", status=PodStatus.RELEASING),
            pod("half-0", spec=fraction()),
            pod("lonely-0", group=None),
        ],
        nodes=[node(), node("n2")],
    )
    assert named(judged(snapshot, *decisions), "protocol", *words)


def test_an_action_outside_the_policy_is_named() -> None:
    snapshot = cluster([pod("a-0")], actions=("reclaim",))
    assert named(judged(snapshot, bind("a-0")), "protocol", "allocate", "not one of")


# --- capacity ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "what"),
    [(spec(3), "GPUs"), (spec(1, cpus=65), "CPUs"), (spec(1, gib=600), "GiB of memory")],
)
def test_capacity_is_counted_in_every_dimension(size: object, what: str) -> None:
    running = pods("r", 6, "n1")
    assert judged(cluster([*running, pod("a-0", spec=spec(2))]), bind("a-0")) == []
    assert named(judged(cluster([*running, pod("a-0", spec=size)]), bind("a-0")), "capacity", "n1", what)


def test_releasing_capacity_is_for_nominations_only() -> None:
    snapshot = cluster([*pods("r", 8, "n1", status=PodStatus.RELEASING), pod("a-0")])
    assert judged(snapshot, nominate("a-0")) == []
    assert named(judged(snapshot, bind("a-0")), "capacity", "9 of 8 GPUs", "now")


def test_stuck_pods_never_free_their_capacity() -> None:
    snapshot = cluster([*pods("r", 8, "n1", status=PodStatus.STUCK_IN_RELEASING), pod("a-0")])
    assert named(judged(snapshot, nominate("a-0")), "capacity", "in the end")


def test_evicted_pods_are_still_there_for_a_bind() -> None:
    low, high = group("r", priority=10), group("a", priority=60)
    snapshot = cluster([pod("r-0", "n1", spec=spec(8)), pod("a-0")], [low, high])
    assert judged(snapshot, evict("r-0", "preempt", "a"), nominate("a-0", action="preempt")) == []
    faults = judged(snapshot, evict("r-0", "preempt", "a"), bind("a-0", action="preempt"))
    assert named(faults, "capacity", "now")


def test_the_same_capacity_is_not_promised_twice() -> None:
    snapshot = cluster([*pods("r", 8, "n1", status=PodStatus.RELEASING), *pods("a", 9)])
    assert named(judged(snapshot, *(nominate(f"a-{i}") for i in range(9))), "capacity", "9 of 8 GPUs")


def test_allocate_does_not_count_on_what_is_evicted_after_it() -> None:
    snapshot = cluster([*pods("r", 8, "n1"), pod("a-0"), pod("b-0")], [group("b", priority=60)])
    gone = [evict(f"r-{i}", "preempt", "b") for i in range(8)]
    assert judged(snapshot, *gone, nominate("b-0", action="preempt"), nominate("a-0", action="preempt")) == []
    faults = judged(snapshot, nominate("a-0"), *gone, nominate("b-0", action="preempt"))
    assert named(faults, "capacity", "9 of 8 GPUs after allocate", "a-0")


def test_an_overcommitted_node_takes_nothing() -> None:
    """A pod without GPUs may go to a full node, but not to one that is over its GPU capacity (2.1)."""
    cpu_only = pod("a-0", spec=spec(0))
    assert judged(cluster([*pods("r", 8, "n1"), cpu_only]), bind("a-0")) == []
    assert named(judged(cluster([*pods("r", 9, "n1"), cpu_only]), bind("a-0")), "capacity", "9 of 8 GPUs")


def test_a_dimension_that_a_node_lacks_is_refused() -> None:
    snapshot = cluster([pod("a-0"), pod("b-0", spec=spec(0))], nodes=[node(gpus=0)])
    assert judged(snapshot, bind("b-0")) == []
    assert named(judged(snapshot, bind("a-0")), "capacity", "asks for gpu", "none")


def test_a_new_gpu_group_takes_two_pod_slots() -> None:
    snapshot = cluster([pod("a-0", spec=fraction())], nodes=[node(pods=1)])
    assert named(judged(snapshot, bind("a-0", gpu_groups=("x",))), "capacity", "2 of 1 pods")
    snapshot = cluster([pod("a-0", spec=fraction())], nodes=[node(pods=2)])
    assert judged(snapshot, bind("a-0", gpu_groups=("x",))) == []


def test_a_reservation_pod_is_charged_without_its_gpu() -> None:
    made = pod("res", "n1", group=None, reservation=True, labels={"app": "kai-resource-reservation"})
    reservation = replace(made, key=PodKey("kai-resource-reservation", "res"))
    half = pod("h-0", "n1", spec=fraction(), gpu_groups=("x",))
    snapshot = cluster([reservation, half, *pods("a", 7)])
    assert judged(snapshot, *(bind(f"a-{i}") for i in range(7))) == []
    # Any user can write the label. Whatever the engine made of the pod, the checker charges it.
    snapshot = cluster([made, half, *pods("a", 7)])
    assert named(judged(snapshot, *(bind(f"a-{i}") for i in range(7))), "capacity", "9 of 8 GPUs")


# --- shared GPUs -------------------------------------------------------------------------------


def test_a_group_holds_what_one_device_has() -> None:
    running = [pod("r-0", "n1", spec=fraction(600), gpu_groups=("x",)), *pods("w", 7, "n1")]
    fits, too_big = pod("a-0", spec=fraction(400)), pod("a-0", spec=gpu_memory(16_001))
    assert judged(cluster([*running, fits]), bind("a-0", gpu_groups=("x",))) == []
    faults = judged(cluster([*running, too_big]), bind("a-0", gpu_groups=("x",)))
    assert named(faults, "sharing", "x", "40001 MiB of 40000")


def test_a_second_group_needs_a_second_device() -> None:
    running = [pod("r-0", "n1", spec=fraction(600), gpu_groups=("x",)), *pods("w", 7, "n1")]
    faults = judged(cluster([*running, pod("a-0", spec=fraction(400))]), bind("a-0", gpu_groups=("y",)))
    assert named(faults, "capacity", "9 of 8 GPUs")


def test_a_group_that_goes_away_is_not_joined() -> None:
    leaving = pod("r-0", "n1", spec=fraction(), gpu_groups=("x",), status=PodStatus.RELEASING)
    snapshot = cluster([leaving, *pods("w", 7, "n1"), pod("a-0", spec=fraction())])
    assert judged(snapshot, nominate("a-0", gpu_groups=("y",))) == []
    assert named(judged(snapshot, nominate("a-0", gpu_groups=("x",))), "sharing", "going away")


def test_a_group_belongs_to_one_node() -> None:
    running = pod("r-0", "n1", spec=fraction(), gpu_groups=("x",))
    snapshot = cluster([running, pod("a-0", spec=fraction())], nodes=[node(), node("n2")])
    assert named(judged(snapshot, bind("a-0", "n2", gpu_groups=("x",))), "sharing", "it is on n1")


# --- host ports and affinity -------------------------------------------------------------------


def test_host_ports_clash() -> None:
    http = spec(0, host_ports=(("", "TCP", 80),))
    other = spec(0, host_ports=(("10.0.0.1", "TCP", 80),))
    third = spec(0, host_ports=(("", "UDP", 80),))
    snapshot = cluster([pod("r-0", "n1", spec=http), pod("a-0", spec=other), pod("b-0", spec=third)])
    assert judged(snapshot, bind("b-0")) == []
    assert named(judged(snapshot, bind("a-0")), "ports", "80")


def _term(app: str, key: str = "zone") -> PodAffinityTerm:
    return PodAffinityTerm(LabelSelector((Requirement("app", "In", (app,)),)), key, ("ns",))


ZONES = [node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"}), node("n3", labels={"zone": "a"})]


def test_anti_affinity_is_symmetric() -> None:
    shy = pod("r-0", "n1", spec=spec(pod_anti_affinity=(_term("web"),)))
    web = pod("a-0", labels={"app": "web"})
    snapshot = cluster([shy, web], nodes=ZONES)
    assert judged(snapshot, bind("a-0", "n2")) == []
    assert named(judged(snapshot, bind("a-0", "n3")), "affinity", "anti-affinity of ns/r-0")
    snapshot = cluster([pod("a-0", "n1", labels={"app": "web"}), pod("b-0", spec=shy.spec)], nodes=ZONES)
    assert judged(snapshot, bind("b-0", "n2")) == []
    assert named(judged(snapshot, bind("b-0", "n3")), "affinity", "anti-affinity of ns/b-0")


def test_affinity_wants_company_but_the_first_may_come() -> None:
    near = spec(pod_affinity=(_term("web"),))
    lead = pod("r-0", "n1", labels={"app": "web"})
    snapshot = cluster([lead, pod("a-0", spec=near)], nodes=ZONES)
    assert judged(snapshot, bind("a-0", "n3")) == []
    assert named(judged(snapshot, bind("a-0", "n2")), "affinity", "zone=b")
    pair = [pod(f"a-{i}", spec=near, labels={"app": "web"}) for i in range(2)]
    snapshot = cluster(pair, [group("a", 2)], nodes=ZONES)
    assert judged(snapshot, bind("a-0", "n1"), bind("a-1", "n3")) == []
    assert named(judged(snapshot, bind("a-0", "n1"), bind("a-1", "n2")), "affinity", "finds no pod")


def test_rules_of_an_inactive_plugin_do_not_hold() -> None:
    http = spec(0, host_ports=(("", "TCP", 80),))
    snapshot = cluster(
        [pod("r-0", "n1", spec=http), pod("a-0", spec=http)], plugins=frozenset({"proportion"})
    )
    assert judged(snapshot, bind("a-0")) == []


def test_a_decision_names_the_group_of_its_pod() -> None:
    decision = Decision("Bind", PodKey("ns", "a-0"), GroupKey("other", "a"), "n1", "allocate")
    assert named(judged(cluster([pod("a-0")]), decision), "belongs to pod group ns/a")
