"""What a finished plan is worth by the goals of the settings, whichever scheduler made it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kai_cp_models.cycle import Cycle
from kai_cp_models.joint.goals import Disruption, GoalList, Values
from kai_cp_models.joint.policy import CONSOLIDATION
from kai_cp_models.joint.problem import Ask, EvictionUnit, ask_of
from kai_cp_models.joint.victim_candidates import victim_candidates
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GroupKey, Pod, PodKey
from kai_cp_models.queries.cluster import begun
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from kai_cp_models.units import Batch


@dataclass(frozen=True, slots=True)
class GoalValue:
    """A plan's value for one entry of ``objective.goals``. Values are compared in their order; less is
    better."""

    goal: str
    value: Values


def goal_values(
    snapshot: Snapshot, settings: Settings, plan: Plan, *, after: Plan | None = None
) -> list[GoalValue]:
    """The values of ``objective.goals`` in their order, for all actions of the plan together.

    Units that could be lost are ranked as they stand when allocate has ended as in ``after`` (by default the
    plan itself). If a pod group loses some pods, that number of pods counts as lost, in the order in which
    policy takes them (5.4), whichever pods it really loses. Two plans can be compared in this way, with the
    same ``after``, only if they admit the same pods, because admission comes before all goals.
    """
    evicted = {decision.pod for decision in plan.decisions if decision.kind == "Evict"}
    placed = {decision.pod for decision in plan.decisions if decision.kind != "Evict"}
    cycle = begun(snapshot, settings)
    for one in (after or plan).decisions:
        if one.action == "allocate":
            pod, node = snapshot.pod_by_key[one.pod], snapshot.node_index[one.node]
            cycle.ledger.place(pod, node, one.gpu_groups, pipelined=one.kind == "Nominate")
    ranked = victim_candidates(cycle, (), CONSOLIDATION)
    disruption = Disruption(
        ranked,
        _lost(ranked, Counter(snapshot.pod_by_key[key].group for key in evicted - placed)),
        frozenset(evicted & placed),
        list(_asks(cycle, placed - evicted)),
        settings.objective,
    )
    goals = GoalList(settings.objective, moves_only=False)
    return [GoalValue(goal.name, goal.value(disruption)) for goal in goals.entries]


def _lost(ranked: Collection[EvictionUnit], pods: Counter[GroupKey | None]) -> list[bool]:
    """Whether each unit is lost if each group loses its number of ``pods``."""
    left = Counter(pods)
    found: list[bool] = []
    for item in ranked:
        key = item.group.key
        found.append(left[key] > 0)
        left[key] -= len(item.pods)
    return found


def _asks(cycle: Cycle, placed: Collection[PodKey]) -> Iterator[Ask]:
    """The waiting pods of each group that get a place, as one batch."""
    members: dict[GroupKey, list[Pod]] = defaultdict(list)
    for key in placed:
        pod = cycle.snapshot.pod_by_key[key]
        if pod.group in cycle.snapshot.group_by_key and pod.group is not None:
            members[pod.group].append(pod)
    for group, pods in members.items():
        gang = cycle.ledger.fixed.gangs[group]
        parts = (
            Batch(leaf, tuple(pod for pod in pods if (pod.subgroup or "default") == leaf.name))
            for leaf in gang.group.root.leaves()
        )
        with_pods = tuple(part for part in parts if part.pods)
        yield ask_of(cycle.ledger, gang, Batch(gang.group.root, parts=with_pods))
