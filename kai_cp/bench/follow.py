"""The snapshot of the next cycle, after a plan was carried out and some pods ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import PodKey

_GPU_GROUP = "runai-gpu-group"


def following(raw: Mapping[str, Any], plan: Plan, gone: Collection[PodKey]) -> dict[str, Any]:
    """The raw snapshot after ``plan``: bound pods run, evicted pods wait again, and ``gone`` pods are
    removed.

    Nominations leave no trace. Changed pods get a resourceVersion of their own, as the API server gives them.
    """
    bound = {decision.pod: decision for decision in plan.decisions if decision.kind == "Bind"}
    evicted = {decision.pod for decision in plan.decisions if decision.kind == "Evict"}
    pods: list[Any] = []
    for pod in raw["rawObjects"]["pods"]:
        key = PodKey(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if key in gone:
            continue
        if key in bound:
            pods.append(_running(pod, bound[key]))
        elif key in evicted:
            pods.append(_waiting(pod))
        else:
            pods.append(pod)
    return {**raw, "rawObjects": {**raw["rawObjects"], "pods": pods}}


def _running(pod: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
    labels = dict(pod["metadata"].get("labels") or {})
    if decision.gpu_groups:
        labels[_GPU_GROUP] = decision.gpu_groups[0]
    kind = "Fraction" if decision.gpu_groups else "Regular"
    annotations = {**(pod["metadata"].get("annotations") or {}), "received-resource-type": kind}
    return {
        **pod,
        "metadata": _changed(pod, labels=labels, annotations=annotations),
        "spec": {**pod["spec"], "nodeName": decision.node},
        "status": {"phase": "Running"},
    }


def _waiting(pod: Mapping[str, Any]) -> dict[str, Any]:
    labels = {k: v for k, v in (pod["metadata"].get("labels") or {}).items() if k != _GPU_GROUP}
    spec = {k: v for k, v in pod["spec"].items() if k != "nodeName"}
    return {**pod, "metadata": _changed(pod, labels=labels), "spec": spec, "status": {"phase": "Pending"}}


def _changed(pod: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    meta = pod["metadata"]
    return {**meta, **fields, "resourceVersion": f"{meta.get('resourceVersion', '')}-next"}
