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
"""Longest wait for the first lists; a process without them ends, and is restarted."""
LISTEN_ADDRESS: Final = "--listen-address"
OK: Final = Response(b"ok\n")
LOST_LEASE: Final = 3
UNAUTHORIZED: Final = 4
STUCK: Final = 5
"""Exit statuses: the supervisor restarts the process, with fresh credentials and no memory."""
HARD_SECONDS: Final = 5.0
"""A process that must end, and does not within this time, is ended."""
ENDING_SECONDS: Final = 25.0
"""A process that was asked to end has longer; a kubelet ends it after 30 s."""
ASKS_TO_END: Final = (signal.SIGTERM, signal.SIGINT)


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

    ``hard_exit`` is called if the process does not end in time: with its status, or ``STUCK`` if that is 0.
    """

    def __init__(
        self,
        hard_exit: Callable[[int], object] | None = None,
        timer: Callable[..., threading.Timer] = threading.Timer,
    ) -> None:
        self._hard_exit = hard_exit
        self._timer = timer
        self._over = threading.Event()
        self._ending = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self.status = 0
        self.ending_seconds = ENDING_SECONDS
        """Longest time from a request to end until the end."""
        self.lease = ""
        """Namespace and name of the lease that the process needs; none if empty."""

    def on_end(self, callback: Callable[[], None]) -> None:
        """Register a callback for the end; it is called at once if the process is ending already."""
        with self._ending:
            if not self.over:
                self._callbacks.append(callback)
                return
        callback()

    def end(self, status: int = 0) -> bool:
        """End the process; the first status counts, and only the first call returns True."""
        with self._ending:
            if self.over:
                return False
            self.status = status
            self._over.set()
        if self._hard_exit is not None:
            seconds = HARD_SECONDS if status else self.ending_seconds
            timer = self._timer(seconds, self._hard_exit, (status or STUCK,))
            timer.daemon = True
            timer.start()
        for callback in self._callbacks:
            callback()
        return True

    @property
    def over(self) -> bool:
        """Whether the process is ending."""
        return self._over.is_set()

    @property
    def event(self) -> threading.Event:
        """The event that is set when the process is ending."""
        return self._over

    def handle_signals(self) -> None:
        """End on SIGTERM and SIGINT. To be called by the main thread.

        A handler in Python runs on the main thread between any two of its steps, also while it holds the
        lock of an event that :meth:`end` sets. So the interpreter writes the signal's number to a socket,
        and a thread that holds no lock reads it.
        """
        heard, told = socket.socketpair()
        told.setblocking(False)

        def listen_for_signals() -> None:
            with told:  # Both ends stay open for as long as a signal may come.
                while number := heard.recv(1):
                    if number[0] in ASKS_TO_END:
                        self.end()

        for number in ASKS_TO_END:
            signal.signal(number, lambda _number, _frame: None)
        signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=listen_for_signals, name="signals", daemon=True).start()

    def unauthorized(self) -> None:
        """The API server refused our credentials (401): end (11.2)."""
        if self.end(UNAUTHORIZED):
            LOG.error(
                "the API server refused this process's credentials (401), so it ends; if this happens again, "
                "see whether its service account or kubeconfig is still valid"
            )

    def lease_lost(self) -> None:
        """End at once, because another leader may be at work."""
        if self.end(LOST_LEASE):
            LOG.error(
                "the lease was lost, so this process ends before another leads; if it happens again, see "
                "whether the API server answers within --lease-seconds",
                extra={"lease": self.lease},
            )


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
        life.lease_lost()
    except KubeError as error:
        LOG.error(
            "a request that this process needs failed, so it ends and has to be restarted",
            extra={"error": str(error)},
        )
        life.end(1)


def probes(
    registry: CollectorRegistry,
    silent: Callable[[], Sequence[str]],
    fault: Callable[[], str] = lambda: "",
) -> dict[str, Route]:
    """``/metrics``, ``/healthz`` and ``/readyz`` of a process that is ready while no kind is ``silent``.

    ``fault`` says why the process should be restarted, or ""; the kubelet does so, and it is not ready.
    """

    def healthz(_rest: str) -> Response:
        why = fault()
        return Response(f"{why}\n".encode(), status=500) if why else OK

    def readyz(_rest: str) -> Response:
        kinds = ", ".join(silent())
        why = f"not listed yet, or silent for long: {kinds}" if kinds else fault()
        return Response(f"{why}\n".encode(), status=503) if why else OK

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
    life.lease = f"{service.namespace}/{name}"
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
