"""Pods share what was read of a spec if the parts that are left of their specs are equal; the reader
sees no other parts.
"""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.reader import parse
from kai_cp.reader.spec_source import _read_of, spec_source
from tests.kai_cp.reader.raw import NOW, Raw, pod, snapshot

CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}


def key(found: Raw) -> bytes:
    meta = {name: found["metadata"][name] for name in ("annotations", "labels", "namespace", "name")}
    return spec_source(found["spec"], found["status"], **meta)


def container(**fields: Any) -> list[Raw]:
    return [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}, **fields}]


UNREAD = [
    pod("other"),
    pod(namespace="other"),
    pod(labels={"app": "a"}, annotations={"note": "1"}, status={"podIP": "10.0.0.1"}),
    pod(hostname="h", serviceAccountName="s"),
    pod(containers=container(image="i", env=[{"name": "x", "value": "1"}])),
    pod(volumes=[{"name": "v", "emptyDir": {}}]),
]
READ = [
    pod(requests={"cpu": "2"}),
    pod(resources={"requests": {"cpu": "2"}}),
    pod(annotations={"gpu-fraction": "0.5"}),
    pod(nodeSelector={"a": "b"}),
    pod(tolerations=[{"key": "k"}]),
    pod(status={"qosClass": "Guaranteed"}),
    pod(containers=container(ports=[{"hostPort": 80}])),
    pod(containers=container(env=[{"name": "x", "valueFrom": {"configMapKeyRef": {"name": "m"}}}])),
    pod(initContainers=container()),
    pod(volumes=[CLAIM]),
    pod(namespace="other", volumes=[CLAIM]),
    pod("a", volumes=[{"name": "v", "ephemeral": {}}]),
    pod("b", volumes=[{"name": "v", "ephemeral": {}}]),
    pod(topologySpreadConstraints=[{**TERM, "maxSkew": 1}]),
    pod(topologySpreadConstraints=[{**TERM, "maxSkew": 1}], labels={"app": "a"}),
    pod(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}),
    pod(resourceClaims=[{"name": "c", "resourceClaimTemplateName": "t"}]),
]


@pytest.mark.parametrize("other", UNREAD)
def test_pods_that_differ_in_what_is_not_read_share_a_reading(other: Raw) -> None:
    assert key(other) == key(pod())


def test_pods_that_differ_in_what_is_read_do_not() -> None:
    assert len({key(one) for one in (pod(), *READ)}) == len(READ) + 1


def test_annotations_of_a_tenant_fill_no_memory() -> None:
    """Names of a thousand pods are remembered, and 36,000 of each were two gigabytes."""
    many = pod("a")
    many["metadata"]["annotations"] = {f"n{i}": "" for i in range(1_000)} | {"gpu-fraction": "0.5"}
    before = _read_of.cache_info().currsize
    assert b"gpu-fraction" in key(many)
    assert _read_of.cache_info().currsize == before


def test_a_bad_volume_is_named_by_its_place() -> None:
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": 3}]
    found = parse(snapshot(pods=[pod(volumes=volumes)]), now=NOW)
    assert [one.reason for one in found.set_aside] == ["spec.volumes[1].configMap: 3 is not an object"]
