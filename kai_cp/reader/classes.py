"""Scheduling keys: they separate pods of equal spec that are still not interchangeable.

Two pods differ if their spec names objects of different namespaces, or if the (anti-)affinity or spread terms
of some pod match one of them and not the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kai_cp.reader.podspec import SpecDraft
from kai_cp_models.pods import LabelSelector
from kai_cp_models.selectors import Selecting

Term = tuple[LabelSelector, tuple[str, ...] | None]


def terms_of(draft: SpecDraft) -> frozenset[Term]:
    """The terms of a pod about other pods, without terms that select no pod."""
    spec = draft.spec
    terms = {(term.selector, term.namespaces) for term in (*spec.pod_affinity, *spec.pod_anti_affinity)}
    terms |= {(row.selector, None) for row in spec.spread}
    return frozenset((selector, names) for selector, names in terms if selector is not None)


class SchedulingKeys:
    """Keys over the terms of all pods of a snapshot."""

    def __init__(self, drafts: Iterable[SpecDraft]) -> None:
        self.terms = sorted(set().union(*map(terms_of, drafts)), key=repr)
        self._selecting = Selecting(
            (selector, (i, namespaces)) for i, (selector, namespaces) in enumerate(self.terms)
        )
        self._read = {need.key for selector, _ in self.terms for need in selector.requirements}
        """Keys of labels that some term uses; pods that differ only in other labels are equal."""
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}

    def key(self, draft: SpecDraft, namespace: str, labels: Mapping[str, str]) -> str:
        """The key of a pod; "" when nothing distinguishes it."""
        home = namespace if draft.namespaced else ""
        return f"{home}{self._matched(namespace, labels)}" if self.terms else home

    def _matched(self, namespace: str, labels: Mapping[str, str]) -> str:
        identity = (namespace, tuple(sorted(item for item in labels.items() if item[0] in self._read)))
        known = self._known.get(identity)
        if known is None:
            text = ",".join(
                str(i)
                for i, namespaces in self._selecting.of(labels)
                if namespaces is None or namespace in namespaces
            )
            known = self._known[identity] = f"#{text}" if text else ""
        return known
