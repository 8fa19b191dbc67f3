"""Cuts the parts of a pod that its spec is read from: pods with equal parts share one reading.

The reader of a spec gets these parts and nothing else, so everything that it reads is part of the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from kai_cp.json_types import Json
from kai_cp.keys import FRACTION_DEVICES, GPU_FRACTION, GPU_MEMORY, SHARED_GPU_CONFIG
from kai_cp.reader.fields import EMPTY, Malformed, typed
from kai_cp_models.migs import MIG_PREFIX

_ANNOTATIONS: Final = frozenset((GPU_MEMORY, GPU_FRACTION, FRACTION_DEVICES, SHARED_GPU_CONFIG))
_STATUS: Final = frozenset(("qosClass", "resourceClaimStatuses"))
_VOLUME: Final = frozenset(("persistentVolumeClaim", "configMap", "projected"))


class _Container(msgspec.Struct, rename="camel", omit_defaults=True):
    resources: Any = None
    ports: Any = None
    restart_policy: Any = None
    env_from: Any = None
    env: Any = None
    """Variables with plain values are not read."""


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    resources: Any = None
    overhead: Any = None
    node_selector: Any = None
    tolerations: Any = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    # These name objects or pods of the pod's namespace.
    volumes: Any = None
    affinity: Any = None
    topology_spread_constraints: Any = None
    resource_claims: Any = None


class _Source(msgspec.Struct, rename="camel"):
    """``namespace``, ``name``, ``labels``: only if the rest would mean something else with other ones."""

    spec: _Spec
    status: Json
    annotations: Mapping[str, str]
    legacy_mig: bool
    namespace: str = ""
    name: str = ""
    labels: Any = None


_encoded: Final = msgspec.json.Encoder().encode


def spec_source(
    spec: Json,
    status: Json,
    annotations: Mapping[str, str] | None,
    labels: Mapping[str, str] | None,
    *,
    namespace: str,
    name: str,
) -> bytes:
    """The parts of a pod that make its spec, as JSON; fields that make each pod unique are left out.

    Raises ``Malformed``.
    """
    parts = typed(spec, _Spec, "spec")
    for container in (*(parts.containers or ()), *(parts.init_containers or ())):
        if isinstance(container.env, list):
            read = [
                one for one in container.env if not isinstance(one, dict) or one.get("valueFrom") is not None
            ]
            container.env = read or None
    parts.volumes = _volumes(parts.volumes)
    source = _Source(
        parts,
        _picked(status, _STATUS),
        *_annotated(annotations or EMPTY),
    )
    spread = parts.topology_spread_constraints
    if not (parts.volumes is parts.affinity is spread is parts.resource_claims is None):
        source.namespace = namespace
        if spread is not None:
            source.labels = labels
        if isinstance(parts.volumes, list) and any(
            isinstance(v, dict) and "ephemeral" in v for v in parts.volumes
        ):
            source.name = name
    try:
        return _encoded(source)
    except (TypeError, ValueError, RecursionError) as problem:
        raise Malformed("spec", f"is not JSON: {problem}") from None


def _picked(holder: Mapping[str, Any], names: frozenset[str]) -> Json:
    if names.isdisjoint(holder):
        return EMPTY
    return {key: holder[key] for key in sorted(names) if holder.get(key) is not None}


def _refers(variable: Any) -> bool:
    """Whether the reader needs more of a variable than its plain value."""
    return not isinstance(variable, dict) or variable.get("valueFrom") is not None


def _volumes(volumes: Any) -> Any:
    """The parts of volumes that are read, each at its position; None if nothing is read of any."""
    if not isinstance(volumes, list):
        return volumes
    found = [_volume(raw) if isinstance(raw, dict) else raw for raw in volumes]
    return found if any(found) else None


def _volume(raw: Json) -> Json:
    return raw if "ephemeral" in raw else _picked(raw, _VOLUME)


def _annotated(annotations: Mapping[str, str]) -> tuple[Json, bool]:
    """The annotations that are read, and whether one of them is of the legacy MIG kind."""
    read = _read_of if len(annotations) <= _MOST_REMEMBERED else _read_of.__wrapped__
    names, legacy = read(tuple(annotations))
    return {name: annotations[name] for name in names} if names else EMPTY, legacy


_MOST_REMEMBERED: Final = 50
"""Annotations of a pod whose names are remembered; a tenant may write tens of thousands."""


@lru_cache(maxsize=1024)
def _read_of(names: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """Which of the names are read, and whether one is of the legacy MIG kind; most pods have equal names."""
    return tuple(sorted(_ANNOTATIONS.intersection(names))), any(name.startswith(MIG_PREFIX) for name in names)
