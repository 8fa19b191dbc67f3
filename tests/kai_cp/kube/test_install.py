"""Custom resource definitions: installed, left alone if they exist, and printed."""

from __future__ import annotations

import threading

import yaml
from typer.testing import CliRunner

from kai_cp.kube import install
from kai_cp.kube.api import resources as r
from kai_cp.kube.cli import app
from tests.kai_cp.kube.stub import StubServer


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
