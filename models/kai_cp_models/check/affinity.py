"""Required affinity and anti-affinity between pods (7.1, InterPodAffinity).

Anti-affinity is symmetric: the new pod's terms apply to the pods that are there, and their terms to the new
pod. Both hold in the end, and for binds also beside the pods that are still there now. A pod with affinity
needs a partner in the end, and one that is bound may have one among the pods that have not left yet. A pod
that matches its own terms may be the first of its kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.check.selectors import ByLabel, selects
from kai_cp_models.pods import Pod, PodAffinityTerm, PodKey

PodPlace = tuple[Pod, str]
"""A pod and its node."""


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Placed pods whose required terms, or those of their neighbours, do not hold."""
    if not world.snapshot.policy.plugin("predicates") or not _anything(world):
        return
    names = [node.name for node in world.snapshot.nodes]
    now = [(r.pod, name) for name, r in world.occupants(names, now=True)]
    end = [(r.pod, name) for name, r in world.occupants(names, now=False)]
    all_terms, own = _Terms(pod for pod, _ in now + end), _Terms(map(world.pod, world.placed))
    neighbours_now, neighbours_end = _neighbours(world, now, own), _neighbours(world, end, own)
    for key, decision in sorted(world.placed.items()):
        pod, node = world.pod(key), decision.node
        spoken_of = all_terms.selecting(pod)
        yield from _apart(world, pod, node, neighbours_end, spoken_of, when="in the end")
        if key in world.binds:
            yield from _apart(world, pod, node, neighbours_now, spoken_of, when="now")
    yield from _together(world, now, end)


def _anything(world: PlannedCluster) -> bool:
    """Whether any pod with a place has anti-affinity, or any pod that the plan places has affinity."""
    if not any(spec.pod_anti_affinity or spec.pod_affinity for spec in world.snapshot.specs):
        return False
    return any(
        pod.spec.pod_anti_affinity or (pod.key in world.placed and pod.spec.pod_affinity)
        for pod in world.snapshot.pods
        if pod.node is not None or pod.key in world.placed
    )


def _required(terms: tuple[PodAffinityTerm, ...]) -> list[PodAffinityTerm]:
    return [term for term in terms if term.weight == 0]


def _domain(world: PlannedCluster, node: str, key: str) -> str | None:
    return world.node(node).labels.get(key)


@dataclass
class _Neighbours:
    """Pods by anti-affinity term and domain: those that have the term; and those that it matches, for terms
    of pods that the plan places."""

    holders: dict[tuple[PodAffinityTerm, str], list[PodPlace]] = field(default_factory=dict)
    matching: dict[tuple[PodAffinityTerm, str], list[PodPlace]] = field(default_factory=dict)


