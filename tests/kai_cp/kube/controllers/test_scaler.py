"""The node-scale adjuster writes what a pass asks for, once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.informers import Informers
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.controllers.base import Context
from kai_cp.kube.controllers.options import ControllerOptions
from kai_cp.kube.controllers.scaler import WHOLE, NodeScaleAdjuster
from tests.kai_cp.kube.conftest import until
from tests.kai_cp.kube.stub import StubServer
from tests.kai_cp.workloads.test_scaling import waiting


@contextmanager
def scaling(server: StubServer) -> Iterator[tuple[NodeScaleAdjuster, Informers]]:
    transport = server.transport("node-scale-adjuster")
    informers = Informers(transport)
    writer = BackgroundWriter(1)
    recorder = Recorder(transport, writer, "test")
    context = Context(
        transport, informers, recorder, CollectorRegistry(), ControllerOptions(), lambda _keys: None
    )
    scaler = NodeScaleAdjuster(context)
    informers.start()
    try:
        until(lambda: not informers.missing())
        yield scaler, informers
    finally:
        informers.stop()
        writer.stop()


def ours(name: str, namespace: str = "ns") -> dict[str, Any]:
    pod = waiting(name)
    pod["spec"]["schedulerName"] = "kai-scheduler"
    pod["metadata"]["namespace"] = namespace
    return pod


def test_a_scaling_pod_that_is_refused_stops_no_other_namespace(server: StubServer) -> None:
    """It has the affinity and the runtime class of its pod, which an admission may refuse here."""
    posts: list[str] = []

    def refuse_the_first(method: str, path: str) -> tuple[int, dict[str, str]] | None:
        if method != "POST":
            return None
        posts.append(path)
        return (403, {}) if len(posts) == 1 else None

    for pod in (ours("a"), ours("b"), ours("c"), ours("x", "other")):
        server.put(r.PODS, pod)
    server.faults = refuse_the_first
    with scaling(server) as (scaler, _):
        with pytest.raises(ApiError, match="403"):
            scaler.reconcile(WHOLE, 0)
        assert server.get(r.PODS, "kai-scale-adjust", "other-x") is not None
        assert len(posts) == 2, "the namespace whose pod is refused is asked for once in a pass"
        scaler.reconcile(WHOLE, 1)
        assert server.get(r.PODS, "kai-scale-adjust", "ns-a") is not None


def test_a_tenant_with_thousands_of_pods_delays_no_other(
    server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one pass took as long as it took, and a pass that takes ten minutes restarts the process."""
    monkeypatch.setattr("kai_cp.kube.controllers.scaler.MOST_WRITES", 6)
    server.hold((r.PODS, ours(f"a{i:02}", "attacker")) for i in range(40))
    server.hold((r.PODS, ours(f"v{i}", "victim")) for i in range(2))
    with scaling(server) as (scaler, _):
        assert scaler.reconcile(WHOLE, 0) == 0.0, "it goes on at once"
        made = [body["metadata"]["name"] for body in server.requests("POST", "kai-scale-adjust")]
        assert len(made) == 6
        assert sum(name.startswith("victim-") for name in made) == 1, "that shows what the victim needs"
        while scaler.reconcile(WHOLE, 0) is not None:
            pass
        assert len(server.requests("POST", "kai-scale-adjust")) == 21, "a half for each pod, a whole for two"


def test_demand_is_shown_to_autoscalers_and_taken_back(
    server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = ours("a")
    server.put(r.PODS, pod)
    with scaling(server) as (scaler, informers):
        scaler.reconcile(WHOLE, 0)
        made = server.get(r.PODS, "kai-scale-adjust", "ns-a")
        assert made is not None
        assert made["status"]["conditions"][0]["reason"] == "Unschedulable"
        writes = len(server.log)
        scaler.reconcile(WHOLE, 0)
        assert len([m for m, _, _ in server.log[writes:] if m != "GET"]) == 0

        server.remove(r.PODS, "ns", "a")
        until(
            lambda: (
                informers.store(r.PODS, fields="spec.schedulerName=kai-scheduler").get(("ns", "a")) is None
            )
        )
        scaler.reconcile(WHOLE, 0)
        assert server.get(r.PODS, "kai-scale-adjust", "ns-a") is None

        server.put(r.PODS, {**pod, "metadata": {**pod["metadata"], "uid": "again"}})
        until(lambda: informers.store(r.PODS, fields="spec.schedulerName=kai-scheduler").get(("ns", "a")))
        left = scaler.reconcile(WHOLE, 0)
        assert left is not None, "a new node is given time to take what waits"
        assert server.get(r.PODS, "kai-scale-adjust", "ns-a") is None
        later = time.monotonic() + left + 1
        monkeypatch.setattr("kai_cp.kube.controllers.scaler.time.monotonic", lambda: later)
        scaler.reconcile(WHOLE, 0)
        assert server.get(r.PODS, "kai-scale-adjust", "ns-a") is not None
