"""Admission of pods: a pod is changed once at creation, and checked then and at each change (9.5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kai_cp.admission import sharing
from kai_cp.admission.request import AdmissionRequest, Refused, Verdict
from kai_cp.json_types import Json
from kai_cp.reader.fields import object_at, objects_at, text_at

HARMLESS: Final = ("", "void", "none")
"""Values of ``NVIDIA_VISIBLE_DEVICES`` that open no device."""


def review(request: AdmissionRequest) -> Verdict:
    """Mutate and validate at creation, validate at a change. Pods of other schedulers pass unchanged."""
    pod = mutate(request).object
    assert pod is not None
    return check(replace(request, object=pod))


def mutate(request: AdmissionRequest) -> Verdict:
    """Change the pod at creation; later, and for other schedulers, it stays unchanged."""
    if request.operation != "CREATE" or not _ours(request):
        return Verdict(allowed=True, object=request.object)
    return Verdict(allowed=True, object=mutated(request))


def check(request: AdmissionRequest) -> Verdict:
    """Validate the pod without changing it."""
    pod = request.object
    over = request.operation == "DELETE" or not _ours(request)
    if over or (request.operation == "UPDATE" and _judged_before(request)):
        return Verdict(allowed=True, object=pod)
    validate(request, pod)
    return Verdict(allowed=True, warnings=_warnings(request, pod), object=pod)


def _ours(request: AdmissionRequest) -> bool:
    return object_at(request.object, "spec").get("schedulerName") == request.settings.scheduler_name


def _judged_before(request: AdmissionRequest) -> bool:
    """Whether no field that is judged has changed, so that an invalid stored pod can still be labelled and
    deleted."""
    if object_at(request.object, "metadata").get("deletionTimestamp"):
        return True
    return request.old is not None and _judged(request.old) == _judged(request.object)


def _judged(pod: Json) -> Any:
    annotations = sharing.annotations_of(pod)
    containers = [
        (ref, container.get("name"), container.get("resources"), container.get("env"))
        for ref, container in sharing.containers_of(pod)
    ]
    return [annotations.get(name) for name in sharing.ANNOTATIONS], containers


def mutated(request: AdmissionRequest) -> dict[str, Any]:
    """The pod after the changes of admission; applying them twice changes nothing more.

    Raises ``Refused``.
    """
    pod = _own(request.object)
    meta = pod["metadata"]
    namespace = text_at(meta, "namespace", "metadata")
    if request.namespace and namespace not in ("", request.namespace):
        raise Refused(
            f"error: the namespace from the provided object {namespace} does not match the namespace "
            f"{request.namespace}"
        )
    if request.namespace:
        meta["namespace"] = request.namespace
    sharing.mutate(request, pod)
    if request.settings.block_nvidia_visible_devices:
        _block(pod)
    runtime_class = request.settings.gpu_fraction_runtime_class_name
    if runtime_class and sharing.wants_fraction(pod) and not pod["spec"].get("runtimeClassName"):
        pod["spec"]["runtimeClassName"] = runtime_class
    return pod


def _own(pod: Json) -> dict[str, Any]:
    """The pod with its own copies of the parts that admission changes; copying all of a large pod takes
    seconds."""
    meta, spec = dict(object_at(pod, "metadata")), dict(object_at(pod, "spec"))
    if meta.get("annotations"):
        meta["annotations"] = dict(sharing.annotations_of(pod))
    for field in ("initContainers", "containers"):
        if spec.get(field):
            spec[field] = [dict(container) for container in objects_at(spec, field, "spec")]
    return {**pod, "metadata": meta, "spec": spec}


def validate(request: AdmissionRequest, pod: Json) -> None:
    """Refuse a pod that cannot work, or that would use a GPU without the scheduler."""
    sharing.validate(request, pod)
    if not request.settings.block_nvidia_visible_devices:
        return
    shared = sharing.fraction_container(pod)
    for ref, container in sharing.containers_of(pod):
        if ref != shared:
            _refuse_devices(container)


def _block(pod: dict[str, Any]) -> None:
    """Hide GPUs from containers that request none, whatever the image says. A limit counts as a request."""
    shared = sharing.fraction_container(pod)
    for ref, container in sharing.containers_of(pod):
        if ref != shared and not sharing.devices_asked(container):
            own = pod["spec"][ref.field][ref.place]
            sharing.set_variable(own, {"name": sharing.VISIBLE_DEVICES, "value": "void"})


def _refuse_devices(container: Json) -> None:
    for variable in objects_at(container, "env"):
        if variable.get("name") != sharing.VISIBLE_DEVICES:
            continue
        value = text_at(variable, "value")
        if value not in HARMLESS:
            raise Refused(
                f"container {text_at(container, 'name')} has an environment variable "
                f"NVIDIA_VISIBLE_DEVICES defined with a value of {value}. "
                "This is forbidden due to conflicts with Nvidia's device plugin. "
                "The only values that are allowed are 'void' or 'none'"
            )
        if not value and variable.get("valueFrom") is not None:
            raise Refused(
                f"container {text_at(container, 'name')} has an environment variable "
                "NVIDIA_VISIBLE_DEVICES defined with a valueFrom reference. "
                "This is forbidden due to possible conflicts with Nvidia's device plugin: remove the variable"
            )


def _warnings(request: AdmissionRequest, pod: Json) -> tuple[str, ...]:
    """Warnings about what is allowed but does not work: a runtime class that the cluster does not have."""
    name = text_at(object_at(pod, "spec"), "runtimeClassName", "spec")
    known = request.runtime_classes
    if known is None or not name or name in known or not sharing.wants_fraction(pod):
        return ()
    return (
        f"spec.runtimeClassName: there is no RuntimeClass {name!r}, so no pod of this kind can start: "
        "install the NVIDIA runtime class, or have admission use another one "
        "(--gpu-fraction-runtime-class-name)",
    )
