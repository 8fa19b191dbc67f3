"""Every reference snapshot is read without setting anything aside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kai_cp.reader import load, parse
from kai_cp.reader.notes import IGNORED
from kai_cp.reader.times import seconds_of
from kai_cp_models.pods import ACTIVE_USED, PodStatus
from tests.kai_cp.reader.raw import NOW


@pytest.mark.parametrize("folder", ["conformance/cases", "scenarios/cases"])
def test_recorded_cases(shared: Path, folder: str) -> None:
    files = sorted((shared / folder).rglob("*.json"))
    assert files
    for file in files:
        case = json.loads(file.read_text())
        raw = case["snapshot"]["rawObjects"]
        found = parse(case["snapshot"], now=seconds_of(case["now"]))
        assert found.set_aside == (), file.name
        assert not found.extras[IGNORED], file.name
        assert len(found.nodes) == len(raw["nodes"])
        assert len(found.queues) == len(raw["queues"])
        assert len(found.groups) == len(raw["podGroups"])
        assert len(found.pods) == len(raw["pods"]), file.name
        for row in found.pods:
            assert (row.node is not None) == (row.status in ACTIVE_USED), file.name
            if row.node is not None and row.spec.gpu.shares:
                assert len(row.gpu_groups) == row.spec.gpu.devices, (file.name, row.key)


@pytest.mark.parametrize("size", ["50-s1", "Small", "10Node", "Topology100", "MissingPVC"])
def test_benchmark_snapshots(shared: Path, size: str) -> None:
    files = sorted((shared / "bench/snapshots").glob(f"*{size}*"))
    assert files
    for file in files:
        found = parse(load(file).raw, now=NOW)
        assert found.set_aside == (), file.name
        assert found.nodes, file.name
        assert all(row.status is not PodStatus.UNKNOWN for row in found.pods)
        assert len({id(row.spec) for row in found.pods}) == len({row.spec for row in found.pods})
