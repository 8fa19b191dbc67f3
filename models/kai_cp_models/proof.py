"""Proofs of refusals: that no permitted plan serves a pod group beside all that come before it.

Proofs are made at the end of the cycle, for the plan as it is then, and from the snapshot alone: shortcuts of
an action, its other refusals and changes by later actions cannot influence them. Every certificate is a
relaxation. The groups that got a place and come before this one keep one, wherever it is; all that this one,
those that evict for their place, and the refused ones without a proof could ever take is gone at once; what
could be moved may go anywhere. If there is no place even so, there is none in any permitted plan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, repeat
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.actions.common import line_of
from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.cycle import Cycle
from kai_cp_models.explain.waiting import dead_end
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import NOTHING, Amounts
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.reclaim import reclaim_conceivable, victim_conceivable
from kai_cp_models.fairness.runtime import delayed, granted
from kai_cp_models.joint.choose import joint_model
from kai_cp_models.joint.counting import Counting, Leaving
from kai_cp_models.joint.departures import Departures, VictimSource
from kai_cp_models.joint.disaggregate import without
from kai_cp_models.joint.model import ModelTooLarge
from kai_cp_models.joint.problem import Ask, EvictionUnit, ask_of
from kai_cp_models.joint.search import solve
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import GPU, UNLIMITED, GroupKey, Pod, PodStatus
from kai_cp_models.reasons import UNCONDITIONAL
from kai_cp_models.rules.stateful.protocol import RuleState
from kai_cp_models.rules.static.table import accepting
from kai_cp_models.snapshot import PodGroup


@dataclass(frozen=True, slots=True)
class Proof:
    """Why a pod group cannot be served: certificates that together exclude every plan."""

    certificates: tuple[str, ...]


@dataclass(frozen=True)
class _Served:
    """A pod group that got a place in the cycle, with the batches that did."""

    group: PodGroup
    asks: tuple[Ask, ...]
    turn: int
    evicts: bool
    asked: Amounts
    """What it asks for in order and reclaim."""
    charged: Amounts
    """What limits and quotas count."""


@dataclass(frozen=True, slots=True)
class _Coming:
    """A kind of refused group that another plan may serve.

    ``before``: how many of the served come before it in the fair order. ``evicts``, ``moves``: whether it may
    trigger evictions, and moves.
    """

    queue: str
    priority: int
    asked: Amounts
    before: int
    evicts: bool
    moves: bool


class _Sums:
    """What the first ones of ``served`` ask for in all, per queue."""

    def __init__(self, book: QueueBook, served: Sequence[_Served]) -> None:
        self._places: dict[int, list[int]] = {}
        self._totals: dict[int, list[_Total]] = {}
        for place, one in enumerate(served):
            for i in book.line(one.group.queue):
                totals = self._totals.setdefault(i, [_Total()])
                totals.append(totals[-1].plus(one))
                self._places.setdefault(i, []).append(place)

    def up_to(self, queue: int, before: int) -> _Total:
        """The sum of those among the first ``before`` that are in the queue or below it."""
        count = bisect_left(self._places.get(queue, []), before)
        return self._totals.get(queue, [_Total()])[count]


@dataclass(frozen=True, slots=True)
class _Total:
    """Sums of ``_Served.asked`` and ``charged``; ``firm``: of those that cannot be preempted."""

    asked: Amounts = (0, 0, 0)
    charged: Amounts = (0, 0, 0)
    firm: Amounts = (0, 0, 0)

    def plus(self, one: _Served) -> _Total:
        """The sum with one more."""
        firm = self.firm if one.group.preemptible else amounts.add(self.firm, one.charged)
        return _Total(amounts.add(self.asked, one.asked), amounts.add(self.charged, one.charged), firm)


class Refuter:
    """Proofs for one finished cycle; ``base``: the ledger that it began with."""

    def __init__(self, cycle: Cycle, base: Ledger) -> None:
        self._cycle = cycle
        self._base = base
        self._snapshot = cycle.snapshot
        self._actions = cycle.snapshot.policy.actions
        self._departures = Departures(cycle, base)
        self._rooms: dict[tuple[frozenset[VictimSource], bool], Ints] = {}
        self._refuted: dict[tuple[object, ...], int] = {}
        """The number of served groups beside which such a batch was shown to have no places."""
        self._open: dict[tuple[object, ...], int] = {}
        """The number of served groups beside which nothing could be shown; beside fewer there is more free
        capacity."""
        self._without: tuple[frozenset[VictimSource], Ledger] | None = None
        self._alone: dict[tuple[object, ...], bool] = {}
        self._coming: Mapping[_Coming, int] = {}
        """The refused groups that another plan may serve: how many of each kind."""
        self._victims: dict[tuple[str, Amounts, frozenset[VictimSource]], frozenset[VictimSource]] = {}
        self._free: dict[tuple[frozenset[VictimSource], bool], NDArray[np.int64]] = {}
        self._concerned: dict[tuple[int, tuple[frozenset[VictimSource], bool]], bool] = {}
        self._demands: dict[bool, list[Ints]] = {}
        self._sources: dict[int, frozenset[VictimSource]] = {}
        """What is taken beside the first served groups, by their number."""
        self._accepted: dict[int, bool] = {}
        self._kinds_waiting: dict[int, dict[tuple[object, ...], list[Pod]]] = {}
        """The waiting pods by rule and kind."""

    def proofs(self) -> dict[GroupKey, Proof]:
        """The refused groups for which there is a proof.

        A group without a proof may be served by another plan, and what it takes there may serve others. So at
        first every refused group may come; those that are refused even so cannot, and the rest is asked again
        beside fewer.
        """
        found: dict[GroupKey, Proof] = {}
        if self._cycle.out_of_time() or self._cycle.dropped:
            return found
        asks: dict[GroupKey, Ask] = {}
        for key in sorted(self._cycle.waiting, key=lambda key: (self._turns.get(key, -1), key)):
            one = self._asked(key)
            if isinstance(one, Proof):
                found[key] = one
            elif one is not None:
                asks[key] = one
        while asks:
            coming = Counter(self._coming_of(ask) for ask in asks.values())
            if coming.keys() == self._coming.keys():
                break
            self._look_beside(coming)
            for key, ask in list(asks.items()):
                if self._cycle.out_of_time():
                    return found
                proof = self._prove(ask)
                if proof is not None:
                    found[key] = proof
                    del asks[key]
        return found

    def _look_beside(self, coming: Mapping[_Coming, int]) -> None:
        """From now on, so many of each kind may come."""
        self._coming = coming
        self._sources.clear()
        self._victims.clear()
        vars(self).pop("_gained", None)

    def _asked(self, key: GroupKey) -> Ask | Proof | None:
        """What the group asks for; the proof that it is impossible whatever else happens; None where it got a
        place or asks for nothing.
        """
        gang = self._base.fixed.gangs[key]
        if any(pod.key in self._cycle.ledger.held for pod in gang.pods):
            return None
        reason = self._cycle.waiting[key].reason
        if reason in UNCONDITIONAL:
            return Proof((reason,))
        ask = self._first_asks.get(key)
        if ask is None:
            return None
        words = self._impossible(ask)
        return Proof((words,)) if words else ask

    def _before(self, key: GroupKey) -> int:
        """How many of the served come before a refused group in the fair order."""
        return bisect_left(self._served, self._turns.get(key, -1), key=attrgetter("turn"))

    def _coming_of(self, ask: Ask) -> _Coming:
        group = ask.group
        return _Coming(
            group.queue,
            group.priority,
            amounts.pessimistic_batch(self._snapshot, ask.pods),
            self._before(group.key),
            delayed(self._snapshot, group) is None,
            self._may_move(group),
        )

    def _prove(self, ask: Ask) -> Proof | None:
        # The served ones stand in the fair order: beside all of them, and beside those before it. What
        # the first leaves open is open, and says the same of the next groups that ask for as much.
        before = self._before(ask.group.key)
        beside_all = self._certificate(ask, len(self._served))
        if not beside_all or before == len(self._served):
            return Proof((beside_all,)) if beside_all else None
        beside_earlier = self._certificate(ask, before)
        return Proof((beside_earlier, beside_all)) if beside_earlier else None

    def _certificate(self, ask: Ask, beside: int) -> str:
        """What refuses the ask beside the first ``beside`` served groups; "" if nothing does."""
        taken = self._taken_by(beside) | self._reach(ask, beside)
        # Where all that could move may leave as well, moves free nothing more.
        moves = self._moves(ask.group, beside) and self._departures.some_stay(taken)
        for certificate in (
            self._over_limit,
            self._over_sums,
            self._no_node,
            self._alone_over,
            self._without_model,
        ):
            if certificate(ask, beside, taken, moves):
                return certificate.__name__.strip("_")
        return ""

    # --- what got which place ----------------------------------------------------------------------------

    @cached_property
    def _first_asks(self) -> Mapping[GroupKey, Ask]:
        """What every pod group asks for first that waits in the snapshot."""
        base = self._base
        gangs = [base.fixed.gangs[group.key] for group in self._snapshot.waiting_groups]
        standing = ((gang, base.state(gang).batch) for gang in gangs)
        return {gang.group.key: ask_of(base, gang, batch) for gang, batch in standing if batch is not None}

    @cached_property
    def _turns(self) -> Mapping[GroupKey, int]:
        """The fair order of all waiting groups; what the cycle gave is charged at its position."""
        book = self._base.book.copy()
        given = {one.key for one in self._given}
        order = line_of(self._base, self._first_asks).fork(book)
        found: dict[GroupKey, int] = {}
        while (popped := order.pop()) is not None:
            found[popped] = len(found)
            if popped in given:
                group = self._snapshot.group_by_key[popped]
                book.charge(group.queue, self._first_asks[popped].asked, group.preemptible)
                order.charged(group.queue)
        return found

    @cached_property
    def _given(self) -> tuple[PodGroup, ...]:
        """Pod groups of which waiting pods got a place."""
        keys = {
            pod.group
            for key in self._cycle.ledger.held
            if (pod := self._snapshot.pod_by_key[key]).status is PodStatus.PENDING
        }
        return tuple(
            self._snapshot.group_by_key[key] for key in sorted(key for key in keys if key is not None)
        )

    @cached_property
    def _served(self) -> tuple[_Served, ...]:
        evicting = {trigger for one in self._cycle.evicted_by.values() for trigger in one.triggers}
        found: list[_Served] = []
        for group in self._given:
            asks = tuple(self._asks_of(group))
            pods = [pod for ask in asks for pod in ask.pods]
            places = {self._cycle.placed_by.get(pod.key, "allocate") for pod in pods}
            found.append(
                _Served(
                    group,
                    asks,
                    self._turns.get(group.key, len(self._turns)),
                    group.key in evicting or places != {"allocate"},
                    amounts.pessimistic_batch(self._snapshot, pods),
                    amounts.optimistic_batch(self._snapshot, pods),
                )
            )
        return tuple(sorted(found, key=attrgetter("turn")))

    @cached_property
    def _sums(self) -> _Sums:
        return _Sums(self._base.book, self._served)

    def _asks_of(self, group: PodGroup) -> Iterable[Ask]:
        """The batches of a group that got places, in their order."""
        gang = self._base.fixed.gangs[group.key]
        held = self._cycle.ledger.held
        for batch in gang.batches():
            if not all(pod.key in held for pod in batch.all_pods):
                return
            yield ask_of(self._base, gang, batch)

    # --- what may leave --------------------------------------------------------------------------

    def _reach(self, ask: Ask, before: int) -> frozenset[VictimSource]:
        """What the group itself might take in some action."""
        if delayed(self._snapshot, ask.group) is not None:
            return frozenset()
        asked = amounts.pessimistic_batch(self._snapshot, ask.pods)
        found = self._preempted(ask.group.queue, ask.group.priority)
        if "reclaim" in self._actions and self._may_reclaim(ask.group.queue, asked, before, self._reclaimed):
            found |= self._reclaimable(ask.group.queue, asked, self._reclaimed)
        return found

    def _preempted(self, queue: str, priority: int) -> frozenset[VictimSource]:
        if "preempt" not in self._actions or queue not in self._snapshot.preemptible_groups:
            return frozenset()
        return frozenset({("preempt", queue, granted(self._snapshot, queue, "preempt", queue), priority)})

    def _may_reclaim(self, queue: str, asked: Amounts, before: int, gone: frozenset[VictimSource]) -> bool:
        """Whether the queue may stay within its fair share, having lost all that others could take."""
        book = self._base.book
        with_earlier = amounts.add(self._sums.up_to(book.index(queue), before).asked, asked)
        return reclaim_conceivable(book, queue, with_earlier, lost=self._departures.given(gone))

    def _reclaimable(
        self, queue: str, asked: Amounts, gone: frozenset[VictimSource]
    ) -> frozenset[VictimSource]:
        """The victims that the filter might permit for a batch of this size, whatever was given, and with
        ``gone`` lost before."""
        known = self._victims.get((queue, asked, gone))
        if known is None:
            lost = self._departures.given(gone)
            known = self._victims[queue, asked, gone] = frozenset(
                ("reclaim", victim, granted(self._snapshot, victim, "reclaim", queue), 0)
                for victim in self._victim_queues
                if victim != queue and self._might_lose(queue, asked, victim, lost)
            )
        return known

    @cached_property
    def _victim_queues(self) -> tuple[str, ...]:
        leaves = self._snapshot.leaf_queues
        return tuple(queue for queue in self._snapshot.preemptible_groups if queue in leaves)

    def _might_lose(self, queue: str, asked: Amounts, victim: str, lost: Sequence[Amounts]) -> bool:
        return victim_conceivable(self._base.book, queue, asked, victim, lost=lost, gained=self._gained)

    @cached_property
    def _gained(self) -> list[Amounts]:
        """Per queue what was given in the cycle, or might be to those that come."""
        book = self._base.book
        found: list[Amounts] = [(0, 0, 0)] * len(book.held)
        given = [(one.group.queue, one.asked) for one in self._served]
        given += ((one.queue, amounts.total(repeat(one.asked, n))) for one, n in self._coming.items())
        for queue, asked in given:
            for i in book.line(queue):
                found[i] = amounts.add(found[i], asked)
        return found

    @property
    def _reclaimed(self) -> frozenset[VictimSource]:
        return self._taken_by(len(self._served))

    def _taken_by(self, beside: int) -> frozenset[VictimSource]:
        """What the first of the served, and those that may come, could take in any plan that serves them."""
        known = self._sources.get(beside)
        if known is None:
            known = self._sources[beside] = self._looked_for(beside)
        return known

    @cached_property
    def _evicting(self) -> Sequence[frozenset[tuple[str, int, Amounts]]]:
        """For each number of first served groups, the kinds of evicting groups among them."""
        found = [frozenset[tuple[str, int, Amounts]]()]
        for one in self._served:
            kind = (one.group.queue, one.group.priority, one.asked)
            found.append(found[-1] | {kind} if one.evicts and kind not in found[-1] else found[-1])
        return found

    def _looked_for(self, beside: int) -> frozenset[VictimSource]:
        coming = [one for one in self._coming if one.evicts]
        found = self._departures.ended
        for queue, priority in {(queue, priority) for queue, priority, _ in self._evicting[beside]} | {
            (one.queue, one.priority) for one in coming
        }:
            found |= self._preempted(queue, priority)
        while "reclaim" in self._actions:
            entitled = {(queue, asked) for queue, _, asked in self._evicting[beside]} | {
                (one.queue, one.asked)
                for one in coming
                if self._may_reclaim(one.queue, one.asked, min(beside, one.before), found)
            }
            more = found.union(*(self._reclaimable(queue, asked, found) for queue, asked in entitled))
            if more == found:
                break
            found = more
        return found

    def _moves(self, group: PodGroup, beside: int) -> bool:
        """Whether consolidation might move anything for the group, those beside it or those that come."""
        if "consolidation" not in self._actions or not self._snapshot.policy.consolidates:
            return False
        others = beside > self._first_mover or any(one.moves for one in self._coming)
        return others or self._may_move(group)

    @cached_property
    def _first_mover(self) -> int:
        """Position of the first served group for which others might have moved."""
        movers = (n for n, one in enumerate(self._served) if one.evicts and self._may_move(one.group))
        return next(movers, len(self._served))

    def _may_move(self, group: PodGroup) -> bool:
        return group.preemptible and delayed(self._snapshot, group) is None

    @cached_property
    def _pods_of_served(self) -> Sequence[int]:
        """For each number of first served groups, how many of their pods got places."""
        sizes = (sum(len(ask.pods) for ask in one.asks) for one in self._served)
        return list(accumulate(sizes, initial=0))

    # --- certificates ----------------------------------------------------------------------------

    def _impossible(self, ask: Ask) -> str:
        """What makes the request itself impossible, whichever pods leave; "" if nothing does."""
        topology = self._snapshot.policy.plugin("topology")
        for scopes, _ in ask.batch.leaves:
            for scope in scopes if topology else ():
                if scope.constraint is not None and scope.constraint.error:
                    return "topology"
        for spec, pod in {id(pod.spec): pod for pod in ask.pods}.items():
            known = self._accepted.get(spec)
            if known is None:
                known = self._accepted[spec] = self._accepted_somewhere(pod)
            if not known:
                return "no node accepts"
        return "dependency missing" if any(dead_end(self._base, pod) for pod in ask.pods) else ""

    def _accepted_somewhere(self, pod: Pod) -> bool:
        """Whether a node that is empty takes the pod; the same for all pods of one spec."""
        table = self._base.fixed.table
        request = [0 if d == GPU and pod.spec.gpu.shares else x for d, x in enumerate(pod.spec.requests)]
        return bool((accepting(table, pod) & (table.allocatable >= request).all(axis=1)).any())

    def _over_limit(self, ask: Ask, before: int, taken: frozenset[VictimSource], moves: bool) -> bool:
        """Limits, and quotas of work that cannot be preempted, when everything that may leave has left."""
        book = self._base.book
        asked = amounts.optimistic_batch(self._snapshot, ask.pods)
        lost = self._departures.given(taken)
        for i in book.line(ask.group.queue):
            earlier = self._sums.up_to(i, before)
            lent = self._base.lent(ask.pods, asked, beside=earlier.firm)
            free = NOTHING if lent is None else lent.by_queue.get(book.name(i), NOTHING)
            for r in range(3):
                if not asked[r]:
                    continue
                held = book.held[i][r] - lost[i][r] + earlier.charged[r] + asked[r]
                if book.limit[i][r] != UNLIMITED and held > book.limit[i][r]:
                    return True
                quota = book.firm_quota[i][r]
                if ask.group.preemptible or quota == UNLIMITED:
                    continue
                if book.firm[i][r] + earlier.firm[r] + asked[r] - free[r] > quota:
                    return True
        return False

    @cached_property
    def _counting(self) -> Counting:
        return Counting(self._base, self._asking())

    @cached_property
    def _counting_everywhere(self) -> Counting:
        return Counting(self._base, self._asking(), everywhere=True)

    def _asking(self) -> list[Pod]:
        waiting = (pod for ask in self._first_asks.values() for pod in ask.kind.shape.examples)
        return [*waiting, *(pod for one in self._served for ask in one.asks for pod in ask.pods)]

    def _demand(self, before: int, moves: bool) -> Ints:
        """What the first of the served ask for in all."""
        counting = self._counting_everywhere if moves else self._counting
        known = self._demands.setdefault(moves, [counting.demand(())])
        for one in self._served[len(known) - 1 : before]:
            known.append(known[-1] + counting.demand(pod for ask in one.asks for pod in ask.pods))
        return known[before]

    def _over_sums(self, ask: Ask, before: int, taken: frozenset[VictimSource], moves: bool) -> bool:
        """Sums over the cluster: with moves, of whole resources only."""
        counting = self._counting_everywhere if moves else self._counting
        room = self._rooms.get((taken, moves))
        if room is None:
            room = self._rooms[taken, moves] = counting.room_of(self._departures.columns(taken))
        own = counting.asked(ask)
        part = counting.totals if moves else slice(None)
        wanted = self._demand(before, moves) + own
        return bool((wanted > room)[part][own[part] > 0].any())

    def _no_node(self, ask: Ask, before: int, taken: frozenset[VictimSource], moves: bool) -> bool:
        """A pod of the group that no node takes, even alone, when everything that may leave or move has
        left."""
        if self._departures.count(taken, moves) > LIMITS.proof_leaving:
            return False
        rules = self._base.rules
        examples = {
            pod.key if any(rule.concerns(pod) for rule in rules) else id(pod.spec): pod for pod in ask.pods
        }
        return any(not self._taking(pod, (taken, moves)).any() for pod in examples.values())

    def _taking(self, pod: Pod, key: tuple[frozenset[VictimSource], bool]) -> Mask:
        """[N] nodes that may take the pod when what may leave (and move) is gone, which the key says.

        A stateful rule counts if no leaving pod matters to it and no waiting pod could open a node by it.
        """
        mask = accepting(self._base.fixed.table, pod).copy()
        for rule in self._base.rules:
            if not rule.concerns(pod) or self._matters(rule, key) or self._opened(rule, pod):
                continue
            allowed = rule.mask(pod, now=False)
            if allowed is not None:
                mask &= allowed
        free = self._free.get(key)
        if free is None:
            free = self._free[key] = self._counting.free(self._departures.columns(*key))
        request = np.array(pod.spec.requests)
        if pod.spec.gpu.shares:
            request[GPU] = 0
        fits: Mask = mask & (free >= request).all(axis=1)
        return fits

    def _matters(self, rule: RuleState, key: tuple[frozenset[VictimSource], bool]) -> bool:
        """Whether one of those that leave matters to the rule."""
        known = self._concerned.get((id(rule), key))
        if known is None:
            known = any(rule.concerns(other) for other in self._departures.gone(*key))
            self._concerned[id(rule), key] = known
        return known

    def _opened(self, rule: RuleState, pod: Pod) -> bool:
        """Whether a waiting pod may open a node to this one: a plan may place it, whatever this plan does."""
        if not rule.opened_by(pod):
            return False
        kinds = self._kinds_waiting.get(id(rule))
        if kinds is None:
            kinds = self._kinds_waiting[id(rule)] = {}
            for group in self._snapshot.waiting_groups:
                for other in self._snapshot.members[group.key]:
                    if other.status is PodStatus.PENDING:
                        kinds.setdefault((id(other.spec), rule.identity(other)), []).append(other)
        others = (kind[0] if kind[0].key != pod.key else kind[-1] for kind in kinds.values())
        return any(other.key != pod.key and rule.opened_by(pod, other) for other in others)

    def _alone_over(self, ask: Ask, before: int, taken: frozenset[VictimSource], moves: bool) -> bool:
        """Sums over the nodes that accept the pods of the group, when everything that may leave or move has
        left."""
        specs = tuple(sorted({id(pod.spec) for pod in ask.pods}))
        key = (specs, len(ask.pods), taken, moves)
        known = self._alone.get(key)
        if known is None:
            known = self._departures.count(taken, moves) <= LIMITS.proof_leaving and any(
                self._short(pods, self._departures.columns(taken, moves)) for pods in _by_spec(ask.pods)
            )
            self._alone[key] = known
        return known

    def _short(self, pods: Sequence[Pod], leaving: Leaving) -> bool:
        counting = Counting(self._base, pods)
        wanted = counting.demand(pods)
        room = counting.room_of(leaving)
        return bool((wanted > room)[wanted > 0].any())

    def _without_model(self, ask: Ask, before: int, taken: frozenset[VictimSource], moves: bool) -> bool:
        """CP-SAT: no places for this and all earlier ones, everything gone that may go, moves free."""
        # What cannot be placed beside fewer groups cannot be placed beside more.
        key = (ask.kind.signature, taken, moves)
        if key in self._refuted and self._refuted[key] <= before:
            return True
        if before <= self._open.get(key, -1):
            return False
        budget = self._cycle.budget
        size = len(ask.pods) + self._pods_of_served[before]
        moving = self._departures.moving(taken) if moves and size <= LIMITS.proof_pods else ()
        if size + len(moving) > LIMITS.proof_pods or budget.passed():
            return False
        asks = [*(part for one in self._served[:before] for part in one.asks), ask]
        work = min(LIMITS.proof_work, budget.work_worth())
        if work < LIMITS.admission_work:
            return False
        units = [
            EvictionUnit(self._snapshot.group_by_key[pod.group], (pod,), 0, False)
            for pod in moving
            if pod.group is not None
        ]
        pods = [*moving, *(pod for part in asks for pod in part.pods)]
        try:
            model = joint_model(self._beside_any(pods, taken), asks, units, may_lose=False)
        except ModelTooLarge:
            self._open[key] = before
            return False
        for literal in model.admitted:
            model.cp.add(literal == 1)
        outcome, _ = solve(model.cp, self._cycle.settings.solver, work, seconds=budget.seconds_left())
        budget.spend(outcome.work)
        shown = outcome.status == "infeasible" and outcome.proved
        if not shown:
            budget.in_vain(outcome.work)
        budget.cut = budget.cut or outcome.cut
        (self._refuted if shown else self._open)[key] = before
        return shown

    def _beside_any(self, pods: Sequence[Pod], taken: frozenset[VictimSource]) -> Ledger:
        """``_emptied`` without the rules by which neighbours open a node to one of the pods: in a permitted
        plan its neighbour may stay, or come.
        """
        ledger = self._emptied(taken).copy()
        kept = (rule for rule in ledger.rules if not any(map(rule.opened_by, pods)))
        ledger.rules = tuple(kept)
        return ledger

    def _emptied(self, taken: frozenset[VictimSource]) -> Ledger:
        """The ledger of the cycle's start without what may leave; only read."""
        if self._without is None or self._without[0] != taken:
            self._without = taken, without(self._base, self._departures.pods(taken))
        return self._without[1]


def _by_spec(pods: Iterable[Pod]) -> Iterable[Sequence[Pod]]:
    found: dict[int, list[Pod]] = {}
    for pod in pods:
        found.setdefault(id(pod.spec), []).append(pod)
    return found.values()
