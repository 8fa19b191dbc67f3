"""Goals: expression and value agree, the list decides what the engine does, and errors in the list
are named.
"""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from kai_cp_models.actions.asking import waiting_groups
from kai_cp_models.actions.reclaim_bounds import reclaim_bounds
from kai_cp_models.actions.run import ActionRun
from kai_cp_models.cycle import Cycle
from kai_cp_models.joint.evicting import EvictingModel
from kai_cp_models.joint.goals import GOALS, Disruption, GoalList
from kai_cp_models.joint.model import Moves
from kai_cp_models.joint.policy import PREEMPT
from kai_cp_models.joint.problem import EvictionUnit
from kai_cp_models.ledger import Ledger
from kai_cp_models.settings import GoalWeights, ObjectiveSettings, Settings
from kai_cp_models.snapshot import Snapshot
from kai_cp_models.solver import cp_model, run
from tests.support.plans import SETTINGS, evicted, lost, solved
from tests.support.worlds import NOW, cluster, group, node, pod, pods, spec

DEFAULT = ObjectiveSettings()
SUMS = ObjectiveSettings.model_validate(
    {
        "goals": ["lost_work + moved_pods + lost_gpus", "stopped_groups + moved_groups"],
        "weights": {"lost_work": 0.25, "moved_pods": 2, "lost_gpus": 3, "moved_groups": 0.1},
    }
)
OBJECTIVE = ObjectiveSettings(lost_beyond_step_gpus=2)


def drawn(seed: int) -> Snapshot:
    """Running groups of two priorities and all ages, some elastic, and one group of higher priority that
    asks.
    """
    rng = Random(seed)
    members, groups = [pod("t-0", spec=spec(rng.randint(2, 6)))], [group("t", priority=100)]
    for i in range(rng.randint(2, 5)):
        count, home = rng.randint(1, 3), rng.choice(("n1", "n2"))
        members += pods(f"g{i}", count, home)
        minimum, start = rng.randint(1, count), rng.choice((None, NOW - rng.randint(1, 9)))
        groups.append(group(f"g{i}", minimum, priority=rng.choice((10, 50)), last_start=start, created=i))
    return cluster(members, groups, [node("n1"), node("n2"), node("n3", gpus=2)], actions=("preempt",))


def model_of(run: ActionRun) -> EvictingModel:
    asks = list(run.asks.values())
    base = run.base
    bounds = reclaim_bounds(run.ranked, asks, range(len(run.ranked)))
    return EvictingModel(
        base,
        run.policy,
        asks,
        run.ranked,
        bounds,
        required=0,
        objective=OBJECTIVE,
        moves=Moves.INTO_IDLE,
    )


def run_of(snapshot: Snapshot, settings: Settings = SETTINGS) -> ActionRun:
    cycle = Cycle(snapshot, settings, Ledger.of(snapshot), float("inf"))
    cycle.budget.begin(1.0)
    return ActionRun(cycle, PREEMPT, cycle.ledger, waiting_groups(cycle, "preempt"))


def solution(model: cp_model.CpModel) -> cp_model.CpSolver | None:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return solver if run(solver, model) in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None


@pytest.mark.parametrize("objective", [DEFAULT, SUMS], ids=["default", "sums"])
@pytest.mark.parametrize("seed", range(6))
def test_the_expression_of_a_plan_is_its_value(seed: int, objective: ObjectiveSettings) -> None:
    """With random losses and moves that the rows allow, the least value of each expression is the value of
    the plan.
    """
    run = run_of(drawn(seed))
    model = model_of(run)
    rng = Random(seed)
    for variable in (*model.lost, *model.moved.values()):
        if rng.random() < 0.6:
            model.cp.add_hint(variable, rng.random() < 0.5)
    model.cp.maximize(sum(rng.randint(-3, 3) * v for v in (*model.lost, *model.moved.values())))
    made = solution(model.cp)
    assert made is not None
    chosen = [bool(made.value(v)) for v in (*model.lost, *model.moved.values(), *model.admitted)]
    model.cp.clear_objective()  # type: ignore[no-untyped-call]
    moved = frozenset(key for key, variable in model.moved.items() if made.value(variable))
    plan = Disruption(
        model.units,
        [bool(made.value(v)) for v in model.lost],
        moved,
        [ask for ask, v in zip(model.asks, model.admitted, strict=True) if made.value(v)],
        OBJECTIVE,
    )
    objectives = GoalList(objective, moves_only=False).objectives(model, plan)
    for variable, value in zip((*model.lost, *model.moved.values(), *model.admitted), chosen, strict=True):
        model.cp.add(variable == value)
    expressed = []
    for one in objectives:
        model.cp.minimize(one.cost)
        solver = solution(model.cp)
        assert solver is not None
        expressed.append(solver.value(one.cost))
    goals = GoalList(objective, moves_only=False).entries
    assert expressed == [value for goal in goals for value in goal.value(plan)]
    assert expressed == [one.most for one in objectives]


def with_goals(*goals: str, **weights: float) -> Settings:
    return SETTINGS.model_copy(
        update={"objective": ObjectiveSettings(goals=goals, weights=GoalWeights(**weights))}
    )


