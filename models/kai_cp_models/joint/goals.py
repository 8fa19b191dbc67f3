"""The goals of the eviction actions: each is a record with a name, a unit, an expression and a value.

The setting ``objective.goals`` says which of them count, in which order, and which are added up. Every
proposer follows that list. The joint model minimises its expressions one after the other. Plans of every
proposer are compared by its values, which are computed from the disruption and share nothing with the model.
Rules are not goals: which asks are admitted, and what each may take, comes before all goals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import compress
from math import lcm
from typing import Final

from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.joint.evicting import EvictingModel
from kai_cp_models.joint.problem import Ask, leaving_first
from kai_cp_models.joint.search import Linear, Objective
from kai_cp_models.joint.victim_candidates import VictimCandidate
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import MILLI, Pod, PodKey
from kai_cp_models.settings import GoalName, ObjectiveSettings, goals_of
from kai_cp_models.solver import cp_model

_MOST_BEYOND: Final = 10_000_000
"""Steps that ``lost_beyond`` counts at most."""
_FINEST_WEIGHT: Final = 100
"""Parts of one to which the weights of a sum are rounded."""
SECONDS_PER_HOUR: Final = 3_600


@dataclass(frozen=True)
class Disruption:
    """What a plan disturbs, among all units that it could disturb in reverse fair order, and what gets a
    place for it.

    ``lost``: whether each unit of ``ranked`` is lost. ``moved``: pods with another place.
    ``step_milli_gpus``: see ``lost_beyond``.
    """

    ranked: Sequence[VictimCandidate]
    lost: Sequence[bool]
    moved: frozenset[PodKey]
    admitted: Sequence[Ask]
    step_milli_gpus: int

    @staticmethod
    def of(
        base: Ledger,
        ledger: Ledger,
        ranked: Sequence[VictimCandidate],
        admitted: Sequence[Ask],
        step_milli_gpus: int,
    ) -> Disruption:
        """The difference of ``ledger`` from ``base``: a unit is lost when no pod of it has a place."""
        lost: list[bool] = []
        moved: set[PodKey] = set()
        for item in ranked:
            pods = item.unit.pods
            kept = [pod for pod in pods if ledger.stays(pod)]
            lost.append(not kept if not item.unit.placed_now else pods[0].key not in ledger.held)
            moved.update(pod.key for pod in kept if ledger.place_of(pod) != base.place_of(pod))
        return Disruption(ranked, lost, frozenset(moved), admitted, step_milli_gpus)


Values = tuple[int, ...]
"""A plan's values of one goal, or of a list of goals: compared from the left, less is better."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal. ``unit``: what its weight is per; ``per_unit``: integers of the model in one unit.

    ``objectives``: the goal as expressions to minimise, mostly one. ``value``: the same numbers for a
    finished plan. ``moves``: the goal also has a meaning where nothing is lost, as in consolidation.
    """

    name: GoalName
    unit: str
    objectives: Callable[[EvictingModel], list[Objective]]
    value: Callable[[Disruption], Values]
    per_unit: int = 1
    moves: bool = False


# --- sums over what is lost or moved -----------------------------------------------------------------


def _sum(weights: Iterable[int], literals: Iterable[cp_model.IntVar]) -> Linear:
    """What ``sum(compress(weights, chosen))`` is for a plan."""
    return sum(weight * literal for weight, literal in zip(weights, literals, strict=True) if weight)


_Ranked = Sequence[VictimCandidate]


def _of_lost(
    name: GoalName, unit: str, words: str, weights: Callable[[_Ranked], Sequence[int]], *, per_unit: int = 1
) -> Goal:
    """A goal that is a sum over the lost units, with the weights of all units in reverse fair order."""
    return Goal(
        name,
        unit,
        lambda model: [Objective(words, _sum(weights(model.ranked), model.lost))],
        lambda plan: (sum(compress(weights(plan.ranked), plan.lost)),),
        per_unit,
    )


def _of_moved(
    name: GoalName,
    unit: str,
    words: str,
    weights: Callable[[_Ranked], Mapping[PodKey, int]],
    *,
    packing: bool = False,
) -> Goal:
    """A goal that is a sum over the moved pods, with the weights of all pods."""

    def expression(model: EvictingModel) -> Linear:
        of = weights(model.ranked)
        return _sum(of.values(), [model.moved[key] for key in of])

    def value(plan: Disruption) -> Values:
        of = weights(plan.ranked)
        return (sum(of[key] for key in plan.moved),)

    return Goal(name, unit, _moving(words, expression, packing=packing), value, moves=True)


def _moving(
    words: str, cost: Callable[[EvictingModel], Linear], *, packing: bool = False
) -> Callable[[EvictingModel], list[Objective]]:
    """Where nothing may be lost, pods have to move; minimising their number is a packing problem."""

    def objectives(model: EvictingModel) -> list[Objective]:
        alone = not model.policy.may_lose
        return [Objective(words, cost(model), int(alone), packing and alone)]

    return objectives


def _gpus(pods: Sequence[Pod]) -> int:
    return sum(map(milli_gpus, pods))


def _running_gpus(ranked: _Ranked) -> list[int]:
    return [0 if item.unit.placed_now else _gpus(item.unit.pods) for item in ranked]


def _works(ranked: _Ranked) -> dict[int, list[int]]:
    """Lost work of the units of each priority, the highest first; 0 for the units of the others."""
    priorities = sorted({item.unit.group.priority for item in ranked}, reverse=True)
    return {p: [item.work * (item.unit.group.priority == p) for item in ranked] for p in priorities}


def _weight(position: int, count: int) -> int:
    """The weight of the unit at ``position`` of ``count``: more than all units before it together, or its
    depth.
    """
    return 1 << position if count <= LIMITS.exact_order else position + 1


def _latest(ranked: _Ranked) -> dict[PodKey, int]:
    """Weights of all pods, in the order in which they would move."""
    pods = [pod.key for item in ranked for pod in leaving_first(item.unit)]
    return {key: _weight(position, len(pods)) for position, key in enumerate(pods)}


def _by_rank(ranked: _Ranked) -> list[int]:
    """Lost GPUs; those of units that policy takes last count up to half as much again."""
    last = max(len(ranked) - 1, 1)
    return [item.weight * (100 + 50 * position // last) for position, item in enumerate(ranked)]


# --- how deep losses reach ---------------------------------------------------------------------------


def _depth(name: GoalName, words: str, bucket_of: Callable[[VictimCandidate], object]) -> Goal:
    """How deep into the reverse fair order the losses reach; inside a bucket only amounts count."""

    def expression(model: EvictingModel) -> list[Objective]:
        reached = [model.cp.new_bool_var(f"reached[{item.rank}]") for item in model.ranked]
        for deeper, here in zip(reached[1:], reached, strict=False):
            model.cp.add_implication(deeper, here)
        buckets: dict[object, list[int]] = {}
        for o, item in enumerate(model.ranked):
            buckets.setdefault(bucket_of(item), []).append(o)
        for members in buckets.values():
            given = sum(model.ranked[o].weight * model.lost[o] for o in members)
            open_ = sum(model.ranked[o].weight * reached[o] for o in members)
            model.cp.add(given <= open_)
        return [Objective(words, sum(reached))]

    def value(plan: Disruption) -> Values:
        missing: dict[object, int] = {}
        for item, lost in zip(plan.ranked, plan.lost, strict=True):
            if lost:
                missing[bucket_of(item)] = missing.get(bucket_of(item), 0) + item.weight
        depth = 0
        for depth, item in enumerate(plan.ranked):
            if all(left <= 0 for left in missing.values()):
                return (depth,)
            if bucket_of(item) in missing:
                missing[bucket_of(item)] -= item.weight
        return (depth + 1 if missing else 0,)

    return Goal(name, "units", expression, value)


# --- what is no sum ----------------------------------------------------------------------------------


def _beyond(model: EvictingModel) -> list[Objective]:
    """GPUs lost beyond those admitted, in whole steps, so that a large gang is not stopped for one GPU only
    because it is younger.
    """
    given = [_gpus(ask.pods) * admitted for ask, admitted in zip(model.asks, model.admitted, strict=True)]
    beyond = model.cp.new_int_var(0, _MOST_BEYOND, "beyond")
    step = model.step_milli_gpus
    model.cp.add(step * beyond + step - 1 >= _sum(_running_gpus(model.ranked), model.lost) - sum(given))
    return [Objective("lost beyond what is admitted [steps]", beyond)]


def _is_beyond(plan: Disruption) -> Values:
    given = sum(_gpus(ask.pods) for ask in plan.admitted)
    lost = sum(compress(_running_gpus(plan.ranked), plan.lost))
    return (max(0, (lost - given) // plan.step_milli_gpus),)


def _moved_groups(plan: Disruption) -> Values:
    groups = {item.unit.group.key for item in plan.ranked if any(p.key in plan.moved for p in item.unit.pods)}
    return (len(groups),)


_ALL: Final = (
    _depth("threshold", "threshold", lambda item: item.bucket),
    Goal("lost_beyond", "steps", _beyond, _is_beyond),
    _depth("threshold_by_age", "threshold by age", lambda item: (item.bucket, item.age)),
    Goal(
        "lost_work_by_priority",
        "GPU-milliseconds",
        lambda model: [
            Objective(f"lost work at priority {priority} [GPU-milliseconds]", _sum(work, model.lost))
            for priority, work in _works(model.ranked).items()
        ],
        lambda plan: tuple(sum(compress(work, plan.lost)) for work in _works(plan.ranked).values()),
    ),
    _of_lost(
        "lost_work",
        "GPU-hours",
        "lost work [GPU-milliseconds]",
        lambda ranked: [item.work for item in ranked],
        per_unit=MILLI * SECONDS_PER_HOUR,
    ),
    _of_lost("lost_gpus", "GPUs", "lost GPUs [milli-GPUs]", _running_gpus, per_unit=MILLI),
    _of_lost(
        "stopped_groups",
        "pod groups",
        "pod groups stopped",
        lambda ranked: [int(item.unit.whole and not item.unit.placed_now) for item in ranked],
    ),
    _of_moved(
        "moved_pods",
        "pods",
        "moved pods",
        lambda ranked: {pod.key: 1 for item in ranked for pod in item.unit.pods},
        packing=True,
    ),
    Goal(
        "moved_groups",
        "pod groups",
        _moving("moved pod groups", lambda model: sum(model.moved_groups.values())),
        _moved_groups,
        moves=True,
    ),
    _of_lost(
        "newest_first",
        "order",
        "newest first",
        lambda ranked: [_weight(position, len(ranked)) for position in range(len(ranked))],
    ),
    _of_moved("moved_latest", "order", "moved in reverse fair order", _latest),
)
GOALS: Final[Mapping[GoalName, Goal]] = {goal.name: goal for goal in _ALL}
"""All goals by their names in the settings. A new goal needs one more entry here and its name there."""


class GoalList:
    """The goals of one action in their order; neighbours that are added up are one entry."""

    def __init__(self, settings: ObjectiveSettings, *, moves_only: bool) -> None:
        """``moves_only``: nothing may be lost (consolidation), so only goals about moves count."""
        self._weights = settings.weights
        self.entries: tuple[tuple[Goal, ...], ...] = tuple(
            goals
            for entry in settings.goals
            if (goals := tuple(g for n in goals_of(entry) if (g := GOALS[n]).moves or not moves_only))
        )
        self.by_policy = moves_only or settings.goals[:1] == ("threshold",)
        """Whether the victims' order is the first goal, so that it is enough to look at those that go first.
        """
        self.default = settings.goals == ObjectiveSettings().goals
        """Whether the list is the default one; bounds of plans made without a solver hold for that list only.
        """

    def objectives(self, model: EvictingModel, *, threshold: bool = True) -> list[Objective]:
        """The expressions that the model minimises, one after the other.

        ``threshold`` False: the rough objective instead of the thresholds that lead the list.
        """
        entries = list(self.entries)
        found: list[Objective] = []
        if not threshold and model.policy.may_lose and self.by_policy:
            found = self.rough(model)
            leading = ("threshold", "lost_beyond", "threshold_by_age")
            while entries and entries[0][0].name in leading:
                del entries[0]
        for goals in entries:
            found += self._of(goals, model)
        return found

    def rough(self, model: EvictingModel) -> list[Objective]:
        """A rough measure of disruption, for attempts that only ask whether there are places."""
        if model.policy.may_lose and self.by_policy:
            return [Objective("lost GPUs by rank", _sum(_by_rank(model.ranked), model.lost), packing=True)]
        if not self.entries:
            return [Objective("moved pods", sum(model.moved.values()), packing=True)]
        return [replace(self._of(self.entries[0], model)[0], floor=0)]

    def values(self, plan: Disruption) -> Values:
        """The plan's values: less is better, and the first difference decides."""
        return tuple(value for entry in self.entries for value in self.value(entry, plan))

    def value(self, entry: Sequence[Goal], plan: Disruption) -> Values:
        """The plan's value of one entry of the list."""
        if len(entry) == 1:
            return entry[0].value(plan)
        parts = self._parts(entry)
        return (sum(part * goal.value(plan)[0] for part, goal in zip(parts, entry, strict=True)),)

    def _of(self, goals: Sequence[Goal], model: EvictingModel) -> list[Objective]:
        """What one entry minimises: neighbours are one weighted sum of integers, all in the same unit."""
        if len(goals) == 1:
            return goals[0].objectives(model)
        parts = self._parts(goals)
        objectives = [goal.objectives(model)[0] for goal in goals]
        name = " + ".join(f"{self._weights.of(goal.name):g} {goal.name} [{goal.unit}]" for goal in goals)
        return [
            Objective(
                name,
                sum(part * one.cost for part, one in zip(parts, objectives, strict=True)),
                sum(part * one.floor for part, one in zip(parts, objectives, strict=True)),
                any(one.packing for one in objectives),
            )
        ]

    def _parts(self, goals: Sequence[Goal]) -> list[int]:
        """The integer weight of each goal in their sum; exact, because weights are fractions per unit."""
        shares = [
            Fraction(self._weights.of(goal.name)).limit_denominator(_FINEST_WEIGHT) / goal.per_unit
            for goal in goals
        ]
        common = lcm(*(share.denominator for share in shares))
        return [int(share * common) for share in shares]
