"""The goals of the eviction actions: each is a record with a name, a unit and a cost.

The setting ``objective.goals`` says which of them count, in which order, and which are added up. Every
proposer follows that list. A cost is stated once for the joint model, which minimises one after the other
over its variables, and for finished plans of every proposer, which are compared by the same numbers.
Rules are not goals: which asks are admitted, and what each may take, comes before all goals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import Final, TypeAlias

from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.joint.evicting import EvictingModel
from kai_cp_models.joint.problem import Ask, EvictionUnit, Place, leaving_first
from kai_cp_models.joint.search import Linear, Objective
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import MILLI, Pod, PodKey
from kai_cp_models.settings import GoalWeights, ObjectiveSettings, goals_of

_FINEST_WEIGHT: Final = 100
"""Parts of one to which the weights of a sum are rounded."""
SECONDS_PER_HOUR: Final = 3_600
_PERCENT: Final = 100


@dataclass(frozen=True)
class Disruption:
    """What a plan disturbs, among all units that it could disturb in reverse fair order, and what gets a
    place for it.

    ``lost``: whether each of the ``units`` is lost. ``moved``: pods with another place; those of places of
    this cycle do so at no cost. ``taken``: see ``of``.
    """

    units: Sequence[EvictionUnit]
    lost: Sequence[bool]
    moved: frozenset[PodKey]
    admitted: Sequence[Ask]
    objective: ObjectiveSettings
    taken: Mapping[PodKey, Place | None] = field(default_factory=dict)

    @staticmethod
    def of(
        units: Sequence[EvictionUnit],
        taken: Mapping[PodKey, Place | None],
        ledger: Ledger,
        admitted: Sequence[Ask],
        objective: ObjectiveSettings,
    ) -> Disruption:
        """What has become in ``ledger`` of pods that were ``taken`` from where they were. A group that came
        home in part has lost the first units of its chain, as many as its pods without a place make up: equal
        pods are alike.
        """
        pods = ledger.snapshot.pod_by_key
        ends = {key: ledger.place_of(pods[key]) if ledger.stays(pods[key]) else None for key in taken}
        moved = frozenset(key for key, place in ends.items() if place not in (None, taken[key]))
        gone = {key for key, place in ends.items() if place is None}
        groups = {pods[key].group for key in gone}
        losing = [item.running or item.pods if item.group.key in groups else () for item in units]
        counted = (pod for members in losing for pod in members if pod.key in gone)
        away, lost = Counter((pod.group, pod.spec) for pod in counted), list[bool]()
        for members in losing:
            whole = Counter((pod.group, pod.spec) for pod in members)
            part = whole & away
            lost.append(bool(part) and (part == whole or any(pod.key not in gone for pod in members)))
            away.subtract(part if lost[-1] else ())
        return Disruption(units, lost, moved, admitted, objective, taken)


Values = tuple[int, ...]
"""A plan's values of one goal, or of a list of goals: compared from the left, less is better."""

Disturbing: TypeAlias = EvictingModel | Disruption
"""A plan that is sought, with variables for what it disturbs, or a finished one."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal, or a weighted sum of neighbours. ``unit``: the unit that its weight is for; ``per_unit``:
    integers of the cost in one unit.

    ``costs``: what is minimised, mostly one integer, by the words for it, with their unit. ``moves``: whether
    it has a meaning where nothing is lost, as in consolidation.
    """

    name: str
    unit: str
    costs: Callable[[Disturbing], Mapping[str, Linear]]
    per_unit: int = 1
    moves: bool = False

    def objectives(self, model: EvictingModel, known: Disruption | None = None) -> list[Objective]:
        """The costs as expressions over the variables of the model, none above that of a known plan."""
        costs = self.costs(model).items()
        most = self.value(known) if known is not None else [None] * len(costs)
        return [Objective(words, cost, m) for (words, cost), m in zip(costs, most, strict=True)]

    def value(self, plan: Disruption) -> Values:
        """The costs of a finished plan."""
        return tuple(int(cost) for cost in self.costs(plan).values())  # type: ignore[arg-type]


