"""From pending pod to running pod on a real API server."""

from __future__ import annotations

from kai_cp.kube import resources as r
from tests.e2e.world import World, condition


def test_gang_of_64_is_bound_all_or_none(world: World) -> None:
    world.add_nodes(8)
    queue = world.add_queue()
    world.scheduler()
    world.binder()
    world.add_group("gang", queue, 64)
    for i in range(63):
        world.add_pod(f"gang-{i}", "gang")
    world.stays(lambda: not any(pod["spec"].get("nodeName") for pod in world.pods()), 3.0)
    world.add_pod("gang-63", "gang")
    world.until(lambda: len(world.running()) == 64, "64 pods run", 60)
    by_node: dict[str, int] = {}
    for pod in world.pods():
        by_node[pod["spec"]["nodeName"]] = by_node.get(pod["spec"]["nodeName"], 0) + 1
    assert by_node == dict.fromkeys(world.nodes, 8)
    request = world.api.get(r.BIND_REQUESTS, world.namespace, "gang-0")
    assert request is not None
    assert request["status"]["phase"] == "Succeeded"
    pod = world.pods()[0]
    assert pod["metadata"]["annotations"]["received-resource-type"] == "Regular"
    bound = condition(pod, "PodBound")
    assert bound is not None
    assert bound["status"] == "True"
    assert "kai.scheduler/last-start-timestamp" in world.group("gang")["metadata"]["annotations"]
