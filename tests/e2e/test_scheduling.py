"""From pending pod to running pod on a real API server."""

from __future__ import annotations

from kai_cp.kube.api import resources as r
from tests.e2e.world import JOBS, World, condition


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
    world.until(lambda: len(world.running()) == 64, "64 pods run")
    by_node: dict[str, int] = {}
    for pod in world.pods():
        by_node[pod["spec"]["nodeName"]] = by_node.get(pod["spec"]["nodeName"], 0) + 1
    assert by_node == dict.fromkeys(world.nodes, 8)
    world.until(lambda: world.phase("gang-0") == "Succeeded", "the order is closed")
    pod = world.pods()[0]
    assert pod["metadata"]["annotations"]["received-resource-type"] == "Regular"
    bound = world.until(lambda: condition(world.pods()[0], "PodBound"), "the condition is written")
    assert bound["status"] == "True"
    world.until(
        lambda: "kai.scheduler/last-start-timestamp" in world.annotations("gang"), "the start is written"
    )


def test_fractions_share_a_reserved_gpu(world: World) -> None:
    world.add_nodes(1, gpus=2)
    queue = world.add_queue()
    world.scheduler()
    world.binder()
    for i in range(4):
        world.add_group(f"f{i}", queue)
        annotations = {"gpu-fraction": "0.5", "runai/shared-gpu-configmap": f"f{i}-abc1234-shared-gpu"}
        world.add_pod(f"f{i}", f"f{i}", gpus=0, annotations=annotations)
    world.until(lambda: len(world.running()) == 4, "four half pods run")
    groups = {pod["metadata"]["labels"]["runai-gpu-group"] for pod in world.pods()}
    assert len(groups) == 2

    def reservations() -> list[dict[str, object]]:
        items = world.api.raw(r.PODS.path("kai-resource-reservation"))["items"]
        return [pod for pod in items if pod["spec"]["nodeName"] in world.nodes]

    assert {pod["metadata"]["labels"]["runai-gpu-group"] for pod in reservations()} == groups  # type: ignore[index]
    config = world.api.get(r.CONFIG_MAPS, world.namespace, "f0-abc1234-shared-gpu-0-evar")
    assert config is not None
    assert config["data"]["NVIDIA_VISIBLE_DEVICES"].startswith("GPU-")
    main = world.api.get(r.CONFIG_MAPS, world.namespace, "f0-abc1234-shared-gpu-0")
    assert main is not None
    assert main["data"] == {"GPU_PORTION": "0.50", "RUNAI_NUM_OF_GPUS": "0.50"}
    for i in range(4):
        world.api.delete(r.PODS, world.namespace, f"f{i}")
    world.until(lambda: not reservations(), "the reservation pods leave with the last sharer")


def test_preemption_waits_for_graceful_termination(world: World) -> None:
    world.add_nodes(1)
    queue = world.add_queue()
    world.scheduler()
    world.binder()
    world.api.create(r.PRIORITY_CLASSES, "", {"metadata": {"name": f"{world.name}-high"}, "value": 80})
    world.add_gang("low", queue, 8, grace=600, preemptibility="preemptible")
    world.until(lambda: len(world.running("low")) == 8, "the victims run")
    world.add_gang("high", queue, 8, priorityClassName=f"{world.name}-high")
    world.until(lambda: not world.running("low"), "the victims are told to end")
    leaving = world.pods("low")
    assert len(leaving) == 8, "they end gracefully"
    assert not any(pod["spec"].get("nodeName") for pod in world.pods("high")), "no pod is bound before"

    def named() -> list[str]:
        return [pod["status"].get("nominatedNodeName", "") for pod in world.pods("high")]

    world.until(lambda: named() == world.nodes * 8, "each waiting pod names the node that it is promised")
    for pod in leaving:
        world.api.delete(r.PODS, world.namespace, pod["metadata"]["name"], grace=0)
    world.until(lambda: len(world.running("high")) == 8, "the preemptor runs")
    evictions = world.until(
        lambda: [e for e in world.events("Evict") if e["involvedObject"]["name"] == "low"], "it is told"
    )
    assert evictions[0]["metadata"]["annotations"]["evictor-pod-group-name"] == "high"
    world.until(lambda: "kai.scheduler/last-eviction-timestamp" in world.annotations("low"), "and noted")
    world.api.delete(r.PRIORITY_CLASSES, "", f"{world.name}-high")


def test_reclaim_gives_a_queue_its_quota(world: World) -> None:
    world.add_nodes(2)
    parent = world.add_queue("dept")
    greedy = world.add_queue("greedy", parent, quota=8)
    entitled = world.add_queue("entitled", parent, quota=8)
    world.scheduler()
    world.binder()
    for i in range(2):
        world.add_gang(f"greedy{i}", greedy, 8, preemptibility="preemptible")
    world.until(lambda: len(world.running()) == 16, "the cluster is full")
    world.add_gang("mine", entitled, 8)
    world.until(lambda: len(world.running("mine")) == 8, "the entitled gang runs")
    assert len(world.running("greedy0")) + len(world.running("greedy1")) == 8


