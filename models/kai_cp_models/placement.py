"""Greedy placement of one batch, as KAI places it (4.2, 6, 8): subgroup by subgroup, pod by pod.

It gives the warm start, the last-resort answer, and, where it places all that is admitted, the answer
itself. A batch is placed whole or not at all; failure returns the reason and leaves the ledger alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.gates import non_preemptible_over_quota, over_limit
from kai_cp_models.ledger import Ledger, Mask
from kai_cp_models.rules import cliques
from kai_cp_models.rules.domains import Candidates, candidates
from kai_cp_models.rules.scores import scores
from kai_cp_models.snapshot import (
    ACTIVE_ALLOCATED,
    GpuKind,
    Pod,
    PodGroup,
    PodStatus,
)
from kai_cp_models.units import Batch, Gang


@dataclass(frozen=True, slots=True)
class NoPlace:
    """Why a batch has no place: the first pod that found no node, or a message of its subgroup.

    The words for a pod are made later (``explain``), only for what is still waiting in the end.
    """

    message: str
    subgroup: str = ""
    pod: Pod | None = None


def gate(ledger: Ledger, group: PodGroup, batch: Batch) -> tuple[str, str] | None:
    """(reason token, message) when limits or non-preemptible quota refuse the batch (3.7), else None."""
    asked = amounts.optimistic_batch(ledger.snapshot, batch.all_pods)
    refusal = over_limit(ledger.book, group.queue, asked)
    if refusal:
        return "OverLimit", refusal.message
    if not group.preemptible:
        refusal = non_preemptible_over_quota(ledger.book, group.queue, asked)
        if refusal:
            return "NonPreemptibleOverQuota", refusal.message
    return None


def within_quota(ledger: Ledger, group: PodGroup, pod: Pod, node: int) -> bool:
    """Whether the exact charge of the pod on ``node`` keeps limit and non-preemptible quota (3.7)."""
    charge = amounts.accepted(ledger.snapshot, pod, ledger.snapshot.nodes[node])
    return over_limit(ledger.book, group.queue, charge) is None and (
        group.preemptible or non_preemptible_over_quota(ledger.book, group.queue, charge) is None
    )


@dataclass
class Placer:
    """Places batches of one pod group in ledgers.

    ``pipeline_only``: every place is a promise (the simulations of eviction actions, 4.7).
    """

    gang: Gang
    pipeline_only: bool = False

    def place(self, ledger: Ledger, batch: Batch, *, consume: bool = False) -> Ledger | NoPlace:
        """The ledger with the batch placed, or why it has no place.

        The input is not changed; with ``consume`` it may be the one that is returned, so the caller
        must not use it again unless the batch found no place.
        """
        everywhere = np.ones(len(ledger.idle), dtype=bool)
        # A single pod that finds no node has changed nothing, so there is nothing to roll back.
        alone = len(batch.all_pods) == 1
        near = self._together(ledger, batch)
        if near is not None:
            return near
        trial = ledger if consume and alone else ledger.copy()
        outcome = self._subtree(trial, batch, everywhere, None)
        if isinstance(outcome, NoPlace):
            return outcome
        self.start_together(outcome, batch)
        return outcome

    def _together(self, ledger: Ledger, batch: Batch) -> Ledger | None:
        """The batch placed inside one NVLink domain, if it starts there as it would elsewhere."""
        if not ledger.fixed.near or self.gang.group.root.constraint is not None:
            return None
        active = self._active_nodes(ledger)
        free = ledger.idle + ledger.releasing if self.pipeline_only else ledger.idle
        for domain in cliques.domains(ledger.fixed.table, batch.all_pods, free, active):
            outcome = self._subtree(ledger.copy(), batch, domain, None)
            if isinstance(outcome, Ledger):
                self.start_together(outcome, batch)
                started = all(outcome.status(pod) is PodStatus.ALLOCATED for pod in batch.all_pods)
                if started or self.pipeline_only:
                    return outcome
        return None

    def _active_nodes(self, ledger: Ledger) -> NDArray[np.int64]:
        """Nodes of the gang's pods that have a place."""
        places = [ledger.place_of(pod) for pod in self.gang.pods if ledger.status(pod) in ACTIVE_ALLOCATED]
        return np.array(sorted({place[0] for place in places if place is not None}), dtype=np.int64)

    def _subtree(
        self, ledger: Ledger, batch: Batch, mask: Mask, topology_score: NDArray[np.float64] | None
    ) -> Ledger | NoPlace:
        found = self._candidates(ledger, batch, mask)
        if isinstance(found, NoPlace):
            return found
        if found is None:
            return self._members(ledger, batch, mask, topology_score)
        failure = NoPlace("no topology domain has room", batch.subgroup.name)
        for domain in found.masks:
            outcome = self._members(
                ledger.copy(),
                batch,
                domain & mask,
                found.score if found.score is not None else topology_score,
            )
            if isinstance(outcome, Ledger):
                return outcome
            failure = outcome
        return failure

    def _candidates(self, ledger: Ledger, batch: Batch, mask: Mask) -> Candidates | NoPlace | None:
        constraint = batch.subgroup.constraint
        if constraint is None or not ledger.snapshot.policy.plugin("topology"):
            return None
        if constraint.error:
            return NoPlace(constraint.error, batch.subgroup.name)
        tree = ledger.fixed.table.trees[constraint.topology]
        active = [
            place[0]
            for pod in self.gang.pods_below(batch.subgroup)
            if ledger.status(pod) in ACTIVE_ALLOCATED and (place := ledger.place_of(pod)) is not None
        ]
        found = candidates(
            tree,
            constraint,
            batch.all_pods,
            mask,
            ledger.idle,
            ledger.releasing,
            ledger.shared_free(),
            np.array(sorted(set(active)), dtype=np.int64),
        )
        if found.message:
            return NoPlace(found.message, batch.subgroup.name)
        return found

    def _members(
        self, ledger: Ledger, batch: Batch, mask: Mask, topology_score: NDArray[np.float64] | None
    ) -> Ledger | NoPlace:
        if batch.subgroup.leaf:
            for pod in batch.pods:
                failure = self._pod(ledger, pod, mask, topology_score)
                if failure is not None:
                    return failure
            return ledger
        for part in batch.parts:
            outcome = self._subtree(ledger, part, mask, topology_score)
            if isinstance(outcome, NoPlace):
                return outcome
            ledger = outcome
        return ledger

    def _pod(
        self, ledger: Ledger, pod: Pod, mask: Mask, topology_score: NDArray[np.float64] | None
    ) -> NoPlace | None:
        close = ledger.fixed.near and self.gang.group.root.constraint is None and len(self.gang.pods) > 1
        best = ledger.best(pod, mask) if topology_score is None and not close else None
        if best is not None:
            node, idle = best
            if node < 0:
                return NoPlace("", pod=pod)
            put(ledger, pod, node, pipelined=self.pipeline_only or not idle)
            return None
        fitting = ledger.fits(pod, now=False) & mask
        if topology_score is not None:
            fitting &= ~np.isnan(topology_score)
        if pod.spec.gpu.kind is GpuKind.MEMORY:
            self._narrow_quota(ledger, pod, fitting)
        if not fitting.any():
            return NoPlace("", pod=pod)
        now = ledger.fits(pod, now=True)
        extra = ledger.extra_score(pod)
        if close:
            nearness = cliques.closeness(ledger.fixed.table, self._active_nodes(ledger))
            extra = nearness if extra is None else extra + nearness
        value = scores(
            ledger.fixed.table,
            pod,
            fitting,
            ledger.idle,
            ledger.releasing,
            now,
            ledger.shares_room(pod),
            topology_score,
            extra,
        )
        node = int(np.argmax(np.where(fitting, value, -np.inf)))
        put(ledger, pod, node, pipelined=self.pipeline_only or not now[node])
        return None

    def _narrow_quota(self, ledger: Ledger, pod: Pod, fitting: Mask) -> None:
        """Keep nodes where the exact charge of a gpu-memory pod stays within limit and quota (3.7)."""
        for memory in np.unique(ledger.fixed.gpu_memory_mib[fitting]):
            same = ledger.fixed.gpu_memory_mib == memory
            if not within_quota(ledger, self.gang.group, pod, int(np.argmax(same & fitting))):
                fitting &= ~same

    def start_together(self, ledger: Ledger, batch: Batch) -> None:
        """Nominate the batch as a whole when some gang of it cannot start at once (4.2)."""
        if not self.pipeline_only:
            self.pipeline_if_torn(ledger, batch.all_pods)

    def pipeline_if_torn(self, ledger: Ledger, pods: Sequence[Pod]) -> None:
        """Nominate ``pods`` where some gang has promised places and too few solid ones to start."""
        status_of = ledger.status
        for leaf in self.gang.group.root.leaves():
            statuses = [status_of(pod) for pod in self.gang.by_leaf[leaf.name]]
            solid = sum(
                status in ACTIVE_ALLOCATED and status is not PodStatus.PIPELINED for status in statuses
            )
            if PodStatus.PIPELINED in statuses and solid < leaf.minimum:
                for pod in pods:
                    ledger.pipeline(pod)
                return


def put(ledger: Ledger, pod: Pod, node: int, *, pipelined: bool) -> None:
    """Place the pod on the node, choosing GPU groups for a share."""
    if pod.spec.gpu.shares:
        names, now = ledger.choose_groups(pod, node)
        ledger.place(pod, node, names, pipelined=pipelined or not now)
    else:
        ledger.place(pod, node, pipelined=pipelined)
