"""Would another MIG partition of the same GPUs admit more pending pods? Advice, never a decision.

KAI schedules onto the instances that exist (2.4); which instances exist is for an administrator to
say. Here every GPU of a MIG node with strategy ``mixed`` may be partitioned again, as long as the instances
in use remain. Only capacity counts (instances, CPU, memory, pod slots, static node rules), not queues.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np

from kai_cp_models.limits import LIMITS
from kai_cp_models.migs import MIG_PREFIX, instances
from kai_cp_models.plan import CUT, Plan, Stage, Unscheduled
from kai_cp_models.pods import ACTIVE_USED, GPU, GpuKind, GroupKey, Pod, PodKey, PodSpec, PodStatus
from kai_cp_models.reasons import NOT_FOR_CAPACITY
from kai_cp_models.rules.static import STATIC_RULES
from kai_cp_models.rules.static.table import NodeTable
from kai_cp_models.snapshot import Node, Snapshot
from kai_cp_models.solver import cp_model, run

_PROFILE: Final = re.compile(re.escape(MIG_PREFIX) + r"(\d+)g\.(\d+)gb")
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
_SHOWN: Final = 3
"""Nodes that a message names."""
Shape = tuple[int, int]
MigPattern = tuple[int, ...]
"""Instances of every shape on one GPU."""


@dataclass(frozen=True)
class Repartition:
    """A node's instances now and as they could be. Names are resource names."""

    node: str
    gpus: int
    now: Mapping[str, int]
    then: Mapping[str, int]

    def __str__(self) -> str:
        return f"{instances(self.then)} instead of {instances(self.now)}"


@dataclass(frozen=True)
class MigReport:
    """What another partition would bring: admitted pods now and with it, and the changes of nodes."""

    admitted_now: int
    admitted_then: int
    changes: tuple[Repartition, ...]
    admitted: Mapping[str, tuple[PodKey, ...]]
    """Pods that fit with the new partition, by node; with the present instances fewer do."""

    def __str__(self) -> str:
        shown = [f"{change.node}: {change}" for change in self.changes[:_SHOWN]]
        if len(self.changes) > _SHOWN:
            shown.append(f"{len(self.changes) - _SHOWN} more nodes")
        return (
            f"another MIG partition would fit {self.admitted_then} of the waiting pods instead of "
            f"{self.admitted_now} ({'; '.join(shown)})"
        )


def advised(snapshot: Snapshot, plan: Plan, *, seconds: float) -> Plan:
    """The plan, in which pod groups that another partition would help say so; the same plan if there are
    none.

    Their messages say so, and ``details["migPartition"]`` holds the numbers. ``seconds``: until it must be
    there; a stage says that it is not.
    """
    try:
        report = mig_report(snapshot, plan, seconds=seconds)
    except TimeoutError:
        return replace(plan, stages=(*plan.stages, Stage("MIG partition", "", "FEASIBLE", gap=1.0, kind=CUT)))
    if report is None:
        return plan
    helped: dict[GroupKey, int] = {}
    for key in (key for keys in report.admitted.values() for key in keys):
        group = snapshot.pod_by_key[key].group
        if group is not None:
            helped[group] = helped.get(group, 0) + 1
    nodes = [{"node": c.node, "now": dict(c.now), "then": dict(c.then)} for c in report.changes]

    def told(entry: Unscheduled) -> Unscheduled:
        details: dict[str, Any] = {
            **entry.details,
            "migPartition": {
                "pods": helped[entry.group],
                "podsInAllNow": report.admitted_now,
                "podsInAllThen": report.admitted_then,
                "nodes": nodes,
            },
        }
        return entry._replace(message=f"{entry.message}; {report}".lstrip("; "), details=details)

    entries = tuple(told(entry) if entry.group in helped else entry for entry in plan.unscheduled)
    return replace(plan, unscheduled=entries)


