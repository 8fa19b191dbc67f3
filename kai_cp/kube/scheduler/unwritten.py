"""Snapshots show what the scheduler has decided about objects before it is written (12.7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kai_cp.json_types import Object
from kai_cp.kube.api.store import ObjectKey, key_of

_Decided = TypeVar("_Decided")


def with_unwritten(
    raw: Mapping[str, Any],
    kind: str,
    decided: Callable[[ObjectKey], _Decided | None],
    changed: Callable[[Object, _Decided], Object],
) -> Mapping[str, Any]:
    """The snapshot in which the objects of one ``kind`` of list are as ``changed`` makes them.

    ``decided``: what is decided about an object and not written yet; None: nothing.
    """
    objects = raw["rawObjects"]
    items = [
        item if (found := decided(key_of(item))) is None else changed(item, found) for item in objects[kind]
    ]
    return {**raw, "rawObjects": {**objects, kind: items}}
