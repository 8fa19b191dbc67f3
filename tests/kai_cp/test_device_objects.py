"""Devices and options from a snapshot's objects to what the command says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kai_cp.test_cli import run
from tests.support import objects as raw

NOW = raw.NOW.isoformat()
AMOUNTS = {"cpu": "32", "memory": "256Gi", "pods": "110"}


def written(
    path: Path, *, pods: list[raw.Object], nodes: list[raw.Object], **lists: list[raw.Object]
) -> Path:
    """A snapshot file of one queue without limits, and of a pod group for every pod that names one."""
    owners = {p["metadata"]["annotations"].get("pod-group-name") for p in pods} - {None}
    anything = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {name: anything for name in ("cpu", "memory", "gpu")}
    objects = {
        "nodes": nodes,
        "pods": pods,
        "queues": [raw.queue("top", None, 9, resources), raw.queue("team", "top", 9, resources)],
        "podGroups": [
            raw.group("default", str(owner), 100, {"minMember": 1, "queue": "team"}, {})
            for owner in sorted(owners)
        ],
        **lists,
    }
    config = raw.config("allocate, reclaim, preempt", spread=False, minruntime={}, proportion={})
    file = path / "snapshot.json"
    file.write_text(json.dumps(raw.snapshot(config, {}, objects)))
    return file


def solved(snapshot: Path, *options: str | Path) -> dict[str, Any]:
    done = run("solve", snapshot, "--now", NOW, "--budget", "20", "--format", "json", *options)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def waiting(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["podGroup"]: entry for entry in document["unscheduled"]}


class TestOtherPartition:
    """One GPU is cut into a single large instance, three small ones are asked for."""

    LARGE, SMALL = "nvidia.com/mig-7g.80gb", "nvidia.com/mig-1g.10gb"

    def snapshot(self, path: Path) -> Path:
        labels = {
            "nvidia.com/mig.strategy": "mixed",
            "node-role.kubernetes.io/mig-enabled": "true",
            "nvidia.com/gpu.count": "1",
            "nvidia.com/gpu.memory": "81559",
        }
        pods = [raw.pod("default", f"p{i}", 10, {"cpu": "1", self.SMALL: "1"}, f"g{i}") for i in range(3)]
        return written(path, pods=pods, nodes=[raw.node("cut", AMOUNTS | {self.LARGE: "1"}, labels)])

    def test_solve_tells_the_pod_groups_that_it_would_help(self, tmp_path: Path) -> None:
        snapshot = self.snapshot(tmp_path)
        entries = waiting(solved(snapshot))
        assert set(entries) == {"default/g0", "default/g1", "default/g2"}
        for entry in entries.values():
            advice = entry["details"]["migPartition"]
            assert (advice["pods"], advice["podsInAllNow"], advice["podsInAllThen"]) == (1, 0, 3)
            assert advice["nodes"] == [{"node": "cut", "now": {self.LARGE: 1}, "then": {self.SMALL: 3}}]
            assert "another MIG partition would give room to 3 of the waiting pods" in entry["message"]
        text = " ".join(run("solve", snapshot, "--now", NOW).stdout.split())
        assert "Another MIG partition: 3 waiting pods fit, not 0" in text
        assert "3 × 1g.10gb" in text

    def test_inspect_shows_it(self, tmp_path: Path) -> None:
        text = " ".join(run("inspect", self.snapshot(tmp_path), "--now", NOW).stdout.split())
        assert "Another MIG partition: 3 waiting pods fit, not 0" in text