def mig_report(snapshot: Snapshot, plan: Plan | None = None, *, seconds: float = inf) -> MigReport | None:
    """The repartition that admits most pending MIG pods, with few changed instances.

    ``plan``: its binds and nominations use instances, its evictions free them, and pods that it lets wait
    for other reasons than capacity are left out. ``seconds``: the time for the answer. None: there are no
    pending MIG pods, or no repartition admits more of them than the present instances. Raises
    ``TimeoutError`` if the time is too short, so that advice never depends on the load.
    """
    ends = time.monotonic() + seconds
    if not any(spec.gpu.kind is GpuKind.MIG for spec in snapshot.specs):
        return None
    decisions = plan.decisions if plan is not None else ()
    unscheduled = plan.unscheduled if plan is not None else ()
    elsewhere = {entry.group for entry in unscheduled if entry.reason in NOT_FOR_CAPACITY}
    placed = {d.pod: d.node for d in decisions if d.kind != "Evict"}
    gone = {d.pod for d in decisions if d.kind == "Evict"}
    waiting: dict[PodSpec, list[Pod]] = {}
    for pod in snapshot.pods:
        asks = pod.status is PodStatus.PENDING and pod.spec.gpu.kind is GpuKind.MIG
        if asks and pod.key not in placed and pod.group not in elsewhere:
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
    return model.report(ends)


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
            if name.startswith(MIG_PREFIX) and node.allocatable[d]:
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
def patterns(shapes: tuple[Shape, ...]) -> tuple[MigPattern, ...]:
    """All ways to divide one GPU into instances of these shapes so that no other instance fits."""
    cells = [
        (s, sum(1 << cell for cell in range(start, min(start + shape[1], _EIGHTHS))))
        for s, shape in enumerate(shapes)
        for start in _STARTS[shape]
    ]
    found: set[MigPattern] = set()

    def extend(begin: int, taken: int, compute: int, counts: MigPattern) -> None:
        found.add(counts)
        for i in range(begin, len(cells)):
            s, mask = cells[i]
            if not taken & mask and compute + shapes[s][0] < _EIGHTHS:
                more = tuple(n + (j == s) for j, n in enumerate(counts))
                extend(i + 1, taken | mask, compute + shapes[s][0], more)

    extend(0, 0, 0, (0,) * len(shapes))
    return tuple(sorted(c for c in found if not any(d != c and _covers(d, c) for d in found)))


def _covers(larger: MigPattern, smaller: MigPattern) -> bool:
    return all(a >= b for a, b in zip(larger, smaller, strict=True))


class _Partition(NamedTuple):
    """A model. ``pods``: of each class on each node. ``instances``: of each node, by their dimension.
    ``changes``: by how much they differ from those that are there.
    """

    model: cp_model.CpModel
    pods: dict[tuple[int, int], cp_model.IntVar]
    instances: dict[tuple[int, int], cp_model.IntVar]
    changes: list[cp_model.IntVar]


