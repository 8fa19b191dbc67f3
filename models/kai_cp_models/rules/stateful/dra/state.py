"""The DRA rule's state: which nodes can serve a pod's claims, and with which devices."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Mask
from kai_cp_models.pods import EXTENDED_RESOURCES, Pod, PodKey, PodStatus
from kai_cp_models.records.devices import ALL, Claim, ClaimAllocation, Wanted
from kai_cp_models.rules.stateful.dra.amounts import gpus_of
from kai_cp_models.rules.stateful.dra.catalog import Catalog, catalog_of
from kai_cp_models.rules.stateful.dra.extended import Extended
from kai_cp_models.rules.stateful.dra.holdings import ClaimKey, ClaimUse, Holdings
from kai_cp_models.rules.stateful.dra.near import Gpus, gpus_of_node, nearest_first
from kai_cp_models.rules.stateful.dra.refs import refs_of
from kai_cp_models.rules.stateful.dra.results import Allocation, found_in, write
from kai_cp_models.rules.stateful.dra.rows import SharedClaim, Site, rows, sites
from kai_cp_models.rules.stateful.dra.search import (
    MAX_DEVICES,
    PICKS,
    DeviceProblem,
    DeviceSearch,
    Open,
    Pick,
)
from kai_cp_models.rules.stateful.protocol import LeavingState, Row
from kai_cp_models.rules.stateful.purse import Purse
from kai_cp_models.rules.stateful.tally import holding
from kai_cp_models.shown import plural
from kai_cp_models.snapshot import Snapshot

NAME: Final = "dra"
SPENT: Final = "the search for devices has used up what its namespace may take in a cycle"
MAX_USERS: Final = 256
"""The most pods that one claim can be reserved for (ResourceClaimReservedForMaxSize)."""


class Joined(NamedTuple):
    """A claim that a placement of this cycle uses; ``added``: the pod was not reserved before."""

    claim: ClaimKey
    added: bool


class Given(NamedTuple):
    """A claim that this cycle allocates on a node; its devices may still be changed for others."""

    claim: Claim
    now: bool


class DraState(LeavingState):
    """Claims in use, devices in use, and the searches over them.

    Devices that this cycle gives may still change: where a further pod fits on a node only if earlier pods
    take other devices, they get other devices (``details`` has the final ones).
    """

    name = NAME
    family = "dra"

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot
        self.catalog = catalog_of(snapshot)
        self.extended = Extended(self.catalog)
        self._holdings = Holdings(self.catalog)
        self._placed: dict[PodKey, tuple[Joined, ...]] = {}
        self._given: dict[int, tuple[Given, ...]] = {}
        self._gpus: dict[int, Gpus] = {}
        self._problems: dict[Hashable, DeviceProblem] = {}
        self._purses: dict[str, Purse] = {}
        self._dead_ends: dict[PodKey, str] = {}
        self._known: dict[Hashable, tuple[object, bool]] = {}
        self._used_by: dict[str, list[ClaimKey]] = {}
        self._queues = {group.key: group.queue for group in snapshot.groups}
        self._sharers: dict[ClaimKey, int] = {}
        for pod in snapshot.pods:
            for key in self._keys(pod):
                self._sharers[key] = self._sharers.get(key, 0) + 1
        self._load()

    def _load(self) -> None:
        """Account the allocations of claims and BindRequests."""
        statuses = {pod.uid: pod.status for pod in self.snapshot.pods}
        ended = (PodStatus.SUCCEEDED, PodStatus.FAILED, PodStatus.RELEASING)
        promised: dict[ClaimKey, ClaimAllocation] = {}
        users: dict[ClaimKey, set[str]] = {}
        for pod, _, _ in holding(self.snapshot):
            for ref in refs_of(self.snapshot, pod):
                key = (pod.key.namespace, ref.claim)
                if key in self.catalog.claims:
                    users.setdefault(key, set()).add(pod.uid)
                    if ref.name in pod.claim_allocations:
                        promised[key] = pod.claim_allocations[ref.name]
        for key, claim in self.catalog.claims.items():
            given = claim.allocation or promised.get(key)
            uids = claim.reserved | claim.gone | users.get(key, set())
            leave = frozenset(uid for uid in uids if statuses.get(uid) in ended)
            for uid in uids:
                self._used_by.setdefault(uid, []).append(key)
            if given or uids:
                before = found_in(self.catalog, given) if given else None
                stay, gone = uids - leave - claim.gone, claim.gone - leave
                self._holdings.set(key, ClaimUse(before, stay, leave, gone))
        for pod, node, leaving in holding(self.snapshot):
            self.extended.count_plugin(pod, node, 1, leaving=leaving)
            known = set(self._used_by.get(pod.uid, ())) - set(self._keys(pod))
            if EXTENDED_RESOURCES in pod.claim_allocations and not known:
                # The claim of this promise does not exist yet.
                before = found_in(self.catalog, pod.claim_allocations[EXTENDED_RESOURCES])
                key = (pod.key.namespace, f"{pod.key.name}-extended-resources")
                user = frozenset({pod.uid})
                none: frozenset[str] = frozenset()
                self._holdings.set(
                    key, ClaimUse(before, none if leaving else user, user if leaving else none)
                )
                self._used_by.setdefault(pod.uid, []).append(key)

    def detach(self) -> None:
        super().detach()
        self._holdings = self._holdings.copy()
        self._placed = dict(self._placed)
        self._given = dict(self._given)
        self.extended = self.extended.copy()

    # --- what a pod needs ------------------------------------------------------------------------

    def _keys(self, pod: Pod) -> tuple[ClaimKey, ...]:
        """The pod's claims that exist."""
        if not pod.spec.claims:
            return ()
        named = ((pod.key.namespace, ref.claim) for ref in refs_of(self.snapshot, pod))
        return tuple(dict.fromkeys(key for key in named if key in self.catalog.claims))

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.claims) or self.extended.concerns(pod) or pod.uid in self._used_by

    def identity(self, pod: Pod) -> Hashable:
        parts: list[Hashable] = [self.dead_end(pod)]
        for key in self._keys(pod):
            claim = self.catalog.claims[key]
            alike = self._sharers.get(key, 0) <= 1 and self._holdings.of(key) == ClaimUse()
            known = pod.uid in self._holdings.of(key).users(now=False)
            parts.append((claim.requests, claim.constraints) if alike else (key, known))
        return tuple(parts)

    def dead_end(self, pod: Pod) -> str:
        if pod.key not in self._dead_ends:
            reasons = (self._dead(pod, ref.claim, ref.template) for ref in refs_of(self.snapshot, pod))
            self._dead_ends[pod.key] = next(filter(None, reasons), "")
        return self._dead_ends[pod.key]

    def _dead(self, pod: Pod, name: str, template: str) -> str:
        if not name:
            return f"the claim of template {template} is not created yet" if template else ""
        label = f"ResourceClaim {pod.key.namespace}/{name}"
        claim = self.catalog.claims.get((pod.key.namespace, name))
        if claim is None:
            return f"{label} does not exist"
        if claim.deleted:
            return f"{label} is being deleted"
        if template and claim.owner_uid != pod.uid:
            return f"{label} was not made for pod {pod.key}"
        queue = self._queues.get(pod.group) if pod.group is not None else None
        if queue is not None and not template and gpus_of(claim) and claim.queue != queue:
            return (
                f"pod {pod.key} cannot be scheduled: DRA claim {name} is a shared GPU claim with wrong queue "
                f"label (expected queue: {queue}, claim queue label: {claim.queue or ''})"
            )
        reason = self.catalog.dead.get(claim.key, "")
        return f"{label}: {reason}" if reason else self._too_large(claim, label)

    def _too_large(self, claim: Claim, label: str) -> str:
        """Whether no node could serve a request even if no device were held."""
        if claim.allocation or not claim.requests:
            return ""
        least = sum(min(1 if w.mode == ALL else w.count for w in ways) for ways in claim.requests)
        if least > MAX_DEVICES:
            return f"{label}: it asks for {least} devices, at most {MAX_DEVICES} are allowed"
        for alternatives in claim.requests:
            if not any(self._ever(wanted) for wanted in alternatives):
                wanted = alternatives[0]
                need = f"{plural(wanted.count, 'device')} of class {wanted.device_class}"
                return f"{label}: no node has {need} for the request"
        return ""

    def _ever(self, wanted: Wanted) -> bool:
        """Whether some node has enough devices for a request by itself, held or not."""
        if not self.catalog.usable(wanted):
            return False
        most = self.catalog.per_node(self.catalog.satisfying(wanted)).max(initial=0)
        return bool(most >= (1 if wanted.mode == ALL else wanted.count))

    # --- which nodes ------------------------------------------------------------------------------

    def mask(self, pod: Pod, *, now: bool) -> Mask | None:
        if self.dead_end(pod):
            mask = np.zeros(len(self.snapshot.nodes), dtype=np.bool_)
            self._admit_home(pod, mask)
            return mask
        pinned, opened = self._claims(pod, now=now)
        if pinned is not None and not pinned.any():
            return pinned
        mask = np.ones(len(self.snapshot.nodes), dtype=np.bool_) if pinned is None else pinned
        for synthetic, nodes in self.extended.parts(pod):
            claims = opened if synthetic is None else [*opened, synthetic]
            chosen = mask & nodes
            if claims and chosen.any():
                mask[chosen] = self._fitting(claims, np.flatnonzero(chosen), now=now)
        self._admit_home(pod, mask)
        plugin = self.extended.plugin_room(pod, now=now)
        return mask if plugin is None else mask & plugin

    def _admit_home(self, pod: Pod, mask: Mask) -> None:
        """An evicted pod that returns to its node is no longer evicted and keeps its devices."""
        if pod.key in self.left and pod.node is not None:
            kept = [self._holdings.of(key) for key in self._used_by.get(pod.uid, ())]
            if all(found.before is not None for found in kept):
                node = self.snapshot.node_index[pod.node]
                # A claim that was allocated again may be elsewhere now.
                mask[node] = all(found.fresh is None for found in kept) and (
                    self._again(self._holdings, pod) or self._aside(pod, node) is not None
                )

    def _again(self, holdings: Holdings, pod: Pod) -> bool:
        """Whether no other pod was promised what an evicted pod used."""
        kept = (holdings.of(key) for key in self._used_by.get(pod.uid, ()))
        return all(
            found.before is None or not found.leaving or holdings.fits_again(found.before) for found in kept
        )

    def _aside(self, pod: Pod, node: int) -> tuple[list[Claim], tuple[Pick, ...]] | None:
        """Other devices for the claims that the cycle gives on the node of an evicted pod, so that the pod
        can keep its own devices; None: there are none."""
        given = self._given.get(node, ())
        without = self._without(given)
        if not given or not self._again(without, pod):
            return None
        for key in self._used_by.get(pod.uid, ()):
            without.come_back(key, pod.uid)
        return self._chosen(without, [g.claim for g in given], [g.now for g in given], node)

    def _claims(self, pod: Pod, *, now: bool) -> tuple[Mask | None, list[Claim]]:
        """Nodes to which allocated claims pin the pod (None: all), and the claims still open."""
        pinned: Mask | None = None
        opened = []
        for key in self._keys(pod):
            holding = self._holdings.of(key)
            if len(holding.users(now=now) | {pod.uid}) > MAX_USERS:
                return np.zeros(len(self.snapshot.nodes), dtype=np.bool_), []
            allocation = holding.pinned(now=now)
            if allocation is None:
                opened.append(self.catalog.claims[key])
            elif allocation.nodes is not None:
                pinned = allocation.nodes.copy() if pinned is None else pinned & allocation.nodes
        return pinned, opened

    def _problem(self, claims: Sequence[Claim]) -> DeviceProblem:
        """The device problem of these claims. The last claim's namespace pays for its searches, as it
        asks."""
        namespace = claims[-1].key[0]
        key = namespace, tuple((claim.requests, claim.constraints) for claim in claims)
        if key not in self._problems:
            purse = self._purses.setdefault(namespace, Purse(PICKS))
            requests = [Open(c, request) for c, claim in enumerate(claims) for request in claim.requests]
            constraints = [(c, each) for c, claim in enumerate(claims) for each in claim.constraints]
            self._problems[key] = DeviceProblem(self.catalog, requests, constraints, purse)
        return self._problems[key]

    def _fitting(self, claims: Sequence[Claim], nodes: NDArray[np.int64], *, now: bool) -> Mask:
        """For each node, whether its devices satisfy the claims."""
        problem = self._problem(claims)
        fits: Mask = problem.enough(self._holdings.free(now=now))[nodes]
        if not problem.counting:
            for i in np.flatnonzero(fits):
                fits[i] = self._remembered(
                    problem, int(nodes[i]), now, lambda node: self._search(problem, node, now)
                )
        if self._given:
            for i in np.flatnonzero(~fits):
                if int(nodes[i]) in self._given:
                    fits[i] = self._remembered(
                        problem,
                        int(nodes[i]),
                        now,
                        lambda node: self._rearranged(claims, node, now),
                        again=True,
                    )
        return fits

    def _remembered(
        self,
        problem: DeviceProblem,
        node: int,
        now: bool,
        ask: Callable[[int], object],
        *,
        again: bool = False,
    ) -> bool:
        """The result of ``ask`` per node, remembered until the devices in use there change."""
        key, stamp = (problem, node, now, again), (self._holdings.stamp(node), problem.purse.empty)
        known = self._known.get(key)
        if known is None or known[0] != stamp:
            known = (stamp, ask(node) is not None)
            self._known[key] = known
        return known[1]

    def _search(self, problem: DeviceProblem, node: int, now: bool) -> bool | None:
        candidates = self.catalog.reachable(node)
        return problem.solvable(candidates, self._holdings.room(candidates, now=now)) or None

    def _rearranged(
        self, claims: Sequence[Claim], node: int, now: bool, *, found: bool = False
    ) -> tuple[list[Claim], tuple[Pick, ...]] | None:
        """Choose devices for these claims, and again for those that the cycle already gives on the node.

        Returns None if no choice serves all. ``found``: there was one when the node was asked.

        Devices of leaving pods do not count for claims that are bound now.
        """
        given = self._given.get(node, ())
        if len({(claim.requests, claim.constraints) for claim in (*(g.claim for g in given), *claims)}) < 2:
            # The claims ask for the same devices, so giving one of them others would not help.
            return None
        everyone = [*(entry.claim for entry in given), *claims]
        modes = [*(entry.now for entry in given), *(now for _ in claims)]
        return self._chosen(self._without(given), everyone, modes, node, found=found)

    def _without(self, given: Iterable[Given]) -> Holdings:
        """The devices in use, without those of these claims."""
        without = self._holdings.copy()
        for entry in given:
            without.set(entry.claim.key, replace(without.of(entry.claim.key), fresh=None))
        return without

    def _chosen(
        self, without: Holdings, claims: list[Claim], modes: Sequence[bool], node: int, *, found: bool = False
    ) -> tuple[list[Claim], tuple[Pick, ...]] | None:
        """The claims with devices that are not in use; ``modes``: which of them are bound now.

        Unless a device is either free or not (``plain``), all claims get what is free now, or nothing.
        """
        problem = self._problem(claims)
        if len(set(modes)) > 1 and not problem.plain:
            modes = [True] * len(modes)
        candidates = self.catalog.reachable(node)
        room = without.room(candidates, now=all(modes))
        if problem.short(candidates, room):
            return None
        leaving = frozenset(np.flatnonzero(without.free(now=False) & ~without.free(now=True)).tolist())
        barred = {c: leaving for c, mode in enumerate(modes) if mode}
        picks = DeviceSearch(problem, candidates, room, barred).run(found=found)
        return None if picks is None else (claims, picks)

    @property
    def gave_up(self) -> bool:
        # A claim whose selectors are evaluated in a later cycle is refused in this one.
        return self.catalog.waiting or any(problem.gave_up for problem in self._problems.values())

    def unsure(self, pod: Pod) -> bool:
        """Whether kai-cp cannot evaluate one of the selectors that the pod asks for."""
        claims = [self.catalog.claims[key] for key in self._keys(pod)]
        claims += [claim for claim, _ in self.extended.parts(pod) if claim is not None]
        requests = (ways for claim in claims if claim.allocation is None for ways in claim.requests)
        return any(self.catalog.unknown(wanted) for ways in requests for wanted in ways)

    # --- pods come and go ------------------------------------------------------------------------

    def place(self, pod: Pod, node: int, *, pipelined: bool) -> None:
        now = not pipelined
        self.extended.count_plugin(pod, node, 1, leaving=False)
        opened, joined = [], []
        for key in self._keys(pod):
            holding = self._holdings.of(key)
            allocation = holding.pinned(now=now)
            if allocation is None and holding.before is not None and holding.before.usable(node):
                # Its users leave, but its devices may stay in use.
                allocation = holding.before if self._holdings.fits_again(holding.before) else None
            if allocation is None:
                opened.append(self.catalog.claims[key])
            joined.append(Joined(key, pod.uid not in holding.stay | holding.joined))
        synthetic = self.extended.claim(pod, node)
        if synthetic is not None:
            opened.append(synthetic)
            joined.append(Joined(synthetic.key, True))
        fresh = self._allocate(pod, opened, node, now=now)
        for entry in joined:
            if entry.added:
                self._holdings.join(entry.claim, pod.uid, fresh.get(entry.claim))
        self._placed[pod.key] = tuple(joined)

    def _allocate(
        self, pod: Pod, claims: Sequence[Claim], node: int, *, now: bool
    ) -> dict[ClaimKey, Allocation]:
        """Allocations of the claims; those of earlier pods change where that is needed."""
        if not claims:
            return {}
        candidates = self.catalog.reachable(node)
        room = self._holdings.room(candidates, now=now)
        if node not in self._gpus:
            self._gpus[node] = gpus_of_node(self.catalog, node)
        near = nearest_first(self._gpus[node], candidates, room.held, claims)
        picks = DeviceSearch(self._problem(claims), near, room).run()
        if picks is None:
            # In this order the search may give up although that of ``mask`` does not.
            room = self._holdings.room(candidates, now=now)
            picks = DeviceSearch(self._problem(claims), candidates, room).run(found=True)
        found = (
            (list(claims), picks) if picks is not None else self._rearranged(claims, node, now, found=True)
        )
        if found is None:
            raise ValueError(f"{pod.key}: node {self.snapshot.nodes[node].name} lacks devices for its claims")
        fresh = dict(self._written(*found, node))
        for claim in found[0][: -len(claims)]:
            self._holdings.set(claim.key, replace(self._holdings.of(claim.key), fresh=fresh[claim.key]))
        local = [
            Given(claim, now)
            for claim in claims
            if all(self.catalog.node_of[share.device] == node for share in fresh[claim.key].shares)
        ]
        self._given[node] = (*self._given.get(node, ()), *local)
        return fresh

    def _written(
        self, claims: Sequence[Claim], picks: Sequence[Pick], node: int
    ) -> Iterator[tuple[ClaimKey, Allocation]]:
        for c, claim in enumerate(claims):
            own = [pick for pick in picks if pick.claim == c]
            yield claim.key, write(self.catalog, claim, own, node)

    def details(self, pod: Pod, node: int) -> Mapping[str, Any]:
        """What the binder writes: allocations by the name of the claim in the pod (1.3)."""
        found = []
        for ref in refs_of(self.snapshot, pod):
            allocation = (
                self._holdings.of((pod.key.namespace, ref.claim)).pinned(now=True) if ref.claim else None
            )
            if allocation is not None:
                found.append({"name": ref.name, "allocation": allocation.written})
        details: dict[str, Any] = {"resourceClaimAllocations": found} if found else {}
        synthetic = self.extended.claim(pod, node)
        if synthetic is not None:
            allocation = self._holdings.of(synthetic.key).fresh
            assert allocation is not None
            details["extendedResourceClaimAllocation"] = self.extended.details(synthetic, allocation.written)
        return details

    def remove(self, pod: Pod, node: int) -> None:
        self.extended.count_plugin(pod, node, -1, leaving=False)
        for entry in self._placed.pop(pod.key, ()):
            if entry.added:
                self._holdings.part(entry.claim, pod.uid)
        if node in self._given:
            kept = tuple(g for g in self._given[node] if self._holdings.of(g.claim.key).fresh is not None)
            self._given[node] = kept

    def evict(self, pod: Pod) -> None:
        super().evict(pod)
        for key in self._used_by.get(pod.uid, ()):
            self._holdings.leave(key, pod.uid)

    def unevict(self, pod: Pod) -> None:
        if pod.node is not None and not self._again(self._holdings, pod):
            node = self.snapshot.node_index[pod.node]
            found = self._aside(pod, node)
            for claim, fresh in self._written(*found, node) if found is not None else ():
                self._holdings.set(claim, replace(self._holdings.of(claim), fresh=fresh))
        super().unevict(pod)
        if pod.status is not PodStatus.RELEASING:
            for key in self._used_by.get(pod.uid, ()):
                self._holdings.come_back(key, pod.uid)

    def _leave(self, pod: Pod, sign: int) -> None:
        if pod.node is not None and pod.status is not PodStatus.RELEASING:
            node = self.snapshot.node_index[pod.node]
            self.extended.count_plugin(pod, node, -sign, leaving=False)
            self.extended.count_plugin(pod, node, sign, leaving=True)

    # --- words and rows ----------------------------------------------------------------------------

    def refusals(self, pod: Pod) -> str:
        reason = self.dead_end(pod)
        if reason:
            return reason
        mask = self.mask(pod, now=True)
        refused = 0 if mask is None else int(np.count_nonzero(~mask))
        if mask is None or not refused:
            return ""
        free = self._holdings.free(now=True)
        parts, opened = list[str](), list[Claim]()
        for key in self._keys(pod):
            holding = self._holdings.of(key)
            users = len(holding.users(now=True) | {pod.uid})
            if users > MAX_USERS:
                parts.append(f"claim {key[1]} would have {users} users, at most {MAX_USERS} are allowed")
            elif (allocation := holding.pinned(now=True)) is not None:
                parts.append(f"claim {key[1]} is allocated on {_places(allocation.nodes)}")
            else:
                opened.append(claim := self.catalog.claims[key])
                parts += _lacks(self.catalog, key[1], claim.requests, free, ~mask)
        if opened and not parts:
            gave_up = self._problem(opened).gave_up
            parts.append(SPENT if gave_up else "no choice of devices satisfies all that its claims ask for")
        return f"{plural(refused, 'node')} cannot allocate all claims" + (
            f": {'; '.join(parts)}" if parts else ""
        )

    def rows(self, classes: Sequence[Pod], sizes: Sequence[int], nodes: Sequence[int]) -> Iterable[Row]:
        """Counting rows over the devices that requests of the classes accept, and rows that keep the users of
        a shared claim together and within the limits of the API.

        The rows are exact where devices are either free or not and few requests overlap. With constraints,
        counters, shareable devices or devices that reach only some nodes they are a relaxation: a pod does
        not enter a node that refuses it now as long as all pods with devices there stay.
        """
        users: dict[ClaimKey, list[int]] = {}
        for c, pod in enumerate(classes):
            for key in filter(self._shared, self._keys(pod)):
                users.setdefault(key, []).append(c)
        pods = {pod.uid: pod for pod in self.snapshot.pods} if users else {}
        shared = list(self._together(users, sizes, nodes, pods))
        for one in shared:
            yield from one.rows(nodes)
        for key, mine in users.items():
            known = self._holdings.of(key).users(now=False)
            entering = {(c, node): 1 for c in mine if classes[c].uid not in known for node in nodes}
            leaving = {pods[uid].key: 1 for uid in self._holdings.of(key).stay if uid in pods}
            if entering:
                yield Row(entering, MAX_USERS - len(known), leaving, NAME)
        opened = [
            [self.catalog.claims[key] for key in self._keys(pod) if self._opens(pod, key)] for pod in classes
        ]
        wants = [
            [request for claim in claims if not self._shared(claim.key) for request in claim.requests]
            for claims in opened
        ]
        releases, free = dict(self._releases()), self._holdings.free(now=False)
        yield from rows(self.catalog, wants, shared, nodes, free=free, releases=releases)
        yield from self._refused_rows(classes, sizes, opened, nodes, releases)

    def _shared(self, key: ClaimKey) -> bool:
        return self._sharers.get(key, 0) > 1

    def _together(
        self,
        users: Mapping[ClaimKey, Sequence[int]],
        sizes: Sequence[int],
        nodes: Sequence[int],
        pods: Mapping[str, Pod],
    ) -> Iterator[SharedClaim]:
        """The shared claims whose users cannot go to all of the nodes with one allocation. ``pods``: all, by
        UID."""
        for key, mine in users.items():
            found, requests, kept = self._holdings.of(key), self.catalog.claims[key].requests, Site()
            reached = sites(self.catalog, requests)
            old, holders = found.fresh or found.before, list[Mapping[PodKey, int]]()
            if old is not None:
                stood = (pods[uid].node for uid in found.users(now=True) if uid in pods)
                open_to = range(len(self.snapshot.nodes)) if old.nodes is None else np.flatnonzero(old.nodes)
                # Evicted users may return home, whatever the allocation says by then.
                kept = Site((*map(int, open_to), *(self.snapshot.node_index[node] for node in stood if node)))
                reached = reached and reached | {kept}
            if found.pinned(now=False) is not None:
                stay = found.joined if found.fresh is not None else found.stay
                holders = [{pods[uid].key: 1} if uid in pods else {} for uid in sorted(stay)] or [{}]
            if reached and not any(site.issuperset(nodes) for site in reached):
                most = sum(sizes[c] for c in mine)
                asked = requests if found == ClaimUse() else ()
                yield SharedClaim(key, mine, most, reached, asked, kept, holders)

    def _refused_rows(
        self,
        classes: Sequence[Pod],
        sizes: Sequence[int],
        opened: Sequence[Sequence[Claim]],
        nodes: Sequence[int],
        releases: Mapping[PodKey, Sequence[int]],
    ) -> Iterator[Row]:
        """Rows for nodes that take a class only once a pod leaves, which counting does not show."""
        local: dict[int, set[PodKey]] = {}
        anywhere: set[PodKey] = set()
        for key, devices in releases.items():
            for device in devices:
                node = int(self.catalog.node_of[device])
                # Several nodes may draw from the counters of one pool.
                shared = node < 0 or self.catalog.devices[device].consumes
                (anywhere if shared else local.setdefault(node, set())).add(key)
        for c, pod in enumerate(classes):
            for synthetic, served in self.extended.parts(pod):
                claims = [*opened[c], *([synthetic] if synthetic is not None else [])]
                if not claims or (synthetic is None and self._problem(claims).counting):
                    continue
                chosen = np.array([node for node in nodes if served[node]], dtype=np.int64)
                for node in chosen[~self._fitting(claims, chosen, now=False)].tolist():
                    leaving = dict.fromkeys(local.get(node, set()) | anywhere, sizes[c])
                    yield Row({(c, node): 1}, 0, leaving, NAME)

    def _opens(self, pod: Pod, key: ClaimKey) -> bool:
        """Whether a claim needs devices where the pod is placed or moved to."""
        found = self._holdings.of(key)
        if self._shared(key):
            return found == ClaimUse()
        own = pod.node is not None and found.fresh is None and found.stay == {pod.uid}
        return own or found.pinned(now=False) is None

    def _releases(self) -> Iterator[tuple[PodKey, list[int]]]:
        """Devices that become free when a staying pod is evicted.

        If several pods share a claim, the first one stands for all of them: a relaxation.
        """
        by_uid = {pod.uid: pod.key for pod, _, leaving in holding(self.snapshot) if not leaving}
        for key in sorted({key for keys in self._used_by.values() for key in keys}):
            found = self._holdings.of(key)
            users = sorted(uid for uid in found.stay if uid in by_uid)
            if users and found.before is not None:
                yield by_uid[users[0]], [share.device for share in found.before.shares if not share.admin]