class _Terms:
    """The required anti-affinity terms of some pods, and which of them select a pod."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        terms = {term: None for pod in pods for term in _required(pod.spec.pod_anti_affinity)}
        self._by_label = ByLabel((term.selector, term) for term in terms)
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[PodAffinityTerm, ...]] = {}

    def selecting(self, pod: Pod) -> tuple[PodAffinityTerm, ...]:
        """Those that select the pod; equal pods are computed once."""
        identity = (pod.key.namespace, tuple(sorted(pod.labels.items())))
        if identity not in self._known:
            asked = self._by_label.asked(pod.labels)
            self._known[identity] = tuple(term for term in asked if _selects(term, pod))
        return self._known[identity]


def _neighbours(world: PlannedCluster, places: list[PodPlace], own: _Terms) -> _Neighbours:
    found = _Neighbours()
    for pod, node in places:
        for kind, terms in (
            (found.holders, _required(pod.spec.pod_anti_affinity)),
            (found.matching, own.selecting(pod)),
        ):
            for term in terms:
                domain = _domain(world, node, term.topology_key)
                if domain is not None:
                    kind.setdefault((term, domain), []).append((pod, node))
    return found


def _apart(
    world: PlannedCluster,
    pod: Pod,
    node: str,
    neighbours: _Neighbours,
    spoken_of: tuple[PodAffinityTerm, ...],
    *,
    when: str,
) -> Iterator[Violation]:
    met: list[tuple[Pod, PodAffinityTerm, PodPlace]] = []
    for term in _required(pod.spec.pod_anti_affinity):
        domain = _domain(world, node, term.topology_key)
        met += [(pod, term, place) for place in neighbours.matching.get((term, domain or ""), ())]
    for term in spoken_of:
        domain = _domain(world, node, term.topology_key)
        met += [(place[0], term, place) for place in neighbours.holders.get((term, domain or ""), ())]
    for holder, term, (other, where) in met:
        if other.key != pod.key and _domain(world, node, term.topology_key) is not None:
            yield Violation(
                "affinity",
                f"pod {pod.key} on node {node} meets pod {other.key} on node {where} {when}:"
                f" anti-affinity of {holder.key} in one {term.topology_key}",
                pods=(pod.key, other.key),
            )


def _together(world: PlannedCluster, now: list[PodPlace], end: list[PodPlace]) -> Iterator[Violation]:
    """Affinity, pod after pod: each finds a partner placed before it, or is the first of its kind."""
    pending: list[tuple[Pod, str, list[PodAffinityTerm], list[PodPlace]]] = []
    for key, decision in sorted(world.placed.items()):
        pod, terms = world.pod(key), _required(world.pod(key).spec.pod_affinity)
        missing = [t.topology_key for t in terms if _domain(world, decision.node, t.topology_key) is None]
        if missing:
            yield Violation(
                "affinity", f"pod {key} needs a {missing[0]}, node {decision.node} has none", pods=(key,)
            )
        elif terms:
            partners = [
                (other, node)
                for other, node in (end if key in world.nominations else now + end)
                if other.key != key and all(_selects(term, other) for term in terms)
            ]
            pending.append((pod, decision.node, terms, partners))
    before, staying = (
        {(p.key, at) for p, at in places if p.key not in world.placed or world.placed[p.key].node != at}
        for places in (now, end)
    )
    waiting = {(pod.key, node) for pod, node, _, _ in pending}
    opened: set[tuple[PodKey, str]] = set()

    def settle() -> None:
        """Accept the pods with a partner in every domain, until no further pod has one."""
        before = -1
        while before != len(waiting):
            before = len(waiting)
            for pod, node, terms, partners in pending:
                present = [at for p, at in partners if (p.key, at) not in waiting]
                keys = [term.topology_key for term in terms]
                if all(_domain(world, node, k) in {_domain(world, at, k) for at in present} for k in keys):
                    waiting.discard((pod.key, node))

    settle()
    for pod, node, terms, partners in pending:
        # A pod outside every domain is no partner. A pod that this plan places may come later, unless it is
        # the first of its kind.
        standing = staying if pod.key in world.nominations else before
        first = all(_selects(term, pod) for term in terms) and not any(
            any(_domain(world, at, term.topology_key) is not None for term in terms)
            and ((p.key, at) in opened or (p.key, at) in standing)
            for p, at in partners
        )
        if (pod.key, node) in waiting and first:
            opened.add((pod.key, node))
            waiting.discard((pod.key, node))
            settle()
    for pod, node, terms, _ in pending:
        if (pod.key, node) in waiting:
            wanted = ", ".join(f"{t.topology_key}={_domain(world, node, t.topology_key)}" for t in terms)
            yield Violation(
                "affinity",
                f"pod {pod.key} on node {node} finds no pod that its affinity wants in {wanted}",
                pods=(pod.key,),
            )


def _selects(term: PodAffinityTerm, pod: Pod) -> bool:
    inside = term.namespaces is None or pod.key.namespace in term.namespaces
    return inside and selects(term.selector, pod.labels)
