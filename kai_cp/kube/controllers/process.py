"""``kai-cp controllers``: the process from start to end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from kai_cp.kube.access import ControllerName, Process, Verb, listed
from kai_cp.kube.background import BackgroundWriter
from kai_cp.kube.controllers.base import Factory
from kai_cp.kube.controllers.catalogue import CONTROLLERS, rights
from kai_cp.kube.controllers.host import Host
from kai_cp.kube.controllers.options import ControllerOptions
from kai_cp.kube.errors import KubeError
from kai_cp.kube.http import Answer, HttpServer
from kai_cp.kube.process import Connection, Life, Service, lead
from kai_cp.kube.recorder import Recorder
from kai_cp.kube.request_metrics import RequestMetrics
from kai_cp.kube.resources import Resource
from kai_cp.kube.transport import Transport, configuration

LOG = logging.getLogger(__name__)
LEASE: Final = "kai-cp-controllers"
SYNC_SECONDS: Final = 600.0
EVENT_WORKERS: Final = 2
OK: Final = Answer(b"ok\n")


@dataclass(frozen=True, slots=True)
class ControllersSetup:
    """Everything the process is started with."""

    controllers: tuple[ControllerName, ...]
    connection: Connection = Connection()
    service: Service = Service()
    options: ControllerOptions = ControllerOptions()


def access(
    names: tuple[ControllerName, ...],
) -> Callable[[Process, Verb, Resource, str, str], bool]:
    """What the process may ask with these controllers.

    The pod grouper may also ask to read kinds that others define, which its table does not name: an
    administrator grants them, and a refusal is an answer it understands.
    """
    allowed = rights(names)

    def permits(_process: Process, verb: Verb, resource: Resource, subresource: str, namespace: str) -> bool:
        if listed(allowed, verb, resource, subresource, namespace):
            return True
        foreign = "." in resource.group and not subresource
        return "podgrouper" in names and foreign and verb in ("get", "list", "watch")

    return permits


def run(setup: ControllersSetup, life: Life) -> int:
    """Run until ended; the exit status."""
    connection, service = setup.connection, setup.service
    transport = Transport(
        configuration(connection.kubeconfig, connection.context),
        "controllers",
        qps=service.qps,
        burst=service.burst,
        on_unauthorized=life.unauthorized,
        access=access(setup.controllers),
    )
    writer = BackgroundWriter(EVENT_WORKERS)
    registry = CollectorRegistry()
    RequestMetrics(registry, transport, writer)
    recorder = Recorder(transport, writer, "kai-cp-controllers")
    factories: dict[str, Factory] = {name: CONTROLLERS[name] for name in setup.controllers}
    host = Host(factories, transport, recorder, registry, setup.options, life.lease_lost)

    def readyz(_rest: str) -> Answer:
        missing = host.informers.missing()
        return Answer(f"not listed yet: {', '.join(missing)}\n".encode(), status=503) if missing else OK

    routes = {
        "/metrics": lambda _rest: Answer(generate_latest(registry), CONTENT_TYPE_LATEST),
        "/healthz": lambda _rest: OK,
        "/readyz": readyz,
    }
    server = HttpServer(service.listen_address, routes) if service.listen_address else None
    lease = None
    try:
        if server is not None:
            server.start()
        host.informers.start()
        if not host.informers.wait(SYNC_SECONDS, life.event):
            return life.status or 1
        if service.leader_elect:
            lease = lead(connection, service, "controllers", LEASE, life, transport)
            if lease is None:
                return life.status
        LOG.info("controlling", extra={"controllers": ", ".join(setup.controllers)})
        host.start()
        life.event.wait()
    except KubeError as error:
        LOG.error("ended", extra={"error": str(error)})
        life.end(1)
    finally:
        host.stop()
        if not life.status:
            writer.drain(2.0)
        writer.stop()
        if server is not None:
            server.stop()
        if lease is not None:
            lease.release()
        transport.close()
    return life.status
