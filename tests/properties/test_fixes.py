"""Fixes of random small worlds: each one, carried out, makes the cycle admit the group; a smaller one does
not if that is proved.

Smaller choices are enumerated here from the raw objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kai_cp.explain.document import Explainer
from kai_cp.explain.draft import Draft
from kai_cp.explain.operations import applied
from kai_cp.reader import parse
from kai_cp_models.engine import decide
from kai_cp_models.pods import GroupKey
from kai_cp_models.settings import Settings
from tests.kai_cp.explain.clusters import NOW, cluster
from tests.support import objects as raw
from tests.support.brute import worlds
from tests.support.tiny import node, pod, queue

SETTINGS = Settings()
X = GroupKey("default", "x")
CLASSES = {"low": 40, "mine": 50, "high": 60}
KINDS = (
    "uncordon",
    "enable-action",
    "move",
    "stop",
    "raise-limit",
    "raise-priority",
    "add-nodes",
    "reduce-gang",
    "reduce-request",
    "combined",
)
Ops = Sequence[dict[str, Any]]


@st.composite
def small(draw: st.DrawFn) -> raw.Object:
    """One to three nodes, up to four running pods, and x with one or two pods."""
    nodes, pods = [], []
    groups: dict[str, raw.Object] = {}
    for n in range(draw(st.integers(1, 3))):
        gpus = draw(st.integers(1, 4))
        nodes.append(node(f"n{n}", {"cpu": "640"}, gpus=gpus, unschedulable=draw(st.integers(0, 4)) == 0))
        while gpus and len(pods) < 4 and draw(st.booleans()):
            size = draw(st.integers(1, gpus))
            gpus -= size
            name = f"r{len(pods)}"
            firm = draw(st.booleans())
            groups[name] = {"preemptibility": "non-preemptible" if firm else "preemptible"}
            pods.append(pod(name, f"n{n}", gpus=size, priority=draw(st.sampled_from(sorted(CLASSES)))))
    size, count = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    groups["x"] = {"minMember": count, "preemptibility": "preemptible"}
    pods += [pod(f"x{i}", gpus=size, group="x", priority="mine") for i in range(count)]
    actions = ["allocate", *["consolidation"] * draw(st.booleans()), *["preempt"] * draw(st.booleans())]
    return cluster(
        nodes,
        pods,
        actions=", ".join(actions),
        groups=groups,
        queues=[queue("q", limit={"gpu": draw(st.sampled_from((-1, -1, 2, 4)))})],
        priorityClasses=[{"metadata": {"name": n, "uid": n}, "value": v} for n, v in CLASSES.items()],
    )


def admits(world: raw.Object, ops: Ops) -> bool:
    """Whether the cycle on the changed snapshot gives all of x's gang a place."""
    draft = applied(world, ops, NOW)
    snapshot = parse(draft.raw, now=draft.now)
    plan = decide(snapshot, SETTINGS)
    placed = sum(one.group == X and one.kind != "Evict" for one in plan.decisions)
    return placed >= snapshot.group_by_key[X].root.leaves()[0].minimum


def smaller(world: raw.Object, fix: dict[str, Any]) -> Iterator[Ops]:
    """Every change of the fix's kind with a smaller amount."""
    op, kind = fix["ops"][0], fix["kind"]
    objects = world["rawObjects"]
    running = [p["metadata"]["name"] for p in objects["pods"] if p["spec"].get("nodeName")]
    if kind == "stop":
        for size in range(fix["amount"]):
            for some in combinations(running, size):
                yield [{"op": "stop", "pods": [f"default/{name}" for name in some]}] if some else []
    elif kind == "add-nodes":
        for one in objects["nodes"]:
            for count in range(1, fix["amount"]):
                yield [{"op": "add-nodes", "like": one["metadata"]["name"], "count": count}]
    elif kind == "raise-limit":
        for less in range(1, int(fix["amount"]) + 1):
            yield [{**op, "value": op["value"] - less}]
    elif kind == "raise-priority":
        for less in range(1, fix["amount"] + 1):
            yield [{**op, "value": op["value"] - less}]
    elif kind == "reduce-request" or kind == "reduce-gang":
        for less in range(1, fix["amount"] + 1):
            yield [{**op, "value": op["value"] + less}]
    else:
        yield []


@worlds(25)
@given(small())
def test_every_fix_admits_and_less_does_not(world: raw.Object) -> None:
    explainer = Explainer(Draft(world, NOW), SETTINGS, budget=60.0, kinds=KINDS)
    entry = explainer.explain(X)
    if entry["state"] != "pending":
        assert entry["blocking"] == []
        assert admits(world, [])
        return
    assert (entry["proof"] == "proved") == bool(entry["blocking"])
    for fix in entry["fixes"]:
        assert admits(world, fix["ops"]), fix
        if fix["kind"] == "combined":
            less = [[*fix["ops"][:i], *fix["ops"][i + 1 :]] for i in range(len(fix["ops"]))]
            assert not any(admits(world, ops) for ops in less)
        elif fix["least"] == "proved":
            for ops in smaller(world, fix):
                assert not admits(world, ops), (fix, ops)
