"""A lower bound on the restarts that room for gangs takes: what every domain costs by itself, added up."""

from __future__ import annotations

from math import inf

from kai_cp_models.defrag.problem import Problem
from kai_cp_models.snapshot import GPU, MILLI


def least_moves(problem: Problem, most: int) -> list[float]:
    """The least restarts for 0, 1, … ``most`` gangs, where pods vanish when they leave a node; a bound.

    A node's k-th piece of room takes at least so many of its movable pods, the largest first; a domain
    chooses nodes, the cluster chooses domains. Infinite where not even that is enough.
    """
    question = problem.question
    size = question.gpus * MILLI
    movable: dict[int, list[int]] = {}
    for unit in problem.units:
        for node, need in zip(unit.nodes, unit.needs, strict=True):
            if need[GPU]:
                movable.setdefault(node, []).append(int(need[GPU]))
    total = [0.0] + [inf] * most
    for nodes in problem.domains:
        pieces = _domain(problem, nodes, movable, size, most * question.pods)
        gangs = [
            pieces[min(k * question.pods, len(pieces) - 1)] if k * question.pods < len(pieces) else inf
            for k in range(most + 1)
        ]
        total = [min(total[v - k] + gangs[k] for k in range(v + 1)) for v in range(most + 1)]
    return total


def _domain(
    problem: Problem, nodes: list[int], movable: dict[int, list[int]], size: int, most: int
) -> list[float]:
    """The least restarts for 0, 1, … pieces in a domain."""
    free = {node: max(0, int(problem.free[node, GPU])) for node in nodes}
    room = sum((free[node] + sum(movable.get(node, ()))) // size for node in nodes)
    costs = [0.0] + [inf] * min(most, room)
    for node in nodes:
        own = _node(free[node], sorted(movable.get(node, ()), reverse=True), size)
        if len(own) < 2:
            continue
        costs = [
            min(costs[v - k] + own[k] for k in range(min(v, len(own) - 1) + 1)) for v in range(len(costs))
        ]
    # More pieces cost no less.
    for v in range(len(costs) - 2, -1, -1):
        costs[v] = min(costs[v], costs[v + 1])
    return costs


def _node(free: int, movable: list[int], size: int) -> list[float]:
    """The least restarts for 0, 1, … pieces on a node."""
    costs = [0.0] * (free // size + 1)
    for count, gpus in enumerate(movable, 1):
        free += gpus
        costs += [float(count)] * (free // size + 1 - len(costs))
    return costs
