"""What may leave in any plan of a cycle: running pods by source, summed up queue by queue.

Sets of sources differ in a few queues, so every sum is made of parts for one queue, and each part is computed
once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import Final

from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.runtime import protected
from kai_cp_models.joint.counting import Counting, Leaving
from kai_cp_models.joint.victim_candidates import charged
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_ALLOCATED, GpuKind, Pod, PodKey, PodStatus
from kai_cp_models.reservations.times import NEVER, TIMES
from kai_cp_models.units import Gang

_LEAVING: Final = (PodStatus.RELEASING, PodStatus.STUCK_IN_RELEASING)
VictimSource = tuple[str, str, float, int]
"""Running pods that may leave: action, queue, minimum runtime in seconds, and the priority that they must be
below."""


@dataclass(frozen=True)
class _Part:
    """What leaves one queue: ``pods``, and those among them that nothing could move."""

    counting: Counting
    pods: tuple[Pod, ...]
    fixed: tuple[Pod, ...]

    @cached_property
    def gives(self) -> Amounts:
        """How much less the queue is charged without them."""
        held = (pod for pod in self.pods if pod.group is not None and pod.status in ACTIVE_ALLOCATED)
        return charged(self.counting.ledger, held)


class Departures:
    """The pods of every set of sources.

    ``base``: the ledger with which the cycle began. ``ended``: pods that may be evicted for their own state.
    """

    def __init__(self, base: Ledger, ended: Iterable[Pod]) -> None:
        self._snapshot = base.snapshot
        self.base = base
        self._ended: dict[str, list[Pod]] = {}
        for pod in ended:
            queue = "" if pod.group is None else self._snapshot.group_by_key[pod.group].queue
            self._ended.setdefault(queue, []).append(pod)
        self.counting = Counting(base, ())
        # No function of its own remembers: that would keep the ledger until the collector finds the cycle.
        self._of_queue: dict[frozenset[VictimSource], _Part] = {}
        self._given: dict[frozenset[VictimSource], Sequence[Amounts]] = {}

    @cached_property
    def ended(self) -> frozenset[VictimSource]:
        """The sources of the pods that no waiting group takes: those that end for their own state, and those
        that give way to a start that was promised or bought."""
        found = {("ended", queue, 0.0, 0) for queue in self._ended}
        if self._starts_due():
            found |= {("reservation", queue, 0.0, 0) for queue in self._snapshot.preemptible_groups}
        return frozenset(found)

    @cached_property
    def firm_ended(self) -> Sequence[Amounts]:
        """For each queue of the book, how much less its non-preemptible groups hold without ``ended``."""
        groups = self._snapshot.group_by_key
        firm = {
            queue: tuple(pod for pod in pods if pod.group and not groups[pod.group].preemptible)
            for queue, pods in self._ended.items()
        }
        return self._summed({queue: _Part(self.counting, pods, ()) for queue, pods in firm.items()})

    def _starts_due(self) -> bool:
        times = self._snapshot.extras[TIMES]
        if times is None:
            return False
        waiting = [group.key for group in self._snapshot.waiting_groups]
        starts = [stored.start for key in waiting if (stored := times.due(key)) is not None]
        return min(starts, default=NEVER) <= times.now or any(times.notes(key).price for key in waiting)

    @cached_property
    def resized(self) -> frozenset[VictimSource]:
        """The sources of the movable shares by memory, which take less of a larger GPU (2.3)."""
        return frozenset(("resized", queue, 0.0, 0) for queue, _ in self.grown)

    @cached_property
    def grown(self) -> Sequence[tuple[str, Amounts]]:
        """Queues with such shares, and the most that they are charged for them."""
        if len(set(self._snapshot.gpu_memory_bounds_mib or ())) < 2:
            return ()
        shares = {queue: [p for p in pods if _resizes(p)] for queue, pods in self._movable.items()}
        return [
            (queue, amounts.total(amounts.most(self._snapshot, pod) for pod in pods))
            for queue, pods in shares.items()
            if pods
        ]

    def gone(self, sources: frozenset[VictimSource], moves: bool) -> Iterator[Pod]:
        """All that may leave, and with ``moves`` all that may move; each once."""
        parts = self._parts(sources).values()
        some = chain.from_iterable(part.fixed if moves else part.pods for part in parts)
        return chain(some, self.movable) if moves else some

    def count(self, sources: frozenset[VictimSource], moves: bool) -> int:
        """How many pods ``gone`` gives."""
        parts = self._parts(sources).values()
        if not moves:
            return sum(len(part.pods) for part in parts)
        return len(self.movable) + sum(len(part.fixed) for part in parts)

    def some_stay(self, sources: frozenset[VictimSource]) -> bool:
        """Whether some action could move a running pod that these do not contain."""
        return self.count(sources, moves=True) > self.count(sources, moves=False)

    def columns(self, sources: frozenset[VictimSource], moves: bool = False) -> Leaving:
        """What all of ``gone`` hold at their places."""
        return self.counting.leaving(self.gone(sources, moves))

    def given(self, sources: frozenset[VictimSource]) -> Sequence[Amounts]:
        """For each queue of the book, how much less it holds when all of some sources have left."""
        if sources not in self._given:
            self._given[sources] = self._summed(self._parts(sources))
        return self._given[sources]

    def _summed(self, parts: Mapping[str, _Part]) -> Sequence[Amounts]:
        return self.base.book.summed((queue, part.gives) for queue, part in parts.items())

    @cached_property
    def movable(self) -> tuple[Pod, ...]:
        """Every running pod that some action could move."""
        return tuple(chain.from_iterable(self._movable.values()))

    def may_move(self, pod: Pod) -> bool:
        """Whether the pod is one of ``movable``."""
        if pod.group is None or pod.status not in ACTIVE_ALLOCATED:
            return False
        gang = self.base.fixed.gangs[pod.group]
        return gang.group.preemptible and (pod.subgroup or "default") in gang.by_leaf

    @cached_property
    def _movable(self) -> Mapping[str, Sequence[Pod]]:
        return {queue: [pod for _, pods in groups for pod in pods] for queue, groups in self._running.items()}

    @cached_property
    def _running(self) -> Mapping[str, Sequence[tuple[Gang, Sequence[Pod]]]]:
        """By queue, the preemptible gangs that run, and their running pods."""
        fixed = self.base.fixed
        return {
            queue: [
                (gang, [pod for pod in gang.pods if pod.status in ACTIVE_ALLOCATED])
                for group in groups
                if group.key in fixed.homes.groups
                for gang in (fixed.gangs[group.key],)
            ]
            for queue, groups in self._snapshot.preemptible_groups.items()
        }

    def moving(self, sources: frozenset[VictimSource], *, pinned: bool) -> Iterator[Pod]:
        """Every running pod that some action could move when those of ``sources`` have left.

        ``pinned``: those of groups with a topology constraint, or those of the others.
        """
        parts, groups = self._parts(sources), self._snapshot.group_by_key
        for queue, pods in self._movable.items():
            keys = {pod.key for pod in parts[queue].pods} if queue in parts else set[PodKey]()
            for pod in pods:
                if pod.group and pod.key not in keys and groups[pod.group].root.constrained == pinned:
                    yield pod

    def _parts(self, sources: frozenset[VictimSource]) -> Mapping[str, _Part]:
        by_queue: dict[str, set[VictimSource]] = {}
        for source in sorted(sources):
            by_queue.setdefault(source[1], set()).add(source)
        parts = {queue: frozenset(some) for queue, some in by_queue.items()}
        self._of_queue |= {some: self._part(some) for some in parts.values() if some not in self._of_queue}
        return {queue: self._of_queue[some] for queue, some in parts.items()}

    def _part(self, sources: frozenset[VictimSource]) -> _Part:
        """What these sources of one queue give together, each pod once."""
        pods: list[Pod] = []
        fixed: tuple[Pod, ...] = ()
        taking: list[tuple[float, float]] = []
        queue = ""
        for action, queue, seconds, priority in sorted(sources):
            if action == "ended":
                pods += self._ended[queue]
                fixed = tuple(pod for pod in pods if not self.may_move(pod))
            elif action == "resized":
                pods += filter(_resizes, self._movable[queue])
            else:
                taking.append((seconds, priority if action == "preempt" else math.inf))
        taken = self._taken(queue, taking) if taking else []
        once = {pod.key: pod for pod in pods + taken}.values() if pods else taken
        return _Part(self.counting, tuple(once), fixed)

    def _taken(self, queue: str, taking: Sequence[tuple[float, float]]) -> list[Pod]:
        """What groups may take of the queue. ``taking``: minimum runtimes, and the priorities below which
        groups may be disturbed."""
        found: list[Pod] = []
        least = cache(lambda own: min((seconds for seconds, below in taking if own < below), default=None))
        for gang, running in self._running.get(queue, ()):
            if (seconds := least(gang.group.priority)) is None:
                continue
            # Whether pods that are leaving count for what a protected group keeps is left open.
            if protected(self._snapshot, gang.group, seconds) and not any(
                pod.status in _LEAVING for pod in gang.pods
            ):
                found += (pod for unit in gang.units_at_first if not unit.whole for pod in unit.pods)
            else:
                found += running
        return found


def _resizes(pod: Pod) -> bool:
    return pod.spec.gpu.kind is GpuKind.MEMORY
