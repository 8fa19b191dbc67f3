"""From a workload to running pods with only our processes: pod grouper, scheduler, binder, controllers."""

from __future__ import annotations

from typing import Any

from kai_cp.kube.api import resources as r
from tests.e2e.workloads import (
    CRON_JOBS,
    DEPLOYMENTS,
    QUEUE,
    Workloads,
    grant,
    install,
    kubectl,
    remove,
    shape,
)
from tests.e2e.world import JOBS, World
from tests.support import definitions as d
from tests.support.workloads import JOBSET, RAY, karta

LWS = "leaderworkerset.sigs.k8s.io"
TRAINING = "training.kubeflow.org"


def begun(world: World, gpus: int = 64) -> Workloads:
    """Nodes, a queue below another, and our three processes."""
    world.add_nodes(-(-gpus // 8))
    world.add_queue("top")
    queue = world.add_queue("team", parent=f"{world.name}-top")
    workloads = Workloads(world, queue)
    workloads.start()
    world.scheduler()
    world.binder()
    return workloads


def make_training(made: Workloads) -> None:
    """Job, CronJob, JobSet, PyTorchJob, MPIJob."""
    made.job("job", pods=2, annotations={"kai.scheduler/batch-min-member": "2"})
    template = {"spec": {"template": made.template("Never")}}
    cron = made.own(CRON_JOBS, "cron", spec={"schedule": "@yearly", "suspend": True, "jobTemplate": template})
    # The controller of a CronJob copies from the template: labels of the CronJob itself do not count.
    made.job("cron-1", cron, pods=1, labels={QUEUE: made.queue})
    jobset = made.own(d.JOBSETS, "jobset", spec=JOBSET)
    for name, index, count in (("driver", 0, 1), ("workers", 0, 2), ("workers", 1, 2)):
        labels = {"jobset.sigs.k8s.io/replicatedjob-name": name, "jobset.sigs.k8s.io/job-index": str(index)}
        for i in range(count):
            made.pod(f"jobset-{name}-{index}-{i}", jobset, **labels)
    for kind, key, roles in (
        (d.PYTORCH_JOBS, "pytorchReplicaSpecs", {"Master": 1, "Worker": 4}),
        (d.MPI_JOBS, "mpiReplicaSpecs", {"Launcher": 1, "Worker": 2}),
    ):
        name = kind.kind.lower()
        specs: dict[str, Any] = {role: {"replicas": count, "template": {}} for role, count in roles.items()}
        if "Master" in roles:
            specs["Worker"]["template"] = {"metadata": {"annotations": {"kai.scheduler/segment-size": "2"}}}
        job = made.own(kind, name, spec={key: specs})
        for role, count in roles.items():
            for i in range(count):
                labels = {f"{TRAINING}/replica-type": role.lower(), f"{TRAINING}/replica-index": str(i)}
                labels |= {f"{TRAINING}/job-name": name, f"{TRAINING}/job-role": role.lower()}
                made.pod(f"{name}-{role.lower()}-{i}", job, **labels)


def make_serving(made: Workloads) -> None:
    """Deployment, LeaderWorkerSet, RayCluster, Knative, Workflow, a kind with a Karta, a bare pod."""
    selector = {"app": "web"}
    made.own(
        DEPLOYMENTS,
        "web",
        spec={"replicas": 2, "selector": {"matchLabels": selector}, "template": made.template(**selector)},
    )
    lws = made.own(
        d.LEADER_WORKER_SETS,
        "lws",
        spec={"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": {}}},
    )
    for i in range(3):
        made.pod(f"lws-0-{i}", lws, **{f"{LWS}/group-index": "0", f"{LWS}/worker-index": str(i)})
    ray = made.own(d.RAY_CLUSTERS, "ray", spec=RAY)
    for name, group in (("head", "headgroup"), ("a", "small"), ("b", "large"), ("c", "large")):
        made.pod(f"ray-{name}", ray, **{"ray.io/group": group})
    service = made.own(d.KNATIVE_SERVICES, "hello", spec={})
    configuration = made.own(d.KNATIVE_CONFIGURATIONS, "hello", service, spec={})
    scale = {"autoscaling.knative.dev/min-scale": "2"}
    labels = {"kai.scheduler/queue": made.queue}
    revision = made.own(
        d.KNATIVE_REVISIONS, "hello-1", configuration, spec={}, annotations=scale, labels=labels
    )
    for i in range(2):
        made.pod(f"hello-1-{i}", revision, **{"serving.knative.dev/revision": "hello-1"})
    workflow = made.own(d.WORKFLOWS, "flow", spec={})
    made.pod("flow-step", workflow)
    fleet = made.own(d.FLEETS, "fleet", spec={"boss": {"replicas": 1}, "crew": {"replicas": 3, "min": 1}})
    for name, role in (("boss", "boss"), ("crew-0", "crew"), ("crew-1", "crew")):
        made.pod(f"fleet-{name}", fleet, **{"fleet/role": role})
    made.pod("alone")


EXPECTED = {
    "pg-job": {"minMember": 2},
    "pg-cron-1": {"minMember": 1},
    "pg-jobset": {
        "minSubGroup": 2,
        "driver": 1,
        "driver-replica-0": 1,
        "workers": 2,
        "workers-replica-0": 2,
        "workers-replica-1": 2,
    },
    "pg-pytorchjob": {"minMember": 5, "master": 1, "worker": 2, "worker-0": 2, "worker-1": 2},
    "pg-mpijob": {"minMember": 3},
    "pg-lws-group-0": {"minMember": 3, "leader": 1, "workers": 2},
    "pg-ray": {"minMember": 4, "headgroup": 1, "small": 1, "large": 2},
    "pg-hello-1": {"minMember": 2},
    "pg-flow-step": {"minMember": 1},
    "pg-all": {"minSubGroup": 2, "boss": 1, "crew": 1},
    "pg-alone": {"minMember": 1},
}
PODS = 2 + 1 + 5 + 5 + 3 + 2 + 3 + 4 + 2 + 1 + 3 + 1


def test_twelve_kinds_from_apply_to_running_and_away(world: World) -> None:
    install(world, *d.ALL)
    grant(world, d.FLEETS)
    made = begun(world)
    described = karta()
    world.api.create(d.KARTAS, "", described)
    make_training(made)
    make_serving(made)
    world.until(lambda: len(world.running()) == PODS, f"{PODS} pods run")
    groups = made.groups()
    assert {name: shape(group) for name, group in groups.items() if not name.startswith("pg-web")} == EXPECTED
    assert sum(name.startswith("pg-web") for name in groups) == 2
    assert {group["spec"]["queue"] for group in groups.values()} == {made.queue}
    inside = {
        pod["metadata"]["name"]: pod["metadata"]["labels"].get("kai.scheduler/subgroup-name")
        for pod in world.pods()
    }
    assert inside["pytorchjob-worker-3"] == "worker-1"
    assert inside["ray-c"] == "large"
    assert inside["jobset-workers-1-0"] == "workers-replica-1"
    assert inside["alone"] is None
    whole = {"nvidia.com/gpu": "5", "cpu": "500m", "memory": str(500 * 2**20)}

    def summed() -> bool:
        status = made.groups()["pg-jobset"].get("status") or {}
        sums = status.get("resourcesStatus") or {}
        return bool(sums.get("allocated") == sums.get("requested") == whole)

    world.until(summed, "the group's sums are written")

    def climbed() -> bool:
        top = world.api.get(r.QUEUES, "", f"{world.name}-top") or {}
        status = top.get("status") or {}
        return bool(
            status.get("childQueues") == [made.queue]
            and (status.get("allocated") or {}).get("nvidia.com/gpu") == str(PODS)
        )

    world.until(climbed, "the sums of the queue above are written")
    shown = kubectl(world, "get", "queues.scheduling.run.ai", f"{world.name}-top").splitlines()
    assert shown[0].split()[:5] == ["NAME", "PRIORITY", "PARENT", "CHILDREN", "GPUS"]
    assert shown[1].split()[1:4] == [f'["{made.queue}"]', str(PODS), str(PODS)]
    shown = kubectl(world, "get", "podgroups", "-n", world.namespace).splitlines()
    assert shown[0].split()[:5] == ["NAME", "QUEUE", "MIN", "GPUS", "ASKED"]
    row = next(line for line in shown if line.startswith("pg-pytorchjob-"))
    assert row.split()[1:5] == [made.queue, "5", "5", "5"]
    for resource, name in (
        *((kind, kind.kind.lower()) for kind in (d.JOBSETS, d.PYTORCH_JOBS, d.MPI_JOBS)),
        (d.LEADER_WORKER_SETS, "lws"),
        (d.RAY_CLUSTERS, "ray"),
        (d.KNATIVE_SERVICES, "hello"),
        (d.WORKFLOWS, "flow"),
        (d.FLEETS, "fleet"),
        (DEPLOYMENTS, "web"),
        (CRON_JOBS, "cron"),
        (JOBS, "job"),
        (r.PODS, "alone"),
    ):
        remove(world, resource, name)
    world.until(lambda: not world.pods() and not made.groups(), "nothing is left of them")
    world.until(
        lambda: not ((world.api.get(r.QUEUES, "", made.queue) or {}).get("status") or {}).get("allocated"),
        "the queue holds nothing",
    )
    world.api.delete(d.KARTAS, "", described["metadata"]["name"])
    assert not world.events("PodGrouperWarning")
