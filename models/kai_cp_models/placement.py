"""Greedy placement of one batch, as KAI places it (4.2, 6, 8): subgroup by subgroup, pod by pod.

It gives the warm start, the last-resort answer, and, where it places all that is admitted, the answer
itself. A batch is placed whole or not at all: with a reason for failure, the ledger is as it was. Where a
model is solved, its counts become places (``disaggregate``).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Literal, NamedTuple

import numpy as np

from kai_cp_models.arrays import Floats, Mask
from kai_cp_models.blame import for_group
from kai_cp_models.domains.choice import candidates
from kai_cp_models.domains.locality import EqualPods, Fabric, FilledPlaces
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.joint.problem import Answer, Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GPU, GpuKind, GroupKey, Pod, PodStatus
from kai_cp_models.refusal import Refusal
from kai_cp_models.scores import scores
from kai_cp_models.snapshot import Subgroup
from kai_cp_models.units import Batch, Gang


def quota_check(ledger: Ledger, ask: Ask, *, lending: bool = False) -> tuple[str, str] | None:
    """(reason token, message) when limits or non-preemptible quota refuse the ask (3.7), else None.
    ``lending``: quotas lend to rollouts, because nothing is evicted for the ask (3.8)."""
    # Only a rule lends, and asks whose pods are not needed need not make them.
    pods = ask.pods if ledger.rules else ()
    return ledger.over_quota(ask.group, pods, ask.kind.shape.optimistic, lending=lending)


def largest_first(asks: Iterable[Ask]) -> list[Ask]:
    """The asks, those of the groups that ask for most first."""
    size, found = Counter[GroupKey](), list(asks)
    for ask in found:
        size[ask.group.key] += sum(map(milli_gpus, ask.pods))
    return sorted(found, key=lambda ask: -size[ask.group.key])


def place_all(ledger: Ledger, asks: Iterable[Ask], *, pipeline_only: bool = False) -> bool:
    """Place the asks one by one; False as soon as one has no place within what its queue may hold."""
    # A share by memory may count for more in its new place, which leaves less to others.
    return not any(
        quota_check(ledger, ask, lending=not pipeline_only)
        or Placer(ask.gang, pipeline_only=pipeline_only).place(ledger, ask.batch)
        for ask in asks
    )


def nominated(ledger: Ledger, ask: Ask) -> bool:
    """Promise the ask a place within what its queue may hold; False: it has none, and nothing changed."""
    if not all(map(ledger.has_room, ask.kind.shape.examples)) or quota_check(ledger, ask) is not None:
        return False
    return started(ledger, ask)


def started(ledger: Ledger, ask: Ask) -> bool:
    """Promise the ask places that complete its gang's minimum; False: there are none, nothing changed."""
    ledger.mark()
    placed = Placer(ask.gang, pipeline_only=True).place(ledger, ask.batch) is None
    return ledger.close(kept=placed and ledger.state(ask.gang).satisfied)


def bound(ledger: Ledger, pods: Iterable[Pod]) -> bool:
    """Whether all these pods are bound in this cycle."""
    return {PodStatus.ALLOCATED} >= set(map(ledger.status, pods))


def start_elsewhere(ledger: Ledger, ask: Ask) -> bool:
    """Bind all pods of an ask, which has places, wherever they fit now. False: they do not, and keep them."""
    if ledger.relied_on(ask.pods):
        return False
    ledger.mark()
    for pod in ask.pods:
        ledger.unplace(pod)
    placer = Placer(ask.gang, only="now")
    fits = quota_check(ledger, ask, lending=True) is None and placer.place(ledger, ask.batch) is None
    return ledger.close(kept=fits and bound(ledger, ask.pods))


class _Area(NamedTuple):
    """Where a subtree may go.

    ``mask``: [N] nodes; None: all. ``score``: [N] topology score (8.4). ``close``: nodes for pods with whole
    GPUs. ``scale``: position of the scale of that place, beyond the last one for none.
    """

    mask: Mask | None = None
    score: Floats | None = None
    close: Mask | None = None
    scale: int = sys.maxsize

    @property
    def for_gpus(self) -> Mask | None:
        """[N] nodes for pods with whole GPUs."""
        return self.mask if self.close is None else self.inside(self.close)

    def inside(self, nodes: Mask) -> Mask:
        """[N] those of ``nodes`` that lie in the area."""
        return nodes if self.mask is None else nodes & self.mask


