"""AdmissionReview ``admission.k8s.io/v1``: the envelope that the API server sends and expects back."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kai_cp.admission import podgroups, pods, queues, topologies
from kai_cp.admission.patch import difference
from kai_cp.admission.request import OPERATIONS, AdmissionRequest, AdmissionSettings, Verdict
from kai_cp.admission.review import judged
from kai_cp.json_types import Json
from kai_cp.reader.fields import EMPTY, Malformed, object_at, shown, text_at

API_VERSION: Final = "admission.k8s.io/v1"
FORBIDDEN: Final = 403

PATHS: Final[Mapping[str, tuple[str, Callable[[AdmissionRequest], Verdict]]]] = {
    "/mutate--v1-pod": ("Pod", pods.mutate),
    "/validate--v1-pod": ("Pod", pods.check),
    "/validate-kai-scheduler-v1alpha1-topology": ("Topology", topologies.review),
    "/validate-scheduling-run-ai-v2-queue": ("Queue", queues.review),
    "/validate-scheduling-run-ai-v2alpha2-podgroup": ("PodGroup", podgroups.review),
}
"""KAI's paths (2), each with the kind it is for and what answers."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What is known of the cluster beyond the request; None if it was not looked up."""

    queues: Mapping[str, Json] | None = field(default_factory=dict)
    runtime_classes: frozenset[str] | None = None


def answer(
    path: str, document: Any, settings: AdmissionSettings, facts: ClusterFacts
) -> tuple[Json, AdmissionRequest, Verdict]:
    """The review that answers ``document``. Raises ``Malformed`` if it is no AdmissionReview v1 for this
    path.
    """
    if not isinstance(document, dict):
        raise Malformed("body", "is not an object")
    if document.get("apiVersion") != API_VERSION or document.get("kind") != "AdmissionReview":
        raise Malformed("apiVersion", f"expected an AdmissionReview of {API_VERSION}")
    raw = object_at(document, "request")
    uid = text_at(raw, "uid", "request")
    if not uid:
        raise Malformed("request.uid", "is missing")
    kind, judge = PATHS[path]
    request = _request(raw, settings, facts)
    if request.object.get("kind") not in (None, kind):
        raise Malformed(
            "request.object.kind", f"{shown(request.object['kind'])} is not {kind}, which {path} is for"
        )
    verdict = judged(kind, judge, request)
    response: dict[str, Any] = {"uid": uid, "allowed": verdict.allowed}
    if verdict.warnings:
        response["warnings"] = list(verdict.warnings)
    if not verdict.allowed:
        response["status"] = {"code": FORBIDDEN, "reason": "Forbidden", "message": verdict.message}
    elif verdict.object is not None and verdict.object is not request.object:
        patch = list(difference(request.object, verdict.object))
        if patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}, request, verdict


def _request(raw: Json, settings: AdmissionSettings, facts: ClusterFacts) -> AdmissionRequest:
    operation = text_at(raw, "operation", "request")
    if operation not in OPERATIONS:
        raise Malformed("request.operation", f"{shown(operation)} is not {', '.join(OPERATIONS)}")
    thing, old = object_at(raw, "object", "request"), object_at(raw, "oldObject", "request")
    if operation == "DELETE":
        thing = old
    if thing is EMPTY:
        raise Malformed("request.object", "is missing")
    return AdmissionRequest(
        settings=settings,
        operation=operation,  # type: ignore[arg-type]
        object=thing,
        namespace=text_at(raw, "namespace", "request"),
        old=None if old is EMPTY else old,
        queues=facts.queues,
        runtime_classes=facts.runtime_classes,
    )
