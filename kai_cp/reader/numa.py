"""NUMA zones that a pod is known or expected to use (6): annotation or BindRequest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from kai_cp.keys import NUMA_OBSERVED, NUMA_PREDICTED
from kai_cp.reader.fields import Malformed, entry, object_at, shown, text_at
from kai_cp.reader.resources import amounts

ZoneRows = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]

_ANNOTATIONS: Final = (NUMA_OBSERVED, NUMA_PREDICTED)
_NAMES: Final = frozenset(_ANNOTATIONS)


def annotated_zones(annotations: Mapping[str, str]) -> ZoneRows:
    """Zones from the observed placement, else from the predicted one; raises ``Malformed``."""
    for name in () if _NAMES.isdisjoint(annotations) else _ANNOTATIONS:
        text = annotations.get(name)
        if text:
            field = entry("metadata.annotations", name)
            try:
                return read_zones(orjson.loads(text), field)
            except orjson.JSONDecodeError:
                raise Malformed(field, f"{shown(text)} is not JSON") from None
    return ()


def read_zones(value: Any, field: str) -> ZoneRows:
    """Zones of a list of ``{zone, amount}``; raises ``Malformed``."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise Malformed(field, f"{shown(value)} is not a list")
    found = []
    for i, row in enumerate(value):
        where = f"{field}[{i}]"
        if not isinstance(row, dict):
            raise Malformed(where, f"{shown(row)} is not an object")
        amount = amounts(object_at(row, "amount", where), f"{where}.amount")
        found.append((text_at(row, "zone", where), tuple(sorted(amount.items()))))
    return tuple(found)
