"""Controllers on a played server: what they follow, what they write, and when they write nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.access import ACCESS, OWNERS, ControllerName
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.informers import Informers
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.controllers.base import Context, Controller
from kai_cp.kube.controllers.catalogue import CONTROLLERS, chosen, rights
from kai_cp.kube.controllers.host import Host
from kai_cp.kube.controllers.options import ControllerOptions, metric_labels
from kai_cp.kube.controllers.owners import OwnerLookup
from kai_cp.kube.controllers.podgroup import PAUSE_SECONDS
from kai_cp.kube.controllers.podgrouper import grouping_settings
from kai_cp.kube.controllers.process import access
from kai_cp.kube.controllers.queue import Sums
from kai_cp.workloads.items import Item, item_of
from kai_cp.workloads.sums import MOST_NAMES
from kai_cp.workloads.validity import WHY
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.stub import PLURALS, StubServer
from tests.support.workloads import made, pod

NAMES: tuple[ControllerName, ...] = get_args(ControllerName)
JOBS = Resource("batch", "v1", "jobs", "Job")
Object = dict[str, Any]
DONE = ("kai_cp_controller_reconciles_total", {"controller": "podgrouper", "result": "done"})


class Running:
    """A host that runs, what it has to report, and the metrics that it exports."""

    def __init__(self, host: Host, writer: BackgroundWriter, registry: CollectorRegistry) -> None:
        self.host = host
        self.writer = writer
        self.registry = registry

    def settled(self) -> None:
        until(lambda: self.host.idle)
        assert self.writer.drain(PATIENCE_SECONDS)

    def series(self, name: str) -> dict[str, float]:
        """Values of a metric by the name of the queue."""
        lines = generate_latest(self.registry).decode().splitlines()
        found = {}
        for line in lines:
            if line.startswith(f"{name}{{"):
                found[line.split('queue_name="')[1].split('"')[0]] = float(line.split()[-1])
        return found


@contextmanager
def running(server: StubServer, *names: ControllerName, **options: Any) -> Iterator[Running]:
    transport = server.transport("controllers", access=access(names))
    writer = BackgroundWriter(1)
    registry = CollectorRegistry()
    recorder = Recorder(transport, writer, "test")
    factories = {str(name): CONTROLLERS[name] for name in names}
    host = Host(factories, transport, recorder, registry, ControllerOptions(**options), lost=lambda: None)
    try:
        host.informers.start()
        until(lambda: not host.informers.missing())
        host.start()
        yield Running(host, writer, registry)
    finally:
        host.stop()
        writer.stop()
        transport.close()


@contextmanager
def alone(server: StubServer, name: ControllerName) -> Iterator[Controller]:
    """A controller whose passes the test makes."""
    transport = server.transport("controllers", access=access([name]))
    informers, writer = Informers(transport), BackgroundWriter(1)
    recorder = Recorder(transport, writer, "test")
    context = Context(
        transport, informers, recorder, CollectorRegistry(), ControllerOptions(), lambda _keys: None
    )
    controller = CONTROLLERS[name](context)
    informers.start()
    try:
        until(lambda: not informers.missing())
        yield controller
    finally:
        informers.stop()
        writer.stop()


def queue(name: str, parent: str = "", **spec: Any) -> Object:
    body: Object = {
        "resources": {"gpu": {"quota": 4}, "cpu": {"quota": 2500}, "memory": {"quota": -1}},
        **spec,
    }
    if parent:
        body["parentQueue"] = parent
    return {"metadata": {"name": name}, "spec": body}


def group(name: str, queue_name: str, gpus: int) -> Object:
    sums = {"nvidia.com/gpu": str(gpus), "cpu": "500m"}
    status = {"resourcesStatus": {"requested": sums, "allocated": sums}}
    return {
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"queue": queue_name, "minMember": 1},
        "status": status,
    }


def held(server: StubServer, name: str) -> str:
    found = server.get(r.QUEUES, "", name) or {}
    return str(((found.get("status") or {}).get("allocated") or {}).get("nvidia.com/gpu", "0"))


def writes(server: StubServer) -> list[tuple[str, str]]:
    return [(method, path) for method, path, _ in server.log if method != "GET"]


@pytest.fixture
def tree(server: StubServer) -> StubServer:
    """A queue over two, with a group of three GPUs in the first."""
    for item in (queue("top", displayName="Everybody"), queue("a", "top"), queue("b", "top")):
        server.put(r.QUEUES, item)
    server.put(r.POD_GROUPS, group("g", "a", 3))
    return server


def test_sums_climb_to_the_top_and_children_are_sorted(tree: StubServer) -> None:
    with running(tree, "queue-controller") as run:
        until(lambda: [held(tree, name) for name in ("top", "a", "b")] == ["3", "3", "0"])
        until(
            lambda: (tree.get(r.QUEUES, "", "top") or {}).get("status", {}).get("childQueues") == ["a", "b"]
        )
        run.settled()
        assert run.series("kai_queue_allocated_gpus") == {"top": 3.0, "a": 3.0, "b": 0.0}
        assert run.series("kai_queue_deserved_gpus")["top"] == 4.0
        assert run.series("kai_queue_quota_cpu_cores")["top"] == 2.5
        assert run.series("kai_queue_quota_memory_bytes")["top"] == -1.0
        assert run.series("kai_queue_info") == {"top": 1.0, "a": 1.0, "b": 1.0}


def test_a_group_that_moves_leaves_its_queue_at_once(tree: StubServer) -> None:
    with running(tree, "queue-controller"):
        until(lambda: held(tree, "a") == "3")
        tree.put(r.POD_GROUPS, group("g", "b", 3))
        until(lambda: [held(tree, name) for name in ("top", "a", "b")] == ["3", "0", "3"])


def test_a_queue_that_goes_takes_its_series_and_its_parents_sums_along(tree: StubServer) -> None:
    with running(tree, "queue-controller") as run:
        until(lambda: held(tree, "top") == "3")
        tree.remove(r.QUEUES, "", "a")
        until(lambda: held(tree, "top") == "0")
        until(lambda: set(run.series("kai_queue_info")) == {"top", "b"})


def test_names_that_are_gone_are_forgotten(server: StubServer) -> None:
    """Namespaces, queues and nodes have new names each time, and the process runs for months."""
    transport = server.transport("controllers")
    writer = BackgroundWriter(1)
    recorder, options = Recorder(transport, writer, "test"), ControllerOptions()
    context = Context(
        transport, Informers(transport), recorder, CollectorRegistry(), options, lambda _keys: None
    )
    groups = context.informers.store(r.POD_GROUPS)
    sums = Sums(groups)
    owners = OwnerLookup(context, grouping_settings(options), lambda _seen: None, "")
    for number in range(3):
        one = group("g", f"q{number}", 1)
        one["metadata"]["namespace"] = f"ns{number}"
        groups.put(one)
        assert sums.of(f"q{number}")["allocated"] == {"nvidia.com/gpu": 1000, "cpu": 500}
        groups.remove(one)
    assert (len(sums._totals), len(owners._named)) == (0, 0)  # noqa: SLF001
    groups.put(group("stays", "q", 1))
    for number in range(3):
        one = group("g", "q", 1)
        one["status"]["resourcesStatus"] = {"requested": {f"invented.io/r{number}": "1"}}
        groups.put(one)
        groups.remove(one)
    assert sums.of("q")["requested"] == {"nvidia.com/gpu": 1000, "cpu": 500}
    writer.stop()


def test_only_pods_with_the_labels_are_read(server: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a thousand workers asks for the launcher of their job."""
    transport, writer = server.transport("controllers"), BackgroundWriter(1)
    recorder, options = Recorder(transport, writer, "test"), ControllerOptions()
    context = Context(
        transport, Informers(transport), recorder, CollectorRegistry(), options, lambda _keys: None
    )
    owners = OwnerLookup(context, grouping_settings(options), lambda _seen: None, "")
    job = {"training.kubeflow.org/job-name": "j"}
    for i in range(50):
        owners.pod_store.put(pod(f"worker-{i}", labels=job))
    wanted = {**job, "training.kubeflow.org/job-role": "launcher"}
    owners.pod_store.put(pod("launcher", labels=wanted))
    read: list[str] = []

    def counted(raw: Object, *more: str) -> Item:
        read.append(raw["metadata"]["name"])
        return item_of(raw, *more)

    monkeypatch.setattr("kai_cp.kube.controllers.owners.item_of", counted)
    assert [one.name for one in owners.pods("team-a", wanted)] == ["launcher"]
    assert read == ["launcher"]
    writer.stop()


