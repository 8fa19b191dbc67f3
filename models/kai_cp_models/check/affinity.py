"""Required affinity and anti-affinity between pods (7.1, InterPodAffinity).

Anti-affinity is symmetric: the new pod's terms apply to the pods that are there, and their terms to the new
pod. Both hold in the end, and for binds also beside the pods that are still there now. A pod with affinity
needs a partner in the end, and one that is bound may have one among the pods that have not left yet. A pod
that matches its own terms may be the first of its kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Generic

from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.check.selectors import ByLabel, Thing, had, needed, selects
from kai_cp_models.pods import Pod, PodAffinityTerm, PodKey

Terms = tuple[PodAffinityTerm, ...]
PodPlace = tuple[Pod, str]
"""A pod and its node."""


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Placed pods whose required terms, or those of their neighbours, do not hold."""
    if not world.snapshot.policy.plugin("predicates") or not _anything(world):
        return
    names = [node.name for node in world.snapshot.nodes]
    now = [(r.pod, name) for name, r in world.occupants(names, now=True)]
    end = [(r.pod, name) for name, r in world.occupants(names, now=False)]
    all_terms, own = _apart_from(pod for pod, _ in now + end), _apart_from(map(world.pod, world.placed))
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


def _required(terms: Terms) -> Terms:
    return tuple(term for term in terms if term.weight == 0)


def _domain(world: PlannedCluster, node: str, key: str) -> str | None:
    return world.node(node).labels.get(key)


@dataclass
class _Neighbours:
    """Pods by anti-affinity term and domain: those that have the term; and those that it matches, for terms
    of pods that the plan places."""

    holders: dict[tuple[PodAffinityTerm, str], list[PodPlace]] = field(default_factory=dict)
    matching: dict[tuple[PodAffinityTerm, str], list[PodPlace]] = field(default_factory=dict)


class _Selecting(Generic[Thing]):
    """Things by their required terms; a thing concerns a pod if all its terms select the pod."""

    def __init__(self, things: Iterable[tuple[Terms, Thing]]) -> None:
        self._by_label = ByLabel((needed(terms[0].selector), (terms, thing)) for terms, thing in things)
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[Thing, ...]] = {}

    def selecting(self, pod: Pod) -> tuple[Thing, ...]:
        """The things that concern the pod; equal pods are computed once."""
        identity = (pod.key.namespace, tuple(sorted(pod.labels.items())))
        if identity not in self._known:
            asked = self._by_label.asked(had(pod.labels))
            self._known[identity] = tuple(thing for terms, thing in asked if _select(terms, pod))
        return self._known[identity]


def _apart_from(pods: Iterable[Pod]) -> _Selecting[PodAffinityTerm]:
    """The required anti-affinity terms of some pods."""
    terms = {term: None for pod in pods for term in _required(pod.spec.pod_anti_affinity)}
    return _Selecting(((term,), term) for term in terms)


def _neighbours(
    world: PlannedCluster, places: list[PodPlace], own: _Selecting[PodAffinityTerm]
) -> _Neighbours:
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
    spoken_of: Terms,
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
    kinds: dict[Terms, _Kind] = {}
    seekers: dict[PodKey, _Seeker] = {}
    for key, decision in sorted(world.placed.items()):
        pod, terms = world.pod(key), _required(world.pod(key).spec.pod_affinity)
        domains = {t.topology_key: _domain(world, decision.node, t.topology_key) for t in terms}
        missing = [label for label, domain in domains.items() if domain is None]
        if missing:
            yield Violation(
                "affinity", f"pod {key} needs a {missing[0]}, node {decision.node} has none", pods=(key,)
            )
        elif terms:
            kind = kinds.setdefault(terms, _Kind(terms))
            places = [(key in world.nominations, label, domain or "") for label, domain in domains.items()]
            seekers[key] = _Seeker(pod, decision.node, kind, places)
    company = _Company(world, seekers, now, end) if seekers else None
    for key in company.alone() if company else ():
        seeker = seekers[key]
        wanted = ", ".join(
            f"{t.topology_key}={_domain(world, seeker.node, t.topology_key)}" for t in seeker.kind.terms
        )
        yield Violation(
            "affinity",
            f"pod {key} on node {seeker.node} finds no pod that its affinity wants in {wanted}",
            pods=(key,),
        )


_Domain = tuple[bool, str, str]
"""Whether only those count that are there in the end, a topology key, and its value."""


@dataclass(eq=False)
class _Kind:
    """Required affinity terms of pods that the plan places, and the pods that all of them select."""

    terms: Terms
    present: dict[_Domain, set[PodKey]] = field(default_factory=dict)
    """Pods in a domain that do not wait for partners themselves."""
    older: tuple[set[PodKey], set[PodKey]] = field(default_factory=lambda: (set(), set()))
    """Pods in any domain that were there before the plan, or are first of their kind: in all; in the end."""
    seekers: dict[_Domain, list[PodKey]] = field(default_factory=dict)
    """Pods of this kind, by each domain in which they want a partner."""


