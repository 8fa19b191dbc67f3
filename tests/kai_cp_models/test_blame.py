"""Who pays for a fault is told by objects: names that occur in sentences, or in other names, mean nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pytest

from kai_cp_models import engine
from kai_cp_models.actions import asking
from kai_cp_models.blame import breaking, for_group, raised_for
from kai_cp_models.check import PlannedCluster, Violation, audit
from kai_cp_models.check.audit import SUBJECTS
from kai_cp_models.cycle import Cycle
from kai_cp_models.engine import decide
from kai_cp_models.limits import LIMITS
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GroupKey, Pod, PodSpec, PodStatus
from kai_cp_models.rules.stateful import ports
from kai_cp_models.rules.stateful.ports import PortState
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Shares, Snapshot
from kai_cp_models.units import Gang
from tests.support.plans import evicted, placed, reasons
from tests.support.worlds import (
    PLUGINS,
    bind,
    cluster,
    evict,
    gpu_bound,
    group,
    node,
    nominate,
    plan,
    pod,
    queue,
    spec,
)

NAMES = ("queue", "limit", "node", "pod", "pod-1", "pod-10", "capacity", "quota", "reclaim")
"""Words of the sentences, and beginnings of each other. Every name is a queue, a node and a pod group."""
SETTINGS = Settings()
ONE_GPU = spec(1)


def key(name: str) -> GroupKey:
    return GroupKey("ns", name)


def blamed(faults: Iterable[Violation], snapshot: Snapshot, given: Plan, before: Plan) -> frozenset[GroupKey]:
    """Who pays, as the engine asks it."""

    def mended_without(groups: Collection[GroupKey]) -> bool:
        return not audit(snapshot, PlannedCluster(snapshot, given).plan_without(groups))

    return breaking(faults, snapshot, given, before, mended_without)


def named(**limits: Shares) -> Snapshot:
    return cluster(
        [pod(f"{name}-0", spec=spec(1)) for name in NAMES],
        [group(name, queue=name) for name in NAMES],
        [node(name, gpus=1) for name in NAMES],
        [queue(name, limit=limits.get(name, Shares(-1, -1, -1))) for name in NAMES],
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_queue_over_its_limit_blames_the_group_that_got_the_last_place(name: str) -> None:
    """Every queue gets one GPU; one may hold none."""
    snapshot = named(**{name: Shares(-1, -1, 0)})
    given = plan(*(bind(f"{each}-0", each) for each in NAMES))
    faults = audit(snapshot, given)
    assert {fault.queue for fault in faults} == {name}
    assert blamed(faults, snapshot, given, Plan()) == {key(name)}


@pytest.mark.parametrize("name", NAMES)
def test_a_node_over_its_capacity_blames_the_group_that_came_last(name: str) -> None:
    """Two pods are put on a node with one GPU; the second was not there before."""
    snapshot = named()
    other = next(each for each in NAMES if each != name)
    given = plan(*(bind(f"{each}-0", name if each == other else each) for each in NAMES))
    first = [one for one in given.decisions if one.pod.name != f"{other}-0"]
    faults = audit(snapshot, given)
    assert {fault.node for fault in faults} == {name}
    assert blamed(faults, snapshot, given, Plan(tuple(first))) == {key(other)}


@pytest.mark.parametrize("last", ["x", "y", "z"])
def test_a_full_node_blames_the_group_without_which_nothing_is_wrong(last: str) -> None:
    """x takes 6 of 4 GPUs; y and z, which have one each, fit without it, in whatever order they came."""
    order = [name for name in "xyz" if name != last] + [last]
    snapshot = cluster(
        [pod(f"{name}-0", spec=spec(6 if name == "x" else 1)) for name in order],
        [group(name) for name in order],
        [node("n1", gpus=4)],
    )
    given = plan(*(bind(f"{name}-0") for name in order))
    assert blamed(audit(snapshot, given), snapshot, given, Plan()) == {key("x")}


def test_of_two_triggers_only_the_one_without_a_right_pays() -> None:
    """u may not take v; for t alone the eviction is lawful."""
    snapshot = cluster(
        [pod("v-0", "n1", spec=spec(2)), pod("t-0", spec=ONE_GPU), pod("u-0", spec=ONE_GPU)],
        [group("v", priority=40), group("t", priority=60), group("u", priority=10)],
        [node("n1", gpus=2)],
        [queue("q")],
    )
    places = nominate("t-0", action="preempt"), nominate("u-0", action="preempt")
    given = plan(evict("v-0", "preempt", "t", "u"), *places)
    assert blamed(audit(snapshot, given), snapshot, given, Plan()) == {key("u")}


def test_a_fault_of_nothing_known_is_that_of_the_last_place() -> None:
    given = plan(*(bind(f"{each}-0", each) for each in NAMES))
    faults = [Violation("test", "queue limit node pod pod-1")]
    assert blamed(faults, named(), given, Plan()) == {key(NAMES[-1])}


def test_a_sentence_says_rule_and_words() -> None:
    assert str(Violation("capacity", "node n would hold 2 of 1 GPUs", node="n")) == (
        "capacity: node n would hold 2 of 1 GPUs"
    )


def contended(what: PodSpec = ONE_GPU) -> Snapshot:
    return cluster(
        [pod("v-0", "n1", spec=what), pod("t-0", spec=what)],
        [group("v", priority=40), group("t", priority=60)],
        [node("n1", gpus=1)],
        [queue("q")],
    )


@pytest.mark.parametrize("kind", ["nominated", "moved"])
def test_a_trigger_without_a_right_pays_and_not_its_victim(kind: str) -> None:
    """Reclaim takes from the trigger's own queue, once with another place for the victim."""
    snapshot = contended()
    moved = (nominate("v-0", action="reclaim"),) if kind == "moved" else ()
    given = plan(evict("v-0", "reclaim", "t"), nominate("t-0", action="reclaim"), *moved)
    faults = [fault for fault in audit(snapshot, given) if fault.rule == "victims"]
    assert faults
    assert blamed(faults, snapshot, given, Plan()) == {key("t")}


