"""Reclaim, preempt and consolidation: place waiting groups by evicting or moving others (4.3 to 4.7).

Triggers are admitted in fair order; each step solves one joint problem over everything admitted so far
and the next triggers (formulation 1.3, 1.4). The step doubles while it succeeds and falls back to
single triggers where it fails, so that many equal triggers cost few solves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kai_cp_models.actions.common import entry_of, waiting_groups
from kai_cp_models.actions.scenario import play
from kai_cp_models.actions.withdraw import settle
from kai_cp_models.cycle import Cycle, Eviction, Waiting
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.gates import non_preemptible_over_quota
from kai_cp_models.fairness.order import FairOrder
from kai_cp_models.fairness.reclaim import can_reclaim, levelled, validate
from kai_cp_models.joint.choose import joint_model
from kai_cp_models.joint.evicting import Due, EvictingModel
from kai_cp_models.joint.model import TooLarge
from kai_cp_models.joint.offers import Ranked, Reach, entitlement, ranked_offers
from kai_cp_models.joint.problem import Answer, Ask, signature
from kai_cp_models.joint.search import StageResult, lexicographic
from kai_cp_models.ledger import Ledger
from kai_cp_models.snapshot import UNLIMITED, ActionName, GroupKey, Stage
from kai_cp_models.units import Batch

_MOST_CUTS = 24


@dataclass(frozen=True)
class _Found:
    """An accepted joint answer: the ledger it leads to and how it was reached."""

    ledger: Ledger
    asks: tuple[Ask, ...]
    ranked: tuple[Ranked, ...]
    answer: Answer
    owners: Mapping[int, tuple[GroupKey, ...]]
    stages: tuple[StageResult, ...]
    variables: int
    constraints: int


@dataclass
class _Run:
    """One run of an eviction action."""

    cycle: Cycle
    action: ActionName
    base: Ledger
    waiting: dict[GroupKey, Batch]
    found: _Found | None = None
    unproved: int = 0
    refused: int = 0
    dead: dict[tuple[object, ...], Waiting] = field(default_factory=dict)
    takes: dict[tuple[object, ...], frozenset[int]] = field(default_factory=dict)

    @cached_property
    def ranked(self) -> tuple[Ranked, ...]:
        """All that any waiting group may disturb, in the reverse fair order of the action's start."""
        asks = [
            Ask(self.cycle.snapshot.group_by_key[key], self.base.fixed.gangs[key], batch)
            for key, batch in self.waiting.items()
        ]
        return tuple(ranked_offers(self.cycle, asks, self.action))

    def takes_of(self, ask: Ask) -> frozenset[int]:
        """Ranks of the units that the ask may take."""
        key = entitlement(self.base, ask, self.action)
        found = self.takes.get(key)
        if found is None:
            reach = Reach(self.base, ask, self.action)
            found = frozenset(item.rank for item in self.ranked if reach.takes(item.offer))
            self.takes[key] = found
        return found


def reclaim(cycle: Cycle) -> None:
    """Reclaim from queues above their share (4.4)."""
    _run(cycle, "reclaim")


def preempt(cycle: Cycle) -> None:
    """Preempt lower priorities of the same queue (4.5)."""
    _run(cycle, "preempt")


def consolidation(cycle: Cycle) -> None:
    """Move running pods so that waiting ones fit; nobody is lost (4.5). Not in spread mode (1.5)."""
    policy = cycle.snapshot.policy
    if policy.max_consolidation_preemptees != 0 and "spread" not in (
        policy.gpu_strategy,
        policy.cpu_strategy,
    ):
        _run(cycle, "consolidation")


def _run(cycle: Cycle, action: ActionName) -> None:
    started = time.monotonic()
    run = _Run(cycle, action, cycle.ledger, waiting_groups(cycle, action))
    if run.waiting:
        _admit_all(run)
    if run.found is not None:
        _commit(run, run.found)
    _record(run, time.monotonic() - started)


