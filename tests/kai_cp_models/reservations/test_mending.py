"""Holds that are planned anew say why they start later than promised, wherever they move."""

from __future__ import annotations

import time

from kai_cp_models.cycle import Cycle
from kai_cp_models.ledger import Ledger
from kai_cp_models.reservations.holders import stored_holders
from kai_cp_models.reservations.keeping import serve_holders
from kai_cp_models.reservations.mending import at as places_at
from kai_cp_models.reservations.mending import keep
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.reservations.search import FoundPlaces
from kai_cp_models.reservations.state import TimeState
from kai_cp_models.reservations.walk import Walk
from tests.support.times import at, runs, settings, stored, waits, world
from tests.support.worlds import cluster, node


def test_a_late_start_that_comes_nearer_keeps_its_cause() -> None:
    """big was promised 12:30, and a runs there until 13:00. What made it 14:00 is gone again."""
    members = world(
        runs("a", "n1", lasts="60m"),
        waits("big", lasts="4h", reserve=True, waited=60, stored=stored(30, {"n1": 8})),
    )
    chosen = settings()
    snapshot, times = prepare(cluster(nodes=[node("n1")], **members), chosen)
    assert times is not None
    cycle = Cycle(snapshot, chosen, Ledger.of(snapshot), time.monotonic() + 600)
    cycle.time = TimeState(times)
    walk = Walk(cycle)
    (holder,), _ = stored_holders(cycle, times, walk.asks)
    places = places_at(walk, holder, at(120))
    assert isinstance(places, FoundPlaces)
    serve_holders(walk, [(holder, keep(walk, holder, at(120), places, "HigherPriority"))])
    assert [(hold.start, hold.cause) for hold in walk.holds] == [(at(60), "HigherPriority")]
    # A start that is no later than promised has none.
    assert keep(walk, holder, at(30), places, "HigherPriority").cause is None
