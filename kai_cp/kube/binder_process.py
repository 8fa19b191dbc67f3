"""``kai-cp binder``: the binder's process from start to end."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from kai_cp.kube import resources as r
from kai_cp.kube import transforms as t
from kai_cp.kube.background import BackgroundWriter
from kai_cp.kube.binder import Binder
from kai_cp.kube.binder_options import BinderOptions
from kai_cp.kube.claims import Claims
from kai_cp.kube.errors import KubeError
from kai_cp.kube.extended_claims import ExtendedClaims
from kai_cp.kube.http import Answer, HttpServer
from kai_cp.kube.process import Connection, Life, Service, connect, lead
from kai_cp.kube.recorder import Recorder
from kai_cp.kube.reflector import Reflector
from kai_cp.kube.request_metrics import RequestMetrics
from kai_cp.kube.reservation import Reservations
from kai_cp.kube.resources import Resource
from kai_cp.kube.sharing import Sharing
from kai_cp.kube.store import Store
from kai_cp.kube.transport import Transport
from kai_cp.kube.volumes import Volumes

LOG = logging.getLogger(__name__)
FOLLOWED: Final = (r.PODS, r.NODES, r.BIND_REQUESTS, r.VOLUMES, r.VOLUME_CLAIMS, r.STORAGE_CLASSES)
SYNC_SECONDS: Final = 600.0
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
STATUS_WORKERS: Final = 2
LEASE: Final = "kai-cp-binder"


@dataclass(frozen=True, slots=True)
class BinderSetup:
    """Everything the process is started with."""

    connection: Connection = Connection()
    service: Service = Service()
    options: BinderOptions = BinderOptions()


class BinderMetrics:
    """What one binder process exports."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.latency = Histogram("kai_cp_bind_seconds", "Time of a bind.", buckets=SECONDS, registry=registry)
        self.failures = Counter("kai_cp_bind_failures_total", "Attempts that failed.", registry=registry)
        self.retries = Counter(
            "kai_cp_bind_retries_total", "Attempts after the first of an order.", registry=registry
        )


class Following:
    """The stores a binder needs, and the watches that fill them."""

    def __init__(self, transport: Transport) -> None:
        self.stores: dict[Resource, Store] = {}
        self._reflectors: list[Reflector] = []
        for resource in FOLLOWED:
            transform = {r.PODS: t.pod, r.NODES: t.node}.get(resource, t.plain)
            store = Store(transform=transform)
            self.stores[resource] = store
            self._reflectors.append(Reflector(transport, resource, store))

    def start(self) -> None:
        """Begin to follow."""
        for reflector in self._reflectors:
            reflector.start()

    def stop(self) -> None:
        """End every watch."""
        for reflector in self._reflectors:
            reflector.stop()

    def missing(self) -> list[str]:
        """Kinds not listed yet."""
        return [x.resource.plural for x in self._reflectors if not x.synced.is_set()]

    def wait(self, seconds: float, over: threading.Event) -> bool:
        """Wait until everything is listed; whether it is."""
        end = time.monotonic() + seconds
        while self.missing():
            if time.monotonic() > end or over.wait(0.05):
                return False
        return True


def run(setup: BinderSetup, life: Life) -> int:
    """Run until ended; the exit status."""
    options = setup.options
    transport = connect(setup.connection, "binder", life, setup.service)
    following = Following(transport)
    stores = following.stores
    writer = BackgroundWriter(STATUS_WORKERS)
    recorder = Recorder(transport, writer, "binder")
    registry = CollectorRegistry()
    RequestMetrics(registry, transport, writer)
    metrics = BinderMetrics(registry)
    reservations = Reservations(transport, stores[r.PODS], stores[r.BIND_REQUESTS], options)
    volumes = Volumes(
        transport, stores[r.VOLUME_CLAIMS], stores[r.VOLUMES], stores[r.STORAGE_CLASSES], options
    )
    claims = Claims(transport)
    sharing = Sharing(transport, stores[r.PODS], reservations, recorder, options)
    binder = Binder(
        transport,
        stores[r.PODS],
        stores[r.NODES],
        stores[r.BIND_REQUESTS],
        [sharing, volumes, claims, ExtendedClaims(transport, stores[r.PODS], claims)],
        recorder,
        writer,
        workers=options.max_concurrent_reconciles,
        bound=metrics.latency.observe,
        failed=metrics.failures.inc,
        retried=metrics.retries.inc,
        scheduler_name=options.scheduler_name,
    )

    def readyz(_rest: str) -> Answer:
        missing = following.missing()
        return Answer(f"not listed yet: {', '.join(missing)}\n".encode(), status=503) if missing else OK

    routes = {
        "/metrics": lambda _rest: Answer(generate_latest(registry), CONTENT_TYPE_LATEST),
        "/healthz": lambda _rest: OK,
        "/readyz": readyz,
    }
    listen = setup.service.listen_address
    server = HttpServer(listen, routes) if listen else None
    lease = None
    try:
        if server is not None:
            server.start()
        following.start()
        if not following.wait(SYNC_SECONDS, life.event):
            return life.status or 1
        if setup.service.leader_elect:
            lease = lead(setup.connection, setup.service, "binder", LEASE, life, transport)
            if lease is None:
                return life.status
        LOG.info("binding")
        binder.start(life.lease_lost)
        _sync_nodes(reservations, stores[r.PODS], life)
    except KubeError as error:
        LOG.error("ended", extra={"error": str(error)})
        life.end(1)
    finally:
        following.stop()
        binder.stop()
        writer.stop()
        if server is not None:
            server.stop()
        if lease is not None:
            lease.release()
        transport.close()
    return life.status


OK: Final = Answer(b"ok\n")


def _sync_nodes(reservations: Reservations, pods: Store, life: Life) -> None:
    """Give up reservations that nobody uses: once at the start, then whenever a fractional pod leaves."""
    due: SimpleQueue[str] = SimpleQueue()
    reservations.watch_departures(due.put)
    for node in {pod["spec"]["nodeName"] for pod in pods.all() if pod["spec"].get("nodeName")}:
        due.put(node)
    while not life.over:
        try:
            node = due.get(timeout=0.5)
        except Empty:
            continue
        try:
            reservations.sync(node)
        except KubeError as error:
            LOG.warning("reservations not synced", extra={"node": node, "error": str(error)})
