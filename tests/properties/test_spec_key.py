"""Pods share what was read of a spec by a key: everything that is read of it is part of the key."""

from __future__ import annotations

from typing import Any

from kai_cp.reader.podspec import read_spec, spec_key

Read = set[tuple[str, str]]


PICKED = frozenset(
    (
        "pod.metadata",
        "pod.spec",
        "pod.status",
        "pod.spec.containers",
        "pod.spec.initContainers",
        "pod.spec.volumes",
    )
)


class Watched(dict[str, Any]):
    """An object of JSON that remembers which of its fields, and of those inside, were looked up."""

    def __init__(self, value: dict[str, Any], where: str, read: Read) -> None:
        super().__init__({key: watched(inner, f"{where}.{key}", read) for key, inner in value.items()})
        self._where, self._read = where, read

    def get(self, key: str, default: Any = None) -> Any:
        self._read.add((self._where, key))
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._read.add((self._where, str(key)))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self._read.add((self._where, key))
        return super().__getitem__(key)


def watched(value: Any, where: str, read: Read) -> Any:
    """A value whose objects are watched where the key picks fields; other objects are in it as a whole."""
    if isinstance(value, dict) and where in PICKED:
        return Watched(value, where, read)
    return [watched(inner, where, read) for inner in value] if isinstance(value, list) else value


TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
CONTAINER = {
    "name": "c",
    "resources": {"requests": {"cpu": "1"}},
    "ports": [{"hostPort": 80}],
    "env": [{"name": "x", "valueFrom": {"configMapKeyRef": {"name": "m"}}}],
    "envFrom": [{"configMapRef": {"name": "m"}}],
}
POD = {
    "metadata": {"name": "p", "labels": {"app": "a"}},
    "spec": {
        "containers": [CONTAINER],
        "initContainers": [{**CONTAINER, "restartPolicy": "Always"}],
        "overhead": {"cpu": "1"},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "k"}],
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}},
        "topologySpreadConstraints": [{**TERM, "maxSkew": 1}],
        "resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}],
        "volumes": [
            {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "w", "configMap": {"name": "m"}},
            {"name": "x", "projected": {"sources": [{"configMap": {"name": "m"}}]}},
        ],
    },
    "status": {"qosClass": "Burstable", "resourceClaimStatuses": [{"name": "c", "resourceClaimName": "d"}]},
}
NOTES = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2", "gpu-memory": "", "x": "y"}


def key(pod: dict[str, Any], notes: dict[str, Any]) -> bytes:
    return spec_key(pod, pod["spec"], notes, "ns", "p")


def changed(value: Any, where: str, at: str, name: str) -> Any:
    """The value with another content in a field of the objects at a place."""
    if isinstance(value, dict):
        found = {key: changed(inner, f"{where}.{key}", at, name) for key, inner in value.items()}
        return found | {name: ["changed"]} if where == at else found
    return [changed(inner, where, at, name) for inner in value] if isinstance(value, list) else value


def test_all_that_is_read_of_a_spec_is_in_its_key() -> None:
    """Whatever a draft is made of, another value of it gives another key."""
    read: Read = set()
    pod = Watched(POD, "pod", read)
    notes = {name: value for name, value in NOTES.items() if value}
    read_spec(pod, pod["spec"], Watched(notes, "notes", read), "ns", "p", namespaces={})
    inside = {(at, name) for at, name in read if at != "pod"}
    assert len(inside) > 15
    base = key(POD, NOTES)
    for at, name in sorted(inside):
        other = key(changed(POD, "pod", at, name), changed(NOTES, "notes", at, name))
        assert other != base, f"{at}.{name} is read and not in the key"
