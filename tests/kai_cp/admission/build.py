"""Small objects and requests for the tests of admission."""

from __future__ import annotations

from typing import Any

from kai_cp.admission.request import AdmissionRequest, AdmissionSettings, Verdict
from kai_cp.admission.review import review

SHARING = AdmissionSettings(gpu_sharing=True)


def container(name: str = "main", **parts: Any) -> dict[str, Any]:
    """A container; ``requests``, ``limits`` and ``env`` as Kubernetes has them."""
    resources = {kind: parts.pop(kind) for kind in ("requests", "limits") if kind in parts}
    return {"name": name, "image": "app:1", **({"resources": resources} if resources else {}), **parts}


def pod(
    annotations: dict[str, str] | None = None, *containers: dict[str, Any], **parts: Any
) -> dict[str, Any]:
    """A pod of our scheduler in namespace ``team``."""
    meta = {"name": "p", "namespace": "team", "annotations": annotations or {}, **parts.pop("metadata", {})}
    spec = {"schedulerName": "kai-scheduler", "containers": list(containers) or [container()], **parts}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def queue(name: str, parent: str = "", children: tuple[str, ...] = (), **quotas: float) -> dict[str, Any]:
    """A queue with these quotas."""
    resources = {
        key: {"quota": quotas.get(key, 0), "limit": -1, "overQuotaWeight": 1}
        for key in ("cpu", "gpu", "memory")
    }
    return {
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"resources": resources, **({"parentQueue": parent} if parent else {})},
        "status": {"childQueues": list(children)},
    }


def pod_group(*subgroups: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod group of queue ``q``."""
    return {
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "team"},
        "spec": {"queue": "q", **spec, **({"subGroups": list(subgroups)} if subgroups else {})},
    }


def created(thing: dict[str, Any], settings: AdmissionSettings = SHARING, **more: Any) -> Verdict:
    """The verdict on creating it."""
    namespace = thing["metadata"].get("namespace", "")
    return review(AdmissionRequest(settings, "CREATE", thing, **{"namespace": namespace, **more}))


def updated(
    thing: dict[str, Any], old: dict[str, Any] | None, settings: AdmissionSettings = SHARING, **more: Any
) -> Verdict:
    """The verdict on changing ``old`` to it."""
    return review(AdmissionRequest(settings, "UPDATE", thing, old=old, **more))
