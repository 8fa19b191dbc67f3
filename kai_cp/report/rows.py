"""Answers as plain rows: one for every decision, and one for every pod group that stays pending."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

COLUMNS: Final = (
    *("input", "kind", "namespace", "podGroup", "queue", "pod", "node", "gpus", "action", "for"),
    *("reason", "proof", "position", "ageSeconds", "message"),
)
"""Columns are empty if a row has no such value; ``kind`` is Bind, Nominate, Evict or Pending."""


def rows(name: str, document: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of one answer, in the order of the document."""
    for entry in document["decisions"]:
        found = {**entry, "for": " ".join(entry.get("for", ()))}
        yield tuple(name if column == "input" else found.get(column, "") for column in COLUMNS)
    for entry in document["unscheduled"]:
        namespace, _, group = entry["podGroup"].partition("/")
        found = {**entry, "kind": "Pending", "namespace": namespace, "podGroup": group}
        yield tuple(name if column == "input" else found.get(column, "") for column in COLUMNS)


def pod_of(decision: Mapping[str, Any]) -> tuple[str, str]:
    """The namespace and the name of the pod of a decision."""
    return decision["namespace"], decision["pod"]


def names(document: Mapping[str, Any]) -> Iterator[str]:
    """``pod/NAMESPACE/NAME`` of every decision, ``podgroup/NAMESPACE/NAME`` of every group that stays
    pending.
    """
    for entry in document["decisions"]:
        yield f"pod/{entry['namespace']}/{entry['pod']}"
    for entry in document["unscheduled"]:
        yield f"podgroup/{entry['podGroup']}"
