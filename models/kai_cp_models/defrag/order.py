"""A safe order of moves: at its turn, every step fits where it goes (section 8).

The places of the step's own pods count as free; all other pods are where the earlier steps left them. First
the targets of the model are put in order. If that fails, a second model decides targets and order together;
it also proves that no order exists. A pod moves only once, so no pod takes an intermediate place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kai_cp_models.budget import Allowance
from kai_cp_models.defrag.model import stay_together
from kai_cp_models.defrag.problem import Problem
from kai_cp_models.joint.search import solve
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GPU, MILLI, PodKey
from kai_cp_models.solver import cp_model


@dataclass(frozen=True, slots=True)
class Ordered:
    """Units in the order of their steps, and where their pods go; without units: ``proved`` impossible, or
    not found."""

    units: tuple[int, ...] | None
    targets: Mapping[PodKey, int]
    proved: bool


def ordered(
    problem: Problem, units: Sequence[int], targets: Mapping[PodKey, int], value: int, allowance: Allowance
) -> Ordered:
    """The units in a safe order that leads to ``value``."""
    order = _sequence(problem, units, targets)
    if order is not None:
        return Ordered(order, targets, True)
    return _together(problem, units, value, allowance)


def _sequence(
    problem: Problem, units: Sequence[int], targets: Mapping[PodKey, int]
) -> tuple[int, ...] | None:
    """An order for fixed targets: depth first, the largest unit first; None where none is found."""
    turns = sorted(units, key=lambda u: (-sum(int(need[GPU]) for need in problem.units[u].needs), u))
    seen: set[frozenset[int]] = set()
    done: list[int] = []
    free = problem.free.copy()

    def shift(u: int, sign: int) -> None:
        unit = problem.units[u]
        for pod, node, need in zip(unit.pods, unit.nodes, unit.needs, strict=True):
            free[node] += sign * need
            free[targets[pod.key]] -= sign * need

    def fits(u: int) -> bool:
        shift(u, 1)
        touched = {targets[pod.key] for pod in problem.units[u].pods}
        good = all((free[node] >= np.minimum(problem.free[node], 0)).all() for node in touched)
        shift(u, -1)
        return good

    def search() -> bool:
        if len(done) == len(turns):
            return True
        state = frozenset(done)
        if state in seen or len(seen) > LIMITS.order_states:
            return False
        seen.add(state)
        for u in turns:
            if u not in state and fits(u):
                shift(u, 1)
                done.append(u)
                if search():
                    return True
                done.pop()
                shift(u, -1)
        return False

    if len(turns) > LIMITS.order_units:
        return _greedy(problem, turns, targets)
    return tuple(done) if search() else None


def _greedy(problem: Problem, turns: Sequence[int], targets: Mapping[PodKey, int]) -> tuple[int, ...] | None:
    """An order for many units: every unit that can move moves, the largest first."""
    free = problem.free.copy()
    left, done = list(turns), []
    while left:
        for u in left:
            unit = problem.units[u]
            after = free.copy()
            for pod, node, need in zip(unit.pods, unit.nodes, unit.needs, strict=True):
                after[node] += need
                after[targets[pod.key]] -= need
            if all((after[targets[pod.key]] >= 0).all() for pod in unit.pods):
                free = after
                done.append(u)
                left.remove(u)
                break
        else:
            return None
    return tuple(done)


def _together(problem: Problem, units: Sequence[int], value: int, allowance: Allowance) -> Ordered:
    """Decide the targets and the order of a given set together."""
    masks = [mask for u in units for mask in problem.units[u].masks]
    nodes = np.flatnonzero(np.any(masks, axis=0)).tolist()
    pods = [(u, i) for u in units for i in range(len(problem.units[u].pods))]
    if len(pods) * len(nodes) * len(units) > LIMITS.order_products:
        return Ordered(None, {}, False)
    model = cp_model.CpModel()
    into: dict[tuple[int, int, int], cp_model.IntVar] = {}
    for u, i in pods:
        unit = problem.units[u]
        for node in np.flatnonzero(unit.masks[i]).tolist():
            into[u, i, node] = model.new_bool_var(f"into[{u},{i},{node}]")
        model.add_exactly_one(var for (v, k, _), var in into.items() if (v, k) == (u, i))
    for u in units:
        if (unit := problem.units[u]).domain is not None:
            chosen: dict[int, cp_model.IntVar] = {}
            there = ((node, var) for (v, _, node), var in into.items() if v == u)
            stay_together(model, unit, there, 1, chosen)
            model.add_at_most_one(chosen.values())
    before: dict[tuple[int, int], cp_model.IntVar] = {}
    turn = {u: model.new_int_var(0, len(units) - 1, f"turn[{u}]") for u in units}
    model.add_all_different(turn.values())
    for u in units:
        for w in units:
            if u != w:
                before[u, w] = model.new_bool_var(f"before[{u},{w}]")
                model.add(turn[u] + 1 <= turn[w]).only_enforce_if(before[u, w])
                model.add(turn[w] + 1 <= turn[u]).only_enforce_if(before[u, w].negated())
    for w in units:
        for node in nodes:
            _row(model, problem, units, into, before, w=w, node=node)
    _worth(model, problem, units, into, value)
    outcome, solver = solve(
        model, problem.settings.solver, allowance.left(), seconds=allowance.budget.seconds_left()
    )
    allowance.spend(outcome.work)
    if outcome.status != "solved":
        return Ordered(None, {}, outcome.status == "infeasible")
    targets = {problem.units[u].pods[i].key: node for (u, i, node), var in into.items() if solver.value(var)}
    return Ordered(tuple(sorted(units, key=lambda u: solver.value(turn[u]))), targets, True)


def _row(
    model: cp_model.CpModel,
    problem: Problem,
    units: Sequence[int],
    into: Mapping[tuple[int, int, int], cp_model.IntVar],
    before: Mapping[tuple[int, int], cp_model.IntVar],
    *,
    w: int,
    node: int,
) -> None:
    """Capacity of the node just after step ``w``, if that step puts anything there."""
    arriving = [var for (u, _, n), var in into.items() if u == w and n == node]
    if not arriving:
        return
    used = model.new_bool_var(f"used[{w},{node}]")
    for var in arriving:
        model.add_implication(var, used)
    for d in range(problem.free.shape[1]):
        terms: list[cp_model.LinearExpr | int] = []
        for u in units:
            unit = problem.units[u]
            gone = 1 if u == w else before[u, w]
            for i, need in enumerate(unit.needs):
                amount = int(need[d])
                if not amount:
                    continue
                if unit.nodes[i] == node:
                    terms.append(-amount * gone)
                arrives = into.get((u, i, node))
                if arrives is not None and u == w:
                    terms.append(amount * arrives)
                elif arrives is not None:
                    both = model.new_bool_var("")
                    model.add(both >= arrives + before[u, w] - 1)
                    terms.append(amount * both)
        if terms:
            model.add(sum(terms) <= max(0, int(problem.free[node, d]))).only_enforce_if(used)


def _worth(
    model: cp_model.CpModel,
    problem: Problem,
    units: Sequence[int],
    into: Mapping[tuple[int, int, int], cp_model.IntVar],
    value: int,
) -> None:
    """Require that the state after all steps is worth ``value``."""
    moving = {pod.key for u in units for pod in problem.units[u].pods}
    size = problem.question.gpus
    total: list[cp_model.IntVar] = []
    by_node: dict[int, list[tuple[int, cp_model.IntVar]]] = {}
    for (u, i, node), var in into.items():
        by_node.setdefault(node, []).append((int(problem.units[u].needs[i][GPU]), var))
    if not problem.question.gang:
        for nodes in problem.domains:
            if any(key not in moving for node in nodes for key in problem.gpu_pods.get(node, ())):
                continue
            freed = model.new_bool_var("")
            for node in nodes:
                for gpus, var in by_node.get(node, ()):
                    if gpus:
                        model.add_implication(freed, var.negated())
            total.append(freed)
    else:
        gone = np.zeros(len(problem.free), dtype=np.int64)
        for u in units:
            for node, need in zip(problem.units[u].nodes, problem.units[u].needs, strict=True):
                gone[node] += int(need[GPU])
        for nodes in problem.domains:
            pieces = []
            for node in nodes:
                room = int(problem.free[node, GPU] + gone[node])
                piece = model.new_int_var(0, max(0, room // (size * MILLI)), "")
                taken = sum(gpus * var for gpus, var in by_node.get(node, ()))
                model.add(size * MILLI * piece + taken <= room)
                pieces.append(piece)
            gangs = model.new_int_var(0, len(nodes) * LIMITS.gangs_per_node, "")
            model.add(problem.question.pods * gangs <= sum(pieces))
            total.append(gangs)
    model.add(sum(total) >= value)