def old_or_young() -> Snapshot:
    """A young group of two GPUs and an old one of one, on two nodes, of which either frees enough for the
    trigger.
    """
    return cluster(
        [
            pod("young-0", "n1", spec=spec(8)),
            pod("old-0", "n2", spec=spec(1)),
            pod("held-0", "n2", spec=spec(7)),
            pod("t-0", spec=spec(1)),
        ],
        [
            group("young", last_start=NOW - 60),
            group("old", last_start=NOW - 6_000),
            group("held", preemptible=False),
            group("t", priority=100),
        ],
        [node("n1"), node("n2")],
        actions=("preempt",),
    )


def test_the_list_decides_which_pods_are_lost() -> None:
    assert lost(solved(old_or_young())) == {"young-0"}
    assert lost(solved(old_or_young(), with_goals("lost_gpus"))) == {"old-0"}
    assert lost(solved(old_or_young(), with_goals("lost_work"))) == {"young-0"}


def move_or_lose() -> Snapshot:
    """The trigger needs n1: its pod of eight hours may be stopped, or its two pods may restart on n2."""
    return cluster(
        [
            *pods("worked", 1, "n1", spec=spec(1, cpus=60)),
            *pods("fresh", 2, "n2", spec=spec(1, cpus=20)),
            pod("t-0", spec=spec(1, cpus=30)),
        ],
        [
            group("worked", last_start=NOW - 8 * 3_600),
            group("fresh", 2, last_start=NOW - 8 * 3_600),
            group("t", priority=100),
        ],
        [node("n1"), node("n2"), node("n3", cpus=21)],
        actions=("preempt",),
    )


@pytest.mark.parametrize(("weight", "moves"), [(1, 1), (100, 0)])
def test_a_weight_says_how_much_lost_work_a_restart_is_worth(weight: float, moves: int) -> None:
    """Either moving one pod of ``fresh`` saves all work, or the pod that leaves is stopped instead."""
    plan = solved(move_or_lose(), with_goals("lost_work + moved_pods", moved_pods=weight))
    assert len(evicted(plan) - lost(plan)) == moves
    # A millisecond of one milli-GPU is the smallest part of a GPU-hour.
    unit = 1000 * 3600
    assert f"preempt: 1 lost_work + {weight} moved_pods [1/{unit}]" in {s.name for s in plan.stages}


WRONG: list[tuple[Any, str]] = [
    (["moved_pods", "moved_pods"], "named twice"),
    (["moved_pods + moved_pods"], "named twice"),
    (["speed"], "no goal 'speed'"),
    (["threshold + moved_pods"], "cannot be added up"),
    ([], "at least 1"),
]


@pytest.mark.parametrize(("goals", "words"), WRONG)
def test_a_wrong_list_is_refused_in_words(goals: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        ObjectiveSettings(goals=goals)


def test_a_list_may_be_one_text() -> None:
    assert ObjectiveSettings.model_validate({"goals": "lost_work+moved_pods, newest_first"}).goals == (
        "lost_work + moved_pods",
        "newest_first",
    )


def test_every_weight_belongs_to_a_goal_that_is_one_amount() -> None:
    assert set(GoalWeights.model_fields) <= set(GOALS)
    plan = Disruption((), (), frozenset(), (), OBJECTIVE)
    assert all(GOALS[name].value(plan) == (0,) for name in GoalWeights.model_fields)


def test_all_other_goals_break_ties_only_where_they_are_named() -> None:
    for first, second in product(("moved_pods", "lost_gpus"), repeat=2):
        if first != second:
            plan = solved(old_or_young(), with_goals(first, second))
            assert lost(plan) == {"old-0"}


def test_a_pod_that_got_its_place_in_this_cycle_is_neither_lost_nor_moved() -> None:
    """One pod of the unit runs, the other one got its place in allocate."""
    unit = EvictionUnit(group("g", 2), (pod("g-0", "n1"), pod("g-1")), 0, True)
    for gone, moved in ((True, frozenset()), (False, frozenset(one.key for one in unit.pods))):
        plan = Disruption([unit], [gone], moved, (), OBJECTIVE)
        assert GOALS["lost_gpus"].value(plan) == (1_000 * gone,)
        assert GOALS["moved_pods"].value(plan) == (len(moved) // 2,)


def test_a_pod_that_got_its_place_in_this_cycle_has_no_work_to_lose() -> None:
    """allocate gives g-1 the place without which g-0 runs below its minimum; t may take both."""
    members = [pod("g-0", "n1"), pod("g-1"), pod("t-0", spec=spec(2))]
    groups = [group("g", 2, last_start=NOW - 7), group("t", priority=100)]
    snapshot = cluster(members, groups, [node("n1", gpus=2)], actions=("allocate", "preempt"))
    ledger = Ledger.of(snapshot)
    ledger.place(members[1], 0, pipelined=False)
    cycle = Cycle(snapshot, SETTINGS, ledger, 0.0)
    (unit,) = ActionRun(cycle, PREEMPT, ledger, waiting_groups(cycle, "preempt")).ranked
    assert (unit.pods, unit.work, unit.weight) == (tuple(members[:2]), 7 * 1_001, 2_002)
