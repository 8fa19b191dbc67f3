"""What pods count for in the status of their group: tables, argued by hand."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random
from typing import Any

import pytest

from kai_cp.workloads.sums import (
    GroupSums,
    Usage,
    add,
    gpus_of,
    is_preemptible,
    memory_of_gpu,
    parsed,
    resource_list,
    usage_of,
)

NODE = {"nvidia.com/gpu.memory": "81920"}
Object = dict[str, Any]
CLAIMED = {
    "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example", "count": 2}}]}
}


def pod(phase: str = "Running", annotations: Object | None = None, **spec: Any) -> Object:
    body: Object = {"containers": [container(cpu="500m", memory="1Gi")], **spec}
    return {"metadata": {"annotations": annotations or {}}, "spec": body, "status": {"phase": phase}}


def container(**requests: str) -> Object:
    return {
        "name": "c",
        "resources": {"requests": {key.replace("__", "/"): v for key, v in requests.items()}},
    }


def held(item: Object, labels: Object = NODE) -> Object:
    return resource_list(usage_of(item, labels).allocated)


def asked(item: Object, labels: Object = NODE) -> Object:
    return resource_list(usage_of(item, labels).requested)


def sums_of(*items: Object) -> GroupSums:
    found = GroupSums()
    assert found.update(dict(enumerate(items)), {}) == []
    return found


def test_init_containers_sidecars_and_overhead_count() -> None:
    sidecar = {**container(cpu="100m"), "restartPolicy": "Always"}
    big = container(cpu="2")
    # Containers and sidecar need 600m, the ordinary init container beside the sidecar 2100m; overhead is
    # added.
    item = pod(initContainers=[sidecar, big], overhead={"cpu": "50m"})
    assert held(item) == {"cpu": "2150m", "memory": str(2**30)}


@pytest.mark.parametrize(
    ("phase", "conditions", "counted", "holds"),
    [
        ("Pending", [], True, False),
        ("Pending", [{"type": "PodScheduled", "status": "True"}], True, True),
        ("Running", [], True, True),
        ("Succeeded", [], False, False),
        ("Failed", [], False, False),
    ],
)
def test_the_phase_decides_what_a_pod_counts_for(
    phase: str, conditions: list[Object], counted: bool, holds: bool
) -> None:
    item = pod(phase)
    item["status"]["conditions"] = conditions
    assert (bool(asked(item)), bool(held(item))) == (counted, holds)


@pytest.mark.parametrize(
    ("annotations", "labels", "requested", "allocated"),
    [
        ({"gpu-fraction": "0.5"}, NODE, {"nvidia.com/gpu": "500m"}, {}),
        (
            {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2", "received-resource-type": "Fraction"},
            NODE,
            {"nvidia.com/gpu": "1"},
            {"nvidia.com/gpu": "1"},
        ),
        # 20000 of 81900 MiB is 0.2442 of a device: 0.25 of each of two.
        (
            {"gpu-memory": "20000", "gpu-fraction-num-devices": "2", "received-resource-type": "Fraction"},
            NODE,
            {"run.ai/gpu.memory": "40000"},
            {"nvidia.com/gpu": "500m"},
        ),
        (
            {"gpu-memory": "20000", "received-resource-type": "Fraction"},
            {},
            {"run.ai/gpu.memory": "20000"},
            {},
        ),
    ],
)
def test_shared_devices(annotations: Object, labels: Object, requested: Object, allocated: Object) -> None:
    item = pod(annotations=annotations)
    rest = {"cpu": "500m", "memory": str(2**30)}
    assert asked(item, labels) == {**rest, **requested}
    assert held(item, labels) == {**rest, **allocated}


def test_unreadable_amounts_are_reported_and_the_rest_counted() -> None:
    usage = usage_of(pod(annotations={"gpu-fraction": "half"}), NODE)
    assert "metadata.annotations[gpu-fraction]" in usage.problem
    assert resource_list(usage.requested)["cpu"] == "500m"
    told = usage_of(pod(annotations={"gpu-memory": "1000", "received-resource-type": "Fraction"}), {})
    assert "nvidia.com/gpu.memory" in told.problem


def test_a_claim_that_two_pods_share_counts_once_and_under_its_class() -> None:
    claim = {"spec": CLAIMED}
    item = pod(resourceClaims=[{"name": "x", "resourceClaimName": "shared"}])
    status = sums_of(item, item).status({"shared": claim}, preemptible=False)
    assert status["requested"] == {"cpu": "1", "gpu.example": "2", "memory": str(2 * 2**30)}
    assert status["allocated"] == status["requested"] == status["allocatedNonPreemptible"]


def test_sums_follow_pods_that_come_change_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what changed is read, and the sums are those of a first look."""
    random, read = Random(7), list[Object]()

    def reading(item: Object, on: Object) -> Usage:
        read.append(item)
        return usage_of(item, on)

    monkeypatch.setattr("kai_cp.workloads.sums.usage_of", reading)
    claims = {name: {"spec": CLAIMED} for name in "xy"}
    kept, pods, labels = GroupSums(), dict[Hashable, Object](), dict[Hashable, Object]()

    def drawn() -> Object:
        memory = {"gpu-memory": "8192", "received-resource-type": "Fraction"}
        named = [{"name": "c", "resourceClaimName": name} for name in "xy" if random.random() < 0.3]
        phase = random.choice(("Pending", "Running", "Succeeded"))
        return pod(phase, random.choice(({}, memory)), resourceClaims=named)

    for _ in range(60):
        touched = set(random.choices(range(9), k=random.randrange(3)))
        pods = {key: item for key, item in pods.items() if key not in touched or random.random() < 0.5}
        pods |= {key: drawn() for key in touched if random.random() < 0.7}
        new = {key: random.choice((NODE, {"nvidia.com/gpu.memory": "40960"})) for key in pods}
        labels = {key: new[key] if key in touched else labels[key] for key in pods}
        read.clear()
        assert kept.update(pods, labels) == []
        assert len(read) <= 2 * len(touched)
        again = GroupSums()
        again.update(pods, labels)
        assert kept.status(claims, preemptible=False) == again.status(claims, preemptible=False)
        assert sorted(kept.claims) == sorted(again.claims)


