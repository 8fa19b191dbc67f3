"""Small programs: the one in a reservation pod, installing definitions, how processes end."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from typer.testing import CliRunner

from kai_cp.kube import install
from kai_cp.kube.api import names
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.binder import gpu_reservation
from kai_cp.kube.cli import app
from kai_cp.kube.serving.logs import JsonFormatter, TextFormatter
from kai_cp.kube.serving.process import Connection, Lifecycle
from kai_cp.kube.telemetry.request_metrics import RequestMetrics
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import pod
from tests.kai_cp.kube.stub import StubServer


def kubeconfig(server: StubServer, folder: Path) -> str:
    host = server.transport()._settings.host  # noqa: SLF001
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": host}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_the_reservation_names_its_device_and_holds_it(server: StubServer, tmp_path: Path) -> None:
    server.put(r.PODS, pod("gpu-reservation-x"))
    life = Lifecycle()
    connection = Connection(kubeconfig(server, tmp_path))
    found: list[int] = []
    thread = threading.Thread(
        target=lambda: found.append(
            gpu_reservation.run(connection, life, "ns", "gpu-reservation-x", lambda: "GPU-1")
        )
    )
    thread.start()

    def device() -> Any:
        item = server.get(r.PODS, "ns", "gpu-reservation-x")
        assert item is not None
        return item["metadata"]["annotations"].get(names.RESERVED_DEVICE)

    until(lambda: device() == "GPU-1")
    assert thread.is_alive()
    life.end()
    thread.join(PATIENCE_SECONDS)
    assert found == [0]
    assert {k.lower(): v for k, v in server.headers[-1].items()}["authorization"] == "Bearer t"


def test_a_pod_that_is_not_there(server: StubServer, tmp_path: Path) -> None:
    connection = Connection(kubeconfig(server, tmp_path))
    assert gpu_reservation.run(connection, Lifecycle(), "ns", "nobody", lambda: "GPU-1") == 1


def test_the_device_may_be_given_for_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpu_reservation.FAKE_VARIABLE, "GPU-fake")
    assert gpu_reservation.device_uuid() == "GPU-fake"


def test_no_driver_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gpu_reservation.FAKE_VARIABLE, raising=False)
    with pytest.raises(gpu_reservation.NoDevice, match="NVML"):
        gpu_reservation.device_uuid()


def test_definitions_that_are_there_stay(server: StubServer) -> None:
    established = {"conditions": [{"type": "Established", "status": "True"}]}
    theirs = {
        "metadata": {"name": "queues.scheduling.run.ai"},
        "spec": {"theirs": True},
        "status": established,
    }
    server.put(r.CRDS, theirs)

    over = threading.Event()

    def establish() -> None:
        while not over.wait(0.02):
            for path, item in list(server.objects.items()):
                if "status" not in item:
                    server.store(path, {**item, "status": established})

    thread = threading.Thread(target=establish)
    thread.start()
    try:
        done = install.install(server.transport("admin"))
    finally:
        over.set()
        thread.join()
    assert done["queues.scheduling.run.ai"] is False
    assert sum(done.values()) == len(done) - 1
    kept = server.get(r.CRDS, "", "queues.scheduling.run.ai")
    assert kept is not None
    assert kept["spec"] == {"theirs": True}


def test_definitions_can_be_printed() -> None:
    printed = CliRunner().invoke(app, ["crds"])
    assert printed.exit_code == 0
    assert len(list(yaml.safe_load_all(printed.stdout))) == 6


def test_the_first_reason_to_end_counts() -> None:
    called: list[int] = []
    life = Lifecycle()
    life.on_end(lambda: called.append(1))
    life.lease_lost()
    life.end(0)
    life.unauthorized()
    assert (life.status, called, life.over) == (3, [1], True)


def test_who_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kai_cp.kube.serving.process.HARD_SECONDS", 0.05)
    ended: list[int] = []
    Lifecycle(ended.append).unauthorized()
    until(lambda: ended == [4])
    calm: list[int] = []
    Lifecycle(calm.append).end(0)
    time.sleep(0.2)
    assert calm == []


def test_requests_are_counted(server: StubServer) -> None:
    api = server.transport()
    writer = BackgroundWriter(1)
    registry = CollectorRegistry()
    RequestMetrics(registry, api, writer)
    api.list_pages(r.PODS)
    api.patch(r.PODS, "ns", "nobody", {}, subresource="status")
    text = generate_latest(registry).decode()
    assert 'kai_cp_api_requests_total{resource="pods",verb="list"} 1.0' in text
    assert 'kai_cp_api_requests_total{resource="pods/status",verb="patch"} 1.0' in text
    writer.stop()


def test_logs_as_json_and_as_text(caplog: pytest.LogCaptureFixture) -> None:
    import json
    import logging

    logging.getLogger("x").warning("it %s", "is", extra={"pod": "ns/p"})
    line = json.loads(JsonFormatter().format(caplog.records[-1]))
    assert (line["message"], line["level"], line["pod"]) == ("it is", "warning", "ns/p")
    logging.getLogger("x").warning("cycle", extra={"binds": 2, "why": "no room", "seconds": {"solve": 0.1}})
    text = TextFormatter().format(caplog.records[-1])
    assert text.endswith('WARNING cycle binds=2 why="no room" seconds={"solve":0.1}')