def test_a_fault_of_an_earlier_place_costs_the_trigger_and_not_the_victim_that_moves() -> None:
    """The fault names u, which allocate served; preempt then moves v for t."""
    snapshot = cluster(
        [pod("v-0", "n1", spec=ONE_GPU), pod("t-0", spec=ONE_GPU), pod("u-0", spec=ONE_GPU)],
        [group("v", priority=40), group("t", priority=60), group("u", priority=10)],
        [node("n1", gpus=1), node("n2", gpus=1), node("n3", gpus=1)],
    )
    before = plan(bind("u-0", "n3"))
    after = evict("v-0", "preempt", "t"), nominate("t-0", action="preempt"), nominate("v-0", "n2", "preempt")
    given, faults = plan(*before.decisions, *after), [Violation("test", "", groups=(key("u"),))]
    assert blamed(faults, snapshot, given, before) == {key("t")}


def test_the_innermost_group_is_the_one_that_it_was_raised_for() -> None:
    @for_group(lambda pod: pod.group)
    def inner(pod: Pod) -> None:
        raise ValueError(pod.key)

    @for_group(lambda *pods: pods[0].group)
    def outer(*pods: Pod) -> None:
        for one in pods[1:]:
            inner(one)

    with pytest.raises(ValueError, match="b-0") as raised:
        outer(pod("a-0"), pod("b-0"))
    assert raised_for(raised.value) == {key("b")}
    assert raised_for(ValueError()) == frozenset()