def test_invented_resources_do_not_make_a_queues_status_too_large(tree: StubServer) -> None:
    """A queue is one object, and the server stores none of more than 1.5 MiB."""
    many = group("h", "a", 1)
    invented = {f"{i:04d}.invented.io/r": "1" for i in range(2 * MOST_NAMES)}
    held_too = {"cpu": "1", "zz.real.io/device": "2"}
    many["status"]["resourcesStatus"] = {"requested": {**invented, **held_too}, "allocated": held_too}
    tree.put(r.POD_GROUPS, many)

    def told(name: str) -> Object:
        return dict(((tree.get(r.QUEUES, "", name) or {}).get("status") or {}).get("requested") or {})

    with running(tree, "queue-controller"):
        for name in ("a", "top"):
            until(lambda name=name: told(name).get("zz.real.io/device") == "2")
            assert len(told(name)) == MOST_NAMES
            assert (told(name)["cpu"], told(name)["nvidia.com/gpu"]) == ("1500m", "3")


def test_queues_in_a_circle_are_summed_once_each(server: StubServer) -> None:
    server.put(r.QUEUES, queue("x", "y"))
    server.put(r.QUEUES, queue("y", "x"))
    server.put(r.POD_GROUPS, group("g", "x", 2))
    with running(server, "queue-controller") as run:
        until(lambda: [held(server, name) for name in ("x", "y")] == ["2", "2"])
        run.settled()


