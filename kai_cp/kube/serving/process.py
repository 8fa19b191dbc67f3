"""The shared parts of every long-running process: signals, a lease, HTTP, and shutdown."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Annotated, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from typer import Option

from kai_cp.kube.api.access import Process
from kai_cp.kube.api.errors import KubeError, LeaseLost
from kai_cp.kube.api.lease import LeaderLease, LeaseTimes
from kai_cp.kube.api.retry import Backoff
from kai_cp.kube.api.transport import Transport, configuration
from kai_cp.kube.serving.address import Address, opening
from kai_cp.kube.serving.flags import LeaseFlag
from kai_cp.kube.serving.http import HttpServer, Response, Route

LOG = logging.getLogger(__name__)
SYNC_SECONDS: Final = 600.0
"""Longest wait for the first lists; a process without them ends, and is started anew."""
LISTEN_ADDRESS: Final = "--listen-address"
OK: Final = Response(b"ok\n")
LOST_LEASE: Final = 3
UNAUTHORIZED: Final = 4
"""Exit statuses: the supervisor starts the process anew, with fresh credentials and no memory."""
HARD_SECONDS: Final = 5.0
"""A process that must end, and does not within this time, is ended."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the API server; an empty kubeconfig means the pod's own account, or the default file."""

    kubeconfig: Annotated[
        str, Option(help="Kubeconfig file; empty: the pod's own account, or the usual file.")
    ] = ""
    context: Annotated[str, Option(help="Context of the kubeconfig.")] = ""


@dataclass(frozen=True, slots=True)
class Logging:
    """How a process writes its log."""

    log_json: Annotated[bool, Option("--log-json/--log-text", help="Logs as JSON lines.")] = True
    verbosity: Annotated[int, Option("-v", help="Log level as in KAI; 5 and above: debug.")] = 3


@dataclass(frozen=True, slots=True)
class Service:
    """The options of every process that serves a cluster.

    ``qps`` differs from KAI's default: 0 leaves the rate to the server's own priority and fairness.
    """

    listen_address: Annotated[str, Address("Address of /metrics, /healthz and /readyz; empty: none.")] = (
        ":8080"
    )
    leader_elect: Annotated[bool, Option(help="Only the holder of the lease writes.")] = False
    namespace: Annotated[str, Option(help="Namespace of the lease.")] = "kai-scheduler"
    lease_times: LeaseFlag = LeaseTimes()
    qps: Annotated[float, Option(help="Requests per second to the API server; 0: no limit of our own.")] = 0.0
    burst: Annotated[int, Option(help="With --qps: most requests at once.")] = 300


class Lifecycle:
    """The life of one process: the reason to end it, and callbacks that wait for one.

    ``hard_exit`` is called with the status if the process must end and does not in time.
    """

    def __init__(self, hard_exit: Callable[[int], object] | None = None) -> None:
        self._hard_exit = hard_exit
        self._over = threading.Event()
        self._callbacks: list[Callable[[], None]] = []
        self.status = 0

    def on_end(self, callback: Callable[[], None]) -> None:
        """Register a callback for the end."""
        self._callbacks.append(callback)

    def end(self, status: int = 0) -> None:
        """End the process; the first status counts."""
        if not self._over.is_set():
            self.status = status
            self._over.set()
            if status and self._hard_exit is not None:
                timer = threading.Timer(HARD_SECONDS, self._hard_exit, (status,))
                timer.daemon = True
                timer.start()
            for callback in self._callbacks:
                callback()

    @property
    def over(self) -> bool:
        """Whether the process is ending."""
        return self._over.is_set()

    @property
    def event(self) -> threading.Event:
        """The event that is set when the process is ending."""
        return self._over

    def handle_signals(self) -> None:
        """End on SIGTERM and SIGINT."""

        def handler(_number: int, _frame: FrameType | None) -> None:
            self.end()

        signal.signal(signal.SIGTERM, handler)
        signal.signal(signal.SIGINT, handler)

    def unauthorized(self) -> None:
        """The API server refused our credentials (401): end (11.2)."""
        LOG.error("credentials refused (401), ending")
        self.end(UNAUTHORIZED)

    def lease_lost(self) -> None:
        """End at once, because another leader may be at work."""
        LOG.error("lease lost, ending")
        self.end(LOST_LEASE)


def connect(
    connection: Connection, process: Process, life: Lifecycle, service: Service | None = None
) -> Transport:
    """The transport of a process; ``service`` may limit its rate."""
    settings = configuration(connection.kubeconfig, connection.context)
    limits = service or Service()
    return Transport(settings, process, qps=limits.qps, burst=limits.burst, on_unauthorized=life.unauthorized)


@contextlib.contextmanager
def serving(life: Lifecycle) -> Iterator[ExitStack]:
    """The parts of a process; each is stopped, the last one first, however the process ends.

    An error of the API server, or the loss of the lease, becomes the exit status of ``life``.
    """
    try:
        with ExitStack() as parts:
            yield parts
    except LeaseLost:
        life.end(LOST_LEASE)
    except KubeError as error:
        LOG.error("ended", extra={"error": str(error)})
        life.end(1)


def probes(
    registry: CollectorRegistry,
    missing: Callable[[], Sequence[str]],
    hung: Callable[[], str] = lambda: "",
) -> dict[str, Route]:
    """``/metrics``, ``/healthz`` and ``/readyz`` of a process that is ready once nothing is ``missing``.

    ``hung`` names work that does not end, or ""; the kubelet restarts a process that hangs.
    """

    def healthz(_rest: str) -> Response:
        why = hung()
        return Response(f"{why}\n".encode(), status=500) if why else OK

    def readyz(_rest: str) -> Response:
        kinds = ", ".join(missing())
        return (
            Response(f"not listed yet, or silent for long: {kinds}\n".encode(), status=503) if kinds else OK
        )

    return {
        "/metrics": lambda _rest: Response(generate_latest(registry), CONTENT_TYPE_LATEST),
        "/healthz": healthz,
        "/readyz": readyz,
    }


def listen(parts: ExitStack, option: str, address: str, routes: Mapping[str, Route]) -> None:
    """Serve ``routes`` on the ``address`` of ``option`` while the process lives; an empty one serves nothing.

    Raises ``Unavailable`` if the address cannot be had.
    """
    if address:
        with opening(option, address):
            server = HttpServer(address, routes)
        parts.callback(server.stop)
        server.start()


def candidate(
    parts: ExitStack,
    connection: Connection,
    service: Service,
    process: Process,
    name: str,
    *,
    life: Lifecycle,
    transport: Transport,
) -> LeaderLease:
    """The lease ``name``, not yet requested; ``transport`` writes only while it is held.

    The lease is released after the parts that begin later have ended, so that this process never writes
    beside the next leader. It has a connection of its own, so a busy writer cannot delay its renewal.
    """
    times = service.lease_times
    own = Transport(
        configuration(connection.kubeconfig, connection.context),
        process,
        backoff=Backoff(attempts=1),
        read_seconds=max(1.0, (times.duration - times.renew) * 0.8),
        on_unauthorized=life.unauthorized,
    )
    identity = f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
    lease = LeaderLease(own, service.namespace, name, identity, times)
    life.on_end(lease.give_up)
    transport.set_fence(lease.fence)
    parts.callback(lease.release)
    return lease


def lead(lease: LeaderLease, life: Lifecycle) -> bool:
    """Wait for the lease, then keep it in a thread; False if the process is ending first."""
    if not lease.acquire():
        return False
    threading.Thread(target=lease.keep, args=(life.lease_lost,), name="lease", daemon=True).start()
    return True
