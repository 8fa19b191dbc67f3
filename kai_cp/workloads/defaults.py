"""Priority class and preemptibility by kind from a ConfigMap (10.2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_cp.json_types import Json


@dataclass(frozen=True, slots=True)
class KindDefault:
    """The defaults of workloads of one kind; "" is none."""

    priority_class: str = ""
    preemptibility: str = ""


@dataclass(frozen=True, slots=True)
class KindDefaults:
    """Defaults by ``Kind.group`` or ``Kind``."""

    entries: Mapping[str, KindDefault] = field(default_factory=dict)

    def of(self, kind: str, group: str) -> KindDefault:
        """The entry of a kind; ``Kind.group`` comes before ``Kind``."""
        found = self.entries.get(f"{kind}.{group}") if group else None
        return found or self.entries.get(kind) or KindDefault()


def read_defaults(config_map: Json | None) -> KindDefaults:
    """The defaults in a ConfigMap's ``types``. Raises ``ValueError`` that names the fault."""
    data = (config_map or {}).get("data")
    text = data.get("types") if isinstance(data, dict) else None
    if not isinstance(text, str):
        raise ValueError("data.types is missing")
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"data.types: not JSON: {problem}") from None
    if not isinstance(entries, list):
        raise ValueError("data.types: not a list")
    found: dict[str, KindDefault] = {}
    for i, entry in enumerate(entries):
        keys = ("typeName", "group", "priorityName", "preemptibility")
        values = [entry.get(key) or "" for key in keys] if isinstance(entry, dict) else []
        texts = [value for value in values if isinstance(value, str)]
        if len(texts) < len(keys):
            raise ValueError(f"data.types[{i}]: expected the strings {', '.join(keys)}")
        name, group, priority, preemptibility = texts
        found[f"{name}.{group}" if group else name] = KindDefault(priority, preemptibility)
    return KindDefaults(found)
