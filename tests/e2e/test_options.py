"""Options of the settings on a real API server: rollouts, kinds of GPUs, users, moves of servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.demo.controlplane import ControlPlane
from tests.e2e.proxy import Fault, FaultyProxy
from tests.e2e.workloads import DEPLOYMENTS, Workloads
from tests.e2e.world import Program, World, condition

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
FIRM = {"preemptibility": "non-preemptible"}
Object = dict[str, Any]


def scheduler(world: World, tmp_path: Path, **settings: Any) -> Program:
    """The scheduler with these settings, and a binder."""
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump(settings))
    world.binder()
    return world.scheduler(f"--settings={path}")


def say(world: World, queue: str, **notes: str) -> None:
    """Write annotations of ours on a queue."""
    body = {"metadata": {"annotations": {f"kai-cp/{name}": text for name, text in notes.items()}}}
    world.api.patch(r.QUEUES, "", queue, body)


def reasons(world: World, group: str) -> set[str]:
    """The reason for which a pod group waits, from its status."""
    conditions = (world.group(group).get("status") or {}).get("schedulingConditions") or ()
    return {why["reason"] for one in conditions for why in one.get("reasons") or ()}


def test_a_deployment_is_rolled_out_in_a_full_queue(world: World, tmp_path: Path) -> None:
    """web fills the quota of two GPUs. The pod of its new revision waits until the queue lends."""
    world.add_nodes(1)
    queue = world.add_queue(quota=2)
    made = Workloads(world, queue)
    made.start()
    scheduler(world, tmp_path, rules={"rollouts": True})
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    made.own(
        DEPLOYMENTS,
        "web",
        labels={"kai.scheduler/preemptibility": "non-preemptible"},
        spec={
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": surge,
            "template": made.template(app="web"),
        },
    )
    world.until(lambda: len(world.running()) == 2, "the first revision runs")
    old = {pod["metadata"]["uid"] for pod in world.running()}
    template = {"metadata": {"annotations": {"revision": "2"}}}
    world.api.patch(DEPLOYMENTS, world.namespace, "web", {"spec": {"template": template}})
    [new] = world.until(lambda: [p for p in world.pods() if p["metadata"]["uid"] not in old], "a surge")
    name = new["metadata"]["name"]
    mine = world.until(lambda: group_of(world, name), "it has a pod group")
    world.until(lambda: "NonPreemptibleOverQuota" in reasons(world, mine), "the quota keeps it waiting")
    assert {pod["metadata"]["uid"] for pod in world.running()} == old
    say(world, queue, rollout="1h")
    world.until(
        lambda: len(world.pods()) == 2 == len({p["metadata"]["uid"] for p in world.running()} - old),
        "the new revision has replaced the old one",
    )


def group_of(world: World, pod: str) -> str:
    found = world.api.get(r.PODS, world.namespace, pod)
    return str(((found or {})["metadata"].get("annotations") or {}).get("pod-group-name") or "")


def test_a_queue_holds_no_more_of_a_kind_than_it_may(world: World, tmp_path: Path) -> None:
    """Two of three pods that accept only an H100 run, until the queue is granted a third one."""
    world.add_nodes(1, **{"nvidia.com/gpu.product": "H100"})
    world.add_nodes(1, **{"nvidia.com/gpu.product": "A100"})
    queue = world.add_queue()
    say(world, queue, **{"gpu-kinds": json.dumps({"H100": {"limit": 2}})})
    scheduler(world, tmp_path, rules={"gpu_kinds": True})
    only = {"nodeSelector": {"nvidia.com/gpu.product": "H100"}}
    for i in range(3):
        world.add_group(f"x{i}", queue)
        world.add_pod(f"x{i}", f"x{i}", spec=only)
    waits = world.until(
        lambda: [f"x{i}" for i in range(3) if "OverGpuKind" in reasons(world, f"x{i}")], "one waits"
    )
    world.until(lambda: len(world.running()) == 2, "two run")
    assert len(waits) == 1
    say(world, queue, **{"gpu-kinds": json.dumps({"H100": {"limit": 3}})})
    world.until(lambda: len(world.running()) == 3, "the third runs")


def test_users_share_their_queue(world: World, tmp_path: Path) -> None:
    """Both older pods of ann would run first; with users, one of hers and one of bob's run."""
    queue = world.add_queue()
    for name, user in (("a0", "ann"), ("a1", "ann"), ("b0", "bob")):
        body: Object = {"metadata": {"name": name, "labels": {**world.labels, "user": user}}}
        world.api.create(r.POD_GROUPS, world.namespace, {**body, "spec": {"queue": queue, "minMember": 1}})
        world.add_pod(name, name)
    world.add_nodes(1, gpus=2)
    scheduler(world, tmp_path, users={"label": "user"})
    world.until(lambda: len(world.running()) == 2, "both GPUs are used")
    assert world.running("b0")
    assert len([*world.running("a0"), *world.running("a1")]) == 1


