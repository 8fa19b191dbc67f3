"""The simulation of an eviction plan: what the fair order makes of an answer of the joint model."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kai_cp_models.actions.simulation import return_home, settle_moves
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.snapshot import PodGroup, Topology, TopologyConstraint
from tests.support.plans import lost, nominated, solved
from tests.support.worlds import cluster, gpu_bound, group, leaf, node, pod, queue, spec, tree


def test_pod_that_moves_does_not_come_home_to_the_place_of_the_trigger() -> None:
    """t needs both GPUs of n1: l is lost, and m moves to n2. Once both have left, the fair order puts m
    before t, and m would come home. It has a place elsewhere, so t gets its own: only l must come after t.
    """
    queues = [queue("a", quota=gpu_bound(1), priority=200), queue("b", quota=gpu_bound(2))]
    groups = [group("m", queue="a", priority=60), group("l", queue="a"), group("t", queue="b")]
    pods = [pod("m-0", "n1"), pod("l-0", "n1"), pod("t-0", spec=spec(2))]
    plan = solved(cluster(pods, groups, [node("n1", gpus=2), node("n2", gpus=1)], queues))
    assert (lost(plan), nominated(plan)) == ({"l-0"}, {"m-0": "n2", "t-0": "n1"})


def test_gang_below_its_minimum_does_not_return_before_the_trigger() -> None:
    """g runs below its minimum, and its other pod waits, so it asks for nothing that could be served: in
    the fair order it has no turn before that of t.
    """
    queues = [queue(name, quota=gpu_bound(2)) for name in "ab"]
    g, t = group("g", 2, queue="a", priority=100), group("t", queue="b")
    pods = [pod("g-0", "n1", spec=spec(4)), pod("g-1"), pod("t-0", spec=spec(2))]
    plan = solved(cluster(pods, [g, t], [node(gpus=4)], queues))
    assert (lost(plan), set(nominated(plan))) == ({"g-0"}, {"t-0"})


def test_bound_pod_waits_with_its_gang_when_the_last_running_pod_of_a_set_leaves() -> None:
    """Set a of g needs one pod: a-0 moves, a-1 is lost. So b-0, bound before, starts only with a-0."""
    root = tree(2, leaf("a", 1), leaf("b", 1))
    runs = [pod(f"g-a-{i}", "n1", "g", subgroup="a") for i in range(2)]
    b = pod("g-b-0", group="g", subgroup="b")
    snapshot = cluster([*runs, b], [group("g", root=root)], [node("n1"), node("n2")])
    ledger = Ledger.of(snapshot)
    ledger.place(b, 0, pipelined=False)
    ledger.evict(runs[0])
    ledger.place(runs[0], 1, pipelined=True)
    ledger.evict(runs[1])
    settle_moves(ledger, [runs[1]])
    assert ledger.status(b) is PodStatus.PIPELINED


@pytest.mark.parametrize(("home", "returns"), [("n1", False), ("n2", True)])
def test_pod_that_leaves_first_does_not_come_home_before_the_next_one(home: str, *, returns: bool) -> None:
    """x gives up x-2, then x-1, for y, which takes five of the eight GPUs of n1. There x-1 has no room any
    more. x-2 has some, but KAI takes x-1 of a node only after x-2.
    """
    x = [pod("x-0", "n1"), pod("x-1", "n1", spec=spec(4)), pod("x-2", home, spec=spec(2))]
    snapshot = cluster([*x, pod("y-0", spec=spec(5))], [group("x"), group("y")], [node("n1"), node("n2")])
    ledger = Ledger.of(snapshot)
    ledger.evict(x[2])
    ledger.evict(x[1])
    ledger.place(snapshot.pod_by_key[PodKey("ns", "y-0")], 0, pipelined=True)
    came = return_home(ledger, GroupKey("ns", "x"), [x[2], x[1]])
    assert came == ([x[2]] if returns else [])


def came_home(x: PodGroup, running: Sequence[Pod], victims: Sequence[Pod], gone: str, gpus: int) -> set[str]:
    """The evicted pods of x, all of n1, that come home where another pod has the place of ``gone``."""
    snapshot = cluster([*running, pod("y-0")], [x, group("y")], [node("n1", gpus=gpus)])
    ledger = Ledger.of(snapshot)
    for one in victims:
        ledger.evict(one)
    left = [one for one in victims if one.key.name != f"x-{gone}"]
    ledger.place(snapshot.pod_by_key[PodKey("ns", "y-0")], 0, pipelined=True)
    return {one.key.name for one in return_home(ledger, GroupKey("ns", "x"), left)}


@pytest.mark.parametrize("gone", ["b-1", "c-0"])
def test_pod_set_with_its_minimum_comes_home_whole_and_one_below_it_pod_by_pod(gone: str) -> None:
    """x needs one of its pod sets a (one pod), b (two) and c (two, of which one runs). Another pod takes the
    place of x-b-1 or x-c-0: b then stays away, though x-b-0 would have room; c runs on without x-c-0.
    """
    x = group("x", root=tree(1, leaf("a", 1), leaf("b", 2), leaf("c", 2)))
    running = [pod(f"x-{name}", "n1", "x", subgroup=name[0]) for name in ("a-0", "b-0", "b-1", "c-0")]
    victims = [one for one in running if one.subgroup in ("b", "c")]
    assert came_home(x, running, victims, gone, 4) == ({"x-c-0"} if gone == "b-1" else {"x-b-0", "x-b-1"})


@pytest.mark.parametrize("gone", ["b-1", "a-0"])
def test_gang_below_its_minimum_runs_on_with_whole_pod_sets_alone(gone: str) -> None:
    """x needs both of its pod sets, a (two pods, of which one runs) and b (two). Another pod takes the place
    of x-b-1 or x-a-0: b then stays away, though x-b-0 would have room; without x-a-0, b runs on.
    """
    x = group("x", root=tree(2, leaf("a", 2), leaf("b", 2)))
    running = [pod(f"x-{name}", "n1", "x", subgroup=name[0]) for name in ("a-0", "b-0", "b-1")]
    assert came_home(x, running, running, gone, 3) == ({"x-a-0"} if gone == "b-1" else {"x-b-0", "x-b-1"})


@pytest.mark.parametrize("gone", ["b-0", "c-0", ""])
def test_set_with_its_minimum_comes_home_whole_or_not_at_all(gone: str) -> None:
    """x needs its pod set c (two pods, of which one runs) and the set of a and b, which needs both. Without
    room for b-0, a-0 stays away as well.
    """
    x = group("x", root=tree(2, tree(2, leaf("a", 1), leaf("b", 1), name="s"), leaf("c", 2)))
    running = [pod(f"x-{name}", "n1", "x", subgroup=name[0]) for name in ("a-0", "b-0", "c-0")]
    came = came_home(x, running, running, gone, 3 if gone else 4)
    assert came == {"b-0": {"x-c-0"}, "c-0": {"x-a-0", "x-b-0"}, "": {"x-a-0", "x-b-0", "x-c-0"}}[gone]


@pytest.mark.parametrize("constraint", [None, TopologyConstraint("dc", required="rack")])
def test_pods_of_one_rack_come_home_together_or_not_at_all(constraint: TopologyConstraint | None) -> None:
    """x moved from n1 to n2, and y takes half of n1: one pod of x has room there. It comes home alone where
    the gang may be in two racks.
    """
    x, y = [pod(f"x-{i}", "n1", spec=spec(4)) for i in range(2)], pod("y-0", spec=spec(4))
    nodes = [node(name, labels={"rack": name}) for name in ("n1", "n2")]
    groups, topologies = [group("x", 2, constraint=constraint)], [Topology("dc", ("rack",))]
    ledger = Ledger.of(cluster([*x, y], groups, nodes, topologies=topologies))
    for one in x:
        ledger.evict(one)
        ledger.place(one, 1, pipelined=True)
    ledger.place(y, 0, pipelined=True)
    assert len(return_home(ledger, GroupKey("ns", "x"), x)) == (1 if constraint is None else 0)