@dataclass
class _Seeker:
    """A pod that the plan places, on a node that is in a domain of each of its terms."""

    pod: Pod
    node: str
    kind: _Kind
    domains: Sequence[_Domain]


class _Company:
    """Pods with affinity, accepted one after the other; a pod that waits is not a partner at its new place.

    A pod outside every domain is not a partner. A pod that this plan places may come later, unless it is the
    first of its kind.
    """

    def __init__(
        self,
        world: PlannedCluster,
        seekers: dict[PodKey, _Seeker],
        now: list[PodPlace],
        end: list[PodPlace],
    ) -> None:
        self._world, self._waiting = world, dict(seekers)
        self._kinds = _Selecting({each.kind.terms: each.kind for each in seekers.values()}.items())
        for key, seeker in seekers.items():
            for domain in seeker.domains:
                seeker.kind.seekers.setdefault(domain, []).append(key)
        for places, final in ((now, False), (end, True)):
            for pod, node in places:
                decision = world.placed.get(pod.key)
                stood = decision is None or decision.node != node
                if stood:
                    self._stands(pod, node, (final,))
                if stood or pod.key not in seekers:
                    self._arrives(pod, node, (False, True) if final else (False,))

    def alone(self) -> Iterator[PodKey]:
        """Those that find no partner and are not the first of their kind, by key."""
        self._settle(list(self._waiting))
        for key in self._in_turn():
            if key in self._waiting and self._may_be_first(key):
                self._stands(self._waiting[key].pod, self._waiting[key].node, (False, True))
                self._settle(self._accept(key))
        yield from sorted(self._waiting)

    def _may_be_first(self, key: PodKey) -> bool:
        seeker = self._waiting[key]
        older = seeker.kind.older[key in self._world.nominations]
        return _select(seeker.kind.terms, seeker.pod) and not _others(older, key)

    def _in_turn(self) -> list[PodKey]:
        """Pods that may be the first of their kind, in an order: a pod follows those that could not be the
        first once it is there, except where it also has to come before them."""
        members: dict[_Kind, list[PodKey]] = {}
        for key in filter(self._may_be_first, sorted(self._waiting)):
            members.setdefault(self._waiting[key].kind, []).append(key)

        def further(kinds: Iterable[_Kind]) -> Iterator[PodKey]:
            for kind in kinds:
                while members.get(kind):
                    yield members[kind].pop()

        found: list[PodKey] = []
        for start in further(list(members)):
            path = [(start, further(self._kinds.selecting(self._waiting[start].pod)))]
            while path:
                key, earlier = path[-1]
                other = next(earlier, None)
                if other is None:
                    found.append(path.pop()[0])
                else:
                    path.append((other, further(self._kinds.selecting(self._waiting[other].pod))))
        return found

    def _settle(self, asked: list[PodKey]) -> None:
        """Accept the pods with a partner in every domain, until no further pod has one."""
        while asked:
            key = asked.pop()
            seeker = self._waiting.get(key)
            if seeker and all(_others(seeker.kind.present.get(d, set()), key) for d in seeker.domains):
                asked += self._accept(key)

    def _accept(self, key: PodKey) -> list[PodKey]:
        seeker = self._waiting.pop(key)
        return self._arrives(seeker.pod, seeker.node, (False, True))

    def _arrives(self, pod: Pod, node: str, pictures: tuple[bool, ...]) -> list[PodKey]:
        """Note a partner; those that have one more domain with a partner."""
        helped: list[PodKey] = []
        for kind, label, value in self._met(pod, node):
            for final in pictures:
                there = kind.present.setdefault((final, label, value), set())
                # The second one is a partner of the first one.
                if pod.key not in there and len(there) < 2:
                    helped += kind.seekers.get((final, label, value), ())
                there.add(pod.key)
        return helped

    def _stands(self, pod: Pod, node: str, pictures: tuple[bool, ...]) -> None:
        for kind, _, _ in self._met(pod, node):
            for final in pictures:
                kind.older[final].add(pod.key)

    def _met(self, pod: Pod, node: str) -> Iterator[tuple[_Kind, str, str]]:
        """Kinds whose terms a pod meets on a node, with each domain there."""
        for kind in self._kinds.selecting(pod):
            for label in dict.fromkeys(term.topology_key for term in kind.terms):
                value = _domain(self._world, node, label)
                if value is not None:
                    yield kind, label, value


def _others(pods: Set[PodKey], key: PodKey) -> bool:
    """Whether there are others than one pod."""
    return len(pods) > (key in pods)


def _select(terms: Terms, pod: Pod) -> bool:
    return all(
        (term.namespaces is None or pod.key.namespace in term.namespaces)
        and selects(term.selector, pod.labels)
        for term in terms
    )
