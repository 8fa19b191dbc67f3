"""Statuses, places, shared GPUs and order of pods (0.1, 2.6, 3.6)."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.reader import ParseMemo, parse
from kai_cp.reader.facts import FactReader, PodFacts
from kai_cp_models.pods import GroupKey, Pod, PodStatus
from kai_cp_models.settings import Limits
from tests.kai_cp.reader.raw import NOW, group, node, pod, snapshot

Raw = dict[str, Any]


def only(raw_pod: Raw, **lists: Any) -> Pod:
    found = parse(snapshot(pods=[raw_pod], **lists), now=NOW)
    assert found.set_aside == ()
    return found.pods[0]


def test_tolerations_that_are_added_to_a_running_pod_take_it_out_of_nothing() -> None:
    """A waiting pod with that many is left out; one that runs stays in its queue, without them."""
    many = [{"key": f"k{i}", "operator": "Exists"} for i in range(10_001)]
    found = parse(snapshot(pods=[pod("r", node="n1", tolerations=many), pod("w", tolerations=many)]), now=NOW)
    assert [(one.key.name, one.group, one.spec.tolerations) for one in found.pods] == [
        ("r", GroupKey("default", "g"), ())
    ]
    assert [row.item for row in found.set_aside] == ["Pod default/w"]


def test_specs_of_pods_that_have_gone_are_forgotten() -> None:
    """Jobs that each have a ConfigMap of their own, 1,000 of them after one another."""
    memo, most = ParseMemo(), 0
    for i in range(1000):
        volumes = [{"name": "v", "configMap": {"name": f"c{i}-{j}"}} for j in range(3)]
        jobs = [pod(f"p{i}-{j}", volumes=[volumes[j]], metadata={"resourceVersion": "1"}) for j in range(3)]
        parse(snapshot(pods=jobs), now=NOW, memo=memo)
        most = max(most, len(memo.specs))
    assert 1000 < most < 1010
    assert len(memo.specs) < most


def test_objects_are_read_once_while_they_stay_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also pods that have ended or cannot be read, which every reading looks at again; not those without
    a version, which may change in place, nor with other limits."""
    read, names = FactReader.read, list[str]()

    def counted(self: FactReader, raw_pod: Raw, namespace: str, name: str) -> PodFacts:
        names.append(name)
        return read(self, raw_pod, namespace, name)

    monkeypatch.setattr(FactReader, "read", counted)
    version, memo = {"resourceVersion": "1"}, ParseMemo()
    pods = [
        pod("draft", phase="Succeeded"),
        pod("ended", phase="Succeeded", metadata=version),
        pod("runs", node="n1", metadata=version),
        pod("unreadable", metadata=version, tolerations=7),
    ]
    for turn, seen in enumerate((["draft", "ended", "runs", "unreadable"], ["draft"], ["draft"])):
        found = parse(snapshot(pods=pods), now=NOW + turn, memo=memo)
        assert names == seen
        assert [row.item for row in found.set_aside] == ["Pod default/unreadable"]
        names.clear()
    # It asks for CPU and memory.
    for most, aside in ((1, ["Pod default/runs", "Pod default/unreadable"]), (2, ["Pod default/unreadable"])):
        limits = Limits(resources_per_pod=most)
        found = parse(snapshot(pods=pods), now=NOW, memo=memo, limits=limits)
        assert names == ["draft", "ended", "runs", "unreadable"]
        assert [row.item for row in found.set_aside] == aside
        names.clear()


def bind_request(pod: str = "p", node: str = "n1", *, owner: str = "", **fields: Any) -> Raw:
    metadata: Raw = {"name": pod, "namespace": "default"}
    if owner:
        metadata["ownerReferences"] = [{"kind": "Pod", "name": pod, "uid": owner}]
    status = fields.pop("status", {})
    return {
        "metadata": metadata,
        "spec": {"podName": pod, "selectedNode": node, **fields},
        "status": status,
    }


DELETED = {"deletionTimestamp": "2026-11-20T11:59:00Z"}
DELETED_WITH_HALF_AN_HOUR_LEFT = {"deletionTimestamp": "2026-11-20T12:30:00Z"}
DELETED_WITH_YEARS_LEFT = {"deletionTimestamp": "2036-11-20T12:00:00Z"}
LONG_DELETED = {"deletionTimestamp": "2026-11-20T11:57:59Z"}


