"""Inter-pod affinity and anti-affinity (7.1, InterPodAffinity), required and preferred.

Required terms are hard. An anti-affinity term keeps matching pods out of the topology domain of its holder,
and its holder out of theirs (symmetry). Affinity needs a pod that matches *all* required terms in the domain
of every term. If no pod of the cluster matches, a pod that matches its own terms may enter any domain as the
first. Nodes without the topology label have no domain: anti-affinity holds there, affinity cannot.

The plugin ``podaffinity`` (6) scores preferred terms: 1,000,000 times the sum of weights over the pods of the
node's domains, in both directions; required affinity of a standing pod attracts with the Kubernetes default
weight 1. Pods placed in the cycle count like standing ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from kai_cp_models.arrays import Floats, Ints, Mask
from kai_cp_models.pods import Pod, PodAffinityTerm, PodKey
from kai_cp_models.rules.stateful.protocol import Row, RuleState
from kai_cp_models.rules.stateful.tally import Effect, TalliedState
from kai_cp_models.rules.stateful.terms import Domains, matches, reaches_namespace
from kai_cp_models.selectors import Selecting
from kai_cp_models.settings import OptionalRules
from kai_cp_models.shown import plural
from kai_cp_models.snapshot import SetAside, Snapshot

NAME: Final = "affinity"
SCORE: Final = 1_000_000
"""Score of one weight unit (6)."""
HARD_WEIGHT: Final = 1
"""Weight with which the required affinity of a standing pod attracts matching pods."""

_MOST_STANDING: Final = 8
"""The most standing pods for which rows, one for each, make a class join them."""

AffinityTerms = tuple[PodAffinityTerm, ...]


@dataclass(frozen=True, slots=True)
class MatchCount:
    """Counts pods that match all ``terms``, by domain of ``topology_key``."""

    terms: AffinityTerms
    topology_key: str


@dataclass(frozen=True, slots=True)
class AntiAffinityCount:
    """Counts pods that have the required anti-affinity ``term``, by its domain."""

    term: PodAffinityTerm
    topology_key: str


@dataclass(frozen=True, slots=True)
class Wish:
    """Sums the weights with which pods prefer (or, negative, avoid) pods that match ``term``."""

    term: PodAffinityTerm
    topology_key: str


@dataclass(frozen=True, slots=True)
class Present:
    """Counts pods that match a preferred ``term``."""

    term: PodAffinityTerm
    topology_key: str


class Profile(NamedTuple):
    """What the rule knows of a pod: the keys that count it in its domain, and the keys that it reads."""

    effects: tuple[Effect, ...]
    affine: tuple[MatchCount, ...]
    """Required affinity: each must be present."""
    opens: bool
    """The pod matches its own required affinity, so it may be the first."""
    repelled: tuple[Hashable, ...]
    """Keys that must be absent from the domain."""
    wished: tuple[tuple[Hashable, int], ...]
    """Keys to be scored, with the weight of one count."""


def active(snapshot: Snapshot, options: OptionalRules) -> bool:
    """Whether any pod has an (anti-)affinity term."""
    return any(spec.pod_affinity or spec.pod_anti_affinity for spec in snapshot.specs)


def open(snapshot: Snapshot) -> RuleState:
    """Counts of the terms' holders and matching pods per domain."""
    return AffinityState(snapshot)


def set_aside(snapshot: Snapshot) -> Iterator[SetAside]:
    """Affinity has no objects of its own."""
    yield from ()


