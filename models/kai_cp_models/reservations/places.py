"""Places for several gangs with given starts, together: the model of section 4.4.

All starts are constants, so everything is linear. Nodes that are equal for every gang and at every start form
one class. The model decides only counts per class; places are read off afterwards.

    sum over classes of x[j,p,c] = pods of part p of gang j
    sum over classes in domain k of x[j,p,c] <= pods * chosen[j,s,k];   sum over k of chosen[j,s,k] = 1
    for every class c, start t and dimension d:
        sum over what is there at t of need[p,d] * x[j,p,c] <= nodes of c * free(c, t, d)

The last row is exact for single nodes and where every pod takes a whole node (intervals on equal nodes can
always be coloured). Elsewhere it is only necessary: a class whose places cannot be read off is split into
single nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints
from kai_cp_models.budget import Allowance
from kai_cp_models.joint.search import Objective, lexicographic, solve
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import MILLI, GroupKey, PodKey
from kai_cp_models.reservations.items import GangInterval, Idle, NodeOfPod, PlacedGangs, stored_gpus
from kai_cp_models.settings import SolverSettings
from kai_cp_models.solver import cp_model


@dataclass(frozen=True, eq=False)
class _Class:
    nodes: NDArray[np.int64]

    @property
    def size(self) -> int:
        return len(self.nodes)


class PlacesModel:
    """One CP-SAT model; see the module's docstring."""

    def __init__(
        self,
        items: Sequence[GangInterval],
        free: Callable[[float], Ints],
        *,
        idle: Idle | None = None,
        single: NDArray[np.bool_] | None = None,
    ) -> None:
        """``idle``: places are chosen by goals too. ``single``: [N] nodes that form classes of their own."""
        self.items = tuple(items)
        self._idle = idle
        self.starts = sorted({item.start for item in items})
        self._free = {start: free(start) for start in self.starts}
        self.cp = cp_model.CpModel()
        self._x: dict[tuple[int, int, int], cp_model.IntVar] = {}
        self._most: dict[tuple[int, int, int], int] = {}
        self.feasible = True
        self._capacities: dict[tuple[int, int], Ints] = {}
        self.classes = self._classes(single)
        self._counts()
        if self.feasible:
            self._scopes()
            self._room()

    def _capacity(self, j: int, p: int) -> Ints:
        found = self._capacities.get((j, p))
        if found is None:
            item = self.items[j]
            found = item.shape.parts[p].capacity(self._free[item.start])
            self._capacities[j, p] = found
        return found

    def _classes(self, single: NDArray[np.bool_] | None) -> list[_Class]:
        count = len(next(iter(self._free.values())))
        columns: list[Ints] = []
        useful = np.zeros(count, dtype=bool)
        for j, item in enumerate(self.items):
            for p, part in enumerate(item.shape.parts):
                capacity = self._capacity(j, p)
                useful |= capacity > 0
                columns.append(capacity)
                if self._idle is not None and item.reserved:
                    most = int(capacity.max(initial=0))
                    columns += [
                        self._idle.cost(k * part.gpus // MILLI, item.start) for k in range(1, most + 1)
                    ]
            columns += [scope.domain for scope in item.shape.scopes]
            if self._idle is not None and item.reserved:
                columns += item.domains
                columns.append(stored_gpus(item, count))
        for free in self._free.values():
            columns += [free[:, d] for d in range(free.shape[1]) if self._asked(d)]
        if single is not None:
            columns.append(np.where(single, np.arange(count) + 1, 0))
        nodes = np.flatnonzero(useful)
        table = np.stack(columns, axis=1)[nodes] if columns else np.zeros((len(nodes), 1), dtype=np.int64)
        if not len(nodes):
            return []
        _, inverse = np.unique(table, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        order = np.argsort(inverse, kind="stable")
        bounds = np.flatnonzero(np.diff(inverse[order], prepend=-1, append=-1))
        return [_Class(np.sort(nodes[order[a:b]])) for a, b in pairwise(bounds)]

    def _asked(self, d: int) -> bool:
        return any(part.need[d] for item in self.items for part in item.shape.parts)

    def _counts(self) -> None:
        for j, item in enumerate(self.items):
            for p, part in enumerate(item.shape.parts):
                capacity = self._capacity(j, p)
                variables = []
                for c, one in enumerate(self.classes):
                    most = min(len(part.pods), one.size * int(capacity[one.nodes[0]]))
                    if most > 0:
                        variable = self._x[j, p, c] = self.cp.new_int_var(0, most, f"x[{j},{p},{c}]")
                        self._most[j, p, c] = most
                        variables.append((variable, most))
                if sum(most for _, most in variables) < len(part.pods):
                    self.feasible = False
                    return
                self.cp.add(sum(variable for variable, _ in variables) == len(part.pods))

    def _scopes(self) -> None:
        for j, item in enumerate(self.items):
            for s, scope in enumerate(item.shape.scopes):
                inside: dict[int, list[tuple[int, int]]] = {}
                for p, part in enumerate(item.shape.parts):
                    if s in part.scopes:
                        for c, one in enumerate(self.classes):
                            if (j, p, c) in self._x:
                                inside.setdefault(int(scope.domain[one.nodes[0]]), []).append((p, c))
                chosen = {k: self.cp.new_bool_var(f"chosen[{j},{s},{k}]") for k in sorted(inside)}
                self.cp.add_exactly_one(chosen.values())
                for k, terms in inside.items():
                    for p in sorted({p for p, _ in terms}):
                        pods = len(item.shape.parts[p].pods)
                        here = sum(self._x[j, p, c] for q, c in terms if q == p)
                        self.cp.add(here <= pods * chosen[k])

    def _room(self) -> None:
        by_class: dict[int, list[tuple[int, int]]] = {}
        for j, p, c in self._x:
            by_class.setdefault(c, []).append((j, p))
        needs = [[part.need.tolist() for part in item.shape.parts] for item in self.items]
        active = {start: [item.active(start) for item in self.items] for start in self.starts}
        for c, pairs in by_class.items():
            one = self.classes[c]
            for start in self.starts if len(pairs) > 1 else ():
                present = [(j, p) for j, p in pairs if active[start][j]]
                if len(present) < 2:
                    continue
                for d, room in enumerate(self._free[start][one.nodes[0]].tolist()):
                    asked = [needs[j][p][d] for j, p in present]
                    most = sum(
                        amount * min(one.size * max(room, 0) // amount, self._most[j, p, c])
                        for amount, (j, p) in zip(asked, present, strict=True)
                        if amount
                    )
                    # A row that can never bind only costs time.
                    if most > one.size * max(room, 0):
                        terms = [
                            amount * self._x[j, p, c]
                            for amount, (j, p) in zip(asked, present, strict=True)
                            if amount
                        ]
                        self.cp.add(sum(terms) <= one.size * max(room, 0))

    def goals(self) -> list[Objective]:
        """The goals for places, one after the other (12.3)."""
        assert self._idle is not None
        reserved = {j for j, item in enumerate(self.items) if item.reserved}
        found = [Objective("idle GPU time", self._idle_cost(reserved))]
        changed = [
            variable
            for (j, _, c), variable in self._x.items()
            if j in reserved
            and self.items[j].stored
            and int(self.classes[c].nodes[0]) not in self.items[j].stored
        ]
        if changed:
            found.append(Objective("pods on other nodes", sum(changed)))
        apart = self._apart(reserved)
        if apart:
            found.append(Objective("domains", sum(apart)))
        if len(self._x) <= LIMITS.named_counts:
            named = [
                int(self.classes[c].nodes[0]) * variable
                for (j, _, c), variable in self._x.items()
                if j in reserved
            ]
            found.append(Objective("names", sum(named)))
        return found

    def _idle_cost(self, reserved: set[int]) -> cp_model.LinearExpr | int:
        assert self._idle is not None
        terms: list[cp_model.LinearExpr] = []
        held: dict[int, list[tuple[int, int, cp_model.IntVar]]] = {}
        for (j, p, c), variable in self._x.items():
            if j not in reserved:
                continue
            item, one = self.items[j], self.classes[c]
            gpus = item.shape.parts[p].gpus // MILLI
            node = int(one.nodes[0])
            most = int(self._capacity(j, p)[node])
            if most == 1:
                terms.append(int(self._idle.cost(gpus, item.start)[node]) * variable)
                if one.size == 1:
                    held.setdefault(c, []).append((j, gpus, variable))
                continue
            levels = [self.cp.new_bool_var(f"held[{j},{p},{c},{k}]") for k in range(1, most + 1)]
            self.cp.add(sum((k + 1) * level for k, level in enumerate(levels)) == variable)
            self.cp.add_at_most_one(levels)
            for k, level in enumerate(levels, 1):
                terms.append(int(self._idle.cost(k * gpus, item.start)[node]) * level)
                held.setdefault(c, []).append((j, k * gpus, level))
        return sum(terms) - sum(self._savings(held))

    def _savings(
        self, held: Mapping[int, Sequence[tuple[int, int, cp_model.IntVar]]]
    ) -> list[cp_model.LinearExpr]:
        """Idle time saved because an earlier gang runs on the node that a later gang needs."""
        assert self._idle is not None
        found: list[cp_model.LinearExpr] = []
        for c, entries in held.items():
            node = int(self.classes[c].nodes[0])
            for j, gpus, mine in entries:
                for i, other, theirs in entries:
                    earlier, later = self.items[i], self.items[j]
                    if i == j or earlier.start >= later.start or len(found) >= LIMITS.idle_pairs:
                        continue
                    saved = self._idle.saved(node, gpus, later.start, other, earlier.start, until=earlier.end)
                    if saved > 0:
                        both = self.cp.new_bool_var(f"both[{j},{i},{c},{gpus},{other}]")
                        self.cp.add_implication(both, mine)
                        self.cp.add_implication(both, theirs)
                        found.append(saved * both)
        return found

    def _apart(self, reserved: set[int]) -> list[cp_model.IntVar]:
        """One literal per domain that a gang uses, at every level at which it is drawn together."""
        found: list[cp_model.IntVar] = []
        for j in sorted(reserved):
            item = self.items[j]
            for level, domain in enumerate(item.domains):
                inside: dict[int, list[cp_model.IntVar]] = {}
                for (i, _, c), variable in self._x.items():
                    if i == j:
                        inside.setdefault(int(domain[self.classes[c].nodes[0]]), []).append(variable)
                if len(inside) < 2:
                    continue
                for k, variables in sorted(inside.items()):
                    used = self.cp.new_bool_var(f"used[{j},{level},{k}]")
                    pods = len(item.shape.pods)
                    self.cp.add(sum(variables) <= pods * used)
                    found.append(used)
        return found

    def hint(self, places: Mapping[GroupKey, NodeOfPod]) -> None:
        """Start from these places."""
        where = {int(node): c for c, one in enumerate(self.classes) for node in one.nodes}
        for j, item in enumerate(self.items):
            nodes = places.get(item.key)
            if nodes is None:
                continue
            for p, part in enumerate(item.shape.parts):
                counts: dict[int, int] = {}
                for pod in part.pods:
                    c = where.get(nodes.get(pod.key, -1))
                    if c is not None:
                        counts[c] = counts.get(c, 0) + 1
                for c in range(len(self.classes)):
                    variable = self._x.get((j, p, c))
                    if variable is not None:
                        self.cp.add_hint(variable, counts.get(c, 0))

    def read(self, solver: cp_model.CpSolver) -> tuple[dict[GroupKey, dict[PodKey, int]], set[int]]:
        """Nodes of all pods, and the classes in which some pod found none."""
        found: dict[GroupKey, dict[PodKey, int]] = {item.key: {} for item in self.items}
        left: dict[tuple[int, int], list[PodKey]] = {}
        failed: set[int] = set()
        by_class: dict[int, list[tuple[int, int, int]]] = {}
        for (j, p, c), variable in self._x.items():
            count = solver.value(variable)
            if count:
                by_class.setdefault(c, []).append((j, p, count))
        for c, entries in sorted(by_class.items()):
            one = self.classes[c]
            rooms = [{start: self._free[start][node].copy() for start in self.starts} for node in one.nodes]
            # Intervals by their start; of equal starts the largest gang first.
            entries.sort(key=lambda e: (self.items[e[0]].start, -self.items[e[0]].shape.parts[e[1]].gpus, e))
            for j, p, count in entries:
                item, part = self.items[j], self.items[j].shape.parts[p]
                waiting = left.setdefault((j, p), [pod.key for pod in part.pods])
                during = [start for start in self.starts if item.active(start)]
                for _ in range(count):
                    h = next(
                        (
                            h
                            for h, room in enumerate(rooms)
                            if all(
                                (room[start][part.need > 0] >= part.need[part.need > 0]).all()
                                for start in during
                            )
                        ),
                        None,
                    )
                    if h is None:
                        failed.add(c)
                        break
                    for start in during:
                        rooms[h][start] -= part.need
                    found[item.key][waiting.pop(0)] = int(one.nodes[h])
        return found, failed


def places(
    items: Sequence[GangInterval],
    free: Callable[[float], Ints],
    settings: SolverSettings,
    allowance: Allowance,
    *,
    idle: Idle | None = None,
    hint: Mapping[GroupKey, NodeOfPod] | None = None,
) -> PlacedGangs:
    """Places of all items together, or a proof that there are none.

    ``free``: [N, D] at an instant. ``idle``: with it, the best places by the goals of 12.3; without it, any
    places.
    """
    if not items:
        return PlacedGangs({}, True)
    count = len(free(items[0].start))
    single: NDArray[np.bool_] = np.zeros(count, dtype=bool)
    if idle is not None:
        # Steps in cost that depend on the number of pods can be modelled on single nodes only.
        single |= _shared(items, free)
    for _ in range(LIMITS.splits):
        model = PlacesModel(items, free, idle=idle, single=single)
        if not model.feasible:
            return PlacedGangs(None, True)
        if hint:
            model.hint(hint)
        if idle is None:
            seconds = allowance.budget.seconds_left()
            outcome, solver = solve(model.cp, settings, allowance.left(), seconds=seconds)
            allowance.spend(outcome.work)
            proved = True
        else:
            best, stages, outcome = lexicographic(model.cp, model.goals(), allowance)
            proved = all(stage.proved for stage in stages)
            if best is None and outcome.status == "solved":
                return PlacedGangs(None, False)
            solver = best if best is not None else cp_model.CpSolver()
        if outcome.cut:
            allowance.budget.cut = True
            return PlacedGangs(None, False)
        sizes = len(model.cp.proto.variables), len(model.cp.proto.constraints)
        if outcome.status != "solved":
            return PlacedGangs(None, outcome.status == "infeasible", *sizes)
        found, failed = model.read(solver)
        if not failed:
            return PlacedGangs(found, proved, *sizes)
        for c in failed:
            single[model.classes[c].nodes] = True
    return PlacedGangs(None, False)


def _shared(items: Sequence[GangInterval], free: Callable[[float], Ints]) -> NDArray[np.bool_]:
    """[N] nodes that may take more than one pod of a reserved gang, or pods of several."""
    count = len(free(items[0].start))
    found: NDArray[np.bool_] = np.zeros(count, dtype=bool)
    reserved = [item for item in items if item.reserved]
    for item in reserved:
        for part in item.shape.parts:
            found |= part.capacity(free(item.start)) > 1
    if len({item.start for item in reserved}) > 1 and count <= LIMITS.single_nodes:
        found[:] = True
    return found
