"""The action allocate with a time axis, and what every later action must leave to holders (12.2, 12.8)."""

from __future__ import annotations

import time

from kai_cp_models.cycle import Cycle
from kai_cp_models.reservations.draining import serve_drains
from kai_cp_models.reservations.keeping import keep_starts, serve_holders
from kai_cp_models.reservations.mending import holder_of, later, lost, mend
from kai_cp_models.reservations.search import NoPlaces
from kai_cp_models.reservations.serving import serve_all, start_promised
from kai_cp_models.reservations.state import update
from kai_cp_models.reservations.walk import Walk


def allocate_in_time(cycle: Cycle) -> None:
    """Run the action on the cycle."""
    started = time.monotonic()
    walk = Walk(cycle)
    starts = keep_starts(walk)
    start_promised(walk)
    serve_holders(walk, starts)
    serve_drains(walk)
    serve_all(walk)
    walk.finish(time.monotonic() - started)


def settle(cycle: Cycle) -> None:
    """After an action: drop the holds of holders that have started, and plan again the holds and the promised
    starts whose capacity another group took by right."""
    state = cycle.time
    if state is None or not (state.holds or state.drains or state.started):
        return
    placed = {cycle.snapshot.pod_by_key[key].group for key in cycle.ledger.held}
    begun = [hold for hold in (*state.holds, *(d.hold for d in state.drains)) if hold.key in placed]
    if begun:
        state = update(
            cycle,
            holds=tuple(hold for hold in state.holds if hold.key not in placed),
            drains=tuple(drain for drain in state.drains if drain.key not in placed),
            started={**state.started, **{hold.key: hold for hold in begun}},
        )
        state.bind(cycle.ledger, strict=False)
    withdrawn = {key: hold for key, hold in state.started.items() if hold.stored and key not in placed}
    if withdrawn or lost(state, cycle.ledger):
        kept = {key: hold for key, hold in state.started.items() if key not in withdrawn}
        update(cycle, started=kept)
        walk = Walk.resumed(cycle, state.holds)
        for hold in withdrawn.values():
            later(walk, holder_of(hold), NoPlaces(), at_once=False)
        mend(walk, at_once=False)
        walk.hand_over()
