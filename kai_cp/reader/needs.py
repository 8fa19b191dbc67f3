"""The needs of a pod besides resources: claims, volumes, ConfigMaps, host ports (2.5, 2.7, 7.1)."""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp.json_types import Json
from kai_cp.reader.fields import Malformed, bool_at, int_at, object_at, objects_at, text_at
from kai_cp_models.pods import ClaimRef


def read_claims(spec: Json, status: Json) -> Iterator[ClaimRef]:
    """The claims of ``spec.resourceClaims``; for a template, the claim that the pod's status names.

    Raises ``Malformed``.
    """
    made: dict[str, str] = {}
    for i, raw in enumerate(objects_at(status, "resourceClaimStatuses", "status")):
        where = f"status.resourceClaimStatuses[{i}]"
        made[text_at(raw, "name", where)] = text_at(raw, "resourceClaimName", where)
    for i, raw in enumerate(objects_at(spec, "resourceClaims", "spec")):
        where = f"spec.resourceClaims[{i}]"
        name = text_at(raw, "name", where)
        direct = text_at(raw, "resourceClaimName", where)
        template = text_at(raw, "resourceClaimTemplateName", where)
        if not name or not (direct or template):
            raise Malformed(where, "names no claim")
        yield ClaimRef(name, direct or made.get(name, ""), template)


def read_volume_claims(spec: Json, pod: str) -> Iterator[str]:
    """Names of the PersistentVolumeClaims of the pod; an ephemeral volume's is ``<pod>-<volume>``."""
    for i, raw in enumerate(objects_at(spec, "volumes", "spec")):
        where = f"spec.volumes[{i}]"
        claim = text_at(
            object_at(raw, "persistentVolumeClaim", where), "claimName", f"{where}.persistentVolumeClaim"
        )
        if claim:
            yield claim
        elif raw.get("ephemeral") is not None:
            yield f"{pod}-{text_at(raw, 'name', where)}"


def read_config_maps(spec: Json) -> Iterator[str]:
    """Names of the non-optional ConfigMaps that are mounted, or used by env or envFrom."""
    for i, raw in enumerate(objects_at(spec, "volumes", "spec")):
        where = f"spec.volumes[{i}]"
        yield from _reference(raw, "configMap", where)
        projected = object_at(raw, "projected", where)
        for source in objects_at(projected, "sources", f"{where}.projected"):
            yield from _reference(source, "configMap", f"{where}.projected.sources[]")
    for key in ("containers", "initContainers"):
        for i, raw in enumerate(objects_at(spec, key, "spec")):
            where = f"spec.{key}[{i}]"
            for variable in objects_at(raw, "env", where):
                source = object_at(variable, "valueFrom", f"{where}.env[]")
                yield from _reference(source, "configMapKeyRef", f"{where}.env[].valueFrom")
            for source in objects_at(raw, "envFrom", where):
                yield from _reference(source, "configMapRef", f"{where}.envFrom[]")


def _reference(holder: Json, key: str, where: str) -> Iterator[str]:
    if holder.get(key) is None:
        return
    reference = object_at(holder, key, where)
    name = text_at(reference, "name", f"{where}.{key}")
    if name and not bool_at(reference, "optional", f"{where}.{key}"):
        yield name


def read_host_ports(spec: Json) -> Iterator[tuple[str, str, int]]:
    """The (host IP, protocol, port) of every host port; ordinary init containers hold none."""
    for key in ("containers", "initContainers"):
        for i, raw in enumerate(objects_at(spec, key, "spec")):
            where = f"spec.{key}[{i}]"
            if key == "initContainers" and text_at(raw, "restartPolicy", where) != "Always":
                continue
            for j, port in enumerate(objects_at(raw, "ports", where)):
                inner = f"{where}.ports[{j}]"
                number = int_at(port, "hostPort", inner, minimum=0)
                if number:
                    protocol = text_at(port, "protocol", inner) or "TCP"
                    yield text_at(port, "hostIP", inner), protocol, number
