"""A binder on the stub API server, with all its steps, and orders for it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kai_cp import keys
from kai_cp.kube.api import api_objects
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.informers import Informers
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.binder.binder import Binder
from kai_cp.kube.binder.claims import Claims
from kai_cp.kube.binder.extended_claims import ExtendedClaims
from kai_cp.kube.binder.options import BinderOptions
from kai_cp.kube.binder.process import followed
from kai_cp.kube.binder.reservation import GpuReservations, reservation_name
from kai_cp.kube.binder.sharing import Sharing
from kai_cp.kube.binder.steps import BindStep
from kai_cp.kube.binder.volumes import Volumes
from tests.kai_cp.kube.conftest import until
from tests.kai_cp.kube.samples import bind, node, pod
from tests.kai_cp.kube.stub import StubServer

Object = dict[str, Any]
ALLOCATION = {"devices": {"results": [{"request": "r", "driver": "gpu.x", "pool": "n", "device": "d0"}]}}


class Setup:
    def __init__(self, server: StubServer, **options: Any) -> None:
        self.server = server
        api = server.transport("binder")
        self.options = BinderOptions(
            **{
                "resource_reservation_allocation_timeout": 0.5,
                "volume_binding_timeout_seconds": 0.5,
                **options,
            }
        )
        self.informers = Informers(api)
        stores = followed(self.informers)
        self.writer = BackgroundWriter(1)
        recorder = Recorder(api, self.writer, "binder")
        self.reservations = GpuReservations(api, stores[r.PODS], stores[r.BIND_REQUESTS], self.options)
        claims = Claims(api)
        steps: list[BindStep] = [
            Sharing(api, stores[r.PODS], self.reservations, recorder, self.options),
            Volumes(api, stores[r.VOLUME_CLAIMS], stores[r.VOLUMES], stores[r.STORAGE_CLASSES], self.options),
            claims,
            ExtendedClaims(api, stores[r.PODS], claims),
        ]
        self.steps: list[BindStep] = steps
        self.claims = stores[r.VOLUME_CLAIMS]
        self.pods, self.requests = stores[r.PODS], stores[r.BIND_REQUESTS]
        self.retried = threading.Event()
        self.failures = 0
        self.binder = Binder(
            api,
            stores[r.PODS],
            stores[r.NODES],
            stores[r.BIND_REQUESTS],
            steps,
            recorder=recorder,
            writer=self.writer,
            retried=self.retried.set,
            failed=self._failed,
            workers=self.options.max_concurrent_reconciles,
            scheduler_name=self.options.scheduler_name,
        )
        self.writer.busy = lambda: False
        self.informers.start()
        until(lambda: not self.informers.missing())
        self.binder.start(lambda: None)

    def _failed(self) -> None:
        self.failures += 1

    def claim_is_bound(self) -> bool:
        """Whether the binder has seen the claim bound."""
        found = self.claims.get(("ns", "data"))
        return found is not None and found["status"]["phase"] == "Bound"

    def close(self) -> None:
        self.informers.stop()
        self.binder.stop()
        self.writer.stop()


@pytest.fixture
def setup(server: StubServer) -> Any:
    server.put(r.NODES, node("n"))
    made: list[Setup] = []

    def start(**options: Any) -> Setup:
        made.append(Setup(server, **options))
        return made[-1]

    yield start
    for entry in made:
        entry.close()


def order(server: StubServer, item: Object, backoff_limit: int | None = None, **details: Any) -> None:
    """A pod and the BindRequest for it."""
    made = server.put(r.PODS, item)
    groups = details.pop("gpu_groups", ())
    decision = bind(item["metadata"]["name"], details.pop("node", "n"), gpu_groups=groups, details=details)
    request = api_objects.bind_request(made, node("n"), decision)
    if backoff_limit is not None:
        request["spec"]["backoffLimit"] = backoff_limit
    server.put(r.BIND_REQUESTS, request)


def phase(server: StubServer, name: str = "p") -> str | None:
    request = server.get(r.BIND_REQUESTS, "ns", name)
    return ((request or {}).get("status") or {}).get("phase")


def conditions(server: StubServer, name: str = "p") -> Object:
    found = server.get(r.PODS, "ns", name)
    assert found is not None
    return {c["type"]: c for c in found["status"].get("conditions") or ()}


def fraction(name: str, **annotations: str) -> Object:
    return pod(
        name, gpus=0, annotations={"gpu-fraction": "0.25", "runai/shared-gpu-configmap": "x", **annotations}
    )


def now_bound(found: Object) -> Object:
    """The claim once it has a volume."""
    return {**found, "spec": {**found["spec"], "volumeName": "v"}, "status": {"phase": "Bound"}}


def claim(kind: str = "slow") -> Object:
    return {
        "metadata": {"name": "data", "namespace": "ns"},
        "spec": {
            "storageClassName": kind,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    }


def with_volume(name: str) -> Object:
    item = pod(name)
    item["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    return item


def play_reservation(server: StubServer, group: str) -> None:
    """Play the program in the reservation pod."""
    name = reservation_name("n", group)
    found = until(lambda: server.get(r.PODS, "kai-resource-reservation", name))
    meta = {**found["metadata"], "annotations": {keys.RESERVED_DEVICE: f"GPU-{group}"}}
    server.put(r.PODS, {**found, "metadata": meta, "status": {"phase": "Running"}})
