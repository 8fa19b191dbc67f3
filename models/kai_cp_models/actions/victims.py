"""What the waiting groups of one run of an eviction action may disturb, and what counting says about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from kai_cp_models.actions.common import line_of
from kai_cp_models.actions.eviction_plan import EvictionPlan
from kai_cp_models.actions.reclaim_bounds import reclaim_bounds
from kai_cp_models.arrays import Ints
from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness.order import FairOrder
from kai_cp_models.joint.counting import CapacitySums, Counting, CumulativeDemand
from kai_cp_models.joint.goals import Disruption, GoalList
from kai_cp_models.joint.policy import EvictionPolicy
from kai_cp_models.joint.problem import Ask
from kai_cp_models.joint.prune import VictimPrefix
from kai_cp_models.joint.returning import Returning
from kai_cp_models.joint.victim_candidates import (
    VictimCandidate,
    VictimFilter,
    entitlement,
    victim_candidates,
)
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import MILLI, GroupKey


@dataclass
class Victims:
    """The asks of one run of an action, and what each of them may disturb."""

    cycle: Cycle
    policy: EvictionPolicy
    base: Ledger
    asks: Mapping[GroupKey, Ask]
    """All waiting groups of the run."""
    _takes: dict[object, frozenset[int]] = field(default_factory=dict)
    """Sets of units that some ask may take: by entitlement, and as ``VictimFilter`` keeps them."""
    _beside: dict[GroupKey, frozenset[int]] = field(default_factory=dict)
    _rooms: dict[object, Ints] = field(default_factory=dict)
    _prefix: tuple[object, list[VictimCandidate], VictimPrefix] | None = None
    """The last answer of ``first_of`` without ``again``."""

    @cached_property
    def goals(self) -> GoalList:
        """The goals by which plans of this action are compared."""
        return GoalList(self.cycle.settings.objective, moves_only=not self.policy.may_lose)

    def better(self, found: EvictionPlan, than: EvictionPlan) -> bool:
        """Whether the plan is better in the first goal in which the two differ, after simulation and among
        all units that could go.
        """
        here, there = self._disrupted(found), self._disrupted(than)
        values = ((goal.value(here), goal.value(there)) for goal in self.goals.entries)
        return next((mine < theirs for mine, theirs in values if mine != theirs), False)

    def _disrupted(self, found: EvictionPlan) -> Disruption:
        part, lost = self.disruption(found.ledger, found.ranked, found.asks), [False] * len(self.ranked)
        for item, gone in zip(part.ranked, part.lost, strict=True):
            lost[item.rank] = gone
        return replace(part, ranked=self.ranked, lost=lost)

    def disruption(
        self, ledger: Ledger, ranked: Sequence[VictimCandidate], asks: Sequence[Ask]
    ) -> Disruption:
        """What the plan that led to ``ledger`` disturbs of ``ranked``."""
        step = MILLI * self.cycle.settings.objective.lost_beyond_step_gpus
        return Disruption.of(self.base, ledger, ranked, asks, step)

    @cached_property
    def line(self) -> FairOrder:
        """All waiting groups in the fair order of the action's start; to be forked."""
        return line_of(self.base, self.asks)

    @cached_property
    def ranked(self) -> tuple[VictimCandidate, ...]:
        """All units that any waiting group may disturb, in the reverse fair order of the action's start."""
        return tuple(victim_candidates(self.cycle, list(self.asks.values()), self.policy))

    def takes_of(self, ask: Ask) -> frozenset[int]:
        """Ranks of the units that the ask may take."""
        key = entitlement(ask, self.policy)
        found = self._takes.get(key)
        if found is None:
            reach = VictimFilter(self.base, ask, self.policy)
            found = self._takes[key] = reach.takes_all(self._by_queue, self._owing, self._takes)
        return found

    def taken_by(self, asks: Iterable[Ask]) -> set[int]:
        """Ranks of the units that any of the asks may take; there are many asks and few different sets."""
        return set[int]().union(*{self.takes_of(ask) for ask in asks})

    def first_of(
        self, useful: Set[int], asks: Sequence[Ask], again: Sequence[Ask] = ()
    ) -> list[VictimCandidate] | None:
        """The units of these ranks that are opened first, see ``VictimPrefix``."""
        key = useful, tuple(ask.group.key for ask in asks)
        if self._prefix is None or self._prefix[0] != key:
            ranked = [item for item in self.ranked if item.rank in useful]
            bounds = reclaim_bounds(self.base, self.policy, asks, ranked, self.takes_of)
            self._prefix = key, ranked, VictimPrefix(self.counting, asks, ranked, bounds, self.base.book)
        _, ranked, prefix = self._prefix
        opened = prefix.positions(again)
        return None if opened is None else [ranked[o] for o in opened]

    @cached_property
    def _by_queue(self) -> Mapping[str, Sequence[VictimCandidate]]:
        found: dict[str, list[VictimCandidate]] = {}
        for item in self.ranked:
            found.setdefault(item.unit.group.queue, []).append(item)
        return found

    @cached_property
    def _owing(self) -> Set[str]:
        return {item.unit.group.queue for item in self.ranked if item.unit.owed}

    @cached_property
    def counting(self) -> Counting:
        """Free capacity and demand at the action's start."""
        everywhere = not self.policy.may_lose
        shapes = {ask.kind.shape for ask in self.asks.values()}
        asking = (pod for shape in shapes for pod in shape.examples)
        return Counting(self.base, asking, everywhere=everywhere)

    @cached_property
    def cumulative(self) -> CumulativeDemand:
        """The demand of no ask at all, to be copied and added to."""
        return CumulativeDemand(self.counting, self.ranked, moved=not self.policy.may_lose)

    def sums_alone(self, ask: Ask) -> CapacitySums:
        """What must suffice for the ask if it is alone and everything that it may disturb is gone.

        It takes less than to rank the victims.
        """
        own = self.counting.asked(ask)
        if not self.policy.may_lose:
            return CapacitySums(self.counting, own, own, self.counting.idle_room, moved=True)
        reach, victims = VictimFilter(self.base, ask, self.policy), self.cycle.snapshot.preemptible_groups
        own_queue = self.policy.own_queue
        queues = (ask.group.queue,) if own_queue else tuple(filter(reach.reclaims_from, victims))
        key = queues, own_queue and ask.group.priority
        if key not in self._rooms:
            groups = (group for queue in queues for group in victims.get(queue, ()) if reach.disturbs(group))
            there = (group.key for group in groups if self.base.has_places(group.key))
            gone = self.counting.leaving(pod for one in there for pod in self.base.fixed.gangs[one].pods)
            self._rooms[key] = self.counting.room(gone)
        return CapacitySums(self.counting, own, own, self._rooms[key])

    @cached_property
    def _returning(self) -> Returning:
        return Returning(self.base, (item.unit for item in self.ranked))

    def beside(self, ask: Ask) -> frozenset[int] | None:
        """Ranks of the units that may be lost while the ask is admitted; None: all of them."""
        if not self.policy.own_queue or len(self.asks) * len(self.ranked) > LIMITS.requeue_pairs:
            return None
        found = self._beside.get(ask.group.key)
        if found is None:
            first = self._returning.come_back_first(ask)
            found = self._beside[ask.group.key] = frozenset(range(len(self.ranked))).difference(first)
        return found
