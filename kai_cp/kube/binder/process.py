"""``kai-cp binder``: the binder's process, from start to end."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from kai_cp.kube.api import resources as r
from kai_cp.kube.api import transforms as t
from kai_cp.kube.api.access import BINDER_LEASE
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.errors import KubeError
from kai_cp.kube.api.event_quota import EventQuota
from kai_cp.kube.api.informers import Informers
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.api.store import Store
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.api.workqueue import WorkQueue
from kai_cp.kube.binder.binder import Binder
from kai_cp.kube.binder.claims import Claims
from kai_cp.kube.binder.extended_claims import ExtendedClaims
from kai_cp.kube.binder.options import BinderOptions
from kai_cp.kube.binder.reservation import GpuReservations
from kai_cp.kube.binder.sharing import Sharing
from kai_cp.kube.binder.volumes import Volumes
from kai_cp.kube.serving.process import (
    LISTEN_ADDRESS,
    SYNC_SECONDS,
    Connection,
    Lifecycle,
    Service,
    candidate,
    connect,
    lead,
    listen,
    probes,
    serving,
)
from kai_cp.kube.telemetry.leadership import show_leadership
from kai_cp.kube.telemetry.request_metrics import RequestMetrics

LOG = logging.getLogger(__name__)
FOLLOWED: Final = (r.PODS, r.NODES, r.BIND_REQUESTS, r.VOLUMES, r.VOLUME_CLAIMS, r.STORAGE_CLASSES)
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
STATUS_WORKERS: Final = 2


@dataclass(frozen=True, slots=True)
class BinderSetup:
    """The settings with which the process starts."""

    connection: Connection = Connection()
    service: Service = Service()
    options: BinderOptions = BinderOptions()


class BinderMetrics:
    """The metrics of one binder process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.latency = Histogram("kai_cp_bind_seconds", "Time of a bind.", buckets=SECONDS, registry=registry)
        self.failures = Counter("kai_cp_bind_failures_total", "Attempts that failed.", registry=registry)
        self.retries = Counter(
            "kai_cp_bind_retries_total", "Attempts after the first of an order.", registry=registry
        )


def followed(informers: Informers) -> dict[Resource, Store]:
    """The stores that a binder needs."""
    transforms = {r.PODS: t.pod, r.NODES: t.node, r.BIND_REQUESTS: t.bind_request}
    return {kind: informers.store(kind, transform=transforms.get(kind, t.plain)) for kind in FOLLOWED}


def run(setup: BinderSetup, life: Lifecycle) -> int:
    """Run until the process is told to end; returns the exit status."""
    with serving(life) as parts:
        _run(setup, life, parts)
    return life.status


def _run(setup: BinderSetup, life: Lifecycle, parts: ExitStack) -> None:
    options, service = setup.options, setup.service
    transport = connect(setup.connection, "binder", life, service)
    parts.callback(transport.close)
    lease = None
    if service.leader_elect:
        lease = candidate(
            parts, setup.connection, service, "binder", BINDER_LEASE, life=life, transport=transport
        )
    informers = Informers(transport)
    stores = followed(informers)
    writer = BackgroundWriter(STATUS_WORKERS)
    registry = CollectorRegistry()
    RequestMetrics(registry, transport, writer)
    show_leadership(registry, BINDER_LEASE, lease)
    reservations = GpuReservations(transport, stores[r.PODS], stores[r.BIND_REQUESTS], options)
    binder = _binder(options, transport, stores, reservations, writer, metrics=BinderMetrics(registry))
    listen(parts, LISTEN_ADDRESS, service.listen_address, probes(registry, informers.silent, binder.hung))
    parts.callback(writer.stop)
    parts.callback(binder.stop)
    parts.callback(informers.stop)
    informers.start()
    if not informers.wait(SYNC_SECONDS, life.event):
        life.end(1)
        return
    if lease is not None and not lead(lease, life):
        return
    LOG.info("binding")
    binder.start(life.lease_lost)
    sync_nodes(reservations, stores[r.PODS], life)


def _binder(
    options: BinderOptions,
    transport: Transport,
    stores: Mapping[Resource, Store],
    reservations: GpuReservations,
    writer: BackgroundWriter,
    *,
    metrics: BinderMetrics,
) -> Binder:
    """The binder with its steps in the order in which they prepare a pod (9.2)."""
    pods = stores[r.PODS]
    recorder = Recorder(transport, writer, "binder", quota=EventQuota(time.time))
    claims = Claims(transport)
    volumes = Volumes(
        transport, stores[r.VOLUME_CLAIMS], stores[r.VOLUMES], stores[r.STORAGE_CLASSES], options
    )
    return Binder(
        transport,
        pods,
        stores[r.NODES],
        stores[r.BIND_REQUESTS],
        [
            Sharing(transport, pods, reservations, recorder, options),
            volumes,
            claims,
            ExtendedClaims(transport, pods, claims),
        ],
        recorder=recorder,
        writer=writer,
        workers=options.max_concurrent_reconciles,
        bound=metrics.latency.observe,
        failed=metrics.failures.inc,
        retried=metrics.retries.inc,
        scheduler_name=options.scheduler_name,
    )


def sync_nodes(reservations: GpuReservations, pods: Store, life: Lifecycle) -> None:
    """Delete unused reservations once at the start, and whenever a fractional pod leaves; what fails is tried
    again."""
    due = WorkQueue()
    life.on_end(due.stop)
    reservations.watch_departures(lambda node: due.add([("", node)]))
    due.add(("", pod["spec"]["nodeName"]) for pod in pods.all() if pod["spec"].get("nodeName"))
    while (taken := due.get()) is not None:
        key, _ = taken
        try:
            reservations.sync(key[1])
        except KubeError as error:
            LOG.warning(
                "a node's unused reservation pods were not deleted, and are looked at again",
                extra={"node": key[1], "error": str(error)},
            )
            due.failed(key)
        except Exception:
            LOG.exception(
                "a node's unused reservation pods were not deleted: report this defect with its trace",
                extra={"node": key[1]},
            )
            due.failed(key)
        else:
            due.done(key)