_ANYWHERE: Final = _Area()


@dataclass
class Placer:
    """Places batches of one pod group in ledgers.

    ``pipeline_only``: every place is a promise (the simulations of eviction actions, 4.7). ``only``: those
    nodes count that the pods are nominated to, or that take a pod now; None: all.
    """

    gang: Gang
    pipeline_only: bool = False
    only: Literal["nominated", "now"] | None = None
    _evenly: bool = field(default=False, init=False)
    """Whether shares take the devices that are free most, see ``Ledger.choose_groups``."""
    _filled: tuple[FilledPlaces, Mask] | None = field(default=None, init=False)
    """The places that are being filled, and the nodes in all of them."""
    _whole: Subgroup | None = field(default=None, init=False)
    """What all of the batch is below."""

    @for_group(lambda placer, *_: placer.gang.group.key)
    def place(self, ledger: Ledger, batch: Batch) -> Refusal | None:
        """Place the batch in the ledger, or say why it has no place and leave the ledger as it was."""
        self._whole = batch.subgroup
        failure = self._subtree(ledger, batch, _ANYWHERE)
        if failure is not None and self.only == "nominated":
            # The plan that promised the places may have chosen the devices so.
            self._evenly = True
            failure = self._subtree(ledger, batch, _ANYWHERE)
        if failure is None:
            self.start_together(ledger, batch.all_pods)
        return failure

    def _close(self, ledger: Ledger, batch: Batch, area: _Area) -> bool:
        """Place the batch in the closest place inside ``area``, if it starts there as it would elsewhere."""
        self._filled = None
        if len(self.gang.pods) < 2 or self.only == "nominated":
            return False
        if (fabric := ledger.fixed.close_fabric) is None:
            return False
        pods = [pod for pod in batch.all_pods if pod.spec.requests[GPU]]
        part, now = batch.subgroup is not self._whole, not self.pipeline_only
        # Parts of a gang with a preferred level follow KAI's scores of its domains (8.4).
        if not pods or (part and area.score is not None):
            return False
        present = ledger.active_nodes(self.gang, batch.subgroup)
        if len(pods) < 2 and not len(present):
            return False
        counts, examples = Counter(pod.spec for pod in pods), {pod.spec: pod for pod in pods}.items()
        places = fabric.holding(
            [EqualPods(counts[x], x.requests[GPU], ledger.slots(one, now=now)) for x, one in examples],
            (ledger.idle if now else ledger.free)[:, GPU],
            area.for_gpus,
            present,
            begun=ledger.active_nodes(self.gang, self.gang.group.root) if part else None,
            below=area.scale,
            single=ledger.snapshot.policy.gpu_strategy != "spread",
        )
        for position, place in places:
            ledger.mark()
            fits = self._members(ledger, batch, area._replace(close=place, scale=position)) is None
            if ledger.close(kept=fits and (self.pipeline_only or bound(ledger, batch.all_pods))):
                return True
        self._filled = None
        return False

    def _subtree(self, ledger: Ledger, batch: Batch, area: _Area) -> Refusal | None:
        """Place the batch, or say why not and leave the ledger as it was."""
        if isinstance(areas := self._areas(ledger, batch, area), Refusal):
            return areas
        failure: Refusal | None = None
        for inside in areas:
            failure = None if self._close(ledger, batch, inside) else self._members(ledger, batch, inside)
            if failure is None:
                return None
        return failure or Refusal("TopologyFragmented", "no topology domain has enough free capacity")

    def _areas(self, ledger: Ledger, batch: Batch, area: _Area) -> Iterable[_Area] | Refusal:
        """The parts of the area where the batch may go by its own constraint, in the order to try (8.3)."""
        constraint = batch.subgroup.constraint
        if constraint is None or not ledger.snapshot.policy.plugin("topology"):
            return (area,)
        if constraint.error:
            return Refusal("TopologyFragmented", constraint.error)
        tree = ledger.fixed.table.trees[constraint.topology]
        within = area.for_gpus if all(pod.spec.requests[GPU] for pod in batch.all_pods) else area.mask
        found = candidates(
            tree,
            constraint,
            batch.all_pods,
            np.ones(len(tree.member), dtype=bool) if within is None else within,
            ledger.free,
            shared_free=ledger.shared_free(),
            active_nodes=ledger.active_nodes(self.gang, batch.subgroup),
        )
        if found.message:
            return Refusal("TopologyFragmented", found.message)
        score = area.score if found.score is None else found.score
        return (area._replace(mask=area.inside(domain), score=score) for domain in found.masks)

    def _members(self, ledger: Ledger, batch: Batch, area: _Area) -> Refusal | None:
        """Place pods or parts one after the other; one that finds no place changes nothing."""
        if len(batch.pods) == 1:
            return self._pod(ledger, batch.pods[0], area)
        ledger.mark()
        pods = (self._pod(ledger, pod, area) for pod in batch.pods)
        parts = (self._subtree(ledger, part, area) for part in batch.parts)
        failure = next(filter(None, chain(pods, parts)), None)
        ledger.close(kept=failure is None)
        return failure

    def _pod(self, ledger: Ledger, pod: Pod, area: _Area) -> Refusal | None:
        node, idle = self._best(ledger, pod, area)
        if node < 0:
            # The message is made later (``explain``), only for groups that still wait at the end.
            return Refusal("NodeFragmented", pod=pod)
        ledger.place(pod, node, pipelined=self.pipeline_only or not idle, evenly=self._evenly)
        return None

    def _best(self, ledger: Ledger, pod: Pod, area: _Area) -> tuple[int, bool]:
        """The node for the pod, and whether the pod fits what is idle there; -1: it fits no node."""
        within = area.for_gpus if pod.spec.requests[GPU] else area.mask
        if self.only == "nominated":
            return self._nominated(ledger, pod, within, area.score)
        if self.only is not None:
            able = ledger.fits(pod, now=True)
            within = able if within is None else within & able
        fabric, ranked = self._to_fill(ledger, pod, area), area.score is None
        if ranked and fabric is None and (best := ledger.best(pod, within)) is not None:
            return best
        fitting = ledger.fits(pod, now=False)
        if within is not None:
            fitting &= within
        if area.score is not None:
            fitting &= ~np.isnan(area.score)
        if pod.spec.gpu.kind is GpuKind.MEMORY:
            self._narrow_quota(ledger, pod, fitting)
        if not fitting.any():
            return -1, False
        now = ledger.fits(pod, now=True)
        extra = [score for rule in ledger.rules if (score := rule.score(pod)) is not None]
        if fabric is not None:
            filled, place = self._filling(ledger, fabric, pod, fitting, now)
            if ranked and (best := ledger.best(pod, place)) is not None:
                return best
            extra.append(fabric.closeness(filled))
        value = scores(
            ledger.fixed.table,
            pod,
            fitting,
            ledger.free,
            fits_now=now,
            fits_shared=ledger.view(pod).shared,
            topology_score=area.score,
            extra=sum(extra),
        )
        node = int(np.argmax(np.where(fitting, value, -np.inf)))
        return node, bool(now[node])

    def _nominated(
        self, ledger: Ledger, pod: Pod, within: Mask | None, score: Floats | None
    ) -> tuple[int, bool]:
        """The same where only the node counts that the pod is nominated to."""
        node = ledger.nominated_to(pod)
        if node < 0 or not (within is None or within[node]) or (score is not None and np.isnan(score[node])):
            return -1, False
        if not ledger.fits_on(pod, node, now=False) or not self._affords(ledger, pod, node):
            return -1, False
        return node, ledger.fits_on(pod, node, now=True)

    def _to_fill(self, ledger: Ledger, pod: Pod, area: _Area) -> Fabric | None:
        """The fabric where the pod is one of a gang that fills one place before the next."""
        one = len(self.gang.pods) < 2 or not pod.spec.requests[GPU]
        fabric = None if one else ledger.fixed.close_fabric
        return fabric if fabric and fabric.closest < min(area.scale, len(fabric.scales)) else None

    def _filling(
        self, ledger: Ledger, fabric: Fabric, pod: Pod, fitting: Mask, now: Mask
    ) -> tuple[FilledPlaces, Mask]:
        """The places that a gang fills before the next ones, and their nodes that take the pod."""
        at_once = fitting & now
        usable = at_once if at_once.any() else fitting
        if self._filled is None or not (usable & self._filled[1]).any():
            present = ledger.active_nodes(self.gang, self.gang.group.root)
            self._filled = fabric.filling(ledger.slots(pod, now=False), usable, present)
        return self._filled[0], usable & self._filled[1]

    def _narrow_quota(self, ledger: Ledger, pod: Pod, fitting: Mask) -> None:
        """Keep nodes where the exact charge of a gpu-memory pod stays within limit and quota (3.7)."""
        memories = ledger.fixed.table.gpu_memory_mib
        for memory in np.unique(memories[fitting]):
            same = memories == memory
            if not self._affords(ledger, pod, int(np.argmax(same & fitting))):
                fitting &= ~same

    def _affords(self, ledger: Ledger, pod: Pod, node: int) -> bool:
        """Whether limit and quota permit the exact charge of the pod on the node (3.7), if it asks for memory
        of a GPU; others are charged the same on every node."""
        if pod.spec.gpu.kind is not GpuKind.MEMORY:
            return True
        charge, lending = ledger.fixed.charge(pod, node), not self.pipeline_only
        return ledger.over_quota(self.gang.group, (pod,), charge, lending=lending) is None

    def start_together(self, ledger: Ledger, pods: Sequence[Pod]) -> None:
        """Nominate these pods of the gang if it has promised places and too few solid ones to start (4.2)."""
        if self.pipeline_only or len(self.gang.pods) < 2:
            return
        if self.gang.waits(ledger.tally(self.gang)):
            for pod in pods:
                ledger.pipeline(pod)


