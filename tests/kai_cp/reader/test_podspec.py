"""What pods ask for: vectors (2.1), GPU requests (2.2), constraints, needs and classes."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.reader import parse
from kai_cp_models.pods import (
    ClaimRef,
    GpuKind,
    GpuRequest,
    LabelSelector,
    PodAffinityTerm,
    PodSpec,
    Requirement,
    SpreadConstraint,
    Toleration,
)
from kai_cp_models.snapshot import Snapshot
from tests.kai_cp.reader.raw import NOW, node, pod, snapshot

Raw = dict[str, Any]


def read(*pods: Raw, **lists: Any) -> Snapshot:
    found = parse(snapshot(pods=list(pods), **lists), now=NOW)
    assert found.set_aside == ()
    return found


def spec_of(raw_pod: Raw, **lists: Any) -> PodSpec:
    return read(raw_pod, **lists).pods[0].spec


def container(name: str = "c", *, restart: str = "", **requests: str) -> Raw:
    raw: Raw = {"name": name, "resources": {"requests": requests}}
    return raw | ({"restartPolicy": restart} if restart else {})


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container(cpu="1"), container(cpu="500m")]}, 1500),
        # An ordinary init container runs alone: the larger of it and the rest counts.
        ({"containers": [container(cpu="1")], "initContainers": [container(cpu="3")]}, 3000),
        ({"containers": [container(cpu="4")], "initContainers": [container(cpu="3")]}, 4000),
        # A sidecar runs beside everything after it.
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [container(cpu="2", restart="Always"), container(cpu="3")],
            },
            5000,
        ),
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [container(cpu="3"), container(cpu="1", restart="Always")],
            },
            3000,
        ),
        ({"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": []}, 0),
        # What the pod requests as a whole counts instead, also of what its init containers come to.
        ({"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "4"}}}, 4000),
        (
            {
                "containers": [container(cpu="2")],
                "initContainers": [container(cpu="9"), container(cpu="1", restart="Always")],
                "resources": {"requests": {"cpu": "3"}},
                "overhead": {"cpu": "250m"},
            },
            3250,
        ),
        ({"containers": [container(cpu="1")], "resources": {"limits": {"cpu": "4"}}}, 1000),
    ],
)
def test_containers_sidecars_and_overhead(spec: Raw, cpu: int) -> None:
    found = spec_of(pod(**spec))
    assert found.requests == (cpu, 0, 0, 1)


def test_a_pod_states_some_resources_as_a_whole() -> None:
    """Memory is the pod's; CPU, which it does not state, and GPUs, of which it may not, its container's."""
    asked = {"memory": "8Gi", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "8"}
    found = spec_of(
        pod(requests={"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"}, resources={"requests": asked}),
    )
    assert found.requests == (1000, 8 * 2**30, 2000, 1, 4 * 2**20 * 1000)


def test_dimensions_and_their_units() -> None:
    raw = pod(
        requests={
            "cpu": "1",
            "amd.com/gpu": "1",
            "nvidia.com/gpu": "1",
            "rdma/hca": "2",
            "hugepages-2Mi": "4Mi",
            "ephemeral-storage": "1Ki",
            "odd": "7",
        }
    )
    mig = node(allocatable={"nvidia.com/mig-1g.5gb": "7", "unused.com/x": "1", "rdma/hca": "4"})
    found = read(raw, nodes=[mig])
    assert found.dimensions == (
        "cpu",
        "memory",
        "gpu",
        "pods",
        "ephemeral-storage",
        "hugepages-2Mi",
        "nvidia.com/mig-1g.5gb",
        "rdma/hca",
    )
    assert found.pods[0].spec.requests == (1000, 0, 2000, 1, 1024, 4 * 2**20 * 1000, 0, 2000)
    assert found.nodes[0].allocatable == (64_000, 256 * 2**30, 8000, 110, 0, 0, 7, 4000)


@pytest.mark.parametrize(
    ("annotations", "requests", "gpu", "vector_gpu"),
    [
        ({}, {}, GpuRequest(), 0),
        ({}, {"nvidia.com/gpu": "2"}, GpuRequest(devices=2), 2000),
        ({"gpu-fraction": "0.5"}, {}, GpuRequest(GpuKind.FRACTION, 1, 500), 0),
        ({"gpu-fraction": "0.5"}, {"nvidia.com/gpu": "1"}, GpuRequest(GpuKind.FRACTION, 1, 500), 0),
        ({"gpu-fraction": "0.333"}, {}, GpuRequest(GpuKind.FRACTION, 1, 330), 0),
        ({"gpu-fraction": "0.995"}, {}, GpuRequest(GpuKind.FRACTION, 1, 1000), 0),
        ({"gpu-fraction": "1"}, {}, GpuRequest(GpuKind.FRACTION, 1, 1000), 0),
        ({"gpu-fraction": "5e-1"}, {}, GpuRequest(GpuKind.FRACTION, 1, 500), 0),
        (
            {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "3"},
            {},
            GpuRequest(GpuKind.FRACTION, 3, 250),
            0,
        ),
        ({"gpu-memory": "2000"}, {}, GpuRequest(GpuKind.MEMORY, 1, 0, 2000), 0),
        (
            {"gpu-memory": "2000", "gpu-fraction-num-devices": "2"},
            {},
            GpuRequest(GpuKind.MEMORY, 2, 0, 2000),
            0,
        ),
        ({"gpu-memory": "2000", "gpu-fraction": "0.5"}, {}, GpuRequest(GpuKind.FRACTION, 1, 500), 0),
        ({"gpu-memory": "0"}, {"nvidia.com/gpu": "1"}, GpuRequest(devices=1), 1000),
        ({"gpu-fraction-num-devices": "2"}, {}, GpuRequest(), 0),
        ({}, {"nvidia.com/mig-1g.5gb": "2"}, GpuRequest(GpuKind.MIG, 0), 0),
    ],
)
def test_gpu_requests(annotations: Raw, requests: Raw, gpu: GpuRequest, vector_gpu: int) -> None:
    found = spec_of(pod(annotations=annotations, requests=requests))
    assert found.gpu == gpu
    assert found.requests[2] == vector_gpu


def test_legacy_mig_annotation() -> None:
    assert spec_of(pod(annotations={"nvidia.com/mig-1g.5gb": "1"})).legacy_mig
    assert not spec_of(pod(annotations={"x/nvidia.com/mig-1g.5gb": "1"})).legacy_mig


def test_node_constraints() -> None:
    terms = [
        {
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
        },
        {},
        {"matchExpressions": [{"key": "gpus", "operator": "Gt", "values": ["3"]}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    found = spec_of(
        pod(
            nodeSelector={"b": "2", "a": "1"},
            affinity={"nodeAffinity": required},
            tolerations=[{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoSchedule"}],
        )
    )
    assert found.node_selector == (("a", "1"), ("b", "2"))
    assert found.node_affinity == (
        (Requirement("zone", "In", ("a", "b")), Requirement("metadata.name", "In", ("n1",), True)),
        (Requirement("gpus", "Gt", ("3",)),),
    )
    assert found.tolerations == (
        Toleration("", "Exists", "", ""),
        Toleration("k", "Equal", "v", "NoSchedule"),
    )


def test_required_affinity_without_terms_matches_no_node() -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
    assert spec_of(pod(affinity={"nodeAffinity": required})).node_affinity == ()
    assert spec_of(pod(affinity={"nodeAffinity": {}})).node_affinity is None


NAMESPACES = [
    {"metadata": {"name": "default", "labels": {"team": "x"}}},
    {"metadata": {"name": "other", "labels": {"team": "y"}}},
]


@pytest.mark.parametrize(
    ("fields", "namespaces", "resolved"),
    [
        ({}, NAMESPACES, ("default",)),
        ({"namespaces": ["z", "a"]}, NAMESPACES, ("a", "z")),
        ({"namespaceSelector": {}}, NAMESPACES, None),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}}, NAMESPACES, ("other",)),
        (
            {"namespaceSelector": {"matchLabels": {"team": "y"}}, "namespaces": ["a"]},
            NAMESPACES,
            ("a", "other"),
        ),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}, "namespaces": ["a"]}, [], ("a",)),
        (
            {
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["other"]}
                    ]
                }
            },
            NAMESPACES,
            ("default",),
        ),
    ],
)
def test_namespaces_of_affinity_terms(
    fields: Raw, namespaces: list[Raw], resolved: tuple[str, ...] | None
) -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}, **fields}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    found = spec_of(pod(affinity=affinity), namespaces=namespaces)
    selector = LabelSelector((Requirement("app", "In", ("db",)),))
    assert found.pod_affinity == (PodAffinityTerm(selector, "zone", resolved),)


def test_preferred_terms_and_spread() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": term}]}
    spread = [
        {
            "maxSkew": 2,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
            "matchLabelKeys": ["hash", "absent"],
        },
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "minDomains": 3,
            "nodeAffinityPolicy": "Ignore",
            "nodeTaintsPolicy": "Honor",
        },
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
    ]
    found = spec_of(
        pod(
            labels={"hash": "1"},
            affinity={"podAntiAffinity": preferred},
            topologySpreadConstraints=spread,
        )
    )
    assert found.pod_anti_affinity == (PodAffinityTerm(LabelSelector(()), "zone", ("default",), 7),)
    rows = (Requirement("app", "In", ("x",)), Requirement("hash", "In", ("1",)))
    assert found.spread == (
        SpreadConstraint(2, "zone", LabelSelector(rows)),
        SpreadConstraint(1, "zone", None, 3, honors_affinity=False, honors_taints=True),
    )


def test_claims_volumes_config_maps_and_ports() -> None:
    raw = pod(
        annotations={"runai/shared-gpu-configmap": "p-abc-shared-gpu"},
        status={"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "p-t-1"}]},
        resourceClaims=[
            {"name": "c", "resourceClaimName": "claim"},
            {"name": "t", "resourceClaimTemplateName": "template"},
            {"name": "u", "resourceClaimTemplateName": "template"},
        ],
        volumes=[
            {"name": "data", "persistentVolumeClaim": {"claimName": "pvc"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "m", "configMap": {"name": "mounted"}},
            {"name": "o", "configMap": {"name": "may-miss", "optional": True}},
            {"name": "s", "configMap": {"name": "p-abc-shared-gpu-0"}},
            {"name": "j", "projected": {"sources": [{"configMap": {"name": "projected"}}, {"secret": {}}]}},
        ],
        containers=[
            {
                "name": "c",
                "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "env"}}}, {"name": "B"}],
                "envFrom": [{"configMapRef": {"name": "env-from"}}, {"secretRef": {"name": "x"}}],
                "ports": [{"containerPort": 1}, {"hostPort": 80}, {"hostPort": 53, "protocol": "UDP"}],
            }
        ],
        initContainers=[
            {"name": "i", "ports": [{"hostPort": 99}]},
            {"name": "s", "ports": [{"hostPort": 98, "hostIP": "10.0.0.1"}], "restartPolicy": "Always"},
        ],
    )
    found = spec_of(raw)
    assert found.claims == (
        ClaimRef("c", "claim"),
        ClaimRef("t", "p-t-1", "template"),
        ClaimRef("u", "", "template"),
    )
    assert found.volume_claims == ("p-scratch", "pvc")
    assert found.config_maps == ("env", "env-from", "mounted", "projected")
    assert found.host_ports == (("", "TCP", 80), ("", "UDP", 53), ("10.0.0.1", "TCP", 98))


@pytest.mark.parametrize(
    ("limits", "told", "guaranteed"),
    [
        ({"cpu": "1", "memory": "1Gi"}, None, True),
        ({"cpu": "1"}, None, False),
        ({"cpu": "2", "memory": "1Gi"}, None, False),
        ({}, "Guaranteed", True),
        ({"cpu": "1", "memory": "1Gi"}, "Burstable", False),
    ],
)
def test_quality_of_service(limits: Raw, told: str | None, guaranteed: bool) -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": limits}
    raw = pod(containers=[{"name": "c", "resources": resources}], status={"qosClass": told})
    assert spec_of(raw).guaranteed is guaranteed


def test_container_requests_only_where_numa_is_on() -> None:
    raw = snapshot(
        pods=[pod(containers=[container(cpu="1"), container(cpu="2")])],
        config={"tiers": [{"plugins": [{"name": "numa"}]}]},
    )
    assert parse(raw, now=NOW).pods[0].spec.container_requests == ((1000, 0, 0, 0), (2000, 0, 0, 0))
    del raw["config"]
    assert parse(raw, now=NOW).pods[0].spec.container_requests == ()


def test_equal_specs_are_one_object() -> None:
    found = read(pod("a", labels={"i": "0"}), pod("b", labels={"i": "1"}, node="n1"))
    assert found.pods[0].spec is found.pods[1].spec


def test_unread_fields_do_not_part_pods() -> None:
    def unique(name: str) -> Raw:
        return pod(
            name,
            containers=[container(cpu="1") | {"env": [{"name": "RANK", "value": name}], "image": name}],
            volumes=[{"name": f"tmp-{name}", "emptyDir": {}}],
        )

    found = read(unique("a"), unique("b"))
    assert found.pods[0].spec is found.pods[1].spec


def test_namespaced_needs_set_pods_apart() -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    groups = [{"metadata": {"name": "g", "namespace": n}, "spec": {"queue": "q"}} for n in ("default", "x")]
    found = read(pod("a", volumes=volumes), pod("b", namespace="x", volumes=volumes), podGroups=groups)
    assert found.pods[0].spec.scheduling_key != found.pods[1].spec.scheduling_key


def test_pods_differ_only_by_the_terms_that_match_them() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    found = read(
        pod("a", labels={"app": "db", "i": "0"}),
        pod("b", labels={"app": "db", "i": "1"}),
        pod("c", labels={"app": "web", "i": "2"}),
        pod("d", labels={"app": "web", "i": "3"}),
        pod("e", affinity=affinity),
    )
    specs = [row.spec for row in found.pods]
    assert specs[0] is specs[1]
    assert specs[2] is specs[3]
    assert specs[0] != specs[2]
    assert len(set(specs)) == 3
