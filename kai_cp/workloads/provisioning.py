"""Gangs that cluster autoscalers are asked for as a whole, by a ProvisioningRequest each.

An autoscaler that sees pods one by one may bring half of the nodes that a gang needs, and pay for them while
the gang goes on waiting. A ProvisioningRequest (autoscaling.x-k8s.io) names all of its pods: either all
of them get nodes or none. Pods that belong to one say so in an annotation, and are not looked at one by one.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kai_cp import keys
from kai_cp.json_types import Json
from kai_cp.reader.fields import Malformed, object_at, objects_at, strings_at, text_at
from kai_cp.reader.subgroups import DEFAULT, read_tree
from kai_cp.reader.times import instant
from kai_cp.workloads.scaling import ScalingSetup, demand, held_back, over, scheduled_condition, unschedulable
from kai_cp_models.snapshot import Subgroup

ATOMIC: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
"""The class whose nodes come all or none."""
CONSUMES: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS: Final = "autoscaling.x-k8s.io/provisioning-class-name"
PREFIX: Final = "kai-cp-"
MOST_SETS: Final = 32
"""Sets of equal pods in one ProvisioningRequest, by its definition; a gang of more is not asked for."""
RETRY_SECONDS: Final = 600.0
"""A request that failed is made again after so long: the autoscaler tries each only for a while."""
OVER: Final = frozenset(("BookingExpired", "CapacityRevoked"))
"""Conditions of a request whose nodes are not kept for its pods any more."""
_LONGEST_STEM: Final = 200
_SPEC: Final = ("affinity", "nodeSelector", "overhead", "resources", "runtimeClassName", "tolerations")
_CONTAINER: Final = ("name", "ports", "resources", "restartPolicy")


@dataclass(frozen=True, slots=True)
class Request:
    """A ProvisioningRequest to make, with the PodTemplates it refers to, and the pods it is for."""

    name: str
    templates: tuple[Json, ...]
    body: Json
    pods: frozenset[str]


@dataclass(frozen=True, slots=True)
class Step:
    """What to do about one pod group now.

    ``delete``: names of requests that are over. ``make``: one to make. ``marks``: annotations by the name of
    a pod, None takes one away. ``failed``: what the autoscaler said of a request that it gave up, or "".
    ``after``: seconds until the group has to be looked at again without a change.
    """

    delete: tuple[str, ...] = ()
    make: Request | None = None
    marks: Mapping[str, Mapping[str, str | None]] | None = None
    failed: str = ""
    after: float | None = None


def step(
    group: Json, pods: Sequence[Json], requests: Sequence[Json], provisioning_class: str, now: float
) -> Step:
    """What to do. ``pods``: those of the group; ``requests``: those made for it; ``now``: Unix seconds."""
    wanted, settled = _look(group, pods, provisioning_class)
    there = {text_at(object_at(item, "metadata"), "name"): item for item in requests}
    if settled:
        return Step(tuple(there), marks=_marks(pods, None, provisioning_class))
    if wanted is None:
        return Step()  # Words that change from cycle to cycle are not a reason to start over.
    marks = _marks(pods, wanted, provisioning_class)
    others = tuple(name for name in there if name != wanted.name)
    if wanted.name not in there:
        return Step(others, wanted, marks)
    said = _conditions(there[wanted.name])
    message, since = said.get("Failed", ("", now))
    left = since + RETRY_SECONDS - now
    if left <= 0 or said.keys() & OVER:
        return Step(tuple(there), wanted, marks)
    return Step(others, None, marks, message, left if "Failed" in said else None)


def _look(group: Json, pods: Sequence[Json], provisioning_class: str) -> tuple[Request | None, bool]:
    """The request that the gang wants now, and whether it waits for no nodes."""
    try:
        if "deletionTimestamp" in group["metadata"] or held_back(group):
            return None, True
        needed = _needed(group, pods)
        if needed is None:
            return None, not any(_waits(pod) for pod in pods)
        if len(needed) < 2:
            return None, True
        if not all(unschedulable(pod) and not _elsewhere(pod) for pod in needed):
            return None, False
        return _request(group, needed, provisioning_class), False
    except Malformed:
        return None, True  # The scheduler says what is wrong with it; here it only asks for nothing.


def _needed(group: Json, pods: Sequence[Json]) -> tuple[Json, ...] | None:
    """The waiting pods that the gang's minimum lacks; None while too few of them exist."""
    root = read_tree(object_at(group, "spec"), {})
    inside: dict[str, list[Json]] = defaultdict(list)
    for pod in pods:
        labels = strings_at(object_at(pod, "metadata"), "labels", "metadata")
        inside[DEFAULT if root.plain else labels.get(keys.SUBGROUP, "")].append(pod)
    return _lacking(root, inside)


def _lacking(part: Subgroup, inside: Mapping[str, Sequence[Json]]) -> tuple[Json, ...] | None:
    """The waiting pods that a part of the gang lacks, of its cheapest parts; None while too few exist."""
    if not part.leaf:
        found = [lacks for child in part.children if (lacks := _lacking(child, inside)) is not None]
        if len(found) < part.minimum:
            return None
        return tuple(pod for lacks in sorted(found, key=len)[: part.minimum] for pod in lacks)
    pods = inside.get(part.name, ())
    there = [pod for pod in pods if not over(pod) and "deletionTimestamp" not in pod["metadata"]]
    waiting = sorted((pod for pod in there if _waits(pod)), key=lambda pod: str(pod["metadata"]["name"]))
    count = max(0, part.minimum - (len(there) - len(waiting)))
    return tuple(waiting[:count]) if count <= len(waiting) else None


