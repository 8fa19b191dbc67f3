"""What a pod asks of a node, read once for every distinct raw spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from kai_cp.json_types import Json
from kai_cp.reader.affinity import (
    Namespaces,
    read_node_affinity,
    read_pod_terms,
    read_spread,
    read_tolerations,
)
from kai_cp.reader.fields import Malformed, object_at, strings_at
from kai_cp.reader.needs import read_claims, read_config_maps, read_host_ports, read_volume_claims
from kai_cp.reader.requests import guaranteed, read_requests
from kai_cp.reader.resources import ResourceAmounts, vector
from kai_cp.reader.shares import DEVICES, FRACTION, MEMORY, read_gpu
from kai_cp_models.migs import MIG_PREFIX
from kai_cp_models.snapshot import PodSpec

_SHARED_CONFIG_MAP: Final = "runai/shared-gpu-configmap"
_ANNOTATIONS: Final = (MEMORY, FRACTION, DEVICES, _SHARED_CONFIG_MAP)
_FIELDS: Final = ("overhead", "nodeSelector", "tolerations")
_CONTAINER: Final = ("resources", "ports", "restartPolicy", "envFrom")
_VOLUME: Final = ("persistentVolumeClaim", "configMap", "projected")
_NAMESPACED: Final = ("affinity", "topologySpreadConstraints", "resourceClaims")


@dataclass(frozen=True, slots=True, eq=False)
class SpecDraft:
    """A pod's spec before the dimensions of the snapshot are known.

    ``namespaced``: it names objects or pods of its namespace, so pods of two namespaces differ.
    """

    spec: PodSpec
    amounts: ResourceAmounts
    containers: tuple[ResourceAmounts, ...] = ()

    @property
    def namespaced(self) -> bool:
        """Whether the spec means something else in another namespace."""
        spec = self.spec
        return bool(
            spec.claims
            or spec.volume_claims
            or spec.config_maps
            or spec.pod_affinity
            or spec.pod_anti_affinity
            or spec.spread
        )

    def finished(self, dimensions: tuple[str, ...], key: str, *, numa: bool) -> PodSpec:
        """The spec with its vectors and its scheduling key."""
        return replace(
            self.spec,
            requests=vector(self.amounts, dimensions),
            container_requests=tuple(vector(row, dimensions) for row in self.containers) if numa else (),
            scheduling_key=key,
        )


NO_SPEC: Final = SpecDraft(PodSpec(()), {})
"""Spec of a pod that has ended: it asks for nothing any more."""


def spec_key(pod: Json, spec: Json, annotations: Mapping[str, str], namespace: str, name: str) -> bytes:
    """A text that is equal only for pods of equal drafts; fields that make each pod unique are left out.

    Raises ``Malformed`` if a field is not JSON.
    """
    status = pod.get("status")
    parts: list[object] = [spec.get(key) for key in _FIELDS]
    parts += [_containers(spec.get(key)) for key in ("containers", "initContainers")]
    if annotations:
        parts += [annotations.get(key) for key in _ANNOTATIONS]
        parts.append(_legacy_mig(annotations))
    if isinstance(status, dict):
        parts.append(status.get("qosClass"))
    volumes = _volumes(spec.get("volumes"))
    if volumes or not spec.keys().isdisjoint(_NAMESPACED):
        parts += [namespace, volumes, [spec.get(key) for key in _NAMESPACED]]
        if spec.get("resourceClaims") is not None and isinstance(status, dict):
            parts.append(status.get("resourceClaimStatuses"))
        if spec.get("topologySpreadConstraints") is not None:
            parts.append(pod["metadata"].get("labels"))
        if isinstance(volumes, list) and any(isinstance(v, dict) and "ephemeral" in v for v in volumes):
            parts.append(name)
    try:
        return orjson.dumps(parts)
    except TypeError as problem:
        raise Malformed("spec", f"is not JSON: {problem}") from None


def _containers(containers: Any) -> Any:
    """What is read of containers; environment variables with plain values are not."""
    if not isinstance(containers, list):
        return containers
    return [
        [raw.get(key) for key in _CONTAINER] + [_env(raw.get("env"))] if isinstance(raw, dict) else raw
        for raw in containers
    ]


def _env(env: Any) -> Any:
    if not isinstance(env, list):
        return env
    return [raw for raw in env if not isinstance(raw, dict) or raw.get("valueFrom") is not None]


def _volumes(volumes: Any) -> Any:
    """The volumes of which something is read."""
    if not isinstance(volumes, list):
        return volumes
    found: list[Any] = []
    for raw in volumes:
        if not isinstance(raw, dict) or "ephemeral" in raw:
            found.append(raw)
        elif not raw.keys().isdisjoint(_VOLUME):
            found.append([raw.get(key) for key in _VOLUME])
    return found


def read_spec(
    pod: Json,
    spec: Json,
    annotations: Mapping[str, str],
    namespace: str,
    name: str,
    *,
    namespaces: Namespaces,
) -> SpecDraft:
    """The draft of a pod's spec."""
    status = object_at(pod, "status")
    amounts, containers = read_requests(spec)
    gpu = read_gpu(annotations, amounts)
    affinity = object_at(spec, "affinity", "spec")
    prefix = annotations.get(_SHARED_CONFIG_MAP)
    maps = {found for found in read_config_maps(spec) if not prefix or not found.startswith(prefix)}
    labels = strings_at(object_at(pod, "metadata"), "labels", "metadata")
    return SpecDraft(
        PodSpec(
            requests=(),
            gpu=gpu,
            node_selector=tuple(sorted(strings_at(spec, "nodeSelector", "spec").items())),
            node_affinity=read_node_affinity(affinity),
            tolerations=tuple(read_tolerations(spec)),
            host_ports=tuple(sorted(set(read_host_ports(spec)))),
            pod_affinity=tuple(read_pod_terms(affinity, "podAffinity", namespace, namespaces)),
            pod_anti_affinity=tuple(read_pod_terms(affinity, "podAntiAffinity", namespace, namespaces)),
            spread=tuple(read_spread(spec, labels)),
            claims=tuple(read_claims(spec, status)),
            volume_claims=tuple(sorted(set(read_volume_claims(spec, name)))),
            config_maps=tuple(sorted(maps)),
            legacy_mig=_legacy_mig(annotations),
            guaranteed=guaranteed(spec, status),
        ),
        amounts,
        containers,
    )


def _legacy_mig(annotations: Mapping[str, str]) -> bool:
    # One search over all names is a third of the cost of one each; the prefix has no line break.
    return f"\n{MIG_PREFIX}" in "\n" + "\n".join(annotations)