def _places(nodes: Mask | None) -> str:
    return "all nodes" if nodes is None else plural(int(np.count_nonzero(nodes)), "node")


def _lacks(
    catalog: Catalog, name: str, requests: Sequence[Sequence[Wanted]], free: Mask, nodes: Mask
) -> Iterator[str]:
    """What some nodes lack for a claim, in numbers: the requests that are too large by themselves, or else
    all requests for a class together."""

    def lacks(need: int | str, some: Sequence[Wanted]) -> str:
        fits = (free & (catalog.satisfying(one) if catalog.usable(one) else False) for one in some)
        have = int(catalog.per_node(np.logical_or.reduce(list(fits)))[nodes].max(initial=0))
        if have >= (1 if need == "all" else int(need)):
            return ""
        most = f"more than {have}" if have else "one"
        return f"claim {name} needs {need} of class {some[0].device_class}; no node has {most} free"

    asked = [request[0] for request in requests]
    alone = [lacks("all" if one.mode == ALL else one.count, [one]) for one in asked]
    counted = [one for one in asked if one.mode != ALL]
    classes = dict.fromkeys(one.device_class for one in counted) if not any(alone) else ()
    by_class = ([one for one in counted if one.device_class == kind] for kind in classes)
    together = (lacks(sum(one.count for one in some), some) for some in by_class)
    yield from filter(None, (*alone, *together))
    yield from _too_many(catalog, name, requests, nodes)


def _too_many(
    catalog: Catalog, name: str, requests: Sequence[Sequence[Wanted]], nodes: Mask
) -> Iterator[str]:
    """Nodes on which a claim would need more devices than one claim can have."""
    least = np.zeros(len(nodes), dtype=np.int64)
    for ways in requests:
        counts = [
            catalog.per_node(catalog.satisfying(one)) if one.mode == ALL else np.full_like(least, one.count)
            for one in ways
            if catalog.usable(one)
        ]
        least += np.min(counts, axis=0) if counts else 0
    over = least[nodes & (least > MAX_DEVICES)]
    if over.size:
        yield (
            f"claim {name} needs {int(over.max())} devices on {plural(over.size, 'node')},"
            f" at most {MAX_DEVICES} are allowed"
        )