class AffinityState(TalliedState):
    """Counts per topology domain of term holders and of matching pods."""

    name = NAME
    family = "affinity"

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self.domains = Domains(snapshot)
        self._hard = snapshot.policy.plugin("predicates")
        self._soft = snapshot.policy.plugin("podaffinity")
        specs = snapshot.specs
        sets: dict[AffinityTerms, None] = {}
        anti: dict[PodAffinityTerm, None] = {}
        wishes: dict[PodAffinityTerm, None] = {}
        for spec in specs:
            sets |= {found: None for found in [_required(spec.pod_affinity)] if found and self._hard}
            anti |= {term: None for term in _required(spec.pod_anti_affinity) if self._hard}
            if self._soft:
                wishes |= {term: None for term, _ in _weights(spec.pod_affinity, spec.pod_anti_affinity)}
                wishes |= {term: None for term in _required(spec.pod_affinity)}
        terms = chain(chain.from_iterable(sets), anti, wishes)
        self._keys = {need.key for term in terms if term.selector for need in term.selector.requirements}
        """Labels that some term looks at."""
        self._anti = tuple(anti)
        self._sets = Selecting((terms[0].selector, terms) for terms in sets)
        self._repelling = Selecting((term.selector, term) for term in anti)
        self._wishes = Selecting((term.selector, term) for term in wishes)
        self._profiles: dict[tuple[object, ...], Profile] = {}
        self.opened: dict[PodKey, tuple[MatchCount, ...]] = {}
        """Pods that this cycle places as the first of their kind, with the terms that no pod matched then."""
        self.resting: dict[PodKey, tuple[Pod, int]] = {}
        """Other pods that this cycle nominates beside the partners of their affinity, with their nodes."""
        self.come: dict[tuple[Hashable, int], int] = {}
        """Numbers of pods that this cycle places, by key and domain."""
        self._load()

    def profile(self, pod: Pod) -> Profile:
        """The pod's profile; pods of equal spec and namespace whose labels no term distinguishes share it."""
        told = tuple(sorted(item for item in pod.labels.items() if item[0] in self._keys))
        identity = (pod.spec, pod.key.namespace, told)
        if identity not in self._profiles:
            self._profiles[identity] = self._profile(pod)
        return self._profiles[identity]

    def _profile(self, pod: Pod) -> Profile:
        effects: list[Effect] = []
        repelled: list[Hashable] = []
        wished: list[tuple[Hashable, int]] = []
        for terms in self._sets.of(pod.labels):
            if all(matches(term, pod) for term in terms):
                effects += [(MatchCount(terms, key), 1) for key in _keys(terms)]
        for term in self._repelling.of(pod.labels):
            if reaches_namespace(term, pod):
                effects.append((MatchCount((term,), term.topology_key), 1))
                repelled.append(AntiAffinityCount(term, term.topology_key))
        own = _required(pod.spec.pod_affinity)
        avoided = _required(pod.spec.pod_anti_affinity)
        if self._hard:
            effects += [(AntiAffinityCount(term, term.topology_key), 1) for term in avoided]
            repelled += [MatchCount((term,), term.topology_key) for term in avoided]
        if self._soft:
            preferred = _weights(pod.spec.pod_affinity, pod.spec.pod_anti_affinity)
            wished += [(_present(term), weight) for term, weight in preferred]
            effects += [(Wish(term, term.topology_key), weight) for term, weight in preferred]
            effects += [(Wish(term, term.topology_key), HARD_WEIGHT) for term in own]
            for term in self._wishes.of(pod.labels):
                if reaches_namespace(term, pod):
                    effects.append((_present(term), 1))
                    wished.append((Wish(term, term.topology_key), 1))
        return Profile(
            effects=_summed(effects),
            affine=tuple(MatchCount(own, key) for key in _keys(own)) if self._hard else (),
            opens=all(matches(term, pod) for term in own),
            repelled=tuple(dict.fromkeys(repelled)),
            wished=tuple(wished),
        )

    def _size(self, key: Hashable) -> int:
        return self.domains.count(_topology_key(key))

    def _where(self, key: Hashable, node: int) -> int:
        return int(self.domains.of(_topology_key(key))[node])

    def _effects(self, pod: Pod) -> Iterable[Effect]:
        return self.profile(pod).effects

    def identity(self, pod: Pod) -> Hashable:
        return self.profile(pod)

    def concerns(self, pod: Pod) -> bool:
        found = self.profile(pod)
        return bool(found.effects or found.affine or found.repelled or found.wished)

    def opened_by(self, pod: Pod, other: Pod | None = None) -> bool:
        wanted = self.profile(pod).affine
        return bool(wanted) and (other is None or any(_has(self.profile(other), key) for key in wanted))

    def mask(self, pod: Pod, *, now: bool) -> Mask | None:
        found = self.profile(pod)
        mask = self._attracted(found, now=now)
        for key in found.repelled:
            held = self.tally.counts(key, now=now)
            if held is not None and held.any():
                clear = self._at_nodes(key, held) <= 0
                mask = clear if mask is None else mask & clear
        if pod.key in self.left and pod.node is not None and (mask is not None or self.opened):
            # A pod that returns to its node has never left. Its affinity is not tested again, nor are the
            # terms of pods that were there before. But a pod that was placed meanwhile as the first of its
            # kind was then not the first.
            home = self.snapshot.node_index[pod.node]
            mask = np.ones(len(self.snapshot.nodes), dtype=np.bool_) if mask is None else mask
            met = any(self.come.get((key, self._where(key, home))) for key in found.repelled)
            mask[home] = not met and not self._was_missed(found)
        return mask

    def _was_missed(self, found: Profile) -> bool:
        """Whether a pod would have matched the affinity of one that was placed as the first of its kind."""
        return any(_has(found, key) for keys in self.opened.values() for key in keys)

    def detach(self) -> None:
        super().detach()
        self.opened, self.resting, self.come = dict(self.opened), dict(self.resting), dict(self.come)

    def place(self, pod: Pod, node: int, *, pipelined: bool) -> None:
        found = self.profile(pod)
        if found.affine and self._comes_first(found, now=False):
            self.opened[pod.key] = found.affine
        elif found.affine and pipelined:
            self.resting[pod.key] = pod, node
        self._come(pod, node, 1)
        super().place(pod, node, pipelined=pipelined)

    def remove(self, pod: Pod, node: int) -> None:
        self.opened.pop(pod.key, None)
        self.resting.pop(pod.key, None)
        self._come(pod, node, -1)
        super().remove(pod, node)

    def _come(self, pod: Pod, node: int, sign: int) -> None:
        for key, _ in self._effects(pod):
            place = key, self._where(key, node)
            self.come[place] = self.come.get(place, 0) + sign

    def evictable(self, pod: Pod) -> bool:
        wanted = (key for other, _ in self.resting.values() for key in self.profile(other).affine)
        if (
            not self.resting
            or pod.key in self.left
            or not any(_has(self.profile(pod), key) for key in wanted)
        ):
            return True
        self._leave(pod, 1)
        upheld = self.upheld()
        self._leave(pod, -1)
        return upheld

    def upheld(self) -> bool:
        """A bound pod has already started beside its partners; a nominated pod needs them until it starts."""
        left, tally = dict(self.resting), self.tally
        if left:
            self.tally = tally.copy()
            for pod, node in left.values():
                self._count(pod, node, -1, leaving=False)
            while settled := [key for key, (pod, node) in left.items() if self._beside(pod, node)]:
                for key in settled:
                    self._count(*left.pop(key), 1, leaving=False)
            self.tally = tally
        return not left

    def _beside(self, pod: Pod, node: int) -> bool:
        """Whether what the pod's affinity needs stays around its node."""
        attracted = self._attracted(self.profile(pod), now=False)
        return attracted is None or bool(attracted[node])

    def _comes_first(self, found: Profile, *, now: bool) -> bool:
        """Whether the pod matches its own affinity and no other pod does."""
        counts = (self.tally.counts(key, now=now) for key in found.affine)
        return found.opens and not any(held is not None and (held > 0).any() for held in counts)

    def _attracted(self, found: Profile, *, now: bool) -> Mask | None:
        """Nodes whose domains have what the pod's required affinity needs."""
        if not found.affine:
            return None
        first = self._comes_first(found, now=now)
        mask = np.ones(len(self.snapshot.nodes), dtype=np.bool_)
        for key in found.affine:
            held = self.tally.counts(key, now=now)
            if first:
                mask &= self.domains.of(key.topology_key) >= 0
            elif held is None:
                mask[:] = False
            else:
                mask &= self._at_nodes(key, held) > 0
        return mask

    def _at_nodes(self, key: Hashable, held: Ints) -> Ints:
        """A key's count at every node; 0 where the node has no domain."""
        domains = self.domains.of(_topology_key(key))
        counts: Ints = np.where(domains >= 0, held[domains], 0) if held.size else np.zeros_like(domains)
        return counts

    def score(self, pod: Pod) -> Floats | None:
        total: Floats | None = None
        for key, weight in self.profile(pod).wished:
            held = self.tally.counts(key, now=False)
            if held is not None and held.any():
                part = self._at_nodes(key, held).astype(np.float64)
                part *= weight * SCORE
                total = part if total is None else np.add(total, part)
        return total

    def refusals(self, pod: Pod) -> str:
        found = self.profile(pod)
        reasons = []
        near = self._attracted(found, now=True)
        if near is not None and not near.all():
            reasons.append(f"pod affinity rules refuse {plural(int(np.count_nonzero(~near)), 'node')}")
        mask = self.mask(pod, now=True)
        apart = 0 if mask is None else np.count_nonzero(~mask & (True if near is None else near))
        if apart:
            reasons.append(f"pod anti-affinity rules refuse {plural(int(apart), 'node')}")
        return "; ".join(reasons)

    def rows(self, classes: Sequence[Pod], sizes: Sequence[int], nodes: Sequence[int]) -> Iterable[Row]:
        """The rows are exact between standing and new pods, and for a class that repels itself.

        They are relaxed for two different classes that repel each other and may both have several pods in a
        domain (a sum instead of a choice). They are also relaxed for the domain that a class enters as the
        first, where no standing pod has to be joined.
        """
        profiles = [self.profile(pod) for pod in classes]
        standing = [(pod.key, node, self.profile(pod)) for pod, node in self._staying()]
        for term in self._anti:
            key = term.topology_key
            matching, holding = MatchCount((term,), key), AntiAffinityCount(term, key)
            sides = [(holding, matching), (matching, holding)]
            members = [[c for c, p in enumerate(profiles) if _has(p, side)] for side, _ in sides]
            for domain, inside in self._inside(key, nodes):
                for (_, other), entering in zip(sides, members, strict=True):
                    yield from self._against_standing(
                        other, domain, inside, entering, sizes, standing=standing
                    )
                yield from self._among_new(inside, members[0], members[1], sizes)
        alike: dict[tuple[MatchCount, bool], list[int]] = {}
        for c, profile in enumerate(profiles):
            for wanted in profile.affine:
                alike.setdefault((wanted, profile.opens), []).append(c)
        for (wanted, opens), entering in alike.items():
            # Classes that may enter under one condition share its row: all of them may, or none.
            rows, most = self._first if opens else self._together, sum(sizes[c] for c in entering)
            yield from rows(wanted, entering, profiles, most, nodes, standing=standing)
        for pod, node in self.resting.values():
            yield from self._stays_beside(pod, node, profiles, nodes, standing=standing)

    def _inside(self, key: str, nodes: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """The domains of a topology key that hold some of ``nodes``, with those nodes."""
        domains = self.domains.of(key)
        grouped: defaultdict[int, list[int]] = defaultdict(list)
        for node in nodes:
            if domains[node] >= 0:
                grouped[int(domains[node])].append(node)
        yield from sorted(grouped.items())

    def _against_standing(
        self,
        other: Hashable,
        domain: int,
        inside: Sequence[int],
        entering: Sequence[int],
        sizes: Sequence[int],
        *,
        standing: Sequence[tuple[PodKey, int, Profile]],
    ) -> Iterator[Row]:
        """No pod enters the domain while a standing pod of the other side is there."""
        held = self.tally.counts(other, now=False)
        if not entering or held is None or held[domain] <= 0:
            return
        cells = {(c, node): 1 for c in entering for node in inside}
        most = sum(sizes[c] for c in entering)
        leavers = [
            pod
            for pod, node, profile in standing
            if _has(profile, other) and self._where(other, node) == domain
        ]
        if len(leavers) < held[domain]:
            yield Row(cells, 0, {}, NAME)
        for pod in leavers:
            yield Row(cells, 0, {pod: most}, NAME)

    def _among_new(
        self, inside: Sequence[int], holders: Sequence[int], matching: Sequence[int], sizes: Sequence[int]
    ) -> Iterator[Row]:
        """New pods of one domain that repel each other."""
        both = [c for c in holders if c in matching]
        if both:
            yield Row({(c, node): 1 for c in both for node in inside}, 1, {}, NAME)
        for c in holders:
            for d in matching:
                if c != d and not (c in both and d in both):
                    most_c, most_d = (1 if e in both else sizes[e] for e in (c, d))
                    cells = {(c, node): most_d for node in inside} | {(d, node): most_c for node in inside}
                    yield Row(cells, most_c * most_d, {}, NAME)

    def _together(
        self,
        wanted: MatchCount,
        entering: Sequence[int],
        profiles: Sequence[Profile],
        most: int,
        nodes: Sequence[int],
        *,
        standing: Sequence[tuple[PodKey, int, Profile]],
    ) -> Iterator[Row]:
        """Classes enter a domain only with, or beside, a pod that matches their affinity."""
        held = self.tally.counts(wanted, now=False)
        friends = [c for c, profile in enumerate(profiles) if _has(profile, wanted)]
        for domain, inside in self._inside(wanted.topology_key, nodes):
            cells = {(c, node): -most for c in friends for node in inside}
            cells |= {(c, node): 1 for c in entering for node in inside}
            leaving = {
                pod: -most
                for pod, node, profile in standing
                if _has(profile, wanted) and self._where(wanted, node) == domain
            }
            yield Row(cells, most * (0 if held is None else int(held[domain])), leaving, NAME)
        homeless = [node for node in nodes if self.domains.of(wanted.topology_key)[node] < 0]
        if homeless:
            yield Row({(c, node): 1 for c in entering for node in homeless}, 0, {}, NAME)

    def _stays_beside(
        self,
        pod: Pod,
        at: int,
        profiles: Sequence[Profile],
        nodes: Sequence[int],
        *,
        standing: Sequence[tuple[PodKey, int, Profile]],
    ) -> Iterator[Row]:
        """While a nominated pod keeps its place, at least one partner of its affinity stays. Relaxed where
        the pod matches its own affinity."""
        for wanted in self.profile(pod).affine:
            domain, held = self._where(wanted, at), self.tally.counts(wanted, now=False)
            leaving = [
                key for key, node, p in standing if _has(p, wanted) and self._where(wanted, node) == domain
            ]
            if leaving and held is not None and len(leaving) == held[domain]:
                inside = [node for node in nodes if self._where(wanted, node) == domain]
                cells = {(c, n): -1 for c, p in enumerate(profiles) if _has(p, wanted) for n in inside}
                most = len(leaving)
                yield Row(cells, most - 1, dict.fromkeys(leaving, -1) | {pod.key: most}, NAME)

    def _first(
        self,
        wanted: MatchCount,
        entering: Sequence[int],
        profiles: Sequence[Profile],
        most: int,
        nodes: Sequence[int],
        *,
        standing: Sequence[tuple[PodKey, int, Profile]],
    ) -> Iterator[Row]:
        """While a pod that matches the classes' affinity stays elsewhere, they cannot be the first in a
        domain.
        """
        held = self.tally.counts(wanted, now=False)
        if held is None:
            return
        present = [(pod, self._where(wanted, node)) for pod, node, p in standing if _has(p, wanted)]
        # A pod that needs the same partner cannot be that partner itself.
        friends = [c for c, p in enumerate(profiles) if _has(p, wanted) and wanted not in p.affine]
        for domain, inside in self._inside(wanted.topology_key, nodes):
            cells = {(c, node): -most for c in friends for node in inside}
            cells |= {(c, node): 1 for c in entering for node in inside}
            here = {pod: -most for pod, where in present if where == domain}
            elsewhere = [pod for pod, where in present if where not in (domain, -1)]
            lasting = int(held.sum() - held[domain]) > len(elsewhere)
            for other in [None] if lasting else elsewhere[:_MOST_STANDING]:
                leaving = here if other is None else {**here, other: most}
                yield Row(cells, most * int(held[domain]), leaving, NAME)


def _required(terms: AffinityTerms) -> AffinityTerms:
    return tuple(term for term in terms if term.weight == 0)


def _weights(affinity: AffinityTerms, anti: AffinityTerms) -> list[tuple[PodAffinityTerm, int]]:
    """Preferred terms without their weight, and the weight with its sign."""
    signed = [(term, term.weight) for term in affinity] + [(term, -term.weight) for term in anti]
    return [(replace(term, weight=0), weight) for term, weight in signed if weight]


def _present(term: PodAffinityTerm) -> Hashable:
    return Present(term, term.topology_key)


def _keys(terms: AffinityTerms) -> list[str]:
    return list(dict.fromkeys(term.topology_key for term in terms))


def _topology_key(key: Hashable) -> str:
    assert isinstance(key, MatchCount | AntiAffinityCount | Wish | Present)
    return key.topology_key


def _has(profile: Profile, key: Hashable) -> bool:
    return any(found == key for found, _ in profile.effects)


def _summed(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    total: dict[Hashable, int] = {}
    for key, amount in effects:
        # Present and matching keys are facts, wishes are sums: only these may meet twice.
        total[key] = total.get(key, 0) + amount if isinstance(key, Wish) else amount
    return tuple(total.items())
