"""Only the holder writes, and only while it certainly holds the lease."""

from __future__ import annotations

import threading

import pytest

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import LeaseLost
from kai_cp.kube.api.lease import LeaderLease, LeaseTimes
from kai_cp.kube.api.retry import Backoff
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.stub import StubServer


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lease(server: StubServer, who: str, clock: Clock, **seconds: float) -> LeaderLease:
    once = server.transport(backoff=Backoff(attempts=1))
    times = LeaseTimes(**{"duration": 15.0, "renew": 10.0, "retry": 0.02, **seconds})
    return LeaderLease(once, "kai-scheduler", "lease", who, times, monotonic=clock)


def holder(server: StubServer) -> str:
    found = server.get(r.LEASES, "kai-scheduler", "lease")
    assert found is not None
    return str(found["spec"]["holderIdentity"])


def test_the_first_gets_it_and_the_second_waits(server: StubServer) -> None:
    clock = Clock()
    first, second = lease(server, "first", clock), lease(server, "second", clock)
    assert first.acquire()
    first.fence()
    waiting = threading.Thread(target=second.acquire, daemon=True)
    waiting.start()
    until(lambda: len(server.requests("GET", "leases")) > 5)
    assert holder(server) == "first"
    with pytest.raises(LeaseLost):
        second.fence()
    clock.now += 15.0
    waiting.join(PATIENCE_SECONDS)
    assert holder(server) == "second"
    with pytest.raises(LeaseLost):
        first.fence()


def test_a_lease_holder_stops_writing_before_the_next_one_begins(server: StubServer) -> None:
    clock = Clock()
    first = lease(server, "first", clock)
    assert first.acquire()
    clock.now += 13.4
    first.fence()
    clock.now += 0.2
    with pytest.raises(LeaseLost):
        first.fence()


def test_a_lease_that_cannot_be_renewed_is_lost(server: StubServer) -> None:
    clock = Clock()
    first = lease(server, "first", clock)
    assert first.acquire()
    lost = threading.Event()
    keeper = threading.Thread(target=first.keep, args=(lost.set,), daemon=True)
    keeper.start()
    until(lambda: len(server.requests("PUT", "leases")) > 2)
    server.faults = lambda _m, _p: (500, {})
    assert not lost.wait(0.1)
    clock.now += 14.0
    assert lost.wait(PATIENCE_SECONDS)


def test_a_conflict_at_a_renewal_is_no_loss(server: StubServer) -> None:
    """Another program wrote the lease, but none can have taken it."""
    first = lease(server, "first", Clock())
    assert first.acquire()
    conflicts: list[str] = []

    def fault(method: str, path: str) -> tuple[int, dict[str, str]] | None:
        if method != "PUT" or conflicts:
            return None
        conflicts.append(path)
        return 409, {}

    server.faults = fault
    lost = threading.Event()
    threading.Thread(target=first.keep, args=(lost.set,), daemon=True).start()
    until(lambda: len(server.requests("PUT", "leases")) > 2)
    assert not lost.is_set()
    first.fence()
    first.give_up()


def test_a_lease_without_a_spec_is_free(server: StubServer) -> None:
    server.put(r.LEASES, {"metadata": {"name": "lease", "namespace": "kai-scheduler"}})
    assert lease(server, "first", Clock()).acquire()
    assert holder(server) == "first"


def test_holder_and_waiting_process_end_when_etcd_is_restored_from_a_backup(server: StubServer) -> None:
    """Versions go back, so their stores would drop all news, and the next leader would go by old ones."""
    clock = Clock()
    first, second = lease(server, "first", clock), lease(server, "second", clock)
    assert first.acquire()
    ended: list[LeaseLost] = []

    def wait() -> None:
        try:
            second.acquire()
        except LeaseLost as error:
            ended.append(error)

    lost = threading.Event()
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    threading.Thread(target=first.keep, args=(lost.set,), daemon=True).start()
    until(lambda: len(server.requests("GET", "leases")) > 10)
    server.objects[r.LEASES.path("kai-scheduler", "lease")]["metadata"]["resourceVersion"] = "1"
    assert lost.wait(PATIENCE_SECONDS)
    waiting.join(PATIENCE_SECONDS)
    assert ended
    with pytest.raises(LeaseLost):
        first.fence()


def test_another_process_took_it(server: StubServer) -> None:
    clock = Clock()
    first = lease(server, "first", clock)
    assert first.acquire()
    found = server.get(r.LEASES, "kai-scheduler", "lease")
    assert found is not None
    server.put(r.LEASES, {**found, "spec": {**found["spec"], "holderIdentity": "thief"}})
    lost = threading.Event()
    threading.Thread(target=first.keep, args=(lost.set,), daemon=True).start()
    assert lost.wait(PATIENCE_SECONDS)
    with pytest.raises(LeaseLost):
        first.fence()


def test_giving_it_back_lets_the_next_one_in_at_once(server: StubServer) -> None:
    clock = Clock()
    first, second = lease(server, "first", clock), lease(server, "second", clock)
    assert first.acquire()
    first.release()
    assert second.acquire()
    assert holder(server) == "second"


def test_a_renewal_must_fit_the_duration(server: StubServer) -> None:
    with pytest.raises(ValueError, match="renew deadline"):
        lease(server, "x", Clock(), duration=5.0, renew=5.0)
