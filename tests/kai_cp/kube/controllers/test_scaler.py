"""The node-scale adjuster writes what a pass asks for, once."""

from __future__ import annotations

import time

import pytest
from prometheus_client import CollectorRegistry

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.informers import Informers
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.controllers.base import Context
from kai_cp.kube.controllers.options import ControllerOptions
from kai_cp.kube.controllers.scaler import WHOLE, NodeScaleAdjuster
from tests.kai_cp.kube.conftest import until
from tests.kai_cp.kube.stub import StubServer
from tests.kai_cp.workloads.test_scaling import waiting


def test_demand_is_shown_to_autoscalers_and_taken_back(
    server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = server.transport("node-scale-adjuster")
    informers = Informers(transport)
    writer = BackgroundWriter(1)
    recorder = Recorder(transport, writer, "test")
    context = Context(
        transport, informers, recorder, CollectorRegistry(), ControllerOptions(), lambda _keys: None
    )
    pod = waiting("a")
    pod["spec"]["schedulerName"] = "kai-scheduler"
    server.put(r.PODS, pod)
    scaler = NodeScaleAdjuster(context)
    informers.start()
    try:
        until(lambda: not informers.missing())
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
    finally:
        informers.stop()
        writer.stop()
