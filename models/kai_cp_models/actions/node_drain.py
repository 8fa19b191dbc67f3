"""Consolidation without a solver: for one ask at a time, clear the nodes where the least has to move.

It answers within a second or two on 1,000 nodes, however little time the budget leaves. The joint model then
looks for a plan that serves more asks or needs fewer moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np

from kai_cp_models.actions.simulation import put_back, settle_moves
from kai_cp_models.arrays import Floats, Ints, Mask
from kai_cp_models.joint.disaggregate import leave, may_leave
from kai_cp_models.joint.problem import Ask
from kai_cp_models.joint.victim_candidates import VictimCandidate, gpu_weight, within_ceiling
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.placement import Placer, quota_check
from kai_cp_models.pods import ACTIVE_USED, GPU, MILLI, PODS, UNLIMITED, GroupKey, Pod, PodKey
from kai_cp_models.rules.static.table import accepting

_NEVER: Final = np.inf


@dataclass(frozen=True, slots=True, eq=False)
class _Leaving:
    """Pods that leave a node together, what they free, and what that costs."""

    pods: tuple[Pod, ...]
    gives: Ints
    weight: int


@dataclass
class NodeDrain:
    """The state of the cluster while asks are served one after the other.

    ``ranked``: units that may move. ``most_groups``: pod groups that may move for one ask;
    ``most_ratio``: milli-GPUs that may move per milli-GPU admitted.
    """

    base: Ledger
    ranked: Sequence[VictimCandidate]
    most_groups: int = UNLIMITED
    most_ratio: float = UNLIMITED
    served: list[Ask] = field(default_factory=list)
    taken_by: dict[PodKey, GroupKey] = field(default_factory=dict)
    """The ask that each moved pod moved for first."""

    def __post_init__(self) -> None:
        self.ledger = self.base
        self._movable = {pod.key: pod for item in self.ranked if item.unit.movable for pod in item.unit.pods}
        self._on: dict[int, set[PodKey]] = {}
        for pod in self._movable.values():
            place = self.base.place_of(pod)
            if place is not None:
                self._on.setdefault(place[0], set()).add(pod.key)
        self._costs: dict[int, tuple[Pod, Floats, dict[int, tuple[Pod, ...]]]] = {}
        self._stale: dict[int, set[int]] = {}

    def serve(self, ask: Ask) -> bool:
        """Give the ask a place, moving what must move; False: nothing has changed."""
        if quota_check(self.ledger, ask.group, ask.batch) is not None:
            return False
        if self.served:
            placed = Placer(ask.gang, pipeline_only=True).place(self.ledger, ask.batch)
            if isinstance(placed, Ledger):
                self._accept(ask, placed, ())
                return True
        for leaving in islice(self._plans(ask), LIMITS.clearing_tries):
            if leaving and self._allowed(ask, leaving) and (made := self._made(ask, leaving)) is not None:
                self._accept(ask, *made)
                return True
        return False

    def _allowed(self, ask: Ask, leaving: Sequence[Pod]) -> bool:
        """Whether the limits on moves allow it; pods that moved before count once."""
        fresh = [pod for pod in leaving if pod.key not in self.taken_by]
        if self.most_groups != UNLIMITED and len({pod.group for pod in fresh}) > self.most_groups:
            return False
        moved = (*(self._movable[key] for key in self.taken_by), *fresh)
        return within_ceiling(self.most_ratio, moved, (*self.served, ask))

    def _made(self, ask: Ask, leaving: Sequence[Pod]) -> tuple[Ledger, tuple[Pod, ...]] | None:
        """The ledger with ``leaving`` moved and the ask placed, and all moved pods; or None.

        For a pod that finds no other place another node is drained; the pods that leave there are smaller
        than this pod.
        """
        trial = self.ledger.copy()
        touched = self._nodes_of(self.ledger, leaving)
        left = _by_group(trial, leaving)
        if left is None:
            return None
        placed = Placer(ask.gang, pipeline_only=True).place(trial, ask.batch, consume=True)
        if not isinstance(placed, Ledger):
            return None
        touched |= self._nodes_of(placed, ask.pods)
        moved = list(leaving)
        while left:
            # The largest first: small ones fit in what is left.
            key = max(left, key=lambda key: (max(map(gpu_weight, left[key])), key))
            pods = left.pop(key)
            back = _put_back(placed, key, pods)
            if back is None:
                more = self._room_for(pods, touched)
                if not more or not self._allowed(ask, [*moved, *more]):
                    return None
                moved += more
                further = _by_group(placed, more)
                if further is None:
                    return None
                for other, members in further.items():
                    left.setdefault(other, []).extend(members)
                back = _put_back(placed, key, pods)
                if back is None:
                    return None
            placed = back
            touched |= self._nodes_of(placed, pods)
        return placed, tuple(moved)

    def _room_for(self, pods: Sequence[Pod], touched: set[int]) -> list[Pod]:
        """Pods to move so that ``pods`` fit on nodes outside ``touched``; empty if there are none. Adds to
        ``touched``.
        """
        found: list[Pod] = []
        for pod in sorted(pods, key=lambda pod: -gpu_weight(pod)):
            costs, sets = self._costs_of(pod)
            open_ = np.where(costs < gpu_weight(pod), costs, _NEVER)
            open_[list(touched)] = _NEVER
            node = int(np.argmin(open_))
            if not np.isfinite(open_[node]):
                return []
            touched.add(node)
            found += sets[node]
        return found

    @staticmethod
    def _nodes_of(ledger: Ledger, pods: Iterable[Pod]) -> set[int]:
        return {place[0] for pod in pods if (place := ledger.place_of(pod)) is not None}

    def _accept(self, ask: Ask, ledger: Ledger, leaving: Sequence[Pod]) -> None:
        touched = self._nodes_of(ledger, (*ask.pods, *leaving))
        for pod in leaving:
            before, now = self.ledger.place_of(pod), ledger.place_of(pod)
            assert before is not None
            assert now is not None
            touched.add(before[0])
            self._on[before[0]].discard(pod.key)
            self._on.setdefault(now[0], set()).add(pod.key)
            self.taken_by.setdefault(pod.key, ask.group.key)
        for stale in self._stale.values():
            stale |= touched
        self.ledger = ledger
        self.served.append(ask)

    def settled(self) -> Ledger:
        """The ledger in which a pod that returned to its own place counts as never moved."""
        result = self.ledger.copy()
        settle_moves(result, [self._movable[key] for key in self.taken_by])
        return result

    # --- which nodes to clear --------------------------------------------------------------------

    def _plans(self, ask: Ask) -> Iterator[tuple[Pod, ...]]:
        """Pods whose leaving makes room for the ask: those of the cheapest nodes of each permitted part of
        the cluster.
        """
        masks = list(self._masks(ask))
        found = [option for mask in masks if (option := self._cheapest(ask, mask)) is not None]
        found.sort(key=lambda option: option[0])
        for _, leaving in found:
            yield leaving
        if len(found) != 1:
            return
        # A second choice of nodes, for the case that the first cannot be drained.
        mask, leaving = masks[0], found[0][1]
        while True:
            mask[list(self._nodes_of(self.ledger, leaving))] = False
            again = self._cheapest(ask, mask)
            if again is None:
                return
            leaving = again[1]
            yield leaving

    def _masks(self, ask: Ask) -> Iterator[Mask]:
        """[N] masks: one for each domain of the widest required level that all pods of the ask share, or one
        of all nodes.
        """
        everywhere = np.ones(len(self.ledger.idle), dtype=bool)
        scopes = [scopes for scopes, _ in ask.batch.leaves]
        first = scopes[0][0].constraint if scopes and scopes[0] else None
        shared = first is not None and all(one and one[0].constraint == first for one in scopes)
        if first is None or not shared or not first.required:
            yield everywhere
            return
        domain = self.ledger.fixed.table.trees[first.topology].domain_at(first.required)
        for index in np.unique(domain[domain >= 0]).tolist():
            yield domain == index

    def _cheapest(self, ask: Ask, mask: Mask) -> tuple[float, tuple[Pod, ...]] | None:
        """(weight, pods) that leave the cheapest nodes of ``mask`` so that all pods of the ask fit there."""
        left = self.ledger.idle + self.ledger.releasing
        total = 0.0
        leaving: dict[PodKey, Pod] = {}
        chosen: set[int] = set()
        for pod in sorted(ask.pods, key=lambda pod: -gpu_weight(pod)):
            request = np.array(pod.spec.requests, dtype=np.int64)
            costs, sets = self._costs_of(pod)
            inside = [
                node
                for node in chosen
                if mask[node] and bool((left[node] >= request).all()) and np.isfinite(costs[node])
            ]
            if inside:
                left[inside[0]] -= request
                continue
            open_ = np.where(mask, costs, _NEVER)
            open_[list(chosen)] = _NEVER
            node = int(np.argmin(open_))
            if not np.isfinite(open_[node]):
                return None
            chosen.add(node)
            total += float(open_[node])
            leaving.update((victim.key, victim) for victim in sets.get(node, ()))
            # Only what this pod needs is counted as freed; what else becomes free is seen when the ask is
            # placed.
            left[node] = np.maximum(left[node] - request, 0)
        return total, tuple(leaving.values())

    def _costs_of(self, pod: Pod) -> tuple[Floats, Mapping[int, tuple[Pod, ...]]]:
        """The cost of making room for such a pod on each node, and the pods that move; only stale nodes are
        computed anew.
        """
        key = id(pod.spec)
        if key not in self._costs:
            self._costs[key] = pod, np.full(len(self.ledger.idle), _NEVER), {}
            self._stale[key] = set(np.flatnonzero(accepting(self.ledger.fixed.table, pod)).tolist())
        _, costs, sets = self._costs[key]
        stale, self._stale[key] = self._stale[key], set()
        if stale:
            accepted = accepting(self.ledger.fixed.table, pod)
            free = self.ledger.idle + self.ledger.releasing
            request = np.array(pod.spec.requests, dtype=np.int64)
            for node in stale:
                costs[node] = _NEVER
                sets.pop(node, None)
                if accepted[node]:
                    found = self._drained(node, np.maximum(request - free[node], 0))
                    if found is not None:
                        costs[node], sets[node] = sum(map(gpu_weight, found)), found
        return costs, sets

    def _drained(self, node: int, missing: Ints) -> tuple[Pod, ...] | None:
        """Movable pods of the node that free what is missing, with few GPUs in all; None if they cannot."""
        if not (missing > 0).any():
            return ()
        pieces = sorted(self._pieces(node), key=lambda piece: piece.weight)
        for piece in pieces:
            if (piece.gives >= missing).all():
                return piece.pods
        found: list[_Leaving] = []
        for piece in reversed(pieces):
            if (missing > 0).any() and (piece.gives[missing > 0] > 0).any():
                found.append(piece)
                missing = missing - piece.gives
        if (missing > 0).any():
            return None
        # Pods that turn out not to be needed stay.
        spare = -missing
        for piece in sorted(found, key=lambda piece: piece.weight):
            if (spare >= piece.gives).all():
                spare = spare - piece.gives
                found.remove(piece)
        return tuple(pod for piece in found for pod in piece.pods)

    def _pieces(self, node: int) -> Iterator[_Leaving]:
        """The pieces that can leave the node: a pod with whole GPUs or none, or all members of a shared
        device.
        """
        devices: dict[str, list[Pod]] = {}
        for key in sorted(self._on.get(node, ())):
            pod = self._movable[key]
            place = self.ledger.place_of(pod)
            names = place[1] if place is not None and pod.spec.gpu.shares else ()
            if not names:
                yield _Leaving((pod,), np.array(pod.spec.requests, dtype=np.int64), gpu_weight(pod))
            elif len(names) == 1:
                devices.setdefault(names[0], []).append(pod)
        for name, pods in devices.items():
            device = self.ledger.devices[node, name]
            if len(pods) == device.active + device.pipelined:
                gives: Ints = np.array([pod.spec.requests for pod in pods], dtype=np.int64).sum(axis=0)
                gives[GPU] = MILLI
                # The device's reservation pod leaves too.
                gives[PODS] += 1
                yield _Leaving(tuple(pods), gives, sum(map(gpu_weight, pods)))


def fewest_moves(ledger: Ledger, asks: Sequence[Ask], ranked: Sequence[VictimCandidate]) -> int:
    """A lower bound on the pods that have to move so that the asks find whole GPUs, wherever the moved pods
    go.

    The pods of the largest size that exceed the free pieces of that size need nodes that other pods leave.
    The bound takes the cheapest of these nodes; each costs the fewest pods that free a piece there.
    """
    sizes = [pod.spec.requests[GPU] for ask in asks for pod in ask.pods if pod.spec.requests[GPU] >= MILLI]
    if not sizes:
        return 0
    largest = max(sizes)
    free = np.maximum((ledger.idle + ledger.releasing)[:, GPU], 0)
    missing = sizes.count(largest) - int((free // largest).sum())
    movable: dict[int, list[int]] = {}
    for pod in (pod for item in ranked if item.unit.movable for pod in item.unit.pods):
        place = ledger.place_of(pod)
        if place is not None:
            # The last pod of a shared device frees all of it.
            given = MILLI * pod.spec.gpu.devices if pod.spec.gpu.shares else pod.spec.requests[GPU]
            movable.setdefault(place[0], []).append(given)
    pieces = max((int(free[node] + sum(all_)) // largest for node, all_ in movable.items()), default=0)
    if missing <= 0 or not pieces:
        return 0
    costs = sorted(
        count for node, all_ in movable.items() if (count := _fewest(largest, int(free[node]), all_))
    )
    return sum(costs[: -(-missing // pieces)])


def _fewest(size: int, free: int, given: Sequence[int]) -> int:
    """How many of the pods, the largest first, free a piece of ``size`` on a node; 0 if all do not."""
    short = (free // size + 1) * size - free
    for count, one in enumerate(sorted(given, reverse=True), start=1):
        short -= one
        if short <= 0:
            return count
    return 0


def _by_group(ledger: Ledger, pods: Iterable[Pod]) -> dict[GroupKey, list[Pod]] | None:
    """Take the pods' places in ``ledger`` away; returns them by pod group, or None where a rule keeps one of
    them.
    """
    found: dict[GroupKey, list[Pod]] = {}
    for pod in pods:
        if not may_leave(ledger, (pod,)):
            return None
        leave(ledger, pod)
        if pod.group is not None:
            found.setdefault(pod.group, []).append(pod)
    return found


def _put_back(ledger: Ledger, key: GroupKey, pods: Sequence[Pod]) -> Ledger | None:
    """The ledger with all of ``pods`` placed again, or None."""
    back = put_back(ledger, key, pods)
    if back is None or any(_gone(back, pod) for pod in pods):
        return None
    return back


def _gone(ledger: Ledger, pod: Pod) -> bool:
    """Whether the pod has no place at all, neither a new one nor that of the snapshot."""
    return pod.key not in ledger.held and (pod.status not in ACTIVE_USED or pod.key in ledger.changed)
