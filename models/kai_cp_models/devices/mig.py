"""Would another MIG partition of the same GPUs admit more pending pods? A report, never a decision.

KAI schedules onto the instances that exist (2.4); which instances exist is for an administrator to
say. Here every GPU of a MIG node with strategy ``mixed`` may be cut anew, as long as the instances in
use remain. Only room counts (instances, cpu, memory, pod slots, static node rules), not queues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from ortools.sat.python import cp_model

from kai_cp_models.rules import STATIC_RULES
from kai_cp_models.rules.table import NodeTable
from kai_cp_models.snapshot import (
    ACTIVE_USED,
    GPU,
    GpuKind,
    Node,
    Plan,
    Pod,
    PodKey,
    PodSpec,
    PodStatus,
    Snapshot,
)

_PROFILE: Final = re.compile(r"nvidia\.com/mig-(\d+)g\.(\d+)gb")
_EIGHTHS: Final = 8
_MIB_PER_GIB: Final = 1024
_STARTS: Final[Mapping[tuple[int, int], tuple[int, ...]]] = {
    (1, 1): (0, 1, 2, 3, 4, 5, 6),
    (1, 2): (0, 2, 4, 6),
    (2, 2): (0, 2, 4),
    (2, 4): (0, 4),
    (3, 4): (0, 4),
    (4, 4): (0,),
    (4, 8): (0,),
    (7, 8): (0,),
}
"""Where an instance may start, in eighths of the GPU's memory, by (compute slices, eighths)."""
_CHANGE_WEIGHT: Final = 1_000
"""One more admitted pod is worth more than any number of changed instances of a node."""

Shape = tuple[int, int]
Pattern = tuple[int, ...]
"""Instances of every shape on one GPU."""


@dataclass(frozen=True)
class Repartition:
    """A node's instances now and as they could be. Names are resource names."""

    node: str
    gpus: int
    now: Mapping[str, int]
    then: Mapping[str, int]


@dataclass(frozen=True)
class MigReport:
    """What cutting GPUs anew would bring: admitted pods now and then, and the changes of nodes."""

    admitted_now: int
    admitted_then: int
    changes: tuple[Repartition, ...]
    admitted: Mapping[str, tuple[PodKey, ...]]
    """Pods that find room then, by node; with the present instances fewer do."""


