"""Scheduling keys: which pods of equal spec are nevertheless not interchangeable.

Two pods differ when their spec names objects of different namespaces, or when the (anti-)affinity or
spread terms of some pod match one and not the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kai_cp.reader.podspec import SpecDraft
from kai_cp_models.selectors import selects
from kai_cp_models.snapshot import LabelSelector

Term = tuple[LabelSelector, tuple[str, ...] | None]


class SchedulingKeys:
    """Keys over the terms of all pods of a snapshot."""

    def __init__(self, drafts: Iterable[SpecDraft]) -> None:
        found: set[Term] = set()
        for draft in drafts:
            spec = draft.spec
            for term in (*spec.pod_affinity, *spec.pod_anti_affinity):
                if term.selector is not None:
                    found.add((term.selector, term.namespaces))
            found |= {(row.selector, None) for row in spec.spread if row.selector is not None}
        self._terms = sorted(found, key=repr)
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}

    def key(self, draft: SpecDraft, namespace: str, labels: Mapping[str, str]) -> str:
        """The key of a pod; "" when nothing sets it apart."""
        home = namespace if draft.namespaced else ""
        return f"{home}{self._matched(namespace, labels)}" if self._terms else home

    def _matched(self, namespace: str, labels: Mapping[str, str]) -> str:
        identity = (namespace, tuple(sorted(labels.items())))
        known = self._known.get(identity)
        if known is None:
            numbers = (
                str(i)
                for i, (selector, namespaces) in enumerate(self._terms)
                if (namespaces is None or namespace in namespaces) and selects(selector, labels)
            )
            text = ",".join(numbers)
            known = self._known[identity] = f"#{text}" if text else ""
        return known
