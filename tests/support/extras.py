"""What stateful rules, kinds of GPUs, rollouts and the time axis read, added to a random cluster.

Running pods stay legal: they get devices that no other pod has, and no zones or volumes. Queues may hold more
of a kind of GPU than their limit, as they do after an operator has lowered it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

from kai_cp_models.settings import Settings
from tests.support import objects as raw
from tests.support.clusters import random_cluster

DRIVER: Final = "nic.example.com"
CSI: Final = "csi.example.com"
HOST: Final = "kubernetes.io/hostname"
PRODUCTS: Final = ("A", "B")


OPTIONAL_PLUGINS: Final = frozenset(
    ("elastic", "minruntime", "numa", "podaffinity", "priority", "proportion", "taskorder", "topology")
)
"""Plugins that a policy may leave out; their rules and scores are then off."""
TOGETHER: Final = Settings.model_validate(
    {
        "solver": {"budget_seconds": 20, "patience": 50},
        "rules": {
            "topology_spread": True,
            "pod_disruption_budgets": True,
            "gpu_kinds": True,
            "rollouts": True,
        },
        "reservations": {"enabled": True, "min_gpus": 1},
    }
)
"""Every optional rule, and the time axis."""


def everything(seed: int) -> raw.Object:
    """A random cluster with objects of a random part of ``KINDS``; to be decided with ``TOGETHER``."""
    rng = Random(seed)
    share = rng.choice((0.2, 0.5, 0.9))
    kinds = frozenset(name for name in sorted(KINDS) if rng.random() < share)
    return with_extras(random_cluster(seed), seed, kinds)


def with_extras(cluster: raw.Object, seed: int, kinds: frozenset[str]) -> raw.Object:
    """The cluster, changed in place, with objects of some ``KINDS``."""
    rng = Random(seed)
    for name in sorted(kinds):
        KINDS[name](cluster["rawObjects"], cluster["config"], rng)
    return cluster


def promised(cluster: raw.Object, seed: int) -> raw.Object:
    """The cluster, changed in place, in which the pods of half of the pod groups that wait are nominated,
    mostly to one node."""
    rng, objects = Random(seed), cluster["rawObjects"]
    nodes = [node["metadata"]["name"] for node in objects["nodes"]]
    waiting: dict[str, list[raw.Object]] = {}
    for pod in objects["pods"]:
        if not pod["spec"].get("nodeName"):
            name = (pod["metadata"].get("annotations") or {}).get("pod-group-name", "")
            waiting.setdefault(name, []).append(pod)
    for _, pods in sorted(waiting.items()) if nodes else ():
        one = rng.choice(nodes) if rng.random() < 0.6 else None
        if rng.random() < 0.5:
            for pod in pods:
                pod.setdefault("status", {})["nominatedNodeName"] = one or rng.choice(nodes)
    return cluster


def other_policy(cluster: raw.Object, seed: int) -> raw.Object:
    """The cluster, changed in place, under a policy that differs from KAI's default in some respects."""
    rng = Random(seed)
    config, params, plugins = cluster["config"], cluster["schedulerParams"], cluster["config"]["tiers"][0]
    if rng.random() < 0.3:
        actions = config["actions"].split(", ")
        rng.shuffle(actions)
        config["actions"] = ", ".join(actions)
    if rng.random() < 0.3:
        config["queueDepthPerAction"] = {
            action: rng.choice((1, 2)) for action in config["actions"].split(", ")
        }
    left = [one for one in plugins["plugins"] if one["name"] not in OPTIONAL_PLUGINS or rng.random() < 0.85]
    plugins["plugins"] = left
    for one in left:
        if one["name"] == "proportion" and rng.random() < 0.3:
            one.setdefault("arguments", {})["kValue"] = rng.choice(("0", "0.5", "10"))
    params["fullHierarchyFairness"] = rng.random() < 0.7
    params["globalDefaultStalenessGracePeriod"] = rng.choice((-1, 0, 60_000_000_000))
    if rng.random() < 0.2:
        params["maxNumberConsolidationPreemptees"] = 0
    return cluster