def mig_report(snapshot: Snapshot, plan: Plan | None = None, *, seconds: float = 2.0) -> MigReport | None:
    """The repartition that admits most pending MIG pods, with fewest changed instances.

    ``plan``: its binds and nominations use instances, its evictions free them. None: there are no
    pending MIG pods, or no repartition admits more of them than the present instances.
    """
    decisions = plan.decisions if plan is not None else ()
    placed = {d.pod: d.node for d in decisions if d.kind != "Evict"}
    gone = {d.pod for d in decisions if d.kind == "Evict"}
    waiting: dict[PodSpec, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.status is PodStatus.PENDING and pod.spec.gpu.kind is GpuKind.MIG and pod.key not in placed:
            waiting.setdefault(pod.spec, []).append(pod)
    shaped = [
        (i, node, shapes) for i, node in enumerate(snapshot.nodes) if (shapes := _shapes(snapshot, node))
    ]
    if not waiting or not shaped:
        return None
    used = np.zeros((len(snapshot.nodes), len(snapshot.dimensions)), dtype=np.int64)
    for pod in snapshot.pods:
        stays = pod.node is not None and pod.status in ACTIVE_USED and pod.key not in gone
        where = placed.get(pod.key, pod.node if stays else None)
        if where is not None:
            used[snapshot.node_index[where]] += pod.spec.requests
    model = _Model(snapshot, waiting, shaped, used)
    return model.report(seconds)


def _shapes(snapshot: Snapshot, node: Node) -> dict[int, Shape]:
    """Shape by dimension of the profiles that the node's GPUs can have; {} where they cannot be cut."""
    if (
        not node.mig_enabled
        or node.mig_strategy != "mixed"
        or not node.gpu_memory_synced
        or node.gpu_count < 1
    ):
        return {}
    found = {}
    for d, name in enumerate(snapshot.dimensions):
        profile = _PROFILE.fullmatch(name)
        if profile is None:
            if name.startswith("nvidia.com/mig-") and node.allocatable[d]:
                return {}
            continue
        gib = node.gpu_memory_mib / _MIB_PER_GIB
        shape = (int(profile[1]), round(int(profile[2]) * _EIGHTHS / gib))
        if shape in _STARTS:
            found[d] = shape
        elif node.allocatable[d]:
            return {}
    return found


@lru_cache(maxsize=256)
def patterns(shapes: tuple[Shape, ...]) -> tuple[Pattern, ...]:
    """All ways to cut one GPU into instances of these shapes that leave no room for another one."""
    cells = [
        (s, sum(1 << cell for cell in range(start, min(start + shape[1], _EIGHTHS))))
        for s, shape in enumerate(shapes)
        for start in _STARTS[shape]
    ]
    found: set[Pattern] = set()

    def extend(begin: int, taken: int, compute: int, counts: Pattern) -> None:
        found.add(counts)
        for i in range(begin, len(cells)):
            s, mask = cells[i]
            if not taken & mask and compute + shapes[s][0] < _EIGHTHS:
                more = tuple(n + (j == s) for j, n in enumerate(counts))
                extend(i + 1, taken | mask, compute + shapes[s][0], more)

    extend(0, 0, 0, (0,) * len(shapes))
    return tuple(sorted(c for c in found if not any(d != c and _covers(d, c) for d in found)))


def _covers(larger: Pattern, smaller: Pattern) -> bool:
    return all(a >= b for a, b in zip(larger, smaller, strict=True))


class _Model:
    """Counts of pods per class and node against instances, present or chosen."""

    def __init__(
        self,
        snapshot: Snapshot,
        waiting: Mapping[PodSpec, Sequence[Pod]],
        shaped: Sequence[tuple[int, Node, Mapping[int, Shape]]],
        used: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    ) -> None:
        self._snapshot = snapshot
        self._classes = sorted(waiting.items(), key=lambda entry: min(pod.sort_key for pod in entry[1]))
        self._shaped = shaped
        self._used = used
        table = NodeTable(snapshot)
        self._accepting = []
        for _, pods in self._classes:
            mask = np.ones(len(snapshot.nodes), dtype=np.bool_)
            for rule in STATIC_RULES:
                # Larger than any node is what a new partition may change.
                allowed = None if rule.NAME == "size" else rule.mask(table, pods[0])
                mask = mask if allowed is None else mask & allowed
            self._accepting.append(mask)

    def report(self, seconds: float) -> MigReport | None:
        """Solve with the present instances, then with instances to be chosen."""
        present, _, _ = self._solve(seconds, cut=False)
        best, chosen, places = self._solve(seconds, cut=True)
        if best <= present:
            return None
        return MigReport(present, best, tuple(self._changes(chosen)), self._admitted(places))

    def _solve(
        self, seconds: float, *, cut: bool
    ) -> tuple[int, dict[tuple[int, int], int], dict[tuple[int, int], int]]:
        """Admitted pods, instances by (node, dimension), and counts by (class, node)."""
        model = cp_model.CpModel()
        x = {
            (c, i): model.new_int_var(0, len(pods), f"x{c},{i}")
            for c, (_, pods) in enumerate(self._classes)
            for i, _, _ in self._shaped
            if self._accepting[c][i]
        }
        for c, (_, pods) in enumerate(self._classes):
            model.add(sum(x[c, i] for i, _, _ in self._shaped if (c, i) in x) <= len(pods))
        counts: dict[tuple[int, int], int | cp_model.LinearExpr] = {}
        changes: list[cp_model.IntVar] = []
        for i, node, shapes in self._shaped:
            for d, total in enumerate(node.allocatable):
                if d not in shapes and d != GPU:
                    self._row(model, x, i, d, total - int(self._used[i, d]))
            if cut:
                options = patterns(tuple(shapes.values()))
                taken = [model.new_int_var(0, node.gpu_count, f"g{i},{p}") for p in range(len(options))]
                model.add(sum(taken) <= node.gpu_count)
            for s, d in enumerate(shapes):
                number: int | cp_model.LinearExpr = node.allocatable[d]
                if cut:
                    made = sum(pattern[s] * n for pattern, n in zip(options, taken, strict=True))
                    kept = model.new_int_var(0, 7 * node.gpu_count, f"k{i},{d}")
                    model.add(kept <= made)
                    number = kept
                    changed = model.new_int_var(0, 7 * node.gpu_count, f"c{i},{d}")
                    model.add(changed >= kept - node.allocatable[d])
                    model.add(changed >= node.allocatable[d] - kept)
                    changes.append(changed)
                counts[i, d] = number
                self._row(model, x, i, d, number - int(self._used[i, d]))
        gain: cp_model.LinearExprT = cp_model.LinearExpr.weighted_sum(
            [*x.values(), *changes], [_CHANGE_WEIGHT] * len(x) + [-1] * len(changes)
        )
        model.maximize(gain)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = 1
        if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return 0, {}, {}
        places = {key: int(solver.value(var)) for key, var in x.items()}
        made_of = {key: int(solver.value(number)) for key, number in counts.items()} if cut else {}
        return sum(places.values()), made_of, places

    def _row(
        self,
        model: cp_model.CpModel,
        x: Mapping[tuple[int, int], cp_model.IntVar],
        node: int,
        d: int,
        room: int | cp_model.LinearExpr,
    ) -> None:
        terms = [
            spec.requests[d] * x[c, node]
            for c, (spec, _) in enumerate(self._classes)
            if (c, node) in x and spec.requests[d]
        ]
        if terms:
            model.add(sum(terms) <= (max(room, 0) if isinstance(room, int) else room))
        elif not isinstance(room, int):
            model.add(room >= 0)

    def _changes(self, chosen: Mapping[tuple[int, int], int]) -> Iterator[Repartition]:
        names = self._snapshot.dimensions
        for i, node, shapes in self._shaped:
            now = {names[d]: node.allocatable[d] for d in shapes if node.allocatable[d]}
            then = {names[d]: chosen[i, d] for d in shapes if chosen[i, d]}
            if now != then:
                yield Repartition(node.name, node.gpu_count, now, then)

    def _admitted(self, places: Mapping[tuple[int, int], int]) -> dict[str, tuple[PodKey, ...]]:
        """Pods by node, the first of each class in task order."""
        found: dict[str, list[PodKey]] = {}
        for c, (_, pods) in enumerate(self._classes):
            left = iter(sorted(pods, key=lambda pod: pod.sort_key))
            for i, node, _ in self._shaped:
                for _ in range(places.get((c, i), 0)):
                    found.setdefault(node.name, []).append(next(left).key)
        return {node: tuple(keys) for node, keys in found.items()}