def _admit_all(run: _Run) -> None:
    snapshot = run.cycle.snapshot
    order = FairOrder(
        snapshot,
        run.base.book,
        {key: entry_of(run.base, snapshot.group_by_key[key], batch) for key, batch in run.waiting.items()},
    )
    step = 1
    queue: list[Ask] = []
    while True:
        while len(queue) < step and (key := order.pop()) is not None:
            ask = Ask(snapshot.group_by_key[key], run.base.fixed.gangs[key], run.waiting[key])
            refusal = _refused_early(run, ask)
            if refusal is None:
                queue.append(ask)
            else:
                _refuse(run, ask, refusal)
        if not queue:
            return
        late = _refused_early(run, queue[0])
        if late is not None:
            _refuse(run, queue.pop(0), late)
            continue
        chunk = _alike(queue)[:step]
        if len(chunk) > 1:
            chunk = _entitled(run, chunk)
        found = _attempt(run, chunk)
        if isinstance(found, _Found):
            run.found = found
            queue = [ask for ask in queue if ask not in chunk]
            for ask in chunk:
                run.cycle.waiting.pop(ask.group.key, None)
                order.use(found.ledger.book, ask.group.queue)
            step = min(step * 2, 4096)
        elif len(chunk) > 1:
            step = max(1, len(chunk) // 2)
        else:
            _refuse(run, chunk[0], found)
            run.dead[_class_of(run, chunk[0])] = found
            queue = queue[1:]
            step = 1


def _alike(queue: list[Ask]) -> list[Ask]:
    """The first asks of the queue with the same entitlement: one leaf queue, priority and kind."""
    first = queue[0].group

    def same(ask: Ask) -> bool:
        return (
            ask.group.queue == first.queue
            and ask.group.priority == first.priority
            and ask.group.preemptible == first.preemptible
        )

    count = next((i for i, ask in enumerate(queue) if not same(ask)), len(queue))
    return queue[:count]


def _book(run: _Run) -> Ledger:
    return run.found.ledger if run.found is not None else run.base


def _entitled(run: _Run, chunk: list[Ask]) -> list[Ask]:
    """The longest prefix that may act together: totals are tested one after the other (4.4)."""
    book = _book(run).book.copy()
    for k, ask in enumerate(chunk):
        asked = amounts.pessimistic_batch(run.cycle.snapshot, ask.pods)
        if run.action == "reclaim" and can_reclaim(book, ask.group.queue, asked, ask.group.preemptible):
            return chunk[: max(k, 1)]
        book.charge(ask.group.queue, asked, ask.group.preemptible)
    return chunk


def _class_of(run: _Run, ask: Ask) -> tuple[object, ...]:
    """Asks of one class share their fate in this action once one of them was refused."""
    group = ask.group
    key: tuple[object, ...] = (signature(run.base, ask),)
    if run.action == "consolidation":
        return key
    return (*key, group.queue, group.priority, group.preemptible)


def _refused_early(run: _Run, ask: Ask) -> Waiting | None:
    """Arithmetic that needs no solve: known class, quota, fair share, room that is there already."""
    dead = run.dead.get(_class_of(run, ask))
    if dead is not None:
        return dead
    ledger = _book(run)
    for pod in ask.pods:
        for rule in ledger.rules:
            if rule.concerns(pod) and (why := rule.dead_end(pod)):
                return Waiting("DependencyMissing", why, True)
    group = ask.group
    if not group.preemptible:
        asked = amounts.optimistic_batch(run.cycle.snapshot, ask.pods)
        refusal = non_preemptible_over_quota(ledger.book, group.queue, asked)
        if refusal is not None:
            return Waiting("NonPreemptibleOverQuota", refusal.message, True)
    if run.action == "reclaim":
        asked = amounts.pessimistic_batch(run.cycle.snapshot, ask.pods)
        refusal = can_reclaim(ledger.book, group.queue, asked, group.preemptible)
        if refusal is not None:
            return Waiting("OverFairShare", refusal.message, True)
    return None


def _refuse(run: _Run, ask: Ask, why: Waiting) -> None:
    run.refused += 1
    run.unproved += not why.proved
    before = run.cycle.waiting.get(ask.group.key)
    # What allocate said about the room stays the reason; a later action adds its proof only.
    if before is None:
        run.cycle.waiting[ask.group.key] = why
    elif not why.proved:
        run.cycle.waiting[ask.group.key] = Waiting(
            before.reason, before.message, False, before.pod, before.details
        )


def _attempt(run: _Run, chunk: list[Ask]) -> _Found | Waiting:
    """One joint solve for everything admitted and ``chunk``; lazy cuts until the plan is accepted."""
    cycle, action = run.cycle, run.action
    before = run.found
    asks = [*(before.asks if before else ()), *chunk]
    if cycle.seconds_left() <= 0:
        return Waiting("NotDecidedInTime", "the time budget ended before this pod group was decided")
    useful = set().union(*(run.takes_of(ask) for ask in chunk)) | _disturbed(before)
    ranked = [item for item in run.ranked if item.rank in useful]
    if not ranked:
        return Waiting("NoVictims", "no running pod group may be disturbed for this one", True)
    dues, owners = _dues(run, asks, ranked)
    try:
        placement = joint_model(
            run.base, asks, [item.offer for item in ranked], may_lose=action != "consolidation"
        )
    except TooLarge:
        return Waiting("NotDecidedInTime", "the joint problem is too large for the time budget")
    policy = cycle.snapshot.policy
    model = EvictingModel(
        placement,
        action,
        ranked,
        dues,
        max_moved_groups=policy.max_consolidation_preemptees if action == "consolidation" else UNLIMITED,
    )
    goals = model.goals()
    for _ in range(_MOST_CUTS):
        trial = model.cp.clone()
        solver, stages, first = lexicographic(trial, goals, cycle.settings.solver, cycle.seconds_left)
        if solver is None:
            return Waiting(
                "NotPossible", "no permitted set of evictions makes room", first.status == "infeasible"
            )
        answer = placement.answer(solver)
        if not any(answer.lost) and not answer.moved:
            return Waiting("FitsAsItIs", "there is room without evictions; allocate places it", True)
        played = play(
            run.base, asks, placement.offers, answer, run.waiting, may_lose=action != "consolidation"
        )
        if played.ledger is not None:
            taken = {
                o: owners[e]
                for e, part in enumerate(model.taken)
                for o, literal in part.items()
                if solver.value(literal)
            }
            if action != "reclaim" or _valid(run, asks, ranked, played.ledger, taken):
                return _Found(
                    played.ledger,
                    tuple(asks),
                    tuple(ranked),
                    answer,
                    taken,
                    tuple(stages),
                    len(model.cp.proto.variables),
                    len(model.cp.proto.constraints),
                )
        model.forbid(answer)
    return Waiting("NotDecidedInTime", "the fair order refused every plan that was tried")


def _disturbed(found: _Found | None) -> set[int]:
    """Ranks of the units that the accepted answer loses or moves."""
    if found is None:
        return set()
    return {
        item.rank
        for item, lost in zip(found.ranked, found.answer.lost, strict=True)
        if lost or any(pod.key in found.answer.moved for pod in item.offer.pods)
    }


def _dues(run: _Run, asks: list[Ask], ranked: list[Ranked]) -> tuple[list[Due], list[tuple[GroupKey, ...]]]:
    """Classes of triggers that may take the same units on the same terms, and who is in them."""
    book = run.base.book.copy()
    position = {item.rank: o for o, item in enumerate(ranked)}
    queues = {item.offer.group.queue for item in ranked}
    classes: dict[tuple[object, ...], tuple[list[GroupKey], Due]] = {}
    for ask in asks:
        group = ask.group
        asked = amounts.pessimistic_batch(run.cycle.snapshot, ask.pods)
        bounds: dict[str, tuple[str, tuple[int | None, int | None, int | None]]] = {}
        if run.action == "reclaim":
            for queue in queues - {group.queue}:
                bounds[queue] = _bounds(book, group.queue, asked, queue)
            book.charge(group.queue, asked, group.preemptible)
        takes = run.takes_of(ask)
        key = (entitlement(run.base, ask, run.action), tuple(sorted(bounds.items())))
        if key in classes:
            classes[key][0].append(group.key)
        else:
            units = frozenset(position[rank] for rank in takes if rank in position)
            classes[key] = ([group.key], Due(units, bounds))
    return [due for _, due in classes.values()], [tuple(keys) for keys, _ in classes.values()]


def _bounds(
    book: QueueBook, queue: str, asked: amounts.Amounts, victim: str
) -> tuple[str, tuple[int | None, int | None, int | None]]:
    """What the victim's levelled queue must hold more than, in some resource, to lose a unit (4.4)."""
    mine, theirs = levelled(book, queue, victim)
    i, v = book.index(mine), book.index(theirs)
    entitled = all(
        int(book.quota[i, r]) == UNLIMITED or int(book.allocated[i, r]) + asked[r] <= int(book.quota[i, r])
        for r in range(3)
    )
    found: list[int | None] = []
    for r in range(3):
        options = [int(book.allocatable_share_floor[v, r])]
        if entitled:
            options.append(int(book.quota[v, r]))
        finite = [option for option in options if option != UNLIMITED]
        found.append(min(finite) if finite else None)
    return theirs, (found[0], found[1], found[2])


def _valid(
    run: _Run,
    asks: list[Ask],
    ranked: list[Ranked],
    ledger: Ledger,
    taken: Mapping[int, tuple[GroupKey, ...]],
) -> bool:
    """The scenario validation (4.4) on the net losses, trigger by trigger."""
    snapshot = run.cycle.snapshot
    book = run.base.book.copy()
    for ask in asks:
        asked = amounts.pessimistic_batch(snapshot, ask.pods)
        units = []
        for o in sorted(taken, key=lambda o: ranked[o].rank):
            if taken[o][0] != ask.group.key:
                continue
            offer = ranked[o].offer
            if all(pod.key in ledger.held or pod.key not in ledger.changed for pod in offer.pods):
                continue
            units.append(
                (offer.group.queue, ranked[o].holds, amounts.involved(snapshot, offer.pods), offer.group)
            )
        broken = validate(
            book,
            ask.group.queue,
            asked,
            ask.group.preemptible,
            [unit[:3] for unit in units],
            snapshot.policy.saturation_multiplier,
            trigger_involved=amounts.involved(snapshot, ask.pods),
        )
        if broken is not None:
            return False
        for queue, holds, _, group in units:
            book.charge(queue, holds, group.preemptible, -1)
        book.charge(ask.group.queue, asked, ask.group.preemptible)
    return True


def _commit(run: _Run, found: _Found) -> None:
    cycle = run.cycle
    cycle.ledger = found.ledger
    triggers = tuple(ask.group.key for ask in found.asks)
    withdrawn: set[GroupKey] = set()
    for o, item in enumerate(found.ranked):
        owners = found.owners.get(o, triggers)
        for pod in item.offer.pods:
            if pod.key in found.ledger.changed and pod.key not in run.base.changed:
                cycle.evicted_by[pod.key] = Eviction(run.action, owners, _words(run.action, owners))
                if pod.key in found.ledger.held:
                    cycle.placed_by[pod.key] = run.action
            elif pod.key in run.base.held and pod.key not in found.ledger.held:
                cycle.placed_by.pop(pod.key, None)
                withdrawn.add(item.offer.group.key)
                cycle.waiting[item.offer.group.key] = Waiting(
                    "Withdrawn", f"its room of this cycle went to {owners[0]} ({run.action})", True
                )
    for ask in found.asks:
        for pod in ask.pods:
            cycle.placed_by[pod.key] = run.action
    if withdrawn:
        cycle.ledger, cycle.evicted_by = settle(
            cycle.ledger, cycle.evicted_by, frozenset(withdrawn), triggers
        )


def _words(action: ActionName, owners: tuple[GroupKey, ...]) -> str:
    names = ", ".join(str(key) for key in owners[:3]) + (" …" if len(owners) > 3 else "")
    verb: dict[str, str] = {
        "reclaim": "reclaimed for",
        "preempt": "preempted by",
        "consolidation": "moved to make room for",
    }
    return f"{verb[action]} {names}"


def _record(run: _Run, seconds: float) -> None:
    found = run.found
    rows: list[tuple[str, float, float, bool]] = [
        (f"{run.action}: admission", run.refused, run.refused - run.unproved, run.unproved == 0)
    ]
    if found is not None:
        rows += [
            (f"{run.action}: {stage.name}", stage.objective, stage.bound, stage.proved)
            for stage in found.stages
        ]
    for name, objective, bound, proved in rows:
        run.cycle.stages.append(
            Stage(
                name,
                "OPTIMAL" if proved else "FEASIBLE",
                objective,
                objective if proved else bound,
                0.0 if proved else abs(objective - bound) / max(1.0, abs(objective)),
                found.variables if found else 0,
                found.constraints if found else 0,
                seconds if name.endswith("admission") else 0.0,
            )
        )
