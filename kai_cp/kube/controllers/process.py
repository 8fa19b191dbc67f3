"""``kai-cp controllers``: the process from start to end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry

from kai_cp.kube.api.access import CONTROLLERS_LEASE, ControllerName, Process, Verb, listed
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.event_quota import EventQuota
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.api.transport import Transport, configuration
from kai_cp.kube.controllers.base import Factory
from kai_cp.kube.controllers.catalogue import CONTROLLERS, rights
from kai_cp.kube.controllers.host import Host
from kai_cp.kube.controllers.options import ControllerOptions
from kai_cp.kube.serving.process import (
    LISTEN_ADDRESS,
    SYNC_SECONDS,
    Connection,
    Lifecycle,
    Service,
    candidate,
    lead,
    listen,
    probes,
    serving,
)
from kai_cp.kube.telemetry.leadership import show_leadership
from kai_cp.kube.telemetry.request_metrics import RequestMetrics

LOG = logging.getLogger(__name__)
EVENT_WORKERS: Final = 2


@dataclass(frozen=True, slots=True)
class ControllersSetup:
    """The settings with which the process starts."""

    controllers: tuple[ControllerName, ...]
    connection: Connection = Connection()
    service: Service = Service()
    options: ControllerOptions = ControllerOptions()


def access(
    names: tuple[ControllerName, ...],
) -> Callable[[Process, Verb, Resource, str, str], bool]:
    """The API calls that the process may make with these controllers.

    The pod grouper may also read kinds that other projects define and that its table does not name. An
    administrator grants those, and the grouper handles a refusal.
    """
    allowed = rights(names)

    def permits(_process: Process, verb: Verb, resource: Resource, subresource: str, namespace: str) -> bool:
        if listed(allowed, verb, resource, subresource, namespace):
            return True
        foreign = "." in resource.group and not subresource
        return "podgrouper" in names and foreign and verb in ("get", "list", "watch")

    return permits


def run(setup: ControllersSetup, life: Lifecycle) -> int:
    """Run until the process is told to end; returns the exit status."""
    with serving(life) as parts:
        _run(setup, life, parts)
    return life.status


def _run(setup: ControllersSetup, life: Lifecycle, parts: ExitStack) -> None:
    connection, service = setup.connection, setup.service
    transport = Transport(
        configuration(connection.kubeconfig, connection.context),
        "controllers",
        qps=service.qps,
        burst=service.burst,
        on_unauthorized=life.unauthorized,
        access=access(setup.controllers),
    )
    parts.callback(transport.close)
    lease = (
        candidate(
            parts, connection, service, "controllers", CONTROLLERS_LEASE, life=life, transport=transport
        )
        if service.leader_elect
        else None
    )
    writer = BackgroundWriter(EVENT_WORKERS)
    registry = CollectorRegistry()
    RequestMetrics(registry, transport, writer)
    show_leadership(registry, CONTROLLERS_LEASE, lease)
    recorder = Recorder(transport, writer, "kai-cp-controllers", quota=EventQuota(time.time))
    factories: dict[str, Factory] = {name: CONTROLLERS[name] for name in setup.controllers}
    host = Host(factories, transport, recorder, registry, setup.options, lost=life.lease_lost)
    listen(parts, LISTEN_ADDRESS, service.listen_address, probes(registry, host.informers.silent, host.hung))
    parts.callback(writer.stop)
    parts.callback(lambda: life.status or writer.drain(2.0))
    parts.callback(host.stop)
    host.informers.start()
    if not host.informers.wait(SYNC_SECONDS, life.event):
        life.end(1)
        return
    if lease is not None and not lead(lease, life):
        return
    LOG.info("controlling", extra={"controllers": ", ".join(setup.controllers)})
    host.start()
    life.event.wait()
