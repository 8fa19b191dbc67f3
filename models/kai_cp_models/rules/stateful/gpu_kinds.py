"""Kinds of GPUs in queues, an option that KAI lacks: limits and quotas for one product (docs/gpu-kinds.md).

The annotation ``kai-cp/gpu-kinds`` of a queue says how many GPUs of a kind the queue and all queues below it
may hold (limit), and how many their non-preemptible pods may hold (quota). The kind of a GPU is the product
of its node, by label or by DRA. The charge of a pod therefore depends on its place, and the rule is a node
rule: a mask where pods are placed one by one, and one row per queue, kind and bound where a model places them
together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Mask
from kai_cp_models.fairness import amounts
from kai_cp_models.marking import marked
from kai_cp_models.pods import (
    ACTIVE_ALLOCATED,
    ACTIVE_USED,
    GPU,
    MILLI,
    GpuKind,
    Pod,
    PodKey,
    PodSpec,
    PodStatus,
)
from kai_cp_models.records.notes import KINDS, KindBounds, unread_of
from kai_cp_models.rules.stateful.dra.hardware import hardware_labels
from kai_cp_models.rules.stateful.protocol import LeavingState, Row, RuleState
from kai_cp_models.rules.static.table import NodeTable
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import SetAside, Snapshot
from kai_cp_topology.records import PRODUCT_LABEL

NAME: Final = "gpu_kinds"
REASON: Final = "OverGpuKind"
"""The reason token of a pod group that waits only for such a bound."""
UNKNOWN: Final = "unknown"
"""Kind of GPUs whose product neither label nor driver names."""

_ANY: Final = 2**62
"""More than all GPUs there are."""

QueueBounds = Mapping[str, Mapping[str, KindBounds]]
"""By queue and kind."""


class Cell(NamedTuple):
    """A bound on what ``queue`` holds of ``kind``, or on what its non-preemptible (``firm``) pods hold."""

    queue: str
    kind: str
    firm: bool


def active(snapshot: Snapshot, options: OptionalRules) -> bool:
    """Whether the option is on and a queue says anything."""
    return options.gpu_kinds and any(queue.notes.kinds is not None for queue in snapshot.queues)


def open(snapshot: Snapshot) -> RuleState:
    """What queues hold of every kind that has bounds."""
    return KindState(snapshot)


def set_aside(snapshot: Snapshot) -> Iterator[SetAside]:
    """Annotations that cannot be read, and kinds that no node has."""
    problems: list[SetAside] = []
    read(snapshot, problems)
    yield from problems


def problems(snapshot: Snapshot, options: OptionalRules) -> tuple[SetAside, ...]:
    """``set_aside`` where the option is on."""
    return tuple(set_aside(snapshot)) if active(snapshot, options) else ()


def kinds_of(snapshot: Snapshot) -> tuple[str, ...]:
    """The kind of the GPUs of every node."""
    return tuple(labels.get(PRODUCT_LABEL) or UNKNOWN for labels in hardware_labels(snapshot))


def read(snapshot: Snapshot, problems: list[SetAside]) -> QueueBounds:
    """The bounds of queues; an annotation that cannot be read, or that names a kind which no node has, goes
    to ``problems``.
    """
    found: dict[str, Mapping[str, KindBounds]] = {}
    known = {*kinds_of(snapshot), UNKNOWN}
    for queue in snapshot.queues:
        item = f"Queue {queue.name}"
        problems += [SetAside(item, one.reason, one.field) for one in unread_of(queue.notes, (KINDS,))]
        bounds = queue.notes.kinds or {}
        for kind in sorted(bounds.keys() - known):
            there = ", ".join(sorted(known - {UNKNOWN})) or "none that is known"
            field = f"metadata.annotations[{KINDS}].{kind}"
            problems.append(SetAside(item, f"{field}: no node has such GPUs; there are {there}", field))
        if bounds:
            found[queue.name] = bounds
    return found


def told_apart(snapshot: Snapshot) -> Snapshot:
    """The snapshot with different specs for pods under different bounds, because many parts count pods by
    spec."""
    bounds = read(snapshot, [])

    def mark_of(pod: Pod) -> str | None:
        group = snapshot.group_by_key.get(pod.group) if pod.group is not None else None
        path = () if group is None else snapshot.queue_path.get(group.queue, ())
        if group is None or not any(name in bounds for name in path):
            return None
        return f"kinds of {group.queue} {group.preemptible}"

    return replace(snapshot, pods=marked(snapshot.pods, mark_of)) if bounds else snapshot


class KindUse(NamedTuple):
    """What a queue holds of a kind, everything below it included, in milli-GPUs."""

    queue: str
    kind: str
    bounds: KindBounds
    held: int
    firm: int
    """Of ``held``, by non-preemptible pods."""


def holdings(snapshot: Snapshot) -> tuple[KindUse, ...]:
    """What queues hold of the kinds for which they state bounds, by queue and kind."""
    return KindState(snapshot).holdings()


class KindState(LeavingState):
    """What is held under every bound, in milli-GPUs: by pods that stay, and by pods that leave now."""

    name = NAME
    family = "kind-limit"

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._bounds = read(snapshot, [])
        self._kinds = kinds_of(snapshot)
        named = {kind for bounds in self._bounds.values() for kind in bounds}
        self._on = {kind: np.array([one == kind for one in self._kinds], dtype=np.bool_) for kind in named}
        self._cells: dict[tuple[str, bool], tuple[Cell, ...]] = {}
        self._charges: dict[tuple[PodSpec, int], NDArray[np.int64]] = {}
        """[N] the charge of equal pods on every node."""
        self._staying: dict[Cell, int] = {}
        self._leaving: dict[Cell, int] = {}
        self._new: dict[Cell, int] = {}
        """What pods hold that stay and had no place before the cycle."""
        self._placed: dict[PodKey, tuple[Pod, int]] = {}
        index = snapshot.node_index
        self._running = tuple(
            (pod, index[pod.node])
            for pod in snapshot.pods
            if pod.node in index and pod.status in ACTIVE_USED and self.concerns(pod)
        )
        for pod, node in self._running:
            gone = self._leaving if pod.status is PodStatus.RELEASING else self._staying
            self._count(gone, pod, node, 1)
        self._start = dict(self._staying)

    def detach(self) -> None:
        super().detach()
        self._staying, self._leaving, self._new = dict(self._staying), dict(self._leaving), dict(self._new)
        self._placed = dict(self._placed)

    def holdings(self) -> tuple[KindUse, ...]:
        """What every queue with bounds holds at the start."""
        return tuple(
            KindUse(name, kind, at, *(self._start.get(Cell(name, kind, firm), 0) for firm in (False, True)))
            for name, bounds in self._bounds.items()
            for kind, at in bounds.items()
        )

    # --- who is meant ----------------------------------------------------------------------------

    def concerns(self, pod: Pod) -> bool:
        return bool(self._cells_of(pod)) and bool(self._charge(pod).any())

    def identity(self, pod: Pod) -> Hashable:
        return self._cells_of(pod)

    def _cells_of(self, pod: Pod) -> tuple[Cell, ...]:
        """The bounds on a pod: of its queue and all above it."""
        group = self._snapshot.group_by_key.get(pod.group) if pod.group is not None else None
        if group is None:
            return ()
        key = group.queue, group.preemptible
        known = self._cells.get(key)
        if known is None:
            known = self._cells[key] = tuple(
                Cell(name, kind, firm)
                for name in self._snapshot.queue_path.get(group.queue, ())
                for kind in self._bounds.get(name, {})
                for firm in ((False,) if group.preemptible else (False, True))
            )
        return known

    def _charge(self, pod: Pod) -> NDArray[np.int64]:
        key = pod.spec, amounts.claim_milli_gpus(self._snapshot, pod)
        known = self._charges.get(key)
        if known is None:
            snapshot = self._snapshot
            if pod.spec.gpu.kind is GpuKind.MEMORY:
                found = [amounts.accepted(snapshot, pod, node)[GPU] for node in snapshot.nodes]
            else:
                found = [amounts.without_shared_memory(snapshot, pod)[GPU]] * len(snapshot.nodes)
            known = self._charges[key] = np.array(found, dtype=np.int64)
        return known

    def _bound(self, cell: Cell) -> int:
        bounds = self._bounds[cell.queue][cell.kind]
        found = bounds.quota if cell.firm else bounds.limit
        return _ANY if found is None else found

    def _room(self, cell: Cell, pod: Pod | None = None, *, now: bool = False) -> int:
        """The amount still free under a bound; negative where the bound is exceeded.

        ``pod``: one that leaves. It may return as long as no more is held than before and no new pod has
        come.
        """
        bound = self._bound(cell)
        if pod is not None and pod.key in self.left and not self._new.get(cell):
            bound = max(bound, self._start.get(cell, 0))
        return bound - self._staying.get(cell, 0) - (self._leaving.get(cell, 0) if now else 0)

    # --- answers ---------------------------------------------------------------------------------

    def mask(self, pod: Pod, *, now: bool) -> Mask | None:
        allowed: Mask | None = None
        charge = self._charge(pod)
        home = self._snapshot.node_index.get(pod.node or "") if pod.key in self.left else None
        for cell in self._cells_of(pod):
            fits = ~self._on[cell.kind] | (charge <= max(0, self._room(cell, now=now)))
            if home is not None:
                # Elsewhere it would have to start again.
                fits[home] |= charge[home] <= self._room(cell, pod, now=now)
            allowed = fits if allowed is None else allowed & fits
        return allowed

    def refusals(self, pod: Pod) -> str:
        charge = self._charge(pod)
        said = []
        nodes = NodeTable(self._snapshot).accepting(pod)
        for cell in self._cells_of(pod):
            needs = charge[self._on[cell.kind] & nodes]
            if (needs > max(0, self._room(cell))).any():
                said.append(self._words(cell, int(needs.min())))
        return "; ".join(said)

    def alone(self, pods: Sequence[Pod], accepting: Callable[[Pod], Mask]) -> tuple[str, str] | None:
        concerned = [pod for pod in pods if self.concerns(pod)]
        if not concerned:
            return None
        cells = self._cells_of(concerned[0])
        reachable = np.zeros(len(self._kinds), dtype=np.bool_)
        need = most = 0
        for pod in concerned:
            nodes = accepting(pod)
            reachable |= nodes
            least = int(self._charge(pod)[nodes].min(initial=self._charge(pod).max()))
            need, most = need + least, max(most, least)
        kinds = {self._kinds[n] for n in np.flatnonzero(reachable)}
        rooms = {
            kind: min((max(0, self._room(cell)) for cell in cells if cell.kind == kind), default=_ANY)
            for kind in kinds
        }
        free = rooms.values()
        if not rooms or (need <= sum(free) and most <= max(free)):
            return None
        short = [cell for cell in cells if cell.kind in rooms and self._room(cell) < need]
        return REASON, "; ".join(self._words(cell, need) for cell in short)

    def _words(self, cell: Cell, need: int) -> str:
        bound, used = self._bound(cell) / MILLI, self._staying.get(cell, 0) / MILLI
        what, who = ("quota", " by non-preemptible pods") if cell.firm else ("limit", "")
        return (
            f"queue {cell.queue}: {what} {bound:.10g} GPUs of {cell.kind}, used{who} {used:.10g}, "
            f"needs {need / MILLI:.10g}"
        )

    # --- accounting ------------------------------------------------------------------------------

    def place(self, pod: Pod, node: int, *, pipelined: bool) -> None:
        self._enter(pod, node, 1)
        self._placed[pod.key] = pod, node

    def remove(self, pod: Pod, node: int) -> None:
        self._enter(pod, node, -1)
        self._placed.pop(pod.key, None)

    def _enter(self, pod: Pod, node: int, sign: int) -> None:
        self._count(self._staying, pod, node, sign)
        if pod.key not in self.left:
            self._count(self._new, pod, node, sign)

    def _leave(self, pod: Pod, sign: int) -> None:
        node = self._snapshot.node_index.get(pod.node or "")
        if node is not None and pod.status in ACTIVE_ALLOCATED:
            self._count(self._staying, pod, node, -sign)
            self._count(self._leaving, pod, node, sign)

    def _count(self, held: dict[Cell, int], pod: Pod, node: int, sign: int) -> None:
        charge = int(self._charge(pod)[node])
        for cell in self._cells_of(pod):
            if cell.kind == self._kinds[node]:
                held[cell] = held.get(cell, 0) + sign * charge

    def rows(self, classes: Sequence[Pod], sizes: Sequence[int], nodes: Sequence[int]) -> Iterable[Row]:
        """The rows are exact where no bound is exceeded. Under an exceeded bound nothing enters, and the mask
        tests how much has to leave first."""
        asking: dict[Cell, list[int]] = {}
        for c, pod in enumerate(classes):
            for cell in self._cells_of(pod):
                asking.setdefault(cell, []).append(c)
        holding: dict[Cell, dict[PodKey, int]] = {cell: {} for cell in asking}
        staying = (one for one in self._running if one[0].key not in self.left)
        for pod, node in (*staying, *self._placed.values()):
            for cell in self._cells_of(pod):
                if cell in holding and cell.kind == self._kinds[node]:
                    holding[cell][pod.key] = int(self._charge(pod)[node])
        for cell, members in asking.items():
            entering = {
                (c, n): int(self._charge(classes[c])[n])
                for c in members
                for n in nodes
                if self._kinds[n] == cell.kind and self._charge(classes[c])[n]
            }
            if entering and self._bound(cell) < _ANY:
                name = f"{NAME} {cell.queue} {cell.kind}"
                yield Row(entering, max(0, self._room(cell)), holding[cell], name)
