"""What is kept of an object that is too large: nothing that others have to be told, and little memory."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import orjson
import pytest

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api import resources as r
from kai_cp.kube.api import transforms as t
from kai_cp.kube.api.informers import Informers
from kai_cp.kube.api.outline import OUTLINES
from kai_cp.kube.api.store import Store
from kai_cp.reader import parse
from kai_cp.workloads.validity import LARGEST, WHY
from kai_cp_models.pods import Pod
from kai_cp_models.snapshot import Snapshot
from tests.kai_cp.kube.samples import group, node, pod, queue, snapshot

MANY = 50_000
TOLERATIONS = [{"key": f"k{i}", "operator": "Exists"} for i in range(MANY)]
PORTS = [{"containerPort": 1 + i % 60_000, "protocol": "TCP"} for i in range(MANY)]
VOLUMES = [{"name": f"v{i}", "emptyDir": {}} for i in range(MANY)]
LABELS = {f"example.com/k{i}": "x" for i in range(MANY)}


def kept(item: Object) -> Object:
    pods = item.get("kind") == "Pod"
    store = Store(transform=t.pod if pods else t.plain, outline=OUTLINES[r.PODS if pods else r.POD_GROUPS])
    store.put({**item, "metadata": {**item["metadata"], "resourceVersion": "7"}})
    return store.listed()[0]


def with_spec(item: Object, **spec: Any) -> Object:
    return {**item, "spec": {**item["spec"], **spec}}


def with_container(item: Object, **more: Any) -> Object:
    return with_spec(item, containers=[{**item["spec"]["containers"][0], **more}])


def with_meta(item: Object, **meta: Any) -> Object:
    return {**item, "metadata": {**item["metadata"], **meta}}


LARGE = {
    "tolerations": lambda one: with_spec(one, tolerations=TOLERATIONS),
    "volumes": lambda one: with_spec(one, volumes=VOLUMES),
    "ports": lambda one: with_container(one, ports=PORTS),
    "affinity": lambda one: with_spec(one, affinity={"podAntiAffinity": {"a": TOLERATIONS}}),
    "init containers": lambda one: with_spec(
        one, initContainers=[{"name": f"i{i}", "resources": {}} for i in range(MANY)]
    ),
    "labels": lambda one: with_meta(one, labels={**LABELS, keys.SUBGROUP: ""}),
    "owners": lambda one: with_meta(
        one,
        ownerReferences=[{"apiVersion": "v1", "kind": "A", "name": f"o{i}", "uid": "u"} for i in range(MANY)],
    ),
}


def read(*pods: Object, groups: list[Object] | None = None) -> Snapshot:
    lists = {"pods": list(pods), "nodes": [node("n")], "queues": [queue()], "podGroups": groups or [group()]}
    return parse(snapshot(**lists), now=1_795_000_000.0)


def the_pod(item: Object) -> Pod:
    [found] = read(item).pods
    return found


@pytest.mark.parametrize("change", LARGE.values(), ids=LARGE.keys())
def test_a_large_pod_on_a_node_holds_what_it_held_and_stays_in_its_group(change: Any) -> None:
    small = pod("p", node="n", phase="Running", gpus=2)
    found = kept(change(small))
    assert len(orjson.dumps(found)) < LARGEST // 4
    before, after = (the_pod(one) for one in (small, found))
    assert (after.status, after.group, after.node, after.gpu_groups) == (
        before.status,
        before.group,
        before.node,
        before.gpu_groups,
    )
    assert after.spec.requests == before.spec.requests
    assert after.spec.gpu == before.spec.gpu


@pytest.mark.parametrize("change", LARGE.values(), ids=LARGE.keys())
def test_a_large_pod_that_waits_is_set_aside_and_told_why(change: Any) -> None:
    found = kept(change(pod("p")))
    assert len(orjson.dumps(found)) < LARGEST // 4
    said = read(found)
    assert not said.pods
    assert [WHY in one.reason for one in said.set_aside] == [True]


def test_a_share_of_a_gpu_is_still_held() -> None:
    small = pod("p", node="n", phase="Running", gpus=0, labels={keys.GPU_GROUP: "g1"})
    small = with_meta(small, annotations={**small["metadata"]["annotations"], "gpu-fraction": "0.5"})
    found = kept(with_meta(small, labels={**LABELS, keys.GPU_GROUP: "g1"}))
    assert the_pod(found).gpu_groups == ("g1",)


def test_invented_resources_hide_no_gpu() -> None:
    invented = {f"a.example/r{i}": "1" for i in range(MANY)}
    asked = {**invented, "nvidia.com/gpu": "3", "cpu": "2"}
    found = kept(with_container(pod("p", node="n", phase="Running"), resources={"requests": asked}))
    assert len(orjson.dumps(found)) < LARGEST // 4
    assert the_pod(found).spec.gpu.devices == 3


def test_a_large_pod_group_keeps_its_queue_and_what_runs_in_it() -> None:
    subgroups = [{"name": f"s{i}", "minMember": 1} for i in range(MANY)]
    large = kept({"kind": "PodGroup", **with_spec(group(), subGroups=subgroups)})
    found = read(pod("p", node="n", phase="Running"), pod("q"), groups=[large])
    assert [one.key.name for one in found.pods] == ["p"]
    assert found.group_by_key[found.groups[0].key].queue == "q"
    assert any(WHY in one.reason for one in found.set_aside)


@pytest.mark.parametrize("change", LARGE.values(), ids=LARGE.keys())
def test_an_outline_has_the_types_of_the_api(change: Any) -> None:
    """All that reads pods goes by these, and a pod is not read in one place only."""
    small = t.pod(pod("p", node="n", phase="Running"))
    found = kept(change(small))
    for part in ("metadata", "spec", "status"):
        for key, value in found[part].items():
            assert value is None or isinstance(value, type(small[part].get(key, value))), key


def test_every_store_of_a_process_keeps_outlines() -> None:
    informers = Informers(Mock())
    large = {"kind": "PodGroup", **with_spec(group(), subGroups=TOLERATIONS)}
    for kind, item in ((r.PODS, LARGE["ports"](pod("p", node="n"))), (r.POD_GROUPS, large)):
        store = informers.store(kind, fields="metadata.namespace=ns")
        store.put(item)
        assert len(store.all()) == 1
        assert len(orjson.dumps(store.all())) < LARGEST // 4


def test_a_large_object_of_another_kind_is_set_aside() -> None:
    store = Store()
    item = {"metadata": {"name": "c", "namespace": "ns"}, "spec": {"devices": {"config": TOLERATIONS}}}
    store.put(item)
    assert store.get(("ns", "c")) is None
    assert store.listed() == [{"setAside": WHY, "metadata": item["metadata"]}]


def test_an_object_of_the_whole_cluster_is_kept_whole() -> None:
    item = {"metadata": {"name": "t"}, "spec": {"levels": TOLERATIONS}}
    assert kept(item)["spec"]["levels"] == TOLERATIONS
