"""The controllers under faults: killed, refused, cut off; owners and kinds that appear and disappear."""

from __future__ import annotations

import signal

from kai_cp.keys import FOLLOW_QUEUE
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.demo.controlplane import ControlPlane
from tests.e2e.proxy import Fault, FaultyProxy
from tests.e2e.workloads import QUEUE, Workloads, definition, grant, install, remove, shape
from tests.e2e.world import World
from tests.support import definitions as d
from tests.support.workloads import RAY

BARRELS = Resource("example.net", "v1", "barrels", "Barrel")
ROLE = "training.kubeflow.org/replica-type"


def torch(made: Workloads, name: str, workers: int = 2) -> tuple[Resource, dict[str, object]]:
    """A PyTorchJob with as many workers, and their pods."""
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": workers, "template": {}}}}
    job = made.own(d.PYTORCH_JOBS, name, spec=spec)
    for i in range(workers):
        made.pod(f"{name}-{i}", job, **{ROLE: "worker"})
    return job


def grouped(world: World) -> int:
    """Pods that know their group."""
    return sum("pod-group-name" in (pod["metadata"].get("annotations") or {}) for pod in world.pods())


def test_killed_between_pod_group_and_pod(world: World, control_plane: ControlPlane) -> None:
    install(world, d.PYTORCH_JOBS)
    made = Workloads(world, world.add_queue())
    with FaultyProxy(control_plane) as proxy:
        proxy.rule = lambda method, path: (
            Fault(delay=30.0, status=500) if method == "PATCH" and "/pods/" in path else None
        )
        first = made.start(url=proxy.url)
        torch(made, "job")
        world.until(made.groups, "the group is there")
        assert grouped(world) == 0
        first.kill(signal.SIGKILL)
    made.start()
    world.until(lambda: grouped(world) == 2, "its pods know it")
    assert list(made.groups()) == ["pg-job"]


def test_api_server_gone_for_a_while(world: World, control_plane: ControlPlane) -> None:
    install(world, d.PYTORCH_JOBS)
    made = Workloads(world, world.add_queue())
    controllers = made.start()
    torch(made, "before")
    world.until(lambda: grouped(world) == 2, "the first job is grouped")
    control_plane.kill("kube-apiserver")
    world.until(
        lambda: any("the watch of a kind failed" in line["message"] for line in controllers.lines()),
        "the controllers miss it",
    )
    control_plane.start_apiserver()
    torch(made, "after")
    world.until(lambda: grouped(world) == 4, "the second job is grouped")
    assert controllers.poll() is None


def test_a_second_process_takes_over(world: World) -> None:
    made = Workloads(world, world.add_queue())
    flags = ("--leader-elect", "--lease-seconds=10,6,1")
    first = made.start(*flags)
    made.pod("one")
    world.until(lambda: grouped(world) == 1, "the first process groups")
    made.start(*flags)
    first.kill(signal.SIGKILL)
    made.pod("two")
    world.until(lambda: grouped(world) == 2, "the second process groups")


def test_workloads_are_followed_and_nothing_else_is_written(
    world: World, control_plane: ControlPlane
) -> None:
    install(world, d.RAY_CLUSTERS)
    made = Workloads(world, world.add_queue())
    other = world.add_queue("other")
    with FaultyProxy(control_plane) as proxy:
        made.start(url=proxy.url)
        ray = made.own(d.RAY_CLUSTERS, "ray", spec=RAY)
        for name, group in (("head", "headgroup"), ("a", "small")):
            made.pod(f"ray-{name}", ray, **{"ray.io/group": group})
        world.until(lambda: grouped(world) == 2, "they are grouped")
        world.until(lambda: "pg-ray" in made.groups() and made.groups()["pg-ray"].get("status"), "and summed")
        world.settles(lambda: len(proxy.writes()), "writes")
        workers = [{**RAY["workerGroupSpecs"][0], "minReplicas": 2}]
        world.api.patch(d.RAY_CLUSTERS, world.namespace, "ray", {"spec": {"workerGroupSpecs": workers}})
        wanted = {"minMember": 3, "headgroup": 1, "small": 2}
        world.until(lambda: shape(made.groups()["pg-ray"]) == wanted, "its new size is taken over")
        moved = {"labels": {QUEUE: other}}
        world.api.patch(d.RAY_CLUSTERS, world.namespace, "ray", {"metadata": moved})
        world.until(lambda: world.events("QueueKept"), "it is told that the group stays")
        assert made.groups()["pg-ray"]["spec"]["queue"] == made.queue
        follow = {"metadata": {"annotations": {FOLLOW_QUEUE: "true"}}}
        world.api.patch(d.RAY_CLUSTERS, world.namespace, "ray", follow)
        world.until(lambda: made.groups()["pg-ray"]["spec"]["queue"] == other, "the group moves")
        name = made.groups()["pg-ray"]["metadata"]["name"]
        world.api.delete(r.POD_GROUPS, world.namespace, name)
        world.until(lambda: "pg-ray" in made.groups(), "a deleted group is made again")


