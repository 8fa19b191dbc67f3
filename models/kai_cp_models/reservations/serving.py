"""All groups that hold nothing, in the fair order: start now, start by right in held capacity, or wait (12.2,
12.8)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kai_cp_models.blame import for_group
from kai_cp_models.fairness import amounts
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import Placer
from kai_cp_models.refusal import Proof, Refusal
from kai_cp_models.reservations.gang import shape_of, unsuited
from kai_cp_models.reservations.held import lifted
from kai_cp_models.reservations.loads import Beyond, Load, loads_of
from kai_cp_models.reservations.making import reserve
from kai_cp_models.reservations.mending import mend
from kai_cp_models.reservations.search import NoPlaces
from kai_cp_models.reservations.times import NEVER
from kai_cp_models.reservations.walk import WAITING, Walk
from kai_cp_models.shown import clock, span


def start_promised(walk: Walk) -> None:
    """Start the groups whose places are promised, beside all starts that are kept (4.2).

    No start moves forward onto capacity that pods left for these groups, and no such place is closed. A group
    that itself holds places, or keeps places closed, starts on those.
    """
    due = {key for key in walk.asks if walk.times.due(key) is not None}
    if any(ask.promised for key, ask in walk.asks.items() if key not in due):
        walk.line_up(walk.root, apart=due)
        walk.serve(partial(_start_now, walk), promised=True)
        walk.stay()


def serve_all(walk: Walk) -> None:
    """Serve all other groups in the fair order."""
    for hold in walk.holds:
        walk.waits_itself(hold)
    walk.line_up(walk.root, apart={hold.key for hold in walk.holds})
    walk.serve(partial(_start_now, walk), partial(reserve, walk))


@for_group(lambda _, ask: ask.group.key)
def _start_now(walk: Walk, ask: Ask) -> Refusal | None:
    """Start the ask, or say why it cannot."""
    key = (*ask.kind.signature, ask.group.queue if walk.holds else None)
    known = walk.refusals.get(key)
    if known is not None and not ask.promised:
        return known
    until = walk.window_end(ask)
    load = Load(ask.group, cost_of_pods(walk.ledger, ask), walk.now, until, reserved=False, checked=True)
    beyond = walk.scene().loads.beyond(load, loads_of(walk.holds)) if walk.holds else None
    placer = Placer(ask.gang, only="nominated" if ask.promised else None)
    why = Refusal("TopologyFragmented") if beyond else placer.place(walk.ledger, ask.batch)
    if why is None:
        walk.started(ask)
        return None
    if ask.promised:
        return why
    refused = NoPlaces(beyond)
    if not walk.holds:
        decided = walk.admission.decide(walk.ledger, ask, why)
        if isinstance(decided, Ledger):
            walk.ledger = decided
            walk.note_movable(ask)
            walk.changed()
            return None
        why = decided
    elif not beyond:
        found = _rearranged(walk, ask, until)
        if found is None:
            return None
        refused = found
    if walk.holds or walk.state.drains:
        if _overrule(walk, ask):
            return None
        if walk.holds:
            why = replace(why, proof=Proof("no places") if refused.proved else None)
        why = _held_from(walk, ask, why, beyond)
    walk.refusals[key] = why
    return why


def _rearranged(walk: Walk, ask: Ask, until: float) -> NoPlaces | None:
    """Start the ask by giving other groups other places; None when it has started."""
    if unsuited(walk.ledger, ask):
        return NoPlaces(proved=False)
    shape = shape_of(walk.ledger, ask)
    found = walk.scene().at(ask, shape, walk.now, until, walk.holds, reserved=False)
    if isinstance(found, NoPlaces):
        return found
    before = walk.holds, walk.ledger, walk.state
    walk.settle(found)
    walk.changed()
    walk.ledger = walk.ledger.copy()
    failure = Placer(ask.gang).place(walk.ledger, ask.batch)
    if failure is not None and not walk.put(walk.ledger, ask, found.nodes, checked=True):
        walk.holds, walk.ledger, walk.state = before
        walk.changed()
        return NoPlaces(proved=False)
    walk.note_movable(ask)
    walk.changed()
    return None


def _overrule(walk: Walk, ask: Ask) -> bool:
    """Start the ask in capacity held by groups that it could preempt; these are planned again (12.8)."""
    ignored = walk.state.windows[ask.group.key].ignores & {hold.key for hold in walk.holds}
    if not ignored:
        return False
    with lifted(walk.ledger, ignored):
        if Placer(ask.gang).place(walk.ledger, ask.batch) is not None:
            return False
    walk.started(ask)
    walk.refusals.clear()
    walk.changed()
    mend(walk, at_once=False)
    return True


def _held_from(walk: Walk, ask: Ask, why: Refusal, beyond: Beyond | None) -> Refusal:
    """The reason, if only holds keep the ask from starting; else ``why``."""
    ledger, drains = walk.ledger, [d.hold for d in walk.state.drains if d.key != ask.group.key]
    with lifted(ledger, {hold.key for hold in (*walk.holds, *drains)}):
        ledger.mark()
        Placer(ask.gang).place(ledger, ask.batch)
        nodes = {ledger.held[pod.key].node for pod in ask.pods if pod.key in ledger.held}
        ledger.close(kept=False)
    if not nodes:
        return why
    ahead = [hold for hold in walk.holds if beyond is None and nodes & hold.usage.keys()]
    closed = next((hold for hold in drains if nodes & hold.usage.keys()), None)
    if not ahead and closed is not None and (beyond is None or not walk.holds):
        text = f"its nodes are closed for {closed.key} until they are empty; only preemptible pods start"
        return Refusal(WAITING, text, proof=why.proof)
    if not walk.holds:
        return why
    first = min(ahead or walk.holds, key=lambda hold: (hold.start, hold.order))
    expected = walk.times.expected(ask.group)
    needs = "it declares no run time" if expected is None else f"needs {span(expected)}"
    left = span(first.start - walk.now)
    text = f"held for {first.key} from {clock(first.start, walk.now)}; {needs}, {left} are left"
    if not ask.group.preemptible and walk.times.limit(ask.group) == NEVER:
        text += "; it cannot be preempted and nothing limits its run time"
    if beyond is not None:
        text = f"{beyond.message} at the start of {first.key} ({clock(first.start, walk.now)})"
    return Refusal(WAITING, text, proof=why.proof)


def cost_of_pods(ledger: Ledger, ask: Ask) -> tuple[int, int, int]:
    """The least that the ask costs its queue."""
    return amounts.optimistic_batch(ledger.snapshot, ask.pods)
