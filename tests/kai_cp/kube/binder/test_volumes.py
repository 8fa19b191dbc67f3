"""Volumes of a pod: asked for, waited for, taken and given back."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import Mock

import pytest

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.store import Store
from kai_cp.kube.binder.options import BinderOptions
from kai_cp.kube.binder.steps import Awaits
from kai_cp.kube.binder.volumes import Volumes
from kai_cp.reader.storage import SELECTED_NODE, read_volume
from tests.kai_cp.kube.binder.conftest import (
    claim,
    now_bound,
    order,
    phase,
    with_volume,
)
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import node, pod
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


def made_and_existing(server: StubServer, *volumes: str, node: str = "n") -> None:
    """A class with a provisioner, and volumes of it that exist on a node."""
    waits = {"metadata": {"name": "slow"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}
    server.put(r.STORAGE_CLASSES, waits)
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    for name in volumes:
        spec = {
            "storageClassName": "slow",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "2Gi"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
        }
        server.put(r.VOLUMES, {"metadata": {"name": name, "labels": {"disk": "fast"}}, "spec": spec})


def owner(server: StubServer, volume: str) -> str:
    found = server.get(r.VOLUMES, "", volume)
    assert found is not None
    return str((found["spec"].get("claimRef") or {}).get("name", ""))


def told(server: StubServer, name: str = "data") -> bool:
    """Whether the driver of a claim was told the node."""
    found = server.get(r.VOLUME_CLAIMS, "ns", name)
    assert found is not None
    return SELECTED_NODE in (found["metadata"].get("annotations") or {})


def test_a_volume_that_exists_is_taken_before_one_is_made(server: StubServer, setup: Any) -> None:
    """As Kubernetes' own binder does: a driver that were told the node might make a second one."""
    made_and_existing(server, "there")
    server.put(r.VOLUME_CLAIMS, claim())
    order(server, with_volume("p"))
    made = setup(volume_binding_timeout_seconds=PATIENCE_SECONDS)
    until(lambda: owner(server, "there") == "data" and len(made.binder.waiting) == 1)
    found = server.get(r.VOLUME_CLAIMS, "ns", "data")
    assert found is not None
    server.put(r.VOLUME_CLAIMS, now_bound(found))
    until(lambda: phase(server) == "Succeeded")
    assert not told(server)


def test_a_volume_is_made_where_none_exists_on_the_node(server: StubServer, setup: Any) -> None:
    made_and_existing(server, "there", node="elsewhere")
    server.put(r.VOLUME_CLAIMS, claim())
    order(server, with_volume("p"))
    setup(volume_binding_timeout_seconds=PATIENCE_SECONDS)
    until(lambda: told(server))
    assert owner(server, "there") == ""


def test_a_driver_that_has_begun_goes_on(server: StubServer, setup: Any) -> None:
    """It makes the volume already; another one would be one too many."""
    made_and_existing(server, "there")
    begun = claim()
    begun["metadata"]["annotations"] = {SELECTED_NODE: "n"}
    server.put(r.VOLUME_CLAIMS, begun)
    order(server, with_volume("p"))
    made = setup(volume_binding_timeout_seconds=PATIENCE_SECONDS)
    until(lambda: len(made.binder.waiting) == 1)
    assert owner(server, "there") == ""


@pytest.mark.parametrize(("mode", "chosen"), [("ReadWriteMany", "first"), ("ReadWriteOnce", "n")])
def test_a_volume_for_many_is_made_for_the_first_node_that_asks(
    server: StubServer, setup: Any, mode: str, chosen: str
) -> None:
    """Another pod of the gang has asked for it on its own node; the driver would begin anew."""
    made_and_existing(server, "there", node="elsewhere")
    begun = claim()
    begun["metadata"]["annotations"] = {SELECTED_NODE: "first"}
    begun["spec"]["accessModes"] = [mode]
    server.put(r.VOLUME_CLAIMS, begun)
    order(server, with_volume("p"))
    made = setup(volume_binding_timeout_seconds=PATIENCE_SECONDS)
    until(lambda: len(made.binder.waiting) == 1)
    found = server.get(r.VOLUME_CLAIMS, "ns", "data")
    assert found is not None
    assert found["metadata"]["annotations"][SELECTED_NODE] == chosen