def test_a_preemptible_group_holds_nothing_non_preemptible() -> None:
    status = sums_of(pod()).status({}, preemptible=True)
    assert status["allocated"]
    assert status["allocatedNonPreemptible"] == {}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"preemptibility": "non-preemptible"}, False),
        ({"preemptibility": "preemptible", "priorityClassName": "build"}, True),
        ({"priorityClassName": "build"}, False),
        ({"priorityClassName": "train"}, True),
        ({"priorityClassName": "gone"}, False),  # The global default is 100.
    ],
)
def test_preemptible(spec: Object, wanted: bool) -> None:
    classes = {
        "train": {"value": 50},
        "build": {"value": 100},
        "usual": {"value": 100, "globalDefault": True},
    }
    assert is_preemptible(spec, classes) is wanted


def test_of_several_global_defaults_the_lowest_counts() -> None:
    classes = {name: {"value": value, "globalDefault": True} for name, value in (("a", 100), ("b", 50))}
    assert is_preemptible({}, classes)


def test_sums_are_exact_and_survive_writing() -> None:
    total: dict[str, int] = {}
    lists = [{"cpu": "100m", "memory": "1Gi"}, {"cpu": "0.9", "memory": "512Mi"}, {"cpu": "x"}]
    for resources in lists:
        add(total, parsed(resources))
    assert resource_list(total) == {"cpu": "1", "memory": str(3 * 2**29)}
    assert parsed(resource_list(total)) == total


def test_gpus_of_every_vendor_and_kind() -> None:
    found = parsed(
        {
            "nvidia.com/gpu": "2",
            "amd.com/gpu": "1",
            "gpu.example": "1",
            "nvidia.com/mig-2g.10gb": "3",
            "cpu": "4",
        }
    )
    assert gpus_of(found) == 10_000


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        (NODE, 81900),  # As the scheduler counts it: rounded down, and bytes where the number is that large.
        ({"nvidia.com/gpu.memory": str(80 * 2**30)}, 81900),
        ({"beta.amd.com/gpu.vram.64G": "1"}, 64000),
        ({"nvidia.com/gpu.memory": "much"}, 0),
        ({}, 0),
    ],
)
def test_memory_of_a_gpu_by_label(labels: Object, wanted: int) -> None:
    assert memory_of_gpu(labels) == wanted