def _lost(plan: Disturbing, weights: Iterable[int]) -> Linear:
    """The sum of the weights of the lost units; ``weights``: of all units in reverse fair order."""
    lost: Sequence[Linear] = plan.lost
    return sum(weight * gone for weight, gone in zip(weights, lost, strict=True) if weight)


def _moved(plan: Disturbing, weights: Mapping[PodKey, int]) -> Linear:
    """The sum of the weights of the moved pods; ``weights``: of all pods that count."""
    if isinstance(plan, Disruption):
        return sum(weights.get(key, 0) for key in plan.moved)
    return sum(weight * plan.moved[key] for key, weight in weights.items())


def _gpus(pods: Sequence[Pod]) -> int:
    return sum(map(milli_gpus, pods))


def _lost_gpus(plan: Disturbing) -> Linear:
    """Milli-GPUs of the lost units, as far as they ran."""
    return _lost(plan, (_gpus(item.running) for item in plan.units))


def _works(plan: Disturbing) -> Mapping[str, Linear]:
    """Lost work of each priority, the highest first."""
    priorities = sorted({item.group.priority for item in plan.units}, reverse=True)
    return {
        f"lost work at priority {priority} [GPU-milliseconds]": _lost(
            plan, (item.work * (item.group.priority == priority) for item in plan.units)
        )
        for priority in priorities
    }


def _weights(count: int) -> Iterable[int]:
    """Weights of units: each more than all before it together; of many, its depth."""
    return (1 << position if count <= LIMITS.exact_order else position + 1 for position in range(count))


def _latest(plan: Disturbing) -> Linear:
    """The moved pods, by the order in which they would move."""
    pods = [pod.key for item in plan.units for pod in leaving_first(item)]
    return _moved(plan, dict(zip(pods, _weights(len(pods)), strict=True)))


def _depth(plan: Disturbing, bucket_of: Callable[[EvictionUnit], object]) -> Linear:
    """How deep into the reverse fair order the losses reach; inside a bucket only amounts count."""
    buckets: dict[object, list[int]] = {}
    for o, item in enumerate(plan.units):
        buckets.setdefault(bucket_of(item), []).append(o)
    if isinstance(plan, Disruption):
        depth = 0
        for members in buckets.values():
            missing = sum(plan.units[o].weight for o in members if plan.lost[o])
            for o in members:
                if missing <= 0:
                    break
                missing, depth = missing - plan.units[o].weight, max(depth, o + 1)
        return depth
    reached = [plan.cp.new_bool_var(f"reached[{item.rank}]") for item in plan.units]
    for deeper, here in zip(reached[1:], reached, strict=False):
        plan.cp.add_implication(deeper, here)
    for members in buckets.values():
        given = sum(plan.units[o].weight * plan.lost[o] for o in members)
        open_ = sum(plan.units[o].weight * reached[o] for o in members)
        plan.cp.add(given <= open_)
    return sum(reached)