@pytest.mark.parametrize(("node", "outcome"), [("elsewhere", "Failed"), ("n", "Succeeded")])
def test_a_pod_is_not_bound_where_its_volume_turns_out_to_be_out_of_reach(
    server: StubServer, setup: Any, node: str, outcome: str
) -> None:
    made_and_existing(server, "v", node=node)
    server.put(r.VOLUME_CLAIMS, now_bound(claim()))
    order(server, with_volume("p"))
    setup()
    until(lambda: phase(server) == outcome)


def test_the_claim_for_which_none_can_be_made_gets_the_one_that_exists(
    server: StubServer, setup: Any
) -> None:
    """No driver makes a volume with wanted labels. The other claim could have it, too, and comes first."""
    made_and_existing(server, "there")
    server.put(r.VOLUME_CLAIMS, claim())
    picky = claim()
    picky["metadata"] |= {"name": "picky", "uid": "u-picky"}
    picky["spec"]["selector"] = {"matchLabels": {"disk": "fast"}}
    server.put(r.VOLUME_CLAIMS, picky)
    both = with_volume("p")
    both["spec"]["volumes"].append({"name": "more", "persistentVolumeClaim": {"claimName": "picky"}})
    order(server, both)
    made = setup(volume_binding_timeout_seconds=PATIENCE_SECONDS)
    until(lambda: len(made.binder.waiting) == 1)
    assert owner(server, "there") == "picky"
    assert (told(server), told(server, "picky")) == (True, False)


class WithoutList(Store):
    """A store with too many objects to look at all of them."""

    def all(self) -> list[dict[str, Any]]:
        raise AssertionError("all objects are looked at")


def test_a_bind_looks_at_no_volumes_but_those_of_its_claims() -> None:
    """Otherwise each bind, also of a pod without volumes, would cost as much as all tenants have volumes."""
    api, claims, volumes, classes = Mock(), Store(), WithoutList(), Store()
    waits = {"metadata": {"name": "slow"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}
    classes.put(waits)
    for name, kind in (("of-another-class", "fast"), ("there", "slow")):
        spec = {"storageClassName": kind, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}}
        volumes.put({"metadata": {"name": name, "resourceVersion": "1"}, "spec": spec})
    claims.put({**claim(), "metadata": {**claim()["metadata"], "uid": "u"}})
    step = Volumes(api, claims, volumes, classes, BinderOptions())
    step.prepare(pod("without"), node("n"), {})
    api.patch.return_value = None
    with pytest.raises(Awaits):
        step.prepare(with_volume("p"), node("n"), {})
    assert [call.args[2] for call in api.patch.call_args_list] == ["there"]


def test_a_free_volume_is_read_once_however_many_binds_look_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All binds wait for the lock under which one of them looks at the local volumes of all nodes."""
    read: Counter[str] = Counter()

    def counted(raw: dict[str, Any], key: Any) -> Any:
        read[key[1]] += 1
        return read_volume(raw, key)

    monkeypatch.setattr("kai_cp.kube.binder.volumes.read_volume", counted)
    api, claims, volumes, classes = Mock(), Store(), Store(), Store()
    step = Volumes(api, claims, volumes, classes, BinderOptions())
    classes.put(
        {"metadata": {"name": "slow"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}
    )
    claims.put({**claim(), "metadata": {**claim()["metadata"], "uid": "u"}})
    fields = {"storageClassName": "slow", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}}

    def put(version: int, **spec: Any) -> dict[str, Any]:
        item = {"metadata": {"name": "a", "resourceVersion": str(version)}, "spec": {**fields, **spec}}
        volumes.put(item)
        return item

    def bind() -> list[str]:
        api.patch.return_value = None
        api.patch.reset_mock()
        with pytest.raises(Awaits):
            step.prepare(with_volume("p"), node("n"), {})
        return [call.args[2] for call in api.patch.call_args_list if call.args[0] == r.VOLUMES]

    put(1)
    assert (bind(), bind()) == (["a"], ["a"])
    assert read["a"] == 1
    put(2, capacity={"storage": "1Mi"})
    assert bind() == [], "what changed is read again"
    volumes.remove(put(3))
    assert bind() == []