def _waits(pod: Json) -> bool:
    if over(pod) or object_at(pod, "spec").get("nodeName"):
        return False
    return (scheduled_condition(pod) or {}).get("status") != "True"


def _elsewhere(pod: Json) -> bool:
    """Whether the pod is asked for in another way: as a part of a GPU, by a claim, or by another program."""
    annotations = strings_at(object_at(pod, "metadata"), "annotations", "metadata")
    theirs = CONSUMES in annotations and not annotations[CONSUMES].startswith(PREFIX)
    claims = bool(object_at(pod, "spec").get("resourceClaims"))
    return theirs or claims or demand(pod, ScalingSetup()) is not None


def _request(group: Json, needed: Sequence[Json], provisioning_class: str) -> Request | None:
    meta = object_at(group, "metadata")
    alike: dict[str, list[Json]] = defaultdict(list)
    for pod in needed:
        alike[json.dumps(_spec(pod), sort_keys=True)].append(pod)
    if len(alike) > MOST_SETS:
        return None
    sets = [(json.loads(spec), _common_labels(pods), len(pods)) for spec, pods in alike.items()]
    digest = hashlib.sha256(json.dumps([sets, provisioning_class], sort_keys=True).encode()).hexdigest()[:10]
    name = f"{PREFIX}{text_at(meta, 'name')[:_LONGEST_STEM].rstrip('-.')}-{digest}"
    common = {
        "namespace": text_at(meta, "namespace"),
        "labels": {"app.kubernetes.io/managed-by": "kai-cp"},
        "annotations": {keys.POD_GROUP: text_at(meta, "name")},
        "ownerReferences": [
            {
                "apiVersion": "scheduling.run.ai/v2alpha2",
                "kind": "PodGroup",
                "name": text_at(meta, "name"),
                "uid": text_at(meta, "uid"),
            }
        ],
    }
    templates = tuple(
        {
            "metadata": {**common, "name": f"{name}-{i}"},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        }
        for i, (spec, labels, _) in enumerate(sets)
    )
    pod_sets = [
        {"podTemplateRef": {"name": f"{name}-{i}"}, "count": count} for i, (_, _, count) in enumerate(sets)
    ]
    body = {
        "metadata": {**common, "name": name},
        "spec": {"provisioningClassName": provisioning_class, "podSets": pod_sets},
    }
    return Request(name, templates, body, frozenset(str(pod["metadata"]["name"]) for pod in needed))


def _spec(pod: Json) -> dict[str, Any]:
    """What decides on which nodes the pod could run. Nothing of it is ever started."""
    spec = object_at(pod, "spec")
    found: dict[str, Any] = {key: spec[key] for key in _SPEC if spec.get(key)}
    if spec.get("topologySpreadConstraints"):
        found["topologySpreadConstraints"] = spec["topologySpreadConstraints"]
    for key in ("initContainers", "containers"):
        listed = objects_at(spec, key, "spec")
        if listed:
            found[key] = [
                {"image": "none", **{k: entry[k] for k in _CONTAINER if entry.get(k)}} for entry in listed
            ]
    return {**found, "restartPolicy": "Never"}


def _common_labels(pods: Sequence[Json]) -> dict[str, str]:
    """Labels that affinity and spread of the pods may look at: those that all of them have alike."""
    found = [strings_at(object_at(pod, "metadata"), "labels", "metadata") for pod in pods]
    return {
        key: value
        for key, value in sorted(found[0].items())
        if all(labels.get(key) == value for labels in found)
    }


def _marks(
    pods: Sequence[Json], wanted: Request | None, provisioning_class: str
) -> dict[str, Mapping[str, str | None]]:
    """Annotations that pods lack, and those that stay on pods that a request does not cover any more."""
    found: dict[str, Mapping[str, str | None]] = {}
    for pod in pods:
        annotations = object_at(object_at(pod, "metadata"), "annotations")
        name, has = str(pod["metadata"]["name"]), annotations.get(CONSUMES)
        if not _waits(pod):
            continue
        if wanted is not None and name in wanted.pods:
            if has != wanted.name or annotations.get(CLASS) != provisioning_class:
                found[name] = {CONSUMES: wanted.name, CLASS: provisioning_class}
        elif isinstance(has, str) and has.startswith(PREFIX):
            found[name] = {CONSUMES: None, CLASS: None}
    return found


def _conditions(request: Json) -> dict[str, tuple[str, float]]:
    """Conditions that hold: what they say, and since when [Unix seconds]."""
    found: dict[str, tuple[str, float]] = {}
    for entry in objects_at(object_at(request, "status"), "conditions", "status"):
        if entry.get("status") == "True":
            try:
                since = instant(str(entry.get("lastTransitionTime")), "lastTransitionTime")
            except Malformed:
                since = 0.0
            found[str(entry.get("type"))] = (str(entry.get("message") or entry.get("reason") or ""), since)
    return found


def template_names(request: Json) -> list[str]:
    """PodTemplates that a request refers to."""
    sets = objects_at(object_at(request, "spec"), "podSets", "spec")
    return [text_at(object_at(entry, "podTemplateRef"), "name") for entry in sets]
