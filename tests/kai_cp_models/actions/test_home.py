"""Evicted pods come home: which of them, together with which others, and where their gang forbids it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kai_cp_models.actions.home import (
    all_left,
    come_home,
    has_room_at_home,
    put_elsewhere,
    return_home,
    settle_moves,
)
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import (
    UNLIMITED,
    GroupKey,
    LabelSelector,
    Pod,
    PodAffinityTerm,
    PodKey,
    PodSpec,
    PodStatus,
    Requirement,
)
from kai_cp_models.snapshot import PodGroup, Topology, TopologyConstraint
from tests.support.worlds import cluster, fraction, gpu_bound, group, leaf, node, pod, queue, spec, tree


def test_pods_come_home_together_or_not_at_all() -> None:
    """y has taken half of the place of x and z, so only one of them could return."""
    snapshot = cluster(
        [*(pod(name, "n1", spec=spec(4)) for name in ("x-0", "z-0")), pod("y-0", spec=spec(4))]
    )
    ledger = Ledger.of(snapshot)
    x, z, y = (snapshot.pod_by_key[PodKey("ns", name)] for name in ("x-0", "z-0", "y-0"))
    ledger.evict(x)
    ledger.evict(z)
    ledger.place(y, 0, pipelined=True)
    assert not come_home(ledger, [x, z])
    assert ledger.evicted.keys() == {x.key, z.key}
    assert y.key in ledger.held
    assert come_home(ledger, [x])
    assert not has_room_at_home(ledger, z)


def test_device_that_others_have_filled_takes_no_share_home() -> None:
    """x shares a device with y. Once another share has taken what x left, x has no room there."""
    shares = [pod(name, "n1", spec=fraction(), gpu_groups=("d",)) for name in ("x-0", "y-0")]
    snapshot = cluster([*shares, pod("w-0", spec=fraction())])
    ledger = Ledger.of(snapshot)
    x, w = (snapshot.pod_by_key[PodKey("ns", name)] for name in ("x-0", "w-0"))
    ledger.evict(x)
    assert has_room_at_home(ledger, x)
    ledger.place(w, 0, ("d",), pipelined=True)
    assert not come_home(ledger, [x])
    ledger.unplace(w)
    assert come_home(ledger, [x])
    assert not ledger.evicted
    assert not ledger.held


def test_pod_that_keeps_a_device_for_others_does_not_come_home() -> None:
    """z leaves the device that x and then y joined. Without x, it becomes whole again."""
    runs = [
        pod(f"{name}-0", at, spec=fraction(), gpu_groups=(at,)) for name, at in (("x", "n2"), ("z", "n1"))
    ]
    snapshot = cluster([*runs, pod("y-0", spec=fraction())], nodes=[node("n1"), node("n2")])
    ledger = Ledger.of(snapshot)
    x, z, y = (snapshot.pod_by_key[PodKey("ns", name)] for name in ("x-0", "z-0", "y-0"))
    for leaving in (x, z):
        ledger.evict(leaving)
    for comes in (x, y):
        ledger.place(comes, snapshot.node_index["n1"], ("n1",), pipelined=True)
    assert not come_home(ledger, [x])
    ledger.unplace(y)
    assert come_home(ledger, [x])


APART = PodAffinityTerm(LabelSelector((Requirement("app", "In", ("x",)),)), "host", None, 0)
ALONE, PORT = spec(0, pod_anti_affinity=(APART,)), spec(0, host_ports=(("", "TCP", 80),))
BROKEN: list[tuple[str, PodSpec, tuple[str, ...], PodSpec, int]] = [
    # (what does not hold while x and y run, their spec and devices, what keeps one of them away, their limit)
    ("the node has one GPU", spec(1), (), spec(0), UNLIMITED),
    ("their device is full", fraction(600), ("d",), fraction(100), UNLIMITED),
    ("a term keeps them apart", ALONE, (), ALONE, UNLIMITED),
    ("they have one port", PORT, (), PORT, UNLIMITED),
    ("their queue is over its limit", spec(0), (), spec(0), 1000),
]


@pytest.mark.parametrize(
    ("wants", "devices", "other", "limit"), [x[1:] for x in BROKEN], ids=[x[0] for x in BROKEN]
)
def test_pods_that_never_left_need_nothing_anew(
    wants: PodSpec, devices: tuple[str, ...], other: PodSpec, limit: int
) -> None:
    """Until a pod has come, x and y may come home to what they broke before; and no matter who has come
    elsewhere in another queue."""
    runs = [pod(f"{name}-0", "n1", spec=wants, gpu_groups=devices, labels={"app": "x"}) for name in "xy"]
    comes = [pod(f"{name}-0", spec=other, labels={"app": "x"}) for name in "vw"]
    snapshot = cluster(
        [*runs, *comes],
        [group("w", queue="p")],
        [node(name, gpus=1, labels={"host": name}) for name in ("n1", "n2")],
        [queue("p"), queue("q", limit=gpu_bound(8)._replace(cpu=limit))],
    )
    ledger = Ledger.of(snapshot)
    x, y, v, w = (snapshot.pod_by_key[PodKey("ns", f"{name}-0")] for name in "xyvw")
    ledger.evict(x)
    ledger.evict(y)
    ledger.place(w, 1, pipelined=True)
    assert has_room_at_home(ledger, x)
    assert come_home(ledger, [x, y])
    ledger.evict(x)
    ledger.evict(y)
    ledger.place(v, 0, pipelined=True)
    assert not come_home(ledger, [x, y])


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


def test_no_gang_is_made_of_a_victim_that_stays_away() -> None:
    """y has the place of x, as most victims of a large plan stay away; the gangs of all would take time."""
    x, y = pod("x-0", "n1", spec=spec(8)), pod("y-0", spec=spec(8))
    ledger, key = Ledger.of(cluster([x, y])), GroupKey("ns", "x")
    ledger.evict(x)
    assert all_left(ledger, key, [x])
    ledger.place(y, 0, pipelined=True)
    assert not return_home(ledger, key, [x])
    assert not put_elsewhere(ledger, key, [x])
    settle_moves(ledger, [x])
    assert key not in ledger.fixed.gangs


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