def protect(world: World, app: str) -> None:
    """A PodDisruptionBudget that allows the eviction of every pod."""
    spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": app}}}
    world.api.create(BUDGETS, world.namespace, {"metadata": {"name": app}, "spec": spec})


def need(world: World, app: str, pods: int) -> None:
    world.api.patch(BUDGETS, world.namespace, app, {"spec": {"minAvailable": pods}})


def test_a_budget_holds_against_a_second_writer(
    world: World, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The budget is used up between the scheduler's snapshot and its eviction."""
    world.add_nodes(1, gpus=2)
    queue = world.add_queue()
    taken: list[str] = []
    with FaultyProxy(control_plane) as proxy:

        def take(method: str, path: str) -> Fault | None:
            if path.endswith("/eviction") and not taken:
                taken.append(path)
                need(world, "low", 1)
            return None

        proxy.rule = take
        settings = tmp_path / "settings.yaml"
        settings.write_text("rules: {pod_disruption_budgets: true}\n")
        world.scheduler(f"--settings={settings}", url=proxy.url)
        world.binder()
        world.add_group("low", queue, preemptibility="preemptible")
        world.add_pod("low", "low", gpus=2, labels={"app": "low"})
        world.until(lambda: world.running("low"), "the victim runs")
        protect(world, "low")
        high = {"metadata": {"name": f"{world.name}-high"}, "value": 80}
        world.api.create(r.PRIORITY_CLASSES, "", high)
        try:
            world.add_gang("high", queue, 1, gpus=2, priorityClassName=f"{world.name}-high")
            world.until(lambda: taken, "the victim is to be evicted")
            world.stays(lambda: len(world.running("low")) == 1, 3.0)
            assert condition(world.pods("low")[0], "DisruptionTarget") is None
            need(world, "low", 0)
            world.until(lambda: world.running("high"), "its place is taken once the budget allows it")
        finally:
            world.api.delete(r.PRIORITY_CLASSES, "", f"{world.name}-high")


def test_a_server_moves_where_queue_and_budget_let_it(world: World, tmp_path: Path) -> None:
    """a and b cannot be preempted, and one node is to become free. a moves once the queue says that it
    may.
    """
    first, second = world.add_nodes(2)
    queue = world.add_queue()
    acts = {"goal": "nodes=1", "mode": "act", "windows": ["00:00-24:00"], "max_moves_per_hour": 5}
    scheduler(world, tmp_path, defrag={**acts, "serving": True})
    for name, gpus, at in (("a", 2, first), ("b", 4, second)):
        world.add_group(name, queue, **FIRM)
        spec = {"nodeSelector": {"kubernetes.io/hostname": at}} if name == "b" else {}
        other = second if name == "a" else first
        world.api.patch(r.NODES, "", other, {"spec": {"unschedulable": True}})
        world.add_pod(name, name, gpus, labels={"app": name}, spec=spec)
        world.until(lambda name=name: world.running(name), f"{name} runs")  # type: ignore[misc]
        world.api.patch(r.NODES, "", other, {"spec": {"unschedulable": None}})
    say(world, queue, defrag="true")
    world.stays(lambda: len(world.running()) == 2, 3.0)
    protect(world, "a")
    world.until(lambda: not world.pods("a"), "a is evicted for its new place")
    assert world.running("b"), "no budget covers b"
    world.add_pod("a-again", "a", 2, labels={"app": "a"})
    world.until(lambda: world.running("a"), "it runs again")
    assert world.running("a")[0]["spec"]["nodeName"] == second
