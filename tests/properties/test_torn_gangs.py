"""Gangs that run below their minimum, or whose tree asks for what cannot be, beside a full cluster.

Whatever such a gang looks like, the checker refuses no plan of an action that evicts it, and no other pod
group is left out for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from kai_cp_models import engine
from kai_cp_models.plan import Plan
from kai_cp_models.snapshot import Snapshot
from tests.support.brute import worlds
from tests.support.objects import Object, ago
from tests.support.plans import evicted, lost, nominated, reasons, solved
from tests.support.tiny import node, pod, queue, world

ALL = "allocate,consolidation,reclaim,preempt,stalegangeviction"
SET = "default"
LABEL = "kai.scheduler/subgroup-name"
Tree = Sequence[tuple[str, str, Mapping[str, int]]]
"""Subgroups: name, parent, and the minimum of pods or of subgroups."""


def whole(snapshot: Snapshot) -> Plan:
    """The plan; no action of it had to be decided again without some group."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    engine.logger.addHandler(handler)
    try:
        plan = solved(snapshot)
    finally:
        engine.logger.removeHandler(handler)
    assert [line for line in said if "refused" in line or "again" in line] == []
    assert "InternalError" not in reasons(plan).values()
    return plan


def spec(tree: Tree, **more: object) -> Object:
    """Fields of a pod group with these subgroups."""
    parts = [{"name": name, **({"parent": up} if up else {}), **least} for name, up, least in tree]
    return {"subGroups": parts, **more}


def member(name: str, on: str, subgroup: str | None, **more: object) -> Object:
    """A pod of gang v that asks for a GPU."""
    labels = {} if subgroup is None else {LABEL: subgroup}
    return pod(name, on, **({"gpus": 1, "group": "v", "queue": "v", "labels": labels} | more))  # type: ignore[arg-type]


class Shape(NamedTuple):
    """A gang of four pods of one GPU, and which of them leave; the last in task order is v-3.

    ``lost``: for two GPUs of a node that they fill. ``moves``: whether two of them, where two are on either
    node, may go to the other one; only if the gang then has its minimum. ``stale``: whether it is below it.
    """

    more: Object
    labels: Sequence[str | None]
    lost: Sequence[int]
    moves: bool = False
    stale: bool = True


SHAPES = {
    "more pods than there are": Shape({"minMember": 9}, [None] * 4, [2, 3]),
    "with and without the label": Shape({"minMember": 9}, [None, SET, SET, None], [2, 3]),
    "no pod needed, with and without the label": Shape(
        {"minMember": 0}, [None, SET, SET, None], [2, 3], moves=True, stale=False
    ),
    "an unknown subgroup": Shape({"minMember": 9}, [None, None, None, "other"], [1, 2]),
    # All of it is one unit, of which a part may stay: what its pod sets have beyond their minimum.
    "more subgroups than there are": Shape(
        spec([("a", "", {"minMember": 1}), ("b", "", {"minMember": 1})], minSubGroup=3), [*"aabb"], [1, 3]
    ),
    "more subgroups than a nested set has": Shape(
        spec([("a", "", {"minSubGroup": 2}), ("aa", "a", {"minMember": 1})], minSubGroup=1),
        ["aa"] * 4,
        [2, 3],
    ),
    # b is below its minimum, so its pods are no surplus; a is the surplus subgroup.
    "a torn set beside one that is whole": Shape(
        spec(
            [("a", "", {"minMember": 2}), ("b", "", {"minSubGroup": 2}), ("bb", "b", {"minMember": 1})],
            minSubGroup=0,
        ),
        ["a", "a", "bb", "bb"],
        [0, 1],
        moves=True,
        stale=False,
    ),
    "an empty subgroup": Shape(
        spec([("a", "", {"minMember": 1}), ("b", "", {"minMember": 2})]), ["a"] * 4, [2, 3]
    ),
    # The surplus pod is not enough, and without another one a is below its minimum.
    "no subgroup needed": Shape(
        spec([("a", "", {"minMember": 3})], minSubGroup=0), ["a"] * 4, [0, 1, 2, 3], moves=True, stale=False
    ),
    "subgroups of no pods": Shape(spec([("a", "", {}), ("b", "", {})], minSubGroup=4), [*"aabb"], [1, 3]),
    "pods without a subgroup": Shape(
        spec([("a", "", {"minMember": 2})]), ["a", "a", "a", None], [0, 1, 2], moves=True, stale=False
    ),
}
each = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def members(shape: Shape, *nodes: str) -> list[Object]:
    """Its pods, on these nodes in turn."""
    return [member(f"v-{i}", nodes[i % len(nodes)], label) for i, label in enumerate(shape.labels)]


@each
def test_reclaim_takes_from_it(shape: Shape) -> None:
    """Queue q is due half of the node, all of which v holds."""
    queues = [queue("q", quota={"gpu": 2}), queue("v", quota={"gpu": 2})]
    pods = [*members(shape, "n0"), pod("t", gpus=2)]
    groups = {"v": shape.more}
    plan = whole(world([node(gpus=4)], pods, actions="allocate,reclaim", groups=groups, queues=queues))
    assert nominated(plan) == {"t": "n0"}
    assert lost(plan) == {f"v-{i}" for i in shape.lost}


@each
def test_preempt_takes_from_it(shape: Shape) -> None:
    pods = [*members(shape, "n0"), pod("t", gpus=2, queue="v", priority="build")]
    groups, queues = {"v": shape.more}, [queue("v")]
    plan = whole(world([node(gpus=4)], pods, actions="allocate,preempt", groups=groups, queues=queues))
    assert nominated(plan) == {"t": "n0"}
    assert lost(plan) == {f"v-{i}" for i in shape.lost}


