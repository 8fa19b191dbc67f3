"""Pod groups: gang trees, priority, preemptibility, topology constraints, scheduler state (1.2, 8.2)."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.reader import ParseMemo, parse
from kai_cp_models.pods import GroupKey
from kai_cp_models.snapshot import PodGroup, Snapshot, Subgroup, TopologyConstraint
from tests.kai_cp.reader.raw import NOW, group, node, pod, queue, snapshot

Raw = dict[str, Any]


def read(raw_group: Raw, **lists: Any) -> PodGroup:
    found = parse(snapshot(podGroups=[raw_group], **lists), now=NOW)
    assert found.set_aside == ()
    return found.groups[0]


def leaf(name: str, minimum: int, **fields: Any) -> Subgroup:
    return Subgroup(name, minimum, **fields)


def branch(name: str, minimum: int, *children: Subgroup, **fields: Any) -> Subgroup:
    return Subgroup(name, minimum, children, leaf=False, **fields)


@pytest.mark.parametrize(
    ("spec", "root"),
    [
        ({}, branch("", 1, leaf("default", 1))),
        ({"minMember": 4}, branch("", 1, leaf("default", 4))),
        ({"minMember": 0}, branch("", 1, leaf("default", 0))),
        ({"minMember": None, "subGroups": None}, branch("", 1, leaf("default", 1))),
        # minMember is ignored if there are subgroups; a leaf without it is optional.
        (
            {"minMember": 9, "subGroups": [{"name": "b", "minMember": 2}, {"name": "a"}]},
            branch("", 2, leaf("a", 0), leaf("b", 2)),
        ),
        (
            {"minSubGroup": 1, "subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}]},
            branch("", 1, leaf("a", 1), leaf("b", 1)),
        ),
        (
            {
                "subGroups": [
                    {"name": "x", "minMember": 7},
                    {"name": "x2", "parent": "X", "minMember": 1},
                    {"name": "x1", "parent": "x", "minMember": 3},
                    {"name": "y", "minSubGroup": 1},
                    {"name": "y1", "parent": "y", "minMember": 1},
                    {"name": "y2", "parent": "y", "minMember": 1},
                ]
            },
            branch(
                "",
                2,
                branch("x", 2, leaf("x1", 3), leaf("x2", 1)),
                branch("y", 1, leaf("y1", 1), leaf("y2", 1)),
            ),
        ),
    ],
)
def test_gang_trees(spec: Raw, root: Subgroup) -> None:
    assert read(group(**spec)).root == root


@pytest.mark.parametrize(
    ("subgroups", "field"),
    [
        ([{"name": "a"}, {"name": "a"}], r"spec.subGroups[1].name"),
        ([{"name": "a", "parent": "b"}], r"spec.subGroups[0].parent"),
        ([{"name": "a", "parent": "a"}], r"spec.subGroups[0].parent"),
        ([{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}], r"spec.subGroups[0].parent"),
        ([{}], r"spec.subGroups[0].name"),
        (["a"], r"spec.subGroups[0]"),
        ([{"name": "a", "minMember": -1}], r"spec.subGroups[0].minMember"),
        ([{"name": "a", "minMember": 1.5}], r"spec.subGroups[0].minMember"),
        ({"name": "a"}, r"spec.subGroups"),
    ],
)
def test_bad_trees_leave_what_waits_out_and_what_runs_in_its_queue(subgroups: Any, field: str) -> None:
    runs = pod("r", node="n1", labels={"kai.scheduler/subgroup-name": "a"})
    found = parse(snapshot(podGroups=[group(subGroups=subgroups)], pods=[pod(), runs]), now=NOW)
    assert [(one.key.name, one.group, one.subgroup) for one in found.pods] == [
        ("r", GroupKey("default", "g"), "")
    ]
    assert not found.groups[0].whole
    assert [row.item for row in found.set_aside] == ["Pod default/p", "PodGroup default/g"]
    assert "pod group" in found.set_aside[0].reason
    assert found.set_aside[1].reason.startswith(field + ":")


def test_running_pods_follow_a_tree_that_becomes_unreadable_and_readable_again() -> None:
    memo = ParseMemo()
    runs = pod("r", node="n1", labels={"kai.scheduler/subgroup-name": "a"}, metadata={"resourceVersion": "1"})
    trees: list[tuple[Any, str]] = [([{"name": "a"}], "a"), ({"name": "a"}, ""), ([{"name": "a"}], "a")]
    for tree, subgroup in trees:
        found = parse(snapshot(podGroups=[group(subGroups=tree)], pods=[runs]), now=NOW, memo=memo)
        assert [one.subgroup for one in found.pods] == [subgroup]


def test_a_running_pod_of_no_subgroup_is_told() -> None:
    """It counts in no gang, and is no victim; it leaves when its whole group ends."""
    runs = pod("r", node="n1", labels={"kai.scheduler/subgroup-name": "b"})
    found = parse(snapshot(podGroups=[group(subGroups=[{"name": "a"}])], pods=[runs]), now=NOW)
    assert [(row.item, row.reason) for row in found.set_aside] == [
        (
            "Pod default/r",
            'metadata.labels[kai.scheduler/subgroup-name]: "b" is not a subgroup of its pod group, so no '
            "other pod group gets its place",
        )
    ]


@pytest.mark.parametrize("field", ["preemptionDelay", "stalenessGracePeriod"])
def test_a_duration_that_cannot_be_read_counts_as_absent(field: str) -> None:
    """Otherwise its owner could take a running group out of its queue."""
    found = parse(snapshot(podGroups=[group(**{field: "forever"})], pods=[pod(node="n1")]), now=NOW)
    assert found.pods[0].group == GroupKey("default", "g")
    assert [row.reason for row in found.set_aside] == [
        f'spec.{field}: "forever" is not a duration; treated as absent'
    ]


CLASSES = [
    {"metadata": {"name": "train"}, "value": 50},
    {"metadata": {"name": "build"}, "value": 100},
]
GLOBAL = {"metadata": {"name": "usual"}, "value": 75, "globalDefault": True}


@pytest.mark.parametrize(
    ("spec", "classes", "priority", "preemptible"),
    [
        ({"priorityClassName": "train"}, CLASSES, 50, True),
        ({"priorityClassName": "build"}, CLASSES, 100, False),
        ({"priorityClassName": "build", "preemptibility": "preemptible"}, CLASSES, 100, True),
        ({"priorityClassName": "train", "preemptibility": "non-preemptible"}, CLASSES, 50, False),
        ({"priorityClassName": "missing"}, CLASSES, 50, True),
        ({"priorityClassName": "missing"}, [*CLASSES, GLOBAL], 75, True),
        ({}, [GLOBAL], 75, True),
    ],
)
def test_priority_and_preemptibility(spec: Raw, classes: list[Raw], priority: int, preemptible: bool) -> None:
    found = read(group(**spec), priorityClasses=classes)
    assert (found.priority, found.preemptible) == (priority, preemptible)


def test_scheduler_state_and_durations() -> None:
    found = read(
        group(
            annotations={
                "kai.scheduler/last-start-timestamp": "2026-11-20T11:59:00Z",
                "kai.scheduler/last-eviction-timestamp": "2026-11-20T11:58:00Z",
                "kai.scheduler/stale-podgroup-timestamp": "2026-11-20T11:57:00Z",
            },
            preemptionDelay="10m0s",
            stalenessGracePeriod="-1s",
            markUnschedulable=False,
        )
    )
    assert (found.last_start, found.last_eviction, found.stale_since) == (NOW - 60, NOW - 120, NOW - 180)
    assert (found.preemption_delay_seconds, found.staleness_grace_seconds) == (600, -1)
    assert not found.mark_unschedulable


def test_an_unreadable_state_annotation_is_named_and_read_as_absent() -> None:
    raw = group(annotations={"kai.scheduler/last-start-timestamp": "yesterday"})
    found = parse(snapshot(podGroups=[raw]), now=NOW)
    assert found.groups[0].last_start is None
    assert found.set_aside[0].reason == (
        'metadata.annotations[kai.scheduler/last-start-timestamp]: "yesterday" is not an RFC 3339 time;'
        " treated as absent"
    )


@pytest.mark.parametrize(
    ("backoff", "pools", "label", "backed_off"),
    [
        (1, ["default"], None, True),
        (1, ["a", "default"], None, True),
        (1, ["default", "a"], None, False),
        (1, [], None, False),
        (-1, ["default"], None, False),
        (None, ["default"], None, False),
        (1, ["a"], "a", True),
    ],
)
def test_scheduling_backoff(
    backoff: int | None, pools: list[str], label: str | None, backed_off: bool
) -> None:
    raw = group(schedulingBackoff=backoff)
    raw["status"] = {"schedulingConditions": [{"nodePool": pool} for pool in pools]}
    lists: Raw = {"podGroups": [raw]}
    if label:
        raw["metadata"]["labels"] = {"pool": label}
        lists["queues"] = [queue()]
        lists["queues"][0]["metadata"]["labels"] = {"pool": label}
    partition = {"NodePoolLabelKey": "pool", "NodePoolLabelValue": label or ""}
    found = parse(snapshot(**lists, params={"partitionParams": partition}), now=NOW)
    assert found.groups[0].backed_off is backed_off


LEVELS = [{"nodeLabel": "zone", "alias": "z"}, {"nodeLabel": "rack"}]
TOPOLOGIES = [{"metadata": {"name": "fabric"}, "spec": {"levels": LEVELS}}]


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ({}, None),
        ({"requiredTopologyLevel": "rack"}, None),
        (
            {"topology": "fabric", "requiredTopologyLevel": "z", "preferredTopologyLevel": "rack"},
            TopologyConstraint("fabric", "zone", "rack"),
        ),
        (
            {"topology": "fabric", "requiredTopologyLevel": "block"},
            TopologyConstraint("fabric", "block", "", 'topology "fabric" has no level "block"'),
        ),
        (
            {"topology": "fabric"},
            TopologyConstraint("fabric", error='no level of topology "fabric" is named'),
        ),
        (
            {"topology": "other", "preferredTopologyLevel": "rack"},
            TopologyConstraint("other", "", "rack", 'topology "other" does not exist'),
        ),
    ],
)
def test_topology_constraints(constraint: Raw, expected: TopologyConstraint | None) -> None:
    found = read(
        group(topologyConstraint=constraint, subGroups=[{"name": "a", "topologyConstraint": constraint}]),
        topologies=TOPOLOGIES,
        nodes=[node(labels={"zone": "a", "rack": "r"})],
    )
    assert found.root.constraint == found.root.children[0].constraint == expected


def test_a_topology_constraint_that_names_nothing_takes_little_memory() -> None:
    """A thousand trees are remembered, also those of pod groups that are gone; each might have a megabyte."""
    keys = ("topology", "requiredTopologyLevel", "preferredTopologyLevel")
    found = read(group(topologyConstraint=dict.fromkeys(keys, "t" * 100_000))).root.constraint
    assert found is not None
    assert "does not exist" in found.error
    assert len(found.topology + found.required + found.preferred + found.error) < 2_000


def test_same_name_in_two_namespaces_is_kept_apart() -> None:
    found = parse(
        snapshot(
            podGroups=[group(minMember=2), group(namespace="other", minMember=3)],
            pods=[pod("a"), pod("b", namespace="other")],
        ),
        now=NOW,
    )
    assert [row.root.children[0].minimum for row in found.groups] == [2, 3]
    assert [row.group for row in found.pods] == [GroupKey("default", "g"), GroupKey("other", "g")]


@pytest.mark.parametrize(
    ("queue_name", "reason"),
    [
        ("none", 'spec.queue: queue "none" does not exist'),
        ("", 'spec.queue: queue "" does not exist'),
        ("top", 'spec.queue: queue "top" is not a leaf queue'),
    ],
)
def test_a_group_in_an_unusable_queue_is_named_and_kept(queue_name: str, reason: str) -> None:
    raw = group()
    raw["spec"]["queue"] = queue_name
    found = parse(snapshot(podGroups=[raw], queues=[queue("top"), queue("q", "top")]), now=NOW)
    assert [str(row.key) for row in found.groups] == ["default/g"]
    assert [(row.item, row.reason) for row in found.set_aside] == [("PodGroup default/g", reason)]


def hidden_gang(*pods: Raw) -> Snapshot:
    """A gang of three with pods of which some cannot be kept."""
    return parse(snapshot(podGroups=[group(minMember=3)], pods=list(pods)), now=NOW)


def test_running_pods_out_of_sight_still_count_for_their_gang() -> None:
    found = hidden_gang(pod("a", node="n1"), pod("b", node="gone"), pod("c"))
    assert [row.key.name for row in found.pods] == ["a", "c"]
    assert found.groups[0].root.children[0].minimum == 2
    assert [(row.item, row.reason) for row in found.set_aside] == [
        ("Pod default/b", 'spec.nodeName: node "gone" is not in the snapshot')
    ]


def test_pods_on_their_way_out_or_pending_do_not() -> None:
    leaving = pod("b", node="gone", metadata={"deletionTimestamp": "2026-11-20T11:59:00Z"})
    malformed = pod("c", requests={"cpu": "abc"})
    assert hidden_gang(leaving, malformed).groups[0].root.children[0].minimum == 3
