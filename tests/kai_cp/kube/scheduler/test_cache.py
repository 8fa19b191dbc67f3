"""The cache is a snapshot in KAI's format, and it knows when it is not complete yet."""

from __future__ import annotations

import threading

from kai_cp.kube.api import api_objects
from kai_cp.kube.api import resources as r
from kai_cp.kube.scheduler.cache import KINDS, ClusterCache
from kai_cp.kube.scheduler.options import SchedulerOptions, default_config
from kai_cp.reader import parse
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import group, node, pod, queue
from tests.kai_cp.kube.stub import StubServer

LISTS = {
    *("pods", "nodes", "queues", "podGroups", "bindRequests", "priorityClasses", "configMaps"),
    *("persistentVolumes", "persistentVolumeClaims", "csiStorageCapacities", "storageClasses", "csiDrivers"),
    *("resourceClaims", "resourceSlices", "deviceClasses", "topologies", "nodeResourceTopologies"),
}
"""Section 2 of the snapshot format."""


def test_every_list_of_the_format_is_there(server: StubServer) -> None:
    server.absent.add("noderesourcetopologies")
    for resource, item in (
        (r.PODS, pod("p")),
        (r.NODES, node("n")),
        (r.QUEUES, queue()),
        (r.POD_GROUPS, group()),
    ):
        server.put(resource, item)
    cache = ClusterCache(server.transport(), SchedulerOptions(), default_config())
    assert cache.unsynced()
    cache.start()
    assert cache.wait_synced(PATIENCE_SECONDS)
    assert cache.unsynced() == []
    raw = cache.snapshot()
    assert set(raw) == {"config", "schedulerParams", "rawObjects", "discovery"}
    assert set(raw["rawObjects"]) >= LISTS
    assert raw["rawObjects"]["nodeResourceTopologies"] is None
    assert raw["rawObjects"]["resourceClaims"] == []
    parsed = parse(raw, now=1_800_000_000.0)
    assert [p.key.name for p in parsed.pods] == ["p"]
    assert [g.queue for g in parsed.groups] == ["q"]
    assert parsed.set_aside == ()
    cache.stop()


def test_the_cache_wakes_for_changes_that_matter(server: StubServer) -> None:
    server.put(r.NODES, node("n"))
    cache = ClusterCache(server.transport(), SchedulerOptions(), default_config())
    cache.start()
    assert cache.wait_synced(PATIENCE_SECONDS)
    cache.wake.clear()
    beat = node("n")
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-20T12:00:00Z"
    server.put(r.NODES, beat)
    server.put(r.CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "ns"}})
    until(lambda: len(cache.stores[r.CONFIG_MAPS]))
    until(cache.wake.is_set)
    cache.wake.clear()
    for label in ("b", "c"):  # The second is stored when all that the first one does is done.
        server.put(r.CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "ns", "labels": {"a": label}}})
    until(lambda: api_objects.labels_of(cache.stores[r.CONFIG_MAPS].all()[0]).get("a") == "c")
    assert not cache.wake.is_set()
    server.put(r.PODS, pod("p"))
    assert cache.wake.wait(PATIENCE_SECONDS)
    cache.stop()


def test_waiting_ends_at_the_stop(server: StubServer) -> None:
    server.faults = lambda _m, _p: (500, {})
    cache = ClusterCache(server.transport(), SchedulerOptions(), default_config())
    cache.start()
    over = threading.Event()
    threading.Timer(0.3, over.set).start()
    assert not cache.wait_synced(30, over)
    assert len(cache.unsynced()) == len(KINDS)
    cache.stop()


def test_members_follow_their_pods(server: StubServer) -> None:
    server.put(r.PODS, pod("a"))
    server.put(r.PODS, pod("b"))
    cache = ClusterCache(server.transport(), SchedulerOptions(), default_config())
    cache.start()
    assert cache.wait_synced(PATIENCE_SECONDS)

    def names(group_name: str) -> list[str]:
        return sorted(p["metadata"]["name"] for p in cache.members.of(("ns", group_name)))

    until(lambda: names("g") == ["a", "b"])
    server.put(r.PODS, pod("a", "other"))
    until(lambda: (names("g"), names("other")) == (["b"], ["a"]))
    server.remove(r.PODS, "ns", "b")
    until(lambda: names("g") == [])
    cache.stop()