class _Solved(NamedTuple):
    """Admitted pods, counts by (class, node), instances by (node, dimension) of the nodes cut again."""

    pods: int
    places: Mapping[tuple[int, int], int]
    instances: Mapping[tuple[int, int], int]


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
                # A request larger than any node is what a new partition may help.
                allowed = None if rule.NAME == "size" else rule.mask(table, pods[0])
                mask = mask if allowed is None else mask & allowed
            self._accepting.append(mask)

    def report(self, ends: float) -> MigReport | None:
        """Solve with the present instances, then with instances to be chosen."""
        present = self._solve(ends, frozenset())
        free = {i: self._unused(i, shapes) for i, _, shapes in self._shaped}
        cut = sorted((i for i in free if free[i]), key=lambda i: -free[i])[: LIMITS.advised_nodes]
        best = self._solve(ends, frozenset(cut), present)
        if best.pods <= present.pods:
            return None
        changes = tuple(self._changes(best.instances))
        return MigReport(present.pods, best.pods, changes, self._admitted(best.places))

    def _unused(self, i: int, shapes: Mapping[int, Shape]) -> int:
        """Eighths of the node's GPUs that no instance in use holds."""
        held = sum(int(self._used[i, d]) * shape[1] for d, shape in shapes.items())
        return max(0, self._snapshot.nodes[i].gpu_count * _EIGHTHS - held)

    def _solve(self, ends: float, cut: frozenset[int], known: _Solved | None = None) -> _Solved:
        """Most pods; of such answers one that changes few instances of the nodes to ``cut``.

        ``known``: places that are possible, from where the search starts. ``ends``: by ``time.monotonic()``;
        raises ``TimeoutError`` then.
        """
        model, x, kept, changes = self._model(cut)
        for key, var in x.items():
            model.add_hint(var, known.places.get(key, 0) if known is not None else 0)
        solver = cp_model.CpSolver()
        # The limit is counted work, so that the advice does not depend on the load.
        solver.parameters.max_deterministic_time = LIMITS.advice_work
        solver.parameters.num_workers = 1
        admitted = cp_model.LinearExpr.sum(list(x.values()))
        model.maximize(admitted)
        found = _Solved(0, {}, {})
        for _ in range(2 if cut else 1):
            solver.parameters.max_time_in_seconds = max(0.0, ends - time.monotonic())
            status = run(solver, model)
            if time.monotonic() > ends:
                raise TimeoutError
            if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                break
            places = {key: int(solver.value(var)) for key, var in x.items()}
            instances = {key: int(solver.value(var)) for key, var in kept.items()}
            found = _Solved(sum(places.values()), places, instances)
            model.add(admitted >= found.pods)
            model.clear_hints()  # type: ignore[no-untyped-call]
            for var in (*x.values(), *kept.values()):
                model.add_hint(var, int(solver.value(var)))
            model.minimize(cp_model.LinearExpr.sum(changes))
        return found

    def _model(self, cut: frozenset[int]) -> _Partition:
        """What nodes may take, where those to ``cut`` may have any instances that fit together."""
        model = cp_model.CpModel()
        x = {
            (c, i): model.new_int_var(0, most, f"x{c},{i}")
            for c, (spec, pods) in enumerate(self._classes)
            for i, node, shapes in self._shaped
            if self._accepting[c][i]
            and (most := min(len(pods), self._room(spec, i, shapes if i in cut else {}))) > 0
        }
        for c, (_, pods) in enumerate(self._classes):
            model.add(sum(x[c, i] for i, _, _ in self._shaped if (c, i) in x) <= len(pods))
        kept: dict[tuple[int, int], cp_model.IntVar] = {}
        changes: list[cp_model.IntVar] = []
        for i, node, shapes in self._shaped:
            for d, total in enumerate(node.allocatable):
                if d != GPU and not (i in cut and d in shapes):
                    self._row(model, x, i, d, total - int(self._used[i, d]))
            if i not in cut:
                continue
            options = patterns(tuple(shapes.values()))
            taken = [model.new_int_var(0, node.gpu_count, f"g{i},{p}") for p in range(len(options))]
            model.add(sum(taken) <= node.gpu_count)
            for s, d in enumerate(shapes):
                most = 7 * node.gpu_count
                kept[i, d] = model.new_int_var(0, most, f"k{i},{d}")
                model.add(kept[i, d] <= sum(p[s] * n for p, n in zip(options, taken, strict=True)))
                changed = model.new_int_var(0, most, f"c{i},{d}")
                model.add(changed >= kept[i, d] - node.allocatable[d])
                model.add(changed >= node.allocatable[d] - kept[i, d])
                changes.append(changed)
                self._row(model, x, i, d, kept[i, d] - int(self._used[i, d]))
        return _Partition(model, x, kept, changes)

    def _room(self, spec: PodSpec, i: int, shapes: Mapping[int, Shape]) -> int:
        """Most pods of a class that a node takes if its instances of ``shapes`` did not matter."""
        left = self._snapshot.nodes[i].allocatable - self._used[i]
        return min(
            (
                max(0, int(left[d])) // asked
                for d, asked in enumerate(spec.requests)
                if asked and d != GPU and d not in shapes
            ),
            default=_EIGHTHS * self._snapshot.nodes[i].gpu_count,
        )

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
            then = {names[d]: n for d in shapes if (n := chosen.get((i, d), node.allocatable[d]))}
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
