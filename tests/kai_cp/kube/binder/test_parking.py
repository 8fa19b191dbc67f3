"""Parked binds are woken by the object that they wait for, each once, however often that object changes."""

from __future__ import annotations

from typing import Any

from kai_cp.kube.api.store import ObjectKey, Store
from kai_cp.kube.api.workqueue import WorkQueue
from kai_cp.kube.binder.parking import Parking
from kai_cp.kube.binder.steps import Awaits

CLAIM: ObjectKey = ("evil", "data")
BINDS = [("evil", f"p-{i}") for i in range(60)]
FLOOD = 500


class Flood:
    """A claim that many binds wait for and that changes all the time, beside the bind of a victim."""

    def __init__(self) -> None:
        self.queue = WorkQueue()
        self.parking = Parking(self.queue.add)
        self.claims = Store()
        self.version = 0
        self.change(1)

    def change(self, times: int) -> None:
        for _ in range(times):
            self.version += 1
            meta = {"namespace": CLAIM[0], "name": CLAIM[1], "resourceVersion": str(self.version)}
            self.claims.put({"metadata": meta})

    def look(self) -> Awaits:
        return Awaits("it is not bound", self.claims, {CLAIM: self.claims.get(CLAIM)}, 30.0)

    def take(self) -> ObjectKey:
        taken: Any = self.queue.get()
        return (taken[0][0], taken[0][1])


def test_a_flood_of_changes_wakes_each_bind_once_and_delays_no_victim() -> None:
    flood = Flood()
    assert all(flood.parking.park(bind, flood.look()) for bind in BINDS)
    flood.change(FLOOD)
    flood.queue.add([("victim", "p")])
    assert len(flood.queue) == len(BINDS) + 1
    assert ("victim", "p") in (flood.take(), flood.take())


def test_a_bind_that_is_carried_out_is_woken_once_more_at_most() -> None:
    flood = Flood()
    flood.parking.park(BINDS[0], flood.look())
    flood.change(FLOOD)
    bind = flood.take()
    flood.parking.leave(bind)
    flood.change(FLOOD)
    assert len(flood.queue) == 0, "it looks by itself"
    seen = flood.look()
    flood.change(FLOOD)
    assert not flood.parking.park(bind, seen), "what came since it looked is not missed"
    flood.change(FLOOD)
    flood.queue.done(bind, 0.0)
    assert flood.take() == bind
    assert len(flood.queue) == 0
    flood.queue.done(bind, None)
    assert flood.queue.idle