def _beyond(plan: Disturbing) -> Linear:
    """GPUs lost beyond those admitted, in steps: no large gang stops for one GPU for being younger."""
    step, lost = MILLI * plan.objective.lost_beyond_step_gpus, _lost_gpus(plan)
    if isinstance(plan, Disruption):
        assert isinstance(lost, int)
        return max(0, (lost - sum(_gpus(ask.pods) for ask in plan.admitted)) // step)
    given = [_gpus(ask.pods) * admitted for ask, admitted in zip(plan.asks, plan.admitted, strict=True)]
    beyond = plan.cp.new_int_var(0, LIMITS.most_beyond, "beyond")
    plan.cp.add(step * beyond + step - 1 >= lost - sum(given))
    return beyond


def _moved_groups(plan: Disturbing) -> Linear:
    if isinstance(plan, EvictingModel):
        return sum(plan.moved_groups.values())
    moved = (item for item in plan.units if any(pod.key in plan.moved for pod in item.running))
    return len({item.group.key for item in moved})


_ALL: Final = (
    Goal("threshold", "units", lambda plan: {"threshold": _depth(plan, lambda item: item.bucket)}),
    Goal("lost_beyond", "steps", lambda plan: {"lost beyond what is admitted [steps]": _beyond(plan)}),
    Goal(
        "threshold_by_age",
        "units",
        lambda plan: {"threshold by age": _depth(plan, lambda item: (item.bucket, item.age))},
    ),
    Goal("lost_work_by_priority", "GPU-milliseconds", _works),
    Goal(
        "lost_work",
        "GPU-hours",
        lambda plan: {"lost work [GPU-milliseconds]": _lost(plan, (item.work for item in plan.units))},
        per_unit=MILLI * SECONDS_PER_HOUR,
    ),
    Goal("lost_gpus", "GPUs", lambda plan: {"lost GPUs [milli-GPUs]": _lost_gpus(plan)}, per_unit=MILLI),
    Goal(
        "stopped_groups",
        "pod groups",
        lambda plan: {
            "pod groups stopped": _lost(plan, (int(u.whole and bool(u.running)) for u in plan.units))
        },
    ),
    Goal(
        "moved_pods",
        "pods",
        lambda plan: {"moved pods": _moved(plan, {p.key: 1 for item in plan.units for p in item.running})},
        moves=True,
    ),
    Goal("moved_groups", "pod groups", lambda plan: {"moved pod groups": _moved_groups(plan)}, moves=True),
    Goal("newest_first", "order", lambda plan: {"newest first": _lost(plan, _weights(len(plan.units)))}),
    Goal("moved_latest", "order", lambda plan: {"moved in reverse fair order": _latest(plan)}, moves=True),
)
GOALS: Final[Mapping[str, Goal]] = {goal.name: goal for goal in _ALL}
"""All goals by their names in the settings. A new goal needs one more entry here and its name there."""


def _summed(goals: Sequence[Goal], weights: GoalWeights) -> Goal:
    """Neighbours as one weighted sum; exact, because weights are fractions per unit."""
    if len(goals) == 1:
        return goals[0]
    shares = [
        Fraction(weights.of(goal.name)).limit_denominator(_FINEST_WEIGHT) / goal.per_unit for goal in goals
    ]
    common = lcm(*(share.denominator for share in shares))
    parts = [int(share * common) for share in shares]
    words = " + ".join(f"{weights.of(goal.name):g} {goal.name}" for goal in goals)

    def costs(plan: Disturbing) -> Mapping[str, Linear]:
        terms = (part * sum(goal.costs(plan).values()) for part, goal in zip(parts, goals, strict=True))
        return {f"{words} [1/{common}]": sum(terms)}

    moves = any(goal.moves for goal in goals)
    return Goal(" + ".join(goal.name for goal in goals), f"1/{common}", costs, moves=moves)


class GoalList:
    """The goals of one action in their order; neighbours that are added up are one entry."""

    def __init__(self, settings: ObjectiveSettings, *, moves_only: bool) -> None:
        """``moves_only``: nothing may be lost (consolidation), so only goals about moves count."""
        self.entries: tuple[Goal, ...] = tuple(
            _summed(goals, settings.weights)
            for entry in settings.goals
            if (goals := [g for name in goals_of(entry) if (g := GOALS[name]).moves or not moves_only])
        )
        self.by_policy = moves_only or settings.goals[:1] == ("threshold",)
        """Whether the victims' order is the first goal, so that those that go first are enough."""
        self.default = settings.goals == ObjectiveSettings().goals
        """Whether it is the default list, for which bounds of plans without a solver hold."""

    def objectives(self, model: EvictingModel, known: Disruption) -> list[Objective]:
        """The expressions that the model minimises, one after the other, to better a known plan."""
        return [one for goal in self.entries for one in goal.objectives(model, known)]

    def rough(self, model: EvictingModel) -> list[Objective]:
        """A rough measure of disruption, for attempts that only ask whether there are places."""
        if model.policy.may_lose and self.by_policy:
            # In percent; those of units that policy takes last count for more.
            last, late = max(len(model.units) - 1, 1), LIMITS.late_percent
            weights = (one.weight * (_PERCENT + late * o // last) for o, one in enumerate(model.units))
            return [Objective("lost GPUs by rank", _lost(model, weights))]
        return (self.entries or (GOALS["moved_pods"],))[0].objectives(model)[:1]
