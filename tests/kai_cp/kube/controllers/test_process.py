"""The process of the controllers: its probes and what it says of its lease."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from kai_cp.kube.api import informers
from kai_cp.kube.controllers.process import ControllersSetup, run
from kai_cp.kube.demo.controlplane import free_port
from kai_cp.kube.serving.process import Connection, Lifecycle, Service
from tests.kai_cp.kube.binder.test_gpu_reservation import kubeconfig
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.stub import StubServer


def test_a_controller_that_hears_nothing_for_long_is_not_ready(
    server: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, life = free_port(), Lifecycle()
    setup = ControllersSetup(
        ("queue-controller",),
        Connection(kubeconfig(server, tmp_path)),
        Service(listen_address=f"127.0.0.1:{port}", leader_elect=True),
    )

    def asked(path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_SECONDS) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return str(error.read().decode())
        except OSError:
            return ""

    thread = threading.Thread(target=run, args=(setup, life))
    thread.start()
    until(lambda: asked("/readyz") == "ok\n")
    until(lambda: 'kai_cp_leader{lease="kai-cp-controllers"} 1.0' in asked("/metrics"))
    monkeypatch.setattr(informers, "STALE_SECONDS", -PATIENCE_SECONDS)
    assert "silent for long: podgroups, queues" in asked("/readyz")
    life.end()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
