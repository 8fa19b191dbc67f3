"""The demonstration ends all processes that it started."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from rich.console import Console

from kai_cp.kube.demo import run as demo


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that a demonstration without a cluster starts: they wait to be ended."""
    found: list[subprocess.Popen[bytes]] = []

    def start(*_: object) -> subprocess.Popen[bytes]:
        found.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return found[-1]

    for name in (
        "configuration",
        "Transport",
        "ClusterCache",
        "install",
        "create_cluster",
        "DemoView",
        "Live",
    ):
        monkeypatch.setattr(demo, name, MagicMock())
    plane = MagicMock()
    plane.return_value.__exit__.return_value = False
    monkeypatch.setattr(demo, "ControlPlane", plane)
    monkeypatch.setattr(demo, "control_plane_binary", lambda *_, **__: tmp_path)
    monkeypatch.setattr(demo, "_start", start)
    # To this thread: another one might take it so late that the next signal finds no handler any more.
    monkeypatch.setattr(demo, "_show", lambda *_: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr(demo, "tell", lambda *_: iter([("begun", 1.0)]))

    def unheard(*_: object) -> None:
        raise SystemExit("the demonstration does not know what to do at SIGTERM")

    before = signal.signal(signal.SIGTERM, unheard)
    yield found
    signal.signal(signal.SIGTERM, before)
    for process in found:
        process.kill()
        process.wait()


def test_a_signal_to_end_leaves_no_process(started: list[subprocess.Popen[bytes]]) -> None:
    assert demo.run(1, stay=True, console=Console(file=io.StringIO())) == 0
    assert [process.poll() for process in started] == [-signal.SIGTERM] * 2
