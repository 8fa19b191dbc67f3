"""The joint problem of reclaim, preempt and consolidation: places for the asks with the least disruption.

It adds to the placement model: victim units leave in their chain order; queue limits hold with the losses
counted; under reclaim, a unit is taken only while its queue still holds more than its due (4.4). ``goals``
has what is minimised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import TypeAlias

from kai_cp_models.fairness.amounts import Amounts, milli_gpus
from kai_cp_models.fairness.reclaim import ResourceBounds
from kai_cp_models.joint.model import JointModel, Moves
from kai_cp_models.joint.policy import EvictionPolicy
from kai_cp_models.joint.problem import Answer, Ask, EvictionUnit
from kai_cp_models.joint.returning import Returning
from kai_cp_models.joint.search import Linear, Objective, any_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.pods import ACTIVE_ALLOCATED, MILLI, UNLIMITED, GroupKey
from kai_cp_models.settings import ObjectiveSettings
from kai_cp_models.solver import cp_model


@dataclass(frozen=True, slots=True)
class ReclaimBound:
    """How much one class of triggers may take from the queues: bounds per levelled victim queue.

    ``bounds``: for every victim leaf queue, (levelled queue, per resource what it must hold more
    than; None: never a reason to take).
    """

    asks: tuple[int, ...]
    """Positions of the asks in the class."""
    takes: frozenset[int]
    """Positions of the units that the class may take."""
    bounds: Mapping[str, tuple[str, ResourceBounds]]


_Taken: TypeAlias = "Mapping[int, cp_model.IntVar]"
"""A literal for each of some units, by their positions."""


class EvictingModel(JointModel):
    """The joint model with the rows of the module's docstring."""

    def __init__(
        self,
        ledger: Ledger,
        policy: EvictionPolicy,
        asks: Sequence[Ask],
        units: Sequence[EvictionUnit],
        bounds: Sequence[ReclaimBound],
        *,
        required: int,
        objective: ObjectiveSettings,
        moves: Moves,
    ) -> None:
        """``required``: how many asks, from the first on, must be placed; the others may be. Raises
        ``ModelTooLarge`` as the joint model does."""
        super().__init__(ledger, asks, units, may_lose=policy.may_lose, moves=moves)
        self.policy, self.objective = policy, objective
        self.most_moved = inf if policy.may_lose else ledger.snapshot.policy.most_moved_groups
        """Pod groups that may move for each ask."""
        self._optional = self.admitted[required:]
        in_turn = not policy.may_lose or all(self._in_turn(item, moves) for item in units)
        self.exact = in_turn and not self.pinned and (not policy.by_share or self._one_turn(bounds))
        """Whether no row is stricter than its rule, so that bounds are proofs once all moves are modelled."""
        for literal in self.admitted[:required]:
            self.cp.add(literal == 1)
        self._chains()
        self._asks_stay()
        self._limits()
        if policy.by_share:
            self._within_share()
        if policy.own_queue:
            self._stay_before()
        self.taken = self._attribution(bounds)
        """By class of triggers, for each unit that it may take, whether it is lost to the class."""
        for bound, part in self.taken:
            self._bounded(bound, part)
        if self._optional:
            self._only_for_admitted()
        self.moved_groups = self._group_moves()
        self._moved_gpus(objective.max_moved_gpus_per_admitted_gpu)

    def _one_turn(self, bounds: Sequence[ReclaimBound]) -> bool:
        """Whether the totals that bound reclaim are those of the action's start.

        After another trigger was served, its victims' queues hold less and its own holds more, so units that
        the rows keep may go. The same holds one level up in the queue tree after a loss on the level below.
        """
        book = self.ledger.book
        levels = (level for bound in bounds for level, _ in bound.bounds.values())
        return len(self.asks) == 1 and len({book.tree.parents[book.index(level)] for level in levels}) <= 1

    def _in_turn(self, item: EvictionUnit, moves: Moves) -> bool:
        """Whether no plan gains by giving up other pods of the group than its chain does (5.4).

        If evicting a pod helps no trigger it stays, and one on another node or of another subgroup leaves.
        For sums over the cluster, equal pods are alike.
        """
        gang = self.ledger.fixed.gangs[item.group.key]
        if item.chain == 0 and item.whole:
            # A group below its minimum may lose a part of the unit.
            return item.bucket[2] == 1 or len(item.pods) == 1
        there = [pod for pod in gang.pods if self.ledger.status(pod) in ACTIVE_ALLOCATED]
        alone = moves is Moves.FREE or len(self.ledger.nodes_of(there)) == 1
        return gang.top.leaf and alone and len({pod.spec for pod in there}) == 1

    # --- rows ------------------------------------------------------------------------------------

    def _chains(self) -> None:
        """A unit of a group is lost only after the one before it in the chain."""
        before: dict[GroupKey, Linear] = {}
        for item, lost in sorted(zip(self.units, self.lost, strict=True), key=lambda pair: pair[0].chain):
            if item.chain > 0:
                self.cp.add(lost <= before.get(item.group.key, 0))
            before[item.group.key] = lost

    def _asks_stay(self) -> None:
        """A pod group that gets a place here gives up none of its pods."""
        asking: dict[GroupKey, list[cp_model.IntVar]] = {}
        for ask, admitted in zip(self.asks, self.admitted, strict=True):
            asking.setdefault(ask.group.key, []).append(admitted)
        for item, lost in zip(self.units, self.lost, strict=True):
            for admitted in asking.get(item.group.key, ()):
                for taken in (lost, *(self.moved[pod.key] for pod in item.pods)):
                    self.cp.add(taken + admitted <= 1)

    def _limits(self) -> None:
        """Limits hold when the victims are gone and the asks are placed, and non-preemptible asks together
        stay within quota, at every level (3.7). Victims are preemptible, so losses leave quotas as they are.
        """
        book = self.ledger.book
        for firm, most in ((False, book.limit), (True, book.firm_quota)):
            asked: dict[tuple[int, int], list[tuple[int, cp_model.IntVar]]] = {}
            for ask, admitted in zip(self.asks, self.admitted, strict=True):
                line = () if firm and ask.group.preemptible else book.line(ask.group.queue)
                for i, (r, size) in product(line, enumerate(ask.kind.shape.optimistic)):
                    if size and most[i][r] != UNLIMITED:
                        asked.setdefault((i, r), []).append((size, admitted))
            holds = book.bound_by({i for i, _ in asked}, firm=firm)
            for (i, r), sizes in asked.items():
                held, limit = holds[i][r], most[i][r]
                wanted = sum(size * admitted for size, admitted in sizes)
                row = self.cp.add(held + wanted - (0 if firm else self._given(i, r)) <= limit)
                if held > limit:
                    # A limit that is exceeded already may stay so while nothing is added.
                    row.only_enforce_if(any_of(self.cp, f"adds[{i},{r},{firm}]", [yes for _, yes in sizes]))

    def _within_share(self) -> None:
        """An ask's queue is within its fair share with what earlier asks get and take there (4.4). Whether
        earlier asks take what is lost, and not later ones, is tested when the plan is simulated."""
        book = self.ledger.book
        asked: dict[str, list[tuple[Amounts, cp_model.IntVar]]] = {}
        for ask, admitted in zip(self.asks, self.admitted, strict=True):
            queue = ask.group.queue
            here = asked.setdefault(queue, [])
            here.append((ask.asked, admitted))
            i = book.index(queue)
            for r, (held, share) in enumerate(zip(book.held[i], book.fair_share_floor[i], strict=True)):
                if share == UNLIMITED or held + sum(size[r] for size, _ in here) <= share:
                    continue
                gets = sum(size[r] * given_place for size, given_place in here)
                self.cp.add(held + gets - self._given(i, r) <= share).only_enforce_if(admitted)

    def _given(self, i: int, r: int) -> Linear:
        """How much of a resource the losses of a queue give up."""
        line = self.ledger.book.line
        return sum(
            item.holds[r] * lost
            for item, lost in zip(self.units, self.lost, strict=True)
            if item.holds[r] and i in line(item.group.queue)
        )

    def _stay_before(self) -> None:
        """No unit is lost that would come back into an admitted trigger's place (formulation 1.3)."""
        returning = Returning(self.ledger, self.units)
        for ask, admitted in zip(self.asks, self.admitted, strict=True):
            for o in returning.come_back_first(ask):
                self.cp.add_implication(admitted, ~self.lost[o])

    def _attribution(self, bounds: Sequence[ReclaimBound]) -> list[tuple[ReclaimBound, _Taken]]:
        """A unit is lost to exactly one class of triggers; one that none may take stays where it is."""
        taken, new = list[tuple[ReclaimBound, _Taken]](), self.cp.new_bool_var
        for e, bound in enumerate(bounds):
            names = {o: f"taken[{e},{o}]" for o in sorted(bound.takes)}
            part = {o: self.lost[o] if len(bounds) == 1 else new(name) for o, name in names.items()}
            taken.append((bound, part))
        for o, (item, lost) in enumerate(zip(self.units, self.lost, strict=True)):
            owners = [part[o] for _, part in taken if o in part]
            if not owners or len(bounds) > 1:
                self.cp.add(sum(owners) == lost)
            for pod in item.pods if not owners else ():
                self.cp.add(self.moved[pod.key] == 0)
        return taken

    def _only_for_admitted(self) -> None:
        """A unit is disturbed only if some trigger that may take it is admitted (formulation 1.3)."""
        permits: dict[int, list[cp_model.IntVar]] = {}
        for e, (bound, part) in enumerate(self.taken):
            acts = any_of(self.cp, f"acts[{e}]", [self.admitted[a] for a in bound.asks])
            for o, literal in part.items():
                self.cp.add_implication(literal, acts)
                permits.setdefault(o, []).append(acts)
        for o, item in enumerate(self.units):
            for pod in item.pods:
                self.cp.add_bool_or([*permits.get(o, ()), ~self.moved[pod.key]])

    def _gone_before(self, bound: ReclaimBound, level: str) -> dict[int, Linear]:
        """The part of each unit that counts when a class of triggers takes from a levelled queue.

        Later triggers do not count. Triggers inside the queue do not count either: what siblings take from
        each other stays in the queue. ``overreaching`` is the final test, after simulation.
        """
        book, last = self.ledger.book, max(bound.asks)
        i = book.index(level)
        found: dict[int, Linear] = {}
        for other, part in self.taken:
            inside = all(i in book.line(self.asks[a].group.queue) for a in other.asks)
            if min(other.asks) > last or inside:
                continue
            for o, literal in part.items():
                found[o] = found.get(o, 0) + literal
        return found

    def _bounded(self, bound: ReclaimBound, part: _Taken) -> None:
        """Before a unit goes, its levelled queue holds more than its due in some resource (4.4): lost units
        leave one by one in rank order.

        If there are many units, the row says that their sum exceeds what is above the due by at most the
        smallest of them; then infeasibility is no proof.
        """
        book, by_level = self.ledger.book, dict[tuple[str, ResourceBounds], list[int]]()
        for o in sorted(part, key=lambda o: self.units[o].rank):
            if (terms := bound.bounds.get(self.units[o].group.queue)) is not None:
                by_level.setdefault(terms, []).append(o)
        for (level, due), members in by_level.items():
            queue, gone = book.index(level), self._gone_before(bound, level)
            held = enumerate(zip(book.held[queue], due, strict=True))
            excess = {r: has - most for r, (has, most) in held if most is not None and has > most}
            below = [o for o, item in enumerate(self.units) if queue in book.line(item.group.queue)]
            alone = len(excess) == len(self.taken) == 1 and len(members) == len(below)
            many = len(excess) == 1 and len(below) > LIMITS.unequal_units
            # The resource for which a unit may go.
            whys = dict.fromkeys(excess, part)
            if len(excess) != 1:
                new = self.cp.new_bool_var
                whys = {r: {o: new(f"over[{level},{r},{o}]") for o in members} for r in excess}
                for o in members:
                    self.cp.add_bool_or([*(whys[r][o] for r in excess), ~part[o]])
            for r, most in excess.items():
                # For equal units this row suffices; for others it shows at once what is far too much.
                sizes = {self.units[o].holds[r] for o in members}
                going = sum(self.units[o].holds[r] * whys[r][o] for o in members)
                self.cp.add(going <= most - 1 + (min(sizes - {0}, default=0) if many else max(sizes)))
                equal = alone and len(sizes) == 1
                self.exact &= equal or not many
                if not (equal or many):
                    self._one_by_one(r, most, below, {o: whys[r][o] for o in members}, gone)

    def _one_by_one(
        self, r: int, excess: int, below: Sequence[int], whys: _Taken, gone: Mapping[int, Linear]
    ) -> None:
        """Where a literal of ``whys`` holds, what goes before its unit is less than the excess."""
        total = sum(self.units[o].holds[r] for o in below)
        running: Linear = 0
        before: Linear = 0
        # Withdrawn places never ran, so they go before anything is lost.
        in_turn = sorted(below, key=lambda o: (bool(self.units[o].running), self.units[o].rank))
        for done, o in enumerate(in_turn, start=1):
            if o in whys:
                self.cp.add(running + before < excess).only_enforce_if(whys[o])
            running = running + self.units[o].holds[r] * gone.get(o, 0)
            if done % LIMITS.stride == 0:
                following = self.cp.new_int_var(0, total, f"taken_before[{r},{o}]")
                self.cp.add(following == before + running)
                before, running = following, 0

    def _group_moves(self) -> dict[GroupKey, cp_model.IntVar]:
        """moved_group[g]: some running pod of g moves; consolidation moves at most ``most_moved`` groups for
        each ask (4.3).

        For which ask a pod moves is known only when it has a place; plans with too many are refused then.
        """
        by_group: dict[GroupKey, list[cp_model.IntVar]] = {}
        for item in self.units:
            for pod in item.running:
                by_group.setdefault(item.group.key, []).append(self.moved[pod.key])
        found = {key: any_of(self.cp, f"moved_group[{key}]", moves) for key, moves in by_group.items()}
        if self.most_moved != inf:
            self.cp.add(sum(found.values()) <= int(self.most_moved) * sum(self.admitted))
        return found

    def _moved_gpus(self, ratio: float) -> None:
        """The settings' ceiling on moved GPUs: ``milli_gpus`` of moved pods against those admitted."""
        if ratio == UNLIMITED:
            return
        runs = (pod for item in self.units for pod in item.running)
        given = [MILLI * milli_gpus(pod) * self.moved[pod.key] for pod in runs]
        allowed = [
            round(ratio * MILLI) * sum(milli_gpus(pod) for pod in ask.pods) * admitted
            for ask, admitted in zip(self.asks, self.admitted, strict=True)
        ]
        self.cp.add(sum(given) <= sum(allowed))

    def disturbance(self, answer: Answer) -> list[cp_model.BoolVarT]:
        """What holds in the answer: which units are lost and, where none is, which pods move."""
        values = list(zip(self.lost, answer.lost, strict=True))
        if not any(answer.lost):
            values += [(moves, key in answer.moved) for key, moves in self.moved.items()]
        return [literal if holds else ~literal for literal, holds in values]

    def refuse(self, literals: Iterable[cp_model.BoolVarT]) -> None:
        """Forbid that all of these hold together: such a plan was refused (formulation 1.3). With other
        places or losses it might hold, so bounds are no proofs from then on."""
        self.exact = False
        self.cp.add_bool_or([~literal for literal in literals])

    def admission_goals(self) -> list[Objective]:
        """Which optional asks are admitted: each counts more than all later ones in the fair order."""
        weights = ((1 << i) * (1 - admitted) for i, admitted in enumerate(reversed(self._optional)))
        return [Objective("admitted in fair order", sum(weights))] if self._optional else []
