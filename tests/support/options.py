"""Clusters with every feature and option drawn: ``with_options(seed)`` gives a cluster and its settings.

Beside what ``extras`` draws: GPUs by claim, partitions and tainted devices, closed places, prices of heroes,
maximum run times, users, groups that defragmentation moved; and every setting that changes which plans are
permitted or preferred.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from kai_cp_models.settings import Settings
from tests.support import objects as raw
from tests.support.devices import device, device_class, exact, slice_of, taint_rule
from tests.support.extras import DRIVER, everything, other_policy

GPU: Final = "nvidia.com/gpu"
GPU_DRIVER: Final = "gpu.nvidia.com"
PARTS: Final = "parts.example.com"
USER: Final = "user"
GOALS: Final = (
    "threshold",
    "lost_beyond",
    "threshold_by_age",
    "lost_work_by_priority",
    "lost_work",
    "lost_gpus",
    "stopped_groups",
    "moved_pods",
    "moved_groups",
    "newest_first",
    "moved_latest",
)
BLENDS: Final = ("lost_work + moved_pods", "lost_gpus + stopped_groups", "moved_pods + moved_groups")


def with_options(seed: int) -> tuple[raw.Object, Settings]:
    """A random cluster with a random part of all features, and settings with a random part of all options."""
    rng = Random(seed)
    cluster = everything(seed)
    share = rng.choice((0.1, 0.3, 0.8))
    for name in sorted(FEATURES):
        if rng.random() < share:
            FEATURES[name](cluster["rawObjects"], rng)
    if rng.random() < 0.3:
        cluster = other_policy(cluster, seed)
    return cluster, options(rng)


def options(rng: Random) -> Settings:
    """Settings, each of which differs from its default now and then."""
    share = rng.choice((0.2, 0.6, 0.9))

    def sometimes(**choices: tuple[Any, ...]) -> dict[str, Any]:
        return {name: rng.choice(values) for name, values in choices.items() if rng.random() < share}

    rules = ("topology_spread", "pod_disruption_budgets", "gpu_kinds", "rollouts")
    drains = {"without_ends": "drain", "max_idle_gpu_hours": rng.choice((0.5, 1000.0))}
    return Settings.model_validate(
        {
            "solver": {"budget_seconds": 20, "patience": 50} | sometimes(patience=(0.05, 0.5, 5)),
            "rules": dict.fromkeys(rules, True) | sometimes(**dict.fromkeys(rules, (False,))),
            "objective": sometimes(
                goals=(_goals(rng),),
                close_gangs=(False,),
                max_moved_gpus_per_admitted_gpu=(0.0, 0.5, 2.0),
                lost_beyond_step_gpus=(1, 2),
                lost_work_cap_seconds=(0, 600),
            ),
            "reservations": {"enabled": rng.random() < 0.8, "min_gpus": 1}
            | sometimes(
                most=(1, 2, 9),
                after_seconds=(-1, 0, 600),
                horizon_seconds=(600, 7_200),
                within=("limit",),
                backfill=("none", "preemptible"),
                max_backfill_loss_gpu_hours=(0.0, 1.0),
                max_overdue_seconds=(0, 1_000_000),
                hero=(True,),
            )
            | (drains if rng.random() < share else {}),
            "time": sometimes(
                default_runtime_seconds=(600, 7_200), margin_seconds=(60,), overrun=("unknown",)
            ),
            "max_runtime": sometimes(enforce=(True,), requeue_delay_seconds=(600,)),
            "aging": {"step_seconds": 600, "most_points": rng.choice((20, 200))}
            if rng.random() < share / 2
            else {},
            "users": sometimes(label=(USER,)),
            "defrag": _defrag(rng) if rng.random() < share else {},
        }
    )


def _goals(rng: Random) -> list[str]:
    """Some goals in any order, now and then with a sum among them."""
    found = rng.sample(GOALS, rng.randint(1, len(GOALS)))
    if rng.random() < 0.4:
        blend = rng.choice(BLENDS)
        found = [name for name in found if name not in blend.split(" + ")]
        found.insert(rng.randint(0, len(found)), blend)
    return found


def _defrag(rng: Random) -> dict[str, Any]:
    goal = rng.choice(("nodes=1", "nodes=9", "rack=1", "gang=2x2=3", "gang=2x1@rack=2"))
    bounds = {"windows": ["00:00-24:00"], "max_moves_per_hour": rng.choice((1, 20))}
    return {"goal": goal, "mode": "act", **bounds, "serving": rng.random() < 0.5}


def _asking(lists: raw.Object) -> Iterator[raw.Object]:
    """The pods of pod groups that wait."""
    names = {(one["metadata"]["namespace"], one["spec"]["podName"]) for one in lists["bindRequests"]}
    for pod in lists["pods"]:
        where = pod["metadata"]["namespace"], pod["metadata"]["name"]
        waits = "nodeName" not in pod["spec"] and pod["status"]["phase"] == "Pending"
        if waits and "pod-group-name" in pod["metadata"]["annotations"] and where not in names:
            yield pod


def _requests(pod: raw.Object) -> raw.Object:
    found: raw.Object = pod["spec"]["containers"][0]["resources"]["requests"]
    return found


def _app(pod: raw.Object) -> str:
    return str(pod["metadata"]["labels"].get("app", ""))


def _notes(one: raw.Object) -> raw.Object:
    found: raw.Object = one["metadata"].setdefault("annotations", {})
    return found


def _claimed(lists: raw.Object, pod: raw.Object, name: str, request: raw.Object, status: raw.Object) -> None:
    """Give the pod a claim of its own."""
    metadata = pod["metadata"]
    full = f"{metadata['name']}-{name}"
    owner = {"kind": "Pod", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    identity = {"name": full, "namespace": metadata["namespace"]}
    lists.setdefault("resourceClaims", []).append(
        {
            "metadata": {**identity, "uid": f"claim-{metadata['uid']}-{name}", "ownerReferences": [owner]},
            "spec": {"devices": {"requests": [request]}},
            "status": status,
        }
    )
    wanted = {"name": name, "resourceClaimTemplateName": f"{name}-of-{_app(pod)}"}
    pod["spec"].setdefault("resourceClaims", []).append(wanted)
    pod["status"].setdefault("resourceClaimStatuses", []).append({"name": name, "resourceClaimName": full})


def _gpu_claims(lists: raw.Object, rng: Random) -> None:
    """GPUs of some nodes are devices, and some pods claim them."""
    lists.setdefault("deviceClasses", []).append(device_class("gpu.nvidia.com"))
    taken: dict[str, list[raw.Object]] = {}
    for pod in lists["pods"]:
        taken.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
    bound = {one["spec"]["selectedNode"] for one in lists["bindRequests"]}
    for node in lists["nodes"]:
        name, amounts = node["metadata"]["name"], node["status"]["allocatable"]
        count, pods = int(amounts.get(GPU, 0)), taken.get(name, [])
        used = sum(int(_requests(pod).get(GPU, 0)) for pod in pods)
        labels = (label for pod in pods for label in pod["metadata"]["labels"])
        shared = any(label.startswith("runai-gpu-group") for label in labels)
        if not count or shared or name in bound or used > count or rng.random() < 0.4:
            continue
        node["status"]["allocatable"] = {key: value for key, value in amounts.items() if key != GPU}
        names = [f"gpu{i}" for i in range(count)]
        devices = [device(one, attributes={"root": {"int": i // 4}}) for i, one in enumerate(names)]
        lists.setdefault("resourceSlices", []).append(slice_of(name, *devices, driver=GPU_DRIVER))
        for pod in pods:
            if amount := int(_requests(pod).pop(GPU, 0)):
                held = [
                    {"request": "r", "driver": GPU_DRIVER, "pool": name, "device": names.pop()}
                    for _ in range(amount)
                ]
                users = [{"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}]
                status = {"allocation": {"devices": {"results": held}}, "reservedFor": users}
                _claimed(lists, pod, "gpu", exact(amount, device_class="gpu.nvidia.com"), status)
    by_claim = {_app(pod): rng.random() < 0.6 for pod in lists["pods"]}
    for pod in _asking(lists):
        if by_claim[_app(pod)] and (amount := int(_requests(pod).pop(GPU, 0))):
            _claimed(lists, pod, "gpu", exact(amount, device_class="gpu.nvidia.com"), {})


def _partitions(lists: raw.Object, rng: Random) -> None:
    """Devices that draw from one counter of their node: two of 2, or more of 1."""
    lists.setdefault("deviceClasses", []).append(device_class("part"))
    for node in lists["nodes"]:
        name = node["metadata"]["name"]
        sizes = [rng.choice((1, 1, 2, 3)) for _ in range(rng.randint(1, 4))]
        devices = [
            device(
                f"part{i}",
                attributes={"size": {"int": size}},
                consumesCounters=[{"counterSet": "all", "counters": {"cores": {"value": str(size)}}}],
            )
            for i, size in enumerate(sizes)
        ]
        counters = [{"name": "all", "counters": {"cores": {"value": str(rng.choice((2, 3)))}}}]
        lists.setdefault("resourceSlices", []).append(
            slice_of(name, *devices, driver=PARTS, sharedCounters=counters)
        )
    wants = {_app(pod): rng.random() < 0.3 for pod in lists["pods"]}
    for pod in _asking(lists):
        if wants[_app(pod)]:
            least = f"device.attributes['{PARTS}'].size >= {rng.choice((1, 2))}"
            selectors = [{"cel": {"expression": least}}]
            _claimed(lists, pod, "part", exact(1, device_class="part", selectors=selectors), {})


def _shared_claims(lists: raw.Object, rng: Random) -> None:
    """All waiting pods of a group use one claim."""
    lists.setdefault("deviceClasses", []).append(device_class("one"))
    lists.setdefault("resourceSlices", []).append(
        slice_of("everywhere", device("only"), driver="one.example.com", allNodes=True)
    )
    selectors = [{"cel": {"expression": "device.driver == 'one.example.com'"}}]
    wants = {(_app(pod), pod["metadata"]["namespace"]): rng.random() < 0.2 for pod in lists["pods"]}
    for pod in _asking(lists):
        namespace = pod["metadata"]["namespace"]
        name = f"{_app(pod)}-one"
        if not wants[_app(pod), namespace]:
            continue
        if not any(
            one["metadata"]["name"] == name and one["metadata"]["namespace"] == namespace
            for one in lists.get("resourceClaims", ())
        ):
            lists.setdefault("resourceClaims", []).append(
                {
                    "metadata": {"name": name, "namespace": namespace, "uid": f"claim-{namespace}-{name}"},
                    "spec": {"devices": {"requests": [exact(1, device_class="one", selectors=selectors)]}},
                    "status": {},
                }
            )
        pod["spec"].setdefault("resourceClaims", []).append({"name": "one", "resourceClaimName": name})


def _tainted_devices(lists: raw.Object, rng: Random) -> None:
    drivers = rng.sample((DRIVER, GPU_DRIVER, PARTS), rng.randint(1, 2))
    nodes = [node["metadata"]["name"] for node in lists["nodes"]]
    lists["deviceTaintRules"] = [
        taint_rule("ill", rng.choice(("NoSchedule", "None")), driver=driver, pool=rng.choice(nodes))
        for driver in drivers
    ]


def _closed_places(lists: raw.Object, rng: Random) -> None:
    """Waiting groups for which places are closed, and starts that were given up."""
    nodes = [node["metadata"]["name"] for node in lists["nodes"]]
    asking = {(p["metadata"]["namespace"], _notes(p)["pod-group-name"]) for p in _asking(lists)}
    for group in lists["podGroups"]:
        metadata = group["metadata"]
        if (metadata["namespace"], metadata["name"]) not in asking or rng.random() < 0.5:
            continue
        made = raw.ago(rng.choice((300, 3_000)))
        note: raw.Object = {"schema": "reservation/1", "expired": made}
        if rng.random() < 0.8:
            places = rng.sample(nodes, min(len(nodes), rng.randint(1, 2)))
            idle = {"since": made, "gpus": 1, "gpuHours": 0.0}
            held = dict.fromkeys(places, rng.choice((1, 2, 4)))
            note = {"schema": "reservation/1", "made": made, "nodes": held, "idle": idle}
        _notes(group)["kai-cp/reserve"] = "true"
        _notes(group)["kai-cp/reservation"] = json.dumps(note)


def _heroes(lists: raw.Object, rng: Random) -> None:
    """Queues whose groups may buy a start, and groups that offer a price."""
    for queue in lists["queues"]:
        if rng.random() < 0.7:
            _notes(queue)["kai-cp/hero"] = "true"
    for group in lists["podGroups"]:
        if rng.random() < 0.4:
            _notes(group)["kai-cp/hero-price-gpu-hours"] = rng.choice(("0", "1", "1000"))
            _notes(group)["kai-cp/reserve"] = "true"


def _maxima(lists: raw.Object, rng: Random) -> None:
    """Maximum run times, deadlines, and groups that a maximum ended."""
    for queue in lists["queues"]:
        if rng.random() < 0.3:
            _notes(queue)["kai-cp/max-runtime"] = rng.choice(("90s", "1h"))
        if rng.random() < 0.3:
            _notes(queue)["kai-cp/default-runtime"] = rng.choice(("10m", "2h"))
        if rng.random() < 0.2:
            _notes(queue)["kai-cp/reserve-after"] = rng.choice(("never", "1m"))
    for group in lists["podGroups"]:
        notes = _notes(group)
        if rng.random() < 0.4:
            notes["kai-cp/max-runtime"] = rng.choice(("90s", "20m", "2h"))
        if rng.random() < 0.2:
            notes["kai-cp/ended"] = raw.ago(30)
            notes["kai.scheduler/last-eviction-timestamp"] = notes["kai-cp/ended"]
    for pod in lists["pods"]:
        if pod["status"]["phase"] == "Running":
            pod["status"]["startTime"] = raw.ago(rng.choice((10, 200, 5_000)))
        if rng.random() < 0.2:
            pod["spec"]["activeDeadlineSeconds"] = rng.choice((600, 6_000))


def _moved(lists: raw.Object, rng: Random) -> None:
    """Consent to defragmentation, and groups that it moved a while ago."""
    for one in (*lists["queues"], *lists["podGroups"]):
        if rng.random() < 0.3:
            _notes(one)["kai-cp/defrag"] = rng.choice(("true", "true", "false"))
    for group in lists["podGroups"]:
        if rng.random() < 0.1:
            _notes(group)["kai-cp/moved"] = json.dumps({"pods": 1, "at": [raw.ago(1_800)]})


def _users(lists: raw.Object, rng: Random) -> None:
    """Users of groups, some with a weight or a limit of GPUs in their queue."""
    for group in lists["podGroups"]:
        if rng.random() < 0.8:
            group["metadata"].setdefault("labels", {})[USER] = rng.choice(("ann", "bob", "eve"))
    for queue in lists["queues"]:
        if rng.random() < 0.4:
            _notes(queue)["kai-cp/users"] = json.dumps({"ann": {"weight": 2}, "bob": {"gpuLimit": 2}})


FEATURES: Final[dict[str, Callable[[raw.Object, Random], None]]] = {
    "closed_places": _closed_places,
    "gpu_claims": _gpu_claims,
    "heroes": _heroes,
    "maxima": _maxima,
    "moved": _moved,
    "partitions": _partitions,
    "shared_claims": _shared_claims,
    "tainted_devices": _tainted_devices,
    "users": _users,
}
