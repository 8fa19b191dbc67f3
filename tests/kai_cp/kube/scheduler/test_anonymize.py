"""What a snapshot without names still contains: the fields of the keep-list, and nothing else."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest

from kai_cp.decisions import to_json
from kai_cp.kube.scheduler.anonymize import Anonymizer
from kai_cp.reader import parse
from kai_cp.reader.snapshot import LISTS
from kai_cp_models.engine import decide
from kai_cp_models.settings import Settings
from tests.kai_cp.reader.raw import NOW
from tests.kai_cp.reader.rich import rich
from tests.support.clusters import random_cluster
from tests.support.objects import NOW as DRAWN_AT

MARK = "planted"

Raw = dict[str, Any]


def full() -> Raw:
    """``rich``, and what else Kubernetes keeps in such objects."""
    raw = rich()
    raw["config"]["usageDBConfig"] = {"clientType": "prometheus", "connectionString": "http://u:p@host"}
    raw["usage"] = {"queues": {"q": {"gpu": 0.5}}, "fetchedAt": "2026-11-20T11:59:00Z"}
    lists = raw["rawObjects"]
    raw["schedulerParams"]["kubeconfig"] = "/home/me/.kube/config"
    raw["discovery"] = {"serverVersion": {"gitVersion": "v1.34"}, "resources": [], "host": "api.example"}
    raw["elsewhere"] = {"host": "h"}
    lists["deviceTaintRules"] = [
        {
            "metadata": {"name": "r"},
            "spec": {
                "deviceSelector": {"driver": "gpu.x", "pool": "n1"},
                "taint": {"key": "k", "value": "v", "effect": "NoSchedule"},
            },
        }
    ]
    lists["csiNodes"] = [{"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "p", "nodeID": "i-1"}]}}]
    lists["persistentVolumes"][0]["spec"] |= {
        "csi": {"driver": "p", "volumeHandle": "vol-1", "volumeAttributes": {"share": "//nas/x"}},
        "nfs": {"server": "10.0.0.1", "path": "/export"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    lists["nodes"][0]["status"] |= {
        "addresses": [{"type": "Hostname", "address": "host-1"}],
        "nodeInfo": {"kernelVersion": "6.1", "machineID": "abc"},
        "images": [{"names": ["registry.example/app:1"]}],
    }
    lists["nodes"][0]["spec"] |= {"providerID": "aws:///i-1", "podCIDR": "10.0.0.0/24"}
    lists["pods"][0]["metadata"] |= {
        "annotations": {**lists["pods"][0]["metadata"]["annotations"], "example.com/note": "x"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "u"}],
        "generateName": "j-",
        "finalizers": ["example.com/f"],
        "managedFields": [{"manager": "me"}],
    }
    lists["pods"][0]["spec"] |= {
        "serviceAccountName": "me",
        "hostname": "h",
        "subdomain": "s",
        "imagePullSecrets": [{"name": "pull"}],
        "hostAliases": [{"ip": "10.0.0.2", "hostnames": ["db"]}],
        "dnsConfig": {"searches": ["corp.example"]},
    }
    lists["pods"][0]["spec"]["containers"][0] |= {
        "name": "main",
        "image": "registry.example/app:1",
        "command": ["run", "--password=1"],
        "env": [
            {"name": "TOKEN", "value": "1"},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "root-key"}}},
            {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "map-key"}}},
        ],
        "envFrom": [{"prefix": "P", "configMapRef": {"name": "m"}}],
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": "Bearer"}]}},
        "volumeMounts": [{"name": "v", "mountPath": "/data", "subPath": "x"}],
    }
    lists["pods"][0]["spec"]["volumes"] = [
        {"name": "n", "nfs": {"server": "10.0.0.1", "path": "/x"}},
        {"name": "s", "secret": {"secretName": "s", "items": [{"key": "secret-key", "path": "p"}]}},
        {"name": "i", "csi": {"driver": "p", "volumeAttributes": {"share": "//nas/x"}}},
        {"name": "f", "flexVolume": {"driver": "p", "options": {"share": "//nas/x"}}},
    ]
    lists["pods"][0]["status"] |= {"hostIP": "10.0.0.1", "podIP": "10.1.0.1", "message": "m", "reason": "r"}
    lists["configMaps"][0]["data"] = {"key": "value"}
    lists["storageClasses"][0]["parameters"] = {"pool": "inner-pool"}
    lists["priorityClasses"][0]["description"] = "for me"
    lists["queues"][0]["spec"]["displayName"] = "mine"
    lists["resourceClaims"][0]["spec"]["devices"]["config"] = [
        {"opaque": {"driver": "gpu.x", "parameters": {"a": "b"}}}
    ]
    return raw


UNREAD: Raw = {
    "owner": "me",
    "connectionString": "http://u:p@host",
    "attributes": {"owner": "me"},
    "expression": "me",
    "actions": ["me"],
    "tiers": [{"name": "me"}],
    "discovery": "me",
    "resources": {"owner": "me", "list": ["me"]},
    "nested": {"list": [{"host": "h", "data": {"a": "b"}}]},
}
"""Fields that no kind has, among them fields that other kinds keep."""
DEVICE_KINDS = ("resourceSlices", "deviceClasses", "resourceClaims", "deviceTaintRules")


def beset(value: Any, foreign: Raw) -> Any:
    """The value with marked foreign fields in every mapping that is no map of labels."""
    if isinstance(value, list):
        return [beset(inner, foreign) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        **planted(foreign),
        **{k: v if k == "attributes" else beset(v, foreign) for k, v in value.items()},
    }


def planted(value: Any) -> Any:
    """The value with a mark in every text."""
    if isinstance(value, dict):
        return {key: planted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [planted(inner) for inner in value]
    return value + MARK if isinstance(value, str) else value


def marked(value: Any, path: tuple[str, ...]) -> set[str]:
    """Where the mark is still found: the last two keys."""
    if isinstance(value, dict):
        return {hit for key, inner in value.items() for hit in marked(inner, (*path, key))}
    if isinstance(value, list):
        return {hit for inner in value for hit in marked(inner, path)}
    return {"/".join(path[-2:])} if isinstance(value, str) and MARK in value else set()


def test_of_a_mark_in_every_text_only_the_keep_list_is_left() -> None:
    assert marked(Anonymizer().snapshot(planted(full())), ()) == {
        # How the scheduler is set up.
        "config/actions",
        "plugins/name",
        "arguments/kValue",
        "arguments/ignoreList",
        "partitionParams/NodePoolLabelKey",
        "partitionParams/NodePoolLabelValue",
        "schedulerParams/schedulerName",
        "spec/schedulerName",
        # Keys of labels, and names of the levels that they mean.
        "levels/nodeLabel",
        "levels/alias",
        "topologyConstraint/requiredTopologyLevel",
        "matchExpressions/key",
        "tolerations/key",
        "podAffinityTerm/topologyKey",
        "requiredDuringSchedulingIgnoredDuringExecution/topologyKey",
        "topologySpreadConstraints/topologyKey",
        # Labels that the scheduler itself understands.
        "labels/app",
        "matchLabels/app",
        "labels/kai.scheduler/task-priority",
        "labels/nvidia.com/gpu.memory",
        # Resources, drivers, what they say about devices, and what requests say about those.
        "resources/name",
        "metadata/name",
        "model/string",
        "cel/expression",
        "spec/driver",
        "results/driver",
        "csi/driver",
        "storageClasses/provisioner",
        "exactly/deviceClassName",
        "spec/extendedResourceName",
        "deviceSelector/driver",
        "taint/key",
        "flexVolume/driver",
        # What the API server serves.
        "serverVersion/gitVersion",
    }


def test_every_list_that_is_read_was_planted() -> None:
    assert full()["rawObjects"].keys() == LISTS


@pytest.mark.parametrize("kind", sorted(LISTS))
def test_no_field_that_is_not_read_comes_through(kind: str) -> None:
    """Anywhere in any object: fields that other kinds keep, and fields that no kind keeps."""
    about_devices = ("attributes", "expression") if kind in DEVICE_KINDS else ()
    foreign = {key: value for key, value in UNREAD.items() if key not in about_devices}
    raw = full()
    raw["rawObjects"] = {kind: beset(raw["rawObjects"][kind], foreign)}
    assert marked(Anonymizer().snapshot(raw), ()) == set()


def test_no_object_of_a_kind_that_is_not_read_comes_through() -> None:
    secret = {"metadata": {"name": "s"}, "type": "Opaque", "stringData": {"password": "1"}, **UNREAD}
    raw = full()
    raw["rawObjects"] |= {"secrets": [planted(secret)], "events": [planted(secret)]}
    assert Anonymizer().snapshot(raw) == Anonymizer().snapshot(full())
    assert "elsewhere" not in Anonymizer().snapshot(raw)


def test_no_name_and_no_secret_is_left() -> None:
    text = json.dumps(Anonymizer().snapshot(full()))
    secrets = (
        *("u:p@host", "vol-1", "//nas", "10.0.0", "/export", "host-1", "abc", "registry.example", "aws:///"),
        *(
            "example.com/note",
            "password",
            "TOKEN",
            "corp.example",
            "/data",
            "inner-pool",
            "pull",
            "uid-",
            "generate-",
            *("root-key", "secret-key", "map-key", "Bearer", "/home/me", "api.example", "elsewhere", "i-1"),
        ),
    )
    assert [secret for secret in secrets if secret in text] == []


def test_only_device_classes_and_drivers_keep_their_names() -> None:
    hidden = Anonymizer().snapshot(planted(full()))["rawObjects"]
    keeping = {
        kind
        for kind, items in hidden.items()
        if any(MARK in item["metadata"].get("name", "") for item in items or () if "metadata" in item)
    }
    assert keeping == {"deviceClasses", "csiDrivers"}


def solved(raw: Raw, now: float) -> Raw:
    found = parse(copy.deepcopy(raw), now=now)
    return to_json(found, decide(found, Settings(), deadline=time.monotonic() + 60))


@pytest.mark.parametrize("seed", [3, 7, 11, 19, 23, 42])
def test_the_plan_is_the_same_without_names(seed: int) -> None:
    raw = random_cluster(seed)
    same(raw, DRAWN_AT.timestamp())


def test_the_plan_with_devices_and_volumes_is_the_same_without_names() -> None:
    same(full(), NOW)


def same(raw: Raw, now: float) -> None:
    renaming = Anonymizer()
    hidden = renaming.snapshot(raw)
    ours, theirs = renaming.decisions(solved(raw, now)), Anonymizer().decisions(solved(hidden, now))
    places = [
        # The name of a GPU group begins with a digest of names.
        [
            (row["kind"], row["namespace"], row["pod"], row["node"], row["action"])
            for row in found["decisions"]
        ]
        for found in (ours, theirs)
    ]
    assert places[0] == places[1]
    waiting = [[(row["podGroup"], row["reason"]) for row in found["unscheduled"]] for found in (ours, theirs)]
    assert waiting[0] == waiting[1]
    assert len(parse(raw, now=now).set_aside) == len(parse(hidden, now=now).set_aside)


def annotated(kind: str, notes: dict[str, Any]) -> Raw:
    """The annotations that the first object of a kind keeps, read as JSON; node ``n1`` has GPUs of kind A."""
    raw = rich()
    raw["rawObjects"]["nodes"][0]["metadata"]["labels"]["nvidia.com/gpu.product"] = "A"
    raw["rawObjects"][kind][0]["metadata"]["annotations"] = {k: json.dumps(v) for k, v in notes.items()}
    found = Anonymizer().snapshot(raw)["rawObjects"][kind][0]["metadata"]["annotations"]
    return {key: json.loads(text) for key, text in found.items()}


def test_json_in_annotations_loses_names_only() -> None:
    queue = annotated(
        "queues",
        {
            "kai-cp/gpu-kinds": {"A": {"limit": 4}, "secret kind": {"quota": 1}},
            "kai-cp/users": {"*": {"weight": 1}, "ann": {"weight": 2, "gpuLimit": 8}},
        },
    )
    kinds, users = queue["kai-cp/gpu-kinds"], queue["kai-cp/users"]
    assert kinds.pop("A") == {"limit": 4}
    assert users.pop("*") == {"weight": 1}
    assert list(kinds.values()) == [{"quota": 1}]
    assert list(users.values()) == [{"weight": 2, "gpuLimit": 8}]
    assert {"secret kind", "ann"}.isdisjoint({*kinds, *users})
    held = {"schema": "reservation/1", "made": "2026-11-20T11:00:00Z", "nodes": {"n1": 8}, "cause": "told"}
    group = annotated("podGroups", {"kai-cp/reservation": held})["kai-cp/reservation"]
    assert {key: group[key] for key in ("schema", "made")} == {key: held[key] for key in ("schema", "made")}
    (node,) = group["nodes"]
    assert group["nodes"][node] == 8
    assert node != "n1"
    assert group["cause"] != "told"


def test_labels_compared_as_numbers_keep_their_values() -> None:
    raw = rich()
    term = {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["5"]}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    raw["rawObjects"]["pods"][0]["spec"]["affinity"] = {"nodeAffinity": rule}
    raw["rawObjects"]["nodes"][0]["metadata"]["labels"]["rank"] = "10"
    hidden = Anonymizer().snapshot(raw)["rawObjects"]
    assert hidden["nodes"][0]["metadata"]["labels"]["rank"] == "10"
    kept = hidden["pods"][0]["spec"]["affinity"]["nodeAffinity"]
    assert kept == {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


def test_revisions_are_told_apart_as_before() -> None:
    """Two pods of one Deployment, a third of another one: the names differ, the workloads stay distinct."""
    raw = rich()
    pods = raw["rawObjects"]["pods"][:3]
    for pod, (name, ending) in zip(pods, (("web", "a1"), ("web", "b2"), ("db", "c3")), strict=True):
        owner = {"kind": "ReplicaSet", "name": f"{name}-{ending}", "controller": True}
        pod["metadata"] |= {"ownerReferences": [owner], "labels": {"pod-template-hash": ending}}
    found = [one.revision for one in parse(Anonymizer().snapshot(raw), now=NOW).pods if one.revision]
    assert len(found) == 3
    assert len({one.workload for one in found}) == 2
    assert not [one for one in found if "web" in one.workload or one.name in ("a1", "b2", "c3")]