def test_labels_of_queues_become_labels_of_metrics(server: StubServer) -> None:
    item = queue("q")
    item["metadata"]["labels"] = {"team": "vision"}
    server.put(r.QUEUES, item)
    flags = {"queue_label_to_metric_label": "team=team,site=site"}
    flags["queue_label_to_default_metric_value"] = "site=north"
    with running(server, "queue-controller", **flags) as run:
        run.settled()
        text = until(
            lambda: next(
                (
                    x
                    for x in generate_latest(run.registry).decode().splitlines()
                    if x.startswith("kai_queue_info{")
                ),
                "",
            )
        )
        assert 'team="vision"' in text
        assert 'site="north"' in text


def test_an_unchanged_cluster_is_not_written_to(tree: StubServer) -> None:
    job = made("batch/v1", "Job", "train", spec={"parallelism": 1})
    served = {"kind": "Job", "name": "jobs", "namespaced": True}
    tree.objects["/apis/batch/v1"] = {"resources": [served]}
    tree.put(JOBS, job)
    member = pod("train-0", job)
    member["status"] = {"phase": "Running"}
    member["metadata"]["labels"] = {"kai.scheduler/queue": "a"}
    tree.put(r.PODS, member)
    with running(tree, *NAMES) as run:
        name = f"pg-train-{job['metadata']['uid']}"
        until(lambda: (tree.get(r.POD_GROUPS, "team-a", name) or {}).get("status") or {})
        until(lambda: held(tree, "a") == "1")  # The other group has no pods, so it holds nothing.
        run.settled()
    before = len(writes(tree))
    assert before > 3
    with running(tree, *NAMES) as run:
        run.settled()
        assert writes(tree)[before:] == []


