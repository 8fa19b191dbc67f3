"""``kai-cp demo-cluster``: a control plane, fake GPU nodes, our processes and a story, on one terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live

from kai_cp.kube.cache import ClusterCache
from kai_cp.kube.demo.controlplane import ControlPlane, free_port
from kai_cp.kube.demo.story import create_cluster, tell
from kai_cp.kube.demo.view import View
from kai_cp.kube.install import install
from kai_cp.kube.options import SchedulerOptions, default_config
from kai_cp.kube.transport import Transport, configuration

BUILDER: Final = Path("tests/kubetest/build.py")


class NoControlPlane(Exception):
    """There is no control plane binary, and nothing here to build it from."""


def control_plane_binary() -> Path:
    """``$KUBETEST_BINARY``, or the one that the repository builds."""
    given = os.environ.get("KUBETEST_BINARY")
    if given:
        return Path(given)
    if not BUILDER.exists():
        raise NoControlPlane("set KUBETEST_BINARY, or run this in a clone of the repository")
    command = [sys.executable, "-m", "tests.kubetest.build"]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode:
        raise NoControlPlane("the control plane binary could not be built")
    return Path(result.stdout.strip().splitlines()[-1])


def _start(command: str, plane: ControlPlane) -> subprocess.Popen[bytes]:
    with (plane.directory / f"{command}.log").open("wb") as log:
        arguments = [
            command,
            f"--kubeconfig={plane.kubeconfig()}",
            f"--listen-address=127.0.0.1:{free_port()}",
        ]
        if command == "scheduler":
            arguments += [f"--plugin-server-address=127.0.0.1:{free_port()}", "--mode=enforce"]
        return subprocess.Popen(
            [sys.executable, "-m", "kai_cp", *arguments], stdout=log, stderr=subprocess.STDOUT
        )


def run(nodes: int, *, stay: bool, console: Console | None = None) -> int:
    """Run the demonstration; with ``stay`` until interrupted, otherwise until the story is over."""
    console = console or Console()
    console.print("starting a control plane on loopback …")
    binary = control_plane_binary()
    processes: list[subprocess.Popen[bytes]] = []
    with ControlPlane(binary) as plane:
        settings = configuration(str(plane.kubeconfig()))
        api = Transport(settings, "admin", access=lambda *_: True)
        cache = ClusterCache(api, SchedulerOptions(), default_config())
        try:
            install(api)
            create_cluster(api, nodes)
            cache.start()
            cache.wait_synced(30)
            processes += [_start("scheduler", plane), _start("binder", plane)]
            view = View(cache, api)
            console.print(f"kubectl --kubeconfig {plane.kubeconfig()} get pods -n demo")
            with Live(
                view.draw("starting"), console=console, refresh_per_second=4, screen=console.is_terminal
            ) as live:
                for headline, seconds in tell(api, nodes):
                    _show(live, view, headline, seconds)
                while stay:
                    _show(live, view, "the end; Ctrl-C leaves", 1)
            if console.is_terminal:
                console.print(view.draw("the end"))
        except KeyboardInterrupt:
            pass
        finally:
            cache.stop()
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(10)
    return 0


def _show(live: Live, view: View, headline: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        live.update(view.draw(headline))
        time.sleep(0.25)
