"""Whether a process leads, as its metrics tell it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from kai_cp.kube.api.lease import LeaderLease
from kai_cp.kube.telemetry.leadership import show_leadership
from tests.kai_cp.kube.api.test_lease import Clock, lease
from tests.kai_cp.kube.stub import StubServer


def shown(held: LeaderLease | None) -> list[float | None]:
    registry = CollectorRegistry()
    show_leadership(registry, "a", held)
    return [registry.get_sample_value("kai_cp_leader", {"lease": name}) for name in ("a", "b")]


def test_only_the_holder_of_the_lease_leads_and_only_while_it_holds_it(server: StubServer) -> None:
    clock = Clock()
    first, second = lease(server, "first", clock), lease(server, "second", clock)
    assert first.acquire()
    assert [shown(one) for one in (first, second)] == [[1.0, None], [0.0, None]]
    clock.now += 14.0
    assert shown(first) == [0.0, None]


def test_a_process_that_needs_no_lease_leads() -> None:
    assert shown(None) == [1.0, None]
