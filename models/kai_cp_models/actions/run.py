"""One run of an eviction action: what its waiting groups may disturb, what counting says about them, and what
is decided so far.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import accumulate, compress
from operator import is_not, not_

import numpy as np

from kai_cp_models.actions.asking import line_of
from kai_cp_models.actions.eviction_plan import EvictionPlan
from kai_cp_models.actions.reclaim_bounds import reclaim_bounds, units_in_turn
from kai_cp_models.arrays import Ints
from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.fairness.order import FairOrder
from kai_cp_models.joint.admission import RefusalCache
from kai_cp_models.joint.counting import Counting, CumulativeDemand
from kai_cp_models.joint.goals import Disruption, GoalList
from kai_cp_models.joint.policy import EvictionPolicy
from kai_cp_models.joint.problem import Ask, AskKind, EvictionUnit, Place, examples, runs
from kai_cp_models.joint.returning import InLine, Returning
from kai_cp_models.joint.victim_candidates import VictimOrder, victim_candidates
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import ACTIVE_USED, UNLIMITED, GroupKey, Pod, PodKey


class Opening:
    """Units that may go one after the other in reverse fair order."""

    def __init__(self, counting: Counting, units: Iterable[EvictionUnit]) -> None:
        self._counting, self._units = counting, list(units)
        self._leaving = counting.leaving(pod for one in self._units for pod in one.pods)
        self._ends = list(accumulate((len(one.pods) for one in self._units), initial=0))

    def first_for(self, asks: Sequence[Ask], again: Sequence[Ask] = ()) -> list[EvictionUnit] | None:
        """The first units that free enough for all asks by counting, wherever it is; None when all are too
        few. ``again``: asks that count twice, as far as there are units.

        The threshold of a plan is hardly ever deeper than the last of these units.
        """
        if (count := self._enough(asks)) > len(self._units):
            return None
        return self._units[: self._enough([*asks, *again]) if again else count]

    def _enough(self, asks: Sequence[Ask]) -> int:
        """The first number of units after which there is enough for all asks."""
        wanted, turns = self._counting.demand(()), np.arange(self._ends[-1])
        wanted = sum((self._counting.asked(ask) for ask in asks), start=wanted)

        def enough(end: int) -> bool:
            room = self._counting.room(self._leaving.part(turns < end))
            return bool(np.all(room >= wanted, where=wanted > 0))

        return bisect_left(self._ends, True, key=enough)


def rightful(order: VictimOrder, asks: Sequence[Ask], lost: Set[int]) -> frozenset[GroupKey]:
    """The first asks of a plan that are to be decided without the others (formulation 1.3), so that no unit
    is lost that only the others have a right to; none where these are all asks.

    ``lost``: ranks of the lost units, or of the moved ones where none is lost. An ask with a right to none of
    them is left out. So are the first that has a right to fewer than an earlier one, and all later ones:
    without it, that one may take other units.
    """
    rights, kept = dict[frozenset[int], frozenset[int]](), list[GroupKey]()
    for ask in asks if lost else ():
        takes = order.takes(ask)
        if takes not in rights:
            mine = takes & lost
            if any(mine < one for one in rights.values()):
                break
            rights[takes] = mine
        if rights[takes]:
            kept.append(ask.group.key)
    return frozenset(kept if len(kept) < len(asks) else ())


@dataclass
class ActionRun:
    """The triggers of one run of an action, what each of them may disturb, and what is decided."""

    cycle: Cycle
    policy: EvictionPolicy
    base: Ledger
    asks: Mapping[GroupKey, Ask]
    """All waiting groups of the run."""
    plans: dict[tuple[GroupKey, ...], list[EvictionPlan]] = field(default_factory=dict)
    """First plans by what they were looked for, as far as they may be asked for again."""

    def __post_init__(self) -> None:
        """Nothing is decided."""
        self.begun = self.anew = False
        """Whether first plans were tried; whether the victims of the admitted triggers are chosen anew for
        one more."""
        self.open_units: Set[int] | None = None
        """Ranks of the units that may be disturbed at this point; None: all that admitted asks may take."""
        self.stay: Set[PodKey] = frozenset()
        """Pods of such units that may not leave."""
        self.found = EvictionPlan(self.base, (), (), {}, (), complete=True)
        """The plan so far, of what is admitted; at first nothing is."""
        self.open, self.refused = dict(self.asks), set[GroupKey]()
        """The triggers that are not decided yet, and those that are refused."""
        self.undecided = set[GroupKey]()
        """Those that were refused because the search had ended."""
        self.refusals = RefusalCache(self.base, self.policy)

    def again(self) -> ActionRun:
        """A run of the same asks in the same state, of which nothing is decided."""
        run = copy(self)
        run.__post_init__()
        return run

    @cached_property
    def kinds(self) -> Mapping[AskKind, Mapping[GroupKey, Ask]]:
        """All triggers of the run by kind."""
        found: dict[AskKind, dict[GroupKey, Ask]] = {}
        for key, ask in self.asks.items():
            found.setdefault(ask.kind, {})[key] = ask
        return found

    def alike(self, ask: Ask) -> Mapping[GroupKey, Ask]:
        """The triggers that are refused with this one."""
        alone = not self.policy.may_lose and runs(self.base, ask)
        return {ask.group.key: ask} if alone else self.kinds[ask.kind]

    @property
    def rightful(self) -> frozenset[GroupKey]:
        """The first admitted asks, if these are to be decided alone first; so far all are decided as one."""
        found = self.found
        # If the plan is too large, it stays open which units are best lost.
        if self.open_units is not None or self.anew or not found.asks or found.too_large_to_weigh:
            return frozenset()
        # Victims are ranked only where a plan disturbs some; in consolidation that takes a second.
        return rightful(self.ranked, found.asks, found.lost or found.disturbed)

    @cached_property
    def goals(self) -> GoalList:
        """The goals by which plans of this action are compared."""
        return GoalList(self.cycle.settings.objective, moves_only=not self.policy.may_lose)

    def better(self, found: EvictionPlan, than: EvictionPlan) -> bool:
        """Whether the plan is better in the first goal in which the two differ, among all units."""
        # Units that would go only after all that either plan disturbs weigh in no goal.
        ranked = self.ranked[: max(found.disturbed | than.disturbed, default=-1) + 1]
        here, there = (self.disruption(one.ledger, ranked, one.asks) for one in (found, than))
        values = ((goal.value(here), goal.value(there)) for goal in self.goals.entries)
        return next((mine < theirs for mine, theirs in values if mine != theirs), False)

    def disruption(self, ledger: Ledger, ranked: Sequence[EvictionUnit], asks: Sequence[Ask]) -> Disruption:
        """What the plan that led to ``ledger`` disturbs."""
        return Disruption.of(ranked, self.taken(ledger), ledger, asks, self.cycle.settings.objective)

    def may_move(self, moved: Iterable[Pod], asks: Iterable[Ask]) -> bool:
        """Whether at most as many GPUs of running pods move as the settings allow for these asks."""
        ratio = self.cycle.settings.objective.max_moved_gpus_per_admitted_gpu
        if ratio == UNLIMITED:
            return True
        runs = (pod for pod in moved if pod.status in ACTIVE_USED)
        return sum(map(milli_gpus, runs)) <= ratio * sum(milli_gpus(pod) for ask in asks for pod in ask.pods)

    def taken(self, ledger: Ledger) -> dict[PodKey, Place | None]:
        """The pods that are not where they were, and where that was."""
        base, pods = self.base, ledger.snapshot.pod_by_key
        # Nearly all left before, or are held there as they were, by the same record.
        new = compress(ledger.evicted.values(), map(not_, map(base.evicted.__contains__, ledger.evicted)))
        found = {pod.key: base.place_of(pod) for pod in new}
        other = compress(base.held, map(is_not, map(ledger.held.get, base.held), base.held.values()))
        return found | {key: base.place_of(pods[key]) for key in other if self.away(key, ledger)}

    def away(self, key: PodKey, ledger: Ledger) -> bool:
        """Whether a pod that some plan of the run took is away in ``ledger``, see ``taken``."""
        if key not in self.base.held:
            return key in ledger.evicted
        pod = ledger.snapshot.pod_by_key[key]
        return ledger.place_of(pod) != self.base.place_of(pod)

    @cached_property
    def line(self) -> FairOrder:
        """All waiting groups in the fair order of the action's start; to be forked."""
        return line_of(self.base, self.asks)

    @cached_property
    def in_line(self) -> InLine:
        """The same line with all that may be lost."""
        lost = ((group, whole) for group, whole in self.ranked.groups if group.key not in self.asks)
        return InLine(self.line, self.base.book, lost)

    @cached_property
    def ranked(self) -> VictimOrder:
        """All units that any waiting group may disturb, in the reverse fair order of the action's start."""
        return victim_candidates(self.cycle, list(self.asks.values()), self.policy)

    def taken_by(self, asks: Iterable[Ask]) -> set[int]:
        """Ranks of the units that any of the asks may take; there are many asks and few different sets."""
        return set[int]().union(*set(map(self.ranked.takes, asks)))

    def opening(self, asks: Sequence[Ask], useful: Set[int] | None = None) -> Opening:
        """The units that may go for the asks in reverse fair order. ``useful``: the ranks of those that are
        looked at; None: all that one of them may take."""
        ranks = sorted(self.taken_by(asks) if useful is None else useful)
        ranked, bounds = map(self.ranked.__getitem__, ranks), reclaim_bounds(self.ranked, asks, ranks)
        return Opening(self.counting, units_in_turn(asks, ranked, bounds, self.base.book))

    @cached_property
    def counting(self) -> Counting:
        """Free capacity and demand at the action's start."""
        return Counting(self.base, examples(self.asks.values()), everywhere=not self.policy.may_lose)

    @cached_property
    def cumulative(self) -> CumulativeDemand:
        """The demand of no ask at all, to be copied and added to."""
        return CumulativeDemand(self.counting, self.ranked)

    @cached_property
    def emptied(self) -> Ints:
        """[size, D] the most that the nodes offer when everything that any ask may take is gone."""
        if not self.policy.may_lose:
            return self.counting.idle_room
        return self.counting.room(self.cumulative.leaving)

    @cached_property
    def losable(self) -> Callable[[Ask], frozenset[int] | None]:
        """Ranks of the units that may be lost while an ask is admitted; None: all of them."""
        if not self.policy.own_queue or len(self.asks) * len(self.ranked) > LIMITS.requeue_pairs:
            return lambda _: None
        returning, units = Returning(self.base, self.ranked), frozenset(range(len(self.ranked)))
        return cache(lambda ask: units.difference(returning.come_back_first(ask)))