def refuse_plans_with(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the check refuse every plan that decides about a pod of this group."""
    plain = engine.audit

    def refusing(snapshot: Snapshot, found: Plan, *more: Any, **named: Any) -> Sequence[Violation]:
        if any(decision.group == key(name) for decision in found.decisions):
            return [Violation("capacity", "refused", groups=(key(name),))]
        return plain(snapshot, found, *more, **named)

    monkeypatch.setattr(engine, "audit", refusing)


def test_a_victim_with_which_every_plan_fails_stays_and_costs_no_trigger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each trigger would stop v0, which goes first, and every fault names the triggers alone."""
    plain, count = engine.audit, LIMITS.tries

    def refusing(snapshot: Snapshot, found: Plan, *more: Any, **named: Any) -> Sequence[Violation]:
        for decision in found.decisions:
            if decision.kind == "Evict" and decision.group == key("v0"):
                return [Violation("test", "refused", groups=decision.triggers)]
        return plain(snapshot, found, *more, **named)

    numbers = range(count)
    members = [pod(f"v{i}-0", f"n{i}", spec=ONE_GPU) for i in numbers]
    members += [pod(f"t{i}-0", spec=ONE_GPU) for i in numbers]
    groups = [group(f"{name}{i}", priority=p + i) for name, p in (("v", 10), ("t", 60)) for i in numbers]
    nodes = [node(f"n{i}", gpus=1) for i in numbers]
    snapshot = cluster(members, groups, nodes, actions=("preempt",))
    monkeypatch.setattr(engine, "audit", refusing)
    found = decide(snapshot, SETTINGS)
    assert evicted(found) == {f"v{i}-0" for i in range(1, count)}
    assert placed(found) == {f"t{i}-0" for i in range(1, count)}


@pytest.mark.parametrize(("method", "faulty"), [("mask", "t"), ("place", "t"), ("evict", "v")])
def test_a_rule_that_raises_costs_only_the_group_of_the_pod(
    method: str, faulty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trigger is tried beside its victim, and the rule raises for one of the two."""
    plain = getattr(PortState, method)

    def raising(state: PortState, pod: Pod, *more: Any, **named: Any) -> Any:
        if pod.group == key(faulty):
            raise RuntimeError("a bug")
        return plain(state, pod, *more, **named)

    snapshot = contended(spec(1, host_ports=(("", "TCP", 80),)))
    assert placed(decide(snapshot, SETTINGS)) == {"t-0"}
    monkeypatch.setattr(ports, "open", type("Raising", (PortState,), {method: raising}))
    found = decide(snapshot, SETTINGS)
    assert (evicted(found), placed(found)) == (set(), set())
    assert (reasons(found).get("t") == "InternalError") is (faulty == "t")


def test_a_defect_met_while_a_group_is_read_costs_that_group_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = asking.unready

    def raising(snapshot: Snapshot, gang: Gang, *more: Any) -> Any:
        if gang.group.key.name == "t":
            raise RuntimeError("a defect")
        return plain(snapshot, gang, *more)

    monkeypatch.setattr(asking, "unready", raising)
    found = decide(
        cluster(
            [pod("t-0", spec=ONE_GPU), pod("u-0", spec=spec(2))], [group("t"), group("u")], [node(gpus=4)]
        ),
        SETTINGS,
    )
    assert placed(found) == {"u-0"}
    assert [(row.reason, row.message, row.proved) for row in found.unscheduled] == [
        ("InternalError", "it cannot be read: RuntimeError: a defect", False)
    ]


@pytest.mark.parametrize("first", [True, False])
def test_a_checker_that_raises_for_a_group_costs_that_group_alone(
    first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve groups get places, more than there are tries, and the check raises wherever x has one."""
    plain = SUBJECTS["ports"]

    def raising(world: PlannedCluster) -> Iterator[Violation]:
        if any(decision.group == key("x") for decision in world.plan.decisions):
            raise RuntimeError("a defect")
        yield from plain(world)

    monkeypatch.setitem(SUBJECTS, "ports", raising)
    others = [f"g{i}" for i in range(11)]
    members = [pod(f"{name}-0", spec=ONE_GPU) for name in (*others, "x")]
    groups = [*map(group, others), group("x", priority=90 if first else 10)]
    found = decide(cluster(members, groups, [node(gpus=16)], actions=("allocate",)), SETTINGS)
    assert placed(found) == {f"{name}-0" for name in others}
    assert reasons(found) == {"x": "InternalError"}


def test_advice_that_raises_costs_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(engine, "advised", failing)
    assert placed(decide(cluster([pod("t-0", spec=ONE_GPU)], [group("t")], [node()]), SETTINGS)) == {"t-0"}


def test_groups_of_an_action_that_fails_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_cycle: Cycle, **_options: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(engine, "allocate", failing)
    alone = cluster([pod("t-0", spec=ONE_GPU)], [group("t")], [node(gpus=4)], actions=("allocate",))
    found = decide(alone, SETTINGS)
    assert [(row.reason, row.message) for row in found.unscheduled] == [
        ("InternalError", "allocate failed before this pod group was considered")
    ]


@pytest.mark.parametrize(("name", "token"), [("q", "NoAction"), ("no-such-queue", "QueueDoesNotExist")])
def test_a_cycle_without_an_action_that_serves_ends(name: str, token: str) -> None:
    found = decide(
        cluster(
            [pod("t-0", spec=ONE_GPU)],
            [group("t", queue=name)],
            [node(gpus=4)],
            [queue("q")],
            actions=("stalegangeviction",),
        ),
        SETTINGS,
    )
    assert [(row.reason, row.proved) for row in found.unscheduled] == [(token, True)]


def test_the_joint_pass_of_allocate_is_made_again_without_the_group_at_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each w needs the node with many CPUs, to which the greedy pass gives the m of its pair."""
    pairs = ("1", "2")
    snapshot = cluster(
        [
            one
            for p in pairs
            for one in (
                pod(f"m{p}-0", spec=spec(1, node_selector=(("pair", p),))),
                pod(f"w{p}-0", spec=spec(1, cpus=32, node_selector=(("pair", p),))),
            )
        ],
        [group(f"{name}{p}", priority=priority) for p in pairs for name, priority in (("m", 60), ("w", 50))],
        [
            node(f"{n}{p}", gpus=1, cpus=c, labels={"pair": p})
            for p in pairs
            for n, c in (("a", 64), ("b", 4))
        ],
        actions=("allocate",),
    )
    assert placed(decide(snapshot, SETTINGS)) == {"m1-0", "m2-0", "w1-0", "w2-0"}
    refuse_plans_with("w1", monkeypatch)
    found = decide(snapshot, SETTINGS)
    assert placed(found) == {"m1-0", "m2-0", "w2-0"}
    assert reasons(found) == {"w1": "InternalError"}


def test_a_group_that_a_failure_left_out_is_not_called_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """a comes first and is promised the only node, which reclaim gives to t. The check refuses each such
    plan: beside a none serves t, but that is not why t waits.
    """
    members = [pod("a-0", nominated_node="n1"), pod("old-0", "n1", status=PodStatus.RELEASING), pod("t-0")]
    groups = [group(name, queue="v" if name == "a" else "q") for name in ("a", "old", "t")]
    queues = [queue("q", quota=gpu_bound(1)), queue("v", quota=gpu_bound(0))]
    more: dict[str, Any] = {"actions": ("allocate", "reclaim"), "plugins": PLUGINS | {"nominatednode"}}
    snapshot = cluster(members, groups, [node("n1", gpus=1)], queues, **more)
    assert placed(decide(snapshot, SETTINGS)) == {"t-0"}
    refuse_plans_with("t", monkeypatch)
    found = decide(snapshot, SETTINGS)
    assert placed(found) == {"a-0"}
    assert [(row.reason, row.proved) for row in found.unscheduled] == [("InternalError", False)]
