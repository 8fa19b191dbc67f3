"""New starts: the earliest instant with places for an ask that may hold capacity, and what heroes would
pay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kai_cp_models.joint.problem import Ask
from kai_cp_models.plan import Offer
from kai_cp_models.pods import PodKey
from kai_cp_models.refusal import Refusal
from kai_cp_models.reservations.draining import close, full, never_fits, without
from kai_cp_models.reservations.gang import GangNeeds
from kai_cp_models.reservations.hero import PricedPlaces, offers_of, priced
from kai_cp_models.reservations.holders import candidate
from kai_cp_models.reservations.keeping import begin
from kai_cp_models.reservations.loads import Beyond
from kai_cp_models.reservations.refit import chosen_places
from kai_cp_models.reservations.search import FoundPlaces, NoPlaces
from kai_cp_models.reservations.state import Hold
from kai_cp_models.reservations.times import NEVER
from kai_cp_models.reservations.walk import TOLERANCE, Walk


@dataclass(frozen=True, slots=True)
class _Start:
    """A start that was found, or why there is none (reason, message; empty: the ask's ordinary reason)."""

    instant: float = NEVER
    found: FoundPlaces | None = None
    priced: PricedPlaces | None = None
    why: tuple[str, str] = ("", "")


def reserve(walk: Walk, ask: Ask, why: Refusal) -> None:
    """Give the ask a start in the future, if it may have one."""
    key = ask.group.key
    if key in {hold.key for hold in walk.holds} or key in walk.state.reports:
        return
    shape = None if full(walk, key) else candidate(walk.cycle, walk.times, ask)
    if shape is None:
        return
    without(walk, key)
    start = _least_start(walk, ask, shape)
    offers = _offers(walk, ask, shape, start)
    if offers:
        walk.state = replace(walk.state, offers={**walk.state.offers, key: offers})
    if start.found is None:
        if start.why[0]:
            walk.cycle.waiting[key] = replace(why, reason=start.why[0], message=start.why[1], pod=None)
            walk.state = replace(walk.state, beyond={**walk.state.beyond, key: start.why})
        elif walk.times.drains and never_fits(walk, ask, shape):
            close(walk, ask, shape)
        return
    walk.settle(start.found)
    walk.made += 1
    paid = start.priced
    hold = Hold(
        ask,
        shape,
        start.instant,
        walk.interval(ask, start.instant),
        start.found.nodes,
        walk.now,
        start.instant,
        (walk.now, walk.made),
        victims=paid.victims if paid else (),
        lost_gpu_hours=paid.lost_gpu_hours if paid else 0.0,
        beside=walk.placed,
    )
    walk.stands(hold)
    if hold.start <= walk.now:
        _begin_new(walk, hold)
    else:
        walk.waits_itself(hold)


def _begin_new(walk: Walk, hold: Hold) -> None:
    """Start a hero at once if its price is accepted."""
    if begin(walk, [hold]) is None:
        # Its victims no longer wait in this cycle, and it asks for its further pods.
        ask = walk.asks.get(hold.key)
        further = {} if ask is None else {hold.key: ask.entry}
        walk.order = walk.order.fork(walk.ledger.book, walk.asks, further)
    # Other asks were admitted before it.
    walk.stay()


def _least_start(walk: Walk, ask: Ask, shape: GangNeeds) -> _Start:
    settings = walk.times.settings.reservations
    price = walk.times.notes(ask.group.key).price
    paying = price is not None and walk.times.hero(ask.group)
    shares: Beyond | None = None
    dear = False
    points = walk.points(shape, until=walk.now + walk.horizon)
    if paying:
        points = [p for p in walk.scene().timeline.points() if p <= walk.now + walk.horizon]
    for instant in points:
        if walk.scene().spent_up:
            return _Start()
        end = walk.interval(ask, instant)
        if paying:
            paid = priced(walk.scene(), ask, shape, instant, end, holds=walk.holds)
            if paid is not None and price is not None and paid.lost_gpu_hours <= price + TOLERANCE:
                return _Start(instant, FoundPlaces(paid.nodes, {}, {}), paid)
            continue
        if instant <= walk.now:
            continue
        outcome = walk.scene().at(ask, shape, instant, end, walk.holds, reserved=True)
        if isinstance(outcome, NoPlaces):
            if outcome.beyond is not None and outcome.beyond.bound == "share":
                shares = outcome.beyond
            continue
        if settings.max_idle_gpu_hours >= 0:
            cheap = _cheap_enough(walk, ask, shape, instant, end, found=outcome)
            if cheap is None:
                dear = True
                continue
            outcome = cheap
        return _Start(instant, outcome)
    if dear:
        most = settings.max_idle_gpu_hours
        return _Start(why=("ReservationTooDear", f"every start leaves more than {most:g} GPU-hours idle"))
    if shares is not None:
        return _Start(why=("ReservationBeyondShare", f"nothing is held beyond the share: {shares.message}"))
    return _Start()


def _cheap_enough(
    walk: Walk, ask: Ask, shape: GangNeeds, start: float, end: float, *, found: FoundPlaces
) -> FoundPlaces | None:
    """Places whose idle time is within the cap."""
    most = walk.times.settings.reservations.max_idle_gpu_hours
    hold = Hold(ask, shape, start, end, found.nodes, walk.now, start, (walk.now, 0))
    scene = walk.scene()
    if walk.idle_hours(hold) <= most + TOLERANCE:
        return found
    others = [replace(h, nodes=found.moved.get(h.key, h.nodes)) for h in walk.holds]
    nodes = chosen_places([hold, *others], scene.timeline, walk.cycle, counted=frozenset((hold.key,)))
    if nodes is None:
        return None
    best = replace(hold, nodes=nodes[hold.key])
    if walk.idle_hours(best) > most + TOLERANCE:
        return None
    return FoundPlaces(
        nodes[hold.key], {key: one for key, one in nodes.items() if key != hold.key}, found.admitted
    )


def _offers(walk: Walk, ask: Ask, shape: GangNeeds, start: _Start) -> tuple[Offer, ...]:
    """What a hero would have to pay for earlier starts."""
    queue = ask.group.queue
    if not walk.times.hero(ask.group) or queue in walk.heroes_told:
        return ()
    walk.heroes_told.add(queue)

    def idle_of(nodes: Mapping[PodKey, int], instant: float) -> float:
        end = walk.interval(ask, instant)
        return walk.idle_hours(Hold(ask, shape, instant, end, nodes, walk.now, instant, (walk.now, 0)))

    def end_of(instant: float) -> float:
        return walk.interval(ask, instant)

    return offers_of(walk.scene(), ask, shape, walk.holds, start.instant, end_of=end_of, idle_of=idle_of)
