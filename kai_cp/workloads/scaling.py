"""The GPU demand of fractional pods, and the pods that show it to autoscalers (components, section 5).

An autoscaler counts resources, and a pod with a fraction of a GPU requests none. For fractional pods without
a place, scaling pods request whole GPUs: as many as the fractions add up to, and no more.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kai_cp.json_types import Json
from kai_cp.keys import GPU, POD_GROUP, SCALING_NAMESPACE
from kai_cp.object_names import LONGEST_LABEL, LONGEST_NAME
from kai_cp.reader.fields import Malformed, object_at, objects_at, strings_at, text_at
from kai_cp.reader.quantity import quantity
from kai_cp.reader.requests import pod_level
from kai_cp.reader.shares import read_gpu
from kai_cp_models.pods import GpuKind
from kai_cp_models.reasons import NOT_FOR_CAPACITY

APP: Final = "scaling-pod"
POD_NAME: Final = "shared-gpu-pod-name"
POD_NAMESPACE: Final = "shared-gpu-pod-namespace"
HELD: Final = NOT_FOR_CAPACITY | {"PreemptionDelayNotElapsed", "InVain"}
"""Reasons of a pod group that no new node would remove."""
COPIED: Final = ("tolerations", "nodeSelector", "runtimeClassName", "topologySpreadConstraints")
COOL_DOWN_SECONDS: Final = 60.0
"""After a scaling pod went, its node takes what waits: nothing is asked for meanwhile."""


@dataclass(frozen=True, slots=True)
class ScalingSetup:
    """The settings of scaling pods. A ``gpu-memory`` pod counts as ``memory_ratio`` of a GPU."""

    namespace: str = SCALING_NAMESPACE
    image: str = "kai-cp"
    account: str = "kai-scale-adjust"
    scheduler_name: str = "kai-scheduler"
    memory_ratio: float = 0.1


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What to do now: names of scaling pods to delete, scaling pods to create, and the GPUs requested."""

    delete: tuple[str, ...] = ()
    create: tuple[Json, ...] = ()
    devices_needed: int = 0


def unschedulable(pod: Json) -> bool:
    """Whether the scheduler looked for a place for the pod and found none."""
    condition = scheduled_condition(pod)
    waits = condition is not None and condition.get("status") == "False"
    return waits and condition is not None and condition.get("reason") == "Unschedulable"


def scheduled_condition(pod: Json) -> Json | None:
    """Condition ``PodScheduled``."""
    listed = objects_at(object_at(pod, "status"), "conditions", "status")
    return next((entry for entry in listed if entry.get("type") == "PodScheduled"), None)


def held_back(group: Json | None) -> bool:
    """Whether something holds the group back against which no node would help."""
    conditions = objects_at(object_at(group or {}, "status"), "schedulingConditions", "status")
    return any(
        entry.get("reason") in HELD
        for condition in conditions
        for entry in objects_at(condition, "reasons", "status.schedulingConditions")
    )


def demand(pod: Json, setup: ScalingSetup) -> tuple[int, int] | None:
    """Devices and hundredths of GPUs that a pod requests as fractions; None if it requests none."""
    asked = read_gpu(strings_at(object_at(pod, "metadata"), "annotations", "metadata"), {})
    if asked.kind is GpuKind.FRACTION:
        return asked.devices, asked.milli_portion // 10 * asked.devices
    if asked.kind is GpuKind.MEMORY:
        return asked.devices, math.ceil(100 * setup.memory_ratio) * asked.devices
    return None


