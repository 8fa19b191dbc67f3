"""``kai-cp demo-cluster``: a control plane, fake GPU nodes, our processes and a story in one terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live

from kai_cp.kube.api.transport import Transport, configuration
from kai_cp.kube.demo.controlplane import ControlPlane, free_port
from kai_cp.kube.demo.story import create_cluster, tell
from kai_cp.kube.demo.view import DemoView
from kai_cp.kube.install import install
from kai_cp.kube.scheduler.cache import ClusterCache
from kai_cp.kube.scheduler.options import SchedulerOptions, default_config

BUILDER: Final = Path("tests/kubetest/build.py")


class NoControlPlane(Exception):
    """There is no control plane binary, and no source here to build it from."""


def control_plane_binary(console: Console, *, yes: bool) -> Path:
    """The binary from ``$KUBETEST_BINARY``, from an earlier build, or built now from the repository.

    Building takes long, so on a terminal the function asks first (unless ``yes``) and shows progress. Raises
    ``NoControlPlane`` if there is no binary and it cannot be built.
    """
    given = os.environ.get("KUBETEST_BINARY")
    if given:
        return Path(given)
    if not BUILDER.exists():
        raise NoControlPlane(
            "there is no API server to run: name its binary with KUBETEST_BINARY, or run this in a clone of "
            "the repository, which builds one"
        )
    there = subprocess.run(
        [sys.executable, "-c", "from tests.kubetest.build import find; print(find() or '')"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if there.stdout.strip():
        console.print(f"[1/3] control plane: {there.stdout.strip()} is there already")
        return Path(there.stdout.strip())
    console.print(
        "[1/3] control plane: not built yet. A Kubernetes API server with etcd is compiled once (some "
        "twelve minutes on two cores, 2 GB of disk, sources from the Go proxy) and kept under ~/.cache."
    )
    if not yes and not _agreed(console):
        raise NoControlPlane(
            "not built; --yes builds without asking, KUBETEST_BINARY names one that is there"
        )
    return _built(console)


def _agreed(console: Console) -> bool:
    return sys.stdin.isatty() and console.input("      Build it now? [y/N] ").strip().lower() in ("y", "yes")


def _built(console: Console) -> Path:
    """Build the binary; a line every half minute shows that the build goes on."""
    command = [sys.executable, "-m", "tests.kubetest.build"]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while True:
            try:
                text, _ = process.communicate(timeout=30)
                break
            except subprocess.TimeoutExpired:
                console.print(f"      compiling for {time.monotonic() - began:.0f} s …")
    if process.returncode:
        raise NoControlPlane("the control plane could not be built; what went wrong stands above")
    return Path(text.strip().splitlines()[-1])


def _start(plane: ControlPlane, command: str, metrics: str, *flags: str) -> subprocess.Popen[bytes]:
    connection = (f"--kubeconfig={plane.kubeconfig()}", f"--listen-address={metrics}")
    with (plane.directory / f"{command}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "kai_cp", command, *connection, *flags],
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def run(nodes: int, *, stay: bool, yes: bool = False, console: Console | None = None) -> int:
    """Run the demonstration until the story is over, or until interrupted if ``stay``."""
    console = console or Console()
    binary = control_plane_binary(console, yes=yes)
    console.print("[2/3] starting it on loopback …")
    processes: list[subprocess.Popen[bytes]] = []
    # As Ctrl-C does, SIGTERM ends all processes of the demonstration.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ControlPlane(binary) as plane:
        settings = configuration(str(plane.kubeconfig()))
        api = Transport(settings, "admin", access=lambda *_: True)
        cache = ClusterCache(api, SchedulerOptions(), default_config())
        try:
            install(api)
            create_cluster(api, nodes)
            cache.start()
            cache.wait_synced(30)
            metrics, data, binder = (f"127.0.0.1:{free_port()}" for _ in range(3))
            processes += [
                _start(plane, "scheduler", metrics, f"--plugin-server-address={data}", "--mode=enforce"),
                _start(plane, "binder", binder),
            ]
            view = DemoView(cache, api)
            console.print(
                f"[3/3] {nodes} fake nodes with 8 GPUs each; scheduler and binder run. From elsewhere:"
            )
            console.print(f"kubectl --kubeconfig {plane.kubeconfig()} get pods -n demo", soft_wrap=True)
            console.print(f"curl http://{metrics}/metrics", soft_wrap=True)
            console.print(
                f"curl -o snapshot.zip http://{data}/get-snapshot && kai-cp pending snapshot.zip",
                soft_wrap=True,
            )
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


def _show(live: Live, view: DemoView, headline: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        live.update(view.draw(headline))
        time.sleep(0.25)
