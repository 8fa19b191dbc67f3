"""Pods that request a fraction of a GPU: what is refused, and how containers learn their device (9.4,
9.5).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kai_cp.admission.request import AdmissionRequest, Refused
from kai_cp.json_types import Json
from kai_cp.keys import (
    FRACTION_CONTAINER,
    FRACTION_DEVICES,
    GPU,
    GPU_FRACTION,
    GPU_MEMORY,
    MPS,
    SHARED_GPU_CONFIG,
)
from kai_cp.reader.fields import entry, list_at, object_at, objects_at, strings_at, text_at
from kai_cp.reader.quantity import quantity
from kai_cp_models.migs import MIG_PREFIX
from kai_cp_models.quantity import scaled

ANNOTATIONS: Final = (GPU_FRACTION, GPU_MEMORY, FRACTION_DEVICES, FRACTION_CONTAINER, MPS)
"""Every annotation that decides whether a pod is refused."""
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
VARIABLES: Final = (VISIBLE_DEVICES, "RUNAI_NUM_OF_GPUS", "GPU_PORTION")
MEMORY_LIMIT: Final = "CUDA_DEVICE_MEMORY_LIMIT"

_SAFE_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_RANDOM_LENGTH: Final = 7
_LONGEST_BASE: Final = 63 - 13 - 10 - 1 - 5
"""The most letters of base name and container index in a volume name, which is a DNS label."""
_FLOAT: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(inf|infinity)|nan", re.ASCII | re.I)
_HEX_FLOAT: Final = re.compile(r"[+-]?0x[0-9a-f_]*\.?[0-9a-f_]*p[+-]?\d+", re.ASCII | re.I)
_UNSIGNED: Final = re.compile(r"\d+", re.ASCII)
_LONGEST_NUMBER: Final = 64

INSTEAD: Final = f"write the annotation {GPU_FRACTION}, {GPU_MEMORY}, or a limit of {GPU}: one of the three"


class ContainerRef(NamedTuple):
    """A container of a pod: the field that lists it (``containers``, ``initContainers``), and its index."""

    field: str
    place: int

    @property
    def suffix(self) -> str:
        """The end of its ConfigMaps' names: ``0``, or ``i0`` for an init container."""
        return f"i{self.place}" if self.field == "initContainers" else str(self.place)


def annotations_of(pod: Json) -> Any:
    """The annotations."""
    return strings_at(object_at(pod, "metadata"), "annotations", "metadata")


def containers_of(pod: Json) -> Iterator[tuple[ContainerRef, Json]]:
    """Init containers, then containers."""
    spec = object_at(pod, "spec")
    for field in ("initContainers", "containers"):
        for i, container in enumerate(objects_at(spec, field, "spec")):
            yield ContainerRef(field, i), container


def wants_fraction(pod: Json) -> bool:
    """Whether the pod requests a fraction of a GPU, with a valid or an invalid value."""
    annotations = annotations_of(pod)
    return GPU_FRACTION in annotations or GPU_MEMORY in annotations


def fraction_container(pod: Json) -> ContainerRef | None:
    """The container that gets the GPU; None for a pod without containers, or without a fraction.

    Raises ``Refused`` if the pod names a container that it does not have.
    """
    if not wants_fraction(pod) or not objects_at(object_at(pod, "spec"), "containers", "spec"):
        return None
    wanted = annotations_of(pod).get(FRACTION_CONTAINER, "")
    if not wanted:
        return ContainerRef("containers", 0)
    for ref, container in containers_of(pod):
        if text_at(container, "name") == wanted:
            return ref
    names = ", ".join(text_at(container, "name") for _, container in containers_of(pod))
    raise Refused(
        f"failed to get fraction container ref: container with name {wanted} not found for fraction request: "
        f"name one of {names} in annotation {FRACTION_CONTAINER}"
    )


def amount(container: Json, kind: str, name: str) -> int:
    """Amount of a resource (device count) in ``requests`` or ``limits``, rounded up; 0 when absent."""
    where = f"spec.containers[{text_at(container, 'name')}].resources.{kind}"
    values = object_at(object_at(container, "resources"), kind)
    return quantity(values[name], entry(where, name)) if values.get(name) is not None else 0


def devices_asked(container: Json) -> tuple[str, ...]:
    """Names of whole GPU and MIG resources with a positive request or limit in the container."""
    resources = object_at(container, "resources")
    names = {
        name
        for kind in ("requests", "limits")
        for name in object_at(resources, kind)
        if (name == GPU or name.startswith(MIG_PREFIX)) and amount(container, kind, name)
    }
    return tuple(sorted(names))


