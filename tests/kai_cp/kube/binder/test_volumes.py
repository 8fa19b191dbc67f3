"""Volumes of a pod: asked for, waited for, taken and given back."""

from __future__ import annotations

from typing import Any

from kai_cp.kube.api import resources as r
from kai_cp.reader.storage import SELECTED_NODE
from tests.kai_cp.kube.binder.conftest import (
    claim,
    now_bound,
    order,
    phase,
    with_volume,
)
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.stub import StubServer


def test_a_volume_is_asked_for_and_waited_for(server: StubServer, setup: Any) -> None:
    waits = {"metadata": {"name": "slow"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}
    server.put(r.STORAGE_CLASSES, waits)
    server.put(r.VOLUME_CLAIMS, claim())
    order(server, with_volume("p"))
    setup(volume_binding_timeout_seconds=PATIENCE_SECONDS)

    def selected() -> bool:
        found = server.get(r.VOLUME_CLAIMS, "ns", "data")
        return ((found or {})["metadata"].get("annotations") or {}).get(SELECTED_NODE) == "n"

    until(selected)
    assert server.requests("POST", "/binding") == []
    found = server.get(r.VOLUME_CLAIMS, "ns", "data")
    assert found is not None
    server.put(r.VOLUME_CLAIMS, now_bound(found))
    until(lambda: phase(server) == "Succeeded")


def test_a_volume_that_never_comes(server: StubServer, setup: Any) -> None:
    waits = {"metadata": {"name": "slow"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}
    server.put(r.STORAGE_CLASSES, waits)
    server.put(r.VOLUME_CLAIMS, claim())
    order(server, with_volume("p"))
    setup()
    until(lambda: phase(server) == "Failed")
    found = server.get(r.VOLUME_CLAIMS, "ns", "data")
    assert found is not None
    assert SELECTED_NODE not in found["metadata"]["annotations"]


def test_a_local_volume_of_the_node_is_taken(server: StubServer, setup: Any) -> None:
    server.put(
        r.STORAGE_CLASSES,
        {
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    for name, size in (("big", "9Gi"), ("fits", "2Gi"), ("small", "1Mi")):
        server.put(
            r.VOLUMES,
            {
                "metadata": {"name": name, "labels": {"disk": "fast"}},
                "spec": {
                    "storageClassName": "local",
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": size},
                },
            },
        )
    for name, spec, volume_phase in (
        ("failed", {"capacity": {"storage": "1Gi"}}, "Failed"),
        ("unreadable", {"capacity": {"storage": []}}, "Available"),
        ("without-label", {"capacity": {"storage": "1Gi"}}, "Available"),
    ):
        fields = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], **spec}
        labels = {"labels": {"disk": "fast"}} if name != "without-label" else {}
        server.put(
            r.VOLUMES,
            {"metadata": {"name": name, **labels}, "spec": fields, "status": {"phase": volume_phase}},
        )
    wanted = claim("local")
    wanted["spec"]["selector"] = {"matchLabels": {"disk": "fast"}}
    server.put(r.VOLUME_CLAIMS, wanted)
    order(server, with_volume("p"))
    setup()
    until(lambda: "claimRef" in (server.get(r.VOLUMES, "", "fits") or {"spec": {}})["spec"])
    untouched = server.get(r.VOLUMES, "", "big")
    assert untouched is not None
    assert "claimRef" not in untouched["spec"]


def test_local_volumes_are_taken_so_that_every_claim_gets_one(server: StubServer, setup: Any) -> None:
    """The smaller volume is the only one that several pods may share, and data, the first claim, could have
    either."""
    server.put(
        r.STORAGE_CLASSES,
        {
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    for name, size, modes in (
        ("s", "2Gi", ["ReadWriteOnce", "ReadWriteMany"]),
        ("t", "9Gi", ["ReadWriteOnce"]),
    ):
        fields = {"storageClassName": "local", "accessModes": modes, "capacity": {"storage": size}}
        server.put(r.VOLUMES, {"metadata": {"name": name}, "spec": fields})
    server.put(r.VOLUME_CLAIMS, claim("local"))
    shared = claim("local")
    shared["metadata"] |= {"name": "shared", "uid": "u-shared"}
    shared["spec"]["accessModes"] = ["ReadWriteMany"]
    server.put(r.VOLUME_CLAIMS, shared)
    both = with_volume("p")
    both["spec"]["volumes"].append({"name": "more", "persistentVolumeClaim": {"claimName": "shared"}})
    order(server, both)
    setup()

    def owners() -> dict[str, str]:
        found = {name: server.get(r.VOLUMES, "", name) for name in "st"}
        return {name: (one or {})["spec"].get("claimRef", {}).get("name", "") for name, one in found.items()}

    until(lambda: owners() == {"s": "shared", "t": "data"})