def test_an_owner_deleted_half_way(world: World) -> None:
    install(world, d.PYTORCH_JOBS)
    made = Workloads(world, world.add_queue())
    job = torch(made, "job", workers=1)
    ghost = (job[0], {"metadata": {"name": "ghost", "uid": "00000000-0000-0000-0000-000000000000"}})
    made.start()
    world.until(lambda: grouped(world) == 1, "the first pod is grouped")
    remove(world, d.PYTORCH_JOBS, "job")
    made.pod("late", ghost)  # The garbage collector deletes it in the end, because its owner does not exist.
    torch(made, "other")
    world.until(lambda: {p["metadata"]["name"] for p in world.pods()} == {"other-0", "other-1"}, "gone")
    world.until(lambda: grouped(world) == 2, "the other job is grouped")
    world.until(lambda: list(made.groups()) == ["pg-other"], "its group is the only one")


def test_a_kind_that_may_not_be_read_and_then_may(world: World) -> None:
    install(world, BARRELS)
    made = Workloads(world, world.add_queue())
    made.start()
    barrel = made.own(BARRELS, "barrel", spec={})
    made.pod("one", barrel, **{QUEUE: made.queue})
    world.until(lambda: grouped(world) == 1, "the pod is grouped by itself")
    assert list(made.groups()) == ["pg-one"]
    told = world.until(lambda: world.events("OwnerNotReadable"), "it is told why")
    assert "Barrel.example.net" in told[0]["message"]
    grant(world, BARRELS)
    made.pod("two", barrel, **{QUEUE: made.queue})
    world.until(lambda: "pg-barrel" in made.groups(), "the next pod is grouped by its owner")


def test_a_kind_installed_and_removed_while_running(world: World) -> None:
    casks = Resource("example.net", "v1", "casks", "Cask")
    grant(world, casks)
    made = Workloads(world, world.add_queue())
    controllers = made.start()
    world.until(lambda: controllers.poll() is None and made.groups() == {}, "it runs")
    for round_ in range(2):
        install(world, casks)
        cask = made.own(casks, f"cask{round_}", spec={})
        made.pod(f"of-cask-{round_}", cask)
        world.until(lambda: f"pg-cask{round_}" in made.groups(), "its group is there")  # noqa: B023
        world.api.delete(r.CRDS, "", definition(casks)["metadata"]["name"])
        world.until(lambda: world.api.raw(casks.path()) is None, "the kind is gone")
        made.pod(f"between-{round_}")
        world.until(lambda: f"pg-between-{round_}" in made.groups(), "others are grouped")  # noqa: B023
    assert controllers.poll() is None


def test_a_part_that_is_switched_off_does_nothing(world: World, control_plane: ControlPlane) -> None:
    made = Workloads(world, world.add_queue())
    with FaultyProxy(control_plane) as proxy:
        program = made.start("--controllers=podgrouper", url=proxy.url)
        made.pod("alone")
        world.until(lambda: grouped(world) == 1, "it is grouped")
        made.pod("another")
        world.until(lambda: grouped(world) == 2, "what follows from the first had its time")
        assert not [path for _, method, path in proxy.seen if method == "PATCH" and path.endswith("/status")]
        assert not [path for _, _, path in proxy.seen if "/queues" in path or "/nodes" in path]
        assert program.poll() is None


def test_nonsense_in_an_owner_is_reported_once_and_stops_no_other(world: World) -> None:
    install(world, d.JOBSETS)
    made = Workloads(world, world.add_queue())
    made.start()
    bad = made.own(d.JOBSETS, "bad", spec={"replicatedJobs": [{"name": "a", "replicas": "many"}]})
    made.pod("bad-0", bad)
    made.pod("good")
    world.until(lambda: "pg-good" in made.groups(), "the other one is grouped")
    world.until(lambda: world.events("PodGrouperWarning"), "the bad one is told")
    world.stays(lambda: len(world.events("PodGrouperWarning")) == 1, 4.0)
    (event,) = world.events("PodGrouperWarning")
    field = "spec.replicatedJobs[0].replicas"
    assert (
        event["message"] == f'JobSet {world.namespace}/bad: {field}: "many" is not a whole number of 32 bits'
    )
    fixed = {"spec": {"replicatedJobs": [{"name": "a", "replicas": 1}]}}
    world.api.patch(d.JOBSETS, world.namespace, "bad", fixed)
    names = {"jobset.sigs.k8s.io/replicatedjob-name": "a", "jobset.sigs.k8s.io/job-index": "0"}
    world.api.patch(r.PODS, world.namespace, "bad-0", {"metadata": {"labels": names}})
    world.until(lambda: "pg-bad" in made.groups(), "it is grouped once it is mended")