@pytest.mark.parametrize(
    ("raw_pod", "requests", "status", "place"),
    [
        (pod(node="n1"), [], PodStatus.RUNNING, "n1"),
        (pod(node="n1", metadata=DELETED), [], PodStatus.RELEASING, "n1"),
        (pod(node="n1", metadata=DELETED_WITH_HALF_AN_HOUR_LEFT), [], PodStatus.RELEASING, "n1"),
        (pod(node="n1", metadata=DELETED_WITH_YEARS_LEFT), [], PodStatus.STUCK_IN_RELEASING, "n1"),
        (pod(node="n1", metadata=LONG_DELETED), [], PodStatus.STUCK_IN_RELEASING, "n1"),
        (pod(node="n1", phase="Pending", metadata=DELETED), [], PodStatus.RELEASING, "n1"),
        # Its init containers may run on for as long.
        (
            pod(node="n1", phase="Pending", metadata=DELETED_WITH_YEARS_LEFT),
            [],
            PodStatus.STUCK_IN_RELEASING,
            "n1",
        ),
        (pod(node="n1", phase="Pending", metadata=LONG_DELETED), [], PodStatus.STUCK_IN_RELEASING, "n1"),
        (pod(phase="Pending", metadata=LONG_DELETED), [], PodStatus.RELEASING, None),
        (pod(metadata=DELETED), [], PodStatus.RELEASING, None),
        (pod(node="n1", phase="Pending"), [], PodStatus.BOUND, "n1"),
        (pod(), [bind_request()], PodStatus.BINDING, "n1"),
        (pod(), [bind_request(owner="uid-p")], PodStatus.BINDING, "n1"),
        (pod(), [bind_request(owner="uid-of-an-earlier-p")], PodStatus.PENDING, None),
        (pod(), [bind_request(node="gone")], PodStatus.PENDING, None),
        (pod(), [bind_request(status={"phase": "Failed"})], PodStatus.PENDING, None),
        (
            pod(),
            [bind_request(status={"phase": "Failed", "failedAttempts": 1}, backoffLimit=2)],
            PodStatus.BINDING,
            "n1",
        ),
        (
            pod(),
            [bind_request(status={"phase": "Failed", "failedAttempts": 2}, backoffLimit=2)],
            PodStatus.PENDING,
            None,
        ),
        (pod(schedulingGates=[{"name": "x"}]), [], PodStatus.GATED, None),
        (pod(schedulingGates=[{"name": "x"}]), [bind_request()], PodStatus.BINDING, "n1"),
        (pod(), [], PodStatus.PENDING, None),
        (pod(node="n1", phase="Succeeded"), [], PodStatus.SUCCEEDED, None),
        (pod(node="n1", phase="Failed"), [], PodStatus.FAILED, None),
        (pod(node="n1", phase="Odd"), [], PodStatus.UNKNOWN, None),
    ],
)
def test_status_and_place(raw_pod: Raw, requests: list[Raw], status: PodStatus, place: str | None) -> None:
    found = only(raw_pod, bindRequests=requests)
    assert (found.status, found.node) == (status, place)


@pytest.mark.parametrize(
    ("threshold", "status"),
    [
        (None, PodStatus.RELEASING),
        (0, PodStatus.RELEASING),
        (59_000_000_000, PodStatus.STUCK_IN_RELEASING),
        ("long", PodStatus.RELEASING),
    ],
)
def test_the_threshold_of_stuck_pods(threshold: Any, status: PodStatus) -> None:
    raw = snapshot(pods=[pod(node="n1", metadata=DELETED)], params={"stuckInReleasingThreshold": threshold})
    assert parse(raw, now=NOW).pods[0].status is status


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_without_place_and_group_are_left_out(phase: str) -> None:
    found = parse(snapshot(pods=[pod(group=None, phase=phase)]), now=NOW)
    assert found.pods == found.set_aside == ()


