"""Held capacity: a stateful node rule that keeps reserved capacity from every other placement (12.8).

It is one of the ledger's rules, so it binds allocate, moves of consolidation, reclaim, preempt and every
later placement. Where pods are placed one by one it is a mask; where a model places them together it adds
rows. At the start of every reservation, whatever is there by then must fit beside it: pods that run on, pods
placed in this cycle that do not end by then, and all other holds.

A group that could preempt the holder if the holder ran ignores the hold, unless ``strict``; the capacity it
takes is planned again afterwards. A holder ignores its own hold. Once any pod of the holder has a place, its
hold is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GPU, MILLI, GroupKey, Pod, PodKey
from kai_cp_models.reservations.times import NEVER, TIMES, Times
from kai_cp_models.reservations.vectors import demand
from kai_cp_models.rules.stateful.protocol import LeavingState, Row, RuleState
from kai_cp_models.settings import OptionalRules
from kai_cp_models.shown import plural
from kai_cp_models.snapshot import SetAside, Snapshot

if TYPE_CHECKING:
    from kai_cp_models.ledger import Ledger
    from kai_cp_models.reservations.timeline import Timeline

NAME: Final = "reservations"

_HOUR: Final = 3600.0


@dataclass(frozen=True, eq=False)
class HeldAmounts:
    """Capacity that a group holds. ``usage``: [D] by node position."""

    group: GroupKey
    start: float
    end: float
    usage: Mapping[int, Ints]
    draining: bool = False
    """Whether it has no start: the places are closed to all pods that cannot be evicted at any time."""

    def active(self, instant: float) -> bool:
        """Whether the holder will run at an instant."""
        return self.start <= instant < self.end


@dataclass(frozen=True)
class HoldWindow:
    """How pods of a group count in held capacity: until when, whether they yield to holds, and whose holds
    they ignore."""

    until: float = NEVER
    gives_way: bool = False
    ignores: frozenset[GroupKey] = frozenset()
    drained: bool = False
    """Whether it may start on places that are closed until they are empty."""


def active(snapshot: Snapshot, options: OptionalRules) -> bool:
    """Whether reservations are switched on."""
    times = snapshot.extras[TIMES]
    return times is not None and times.settings.reservations.enabled


def open(snapshot: Snapshot) -> RuleState:
    """No holds yet. Raises ``ValueError`` where reservations are off."""
    times = snapshot.extras[TIMES]
    if times is None:
        raise ValueError("the time axis is off")
    return HeldRoom(times)


def set_aside(snapshot: Snapshot) -> Iterator[SetAside]:
    """Annotations that are wrong are named by the plan."""
    yield from ()


@contextmanager
def lifted(ledger: Ledger, keys: Collection[GroupKey]) -> Iterator[None]:
    """Meanwhile the holds of ``keys`` bind no group in the ledger, and no group ignores any other hold.

    Afterwards the account of the holds is as it was before.
    """
    before = next(rule for rule in ledger.rules if isinstance(rule, HeldRoom))
    before.without(keys).bind(ledger)
    yield
    before.bind(ledger)


class HeldRoom(LeavingState):
    """The holds of one state, and what is free beside them at each of their starts."""

    name = NAME

    def __init__(self, times: Times) -> None:
        super().__init__()
        self._times = times
        self._count = len(times.snapshot.nodes)
        self.claims: tuple[HeldAmounts, ...] = ()
        self._windows: Mapping[GroupKey, HoldWindow] = {}
        self._ends: Mapping[PodKey, float] = {}
        self._instants: NDArray[np.float64] = np.zeros(0)
        self._nodes: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._row: dict[int, int] = {}
        self._room: NDArray[np.int64] = np.zeros((0, 0, 0), dtype=np.int64)
        self._started: dict[GroupKey, int] = {}
        self._lost_gpu_hours = 0.0
        self.strict = False

    @classmethod
    def of(
        cls,
        timeline: Timeline,
        claims: Sequence[HeldAmounts],
        windows: Mapping[GroupKey, HoldWindow],
        *,
        strict: bool,
    ) -> HeldRoom:
        """The holds ``claims`` in the state that ``timeline`` shows.

        ``strict``: no group ignores a hold of another.
        """
        occupancy = timeline.occupancy
        found = cls(occupancy.times)
        found.claims, found._windows, found.strict = tuple(claims), windows, strict
        found._instants = np.array(sorted({claim.start for claim in claims}), dtype=np.float64)
        found._nodes = np.array(sorted({n for claim in claims for n in claim.usage}), dtype=np.int64)
        found._row = {int(node): h for h, node in enumerate(found._nodes)}
        width = len(occupancy.times.snapshot.dimensions)
        found._room = np.array([timeline.free(t)[found._nodes] for t in found._instants], dtype=np.int64)
        found._room = found._room.reshape(len(found._instants), len(found._nodes), width)
        by_key = occupancy.times.snapshot.pod_by_key
        found._ends, found.left = occupancy.ends_of_pods, set(timeline.ledger.evicted)
        for key in timeline.ledger.held:
            group = by_key[key].group
            if group is not None and found._holds(group):
                found._started[group] = found._started.get(group, 0) + 1
        return found

    def bind(self, ledger: Ledger) -> None:
        """Let these holds bind every placement in the ledger from now on, and no others."""
        ledger.rules = tuple(self if isinstance(rule, HeldRoom) else rule for rule in ledger.rules)

    def without(self, keys: Collection[GroupKey]) -> HeldRoom:
        """A copy in which holds of ``keys`` bind no group, and none ignores any other."""
        found = self.copy()
        found.claims, found.strict = tuple(claim for claim in self.claims if claim.group not in keys), True
        return found

    def detach(self) -> None:
        super().detach()
        if self.claims:
            self._room = self._room.copy()
            self._started = dict(self._started)

    def concerns(self, pod: Pod) -> bool:
        return bool(self.claims)

    def identity(self, pod: Pod) -> Hashable:
        return self._windows.get(pod.group) if pod.group is not None else None

    def _holds(self, group: GroupKey) -> bool:
        return any(claim.group == group for claim in self.claims)

    def _window(self, pod: Pod) -> HoldWindow:
        found = self._windows.get(pod.group) if pod.group is not None else None
        return found or HoldWindow()

    def _ignored(self, pod: Pod) -> frozenset[GroupKey]:
        """Holds that do not bind the pod."""
        own = frozenset((pod.group,)) if pod.group is not None else frozenset[GroupKey]()
        gone = frozenset(self._started)
        if self._window(pod).drained:
            gone |= frozenset(claim.group for claim in self.claims if claim.draining)
        return own | gone if self.strict else own | gone | self._window(pod).ignores

    def _binding(self, ignored: frozenset[GroupKey]) -> list[HeldAmounts]:
        return [claim for claim in self.claims if claim.group not in ignored]

    def _left(self, k: int, claims: Iterable[HeldAmounts]) -> NDArray[np.int64]:
        """[H, D] free at the k-th start beside the given holds."""
        room: NDArray[np.int64] = self._room[k].copy()
        for claim in claims:
            if claim.active(float(self._instants[k])):
                for node, usage in claim.usage.items():
                    room[self._row[node]] -= usage
        return room

    def mask(self, pod: Pod, *, now: bool) -> Mask | None:
        claims = self._binding(self._ignored(pod))
        window = self._window(pod)
        if not claims:
            return None
        if window.gives_way:
            return self._within_loss(pod, claims)
        need = demand(pod)
        asked = np.flatnonzero(need)
        fits = np.ones(len(self._nodes), dtype=bool)
        until = np.full(len(self._nodes), window.until)
        if pod.key in self.left and (home := self._home(pod)) is not None:
            # There it runs on as if it had never left, and ends when it would have.
            until[home] = self._ends.get(pod.key, NEVER)
        starts = {claim.start for claim in claims}
        for k, instant in enumerate(self._instants.tolist()):
            if instant in starts:
                left = self._left(k, claims)
                held = np.zeros(len(self._nodes), dtype=bool)
                for claim in claims:
                    if claim.active(instant):
                        held[[self._row[node] for node in claim.usage]] = True
                fits &= ~held | (until <= instant) | (left[:, asked] >= need[asked]).all(axis=1)
        return self._everywhere(fits)

    def _everywhere(self, fits: Mask) -> Mask:
        mask = np.ones(self._count, dtype=bool)
        mask[self._nodes] = fits
        return mask

    def _within_loss(self, pod: Pod, claims: Sequence[HeldAmounts]) -> Mask | None:
        """Nodes where the work lost at the start stays within the loss that the settings allow."""
        most = self._times.settings.reservations.max_backfill_loss_gpu_hours
        if most < 0:
            return None
        fits = np.ones(len(self._nodes), dtype=bool)
        for node, h in self._row.items():
            fits[h] = self._lost_gpu_hours + self._loss(pod, node, claims) <= most
        return self._everywhere(fits)

    def _loss(self, pod: Pod, node: int, claims: Sequence[HeldAmounts]) -> float:
        starts = [claim.start for claim in claims if node in claim.usage]
        return int(demand(pod)[GPU]) / MILLI * (min(starts) - self._times.now) / _HOUR if starts else 0.0

    def refusals(self, pod: Pod) -> str:
        mask = self.mask(pod, now=False)
        held = 0 if mask is None else int(np.count_nonzero(~mask))
        names = sorted({str(claim.group) for claim in self._binding(self._ignored(pod))})[: LIMITS.named]
        return f"{plural(held, 'node')} held for {', '.join(names)}" if held else ""

    def place(self, pod: Pod, node: int, *, pipelined: bool) -> None:
        self._count_pod(pod, node, 1)

    def remove(self, pod: Pod, node: int) -> None:
        self._count_pod(pod, node, -1)

    def _count_pod(self, pod: Pod, node: int, sign: int) -> None:
        group = pod.group
        window = self._window(pod)
        if group is not None and self._holds(group):
            left = self._started.get(group, 0) + sign
            if left > 0:
                self._started[group] = left
            else:
                self._started.pop(group, None)
        h = self._row.get(node)
        if h is None:
            return
        if window.gives_way:
            self._lost_gpu_hours += sign * self._loss(pod, node, self._binding(self._ignored(pod)))
            return
        self._room[self._instants < window.until, h] -= sign * demand(pod)

    def _home(self, pod: Pod) -> int | None:
        """The row of the held node where a pod runs."""
        return self._row.get(self._times.snapshot.node_index.get(pod.node or "", -1))

    def _leave(self, pod: Pod, sign: int) -> None:
        if (h := self._home(pod)) is not None:
            self._room[self._instants < self._ends.get(pod.key, NEVER), h] += sign * demand(pod)

    def rows(self, classes: Sequence[Pod], sizes: Sequence[int], nodes: Sequence[int]) -> Iterable[Row]:
        """Rows for each start: what enters held nodes and is still there then must fit into what is free
        beside the holds.

        The rows are exact while no group ignores a hold and no holder asks. Otherwise every set of ignored
        holds has rows of its own.
        """
        ignored = [self._ignored(pod) for pod in classes]
        windows = [self._window(pod) for pod in classes]
        needs = [demand(pod) for pod in classes]
        leaving = self._leaving()
        for without in sorted(set(ignored), key=lambda keys: (len(keys), sorted(keys))):
            claims = self._binding(without)
            starts = {claim.start for claim in claims}
            counted = [c for c in range(len(classes)) if ignored[c] <= without and not windows[c].gives_way]
            for k, instant in enumerate(self._instants.tolist()):
                present = [c for c in counted if instant < windows[c].until]
                if instant in starts and present:
                    left = self._left(k, claims)
                    held = sorted({n for claim in claims if claim.active(instant) for n in claim.usage})
                    for node in held:
                        yield from self._node_rows(node, left, present, needs, leaving, instant=instant)

    def _node_rows(
        self,
        node: int,
        left: NDArray[np.int64],
        present: Sequence[int],
        needs: Sequence[Ints],
        leaving: Mapping[int, Sequence[Pod]],
        *,
        instant: float,
    ) -> Iterator[Row]:
        for d in range(left.shape[1]):
            entering = {(c, node): int(needs[c][d]) for c in present if needs[c][d]}
            if entering:
                freed = {
                    pod.key: int(demand(pod)[d])
                    for pod in leaving.get(node, ())
                    if instant < self._ends.get(pod.key, NEVER)
                }
                # Where a hold is broken already, nothing may enter; the mask knows how much has to leave.
                yield Row(entering, max(0, int(left[self._row[node], d])), freed, NAME)

    def _leaving(self) -> dict[int, list[Pod]]:
        """Pods that run on held nodes."""
        found: dict[int, list[Pod]] = {}
        index = self._times.snapshot.node_index
        for pod in self._times.snapshot.pods:
            node = index.get(pod.node or "")
            if node in self._row:
                found.setdefault(node, []).append(pod)
        return found
