"""Topology spread, when the option is on: placed pods keep the skew of their DoNotSchedule constraints."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.check.selectors import selects
from kai_cp_models.pods import LabelSelector, Pod, SpreadConstraint, Toleration
from kai_cp_models.policy import ActionName
from kai_cp_models.rules.static import selector
from kai_cp_models.snapshot import Node, Taint


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Placed pods in a domain that has too many more matching pods than another one."""
    if not world.options.topology_spread:
        return
    counted = _Counted(world)
    for key in sorted(world.placed):
        pod, node = world.pod(key), world.node(world.placed[key].node)
        for constraint in pod.spec.spread:
            fault = _skew(counted, pod, node, constraint, world.placed[key].action)
            if fault:
                yield Violation("spread", f"pod {key} on node {node.name}: {fault}", pods=(key,))


def _skew(counted: _Counted, pod: Pod, node: Node, constraint: SpreadConstraint, action: ActionName) -> str:
    label = constraint.topology_key
    home = node.labels.get(label)
    if home is None:
        return f"the node has no {label}"
    there = counted.domains(pod, constraint, action)
    here = there.settled[home] + bisect_right(there.skews.get(home, ()), constraint.max_skew)
    number, least = min([(here, home), *(one for one in there.fewest if one[1] != home)])
    enough = len(there.others) >= constraint.least_domains
    if here - (number if enough else 0) <= constraint.max_skew:
        return ""
    if not enough:
        return f"{here} pods in {home}, which has too few others, skew at most {constraint.max_skew}"
    return f"{here} pods in {home}, {number} in {least}, skew at most {constraint.max_skew}"


@dataclass(frozen=True)
class _Matched:
    """How many pods that a selector matches are on each node, as counted for the pods that an action
    places."""

    others: Counter[str]
    """For a pod in another domain: all in the end, and those that a later action evicts."""
    settled: Counter[str]
    """For a pod in the same domain: those that the plan leaves, and those that an earlier action places."""
    skews: Mapping[Hashable, Mapping[str, Sequence[int]]]
    """Of the others, the skews of their own constraints, by what their node selector and affinity ask for.

    Those that are as strict must have come before a pod that asks for the same. One without such a constraint
    may enter any domain, also after this one.
    """


@dataclass(frozen=True)
class _Domains:
    """The numbers of ``_Matched`` by domain, on the nodes that count for a pod."""

    others: Counter[str]
    settled: Counter[str]
    skews: Mapping[str, Sequence[int]]
    fewest: Sequence[tuple[int, str]]
    """The two domains with the smallest numbers in ``others``."""


class _Counted:
    """Numbers of matching pods, made once for all pods that are alike in what they ask for."""

    def __init__(self, world: PlannedCluster) -> None:
        self._world = world
        self._matched: dict[tuple[str, LabelSelector | None, str, ActionName], _Matched] = {}
        self._domains: dict[Hashable, _Domains] = {}

    def domains(self, pod: Pod, constraint: SpreadConstraint, action: ActionName) -> _Domains:
        """What a pod that the action places meets."""
        alike = pod.key.namespace, pod.spec.spread, _where(pod), pod.spec.tolerations, constraint, action
        if alike not in self._domains:
            self._domains[alike] = self._of(pod, constraint, action)
        return self._domains[alike]

    def _of(self, pod: Pod, constraint: SpreadConstraint, action: ActionName) -> _Domains:
        label = constraint.topology_key
        question = pod.key.namespace, constraint.selector, label, action
        if question not in self._matched:
            self._matched[question] = self._match(*question)
        matched = self._matched[question]
        others, settled, skews = Counter[str](), Counter[str](), dict[str, list[int]]()
        alike = matched.skews.get(_where(pod), {})
        for host in self._world.snapshot.nodes:
            if _counts(self._world, pod, host, constraint):
                domain = host.labels[label]
                others[domain] += matched.others[host.name]
                settled[domain] += matched.settled[host.name]
                skews.setdefault(domain, []).extend(alike.get(host.name, ()))
        fewest = nsmallest(2, ((number, domain) for domain, number in others.items()))
        return _Domains(others, settled, {domain: sorted(each) for domain, each in skews.items()}, fewest)

    def _match(
        self, namespace: str, chosen: LabelSelector | None, label: str, action: ActionName
    ) -> _Matched:
        world, others, settled = self._world, Counter[str](), Counter[str]()
        skews: dict[Hashable, dict[str, list[int]]] = {}
        for host in (node.name for node in world.snapshot.nodes):
            # Pods that a later action evicts were still there when the pod was placed.
            for resident in world.before(host):
                eviction = world.evictions.get(resident.pod.key)
                if eviction and world.earlier(action, eviction.action):
                    others[host] += _matches(namespace, chosen, resident.pod)
            for resident in world.end(host):
                pod = resident.pod
                if not _matches(namespace, chosen, pod):
                    continue
                others[host] += 1
                if not resident.placed or world.earlier(world.placed[pod.key].action, action):
                    settled[host] += 1
                    continue
                own = [c.max_skew for c in pod.spec.spread if (c.topology_key, c.selector) == (label, chosen)]
                if own:
                    skews.setdefault(_where(pod), {}).setdefault(host, []).append(min(own))
        return _Matched(others, settled, skews)


def _matches(namespace: str, chosen: LabelSelector | None, pod: Pod) -> bool:
    return pod.key.namespace == namespace and selects(chosen, pod.labels)


def _where(pod: Pod) -> Hashable:
    """What the pod's node selector and affinity ask for."""
    return pod.spec.node_selector, pod.spec.node_affinity


def _counts(world: PlannedCluster, pod: Pod, host: Node, constraint: SpreadConstraint) -> bool:
    """Whether a node, and what is there, counts for a constraint of the pod."""
    if any(c.topology_key not in host.labels for c in pod.spec.spread):
        return False
    if constraint.honors_affinity and selector.broken(world.snapshot, pod, host) is not None:
        return False
    if not constraint.honors_taints or not world.snapshot.policy.plugin("predicates"):
        return True
    keeping = (taint for taint in host.taints if taint.effect in ("NoSchedule", "NoExecute"))
    return all(any(_tolerates(one, taint) for one in pod.spec.tolerations) for taint in keeping)


def _tolerates(one: Toleration, taint: Taint) -> bool:
    """Whether key, effect and value match the taint; an empty key or effect matches all, ``Exists`` any
    value."""
    same = one.key in ("", taint.key) and one.effect in ("", taint.effect)
    return same and (one.operator == "Exists" or (one.operator in ("", "Equal") and one.value == taint.value))
