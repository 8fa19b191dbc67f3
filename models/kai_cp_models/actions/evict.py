"""Reclaim, preempt and consolidation: place waiting groups by evicting or moving others (4.3 to 4.7).

Triggers are admitted in fair order (formulation 1.3, 1.4). A step tries several at once and doubles
while it succeeds; where it fails, one solve decides which of the next few are admitted, and the others
are refused. Refusals of a class of equal triggers are proved once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from kai_cp_models.actions.attempt import Attempts, Found
from kai_cp_models.actions.common import entry_of, waiting_groups
from kai_cp_models.actions.early import refused_early
from kai_cp_models.actions.withdraw import settle
from kai_cp_models.cycle import Cycle, Eviction, Waiting
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.order import FairOrder
from kai_cp_models.fairness.reclaim import can_reclaim
from kai_cp_models.joint.dead import DeadAsks
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.snapshot import ActionName, GroupKey, Stage

_MOST_AT_ONCE = 4_096
_MOST_NAMED = 4
_MOST_OPTIONAL = 12
"""Triggers whose admission one solve decides, with weights 2^i (formulation 2.1)."""


@dataclass
class _Run:
    """One run of an eviction action."""

    attempts: Attempts
    dead: DeadAsks
    found: Found | None = None
    unproved: int = 0
    refused: int = 0
    narrowed: bool = False
    """Some step with several triggers failed."""
    queue: list[Ask] = field(default_factory=list)

    @property
    def cycle(self) -> Cycle:
        return self.attempts.cycle

    @property
    def action(self) -> ActionName:
        return self.attempts.action

    @property
    def ledger(self) -> Ledger:
        """The state with everything admitted so far."""
        return self.found.ledger if self.found is not None else self.attempts.base


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
    waiting = waiting_groups(cycle, action)
    run = _Run(Attempts(cycle, action, cycle.ledger, waiting), DeadAsks(cycle.ledger, action))
    if waiting:
        _admit_all(run)
    if run.found is not None:
        run.found = run.attempts.finish(run.found)
        _commit(run, run.found)
    _record(run, time.monotonic() - started)


def _admit_all(run: _Run) -> None:
    base, snapshot, waiting = run.attempts.base, run.cycle.snapshot, run.attempts.waiting
    book = base.book.copy()
    order = FairOrder(
        snapshot,
        book,
        {key: entry_of(base, snapshot.group_by_key[key], batch) for key, batch in waiting.items()},
    )
    step = _MOST_AT_ONCE
    while True:
        while len(run.queue) < step and (key := order.pop()) is not None:
            ask = Ask(snapshot.group_by_key[key], base.fixed.gangs[key], waiting[key])
            if not _refuse_early(run, ask):
                run.queue.append(ask)
                # What is tried next counts as served already, as KAI's order would see it.
                asked = amounts.pessimistic_batch(snapshot, ask.pods)
                book.charge(ask.group.queue, asked, ask.group.preemptible)
                order.charged(ask.group.queue)
        while run.queue and _refuse_early(run, run.queue[0]):
            run.queue.pop(0)
        if not run.queue:
            if not len(order):
                return
            continue
        step = _step(run, _chunk(run, step))


def _chunk(run: _Run, step: int) -> list[Ask]:
    """The next triggers to try together. Preempt works queue by queue: its queues share idle room only."""
    if run.action != "preempt":
        return run.queue[:step]
    first = run.queue[0].group.queue
    return [ask for ask in run.queue if ask.group.queue == first][:step]


def _step(run: _Run, chunk: list[Ask]) -> int:
    """Decide the first triggers of the queue; returns how many to try next."""
    chunk = _entitled(run, chunk)
    found = run.attempts.attempt(run.found, chunk)
    if isinstance(found, Found):
        _accept(run, found, chunk)
        # Once a step failed, what is left is halved: it holds a trigger that has no place.
        return max(1, len(run.queue) // 2) if run.narrowed else _MOST_AT_ONCE
    run.narrowed = True
    if len(chunk) > _MOST_OPTIONAL or (len(chunk) > 1 and run.action == "reclaim"):
        # In reclaim the fair order ends the admission, and halving finds where.
        return len(chunk) // 2
    if len(chunk) > 1:
        found = run.attempts.attempt(run.found, chunk, optional=True)
        if not isinstance(found, Found):
            chunk = chunk[:1]
            found = run.attempts.attempt(run.found, chunk)
    if isinstance(found, Found):
        _accept(run, found, chunk)
        return _MOST_OPTIONAL
    _refuse(run, chunk[0], found)
    run.dead.add(chunk[0], found)
    run.queue = run.queue[1:]
    return max(1, len(chunk))


def _accept(run: _Run, found: Found, chunk: list[Ask]) -> None:
    run.found = found
    admitted = {ask.group.key for ask in found.asks}
    for ask in chunk:
        if ask.group.key in admitted:
            run.cycle.waiting.pop(ask.group.key, None)
        else:
            why = Waiting("NotPossible", "no permitted set of evictions makes room", found.proved)
            _refuse(run, ask, why)
            run.dead.add(ask, why)
    done = {ask.group.key for ask in chunk}
    run.queue = [ask for ask in run.queue if ask.group.key not in done]


def _entitled(run: _Run, chunk: list[Ask]) -> list[Ask]:
    """The longest prefix that may act together: totals are tested one after the other (4.4)."""
    if run.action != "reclaim":
        return chunk
    book = run.ledger.book.copy()
    for k, ask in enumerate(chunk):
        asked = amounts.pessimistic_batch(run.cycle.snapshot, ask.pods)
        if can_reclaim(book, ask.group.queue, asked, ask.group.preemptible) is not None:
            return chunk[: max(k, 1)]
        book.charge(ask.group.queue, asked, ask.group.preemptible)
    return chunk


def _refuse_early(run: _Run, ask: Ask) -> bool:
    why = (
        run.dead.find(ask)
        or run.attempts.too_little(run.found, ask)
        or refused_early(run.ledger, ask, run.action)
    )
    if why is not None:
        _refuse(run, ask, why)
    return why is not None


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


def _commit(run: _Run, found: Found) -> None:
    cycle, base = run.cycle, run.attempts.base
    cycle.ledger = found.ledger
    triggers = tuple(ask.group.key for ask in found.asks)
    withdrawn: set[GroupKey] = set()
    users = _users(found)
    members: dict[int, frozenset[GroupKey]] = {}
    for o, item in enumerate(found.ranked):
        takers = found.owners.get(o, triggers)
        for pod in item.offer.pods:
            owners = takers
            if run.action != "consolidation":
                # Classes of triggers share one tuple, so it is turned into a set once.
                among = members.get(id(takers)) or members.setdefault(id(takers), frozenset(takers))
                owners = _named(takers, among, users.get(pod.node or "", ()))
            if pod.key in found.ledger.changed and pod.key not in base.changed:
                cycle.evicted_by[pod.key] = Eviction(run.action, owners, _words(run.action, owners))
                if pod.key in found.ledger.held:
                    cycle.placed_by[pod.key] = run.action
            elif pod.key in base.held and pod.key not in found.ledger.held:
                cycle.placed_by.pop(pod.key, None)
                withdrawn.add(item.offer.group.key)
                cycle.waiting[item.offer.group.key] = Waiting(
                    "Withdrawn", f"its room of this cycle went to {owners[0]} ({run.action})", True
                )
    for ask in found.asks:
        cycle.sequence.setdefault(ask.group.key, len(cycle.sequence))
        for pod in ask.pods:
            cycle.placed_by[pod.key] = run.action
    if withdrawn:
        cycle.ledger, cycle.evicted_by = settle(
            cycle.ledger, cycle.evicted_by, frozenset(withdrawn), triggers, run.action
        )


def _users(found: Found) -> dict[str, tuple[GroupKey, ...]]:
    """Which triggers got a place on each node."""
    nodes = found.ledger.snapshot.nodes
    users: dict[str, tuple[GroupKey, ...]] = {}
    for ask in found.asks:
        for pod in ask.pods:
            name = nodes[found.ledger.held[pod.key].node].name
            if ask.group.key not in users.get(name, ()):
                users[name] = (*users.get(name, ()), ask.group.key)
    return users


def _named(
    takers: tuple[GroupKey, ...], among: frozenset[GroupKey], here: tuple[GroupKey, ...]
) -> tuple[GroupKey, ...]:
    """The triggers an eviction is reported for: the one that answers for it, and who uses the room."""
    used = tuple(key for key in here if key != takers[0] and key in among)
    return (takers[0], *used[: _MOST_NAMED - 1])


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
        ("admission", run.refused, run.refused - run.unproved, run.unproved == 0)
    ]
    if found is not None:
        rows += [(stage.name, stage.objective, stage.bound, stage.proved) for stage in found.stages]
    for position, (name, objective, bound, proved) in enumerate(rows):
        run.cycle.stages.append(
            Stage(
                f"{run.action}: {name}",
                "OPTIMAL" if proved else "FEASIBLE",
                objective,
                objective if proved else bound,
                0.0 if proved else abs(objective - bound) / max(1.0, abs(objective)),
                found.variables if found else 0,
                found.constraints if found else 0,
                seconds if position == 0 else 0.0,
            )
        )