@each
def test_consolidation_moves_a_gang_that_then_has_its_minimum(shape: Shape) -> None:
    pods, nodes = [*members(shape, "n0", "n1"), pod("t", gpus=4)], [node(f"n{i}", gpus=4) for i in range(2)]
    groups, queues = {"v": shape.more}, [queue("q"), queue("v")]
    plan = whole(world(nodes, pods, actions="allocate,consolidation", groups=groups, queues=queues))
    assert len(evicted(plan)) == (2 if shape.moves else 0)
    assert ("t" in nominated(plan)) is shape.moves


@each
def test_a_stale_gang_ends_as_a_whole(shape: Shape) -> None:
    notes = {"annotations": {"kai.scheduler/stale-podgroup-timestamp": ago(1000)}}
    groups, queues = {"v": shape.more | notes}, [queue("v")]
    plan = whole(world([node(gpus=4)], members(shape, "n0"), actions=ALL, groups=groups, queues=queues))
    assert len(evicted(plan)) == (4 if shape.stale else 0)


def test_a_torn_gang_gives_pods_beyond_the_minimum_of_a_pod_set_one_by_one() -> None:
    """Queue v holds four GPUs and is due three. All pods of its gang are one unit, but as reclaim counts them
    the second of the two that must leave is taken from a queue that holds no more than its due (4.4).
    """
    tree = spec([("a", "", {"minSubGroup": 2}), ("aa", "a", {"minMember": 0})], minSubGroup=1)
    queues = [queue("q", quota={"gpu": 1}), queue("v", quota={"gpu": 3})]
    for gpus, taken in (1, 1), (2, 0):
        pods = [*(member(f"v-{i}", "n0", "aa") for i in range(4)), pod("t", gpus=gpus)]
        more: Object = {"params": {}, "groups": {"v": tree}, "queues": queues}
        queues[0] = queue("q", quota={"gpu": gpus})
        plan = whole(world([node(gpus=4)], pods, actions="allocate,reclaim", **more))
        assert len(lost(plan)) == taken


# --- any gang ---------------------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn) -> tuple[Object, list[str | None]]:
    """Fields of a pod group, and what its pods may be labelled."""
    if draw(st.integers(0, 3)) == 0:
        return {"minMember": draw(st.integers(0, 5))}, [None, SET, "other"]
    names = {"a": "", "b": "", "aa": "a", "ab": "a", "aaa": "aa", "ba": "b"}
    there: dict[str, str] = {}
    for name, up in names.items():
        if (not up or up in there) and (draw(st.integers(0, 4)) or not there):
            there[name] = up
    parts: list[tuple[str, str, Mapping[str, int]]] = []
    for name, up in there.items():
        least = draw(st.sampled_from((0, 1, 1, 2, 3)))
        if name in there.values():
            parts.append((name, up, {"minSubGroup": least} if draw(st.booleans()) else {}))
        else:
            parts.append((name, up, {"minMember": least}))
    leaves: list[str | None] = [name for name in there if name not in there.values()]
    roots = draw(st.sampled_from((None, 0, 1, 2, 4)))
    whole_tree = spec(parts, **({} if roots is None else {"minSubGroup": roots}))
    return whole_tree, [*leaves, *leaves, None, "other"]


@st.composite
def full_clusters(draw: st.DrawFn) -> Snapshot:
    """One or two nodes full of odd gangs and others, and pods of another queue that want room."""
    nodes = [f"n{i}" for i in range(draw(st.integers(1, 2)))]
    pods: list[Object] = []
    groups: dict[str, Object] = {}
    for g in range(draw(st.integers(1, 3))):
        more, labels = draw(trees())
        late = {"annotations": {"kai.scheduler/stale-podgroup-timestamp": ago(1000)}}
        groups[f"v{g}"] = more | (late if draw(st.integers(0, 3)) == 0 else {})
        mine = draw(st.sampled_from(("v", "v", "w")))
        for i in range(draw(st.integers(2, 5))):
            state = draw(st.sampled_from(("Running",) * 6 + ("Releasing", "Binding")))
            on = draw(st.sampled_from((*nodes, *nodes, *nodes, "")))
            size = draw(st.sampled_from((1, 1, 1, 2)))
            label, priority = draw(st.sampled_from(labels)), draw(st.sampled_from(("train", "low")))
            given = {"group": f"v{g}", "queue": mine, "gpus": size, "priority": priority, "state": state}
            pods.append(member(f"v{g}-{i}", on, label, **given))
    room = {name: sum(_gpus(one) for one in pods if one["spec"].get("nodeName") == name) for name in nodes}
    for i in range(draw(st.integers(1, 3))):
        mine = draw(st.sampled_from(("t", "t", "v")))
        priority = draw(st.sampled_from(("train", "build")))
        pods.append(pod(f"t{i}", gpus=draw(st.integers(1, 4)), queue=mine, priority=priority))
    quotas = [draw(st.integers(0, 5)) for _ in range(3)]
    queues = [queue(name, quota={"gpu": most}) for name, most in zip("tvw", quotas, strict=True)]
    made = [node(name, {"cpu": "32"}, gpus=max(1, room[name] + draw(st.integers(0, 2)))) for name in nodes]
    return world(made, pods, actions=ALL, groups=groups, queues=queues)


def _gpus(one: Object) -> int:
    return int(one["spec"]["containers"][0]["resources"]["requests"].get("nvidia.com/gpu", "0"))


@worlds(300)
@given(full_clusters())
def test_no_gang_costs_others_their_plans(snapshot: Snapshot) -> None:
    plan = whole(snapshot)
    event(f"evicts: {bool(evicted(plan))}")
