"""Lower bounds on the restarts that a value takes: the costs of the domains, each by itself, added up."""

from __future__ import annotations

from math import inf

from kai_cp_models.defrag.problem import Problem
from kai_cp_models.pods import GPU, MILLI


def least_restarts(problem: Problem, most: int) -> list[float]:
    """A lower bound on the restarts for each value 0, 1, … ``most``. Infinite where no number is enough."""
    if problem.question.gang:
        return _for_gangs(problem, most)
    found = [0.0]
    # Restarts of their gangs elsewhere are not counted, because two domains may share a gang.
    for restarts in sorted(restarts for restarts, _, _ in domains_to_free(problem))[:most]:
        found.append(found[-1] + restarts)
    return found + [inf] * (most + 1 - len(found))


def domains_to_free(problem: Problem) -> list[tuple[int, int, int]]:
    """(restarts there, restarts including pods elsewhere that restart with them, position) of each domain
    that can be freed."""
    unit_of = {pod.key: u for u, unit in enumerate(problem.units) for pod in unit.pods}
    found = []
    for k, nodes in enumerate(problem.domains):
        there = [key for node in nodes for key in problem.gpu_pods.get(node, ())]
        if all(key in unit_of for key in there):
            whole = sum(len(problem.units[u].pods) for u in {unit_of[key] for key in there})
            found.append((len(there), whole, k))
    return found


def units_at_bound(problem: Problem, value: int, restarts: int) -> set[int]:
    """The units from which every plan chooses that frees ``value`` domains with ``restarts`` pods.

    ``restarts`` is the least that counting allows. With that few, all pods that move are on domains that
    become free, and each of these domains is as cheap as the others permit.
    """
    found = domains_to_free(problem)
    cheapest = sum(sorted(there for there, _, _ in found)[: value - 1])
    nodes = {node for there, _, k in found if there <= restarts - cheapest for node in problem.domains[k]}
    return {u for u, unit in enumerate(problem.units) if nodes.issuperset(unit.nodes)}


def _for_gangs(problem: Problem, most: int) -> list[float]:
    """A lower bound on the restarts for 0, 1, … ``most`` gangs, if pods vanish when they leave a node.

    For its k-th piece of capacity a node must lose a least number of movable pods, the largest first. A
    domain chooses nodes, and the cluster chooses domains. Infinite where even losing all pods is not enough.
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
    # More pieces never cost less.
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