def test_a_pod_moves_to_free_a_node(world: World) -> None:
    world.add_nodes(2, gpus=2)
    queue = world.add_queue()
    world.scheduler()
    world.binder()
    # Two one-GPU pods on two nodes leave no node whole: the new pod needs both GPUs of one.
    for i, node in enumerate(world.nodes):
        world.add_group(f"small{i}", queue, preemptibility="preemptible")
        world.add_pod(f"small{i}", f"small{i}", spec={"nodeSelector": {"kubernetes.io/hostname": node}})
    world.until(lambda: len(world.running()) == 2, "both run apart")
    for i in range(2):
        world.api.delete(r.PODS, world.namespace, f"small{i}")
    world.until(lambda: not world.pods(), "both are gone")
    world.add_group("filler0", queue, preemptibility="preemptible")
    world.add_pod("filler0", "filler0", 1, spec={"nodeSelector": {"kubernetes.io/hostname": world.nodes[0]}})
    world.until(lambda: len(world.running("filler0")) == 1, "one runs on the first node")
    patch = {"spec": {"unschedulable": True}}
    world.api.patch(r.NODES, "", world.nodes[0], patch)
    world.add_group("filler1", queue, preemptibility="preemptible")
    world.add_pod("filler1", "filler1", 1)
    world.until(lambda: len(world.running("filler1")) == 1, "one runs on the second node")
    world.api.patch(r.NODES, "", world.nodes[0], {"spec": {"unschedulable": None}})
    world.add_gang("wide", queue, 1, gpus=2, preemptibility="preemptible")
    moved = world.until(
        lambda: [p for p in ("filler0", "filler1") if not world.running(p)], "one pod is told to move"
    )
    assert len(moved) == 1
    # Its controller makes it anew, and it must not be tied to the node that it left.
    world.until(lambda: not world.pods(moved[0]), "the old pod is gone")
    world.add_pod(f"{moved[0]}-again", moved[0], 1)
    world.until(lambda: len(world.running()) == 3, "all three run")


def test_two_shards_serve_their_own_pools(world: World) -> None:
    world.add_nodes(1, gpus=2)
    queue = world.add_queue()
    other = f"{world.name}-other"
    first = dict(world.labels)
    world.scheduler()
    world.scheduler(f"--partition-label-value={other}", user="scheduler2")
    world.binder()
    world.pool = other
    world.add_nodes(1, gpus=2)
    second_queue = world.add_queue("q2")
    world.add_gang("b", second_queue, 2)
    world.pool = first[world.pool_key]
    world.add_gang("a", queue, 2)
    world.until(lambda: len(world.running()) == 4, "both pools run")
    assert {pod["spec"]["nodeName"] for pod in world.pods("a")} == {world.nodes[0]}
    assert {pod["spec"]["nodeName"] for pod in world.pods("b")} == {world.nodes[1]}
    world.until(
        lambda: all(
            (p["metadata"].get("labels") or {}).get(world.pool_key) == other for p in world.pods("b")
        ),
        "the pool is written to the pods",
    )


def test_a_job_with_three_elastic_pods(world: World) -> None:
    world.add_nodes(1, gpus=2)
    queue = world.add_queue()
    world.scheduler()
    world.binder()
    world.add_group("job", queue, 1)
    limits = {"cpu": "100m", "nvidia.com/gpu": "1"}
    template = {
        "metadata": {"annotations": {"pod-group-name": "job"}},
        "spec": {
            "schedulerName": "kai-scheduler",
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "none", "resources": {"limits": limits}}],
        },
    }
    spec = {"parallelism": 3, "completions": 3, "template": template}
    world.api.create(JOBS, world.namespace, {"metadata": {"name": "job"}, "spec": spec})
    world.until(lambda: len(world.running()) == 2 and len(world.pods()) == 3, "two of three run")
    world.add_nodes(1, gpus=1)
    world.until(lambda: len(world.running()) == 3, "the third follows")


def test_a_stale_gang_is_evicted_after_its_grace_period(world: World) -> None:
    world.add_nodes(1)
    queue = world.add_queue()
    world.scheduler()
    world.binder()
    world.add_gang("gang", queue, 4, stalenessGracePeriod="3s")
    world.until(lambda: len(world.running()) == 4, "the gang runs")
    world.api.delete(r.PODS, world.namespace, "gang-0", grace=0)
    world.until(
        lambda: "kai.scheduler/stale-podgroup-timestamp" in world.annotations("gang"),
        "it is marked stale",
    )
    world.until(lambda: not world.pods(), "what is left of it is evicted")
    world.until(lambda: world.events("StaleJob"), "it is told")


def test_conditions_are_set_and_cleared(world: World) -> None:
    world.add_nodes(1, gpus=2)
    queue = world.add_queue()
    world.scheduler()
    world.binder()
    world.add_gang("big", queue, 4)

    def unschedulable() -> bool:
        entries = (condition(pod, "PodScheduled") for pod in world.pods())
        return all(entry is not None and entry["reason"] == "Unschedulable" for entry in entries)

    world.until(unschedulable, "every pod says why it waits")
    conditions = world.until(
        lambda: (world.group("big").get("status") or {}).get("schedulingConditions"), "so does the group"
    )
    assert conditions[-1]["type"] == "UnschedulableOnNodePool"
    assert conditions[-1]["nodePool"] == world.pool
    assert conditions[-1]["reasons"][0]["message"]
    world.add_nodes(1, gpus=2)
    world.until(lambda: len(world.running()) == 4, "it runs once there is room")
    world.until(
        lambda: not (world.group("big").get("status") or {}).get("schedulingConditions"),
        "the condition is cleared",
    )
    scheduled = condition(world.pods()[0], "PodScheduled")
    assert scheduled is not None
    assert scheduled["status"] == "True"
