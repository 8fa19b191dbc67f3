"""Gang trees: what is satisfied, ready or in surplus (5.1, 5.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kai_cp_models.pods import ACTIVE_ALLOCATED, Pod, PodStatus
from kai_cp_models.snapshot import PodGroup, Subgroup

PodCounts = Counter[str]
"""Pods by name of the leaf they belong to."""


def leaf_name(pod: Pod) -> str:
    """The pod set that a pod names (1.2); it need not exist."""
    return pod.subgroup or "default"


def counts(pods: Iterable[Pod]) -> PodCounts:
    """How many pods every leaf has."""
    return Counter(leaf_name(pod) for pod in pods)


def leaf_names(group: PodGroup) -> frozenset[str]:
    """Names of the pod sets of a group."""
    return frozenset(leaf.name for leaf in group.root.leaves())


def size(subgroup: Subgroup, have: PodCounts) -> int:
    """Pods at or below a subgroup."""
    return sum(have[leaf.name] for leaf in subgroup.leaves())


def satisfied(subgroup: Subgroup, have: PodCounts) -> bool:
    """Whether ``have`` reaches the minimum of a subgroup (5.1)."""
    if subgroup.leaf:
        return have[subgroup.name] >= subgroup.minimum
    return sum(satisfied(child, have) for child in subgroup.children) >= subgroup.minimum


def turn(subgroup: Subgroup, have: PodCounts) -> tuple[bool, bool, float, str]:
    """Subgroup order (3.6): below its threshold, then required, emptier, by name; the least comes first."""
    if not satisfied(subgroup, have):
        return False, False, 0.0, subgroup.name
    met = have[subgroup.name] if subgroup.leaf else sum(satisfied(child, have) for child in subgroup.children)
    return True, subgroup.minimum <= 0, met / max(subgroup.minimum, 1), subgroup.name


def alive(pods: Iterable[Pod]) -> PodCounts:
    """Pods that could run: active or pending, gated ones left out (5.2)."""
    return counts(p for p in pods if p.status in ACTIVE_ALLOCATED or p.status is PodStatus.PENDING)


def walk(subgroup: Subgroup) -> Iterator[Subgroup]:
    """A subgroup and everything below it."""
    yield subgroup
    for child in subgroup.children:
        yield from walk(child)


def label(group: PodGroup, subgroup: Subgroup) -> str:
    """How a subgroup is named in messages."""
    if not subgroup.name or (subgroup.name == "default" and subgroup.leaf):
        return f"pod group {group.key}"
    return f"pod group {group.key}, subgroup {subgroup.name}"


def needs(subgroup: Subgroup, have: PodCounts) -> str:
    """What a subgroup has, and its minimum."""
    if subgroup.leaf:
        return f"{have[subgroup.name]} of at least {subgroup.minimum} pods"
    if len(subgroup.children) == 1:
        return needs(subgroup.children[0], have)
    met = sum(satisfied(child, have) for child in subgroup.children)
    return f"{met} of at least {subgroup.minimum} subgroups"