def _waiting(lists: raw.Object) -> list[raw.Object]:
    return [
        pod
        for pod in lists["pods"]
        if "nodeName" not in pod["spec"]
        and pod["status"]["phase"] == "Pending"
        and "pod-group-name" in pod["metadata"]["annotations"]
    ]


def _budgets(lists: raw.Object, config: raw.Object, rng: Random) -> None:
    apps = sorted(
        {(p["metadata"]["namespace"], p["metadata"]["labels"].get("app", "")) for p in lists["pods"]}
    )
    lists["podDisruptionBudgets"] = [
        {
            "metadata": {"name": f"budget-{i}", "namespace": namespace},
            "spec": {
                "selector": {"matchLabels": {"app": app}} if rng.random() < 0.8 else {},
                **rng.choice(
                    (
                        {"maxUnavailable": rng.choice((0, 1, 2, "50%"))},
                        {"minAvailable": rng.choice((1, 2, "40%"))},
                    )
                ),
            },
            "status": {"disruptionsAllowed": rng.randint(0, 3)} if rng.random() < 0.3 else {},
        }
        for i, (namespace, app) in enumerate(apps)
        if rng.random() < 0.4
    ]


def _skew(lists: raw.Object, config: raw.Object, rng: Random) -> None:
    apps = {p["metadata"]["labels"]["app"]: rng.random() < 0.3 for p in _waiting(lists)}
    for pod in _waiting(lists):
        app = pod["metadata"]["labels"]["app"]
        if apps[app]:
            pod["spec"]["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1 + len(app) % 2,
                    "topologyKey": ("zone", HOST, raw.LEVELS[1])[len(app) % 3],
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": app}},
                }
            ]


