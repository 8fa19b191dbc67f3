"""PodDisruptionBudgets (docs/semantics.md has the rule)."""

from __future__ import annotations

from kai_cp.json_types import Json
from kai_cp.reader.affinity import read_selector
from kai_cp.reader.fields import Malformed, int_at, object_at, shown
from kai_cp.reader.notes import Identity
from kai_cp_models.records.budgets import DisruptionBudget


def read_budget(obj: Json, identity: Identity) -> DisruptionBudget:
    """A PodDisruptionBudget."""
    spec = object_at(obj, "spec")
    allowed = int_at(object_at(obj, "status"), "disruptionsAllowed", "status")
    return DisruptionBudget(
        *identity,
        pods=read_selector(spec, "selector", "spec"),
        allowed=allowed if allowed is not None and allowed >= 0 else None,
        minimum=_bound(spec, "minAvailable"),
        maximum=_bound(spec, "maxUnavailable"),
    )


def _bound(spec: Json, key: str) -> str | int | None:
    """A number of pods, or a percentage as text."""
    value = spec.get(key)
    if value is None or type(value) is int:
        return value
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdigit() and value.isascii():
        return value
    raise Malformed(f"spec.{key}", f"{shown(value)} is neither a number nor a percentage")