def test_a_share_of_memory_counts_by_the_memory_of_its_node(server: StubServer) -> None:
    labels = {"nvidia.com/gpu.memory": "81920"}
    server.put(r.NODES, {"metadata": {"name": "n1", "labels": labels}})
    server.put(r.POD_GROUPS, {"metadata": {"name": "g", "namespace": "team-a"}, "spec": {"queue": "a"}})
    names = {"gpu-memory": "20000", "received-resource-type": "Fraction", "pod-group-name": "g"}
    member = pod("p", spec={"nodeName": "n1"}, annotations=names)
    member["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    member["status"] = {"phase": "Running"}
    server.put(r.PODS, member)

    def sums() -> Object:
        found = (server.get(r.POD_GROUPS, "team-a", "g") or {}).get("status") or {}
        status: Object = found.get("resourcesStatus") or {}
        return status

    with running(server, "podgroup-controller") as run:
        wanted = {"cpu": "1", "nvidia.com/gpu": "250m"}
        until(lambda: sums().get("allocated") == wanted)
        assert sums()["requested"] == {"cpu": "1", "run.ai/gpu.memory": "20000"}
        run.settled()
        assert sum("/nodes/n1" in path for _, path, _ in server.log) == 1


def test_a_group_on_many_nodes_is_looked_at_in_parts(
    server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who creates a pod may name its node, which need not exist; one pass asked for all of them."""
    monkeypatch.setattr("kai_cp.kube.controllers.podgroup.MOST_LOOKS", 3)
    server.put(r.POD_GROUPS, {"metadata": {"name": "g", "namespace": "team-a"}, "spec": {"queue": "a"}})
    for i in range(8):
        names = {"gpu-memory": "1", "pod-group-name": "g"}
        server.put(r.PODS, pod(f"p{i}", spec={"nodeName": f"no-{i}"}, annotations=names))
    with alone(server, "podgroup-controller") as controller:
        for asked in (3, 6):
            assert controller.reconcile(("team-a", "g"), 0) == PAUSE_SECONDS
            assert sum("/nodes/no-" in path for _, path, _ in server.log) == asked
            assert writes(server) == [], "sums of a part are not written"
        assert controller.reconcile(("team-a", "g"), 0) is None
        assert controller.reconcile(("team-a", "g"), 0) is None
        assert sum("/nodes/no-" in path for _, path, _ in server.log) == 8


def test_an_object_that_stays_faulty_is_logged_once(
    server: StubServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand pods without their owners were 166 lines a second."""
    monkeypatch.setattr("kai_cp.kube.api.workqueue.FIRST_SECONDS", 0.01)
    server.objects["/apis/batch/v1"] = {"resources": [{"kind": "Job", "name": "jobs", "namespaced": True}]}
    server.put(r.PODS, pod("train-0", made("batch/v1", "Job", "train", spec={})))
    with running(server, "podgrouper"):
        until(lambda: sum("/jobs/train" in path for _, path, _ in server.log) >= 5)
    assert [one.levelname for one in caplog.records if "not in order yet" in one.message] == ["WARNING"]


def test_an_owner_that_comes_late_is_waited_for_without_a_word(server: StubServer) -> None:
    job = made("batch/v1", "Job", "train", spec={})
    server.objects["/apis/batch/v1"] = {"resources": [{"kind": "Job", "name": "jobs", "namespaced": True}]}
    server.put(r.PODS, pod("train-0", job))
    with running(server, "podgrouper") as run:
        until(lambda: any("/jobs/train" in path for _, path, _ in server.log))
        server.put(JOBS, job)
        until(lambda: server.requests("POST", "podgroups"))
        until(lambda: server.requests("PATCH", "pods/train-0"))
        run.settled()
        assert not server.requests("POST", "events")


def test_an_owner_that_may_be_read_but_not_listed_is_read_for_each_pod(server: StubServer) -> None:
    """A grant may have only get. What was read for the first pod is not taken for what the owner says now."""
    job = made("batch/v1", "Job", "train", spec={})
    server.objects["/apis/batch/v1"] = {"resources": [{"kind": "Job", "name": "jobs", "namespaced": True}]}
    server.put(JOBS, job)
    server.faults = lambda _method, path: (403, {}) if "/jobs?" in path else None
    server.put(r.PODS, pod("train-0", job))

    def least() -> Any:
        name = f"pg-train-{job['metadata']['uid']}"
        return (server.get(r.POD_GROUPS, "team-a", name) or {"spec": {}})["spec"].get("minMember")

    with running(server, "podgrouper"):
        until(lambda: least() == 1)
        job["metadata"]["annotations"] = {"kai.scheduler/batch-min-member": "2"}
        server.put(JOBS, job)
        server.put(r.PODS, pod("train-1", job))
        until(lambda: least() == 2)


def test_an_owner_of_a_kind_that_is_never_listed_is_no_defect(
    server: StubServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Any pod may name a ConfigMap as its owner, and the grouper may get one, for its defaults."""
    owner = made("v1", "ConfigMap", "mine", spec={})
    kinds = [{"kind": "ConfigMap", "name": "configmaps", "namespaced": True}]
    server.objects["/api/v1"] = {"resources": kinds}
    server.put(r.CONFIG_MAPS, owner)
    server.put(r.PODS, pod("p-0", owner))
    with running(server, "podgrouper") as run:
        until(lambda: server.requests("POST", "podgroups"))
        run.settled()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_status_that_says_nothing_about_its_group_touches_no_pod(
    server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status of a RayJob changes with each of its pods, and all would be grouped anew each time."""
    monkeypatch.setattr("tests.kai_cp.kube.stub.PLURALS", {*PLURALS, "rayjobs", "rayclusters"})
    kinds = {"RayJob": "rayjobs", "RayCluster": "rayclusters"}
    listed = [{"kind": kind, "name": name, "namespaced": True} for kind, name in kinds.items()]
    server.objects["/apis/ray.io/v1"] = {"resources": listed}
    jobs, clusters = (Resource("ray.io", "v1", name, kind) for kind, name in kinds.items())
    job, *clusters_of = (
        made("ray.io/v1", "RayJob", "j", spec={}, status={"rayClusterName": "c", "message": "starts"}),
        *(made("ray.io/v1", "RayCluster", name, spec={"headGroupSpec": {}}) for name in "cd"),
    )
    server.put(jobs, job)
    for one in clusters_of:
        server.put(clusters, one)
    server.put(r.PODS, pod("j-head", job))

    def said(**status: str) -> None:
        server.put(jobs, {**job, "status": {**job["status"], **status}})

    with running(server, "podgrouper") as run:
        until(lambda: server.requests("PATCH", "pods/j-head"))
        until(lambda: run.host.informers.listed(jobs) and run.host.informers.listed(clusters))
        run.settled()
        before = run.registry.get_sample_value(*DONE)
        said(message="one of 1,000 pods runs")
        server.put(jobs, made("ray.io/v1", "RayJob", "later", spec={}))
        until(lambda: run.host.informers.store(jobs).get(("team-a", "later")))
        run.settled()
        assert run.registry.get_sample_value(*DONE) == before
        said(rayClusterName="d")
        until(lambda: run.registry.get_sample_value(*DONE) != before)


def test_a_maximum_run_time_stays_as_it_was_first_written(server: StubServer) -> None:
    """Starts were promised by it. The workload says more later: the group keeps its own, and says so."""
    maximum = "kai-cp/max-runtime"
    job = made("batch/v1", "Job", "train", spec={}, annotations={maximum: "10m"})
    server.objects["/apis/batch/v1"] = {"resources": [{"kind": "Job", "name": "jobs", "namespaced": True}]}
    server.put(JOBS, job)
    server.put(r.PODS, pod("train-0", job))

    def notes() -> Any:
        name = f"pg-train-{job['metadata']['uid']}"
        return (server.get(r.POD_GROUPS, "team-a", name) or {"metadata": {}})["metadata"].get("annotations")

    with running(server, "podgrouper"):
        until(lambda: (notes() or {}).get(maximum) == "10m")
        job["metadata"]["annotations"] = {maximum: "1000h", "mine": "x"}
        server.put(JOBS, job)
        server.put(r.PODS, pod("train-1", job))
        until(lambda: notes().get("mine") == "x")
        assert notes()[maximum] == "10m"
        kept = "MaxRuntimeKept"
        said = until(lambda: [e for e in server.requests("POST", "events") if e["reason"] == kept])
        assert 'says kai-cp/max-runtime "1000h", and the pod group keeps "10m"' in said[0]["message"]


def test_a_pod_group_of_which_an_outline_is_kept_is_not_written_for_each_pod(server: StubServer) -> None:
    job = made("batch/v1", "Job", "train", spec={})
    server.objects["/apis/batch/v1"] = {"resources": [{"kind": "Job", "name": "jobs", "namespaced": True}]}
    server.put(JOBS, job)
    parts = [{"name": f"{'x' * 50}-{i}", "minMember": 1} for i in range(7_000)]
    meta = {"name": f"pg-train-{job['metadata']['uid']}", "namespace": "team-a"}
    server.put(r.POD_GROUPS, {"metadata": meta, "spec": {"subGroups": parts}})
    for i in range(3):
        server.put(r.PODS, pod(f"train-{i}", job))
    with running(server, "podgrouper"):
        said = until(lambda: server.requests("POST", "events"))
        assert said[0]["message"] == f"PodGroup team-a/{meta['name']}: {WHY}"
        assert all("/events" in path for _, path in writes(server))


def test_an_owner_too_large_to_be_kept_is_not_fetched_for_each_pod(
    server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.kai_cp.kube.stub.PLURALS", {*PLURALS, "jobs"})
    job = made("batch/v1", "Job", "train", spec={})
    job["metadata"]["labels"] = {f"example.com/{'k' * 50}{i}": "x" for i in range(9_000)}
    server.objects["/apis/batch/v1"] = {"resources": [{"kind": "Job", "name": "jobs", "namespaced": True}]}
    server.put(JOBS, job)
    server.put(r.PODS, pod("train-0", job))

    def fetched() -> int:
        return sum(path.endswith("/jobs/train") for _, path, _ in server.log)

    with running(server, "podgrouper") as run:
        said = until(lambda: server.requests("POST", "events"))
        assert said[0]["message"] == f"Job team-a/train: {WHY}"
        until(lambda: run.host.informers.listed(JOBS))
        before = fetched()
        for i in range(1, 4):
            server.put(r.PODS, pod(f"train-{i}", job))
        until(lambda: len({e["involvedObject"]["name"] for e in server.requests("POST", "events")}) == 4)
        assert fetched() == before
        assert all("/events" in path for _, path in writes(server))


def declared(name: ControllerName) -> set[tuple[str, str]]:
    return {(grant.group, grant.resource) for grant in ACCESS[name] if grant.verb == "watch"}


@pytest.mark.parametrize("name", NAMES)
def test_a_controller_watches_what_it_may_and_may_what_it_watches(
    name: ControllerName, server: StubServer
) -> None:
    options = {"namespace_label_selector": "a=b"}
    with running(server, name, **options) as run:
        wants = run.host.followed()
    watched = {(resource.group, resource.plural) for resource in wants}
    owners = {(kind.group, kind.plural) for kind in OWNERS} if name == "podgrouper" else set()
    assert watched | owners == declared(name)


def test_a_part_that_is_off_has_no_rights() -> None:
    alone = rights(["queue-controller"])
    assert not any(grant.resource.startswith("pods") for grant in alone)
    allowed = access(("queue-controller",))
    asked: Callable[[str, Resource], bool] = lambda verb, kind: allowed("controllers", verb, kind, "", "x")  # type: ignore[arg-type]  # noqa: E731
    assert not asked("get", Resource("example.com", "v1", "fleets", "Fleet"))
    assert access(("podgrouper",))("controllers", "get", Resource("example.com", "v1", "f", "F"), "", "x")
    assert not access(NAMES)("controllers", "get", Resource("", "v1", "secrets", "Secret"), "", "x")
    assert not access(NAMES)("controllers", "patch", Resource("example.com", "v1", "f", "F"), "", "x")


def test_a_wrong_flag_is_named() -> None:
    for text in ("team", "team=queue_name", "team=a-b"):
        with pytest.raises(ValueError, match="--queue-label-to-metric-label"):
            metric_labels(ControllerOptions(queue_label_to_metric_label=text))


def test_controllers_are_chosen_by_name() -> None:
    assert chosen("queue-controller, podgrouper") == ["podgrouper", "queue-controller"]
    with pytest.raises(ValueError, match=r"--controllers: 'grouper' is none; there are podgrouper"):
        chosen("grouper")
    with pytest.raises(ValueError, match="none is named"):
        chosen("")
