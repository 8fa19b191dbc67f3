"""Another program binds our pods: this is noticed and reported, and nothing is bound meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp import keys
from kai_cp.keys import ORDERED_BY
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.api.store import key_of
from kai_cp_models.plan import Plan
from tests.kai_cp.kube.conftest import until
from tests.kai_cp.kube.samples import bind, evict, pod
from tests.kai_cp.kube.scheduler.conftest import Setup


def order(name: str, **meta: Any) -> dict[str, Any]:
    """A BindRequest as another program writes it."""
    return {
        "metadata": {"name": name, "namespace": "ns", "creationTimestamp": "2026-11-20T11:00:00Z", **meta},
        "spec": {"podName": name, "selectedNode": "n", "receivedResourceType": "Regular"},
    }


def rival(setup: Setup) -> str:
    return setup.live.rivals.present()


def heard(setup: Setup, kind: Resource, item: dict[str, Any]) -> None:
    """Put an object that is no sign of another scheduler: all changes before it are heard then."""
    setup.server.put(kind, item)
    until(lambda: setup.cache.stores[kind].get(key_of(item)))


def test_a_foreign_order_stops_binding_and_is_reported(setup: Setup) -> None:
    setup.live.catch_up()
    setup.server.put(r.BIND_REQUESTS, order("p0"))
    until(lambda: rival(setup))
    results = setup.apply(Plan(decisions=(bind("p1", "n"), evict("p2", "n"))))
    assert [result.outcome for result in results] == ["conflict", "conflict"]
    assert "another scheduler ordered pod ns/p0 to node n" in results[0].message
    assert setup.server.get(r.BIND_REQUESTS, "ns", "p1") is None
    assert setup.server.get(r.PODS, "ns", "p2") is not None
    (event,) = until(lambda: setup.server.requests("POST", "events"))
    assert event["reason"] == "AnotherScheduler"
    assert event["type"] == "Warning"


def test_a_binding_without_an_order_is_noticed(setup: Setup) -> None:
    setup.live.catch_up()
    bound = pod("p0", node="n")
    setup.server.put(r.PODS, bound)
    until(lambda: rival(setup))
    assert "without an order" in rival(setup)


def test_a_pod_that_is_made_with_a_node_under_an_old_name_is_no_binding(setup: Setup) -> None:
    """Anyone may create one, and the list after a broken watch does not tell the end of the one before."""
    setup.live.catch_up()
    store = setup.cache.stores[r.PODS]
    store.put({**pod("p0"), "metadata": {**pod("p0")["metadata"], "uid": "before", "resourceVersion": "900"}})
    after = pod("p0", node="n")
    store.replace([{**after, "metadata": {**after["metadata"], "uid": "x", "resourceVersion": "901"}}], "901")
    assert not rival(setup)


def test_another_of_ours_has_another_mark(setup: Setup) -> None:
    setup.live.catch_up()
    setup.server.put(r.BIND_REQUESTS, order("p0", annotations={ORDERED_BY: "abc"}))
    until(lambda: rival(setup))
    assert "another kai-cp scheduler (abc)" in rival(setup)


def test_our_own_orders_and_their_bindings_are_not_taken_for_foreign_ones(setup: Setup) -> None:
    setup.live.catch_up()
    assert setup.apply(Plan(decisions=(bind("p0", "n"),)))[0].outcome == "done"
    made = setup.server.get(r.BIND_REQUESTS, "ns", "p0")
    assert made is not None
    assert made["metadata"]["annotations"][ORDERED_BY] == setup.live.rivals.instance
    setup.server.put(r.PODS, pod("p0", node="n"))
    heard(setup, r.PODS, pod("last"))
    assert not rival(setup)


def test_a_binding_that_is_seen_before_its_order_is_ours(setup: Setup) -> None:
    """Two watches deliver them, and on a busy machine a binder may be faster than an answer."""
    setup.live.catch_up()
    setup.live.rivals.mark(order("p0"))
    setup.server.put(r.PODS, pod("p0", node="n"))
    heard(setup, r.PODS, pod("last"))
    assert not rival(setup)
    setup.live.rivals.mark(order("p1"))
    setup.server.put(r.PODS, pod("p1", node="elsewhere"))
    until(lambda: rival(setup))


def test_the_last_order_of_the_leader_before_is_no_rivals(setup: Setup) -> None:
    """It was made before that leader gave up the lease, and the watch brings it after this one begins."""
    setup.cache.stop()
    requests = setup.cache.stores[r.BIND_REQUESTS]
    last = setup.server.put(r.BIND_REQUESTS, order("p0", annotations={ORDERED_BY: "before"}))
    setup.live.catch_up()
    assert [o["metadata"]["name"] for o in setup.live.snapshot()["rawObjects"]["bindRequests"]] == ["p0"]
    requests.put(last)
    assert not rival(setup)
    requests.put(setup.server.put(r.BIND_REQUESTS, order("p1", annotations={ORDERED_BY: "beside"})))
    assert "another kai-cp scheduler (beside)" in rival(setup)


@pytest.mark.parametrize("begun", [True, False])
def test_earlier_orders_and_foreign_pods_are_no_rivals(setup: Setup, begun: bool) -> None:
    setup.server.put(r.BIND_REQUESTS, order("p0"))
    until(lambda: len(setup.cache.stores[r.BIND_REQUESTS]) == 1)
    if begun:
        setup.live.catch_up()
    else:
        setup.server.put(r.BIND_REQUESTS, order("p1"))
    elsewhere = {"labels": {"kai.scheduler/node-pool": "other"}}
    setup.server.put(r.BIND_REQUESTS, order("p2", **elsewhere))
    heard(setup, r.BIND_REQUESTS, order("last", **elsewhere))
    foreign = pod("p3", node="n")
    foreign["metadata"]["annotations"][keys.POD_GROUP] = "of-another-pool"
    setup.server.put(r.PODS, foreign)
    heard(setup, r.PODS, pod("last"))
    assert not rival(setup)