def adjust(
    pods: Sequence[Json],
    scaling: Sequence[Json],
    groups: Mapping[tuple[str, str], Json],
    setup: ScalingSetup,
    *,
    cooling: bool,
    ordered: Collection[tuple[str, str]] = (),
    most: int = sys.maxsize,
) -> Adjustment:
    """What to do. ``pods``: those of our scheduler; ``scaling``: those in the scaling namespace.

    ``groups`` are by namespace and name. While ``cooling``, because a scaling pod was just deleted, nothing
    is requested. ``ordered`` are pods with a place from the scheduler. If more than ``most`` pods are needed,
    one more than that is created. Fractions add up inside a namespace: a scaling pod that finds no node
    covers the pods of no other.
    """
    waiting = {key: found for key, *found in _waiting(pods, groups, setup) if key not in ordered}
    known = {(text_at(m, "namespace"), label_value(text_at(m, "name"))): pod for pod, m in _with_meta(pods)}
    found_room = {(namespace, label_value(name)) for namespace, name in ordered}
    kept: dict[tuple[str, str], int] = {}
    gone: list[str] = []
    for pod, meta in _with_meta(scaling):
        labels = strings_at(meta, "labels", "metadata")
        source = (labels.get(POD_NAMESPACE, ""), labels.get(POD_NAME, ""))
        if labels.get("app") != APP:
            continue
        settled = source in found_room or source not in known or _placed(known[source])
        if over(pod) or settled or _held(source, known, groups):
            gone.append(text_at(meta, "name"))
        else:
            kept[source] = _devices(pod)
    parts = Counter[str]()
    for (namespace, _), (_, _, hundredths) in waiting.items():
        parts[namespace] += hundredths
    needed = {namespace: math.ceil(part / 100) for namespace, part in parts.items()}
    if cooling or gone:
        return Adjustment(tuple(gone), (), sum(needed.values()))
    made: list[Json] = []
    taken = {text_at(meta, "name") for _, meta in _with_meta(scaling)}
    held, largest = Counter[str](), Counter[str]()
    for (namespace, _), devices in kept.items():
        held[namespace] += devices
        largest[namespace] = max(largest[namespace], devices)
    for key in _in_turn(waiting):
        if len(made) > most:
            break
        (pod, devices, _), (namespace, name) = waiting[key], key
        enough = needed[namespace] <= held[namespace] and devices <= largest[namespace]
        if enough or (namespace, label_value(name)) in kept:
            continue
        try:
            shown = scaling_pod(pod, devices, setup)
        except Malformed:
            continue  # The scheduler reports the fault.
        if shown["metadata"]["name"] in taken:  # Of a-b/c and of a/b-c.
            shown = {**shown, "metadata": {**shown["metadata"], "name": with_digest(namespace, name)}}
        taken.add(shown["metadata"]["name"])
        made.append(shown)
        held[namespace] += devices
        largest[namespace] = max(largest[namespace], devices)
    return Adjustment((), tuple(made), sum(needed.values()))


