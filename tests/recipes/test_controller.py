"""The recipe *Add a controller* of CONTRIBUTING, carried out: a class and its rights, on a played server."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from prometheus_client import CollectorRegistry

from kai_cp.json_types import Object
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.access import grants, listed
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.store import ObjectKey
from kai_cp.kube.controllers.base import Context, Want, changed
from kai_cp.kube.controllers.host import Host
from kai_cp.kube.controllers.options import ControllerOptions
from tests.kai_cp.kube.conftest import until
from tests.kai_cp.kube.stub import StubServer

NOTE = "example.com/pod-groups"
RIGHTS = frozenset([*grants("list watch", r.QUEUES, r.POD_GROUPS), *grants("patch", r.QUEUES)])
"""What a line of ``ACCESS`` would say."""


class GroupCounter:
    """Keeps the number of pod groups of every queue in an annotation."""

    workers = 1
    settle_seconds = 0.1

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queues = context.informers.store(r.QUEUES)
        self._groups = context.informers.store(r.POD_GROUPS)

    def wants(self) -> Sequence[Want]:
        """Queues, and pod groups for the queue that they name."""
        return (
            Want(r.QUEUES, changed(lambda queue: [("", queue["metadata"]["name"])])),
            Want(r.POD_GROUPS, changed(lambda group: [("", group["spec"].get("queue", ""))])),
        )

    def reconcile(self, key: ObjectKey, attempt: int) -> float | None:
        """Write the number, if the queue has another."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        count = str(sum(group["spec"].get("queue") == key[1] for group in self._groups.all()))
        if (queue["metadata"].get("annotations") or {}).get(NOTE) != count:
            patch = {"metadata": {"annotations": {NOTE: count}}}
            answer = self._context.transport.patch(r.QUEUES, "", key[1], patch)
            if answer is not None:
                self._queues.put(answer, ours=True)
        return None


def count_of(server: StubServer) -> str | None:
    queue: Object = server.get(r.QUEUES, "", "team") or {}
    found: str | None = queue["metadata"].get("annotations", {}).get(NOTE)
    return found


def test_a_controller_is_a_class_with_its_rights() -> None:
    with closing(StubServer()) as server:
        count_on(server)


def count_on(server: StubServer) -> None:
    """The controller counts pod groups as they come."""
    server.put(r.QUEUES, {"metadata": {"name": "team"}, "spec": {}})
    transport = server.transport("controllers", access=lambda _process, *call: listed(RIGHTS, *call))
    writer = BackgroundWriter(1)
    host = Host(
        {"group-counter": GroupCounter},
        transport,
        Recorder(transport, writer, "test"),
        CollectorRegistry(),
        ControllerOptions(),
        lost=lambda: None,
    )
    try:
        host.informers.start()
        until(lambda: not host.informers.missing())
        host.start()
        until(lambda: count_of(server) == "0")
        server.put(r.POD_GROUPS, {"metadata": {"namespace": "ns", "name": "a"}, "spec": {"queue": "team"}})
        until(lambda: count_of(server) == "1")
    finally:
        host.stop()
        writer.stop()
        transport.close()