def disaggregate(ledger: Ledger, answer: Answer, *, pipeline_only: bool) -> Ledger | None:
    """A ledger with the evictions and places of a solved model, pod by pod; None where a place does not fit,
    because the model holds a relaxation of a rule."""
    result = ledger.without(answer.gone)
    moved = [pod for pod in answer.gone if pod.key in answer.moved]
    fresh: dict[tuple[int, int], str] = {}
    # What memory of a GPU is charged depends on the node, and the model counts with the largest GPUs.
    pods = chain(moved, *(ask.pods for ask in answer.asks))
    by_node = any(pod.spec.gpu.kind is GpuKind.MEMORY for pod in pods)

    def put(pod: Pod, *, promised: bool) -> bool:
        node, names = answer.places[pod.key]
        if not result.fits_on(pod, node, now=False):
            return False
        if by_node and pod.group:
            group, charge = result.snapshot.group_by_key[pod.group], result.fixed.charge(pod, node)
            if result.over_quota(group, (pod,), charge, lending=not promised):
                return False
        groups: list[str] = []
        for name in names:
            if isinstance(name, int):
                if (node, name) not in fresh:
                    fresh[node, name] = result.fresh_group(pod, node, taken=groups)
                name = fresh[node, name]
            groups.append(name)
        if groups and not result.devices_free(pod, node, groups, now=False):
            return False
        later = promised or not result.fits_on(pod, node, now=True)
        result.place(pod, node, tuple(groups), pipelined=later)
        return True

    def put_all(left: Sequence[Pod], *, promised: bool) -> bool:
        """Place the pods, those first that open nodes to others."""
        while left and len(later := [pod for pod in left if not put(pod, promised=promised)]) < len(left):
            left = later
        return not left

    if not put_all(moved, promised=True):
        return None
    for ask in answer.asks:
        if not put_all(ask.pods, promised=pipeline_only):
            return None
        Placer(ask.gang, pipeline_only=pipeline_only).start_together(result, ask.pods)
    return result
