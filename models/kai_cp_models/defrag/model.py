"""The fewest restarts for a value of the question: a CP-SAT model of the state after all moves.

The model has one boolean per unit. It counts pods of equal needs together per target node. It has cumulative
rows over all nodes, booleans for freed nodes or domains, and integers for gangs per domain. Every solution is
then tested for whether its moves can be made one after the other (``order``). A set without an order is
forbidden, and the next is tried.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints
from kai_cp_models.defrag.problem import Problem, RestartUnit
from kai_cp_models.pods import GPU, MILLI, PodKey
from kai_cp_models.solver import cp_model


@dataclass
class _Class:
    """Pods that are counted together: equal needs and permitted nodes, and not bound to a domain of their
    own."""

    need: Ints
    mask: NDArray[np.bool_]
    pods: list[tuple[int, PodKey]] = field(default_factory=list)
    """(unit, pod)."""
    into: dict[int, cp_model.IntVar] = field(default_factory=dict)
    """How many go to each node."""


class DefragModel:
    """The model that the module's docstring describes; ``require`` sets the wanted value."""

    def __init__(self, problem: Problem, units: Collection[int] | None = None) -> None:
        """``units``: those that may move; all by default."""
        self.problem = problem
        self.cp = cp_model.CpModel()
        self.allowed = range(len(problem.units)) if units is None else sorted(units)
        stays = self.cp.new_constant(0)
        self.out = [stays] * len(problem.units)
        for u in self.allowed:
            self.out[u] = self.cp.new_bool_var(f"out[{u}]")
        self._classes: dict[Hashable, _Class] = {}
        self._collect()
        self._targets()
        self._room()
        self.value = self._value()
        self.moves: cp_model.LinearExpr | int = sum(
            len(problem.units[u].pods) * self.out[u] for u in self.allowed
        )

    def _collect(self) -> None:
        for u in self.allowed:
            unit = self.problem.units[u]
            for pod, need, mask in zip(unit.pods, unit.needs, unit.masks, strict=True):
                own = u if unit.domain is not None else None
                key = (need.tobytes(), mask.tobytes(), own)
                if key not in self._classes:
                    self._classes[key] = _Class(need, mask)
                self._classes[key].pods.append((u, pod.key))

    def _targets(self) -> None:
        problem = self.problem
        gain = self._gain()
        chosen: dict[int, dict[int, cp_model.IntVar]] = {}
        for number, item in enumerate(self._classes.values()):
            asked = item.need > 0
            most_free = problem.free + gain
            room = (most_free[:, asked] // item.need[asked]).min(axis=1) if asked.any() else np.zeros(0)
            for node in np.flatnonzero(item.mask & (room > 0)).tolist():
                most = min(int(room[node]), len(item.pods))
                item.into[node] = self.cp.new_int_var(0, most, f"into[{number},{node}]")
            self.cp.add(sum(item.into.values()) == sum(self.out[u] for u, _ in item.pods))
            u = item.pods[0][0]
            unit = problem.units[u]
            if unit.domain is not None:
                stay_together(self.cp, unit, item.into.items(), len(item.pods), chosen.setdefault(u, {}))
        for literals in chosen.values():
            self.cp.add_at_most_one(literals.values())

    def _gain(self) -> Ints:
        """[N, D] the most that can become free."""
        gain = np.zeros_like(self.problem.free)
        for unit in (self.problem.units[u] for u in self.allowed):
            for node, need in zip(unit.nodes, unit.needs, strict=True):
                gain[node] += need
        return gain

    def _room(self) -> None:
        problem = self.problem
        entering: dict[int, list[_Class]] = {}
        for item in self._classes.values():
            for node in item.into:
                entering.setdefault(node, []).append(item)
        self._leaving: dict[int, list[tuple[Ints, cp_model.IntVar]]] = {}
        for unit, out in ((problem.units[u], self.out[u]) for u in self.allowed):
            for node, need in zip(unit.nodes, unit.needs, strict=True):
                self._leaving.setdefault(node, []).append((need, out))
        self._entering = entering
        for node, items in entering.items():
            for d in range(problem.free.shape[1]):
                terms = [int(item.need[d]) * item.into[node] for item in items if item.need[d]]
                if terms:
                    self.cp.add(sum(terms) <= self._free(node, d))

    def _free(self, node: int, d: int) -> cp_model.LinearExpr | int:
        gives = [int(need[d]) * out for need, out in self._leaving.get(node, ()) if need[d]]
        return int(self.problem.free[node, d]) + sum(gives)

    def _value(self) -> cp_model.LinearExpr | int:
        if self.problem.question.gang:
            return self._gangs()
        domains = self.problem.domains
        return sum(self._freed(k, nodes) for k, nodes in enumerate(domains))

    @cached_property
    def _unit_of(self) -> Mapping[PodKey, int]:
        return {pod.key: u for u in self.allowed for pod in self.problem.units[u].pods}

    def _freed(self, k: int, nodes: Sequence[int]) -> cp_model.IntVar | int:
        """Whether no GPU pod is left on any node of a domain."""
        unit_of = self._unit_of
        there = [key for node in nodes for key in self.problem.gpu_pods.get(node, ())]
        if any(key not in unit_of for key in there):
            return 0
        freed = self.cp.new_bool_var(f"freed[{k}]")
        for u in sorted({unit_of[key] for key in there}):
            self.cp.add_implication(freed, self.out[u])
        for node in nodes:
            for item in self._entering.get(node, ()):
                if item.need[GPU]:
                    self.cp.add(item.into[node] <= len(item.pods) * freed.negated())
        return freed

    def _gangs(self) -> cp_model.LinearExpr | int:
        question = self.problem.question
        size = question.gpus * MILLI
        total: list[cp_model.IntVar] = []
        for k, nodes in enumerate(self.problem.domains):
            pieces = []
            for node in nodes:
                most = int(self.problem.snapshot.nodes[node].allocatable[GPU]) // size
                if most <= 0:
                    continue
                piece = self.cp.new_int_var(0, most, f"pieces[{node}]")
                items = [item for item in self._entering.get(node, ()) if item.need[GPU]]
                taken = sum(int(item.need[GPU]) * item.into[node] for item in items)
                self.cp.add(size * piece + taken <= self._free(node, GPU))
                pieces.append(piece)
            most = sum(int(self.problem.snapshot.nodes[n].allocatable[GPU]) // size for n in nodes)
            gangs = self.cp.new_int_var(0, most // question.pods, f"gangs[{k}]")
            self.cp.add(question.pods * gangs <= sum(pieces))
            total.append(gangs)
        return sum(total)

    def hint(self, domains: Sequence[int]) -> None:
        """Hint to free these domains: their pods go, the largest first, where the least is left free."""
        problem = self.problem
        chosen = {node for k in domains for node in problem.domains[k]}
        there = {key for node in chosen for key in problem.gpu_pods.get(node, ())}
        leaving = {u for u, unit in enumerate(problem.units) if any(pod.key in there for pod in unit.pods)}
        room = problem.free.copy()
        for u in leaving:
            for node, need in zip(problem.units[u].nodes, problem.units[u].needs, strict=True):
                room[node] += need
        targets = np.zeros(len(room), dtype=bool)
        targets[[node for node in problem.gpu_pods if node not in chosen]] = True
        counts: dict[tuple[int, int], int] = {}
        classes = list(self._classes.values())
        moving = [(i, u) for i, item in enumerate(classes) for u, _ in item.pods if u in leaving]
        for i, _ in sorted(moving, key=lambda one: (-int(classes[one[0]].need[GPU]), one)):
            item = classes[i]
            fits = targets & item.mask & (room >= item.need).all(axis=1)
            if not fits.any():
                return
            node = int(np.argmin(np.where(fits, room[:, GPU], np.iinfo(np.int64).max)))
            room[node] -= item.need
            counts[i, node] = counts.get((i, node), 0) + 1
        for u, out in enumerate(self.out):
            self.cp.add_hint(out, u in leaving)
        for i, item in enumerate(classes):
            for node, into in item.into.items():
                self.cp.add_hint(into, counts.get((i, node), 0))

    def forbid(self, units: Iterable[int]) -> None:
        """Forbid this set of units: no order of their moves is safe."""
        chosen = set(units)
        self.cp.add_bool_or([out.negated() if u in chosen else out for u, out in enumerate(self.out)])

    def read(self, solver: cp_model.CpSolver) -> tuple[tuple[int, ...], dict[PodKey, int]]:
        """The units that move, and the new node of each of their pods; a unit that can stay does not move."""
        units = tuple(u for u, out in enumerate(self.out) if solver.value(out))
        moving = set(units)
        index = self.problem.snapshot.node_index
        found: dict[PodKey, int] = {}
        for item in self._classes.values():
            left = {node: solver.value(var) for node, var in item.into.items() if solver.value(var)}
            pods = [key for u, key in item.pods if u in moving]
            rest = []
            for key in pods:
                home = index[self.problem.snapshot.pod_by_key[key].node or ""]
                if left.get(home):
                    left[home] -= 1
                    found[key] = home
                else:
                    rest.append(key)
            slots = [node for node in sorted(left) for _ in range(left[node])]
            found.update(zip(rest, slots, strict=True))
        return units, found


def stay_together(
    cp: cp_model.CpModel,
    unit: RestartUnit,
    into: Iterable[tuple[int, cp_model.IntVar]],
    most: int,
    chosen: dict[int, cp_model.IntVar],
) -> None:
    """Pods of a unit go to domains that it may use and that are ``chosen``, a literal for each. ``into``: by
    node, how many of its pods go there, at most ``most``.
    """
    assert unit.domain is not None
    for node, count in into:
        k = int(unit.domain[node])
        if k < 0 or (unit.pinned is not None and k != unit.pinned):
            cp.add(count == 0)
            continue
        if k not in chosen:
            chosen[k] = cp.new_bool_var(f"domain[{unit.group.key},{k}]")
        cp.add(count <= most * chosen[k])
