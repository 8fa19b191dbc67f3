"""Orders that are on their way: they show as sent, are sent in turn, and are decided again when refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from kai_cp import keys
from kai_cp.kube.api import api_objects
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import LeaseLost
from kai_cp.kube.api.write_results import WriteResult
from kai_cp.kube.scheduler.orders import Order, Orders, Sending
from kai_cp.reader import parse
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, PodKey, PodStatus
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import bind, evict, group, pod
from tests.kai_cp.kube.scheduler.conftest import Setup
from tests.kai_cp.kube.scheduler.test_loop import Looping, fill
from tests.kai_cp.kube.stub import StubServer

NOW = 1000.0


class Gate:
    """Holds up the writes of a kind until it opens; it may then answer with a fault instead."""

    def __init__(self, server: StubServer, part: str) -> None:
        self._part = part
        self._open = threading.Event()
        self._fault: tuple[int, dict[str, str]] | None = None
        self.held = 0
        server.faults = self._ask

    def _ask(self, method: str, path: str) -> tuple[int, dict[str, str]] | None:
        if method not in ("POST", "DELETE") or self._part not in path:
            return None
        self.held += 1
        self._open.wait(PATIENCE_SECONDS)
        return self._fault

    def open(self, fault: tuple[int, dict[str, str]] | None = None) -> None:
        self._fault = fault
        self._open.set()


@pytest.fixture
def gate(setup: Setup) -> Iterator[Gate]:
    made = Gate(setup.server, "bindrequests")
    yield made
    made.open()


def seen(setup: Setup) -> dict[str, tuple[PodStatus, str, float | None]]:
    """By pod: status, node and the start of its group, as the next cycle reads them."""
    snapshot = parse(setup.live.snapshot(), now=NOW)
    start = snapshot.group_by_key[GroupKey("ns", "g")].last_start
    return {one.key.name: (one.status, one.node or "", start) for one in snapshot.pods}


def test_orders_that_wait_are_seen_as_sent(setup: Setup, gate: Gate) -> None:
    """So the next cycle, whenever it begins, gives no place twice."""
    sending = setup.live.order(Plan(decisions=tuple(bind(f"p{i}", "n") for i in range(3))))
    until(lambda: gate.held)
    before = seen(setup)
    assert not sending.done
    assert before["p0"] == (PodStatus.BINDING, "n", 1000.0)
    assert before["p3"] == (PodStatus.PENDING, "", 1000.0)
    gate.open()
    assert sending.wait(PATIENCE_SECONDS)
    assert seen(setup) == before
    assert len(setup.server.requests("POST", "bindrequests")) == 3


def taken(setup: Setup) -> None:
    """Another pod has the name of the pod by now."""
    setup.server.remove(r.PODS, "ns", "p0")
    setup.server.put(r.PODS, {**pod("p0"), "metadata": {**pod("p0")["metadata"], "uid": "another"}})
    store = setup.cache.stores[r.PODS]
    until(lambda: (store.get(("ns", "p0")) or pod("x"))["metadata"]["uid"] == "another")


def lost_node(setup: Setup) -> None:
    setup.server.remove(r.NODES, "", "n")
    until(lambda: not len(setup.cache.stores[r.NODES]))


def bound(setup: Setup) -> None:
    """Another scheduler bound it."""
    setup.server.put(r.PODS, pod("p0", node="n"))
    until(lambda: (setup.cache.stores[r.PODS].get(("ns", "p0")) or pod("x"))["spec"].get("nodeName"))


def nothing(_setup: Setup) -> None:
    """Nothing happens meanwhile."""


@pytest.mark.parametrize(
    ("meanwhile", "fault", "outcome"),
    [
        (nothing, None, "done"),
        (nothing, (422, {}), "failed"),
        (nothing, (403, {}), "failed"),
        (nothing, (409, {}), "conflict"),
        (nothing, (404, {}), "gone"),
    ],
)
def test_an_order_that_is_refused_is_one_failed_decision_and_decided_again(
    setup: Setup,
    gate: Gate,
    meanwhile: Callable[[Setup], None],
    fault: tuple[int, dict[str, str]] | None,
    outcome: str,
) -> None:
    sending = setup.live.order(Plan(decisions=(bind("p0", "n"),)))
    until(lambda: gate.held)
    meanwhile(setup)
    gate.open(fault)
    assert sending.wait(PATIENCE_SECONDS)
    assert [result.outcome for result in sending.results()] == [outcome]
    wanted = (PodStatus.BINDING, "n", 1000.0) if outcome == "done" else (PodStatus.PENDING, "", None)
    assert seen(setup)["p0"] == wanted


@pytest.mark.parametrize(
    ("meanwhile", "outcome"), [(taken, "gone"), (lost_node, "gone"), (bound, "conflict")]
)
def test_changes_void_an_order_that_waits(
    setup: Setup, gate: Gate, meanwhile: Callable[[Setup], None], outcome: str
) -> None:
    """All eight threads are busy, so the ninth order waits. It then becomes void and is not sent."""
    for i in range(8):
        setup.server.put(r.PODS, pod(f"x{i}"))
    until(lambda: len(setup.cache.stores[r.PODS]) == 12)
    others = tuple(bind(f"x{i}", "n") for i in range(8))
    sending = setup.live.order(Plan(decisions=(*others, bind("p0", "n"))))
    until(lambda: gate.held == 8)
    meanwhile(setup)
    gate.open()
    assert sending.wait(PATIENCE_SECONDS)
    assert sending.results()[-1].outcome == outcome
    assert not [
        body for body in setup.server.requests("POST", "bindrequests") if body["spec"]["podName"] == "p0"
    ]


def test_an_eviction_shows_as_leaving_until_it_is_refused(setup: Setup) -> None:
    setup.server.put(r.PODS, pod("runs", node="n", phase="Running"))
    until(lambda: setup.cache.stores[r.PODS].get(("ns", "runs")))
    gate = Gate(setup.server, "/pods/runs")
    sending = setup.live.order(Plan(decisions=(evict("runs", "n"),)))
    until(lambda: gate.held)
    assert seen(setup)["runs"][0] is PodStatus.RELEASING
    gate.open((409, {}))
    assert sending.wait(PATIENCE_SECONDS)
    assert seen(setup)["runs"][0] is PodStatus.RUNNING
    noted = setup.live.snapshot()["rawObjects"]["podGroups"][0]["metadata"].get("annotations") or {}
    assert keys.LAST_EVICTION not in noted, "nothing was evicted"


def test_the_latest_decision_about_a_pod_counts(setup: Setup, gate: Gate) -> None:
    for i in range(8):
        setup.server.put(r.PODS, pod(f"x{i}"))
    until(lambda: len(setup.cache.stores[r.PODS]) == 12)
    first = setup.live.order(Plan(decisions=(*(bind(f"x{i}", "n") for i in range(8)), bind("p0", "n"))))
    until(lambda: gate.held == 8)
    second = setup.live.order(Plan(decisions=(evict("p0", "n"),)))
    gate.open()
    assert first.wait(PATIENCE_SECONDS)
    assert second.wait(PATIENCE_SECONDS)
    assert (first.results()[-1].outcome, second.results()[0].outcome) == ("conflict", "done")
    assert setup.server.get(r.BIND_REQUESTS, "ns", "p0") is None


def test_nothing_is_sent_without_the_lease(setup: Setup, gate: Gate) -> None:
    decisions = tuple(bind(f"p{i}", "n") for i in range(4))

    def lost() -> None:
        raise LeaseLost("it is another's")

    setup.live._transport.set_fence(lost)  # noqa: SLF001
    sending = setup.live.order(Plan(decisions=decisions))
    assert sending.wait(PATIENCE_SECONDS)
    assert {result.outcome for result in sending.results()} == {"failed"}
    assert not gate.held
    with pytest.raises(LeaseLost):
        setup.live.snapshot()


def order(namespace: str, name: str, sending: Sending, place: int) -> Order:
    decision = replace(bind(name, "n"), pod=PodKey(namespace, name), group=GroupKey(namespace, "g"))
    return Order(decision, {}, place, sending)


def test_a_thousand_orders_of_one_namespace_stand_before_no_others() -> None:
    """Orders of one namespace keep their sequence, so the pods of a gang follow each other."""
    written: list[PodKey] = []
    begin = threading.Event()

    def send(one: Order) -> WriteResult:
        begin.wait(PATIENCE_SECONDS)
        written.append(one.decision.pod)
        return WriteResult(one.decision, "done")

    orders = Orders(send)
    closed: list[GroupKey] = []
    evil = [order("evil", f"p{i:04}", Sending(), i) for i in range(1000)]
    sending = Sending([one.decision for one in evil], lambda key, _results: closed.append(key))
    orders.put([replace(one, sending=sending) for one in evil])
    late = [order("victim", f"v{i}", Sending(), i) for i in range(4)]
    victim = Sending([one.decision for one in late], lambda key, _results: closed.append(key))
    orders.put([replace(one, sending=victim) for one in late])
    begin.set()
    assert victim.wait(PATIENCE_SECONDS)
    assert orders.drain(PATIENCE_SECONDS)
    assert sending.wait(PATIENCE_SECONDS)
    assert [result.decision for result in sending.results()] == [one.decision for one in evil]
    places = [i for i, pod in enumerate(written) if pod.namespace == "victim"]
    # Eight threads hold one each already, and each may be one behind.
    assert max(places) < 2 * len(late) + 2 * 8
    assert sorted(closed) == [GroupKey("evil", "g"), GroupKey("victim", "g")], "each pod group once"
    orders.close()


def test_orders_not_begun_at_the_close_are_not_sent() -> None:
    begin, sent = threading.Event(), list[Decision]()

    def send(one: Order) -> WriteResult:
        begin.wait(PATIENCE_SECONDS)
        sent.append(one.decision)
        return WriteResult(one.decision, "done")

    orders = Orders(send)
    orders.put([order("ns", f"p{i}", Sending(), i) for i in range(100)])
    assert not orders.drain(0.0)
    orders.close()
    begin.set()
    orders._writers.shutdown()  # noqa: SLF001
    assert 1 <= len(sent) <= 8


def test_a_cycle_waits_for_no_orders_of_another(server: StubServer) -> None:
    fill(server)
    gate = Gate(server, "/namespaces/evil/bindrequests")
    evil = group("g")
    evil["metadata"]["namespace"] = "evil"
    server.put(r.POD_GROUPS, evil)
    looping = Looping(server)
    try:
        for i in range(4):
            item = pod(f"e{i}")
            item["metadata"]["namespace"] = "evil"
            server.put(r.PODS, item)
        until(lambda: gate.held == 4)
        server.put(r.PODS, pod("victim"))
        until(lambda: server.get(r.BIND_REQUESTS, "ns", "victim"))
        assert server.get(r.BIND_REQUESTS, "evil", "e0") is None
        gate.open()
        until(lambda: all(server.get(r.BIND_REQUESTS, "evil", f"e{i}") for i in range(4)))
        assert len(server.requests("POST", "bindrequests")) == 5, "nothing is ordered twice"

        def told() -> list[int]:
            cycles = looping.scheduler.cycles.all()
            return [len(one.results) for one in cycles if len(one.results) < len(one.plan.decisions)]

        until(lambda: not told())
    finally:
        gate.open()
        looping.close()


def test_a_shown_order_is_what_is_sent(setup: Setup, gate: Gate) -> None:
    setup.live.order(Plan(decisions=(bind("p0", "n", gpu_groups=("a",)),)))
    (shown,) = setup.live.snapshot()["rawObjects"]["bindRequests"]
    gate.open()
    made = until(lambda: setup.server.get(r.BIND_REQUESTS, "ns", "p0"))
    assert made["spec"] == shown["spec"]
    assert api_objects.belongs_to(made, pod("p0"))


def test_binds_left_from_before_go_one_at_a_time_while_others_are_new() -> None:
    under_way: list[PodKey] = []
    steps, hurried = threading.Semaphore(0), [True]

    def send(one: Order) -> WriteResult:
        under_way.append(one.decision.pod)
        if one.decision.pod.namespace == "evil":
            steps.acquire(timeout=PATIENCE_SECONDS)
        return WriteResult(one.decision, "done")

    orders = Orders(send)
    orders.left, orders.hurried = frozenset({"evil"}), lambda: hurried[0]
    sending = Sending()
    orders.put([order("evil", f"p{i}", sending, i) for i in range(20)])
    orders.put([order("victim", f"v{i}", sending, i) for i in range(4)])
    until(lambda: len(under_way) == 5)
    for sent in range(1, 4):
        assert [pod.namespace for pod in under_way].count("evil") == sent
        steps.release()
        until(lambda sent=sent: len(under_way) == 5 + sent)  # type: ignore[misc]
    hurried[0] = False
    until(lambda: len(under_way) == 5 + 3 + 7)
    for _ in range(20):
        steps.release()
    assert orders.drain(PATIENCE_SECONDS)
    orders.close()
