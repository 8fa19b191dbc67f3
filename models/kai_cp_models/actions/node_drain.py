"""Consolidation without a solver: for one ask at a time, clear the nodes where the least has to move.

It answers at once, however little time the budget leaves. The joint model then looks for something better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from kai_cp_models.actions.home import put_back
from kai_cp_models.actions.run import ActionRun
from kai_cp_models.arrays import Floats, Mask
from kai_cp_models.fitting import alone, with_devices
from kai_cp_models.free_capacity import NodeAmounts
from kai_cp_models.joint.problem import Ask, EvictionUnit
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.placement import nominated, quota_check
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, MILLI, GroupKey, Pod, PodKey, PodSpec
from kai_cp_models.running import gpu_weight

_NEVER: Final = np.inf


class _Leaving(NamedTuple):
    """Pods that leave a node together, their weight, and what they free."""

    pods: tuple[Pod, ...]
    weight: int
    gives: NodeAmounts


class NodeDrain:
    """The state of the cluster while the asks of a chunk are served one after the other."""

    def __init__(self, run: ActionRun) -> None:
        self.ledger = run.base.copy()
        self.served: list[Ask] = []
        self.taken_by: dict[PodKey, GroupKey] = {}
        """The ask that each moved pod moved for first."""
        self._run, self._most_groups = run, run.cycle.snapshot.policy.most_moved_groups
        self._movable = {pod.key: pod for item in run.ranked if item.movable for pod in item.pods}
        self._on: dict[int, set[PodKey]] = defaultdict(set)
        self._find(self._movable.values())
        self._costs: dict[PodSpec, Floats] = {}

    def serve(self, ask: Ask) -> bool:
        """Give the ask a place, moving what must move; False: nothing has changed."""
        moved = (self._movable[key].group for key in self.taken_by)
        if ask.group.key in moved or quota_check(self.ledger, ask) is not None:
            return False
        # What fits as it is needs no moves.
        plans = chain([()], islice(self._plans(ask), LIMITS.clearing_tries))
        return any(self._allowed(ask, leaving) and self._served(ask, leaving) for leaving in plans)

    def _allowed(self, ask: Ask, leaving: Sequence[Pod]) -> bool:
        """Whether the limits on moves allow it, and none of the pods is of a group that gets a place."""
        fresh = [pod for pod in leaving if pod.key not in self.taken_by]
        groups = {pod.group for pod in fresh}
        if len(groups) > self._most_groups or ask.group.key in groups:
            return False
        moved = chain((self._movable[key] for key in self.taken_by), fresh)
        return self._run.may_move(moved, chain(self.served, (ask,)))

    def _served(self, ask: Ask, leaving: Sequence[Pod]) -> bool:
        """Place the ask while ``leaving`` moves; False: something gets no place, and nothing has changed."""
        self.ledger.mark()
        made = self._made(ask, leaving)
        self.ledger.close(kept=made is not None)
        if made is None:
            return False
        moved, touched = made
        touched |= self.ledger.nodes_of(ask.gang.pods)
        for node in touched:
            self._on[node].difference_update(pod.key for pod in chain(ask.gang.pods, moved))
        for costs in self._costs.values():
            costs[list(touched)] = np.nan
        self._find(moved)
        for pod in moved:
            self.taken_by.setdefault(pod.key, ask.group.key)
        self.served.append(ask)
        return True

    def _made(self, ask: Ask, leaving: Sequence[Pod]) -> tuple[list[Pod], set[int]] | None:
        """All pods that move, and the nodes where they and the ask were or are now; None: one has no place.

        Where a moved pod group finds no other place, other nodes are cleared for it, of smaller pods.
        """
        ledger, moved, touched = self.ledger, list(leaving), self.ledger.nodes_of(leaving)
        if not ledger.let_go(leaving) or not nominated(ledger, ask):
            return None
        touched |= ledger.nodes_of(ask.pods)
        while lost := [pod for pod in moved if ledger.status(pod) not in ACTIVE_ALLOCATED]:
            # The largest first: small ones fit in what is left.
            _, key = max((gpu_weight(pod), pod.group) for pod in lost if pod.group is not None)
            pods = [pod for pod in lost if pod.group == key]
            if not _put_back(ledger, key, pods):
                open_ = np.ones(len(ledger.idle), dtype=bool)
                open_[list(touched)] = False
                more = self._cheapest(pods, open_, smaller=True)
                moved += more
                touched |= ledger.nodes_of(more)
                if not (self._allowed(ask, moved) and ledger.let_go(more) and _put_back(ledger, key, pods)):
                    return None
            touched |= ledger.nodes_of(pods)
        return moved, touched

    def _find(self, pods: Iterable[Pod]) -> None:
        """Note on which nodes the pods are now."""
        for pod in pods:
            for node in self.ledger.nodes_of((pod,)):
                self._on[node].add(pod.key)

    # --- which nodes to clear --------------------------------------------------------------------

    def _plans(self, ask: Ask) -> Iterator[tuple[Pod, ...]]:
        """Pods whose leaving makes room for the ask, the cheapest first: those of the cheapest nodes of each
        permitted part of the cluster, and then of others."""
        found = [(one, mask) for mask in self._masks(ask) if (one := self._cheapest(ask.pods, mask))]
        while found:
            leaving, mask = found.pop(min(range(len(found)), key=lambda i: _weight(found[i][0])))
            yield leaving
            mask[list(self.ledger.nodes_of(leaving))] = False
            if again := self._cheapest(ask.pods, mask):
                found.append((again, mask))

    def _masks(self, ask: Ask) -> Iterator[Mask]:
        """[N] masks of the domains of the widest required level that all pods of the ask share, or one of all
        nodes."""
        widest = {scopes[0].constraint if scopes else None: scopes[:1] for scopes, _ in ask.batch.leaves}
        shared = widest.popitem()[1] if len(widest) == 1 else ()
        domain = self.ledger.fixed.table.domains_of(shared[0])[1] if shared else None
        if domain is None:
            yield np.ones(len(self.ledger.idle), dtype=bool)
            return
        for index in np.unique(domain[domain >= 0]).tolist():
            yield domain == index

    def _cheapest(self, pods: Sequence[Pod], open_: Mask, *, smaller: bool = False) -> tuple[Pod, ...]:
        """What leaves the cheapest of the open nodes so that all the pods fit there; nothing if they cannot.

        ``smaller``: for each pod less has to leave than the pod itself.
        """
        # Pods may go together on a node that is chosen here, though it takes no others any more.
        left, within = self.ledger.free.copy(), open_
        open_, chosen = open_.copy(), list[int]()
        leaving: dict[PodKey, Pod] = {}
        for pod in sorted(pods, key=lambda pod: -gpu_weight(pod)):
            request = np.array(alone(pod.spec), dtype=np.int64)
            costs = self._costs_of(pod, within)
            inside = (n for n in chosen if bool((left[n] >= request).all()) and np.isfinite(costs[n]))
            node = next(inside, None)
            if node is None:
                costs = np.where(open_, costs, _NEVER)
                node = int(np.argmin(costs))
                if not costs[node] < (gpu_weight(pod) if smaller else _NEVER):
                    return ()
                open_[node] = False
                chosen.append(node)
                leaving.update((one.key, one) for one in self._drained(node, pod) or ())
            # Only what this pod needs is counted as freed; what else becomes free is seen when all are
            # placed.
            left[node] = np.maximum(left[node] - request, 0)
        return tuple(leaving.values())

    def _costs_of(self, pod: Pod, within: Mask) -> Floats:
        """[N] weight of the pods that make room for such a pod on each node; infinite where none can."""
        accepts = self.ledger.fixed.table.accepting(pod) & within
        costs = self._costs.setdefault(pod.spec, np.full(len(accepts), np.nan))
        for node in np.flatnonzero(accepts & np.isnan(costs)).tolist():
            found = self._drained(node, pod)
            costs[node] = _NEVER if found is None else _weight(found)
        return np.where(accepts, costs, _NEVER)

    def _drained(self, node: int, pod: Pod) -> list[Pod] | None:
        """Movable pods of the node that make room for ``pod``, with few GPUs in all; None if they cannot."""
        found = list[Pod]()
        if self.ledger.view(pod).later[node]:
            return found
        pieces = sorted(self._leaving(node), key=attrgetter("weight"))
        amounts = zip(alone(pod.spec), self.ledger.room.free_on[node], strict=True)
        missing = {d: want - have for d, (want, have) in enumerate(amounts) if want > have}
        while missing:
            pieces = [one for one in pieces if any(one.gives[d] for d in missing)]
            if not pieces:
                return None
            # The smallest that is enough; if none is, the largest.
            enough = (one for one in pieces if all(one.gives[d] >= least for d, least in missing.items()))
            best = next(enough, pieces[-1])
            found += best.pods
            pieces = [one for one in pieces if one is not best]
            missing = {d: least - best.gives[d] for d, least in missing.items() if least > best.gives[d]}
        return found

    def _leaving(self, node: int) -> Iterator[_Leaving]:
        """What can leave the node: a pod with whole GPUs or none, or all members of a shared device."""
        devices: dict[str, list[Pod]] = {}
        for key in sorted(self._on.get(node, ())):
            pod = self._movable[key]
            place = self.ledger.place_of(pod)
            names = place[1] if place is not None and pod.spec.gpu.shares else ()
            if not names:
                yield _Leaving((pod,), gpu_weight(pod), pod.spec.requests)
            elif len(names) == 1:
                devices.setdefault(names[0], []).append(pod)
        for name, pods in devices.items():
            device = self.ledger.devices[node][name]
            if len(pods) == device.active + device.pipelined:
                gives = [sum(parts) for parts in zip(*(pod.spec.requests for pod in pods), strict=True)]
                yield _Leaving(tuple(pods), _weight(pods), with_devices(gives, 1))


def _weight(pods: Iterable[Pod]) -> int:
    return sum(map(gpu_weight, pods))


def _put_back(ledger: Ledger, key: GroupKey, pods: Sequence[Pod]) -> bool:
    """Place all of ``pods`` again; False: they do not fit, and nothing changed."""
    ledger.mark()
    put_back(ledger, key, pods)
    return ledger.close(kept=all(ledger.status(pod) in ACTIVE_ALLOCATED for pod in pods))


def cheapest_nodes_to_drain(
    ledger: Ledger, asks: Sequence[Ask], ranked: Sequence[EvictionUnit], keep: Collection[int] = ()
) -> list[EvictionUnit]:
    """Units on the nodes where the least has to move so that the largest pod asked for fits, for a model.

    ``keep``: ranks of units that stay candidates in any case. Units that are left out may be part of a plan,
    so a refusal based on the others is no proof.
    """
    free = ledger.free[:, GPU].astype(float)
    most = free.copy()
    for pod in (pod for item in ranked if item.movable for pod in item.pods):
        most[list(ledger.nodes_of((pod,)))] += gpu_weight(pod)
    wanted = [pod for ask in asks for pod in ask.pods]
    largest = max(pod.spec.requests[GPU] for pod in wanted)
    missing = np.where(most >= max(largest, MILLI), np.maximum(largest - free, 1), np.inf)
    count = max(LIMITS.fewest_nodes, LIMITS.nodes_per_pod * len(wanted))
    chosen = set(np.argsort(missing, kind="stable")[:count].tolist())
    return [i for i in ranked if i.rank in keep or not chosen.isdisjoint(ledger.nodes_of(i.pods))]
