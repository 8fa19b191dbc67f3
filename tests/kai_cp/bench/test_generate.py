"""Generated clusters are legal, seeded and of the requested size."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kai_cp.bench.generate import SHAPES
from kai_cp.bench.generate.objects import NON_PREEMPTIBLE

SHAPE_NAMES = sorted(SHAPES)


def _amount(pod: dict[str, Any]) -> float:
    annotations = pod["metadata"]["annotations"]
    if "gpu-fraction" in annotations:
        return float(annotations["gpu-fraction"])
    return float(pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"])


@pytest.mark.parametrize("shape", SHAPE_NAMES)
def test_same_seed_gives_the_same_cluster(shape: str) -> None:
    assert SHAPES[shape](36, 5) == SHAPES[shape](36, 5)
    assert SHAPES[shape](36, 5) != SHAPES[shape](36, 6)


@pytest.mark.parametrize("shape", SHAPE_NAMES)
def test_running_pods_fit_their_nodes(shape: str) -> None:
    raw = SHAPES[shape](54, 3)["rawObjects"]
    room = {n["metadata"]["name"]: float(n["status"]["allocatable"]["nvidia.com/gpu"]) for n in raw["nodes"]}
    devices: dict[tuple[str, str], float] = {}
    for pod in raw["pods"]:
        node = pod["spec"].get("nodeName")
        if node is None:
            continue
        gpu_group = pod["metadata"]["labels"].get("runai-gpu-group")
        if gpu_group is None:
            room[node] -= _amount(pod)
            continue
        if (node, gpu_group) not in devices:
            room[node] -= 1
        devices[node, gpu_group] = devices.get((node, gpu_group), 0.0) + _amount(pod)
    assert min(room.values()) >= 0
    assert max(devices.values(), default=0.0) <= 1.0 + 1e-9
    assert len({name for _, name in devices}) == len(devices)


@pytest.mark.parametrize("shape", SHAPE_NAMES)
def test_protected_work_stays_inside_its_quota(shape: str) -> None:
    raw = SHAPES[shape](54, 3)["rawObjects"]
    groups = {g["metadata"]["name"]: g["spec"] for g in raw["podGroups"]}
    quota = {q["metadata"]["name"]: q["spec"]["resources"]["gpu"]["quota"] for q in raw["queues"]}
    used: Counter[str] = Counter()
    for pod in raw["pods"]:
        spec = groups[pod["metadata"]["annotations"]["pod-group-name"]]
        if "nodeName" in pod["spec"] and spec["priorityClassName"] in NON_PREEMPTIBLE:
            used[spec["queue"]] += _amount(pod)  # type: ignore[assignment]
    assert all(amount <= quota[name] for name, amount in used.items())


def test_groups_are_complete() -> None:
    for shape in SHAPE_NAMES:
        raw = SHAPES[shape](36, 1)["rawObjects"]
        size = Counter(p["metadata"]["annotations"]["pod-group-name"] for p in raw["pods"])
        for g in raw["podGroups"]:
            spec = g["spec"]
            least = spec.get("minMember") or sum(s["minMember"] for s in spec["subGroups"])
            assert size[g["metadata"]["name"]] == least


def test_unschedulable_leaves_one_node_too_few() -> None:
    raw = SHAPES["unschedulable"](60, 2)["rawObjects"]
    groups = {g["metadata"]["name"]: g["spec"] for g in raw["podGroups"]}
    blocked = {
        p["spec"]["nodeName"]
        for p in raw["pods"]
        if "nodeName" in p["spec"]
        and groups[p["metadata"]["annotations"]["pod-group-name"]]["priorityClassName"] == "build"
    }
    assert len(raw["nodes"]) - len(blocked) == groups["too-large"]["minMember"] - 1


def test_nvl72_has_one_gang_of_288_gpus_in_segments_of_72() -> None:
    raw = SHAPES["nvl72"](1800, 1)["rawObjects"]
    assert len(raw["nodes"]) == 1800
    spec = next(g["spec"] for g in raw["podGroups"] if g["metadata"]["name"] == "segments")
    assert [s["minMember"] * 4 for s in spec["subGroups"]] == [72, 72, 72, 72]
    assert sum("nodeName" not in p["spec"] for p in raw["pods"]) >= 272


def test_nvl72_leaves_whole_racks_free_for_the_segments() -> None:
    raw = SHAPES["nvl72"](1800, 2)["rawObjects"]
    rack = {n["metadata"]["name"]: n["metadata"]["labels"]["rack"] for n in raw["nodes"]}
    used = {rack[p["spec"]["nodeName"]] for p in raw["pods"] if "nodeName" in p["spec"]}
    assert len(set(rack.values()) - used) >= 40