def _apart(lists: raw.Object, config: raw.Object, rng: Random) -> None:
    """Required affinity and anti-affinity, also of running pods against waiting ones."""
    apps = sorted({p["metadata"]["labels"].get("app", "") for p in lists["pods"]})
    kinds: dict[str, tuple[str, raw.Object]] = {}
    for app in apps:
        if rng.random() < 0.25:
            term = {
                "labelSelector": {"matchLabels": {"app": rng.choice(apps)}},
                "topologyKey": rng.choice(("zone", HOST)),
            }
            kinds[app] = (rng.choice(("podAffinity", "podAntiAffinity")), term)
    for pod in lists["pods"]:
        kind, term = kinds.get(pod["metadata"]["labels"].get("app", ""), ("", {}))
        if "nodeName" in pod["spec"] and kind == "podAffinity":
            continue  # Running pods might break their own rule.
        if kind and "affinity" not in pod["spec"]:
            pod["spec"]["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _claims(lists: raw.Object, config: raw.Object, rng: Random) -> None:
    devices: dict[str, list[str]] = {}
    for node in lists["nodes"]:
        name = node["metadata"]["name"]
        if rng.random() < 0.8:
            devices[name] = [f"d{i}" for i in range(rng.randint(1, 4))]
    lists["deviceClasses"] = [{"metadata": {"name": "nic"}, "spec": {"selectors": []}}]
    lists["resourceSlices"] = [
        {
            "metadata": {"name": f"slice-{node}"},
            "spec": {
                "driver": DRIVER,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {"name": d, "attributes": {"fast": {"bool": i % 2 == 0}, "root": {"int": i // 2}}}
                    for i, d in enumerate(names)
                ],
            },
        }
        for node, names in devices.items()
    ]
    lists["resourceClaims"] = []
    wants = {p["metadata"]["labels"].get("app", ""): rng.random() < 0.4 for p in lists["pods"]}
    for pod in lists["pods"]:
        node = pod["spec"].get("nodeName", "")
        running = pod["status"]["phase"] == "Running"
        free = devices.get(node, [])
        wanted = wants.get(pod["metadata"]["labels"].get("app", "")) and (
            (running and free) or pod in _waiting(lists)
        )
        if not wanted or "pod-group-name" not in pod["metadata"]["annotations"]:
            continue
        count = 1 if running else rng.choice((1, 1, 2))
        request: dict[str, Any] = {"deviceClassName": "nic", "count": count}
        status: raw.Object = {}
        if running:
            results = [{"request": "r", "driver": DRIVER, "pool": node, "device": free.pop()}]
            users = [{"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}]
            status = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
        elif rng.random() < 0.3:
            request["selectors"] = [{"cel": {"expression": f"device.attributes['{DRIVER}'].fast"}}]
        devices_spec: dict[str, Any] = {"requests": [{"name": "r", "exactly": request}]}
        if not running and rng.random() < 0.3:
            devices_spec["constraints"] = [{"requests": [], "matchAttribute": f"{DRIVER}/root"}]
        name, namespace = f"{pod['metadata']['name']}-nic", pod["metadata"]["namespace"]
        lists["resourceClaims"].append(
            {
                "metadata": {"name": name, "namespace": namespace, "uid": f"claim-{namespace}-{name}"},
                "spec": {"devices": devices_spec},
                "status": status,
            }
        )
        pod["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimName": name}]


def _zones(lists: raw.Object, config: raw.Object, rng: Random) -> None:
    config["tiers"][0]["plugins"].append({"name": "numa", "arguments": {}})
    lists["nodeResourceTopologies"] = []
    for node in lists["nodes"]:
        if rng.random() < 0.2:
            continue
        amounts = node["status"]["allocatable"]
        names = [name for name in ("cpu", "nvidia.com/gpu") if int(amounts.get(name, 0)) > 1]
        zone = [
            {
                "name": name,
                "allocatable": str(int(amounts[name]) // 2),
                "available": str(int(amounts[name]) // 2),
            }
            for name in names
        ]
        policy = rng.choice(("single-numa-node", "restricted", "best-effort", "none"))
        lists["nodeResourceTopologies"].append(
            {
                "metadata": {"name": node["metadata"]["name"]},
                "attributes": [
                    {"name": "topologyManagerPolicy", "value": policy},
                    {"name": "topologyManagerScope", "value": rng.choice(("pod", "container"))},
                ],
                "zones": [{"name": f"node-{i}", "type": "Node", "resources": zone} for i in range(2)],
            }
        )
    for pod in _waiting(lists):
        if rng.random() < 0.5:
            resources = pod["spec"]["containers"][0]["resources"]
            resources["limits"] = dict(resources["requests"])


def _volumes(lists: raw.Object, config: raw.Object, rng: Random) -> None:
    lists["storageClasses"] = [
        {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
         "volumeBindingMode": "WaitForFirstConsumer"},
        {"metadata": {"name": "zoned"}, "provisioner": CSI, "volumeBindingMode": "WaitForFirstConsumer",
         "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]},
    ]  # fmt: skip
    lists["persistentVolumes"] = []
    lists["persistentVolumeClaims"] = []
    lists["csiNodes"] = [
        {"metadata": {"name": node["metadata"]["name"]},
         "spec": {"drivers": [{"name": CSI, "allocatable": {"count": rng.randint(1, 3)}}]}}
        for node in lists["nodes"]
    ]  # fmt: skip
    for node in lists["nodes"]:
        name = node["metadata"]["name"]
        for i in range(rng.randint(0, 2)):
            term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [name]}]}
            lists["persistentVolumes"].append(
                {
                    "metadata": {"name": f"pv-{name}-{i}"},
                    "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"],
                             "storageClassName": "local", "local": {"path": "/x"},
                             "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
                    "status": {"phase": "Available"},
                }
            )  # fmt: skip
    for pod in _waiting(lists):
        if rng.random() < 0.3:
            name, namespace = f"{pod['metadata']['name']}-data", pod["metadata"]["namespace"]
            storage = rng.choice(("local", "zoned"))
            lists["persistentVolumeClaims"].append(
                {
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": storage,
                             "resources": {"requests": {"storage": "5Gi"}}},
                    "status": {"phase": "Pending"},
                }
            )  # fmt: skip
            pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


def _gpu_kinds(lists: raw.Object, config: raw.Object, rng: Random) -> None:
    for node in lists["nodes"]:
        if "nvidia.com/gpu" in node["status"]["allocatable"] and rng.random() < 0.9:
            node["metadata"]["labels"]["nvidia.com/gpu.product"] = rng.choice(PRODUCTS)
    for queue in lists["queues"]:
        if rng.random() < 0.6:
            bounds = {
                product: {"limit": rng.choice((-1, 1, 4, 12)), "quota": rng.choice((-1, 0, 2, 8))}
                for product in PRODUCTS
                if rng.random() < 0.7
            }
            queue["metadata"].setdefault("annotations", {})["kai-cp/gpu-kinds"] = json.dumps(bounds)


def _rollouts(lists: raw.Object, config: raw.Object, rng: Random) -> None:
    """Apps become Deployments: most running pods are of the old revision, waiting ones of the new one."""
    for queue in lists["queues"]:
        if rng.random() < 0.9:
            queue["metadata"].setdefault("annotations", {})["kai-cp/rollout"] = rng.choice(("10m", "2h"))
    apps = sorted({p["metadata"]["labels"].get("app", "") for p in lists["pods"]})
    served = {app: rng.choice(("web", "api", "chat", "")) for app in apps}
    for pod in lists["pods"]:
        metadata = pod["metadata"]
        workload = served[metadata["labels"].get("app", "")]
        if not workload or "pod-group-name" not in metadata.get("annotations", {}):
            continue
        new = "nodeName" not in pod["spec"]
        revision = "r2" if new or rng.random() < 0.2 else "r1"
        metadata["labels"]["pod-template-hash"] = revision
        metadata["ownerReferences"] = [
            {"kind": "ReplicaSet", "name": f"{workload}-{revision}", "controller": True}
        ]
        metadata["creationTimestamp"] = raw.ago(60 if revision == "r2" else 90_000)


def _starts(lists: raw.Object, config: raw.Object, rng: Random) -> None:
    """Declared run times, and waiting groups that hold capacity, some with a start that was promised."""
    nodes = [node["metadata"]["name"] for node in lists["nodes"]]
    waiting = {
        (pod["metadata"]["namespace"], pod["metadata"]["annotations"]["pod-group-name"])
        for pod in _waiting(lists)
    }
    for group in lists["podGroups"]:
        metadata = group["metadata"]
        notes = metadata.setdefault("annotations", {})
        if rng.random() < 0.7:
            notes["kai-cp/expected-runtime"] = rng.choice(("5m", "20m", "1h"))
        if (metadata["namespace"], metadata["name"]) not in waiting or rng.random() < 0.6:
            continue
        notes["kai-cp/reserve"] = "true"
        if rng.random() < 0.6:
            start = raw.ago(-60 * rng.choice((-5, 0, 5, 20)))
            places = rng.sample(nodes, min(len(nodes), rng.randint(1, 2)))
            held = {"start": start, "promised": start, "made": raw.ago(720)}
            held |= {"schema": "reservation/1", "nodes": dict.fromkeys(places, rng.choice((1, 2, 4)))}
            notes["kai-cp/reservation"] = json.dumps(held)


KINDS: Final[dict[str, Callable[[raw.Object, raw.Object, Random], None]]] = {
    "apart": _apart,
    "budgets": _budgets,
    "claims": _claims,
    "gpu_kinds": _gpu_kinds,
    "rollouts": _rollouts,
    "skew": _skew,
    "starts": _starts,
    "volumes": _volumes,
    "zones": _zones,
}