def test_a_waiting_pod_without_a_group_is_set_aside() -> None:
    """No action would decide about it. A pod of another scheduler does not matter here."""
    ours = pod("ours", group=None, phase="Pending")
    others = pod("theirs", group=None, phase="Pending")
    others["spec"]["schedulerName"] = "default-scheduler"
    found = parse(snapshot(pods=[ours, others]), now=NOW)
    assert [row.item for row in found.set_aside] == ["Pod default/ours"]
    assert "no pod group is named" in found.set_aside[0].reason


def test_a_placed_pod_without_a_group_is_named_and_keeps_its_place() -> None:
    """Its owner may have taken the annotation away: it counts in no queue, and no action may evict it. The
    note is made again in every reading.
    """
    theirs = pod("theirs", group=None, node="n1", schedulerName="default-scheduler")
    memo, raw = ParseMemo(), snapshot(pods=[pod("ours", group=None, node="n1"), theirs], nodes=[node("n1")])
    for item in raw["rawObjects"]["pods"]:
        item["metadata"]["resourceVersion"] = "1"
    for _ in range(2):
        found = parse(raw, now=NOW, memo=memo)
        assert [row.key.name for row in found.pods] == ["ours", "theirs"]
        assert [row.item for row in found.set_aside] == ["Pod default/ours"]
        assert "counts in no queue" in found.set_aside[0].reason


def test_a_pod_joins_the_group_of_its_own_namespace() -> None:
    found = parse(
        snapshot(pods=[pod("a"), pod("b", namespace="other", node="n1")]),
        now=NOW,
    )
    assert [row.group for row in found.pods] == [GroupKey("default", "g"), None]


@pytest.mark.parametrize(
    ("labels", "requests", "groups"),
    [
        ({"runai-gpu-group": "x"}, [], ("x",)),
        ({"runai-gpu-group/b": "b", "runai-gpu-group/a": "a"}, [], ("a", "b")),
        ({"runai-gpu-group": "x"}, [bind_request(selectedGPUGroups=["y"])], ("y",)),
        (
            {"runai-gpu-group/b": "b"},
            [bind_request(selectedGPUGroups=["z", "a"], status={"phase": "Succeeded"})],
            ("z", "a"),
        ),
        ({}, [], ()),
    ],
)
def test_shared_gpu_groups(labels: Raw, requests: list[Raw], groups: tuple[str, ...]) -> None:
    raw = pod(node="n1", labels=labels, annotations={"gpu-fraction": "0.5"})
    assert only(raw, bindRequests=requests).gpu_groups == groups


def test_a_whole_gpu_pod_has_no_gpu_groups() -> None:
    raw = pod(node="n1", labels={"runai-gpu-group": "x"}, requests={"nvidia.com/gpu": "1"})
    assert only(raw).gpu_groups == ()


def test_order_of_pods() -> None:
    """Kubeflow master, ray head, labelled priority (larger first, unreadable last), age, uid."""
    raw = [
        pod("h", metadata={"creationTimestamp": "2026-11-20T11:00:00Z"}),
        pod("g", metadata={"creationTimestamp": "2026-11-20T10:00:00Z"}),
        pod("f", labels={"kai.scheduler/task-priority": "high"}),
        pod("e", labels={"kai.scheduler/task-priority": "-7"}),
        pod("d", labels={"kai.scheduler/task-priority": "3"}),
        pod("c", labels={"kai.scheduler/task-priority": "12"}),
        pod("b", labels={"ray.io/node-type": "head"}),
        pod("a", labels={"training.kubeflow.org/job-role": "master"}),
    ]
    found = parse(snapshot(pods=raw), now=NOW)
    ordered = [row.key.name for row in found.members[GroupKey("default", "g")]]
    assert ordered == list("abcdefgh")


