"""A cycle that remembers the readings before gives the very plan of one that remembers nothing."""

from __future__ import annotations

import time
import weakref
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp.reader import ParseMemo, parse
from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan
from kai_cp_models.settings import Limits, Settings
from kai_cp_models.snapshot import Snapshot
from kai_cp_models.units import Gangs
from tests.hostile.test_reader import plain
from tests.kai_cp.reader.raw import NOW
from tests.support.changing import Changing

SETTINGS = Settings.model_validate({"solver": {"budget_seconds": 1, "patience": 0.2}})
HOUR = 3600.0
Raw = dict[str, Any]
LIMITS = Limits(unknown_resources_per_namespace=1)
"""So low that pods are left out for it."""


def pod(name: str, *, requests: dict[str, str] | None = None, **spec: str) -> Raw:
    main = {"name": "main", "resources": {"requests": requests or {}}}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "resourceVersion": "1",
            "annotations": {"pod-group-name": "group"},
        },
        "spec": {"containers": [main], **spec},
        "status": {"phase": "Running" if "nodeName" in spec else "Pending"},
    }


def cluster_of(*pods: Raw, scheduler: str = "kai-scheduler", **offered: str) -> Raw:
    amounts = {"cpu": "8", "pods": "10"} | {f"example.com/{name}": text for name, text in offered.items()}
    node = {"metadata": {"name": "n"}, "status": {"allocatable": amounts}}
    group = {"metadata": {"name": "group", "namespace": "default"}, "spec": {"queue": "q"}}
    objects = {"pods": list(pods), "nodes": [node], "podGroups": [group]}
    return {"schedulerParams": {"schedulerName": scheduler}, "rawObjects": objects}


def told(snapshot: Snapshot) -> tuple[object, ...]:
    """What the plan for the snapshot states: decisions, refusals with their proofs, stages."""
    plan: Plan = decide(snapshot, SETTINGS, deadline=time.monotonic() + HOUR)
    return plan.decisions, plan.unscheduled, [(s.name, s.status, s.objective, s.bound) for s in plan.stages]


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 6), min_size=1, max_size=12))
def test_a_snapshot_with_memory_is_the_one_without(seed: int, changes: list[int]) -> None:
    """``changes``: how many objects change before each reading."""
    cluster, memo = Changing(seed), ParseMemo()
    for turn, count in enumerate((0, *changes)):
        for _ in range(count):
            cluster.step()
        now = NOW + 100 * turn
        found = parse(cluster.raw, now=now, memo=memo, limits=LIMITS)
        assert plain(found) == plain(parse(cluster.raw, now=now, limits=LIMITS))
        # The engine knows specs by identity, so equal ones must be one object.
        assert len(found.specs) == len(set(found.specs))


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_a_plan_with_memory_is_the_one_without(seed: int, changes: list[int]) -> None:
    """``changes``: how many objects change before each cycle but the first."""
    cluster, memo = Changing(seed), ParseMemo()
    for turn, count in enumerate((0, *changes)):
        for _ in range(count):
            cluster.step()
        now = NOW + 100 * turn
        assert told(parse(cluster.raw, now=now, memo=memo)) == told(parse(cluster.raw, now=now))


def test_a_gang_stays_the_same_for_as_long_as_its_records_do() -> None:
    """The next cycle forgets what was known of other records."""
    pods, memo = [pod(name) for name in ("a", "b")], ParseMemo()
    first = parse(cluster_of(*pods), now=NOW, memo=memo)
    key, gone = first.groups[0].key, weakref.ref(Gangs(first)[first.groups[0].key])
    again = parse(cluster_of(*pods), now=NOW + 1, memo=memo)
    assert Gangs(again)[key] is Gangs(first)[key] is Gangs(again)[key] is gone()
    fewer = parse(cluster_of(pods[0]), now=NOW + 2, memo=memo)
    assert [one.key.name for one in Gangs(fewer)[key].pods] == ["a"]
    assert Gangs(replace(again, derived=fewer.derived))[key].pods == again.pods
    del first, again, fewer
    none = parse(cluster_of(), now=NOW + 3, memo=memo)
    assert not Gangs(none)
    assert gone() is None
    assert not memo.derived.gangs[1]


def test_pods_that_stay_as_they_were_share_their_spec_with_those_that_change() -> None:
    """Another name of the scheduler changes one of two pods with equal specs."""
    pods = [pod(name, schedulerName=name, nodeName="n") for name in ("kai-scheduler", "other")]
    memo = ParseMemo()
    for scheduler in ("kai-scheduler", "third"):
        found = parse(cluster_of(*pods, scheduler=scheduler), now=NOW, memo=memo)
        assert [pod.ours for pod in found.pods] == [scheduler == "kai-scheduler", False]
        assert len(found.specs) == 1


def test_a_pod_that_was_left_out_beside_another_comes_back_without_it() -> None:
    """Only one of those that wait may name a resource that no node has; one that runs may name both."""
    parts = {name: {f"example.com/{name}": "1"} for name in ("a", "b")}
    pods = [pod(name, requests=part) for name, part in parts.items()]
    runs = pod("runs", requests=parts["a"] | parts["b"], nodeName="n")
    memo = ParseMemo()
    for shown, kept in ((pods, "a"), (pods, "a"), (pods[1:], "b"), (pods, "a")):
        found = parse(cluster_of(*shown, runs), now=NOW, memo=memo, limits=LIMITS)
        assert [pod.key.name for pod in found.pods] == [kept, "runs"]
    found = parse(cluster_of(*pods, runs, b="1"), now=NOW, memo=memo, limits=LIMITS)
    assert [pod.key.name for pod in found.pods] == ["a", "b", "runs"]
    more = [pod("a", requests=parts["a"] | parts["b"]), pod("c", requests={"example.com/c": "1"})]
    runs = pod("runs", requests=parts["a"] | parts["b"] | {"example.com/c": "1"}, nodeName="n")
    for offered, kept in (({}, "c"), ({"b": "1"}, "a")):
        found = parse(cluster_of(*more, runs, **offered), now=NOW, memo=memo, limits=LIMITS)
        assert [pod.key.name for pod in found.pods] == [kept, "runs"]
