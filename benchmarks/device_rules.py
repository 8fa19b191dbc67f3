"""What the stateful rules cost: CPU time of a cycle without them, with them, and with objects for them.

``python -m benchmarks.device_rules SNAPSHOT…`` prints a row for every snapshot: CPU seconds of reading and of
``allocate`` up to its first checked plan without the rules. Then, as ratios to that: the snapshot as it is
with the rules, and the snapshot with zones, claims, volumes or affinity added. All are measured in turns in
one process, and the least of several counts. The search for a better plan is left out, because it takes as
long as it is allowed to, whatever the rules cost.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from unittest.mock import patch

from kai_cp.reader import parse
from kai_cp.reader.container import load
from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan
from kai_cp_models.quantity import exact
from kai_cp_models.rules import stateful
from kai_cp_models.settings import Settings

Raw = dict[str, Any]
TURNS: Final = 5
SETTINGS: Final = Settings.model_validate({"solver": {"budget_seconds": 60, "workers": 1}})


def _names(raw: Raw, kind: str) -> list[str]:
    return [item["metadata"]["name"] for item in raw["rawObjects"][kind]]


def _waiting(raw: Raw) -> list[Raw]:
    return [pod for pod in raw["rawObjects"]["pods"] if not pod["spec"].get("nodeName")]


def zones(raw: Raw) -> None:
    """Two zones on every node with half of its CPUs and GPUs each, policy restricted."""
    raw["config"]["tiers"][0]["plugins"].append({"name": "numa"})
    raw["rawObjects"]["nodeResourceTopologies"] = [
        {
            "metadata": {"name": node["metadata"]["name"]},
            "attributes": [{"name": "topologyManagerPolicy", "value": "restricted"}],
            "zones": [
                {
                    "name": f"node-{i}",
                    "type": "Node",
                    "resources": [
                        {"name": name, "allocatable": half, "available": half}
                        for name in ("cpu", "nvidia.com/gpu")
                        if (amount := node["status"]["allocatable"].get(name))
                        for half in [_half(amount)]
                    ],
                }
                for i in range(2)
            ],
        }
        for node in raw["rawObjects"]["nodes"]
    ]


def _half(amount: str) -> str:
    return f"{int(exact(amount) * 500)}m"


def claims(raw: Raw) -> None:
    """Eight network devices on every node; every waiting pod claims one."""
    lists = raw["rawObjects"]
    plugins = raw["config"]["tiers"][0]["plugins"]
    if not any(plugin["name"] == "dynamicresources" for plugin in plugins):
        plugins.append({"name": "dynamicresources"})
    lists["deviceClasses"] = [{"metadata": {"name": "nic"}, "spec": {}}]
    lists["resourceSlices"] = [
        {
            "metadata": {"name": f"slice-{name}"},
            "spec": {
                "driver": "nic.example.com",
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"nic-{i}"} for i in range(8)],
            },
        }
        for name in _names(raw, "nodes")
    ]
    request = {"name": "nic", "exactly": {"deviceClassName": "nic", "count": 1}}
    lists["resourceClaims"] = []
    for pod in _waiting(raw):
        name, namespace = f"{pod['metadata']['name']}-nic", pod["metadata"].get("namespace") or "default"
        metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
        lists["resourceClaims"].append({"metadata": metadata, "spec": {"devices": {"requests": [request]}}})
        pod["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimName": name}]


def volumes(raw: Raw) -> None:
    """A claim of a class that waits for its first consumer, for every waiting pod."""
    lists = raw["rawObjects"]
    metadata = {"name": "local"}
    mode = {"provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
    lists["storageClasses"] = [{"metadata": metadata, **mode}]
    lists["persistentVolumeClaims"] = []
    for pod in _waiting(raw):
        name, namespace = f"{pod['metadata']['name']}-data", pod["metadata"].get("namespace") or "default"
        spec = {"storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}}
        lists["persistentVolumeClaims"].append(
            {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": {"phase": "Pending"}}
        )
        claim = {"persistentVolumeClaim": {"claimName": name}}
        pod["spec"]["volumes"] = [{"name": "data", **claim}]


def affinity(raw: Raw) -> None:
    """Every tenth waiting pod has anti-affinity to pods of an application that does not run."""
    term = {
        "labelSelector": {"matchLabels": {"app": "nobody"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    for pod in _waiting(raw)[::10]:
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        pod["spec"]["affinity"] = {"podAntiAffinity": rule}


ADDED: Final[dict[str, Callable[[Raw], None]]] = {
    "zones": zones,
    "claims": claims,
    "volumes": volumes,
    "affinity": affinity,
}


class _FirstPlan(Exception):
    """Raised when enough was measured."""


def _stop(_: Plan) -> None:
    raise _FirstPlan


def seconds(raw: Raw) -> float:
    """CPU seconds of reading, and of deciding up to the first plan of ``allocate``."""
    alone = {**raw, "config": {**raw["config"], "actions": "allocate"}}
    begin = time.process_time()
    with suppress(_FirstPlan):
        decide(parse(alone, now=time.time()), SETTINGS, emit=_stop)
    return time.process_time() - begin


def row(raw: Raw) -> dict[str, float]:
    """The least CPU seconds of every variant."""
    variants = {"as it is": raw}
    for name, add in ADDED.items():
        variants[name] = copy.deepcopy(raw)
        add(variants[name])
    least: dict[str, float] = {}
    for _ in range(TURNS):
        with patch.object(stateful, "RULES", ()):
            least["without"] = min(seconds(raw), least.get("without", float("inf")))
        for name, one in variants.items():
            least[name] = min(seconds(one), least.get(name, float("inf")))
    return least


def main(paths: list[str]) -> None:
    """Print the table."""
    columns = ("as it is", *ADDED)
    print("| snapshot | without [CPU s] |", " | ".join(columns), "|")
    print("|---" * (len(columns) + 2) + "|")
    for path in paths:
        found = row(load(path).raw)
        ratios = (f"{found[name] / found['without']:.2f}" for name in columns)
        name = path.rpartition("/")[2].partition(".")[0]
        print(f"| {name} | {found['without']:.2f} |", " | ".join(ratios), "|")


if __name__ == "__main__":
    main(sys.argv[1:])