def test_roles_of_other_pods() -> None:
    raw = [
        pod("a", group=None, node="n1", schedulerName="default-scheduler"),
        pod("b", group=None, node="n1", labels={"app": "kai-resource-reservation"}),
        pod("c", group=None, node="n1", labels={"app": "scaling-pod"}),
        pod("d", group=None, node="n1", labels={"app": "kai-resource-reservation"}),
        pod("e", group=None, node="n1", labels={"app": "scaling-pod"}),
        pod("f", group=None, node="n1", labels={"app": "kai-resource-reservation"}),
    ]
    homes = ["default", "kai-resource-reservation", "kai-scale-adjust", "default", "default"]
    for item, home in zip(raw, [*homes, "kai-resource-reservation"], strict=True):
        item["metadata"]["namespace"] = home
    raw[5]["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "r", "uid": "u"}]
    found = parse(snapshot(pods=raw), now=NOW).pods
    assert {row.key.name: (row.ours, row.reservation, row.scaling) for row in found} == {
        "a": (False, False, False),
        "b": (True, True, False),
        "c": (True, False, True),
        # Any user can write the label.
        "d": (True, False, False),
        "e": (True, False, False),
        # A controller made it, not the binder.
        "f": (True, False, False),
    }


@pytest.mark.parametrize(("home", "groups"), [("kai-resource-reservation", ()), ("default", ("a",))])
def test_a_reservation_pod_is_no_sharer_of_its_device(home: str, groups: tuple[str, ...]) -> None:
    labels = {"app": "kai-resource-reservation", "runai-gpu-group": "a"}
    only = pod("r", group=None, node="n1", labels=labels, annotations={"gpu-fraction": "0.5"})
    only["metadata"]["namespace"] = home
    (found,) = parse(snapshot(pods=[only]), now=NOW).pods
    assert (found.reservation, found.gpu_groups) == (not groups, groups)


def test_promises_of_a_bind_request() -> None:
    request = bind_request(
        resourceClaimAllocations=[{"name": "gpu", "allocation": {"devices": {}}}],
        predictedNUMAZones=[{"zone": "node-0", "amount": {"cpu": "2", "nvidia.com/gpu": "1"}}],
    )
    found = only(pod(), bindRequests=[request])
    assert found.claim_allocations["gpu"].written == {"devices": {}}
    assert found.numa_zones == (("node-0", (("cpu", 2000), ("gpu", 1000))),)


def test_the_observed_numa_placement_comes_first() -> None:
    raw = pod(
        node="n1",
        annotations={
            "kai.scheduler/numa-placement-observed": '[{"zone":"a","amount":{"memory":"1Ki"}}]',
            "kai.scheduler/numa-placement-predicted": '[{"zone":"b","amount":{}}]',
        },
    )
    assert only(raw).numa_zones == (("a", (("memory", 1024),)),)


def test_a_pod_without_the_label_of_its_pod_group_s_pool_is_the_other_shard_s() -> None:
    """It waits there, so nothing is said here. One that runs on a node of this shard counts in none of its
    queues."""
    other = group("g")
    other["metadata"]["labels"] = {"pool": "a"}
    raw = snapshot(
        pods=[pod("waits"), pod("runs", node="n1")],
        nodes=[node("n1")],
        podGroups=[other],
        params={"partitionParams": {"NodePoolLabelKey": "pool"}},
    )
    found = parse(raw, now=NOW)
    assert [(row.item, row.reason) for row in found.set_aside] == [
        (
            "Pod default/runs",
            'pod group "g" is of another node pool, so the pod counts in no queue, and nothing evicts it',
        )
    ]


def test_a_pod_group_that_cannot_be_read_is_of_no_other_node_pool() -> None:
    broken = group("g")
    broken["metadata"]["uid"] = []
    params = {"partitionParams": {"NodePoolLabelKey": "pool"}}
    raw = snapshot(pods=[pod("waits")], nodes=[node("n1")], podGroups=[broken], params=params)
    found = parse(raw, now=NOW)
    assert [(row.item, row.reason) for row in found.set_aside] == [
        ("Pod default/waits", 'pod group "g" does not exist, so nothing decides about the pod'),
        ("PodGroup default/g", "metadata.uid: [] is not a string"),
    ]


def test_pods_of_other_node_pools_are_left_out_quietly() -> None:
    other = node("other", labels={"kai.scheduler/node-pool": "b"})
    found = parse(
        snapshot(
            nodes=[node(), other],
            pods=[
                pod("x", group=None, node="other"),
                pod("y", group=None, node="unlisted"),
                pod("z", group="of-pool-b", labels={"kai.scheduler/node-pool": "b"}),
            ],
            params={"partitionParams": {"NodePoolLabelKey": "kai.scheduler/node-pool"}},
        ),
        now=NOW,
    )
    assert [row.name for row in found.nodes] == ["n1"]
    assert found.pods == found.set_aside == ()
