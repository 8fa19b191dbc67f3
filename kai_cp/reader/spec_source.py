"""What is read of a pod's spec is cut out of the pod first: pods with equal parts share one reading.

The reader of a spec is given these parts and nothing else. So what it reads is in the key by construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from kai_cp.json_types import Json, Object
from kai_cp.reader.fields import EMPTY, Malformed
from kai_cp.reader.shares import DEVICES, FRACTION, MEMORY
from kai_cp_models.migs import MIG_PREFIX

SHARED_CONFIG_MAP: Final = "runai/shared-gpu-configmap"
_ANNOTATIONS: Final = (MEMORY, FRACTION, DEVICES, SHARED_CONFIG_MAP)
_FIELDS: Final = ("resources", "overhead", "nodeSelector", "tolerations")
_STATUS: Final = ("qosClass", "resourceClaimStatuses")
_CONTAINER: Final = ("resources", "ports", "restartPolicy", "envFrom")
_VOLUME: Final = ("persistentVolumeClaim", "configMap", "projected")
_NAMESPACED: Final = ("affinity", "topologySpreadConstraints", "resourceClaims")
"""Fields that name objects or pods of the pod's namespace; so do volumes."""


def spec_source(pod: Json, spec: Json, annotations: Mapping[str, str], namespace: str, name: str) -> Object:
    """The parts of a pod that make its spec; fields that make each pod unique are left out."""
    status = pod.get("status")
    if not isinstance(status, dict):
        status = EMPTY
    parts = _picked(spec, _FIELDS)
    for key in ("containers", "initContainers"):
        if spec.get(key) is not None:
            parts[key] = _containers(spec[key])
    source: Object = {
        "spec": parts,
        "status": _picked(status, _STATUS),
        "annotations": _picked(annotations, _ANNOTATIONS) if annotations else EMPTY,
        "legacyMig": bool(annotations) and _legacy_mig(annotations),
        "namespace": "",
        "name": "",
    }
    volumes = _volumes(spec.get("volumes"))
    if volumes not in (None, []) or not spec.keys().isdisjoint(_NAMESPACED):
        source["namespace"] = namespace
        parts["volumes"] = volumes
        parts |= _picked(spec, _NAMESPACED)
        if spec.get("topologySpreadConstraints") is not None:
            source["labels"] = pod["metadata"].get("labels")
        if isinstance(volumes, list) and any(isinstance(v, dict) and "ephemeral" in v for v in volumes):
            source["name"] = name
    return source


def spec_key(source: Object) -> bytes:
    """A text that is equal only for equal sources. Raises ``Malformed`` if a field is not JSON."""
    try:
        return orjson.dumps(source)
    except TypeError as problem:
        raise Malformed("spec", f"is not JSON: {problem}") from None


def _picked(holder: Mapping[str, Any], names: tuple[str, ...]) -> Object:
    found = {}
    # Not a comprehension, whose call takes longer than the loop: of most names there is none.
    for key in names:
        value = holder.get(key)
        if value is not None:
            found[key] = value
    return found


def _containers(containers: Any) -> Any:
    """What is read of containers; environment variables with plain values are not."""
    if not isinstance(containers, list):
        return containers
    return [_container(raw) if isinstance(raw, dict) else raw for raw in containers]


def _container(raw: Json) -> Object:
    found = _picked(raw, _CONTAINER)
    env = raw.get("env")
    if isinstance(env, list):
        env = [one for one in env if not isinstance(one, dict) or one.get("valueFrom") is not None]
    if env not in (None, []):
        found["env"] = env
    return found


def _volumes(volumes: Any) -> Any:
    """What is read of volumes, each at its place; none where nothing is read of any."""
    if not isinstance(volumes, list):
        return volumes
    found = [_volume(raw) if isinstance(raw, dict) else raw for raw in volumes]
    return found if any(found) else []


def _volume(raw: Json) -> Json:
    return raw if "ephemeral" in raw else _picked(raw, _VOLUME)


def _legacy_mig(annotations: Mapping[str, str]) -> bool:
    # One search over all names is a third of the cost of one each; the prefix has no line break.
    return f"\n{MIG_PREFIX}" in "\n" + "\n".join(annotations)
