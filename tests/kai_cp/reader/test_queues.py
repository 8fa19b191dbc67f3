"""Queues: units, defaults, hierarchy (1.1)."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.reader import parse
from kai_cp.reader.queues import DEEPEST
from kai_cp_models.snapshot import Queue, Shares, Snapshot
from tests.kai_cp.reader.raw import NOW, queue, snapshot

Raw = dict[str, Any]


def read(*queues: Raw, **fields: Any) -> Snapshot:
    fields.setdefault("podGroups", [])
    usage = fields.pop("usage", None)
    return parse(snapshot(queues=list(queues), **fields), now=NOW, usage=usage)


def test_units_and_defaults() -> None:
    resources = {
        "cpu": {"quota": 1500, "limit": 2000.5, "overQuotaWeight": 2},
        "memory": {"quota": 5, "limit": -1},
        "gpu": {"quota": 2.5, "limit": -3},
    }
    raw = {
        "metadata": {"name": "a", "creationTimestamp": "2026-11-20T11:00:00Z"},
        "spec": {
            "displayName": "A",
            "resources": resources,
            "preemptMinRuntime": "1h",
            "reclaimMinRuntime": "-5m",
        },
    }
    assert read(raw).queues == (
        Queue(
            "a",
            None,
            NOW - 3600,
            quota=Shares(1500, 5e6, 2.5),
            limit=Shares(2000.5, -1, -3),
            weight=Shares(2, 0, 0),
            display_name="A",
            preempt_min_runtime_seconds=3600,
            reclaim_min_runtime_seconds=0,
        ),
    )


def test_resources_absent_are_zero() -> None:
    found = read({"metadata": {"name": "a"}, "spec": {"priority": 7}}).queues[0]
    assert found.quota == found.limit == found.weight == Shares(0, 0, 0)
    assert found.priority == 7


def test_a_chain_of_queues_without_end_costs_no_action() -> None:
    """A chain of 600 raised a RecursionError in reclaim and preempt."""
    found = read(queue("q0"), *(queue(f"q{i}", f"q{i - 1}") for i in range(1, 600)))
    assert [one.name for one in found.queues] == sorted(f"q{i}" for i in range(DEEPEST))
    assert {entry.reason for entry in found.set_aside} == {
        "spec.parentQueue: more than 99 queues lie above it"
    }


@pytest.mark.parametrize("value", [1e299, 2**70, -(2**70)])
def test_amounts_beyond_any_cluster_are_bounded(value: float) -> None:
    found = read(queue("a", quota=value), usage={"a": {"gpu": 1e299}}).queues[0]
    assert all(abs(x) <= 2**60 for x in (*found.quota, *found.usage))


@pytest.mark.parametrize(
    ("queues", "kept", "reasons"),
    [
        (
            [queue("a", "b"), queue("b", "a"), queue("c", "a"), queue("d")],
            ["d"],
            {
                "Queue a": 'spec.parentQueue: the parents of "a", "b" form a cycle',
                "Queue b": 'spec.parentQueue: the parents of "a", "b" form a cycle',
                "Queue c": 'spec.parentQueue: the parents of "a", "b" form a cycle',
            },
        ),
        ([queue("a", "a")], [], {"Queue a": 'spec.parentQueue: the parents of "a" form a cycle'}),
        (
            [queue("a", "none"), queue("b", "a"), queue("c")],
            ["c"],
            {
                "Queue a": 'spec.parentQueue: the parent "none" of queue "a" does not exist',
                "Queue b": 'spec.parentQueue: the parent "none" of queue "a" does not exist',
            },
        ),
        (
            [queue("a", quota="much"), queue("b", "a")],  # type: ignore[arg-type]
            [],
            {
                "Queue a": 'spec.resources.cpu.quota: "much" is not a number',
                "Queue b": 'spec.parentQueue: the parent "a" of queue "b" does not exist',
            },
        ),
        (
            [queue("a", preemptMinRuntime="soon")],
            [],
            {"Queue a": 'spec.preemptMinRuntime: "soon" is not a duration'},
        ),
        (
            [queue("a"), queue("a")],
            ["a"],
            {"Queue a": "metadata.name: 2 objects have this name; one of them is read"},
        ),
    ],
)
def test_queues_outside_the_tree_are_set_aside(queues: list[Raw], kept: list[str], reasons: Raw) -> None:
    for order in (queues, queues[::-1]):
        found = read(*order)
        assert [row.name for row in found.queues] == kept
        assert {row.item: row.reason for row in found.set_aside} == reasons
        assert set(found.queue_path) == set(kept)


def test_without_full_hierarchy_fairness_all_queues_hang_below_one() -> None:
    found = read(queue("top"), queue("a", "top"), queue("b", "a"), params={"fullHierarchyFairness": False})
    assert found.set_aside == ()
    assert [(row.name, row.parent) for row in found.queues] == [
        ("a", "default"),
        ("b", "default"),
        ("default", None),
    ]
    root = found.queue_by_name["default"]
    assert (root.quota, root.limit, root.weight) == (
        Shares(-1, -1, -1),
        Shares(-1, -1, -1),
        Shares(1, 1, 1),
    )


def test_usage_is_taken_from_outside() -> None:
    found = read(queue("a"), queue("b"), usage={"a": {"gpu": 0.5, "cpu": 1}, "b": {"gpu": "half"}, "z": {}})
    assert [row.usage for row in found.queues] == [Shares(1, 0, 0.5), Shares(0, 0, 0)]
    assert [(row.item, row.reason) for row in found.set_aside] == [
        ("Queue b", 'usage.b.gpu: "half" is not a number')
    ]
