"""Devices and options, from the objects of a snapshot to the output of the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kai_cp.test_cli import run
from tests.support import objects as raw

NOW = raw.NOW.isoformat()
AMOUNTS = {"cpu": "32", "memory": "256Gi", "pods": "110"}


def written(
    path: Path, *, pods: list[raw.Object], nodes: list[raw.Object], **lists: list[raw.Object]
) -> Path:
    """A snapshot file with one queue without limits, and a pod group for every pod that names one."""
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
    config["tiers"][0]["plugins"].append({"name": "numa"})
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
    """One GPU is partitioned into a single large instance, and pods ask for three small ones."""

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
            assert "another MIG partition would fit 3 of the waiting pods" in entry["message"]
        text = " ".join(run("solve", snapshot, "--now", NOW).stdout.split())
        assert "Another MIG partition: 3 waiting pods fit, not 0" in text
        assert "3 × 1g.10gb" in text

    def test_inspect_shows_it(self, tmp_path: Path) -> None:
        text = " ".join(run("inspect", self.snapshot(tmp_path), "--now", NOW).stdout.split())
        assert "Another MIG partition: 3 waiting pods fit, not 0" in text


def device_class(name: str, expression: str) -> raw.Object:
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}


def claim(name: str, class_name: str) -> raw.Object:
    request = {"name": "r", "exactly": {"deviceClassName": class_name, "count": 1}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}


def slice_of(node: str) -> raw.Object:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "nic.example.com", "nodeName": node, "pool": pool, "devices": [{"name": "d0"}]}
    return {"metadata": {"name": f"slice-{node}"}, "spec": spec}


def claimant(index: int, claim_name: str) -> raw.Object:
    one = raw.pod("default", f"p{index}", 10, {"cpu": "1"}, f"g{index}")
    one["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimName": claim_name}]
    return one


def test_bad_objects_are_set_aside_by_name_and_the_rest_is_decided(tmp_path: Path) -> None:
    levels = dict.fromkeys(raw.LEVELS, "x")
    good = raw.node("good", AMOUNTS | {"nvidia.com/gpu": "2"}, levels)
    bare = raw.node("bare", AMOUNTS | {"nvidia.com/gpu": "2"}, {raw.LEVELS[0]: "x"})
    snapshot = written(
        tmp_path,
        nodes=[good, bare],
        pods=[claimant(0, "fine"), claimant(1, "unparsable"), claimant(2, "classless")],
        deviceClasses=[device_class("nic", "true"), device_class("torn", "device.driver == ")],
        resourceClaims=[claim("fine", "nic"), claim("unparsable", "torn"), claim("classless", "none")],
        resourceSlices=[slice_of("good"), slice_of("gone")],
        nodeResourceTopologies=[{"metadata": {"name": "good"}, "zones": []}],
    )
    document = solved(snapshot)
    aside = {entry["object"]: entry["reason"] for entry in document["setAside"]}
    expected = {
        "DeviceClass torn": "cannot evaluate the selector 'device.driver == ': cannot parse CEL",
        "ResourceClaim default/unparsable": "device class torn: kai-cp cannot evaluate the selector",
        "ResourceClaim default/classless": "device class none does not exist",
        "ResourceSlice slice-gone": "node gone does not exist",
        "NodeResourceTopology good": "it has no zones",
        "Topology fabric": "1 of 2 nodes lack the label of a level and are in none of its domains: bare "
        "(topology/rack)",
    }
    assert aside.keys() == expected.keys()
    for item, words in expected.items():
        assert words in aside[item]
    (bind,) = document["decisions"]
    assert (bind["kind"], bind["pod"], bind["node"]) == ("Bind", "p0", "good")
    assert bind["resourceClaimAllocations"][0]["allocation"]["devices"]["results"][0]["device"] == "d0"
    assert {entry["reason"] for entry in document["unscheduled"]} == {"DependencyMissing"}


class TestOptions:
    """Rules that KAI lacks: off by default, mandatory when a settings file says so."""

    def options(self, path: Path, **rules: bool) -> tuple[str, str]:
        file = path / "settings.yaml"
        file.write_text(json.dumps({"rules": rules}))
        return ("--config", str(file))

    def test_topology_spread(self, tmp_path: Path) -> None:
        """One pod runs in zone a, which packs better; the constraint sends the other pod to b."""
        rule = {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"team": "x"}},
        }
        pods = [
            raw.pod("default", f"p{i}", 10, {"cpu": "1", "nvidia.com/gpu": "1"}, f"g{i}") for i in range(2)
        ]
        for one in pods:
            one["metadata"]["labels"]["team"] = "x"
            one["spec"]["topologySpreadConstraints"] = [rule]
        raw.settle(pods[0], "n0", [], "Running")
        nodes = [
            raw.node(
                f"n{i}", AMOUNTS | {"nvidia.com/gpu": "4"}, dict.fromkeys(raw.LEVELS, "x") | {"zone": zone}
            )
            for i, zone in enumerate("ab")
        ]
        snapshot = written(tmp_path, pods=pods, nodes=nodes)
        (free,) = solved(snapshot)["decisions"]
        (bound,) = solved(snapshot, *self.options(tmp_path, topology_spread=True))["decisions"]
        assert (free["node"], bound["node"]) == ("n0", "n1")

    @pytest.mark.parametrize(("allowed", "evicted"), [(0, 0), (1, 1)])
    def test_disruption_budgets(self, tmp_path: Path, allowed: int, evicted: int) -> None:
        """A pod of higher priority in the same queue needs the GPU of a protected pod."""
        pods = [
            raw.pod("default", f"p{i}", 10, {"cpu": "1", "nvidia.com/gpu": "1"}, f"g{i}") for i in range(2)
        ]
        raw.settle(pods[0], "n0", [], "Running")
        budget = {
            "metadata": {"name": "keep", "namespace": "default"},
            "spec": {"selector": {"matchLabels": pods[0]["metadata"]["labels"]}, "minAvailable": 1},
            "status": {"disruptionsAllowed": allowed},
        }
        snapshot = written(
            tmp_path,
            pods=pods,
            nodes=[raw.node("n0", AMOUNTS | {"nvidia.com/gpu": "1"}, dict.fromkeys(raw.LEVELS, "x"))],
            podDisruptionBudgets=[budget],
            podGroups=[
                raw.group(
                    "default", f"g{i}", 100, {"minMember": 1, "queue": "team", "priorityClassName": name}, {}
                )
                for i, name in enumerate(("low", "train"))
            ],
        )

        def evictions(*options: str) -> int:
            return sum(entry["kind"] == "Evict" for entry in solved(snapshot, *options)["decisions"])

        assert evictions() == 1
        assert evictions(*self.options(tmp_path, pod_disruption_budgets=True)) == evicted
