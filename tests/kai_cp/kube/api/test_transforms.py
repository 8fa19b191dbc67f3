"""What stores keep of an object includes everything that the reader reads of it."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.kube.api import transforms
from kai_cp.reader import parse
from tests.support import objects as raw
from tests.support.clusters import FEATURES, random_cluster

VARIABLES = [
    {"name": "A", "value": "1"},
    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "b"}}},
]
KEPT = {"pods": transforms.pod, "nodes": transforms.node}


class Recording(dict[str, Any]):
    """An object that records which of its fields are read, by their path."""

    def __init__(self, values: dict[str, Any], where: str, seen: set[str]) -> None:
        super().__init__({key: recorded(value, f"{where}.{key}", seen) for key, value in values.items()})
        self._where, self._seen = where, seen

    def get(self, key: str, default: Any = None) -> Any:
        self._seen.add(f"{self._where}.{key}")
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._seen.add(f"{self._where}.{key}")
        return super().__getitem__(key)


def recorded(value: Any, where: str, seen: set[str]) -> Any:
    """A copy of a value that records what is read of it; the entries of a list share one path."""
    if isinstance(value, dict):
        return Recording(value, where, seen)
    return [recorded(one, f"{where}[]", seen) for one in value] if isinstance(value, list) else value


def paths(value: Any, where: str) -> set[str]:
    """Every path of a value."""
    if isinstance(value, dict):
        return {f"{where}.{key}" for key in value}.union(
            *(paths(one, f"{where}.{key}") for key, one in value.items())
        )
    return set().union(*(paths(one, f"{where}[]") for one in value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", KEPT)
def test_nothing_that_is_read_is_dropped(name: str, seed: int) -> None:
    cluster = random_cluster(seed, FEATURES)
    for one in cluster["rawObjects"][name]:
        one["status"] |= {"qosClass": "Burstable", "hostIP": "10.0.0.1"} if name == "pods" else {"images": []}
        for container in one["spec"].get("containers", ()):
            container |= {"image": "i", "command": ["c"], "env": VARIABLES}
    objects = cluster["rawObjects"][name]
    kept = [KEPT[name](one) for one in objects]
    dropped = {
        path
        for before, after in zip(objects, kept, strict=True)
        if before["status"].get("phase") not in transforms.FINISHED
        for path in paths(before, name) - paths(after, name)
    }
    seen: set[str] = set()
    values = [recorded(one, name, seen) for one in objects]
    whole = parse({**cluster, "rawObjects": {**cluster["rawObjects"], name: values}}, now=raw.NOW.timestamp())
    assert {f"{name}.spec", f"{name}.metadata"} <= seen
    assert seen & dropped == set()
    short = parse({**cluster, "rawObjects": {**cluster["rawObjects"], name: kept}}, now=raw.NOW.timestamp())
    assert short == whole
