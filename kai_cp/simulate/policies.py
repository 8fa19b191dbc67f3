"""The policies of a simulation: the engine, its greedy pass alone, or strict first-come first-served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kai_cp_models.engine import decide
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GPU, MILLI, PODS, Pod, PodStatus
from kai_cp_models.queries.cluster import greedy_plan
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot

SimulatedPolicy = Callable[[Snapshot, Settings], Plan]


def engine(snapshot: Snapshot, settings: Settings) -> Plan:
    """The engine with all its actions."""
    return decide(snapshot, settings)


def greedy(snapshot: Snapshot, settings: Settings) -> Plan:
    """The greedy pass of allocate alone: nothing is solved, nothing evicted."""
    return greedy_plan(snapshot, settings)


def first_come(snapshot: Snapshot, settings: Settings) -> Plan:
    """Place pod groups strictly by age on the fullest nodes; the first that does not fit blocks all later
    ones.
    """
    free = [list(node.allocatable) for node in snapshot.nodes]
    for pod in snapshot.pods:
        if pod.node is not None:
            _take(free[snapshot.node_index[pod.node]], pod)
    decisions: list[Decision] = []
    for group in sorted(snapshot.groups, key=lambda g: (g.created, g.key)):
        waiting = [pod for pod in snapshot.members[group.key] if pod.status is PodStatus.PENDING]
        if not waiting:
            continue
        places: list[tuple[Pod, int]] = []
        for pod in waiting:
            fitting = [i for i, room in enumerate(free) if _fits(room, pod)]
            if not fitting:
                return Plan(decisions=tuple(decisions))
            best = min(fitting, key=lambda i: (free[i][GPU], i))
            _take(free[best], pod)
            places.append((pod, best))
        decisions += [
            Decision("Bind", pod.key, group.key, snapshot.nodes[node].name, "allocate")
            for pod, node in places
        ]
    return Plan(decisions=tuple(decisions))


def _fits(room: list[int], pod: Pod) -> bool:
    needs = _needs(pod)
    return all(need <= left for need, left in zip(needs, room, strict=True))


def _take(room: list[int], pod: Pod) -> None:
    for i, need in enumerate(_needs(pod)):
        room[i] -= need


def _needs(pod: Pod) -> list[int]:
    needs = list(pod.spec.requests)
    needs[GPU] = pod.spec.gpu.devices * MILLI
    needs[PODS] = max(1, needs[PODS])
    return needs


POLICIES: Final[dict[str, SimulatedPolicy]] = {
    "kai_cp": engine,
    "kai_cp greedy": greedy,
    "first come": first_come,
}
