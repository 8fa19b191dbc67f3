"""Proofs of refusals: that no permitted plan serves a pod group beside all that come before it.

Proofs are made at the end of the cycle, for the plan as it is then, and from the snapshot alone: shortcuts of
an action, its other refusals and changes by later actions cannot influence them. Every certificate is a
relaxation. The batches that got a place and come before this one keep one, wherever it is. Beside them, every
group that waits may come or not, and by whichever action: all that one of them could ever take is gone at
once; what could be moved may go anywhere. If there is no place even so, there is none in any permitted plan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain, repeat
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.actions.common import line_of, waiting_lines
from kai_cp_models.actions.stale import stale_groups
from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.cycle import Cycle
from kai_cp_models.explain.waiting import dead_end
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import NOTHING, Amounts
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.order import group_sort_key
from kai_cp_models.fairness.reclaim import reclaim_conceivable, victim_conceivable
from kai_cp_models.fairness.runtime import delayed, granted
from kai_cp_models.joint.counting import Counting, Leaving
from kai_cp_models.joint.departures import Departures, VictimSource
from kai_cp_models.joint.disaggregate import without
from kai_cp_models.joint.model import JointModel, ModelTooLarge
from kai_cp_models.joint.problem import Ask, EvictionUnit, ask_of
from kai_cp_models.joint.search import solve
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import ACTIVE_USED, GPU, PODS, UNLIMITED, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.policy import STATE_ACTIONS, TIME_ACTIONS
from kai_cp_models.reasons import UNCONDITIONAL
from kai_cp_models.rules.stateful.protocol import RuleState
from kai_cp_models.rules.static.table import accepting


@dataclass(frozen=True, slots=True)
class Proof:
    """Why a pod group cannot be served; ``certificate``: what excludes every plan."""

    certificate: str


@dataclass(frozen=True, slots=True)
class _Served:
    """A batch that got its places in the cycle, with its turn in the fair order.

    ``charged``: what limits and quotas count.
    """

    ask: Ask
    turn: int
    charged: Amounts


@dataclass(frozen=True, slots=True)
class _Coming:
    """A kind of group that waits and that another plan may serve.

    ``asked``: the least that its first batch asks for, and any further one, in reclaim. ``gains``: the most
    that its queue is charged for it. ``evicts``, ``moves``: whether it may trigger evictions, and moves.
    """

    queue: str
    priority: int
    asked: frozenset[Amounts]
    gains: Amounts
    evicts: bool
    moves: bool


class _Sums:
    """What the first ones of ``served`` are charged in all, per queue."""

    def __init__(self, book: QueueBook, served: Sequence[_Served]) -> None:
        self._places: dict[int, list[int]] = {}
        self._totals: dict[int, list[_Total]] = {}
        for place, one in enumerate(served):
            for i in book.line(one.ask.group.queue):
                totals = self._totals.setdefault(i, [_Total()])
                totals.append(totals[-1].plus(one))
                self._places.setdefault(i, []).append(place)

    def up_to(self, queue: int, before: int) -> _Total:
        """The sum of those among the first ``before`` that are in the queue or below it."""
        count = bisect_left(self._places.get(queue, []), before)
        return self._totals.get(queue, [_Total()])[count]


@dataclass(frozen=True, slots=True)
class _Total:
    """Sums of ``_Served.charged``; ``firm``: of those that cannot be preempted."""

    charged: Amounts = NOTHING
    firm: Amounts = NOTHING

    def plus(self, one: _Served) -> _Total:
        """The sum with one more."""
        firm = self.firm if one.ask.group.preemptible else amounts.add(self.firm, one.charged)
        return _Total(amounts.add(self.charged, one.charged), firm)


class _Rights:
    """What groups of some kinds may take and move in any plan; ``coming``: how many of each kind."""

    def __init__(self, base: Ledger, departures: Departures, coming: Mapping[_Coming, int]) -> None:
        self._book = base.book
        self._snapshot = base.snapshot
        self._departures = departures
        self._coming = coming
        self._actions = base.snapshot.policy.actions

    @cached_property
    def moves(self) -> bool:
        """Whether consolidation might move anything."""
        consolidates = "consolidation" in self._actions and self._snapshot.policy.consolidates
        return consolidates and any(one.moves for one in self._coming)

    @cached_property
    def taken(self) -> frozenset[VictimSource]:
        """What may leave: what one of them takes may entitle another."""
        evicting = [one for one in self._coming if one.evicts]
        found = self._departures.ended | (self._departures.resized if self.moves else frozenset())
        for queue, priority in {(one.queue, one.priority) for one in evicting}:
            found |= self._preempted(queue, priority)
        asking = {(one.queue, asked) for one in evicting for asked in one.asked}
        while "reclaim" in self._actions:
            lost = self._departures.given(found)
            more = found.union(*(self._reclaimed(queue, asked, lost) for queue, asked in asking))
            if more == found:
                break
            found = more
        return found

    def _preempted(self, queue: str, priority: int) -> frozenset[VictimSource]:
        if "preempt" not in self._actions or queue not in self._snapshot.preemptible_groups:
            return frozenset()
        return frozenset({("preempt", queue, granted(self._snapshot, queue, "preempt", queue), priority)})

    def _reclaimed(self, queue: str, asked: Amounts, lost: Sequence[Amounts]) -> frozenset[VictimSource]:
        """The victims that the filter might permit for a batch of this size, whatever was given, and with
        ``lost`` taken before."""
        fair = self._snapshot.policy.plugin("proportion")
        if fair and not reclaim_conceivable(self._book, queue, asked, lost=lost):
            return frozenset()
        return frozenset(
            ("reclaim", victim, granted(self._snapshot, victim, "reclaim", queue), 0)
            for victim in self._victim_queues
            if victim != queue and (not fair or self._may_lose(queue, asked, victim, lost))
        )

    def _may_lose(self, queue: str, asked: Amounts, victim: str, lost: Sequence[Amounts]) -> bool:
        return victim_conceivable(self._book, queue, asked, victim, lost=lost, gained=self._gained)

    @cached_property
    def _victim_queues(self) -> tuple[str, ...]:
        leaves = self._snapshot.leaf_queues
        return tuple(queue for queue in self._snapshot.preemptible_groups if queue in leaves)

    @cached_property
    def _gained(self) -> Sequence[Amounts]:
        """Per queue of the book, by how much it might rise."""
        given = [(one.queue, amounts.total(repeat(one.gains, n))) for one, n in self._coming.items()]
        if self.moves:
            given += self._departures.grown
        return self._book.summed(given)


class Refuter:
    """Proofs for one finished cycle; ``base``: the ledger that it began with."""

    def __init__(self, cycle: Cycle, base: Ledger) -> None:
        self._cycle = cycle
        self._base = base
        self._snapshot = cycle.snapshot
        self._departures = Departures(base, _ended(cycle, base))
        self._rooms: dict[tuple[frozenset[VictimSource], bool], Ints] = {}
        self._refuted: dict[tuple[object, ...], int] = {}
        """The number of served batches beside which such a batch was shown to have no places."""
        self._open: dict[tuple[object, ...], int] = {}
        """The number of served batches beside which nothing could be shown; beside fewer there is more free
        capacity."""
        self._without: tuple[frozenset[VictimSource], bool, Ledger] | None = None
        self._alone: dict[tuple[object, ...], bool] = {}
        self._free: dict[tuple[frozenset[VictimSource], bool], NDArray[np.int64]] = {}
        self._concerned: dict[tuple[int, tuple[frozenset[VictimSource], bool]], bool] = {}
        self._demands: dict[bool, list[Ints]] = {}
        self._refused: dict[tuple[PodKey | int, frozenset[VictimSource], bool], bool] = {}
        """Whether no node takes a pod, by its name where stateful rules concern it, else by its spec."""
        self._accepted: dict[int, bool] = {}
        self._kinds_waiting: dict[int, dict[tuple[object, ...], list[Pod]]] = {}
        """The waiting pods by rule and kind."""

    def proofs(self) -> dict[GroupKey, Proof]:
        """The refused groups for which there is a proof.

        At first every group that waits may come. Those that are refused even so, and whatever else gets a
        place, come in no plan at all, and the rest is asked again beside fewer.
        """
        found: dict[GroupKey, Proof] = {}
        if self._cycle.out_of_time() or self._cycle.dropped:
            return found
        asks: dict[GroupKey, Ask] = {}
        for key in sorted(self._cycle.waiting):
            one = self._asked(key)
            if isinstance(one, Proof):
                found[key] = one
            elif one is not None:
                asks[key] = one
        never = set(found)
        # What is open beside more is open beside fewer, so the last ones are asked first.
        asks = dict(sorted(asks.items(), key=lambda item: self._before(item[0]), reverse=True))
        while asks:
            coming = Counter(one for key, one in self._kinds.items() if key not in never)
            rights = _Rights(self._base, self._departures, coming)
            for key, ask in asks.items():
                if self._cycle.out_of_time():
                    return found
                before = self._before(key)
                certificate = self._certificate(ask, before, rights)
                if certificate:
                    found[key] = Proof(certificate)
                if certificate and (not before or self._certificate(ask, 0, rights)):
                    never.add(key)
            if not never & asks.keys():
                break
            asks = {key: ask for key, ask in asks.items() if key not in never}
        return found

    def _asked(self, key: GroupKey) -> Ask | Proof | None:
        """What the group asks for; the proof that it is impossible whatever else happens; None where it got a
        place or asks for nothing.
        """
        if key in self._given:
            return None
        one = waiting_lines(self._base).get(key)
        if one is not None and one.refusal is not None and one.refusal.reason in UNCONDITIONAL:
            return Proof(one.refusal.reason)
        if one is None or one.ask is None:
            return None
        ask = one.ask
        words = self._impossible(ask)
        return Proof(words) if words else ask

    def _before(self, key: GroupKey) -> int:
        """How many of the served batches come before a refused group in the fair order."""
        return bisect_left(self._served, self._turns.get(key, -1), key=attrgetter("turn"))

    def _certificate(self, ask: Ask, beside: int, rights: _Rights) -> str:
        """What refuses the ask beside the first ``beside`` served batches; "" if nothing does."""
        # Where all that could move may leave as well, moves free nothing more.
        moves = rights.moves and self._departures.some_stay(rights.taken)
        for certificate in (
            self._over_limit,
            self._over_sums,
            self._no_node,
            self._alone_over,
            self._without_model,
        ):
            if certificate(ask, beside, rights.taken, moves):
                return certificate.__name__.strip("_")
        return ""

    # --- what got which place, and what else might -------------------------------------------------------

    @cached_property
    def _first_asks(self) -> Mapping[GroupKey, Ask]:
        """What every pod group asks for first that waits in the snapshot and is not refused whatever the plan
        is."""
        return {
            key: one.ask
            for key, one in waiting_lines(self._base).items()
            if one.ask is not None and (one.refusal is None or one.refusal.reason not in UNCONDITIONAL)
        }

    @cached_property
    def _kinds(self) -> Mapping[GroupKey, _Coming]:
        """Every pod group that waits, as what it could be in another plan."""
        return {key: self._kind(ask) for key, ask in self._first_asks.items()}

    def _kind(self, ask: Ask) -> _Coming:
        group = ask.group
        pods = [pod for pod in ask.gang.pods if pod.status is PodStatus.PENDING]
        later = {id(pod.spec): pod for pod in pods} if len(pods) > len(ask.pods) else {}
        asked = [ask.asked, *(amounts.pessimistic(self._snapshot, pod) for pod in later.values())]
        acts = delayed(self._snapshot, group) is None
        return _Coming(
            group.queue,
            group.priority,
            frozenset(asked),
            amounts.total(amounts.most(self._snapshot, pod) for pod in pods),
            acts,
            acts and group.preemptible,
        )

    @cached_property
    def _given(self) -> frozenset[GroupKey]:
        """Pod groups of which waiting pods got a place."""
        held = (self._snapshot.pod_by_key[key] for key in self._cycle.ledger.held)
        return frozenset(pod.group for pod in held if pod.status is PodStatus.PENDING and pod.group)

    @cached_property
    def _turns(self) -> Mapping[GroupKey, int]:
        """The fair order of all waiting groups; what the cycle gave to one at first is charged at its
        position."""
        book = self._base.book.copy()
        order = line_of(self._base, self._first_asks).fork(book)
        found: dict[GroupKey, int] = {}
        while (popped := order.pop()) is not None:
            found[popped] = len(found)
            if popped in self._given:
                ask = self._first_asks[popped]
                book.charge(ask.group.queue, ask.asked, ask.group.preemptible)
                order.charged(ask.group.queue)
        return found

    @cached_property
    def _served(self) -> Sequence[_Served]:
        """In an order in which a batch is before a refused group only if its group is, and if it is itself
        where further batches have turns of their own."""
        book, found, latest = self._base.book.copy(), list[_Served](), -1
        order = line_of(self._base, self._first_asks).fork(book)
        asks = {key: self._first_asks[key] for key in self._given}
        coming = {key: ask for key, ask in asks.items() if self._got_places(ask)}
        tallies = {key: self._base.tally(ask.gang) for key, ask in coming.items()}
        begun: set[PodKey] = set()

        def status(pod: Pod) -> PodStatus:
            return PodStatus.ALLOCATED if pod.key in begun else pod.status

        while (key := order.pop()) is not None:
            ask = coming.pop(key, None)
            if ask is None:
                latest = max(latest, self._turns[key])
                continue
            charged = amounts.optimistic_batch(self._snapshot, ask.pods)
            found.append(_Served(ask, max(latest, self._turns[key]), charged))
            book.charge(ask.group.queue, ask.asked, ask.group.preemptible)
            order.charged(ask.group.queue)
            for pod in ask.pods:
                counts = tallies[key][pod.subgroup or "default"].moved(pod.status, PodStatus.ALLOCATED)
                tallies[key] = {**tallies[key], pod.subgroup or "default": counts}
                begun.add(pod.key)
            state, tallies[key] = ask.gang.state_of(tallies[key], status)
            if state.batch is not None and self._got_places(
                following := ask_of(self._base, ask.gang, state.batch)
            ):
                coming[key] = following
                order.push(key, (group_sort_key(ask.group, state.elastic_state), following.asked))
        return sorted(found, key=attrgetter("turn"))

    def _got_places(self, ask: Ask) -> bool:
        return all(pod.key in self._cycle.ledger.held for pod in ask.pods)

    @cached_property
    def _sums(self) -> _Sums:
        return _Sums(self._base.book, self._served)

    @cached_property
    def _pods_of_served(self) -> Sequence[int]:
        """For each number of first served batches, how many pods they have."""
        return list(accumulate((len(one.ask.pods) for one in self._served), initial=0))

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
            free = self._lent(ask, asked, earlier.firm).get(book.name(i), NOTHING)
            for r in range(3):
                if not asked[r]:
                    continue
                held = book.held[i][r] - lost[i][r] + earlier.charged[r] + asked[r]
                if book.limit[i][r] != UNLIMITED and held > book.limit[i][r]:
                    return True
                quota = book.firm_quota[i][r]
                if ask.group.preemptible or quota == UNLIMITED:
                    continue
                firm = book.firm[i][r] - self._departures.firm_ended[i][r] + earlier.firm[r] + asked[r]
                if firm - free[r] > quota:
                    return True
        return False

    def _lent(self, ask: Ask, asked: Amounts, beside: Amounts) -> Mapping[str, Amounts]:
        """The most that quotas lend to the batch: if they lend to one of its pods, as if to all of them."""
        pods = ask.pods if self._base.rules else ()
        found = (self._base.lent([pod], asked, beside=beside) for pod in pods)
        return next((lent.by_queue for lent in found if lent is not None and lent.by_queue), {})

    @cached_property
    def _counting(self) -> Counting:
        return Counting(self._base, self._asking())

    @cached_property
    def _counting_everywhere(self) -> Counting:
        return Counting(self._base, self._asking(), everywhere=True)

    def _asking(self) -> list[Pod]:
        waiting = (pod for ask in self._first_asks.values() for pod in ask.kind.shape.examples)
        return [*waiting, *(pod for one in self._served for pod in one.ask.pods)]

    def _demand(self, before: int, moves: bool) -> Ints:
        """What the first of the served ask for in all."""
        counting = self._counting_everywhere if moves else self._counting
        known = self._demands.setdefault(moves, [counting.demand(())])
        for one in self._served[len(known) - 1 : before]:
            known.append(known[-1] + counting.demand(one.ask.pods))
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
        over = (wanted > room)[part] & (own[part] > 0)
        if moves and self._base.devices:
            over[PODS] = False  # A shared GPU that moves empty needs no reservation pod any more.
        return bool(over.any())

    def _no_node(self, ask: Ask, before: int, taken: frozenset[VictimSource], moves: bool) -> bool:
        """A pod of the group that no node takes, even alone, when everything that may leave or move has
        left."""
        if self._departures.count(taken, moves) > LIMITS.proof_leaving:
            return False
        rules = self._base.rules
        for pod in ask.pods:
            own = any(rule.concerns(pod) for rule in rules)
            key = (pod.key if own else id(pod.spec)), taken, moves
            if key not in self._refused:
                self._refused[key] = not self._taking(pod, (taken, moves)).any()
            if self._refused[key]:
                return True
        return False

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
        specs = frozenset(Counter(id(pod.spec) for pod in ask.pods).items())
        key = (specs, taken, moves)
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
        if moves:
            size += self._departures.count(taken, moves=True) - self._departures.count(taken, moves=False)
        if size > LIMITS.proof_pods or budget.passed():
            return False
        asks = [*(one.ask for one in self._served[:before]), ask]
        work = min(LIMITS.proof_work, budget.work_worth())
        if work < LIMITS.admission_work:
            return False
        moving = tuple(self._departures.moving(taken, pinned=False)) if moves else ()
        units = [
            EvictionUnit(self._snapshot.group_by_key[pod.group], (pod,), 0, False)
            for pod in moving
            if pod.group is not None
        ]
        pods = [*moving, *(pod for part in asks for pod in part.pods)]
        try:
            model = JointModel(self._beside_any(pods, taken, moves), asks, units, may_lose=False)
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

    def _beside_any(self, pods: Sequence[Pod], taken: frozenset[VictimSource], moves: bool) -> Ledger:
        """``_emptied`` without the rules by which neighbours open a node to one of the pods: in a permitted
        plan its neighbour may stay, or come.
        """
        ledger = self._emptied(taken, moves).copy()
        kept = (rule for rule in ledger.rules if not any(map(rule.opened_by, pods)))
        ledger.rules = tuple(kept)
        return ledger

    def _emptied(self, taken: frozenset[VictimSource], moves: bool) -> Ledger:
        """The ledger of the cycle's start without what may leave; only read.

        A model keeps a constrained pod in its domain, but its pod group may move as a whole: with ``moves``
        such pods leave as well.
        """
        if self._without is None or self._without[:2] != (taken, moves):
            pinned = self._departures.moving(taken, pinned=True) if moves else ()
            gone = chain(self._departures.pods(taken), pinned)
            self._without = taken, moves, without(self._base, gone)
        return self._without[2]


def _by_spec(pods: Iterable[Pod]) -> Iterable[Sequence[Pod]]:
    found: dict[int, list[Pod]] = {}
    for pod in pods:
        found.setdefault(id(pod.spec), []).append(pod)
    return found.values()


def _ended(cycle: Cycle, base: Ledger) -> Iterable[Pod]:
    """Pods that end for their own state in some plan; a gang that got its missing pods may be stale."""
    snapshot = cycle.snapshot
    stale = {pod.key for key, _ in stale_groups(replace(cycle, ledger=base)) for pod in snapshot.members[key]}
    done = {key for key, one in cycle.evicted_by.items() if one.action in STATE_ACTIONS | TIME_ACTIONS}
    found = (snapshot.pod_by_key[key] for key in sorted(stale | done))
    return (pod for pod in found if pod.status in ACTIVE_USED)