def _in_turn(pods: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Namespaces and names; first one pod of each namespace, then the next of each."""
    before = Counter[str]()
    turns = list[tuple[int, str, str]]()
    for namespace, name in sorted(pods):
        turns.append((before[namespace], namespace, name))
        before[namespace] += 1
    return [(namespace, name) for _, namespace, name in sorted(turns)]


def _waiting(
    pods: Iterable[Json], groups: Mapping[tuple[str, str], Json], setup: ScalingSetup
) -> Iterable[Any]:
    """Namespace and name of each pod that asks, the pod, and its demand."""
    for pod, meta in _with_meta(pods):
        namespace = text_at(meta, "namespace")
        try:
            group = strings_at(meta, "annotations", "metadata").get(POD_GROUP, "")
            if over(pod) or _placed(pod) or not unschedulable(pod) or "deletionTimestamp" in meta:
                continue
            asked = demand(pod, setup)
            if asked is not None and not held_back(groups.get((namespace, group))):
                yield (namespace, text_at(meta, "name")), pod, *asked
        except Malformed:
            continue  # The scheduler reports the fault; such a pod adds no demand here.


def _with_meta(pods: Iterable[Json]) -> Iterable[tuple[Json, Json]]:
    return ((pod, object_at(pod, "metadata")) for pod in pods)


def over(pod: Json) -> bool:
    """Whether the pod has ended."""
    return object_at(pod, "status").get("phase") in ("Succeeded", "Failed")


def _placed(pod: Json) -> bool:
    """Whether the pod has a place; a pod that no scheduler has seen yet has none."""
    condition = scheduled_condition(pod)
    looked = condition is not None and not unschedulable(pod)
    return bool(object_at(pod, "spec").get("nodeName")) or looked


def _held(
    source: tuple[str, str], known: Mapping[tuple[str, str], Json], groups: Mapping[tuple[str, str], Json]
) -> bool:
    annotations = strings_at(object_at(known[source], "metadata"), "annotations", "metadata")
    return held_back(groups.get((source[0], annotations.get(POD_GROUP, ""))))


def _devices(pod: Json) -> int:
    total = 0
    for container in objects_at(object_at(pod, "spec"), "containers", "spec"):
        limits = object_at(object_at(container, "resources"), "limits")
        total += quantity(limits.get(GPU, "0"), "spec.containers.resources.limits")
    return total


def scaling_pod(pod: Json, devices: int, setup: ScalingSetup) -> dict[str, Any]:
    """A pod for the default scheduler that requests whole GPUs where ``pod`` could run."""
    meta, spec = object_at(pod, "metadata"), object_at(pod, "spec")
    namespace, name = text_at(meta, "namespace"), text_at(meta, "name")
    amounts: dict[str, str] = {GPU: str(devices)}
    whole = pod_level(spec)
    for resource, milli, unit in (("cpu", True, "m"), ("memory", False, "")):
        total = whole.get(resource) or sum(
            quantity(asked[resource], f"requests.{resource}", milli=milli)
            for container in objects_at(spec, "containers", "spec")
            if resource in (asked := object_at(object_at(container, "resources"), "requests"))
        )
        if total:
            amounts[resource] = f"{total}{unit}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": scaling_name(namespace, name),
            "namespace": setup.namespace,
            "labels": {"app": APP, POD_NAME: label_value(name), POD_NAMESPACE: namespace},
        },
        "spec": {
            **{key: spec[key] for key in COPIED if spec.get(key)},
            **_affinity(spec, namespace),
            "serviceAccountName": setup.account,
            "automountServiceAccountToken": False,
            "restartPolicy": "OnFailure",
            "containers": [
                {
                    "name": APP,
                    "image": setup.image,
                    "args": ["--version"],
                    "imagePullPolicy": "IfNotPresent",
                    "resources": {"requests": amounts, "limits": {GPU: amounts[GPU]}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                        "runAsNonRoot": True,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                }
            ],
        },
    }


def _affinity(spec: Json, namespace: str) -> dict[str, Any]:
    """The pod's affinity as another namespace must say it: a term without namespaces is about its own."""
    affinity = dict(object_at(spec, "affinity", "spec"))
    for kind in {"podAffinity", "podAntiAffinity"} & affinity.keys():
        listed = object_at(affinity, kind, "spec.affinity")
        affinity[kind] = {
            key: [_about(one, namespace) for one in objects_at(listed, key, f"spec.affinity.{kind}")]
            for key in listed
        }
    return {"affinity": affinity} if affinity else {}


def _about(term: Json, namespace: str) -> Json:
    """A term of pod affinity, or a weighted one, that names the namespaces of the pods that it is about."""
    if "podAffinityTerm" in term:
        return {**term, "podAffinityTerm": _about(object_at(term, "podAffinityTerm"), namespace)}
    if term.get("namespaces") or term.get("namespaceSelector") is not None:
        return term
    return {**term, "namespaces": [namespace]}


def scaling_name(namespace: str, name: str) -> str:
    """``<namespace>-<name>``; a name that is too long ends with a hash instead."""
    whole = f"{namespace}-{name}"
    return whole if len(whole) <= LONGEST_NAME else with_digest(namespace, name)


def with_digest(namespace: str, name: str) -> str:
    """A name that no pod of another namespace or name has, also where both together read the same."""
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:10]
    return f"{f'{namespace}-{name}'[: LONGEST_NAME - len(digest) - 1].rstrip('-.')}-{digest}"


def label_value(name: str) -> str:
    """A pod's name as a label value, which is shorter than names may be."""
    if len(name) <= LONGEST_LABEL:
        return name
    return f"{name[:52].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"
