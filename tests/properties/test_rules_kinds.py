"""Bounds of queues on kinds of GPUs, against brute force."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.snapshot import Snapshot
from tests.support.brute import Places, agrees, gives_way, worlds
from tests.support.objects import Object
from tests.support.tiny import node, pod, queue, world

KINDS = ("A", "B")
NODES = ("n0", "n1")
Bounds = tuple[tuple[int, int], tuple[int, int]]
"""(limit, quota) of kind A and of kind B; -1: none."""
Ask = tuple[int, bool]
"""GPUs, and whether the pod can be preempted."""

amount = st.integers(-1, 3)
bounds = st.tuples(st.tuples(amount, amount), st.tuples(amount, amount))
ask = st.tuples(st.integers(1, 2), st.booleans())


def told(made: Object, found: Bounds) -> Object:
    said = {kind: {"limit": limit, "quota": quota} for kind, (limit, quota) in zip(KINDS, found, strict=True)}
    made["metadata"]["annotations"] = {"kai-cp/gpu-kinds": json.dumps(said)}
    return made


def cluster(dept: Bounds, leaf: Bounds, asks: Sequence[Ask], running: Places, actions: str) -> Snapshot:
    soft = {True: "preemptible", False: "non-preemptible"}
    nodes = [
        node(name, gpus=3, labels={"nvidia.com/gpu.product": kind})
        for name, kind in zip(NODES, KINDS, strict=True)
    ]
    pods = []
    for i, (gpus, _) in enumerate(asks):
        at = running.get(f"x{i}", "")
        pods.append(pod(f"x{i}", at, gpus=gpus, priority="low" if at else "train"))
    return world(
        nodes,
        pods,
        groups={f"x{i}": {"preemptibility": soft[preemptible]} for i, (_, preemptible) in enumerate(asks)},
        queues=[told(queue("dept"), dept), told(queue("q", "dept"), leaf)],
        actions=actions,
    )


def lawful(dept: Bounds, leaf: Bounds, asks: Sequence[Ask], places: Places) -> bool:
    """No node holds more than three GPUs, and no bound of either queue is exceeded."""
    for name, k in zip(NODES, range(2), strict=True):
        here = [asks[int(one[1:])] for one, at in places.items() if at == name]
        total, firm = sum(gpus for gpus, _ in here), sum(gpus for gpus, soft in here if not soft)
        for limit, quota in (dept[k], leaf[k]):
            if total > 3 or 0 <= limit < total or 0 <= quota < firm:
                return False
    return True


@worlds(40)
@given(bounds, bounds, st.lists(ask, min_size=1, max_size=4))
def test_kinds_of_gpus(dept: Bounds, leaf: Bounds, asks: list[Ask]) -> None:
    found = cluster(dept, leaf, asks, {}, "allocate")
    names = [f"x{i}" for i in range(len(asks))]

    agrees(found, names, {}, lambda places: lawful(dept, leaf, asks, places))


@worlds(40)
@given(bounds, bounds, st.lists(ask, min_size=2, max_size=4), st.data())
def test_kinds_of_pods_that_leave(dept: Bounds, leaf: Bounds, asks: list[Ask], data: st.DataObject) -> None:
    """The last pod waits, and the others run where the bounds allow it; preemptible ones may be evicted."""
    asks = [*((gpus, True) for gpus, _ in asks[:-1]), asks[-1]]
    running: dict[str, str] = {}
    for i in range(len(asks) - 1):
        at = data.draw(st.sampled_from(NODES))
        if lawful(dept, leaf, asks, {**running, f"x{i}": at}):
            running[f"x{i}"] = at
    last = len(asks) - 1
    asks = [one for i, one in enumerate(asks) if f"x{i}" in running or i == last]
    running = {f"x{i}": at for i, at in enumerate(running.values())}
    found = cluster(dept, leaf, asks, running, "allocate, preempt")
    trigger = f"x{len(asks) - 1}"
    gives_way(found, trigger, running, lambda places: lawful(dept, leaf, asks, places))
