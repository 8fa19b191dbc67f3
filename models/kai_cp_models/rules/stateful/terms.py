"""Terms of affinity and topology domains, shared by affinity and spread."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.pods import Pod, PodAffinityTerm
from kai_cp_models.selectors import selects
from kai_cp_models.snapshot import Snapshot


def reaches_namespace(term: PodAffinityTerm, pod: Pod) -> bool:
    """Whether the term covers the pod's namespace."""
    return term.namespaces is None or pod.key.namespace in term.namespaces


def matches(term: PodAffinityTerm, pod: Pod) -> bool:
    """Whether the term selects the pod."""
    return reaches_namespace(term, pod) and selects(term.selector, pod.labels)


class Domains:
    """The nodes' topology domains: per node label key, a number for each value."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = snapshot.nodes
        self._parsed = cache(self._parse)

    def _parse(self, key: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        values = sorted({node.labels[key] for node in self._nodes if key in node.labels})
        number = {value: i for i, value in enumerate(values)}
        found = [number[node.labels[key]] if key in node.labels else -1 for node in self._nodes]
        return np.array(found, dtype=np.int64), tuple(values)

    def of(self, key: str) -> NDArray[np.int64]:
        """Domain of every node; -1: the node lacks the label."""
        return self._parsed(key)[0]

    def names(self, key: str) -> tuple[str, ...]:
        """Label values, in the order of the domains' numbers."""
        return self._parsed(key)[1]

    def count(self, key: str) -> int:
        """Number of domains."""
        return len(self.names(key))