def validate(request: AdmissionRequest, pod: Json) -> None:
    """Raise ``Refused`` for a GPU request that cannot be shared, in KAI's order.

    KAI accepts what the last rule refuses.
    """
    annotations = annotations_of(pod)
    fraction, memory = annotations.get(GPU_FRACTION), annotations.get(GPU_MEMORY)
    shared = fraction is not None or memory is not None
    if shared and not request.settings.gpu_sharing:
        meta = object_at(pod, "metadata")
        name = text_at(meta, "name") or text_at(meta, "generateName")
        raise Refused(
            f"attempting to create a pod {text_at(meta, 'namespace')}/{name} with gpu sharing request, "
            "while GPU sharing is disabled: "
            f"ask for whole GPUs with a limit of {GPU}, or have GPU sharing switched on"
        )
    if annotations.get(MPS) == "true" and not shared:
        raise Refused(
            "MPS is only supported with GPU fraction request: "
            f"add annotation {GPU_FRACTION} or {GPU_MEMORY}, or remove annotation {MPS}"
        )
    whole = any(
        object_at(object_at(container, "resources"), "limits").get(GPU) is not None
        for _, container in containers_of(pod)
    )
    if fraction is not None and whole:
        raise Refused(
            f"cannot have both GPU fraction request and whole GPU resource request/limit: {INSTEAD}"
        )
    if memory is not None and (fraction is not None or whole):
        raise Refused(f"cannot request both GPU and GPU memory: {INSTEAD}")
    if FRACTION_DEVICES in annotations and not shared:
        raise Refused(
            "cannot request multiple fractional devices without specifying fraction portion or gpu-memory: "
            f"add annotation {GPU_FRACTION} or {GPU_MEMORY}, or remove annotation {FRACTION_DEVICES}"
        )
    if memory is not None and not _positive(memory):
        raise Refused(
            "gpu-memory annotation value must be a positive integer greater than 0: it is "
            f'"{memory}"; write MiB without a unit, such as "4096"'
        )
    if fraction is not None:
        _validate_fraction(fraction)
    if FRACTION_DEVICES in annotations and not _positive(annotations[FRACTION_DEVICES]):
        raise Refused(
            "fraction count annotation value must be a positive integer greater than 0: "
            f'{FRACTION_DEVICES} is "{annotations[FRACTION_DEVICES]}"'
        )
    if shared:
        _refuse_mixture(pod)


def _validate_fraction(text: str) -> None:
    portion = _portion(text)
    if portion is None or not (0 < portion < 1 or portion != portion):
        raise Refused(
            "gpu-fraction annotation value must be a positive number smaller than 1.0: it is "
            f'"{text}"; for whole GPUs write a limit of {GPU}'
        )
    try:
        scaled(text, 3)
    except ValueError:
        raise Refused(
            "gpu-fraction annotation value must be a float written with a decimal point or a scientific "
            f'notation: it is "{text}"; write "0.5" or "5e-1"'
        ) from None


def _portion(text: str) -> float | None:
    """The float; NaN for a number that is not decimal; None for any other text."""
    if len(text) > _LONGEST_NUMBER:
        return None
    if _FLOAT.fullmatch(text):
        return float(text)
    return float("nan") if _HEX_FLOAT.fullmatch(text) else None


def _positive(text: str) -> bool:
    return bool(_UNSIGNED.fullmatch(text)) and len(text) <= _LONGEST_NUMBER and 0 < int(text) < 2**64


def _refuse_mixture(pod: Json) -> None:
    """Refuse a fraction of a GPU beside MIG devices, or beside whole GPUs requested without a limit."""
    for _, container in containers_of(pod):
        for name in devices_asked(container):
            raise Refused(
                f"container {text_at(container, 'name')} asks for {name} beside a part of a GPU: {INSTEAD}"
            )


def mutate(request: AdmissionRequest, pod: dict[str, Any]) -> None:
    """Wire the fraction container to the ConfigMaps that the binder writes (9.4), in place."""
    ref = fraction_container(pod)
    if ref is None:
        return
    annotations = pod["metadata"].setdefault("annotations", {})
    if not annotations.get(SHARED_GPU_CONFIG):
        annotations[SHARED_GPU_CONFIG] = f"{base_name(pod, ref.place)}-{_random()}-shared-gpu"
    config = f"{annotations[SHARED_GPU_CONFIG]}-{ref.suffix}"
    container = pod["spec"][ref.field][ref.place]
    for variable in VARIABLES:
        set_variable(container, _from_config(variable, config))
    if request.settings.hami_core:
        set_variable(container, _from_config(MEMORY_LIMIT, config, optional=True))
    name = re.sub("[^a-z0-9-]", "-", config.lower()) + "-vol"
    others = [v for v in objects_at(pod["spec"], "volumes", "spec") if v.get("name") != name]
    pod["spec"]["volumes"] = [*others, {"name": name, "configMap": {"name": config}}]
    source = {"configMapRef": {"name": f"{config}-evar", "optional": False}}
    sources = list(list_at(container, "envFrom"))
    if source not in sources:
        container["envFrom"] = [*sources, source]


def base_name(pod: Json, index: int) -> str:
    """The base of a pod's ConfigMap names: its owner's name, its own, or its ``generateName``."""
    meta = object_at(pod, "metadata")
    owners = objects_at(meta, "ownerReferences", "metadata")
    name = (text_at(owners[0], "name") if owners else "") or text_at(meta, "name")
    name = name or text_at(meta, "generateName") or "pod"
    return name[: _LONGEST_BASE - len(str(index))].rstrip("-.")


def _random() -> str:
    return "".join(secrets.choice(_SAFE_LETTERS) for _ in range(_RANDOM_LENGTH))


def _from_config(variable: str, config: str, *, optional: bool = False) -> dict[str, Any]:
    reference: dict[str, Any] = {"name": config, "key": variable}
    if optional:
        reference["optional"] = True
    return {"name": variable, "valueFrom": {"configMapKeyRef": reference}}


def set_variable(container: dict[str, Any], variable: dict[str, Any]) -> None:
    """Append a variable, and remove an earlier one of the same name."""
    others = [e for e in objects_at(container, "env") if e.get("name") != variable["name"]]
    container["env"] = [*others, variable]
