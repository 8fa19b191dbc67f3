"""After every fault: no pod lost, none bound twice, no partial gang left, no eviction repeated."""

from __future__ import annotations

import itertools
import signal
import time
from collections import Counter

import pytest

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.demo.controlplane import ControlPlane
from tests.e2e.proxy import Fault, FaultyProxy
from tests.e2e.world import PATIENCE_SECONDS, Program, World, condition, holds_room

LEASE_SECONDS = 10
LEASE = f"--lease-seconds={LEASE_SECONDS},6,1"
"""Short, and long enough for a busy machine to renew it."""


def binds(proxy: FaultyProxy) -> Counter[str]:
    """Binding calls by pod."""
    return Counter(
        path.split("/")[-2] for _, m, path in proxy.seen if path.endswith("/binding") and m == "POST"
    )


def orders(proxy: FaultyProxy) -> int:
    """The BindRequests that were created."""
    return sum(m == "POST" and path.endswith("/bindrequests") for _, m, path in proxy.seen)


def misses_the_server(program: Program) -> bool:
    """Whether it has noticed that the API server is gone."""
    return any("the watch of a kind failed" in line["message"] for line in program.lines())


def is_refused(world: World, name: str) -> bool:
    """Whether the server refuses to bind a pod of this name; it takes a while to see policies."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    try:
        world.api.create(r.PODS, world.namespace, body, name=name, subresource="binding")
    except ApiError as error:
        return name in error.message and error.status != 404
    return False


def test_an_unchanged_cluster_is_not_written_to(world: World, control_plane: ControlPlane) -> None:
    world.add_nodes(2, gpus=4)
    queue = world.add_queue()
    with FaultyProxy(control_plane) as proxy:
        world.scheduler(url=proxy.url)
        world.binder(url=proxy.url)
        world.add_gang("runs", queue, 4)
        world.add_gang("waits", queue, 8)
        world.until(lambda: len(world.running()) == 4, "the first gang runs")
        world.until(
            lambda: (world.group("waits").get("status") or {}).get("schedulingConditions"), "said why"
        )
        world.settles(lambda: (len(proxy.writes()), len(world.events())), "writes", 6.0)


def test_killed_between_two_binds_of_a_gang(world: World, control_plane: ControlPlane) -> None:
    world.add_nodes(2)
    queue = world.add_queue()
    with FaultyProxy(control_plane) as proxy:
        number = itertools.count(1)

        def slow_after_three(method: str, path: str) -> Fault | None:
            if method == "POST" and path.endswith("/bindrequests") and next(number) > 3:
                return Fault(delay=30.0, status=500)
            return None

        proxy.rule = slow_after_three
        first = world.scheduler(url=proxy.url)
        world.binder()
        world.add_gang("gang", queue, 16)
        world.until(lambda: len(world.running()) == 3, "three pods run")
        first.kill(signal.SIGKILL)
        uids = {pod["metadata"]["uid"] for pod in world.pods()}
        world.scheduler()
        world.until(lambda: len(world.running()) == 16, "the gang is whole")
        assert {pod["metadata"]["uid"] for pod in world.pods()} == uids
        assert not world.events("Evict")


def test_killed_between_eviction_and_bind(world: World) -> None:
    world.add_nodes(1)
    queue = world.add_queue()
    first = world.scheduler()
    world.binder()
    world.api.create(r.PRIORITY_CLASSES, "", {"metadata": {"name": f"{world.name}-high"}, "value": 80})
    world.add_gang("low", queue, 8, grace=4, preemptibility="preemptible")
    world.until(lambda: len(world.running("low")) == 8, "the victims run")
    world.add_gang("high", queue, 8, priorityClassName=f"{world.name}-high")
    world.until(lambda: not world.running("low"), "the victims are told to end")
    first.kill(signal.SIGKILL)
    world.scheduler()
    world.until(lambda: len(world.running("high")) == 8, "the preemptor runs")
    world.stays(lambda: len(world.running("high")) == 8, 3.0)
    assert len(world.events("Evict")) <= 1
    world.api.delete(r.PRIORITY_CLASSES, "", f"{world.name}-high")


def test_binder_killed_while_binding(world: World, control_plane: ControlPlane) -> None:
    world.add_nodes(2)
    queue = world.add_queue()
    with FaultyProxy(control_plane) as proxy:
        number = itertools.count(1)

        def slow(method: str, path: str) -> Fault | None:
            return Fault(delay=20.0) if path.endswith("/binding") and next(number) > 4 else None

        proxy.rule = slow
        world.scheduler()
        first = world.binder(url=proxy.url)
        world.add_gang("gang", queue, 12)
        world.until(lambda: len(world.running()) == 4, "four are bound")
        first.kill(signal.SIGKILL)
        world.binder()
        world.until(lambda: len(world.running()) == 12, "all are bound")


def test_api_server_restarted(world: World, control_plane: ControlPlane) -> None:
    world.add_nodes(2)
    queue = world.add_queue()
    programs = [world.scheduler(), world.binder()]
    world.add_gang("before", queue, 4)
    world.until(lambda: len(world.running("before")) == 4, "the first gang runs")
    control_plane.kill("kube-apiserver")
    world.until(lambda: all(misses_the_server(program) for program in programs), "all miss it")
    control_plane.start_apiserver()
    world.add_gang("after", queue, 4)
    world.until(lambda: len(world.running("after")) == 4, "the second gang runs")
    assert len(world.running("before")) == 4
    assert all(process.poll() is None for process in world.processes)


def test_bad_network(world: World, control_plane: ControlPlane) -> None:
    """Watches dropped, 410, 429 with Retry-After, 500s, slow and lost answers, all at once."""
    world.add_nodes(4)
    queue = world.add_queue()
    with FaultyProxy(control_plane) as proxy:
        number = itertools.count(1)

        def rule(method: str, path: str) -> Fault | None:
            if "/leases" in path:
                return None
            match next(number) % 13:
                case 2:
                    return Fault(status=500)
                case 5:
                    return Fault(status=429, retry_after="1")
                case 7 if "watch=1" in path:
                    return Fault(status=410)
                case 8 if method == "POST":
                    return Fault(lose_answer=True)
                case 11:
                    return Fault(delay=0.3)
            return None

        world.scheduler(url=proxy.url)
        world.binder(url=proxy.url)
        proxy.rule = rule
        for i in range(4):
            world.add_gang(f"gang{i}", queue, 8)
            world.until(lambda i=i: any(map(holds_room, world.pods(f"gang{i}"))), "the gang is being bound")
            proxy.drop_connections()
        world.until(lambda: len(world.running()) == 32, "everything runs")
        assert not world.events("Evict")
        assert all(process.poll() is None for process in world.processes)


def test_bound_pods_keep_their_devices_when_every_answer_is_lost(
    world: World, control_plane: ControlPlane
) -> None:
    """Of each binding all answers are lost, so only the pod says that it was made."""
    world.add_nodes(1, gpus=2)
    queue = world.add_queue()
    with FaultyProxy(control_plane) as proxy:
        lost = Fault(lose_answer=True)
        proxy.rule = lambda _, path: lost if path.endswith("/binding") else None
        world.scheduler()
        world.binder(url=proxy.url)
        for i in range(4):
            world.add_group(f"f{i}", queue)
            notes = {"gpu-fraction": "0.5", "runai/shared-gpu-configmap": f"f{i}-abc1234-shared-gpu"}
            world.add_pod(f"f{i}", f"f{i}", gpus=0, annotations=notes)
        world.until(lambda: len(world.running()) == 4, "all run")

        def phases() -> set[str]:
            items = world.api.raw(r.BIND_REQUESTS.path(world.namespace))["items"]
            return {(item.get("status") or {}).get("phase") for item in items}

        world.until(lambda: phases() == {"Succeeded"}, "every order is closed")
        assert len({pod["metadata"]["labels"]["runai-gpu-group"] for pod in world.pods()}) == 2
        for i in range(4):
            name = f"f{i}-abc1234-shared-gpu-0"
            assert world.api.get(r.CONFIG_MAPS, world.namespace, name) is not None
        assert not world.events("BindingError")


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(status=500), id="500"),
        pytest.param(Fault(status=429, retry_after="1"), id="429"),
        pytest.param(Fault(status=409), id="409"),
        pytest.param(Fault(status=410), id="410"),
        pytest.param(Fault(delay=1.5), id="slow"),
        pytest.param(Fault(delay=25.0, status=504), id="no-answer"),
        pytest.param(Fault(lose_answer=True), id="lost-answer"),
    ],
)
def test_one_fault_at_a_time(world: World, control_plane: ControlPlane, fault: Fault) -> None:
    """Every fourth request has a fault; lost answers and conflicts hit only writes, 410 only lists and
    watches.
    """
    world.add_nodes(2)
    queue = world.add_queue()
    with FaultyProxy(control_plane) as proxy:
        number = itertools.count(1)
        met: set[tuple[str, str]] = set()

        def rule(method: str, path: str) -> Fault | None:
            if (fault.status == 409 or fault.lose_answer) and method == "GET":
                return None
            if fault.status == 410 and method != "GET":
                return None
            if fault.status == 409 and (method, path) in met:
                return None
            met.add((method, path))
            return fault if next(number) % 4 == 0 else None

        world.scheduler(url=proxy.url)
        world.binder(url=proxy.url)
        world.add_gang("before", queue, 4)
        world.until(lambda: len(world.running("before")) == 4, "the first gang runs")
        proxy.rule = rule
        proxy.drop_connections()
        world.add_gang("after", queue, 8)
        world.until(lambda: len(world.running("after")) == 8, "the second gang runs")
        assert len(world.running("before")) == 4
        assert not world.events("Evict")
        assert all(process.poll() is None for process in world.processes)


def test_old_leader_writes_nothing_after_its_lease(world: World, control_plane: ControlPlane) -> None:
    world.add_nodes(2)
    queue = world.add_queue()
    lease = ("--leader-elect", LEASE)
    with FaultyProxy(control_plane) as proxy:
        first = world.scheduler(*lease, url=proxy.url)
        world.binder()
        world.add_gang("one", queue, 2)
        world.until(lambda: len(world.running()) == 2, "the leader schedules")
        second = world.scheduler(*lease, user="scheduler2")
        world.until(second.ready, "the second is ready to lead")
        first.kill(signal.SIGSTOP)
        world.add_gang("two", queue, 4)
        world.until(lambda: len(world.running("two")) == 4, "the second leads")
        stopped = time.time()
        world.add_gang("three", queue, 4)
        first.kill(signal.SIGCONT)
        world.until(lambda: first.poll() is not None, "the first ends")
        assert first.poll() == 3
        assert [w for w in proxy.writes() if w[0] >= stopped] == []
        world.until(lambda: len(world.running("three")) == 4, "the second goes on")


def test_lease_lost_while_writing(world: World, control_plane: ControlPlane) -> None:
    """The lease cannot be renewed while a gang is being bound: writing stops with the lease."""
    world.add_nodes(4)
    queue = world.add_queue()
    with FaultyProxy(control_plane) as proxy:

        def rule(method: str, path: str) -> Fault | None:
            if "/leases" in path and blocked:
                return Fault(status=500)
            return Fault(delay=4.0) if path.endswith("/bindrequests") and method == "POST" else None

        blocked: list[bool] = []
        proxy.rule = rule
        first = world.scheduler("--leader-elect", LEASE, url=proxy.url)
        world.until(lambda: any(line["message"] == "scheduling" for line in first.lines()), "it leads")
        blocked.append(True)
        cut = time.time()
        world.add_gang("gang", queue, 32)
        world.until(lambda: first.poll() is not None, "it ends")
        assert first.poll() == 3
        assert all(at < cut + LEASE_SECONDS for at, _, _ in proxy.writes())
        proxy.rule = lambda _method, _path: None
        world.scheduler()
        world.binder()
        world.until(lambda: len(world.running()) == 32, "the next one completes the gang")


def test_pod_node_and_queue_deleted_in_the_middle(world: World, control_plane: ControlPlane) -> None:
    world.add_nodes(3)
    queue, doomed = world.add_queue(), world.add_queue("doomed")
    with FaultyProxy(control_plane) as proxy:

        def slow(method: str, path: str) -> Fault | None:
            return Fault(delay=1.5) if path.endswith("/bindrequests") and method == "POST" else None

        proxy.rule = slow
        scheduler = world.scheduler(url=proxy.url)
        world.binder()
        world.add_gang("gang", queue, 8)
        world.add_gang("other", doomed, 2)
        world.until(lambda: orders(proxy) > 0, "binds are on their way")
        world.api.delete(r.PODS, world.namespace, "gang-3", grace=0)
        gone = world.nodes.pop(0)
        world.api.delete(r.NODES, "", gone)
        world.api.delete(r.QUEUES, "", doomed)
        world.queues.remove(doomed)
        world.add_pod("gang-new", "gang")
        proxy.rule = lambda _method, _path: None

        def whole() -> bool:
            placed = [p for p in world.running("gang") if p["spec"]["nodeName"] != gone]
            if len(placed) == 8:
                return True
            # The controller deletes the pod of the deleted node and makes a new one.
            for pod in world.pods("gang"):
                if pod["spec"].get("nodeName") == gone:
                    world.api.delete(r.PODS, world.namespace, pod["metadata"]["name"], grace=0)
                    world.add_pod(f"{pod['metadata']['name']}-r", "gang")
            return False

        world.until(whole, "the gang runs on what is left")
        assert scheduler.poll() is None


def test_a_queue_deleted_in_the_middle_of_a_cycle(world: World, control_plane: ControlPlane) -> None:
    world.add_nodes(1, gpus=4)
    queue, doomed = world.add_queue(), world.add_queue("doomed")
    with FaultyProxy(control_plane) as proxy:

        def slow(method: str, path: str) -> Fault | None:
            return Fault(delay=2.0) if path.endswith("/bindrequests") and method == "POST" else None

        proxy.rule = slow
        scheduler = world.scheduler(url=proxy.url)
        world.binder()
        world.add_gang("first", queue, 2)
        world.until(lambda: orders(proxy) > 0, "a cycle writes")
        world.add_gang("orphan", doomed, 2)
        world.api.delete(r.QUEUES, "", doomed)
        world.queues.remove(doomed)
        proxy.rule = lambda _method, _path: None
        world.add_gang("second", queue, 2)
        world.until(lambda: len(world.running("second")) == 2, "others are served")

        def told() -> bool:
            conditions = (world.group("orphan").get("status") or {}).get("schedulingConditions") or [{}]
            return any(x["reason"] == "QueueDoesNotExist" for x in conditions[-1].get("reasons", ()))

        world.until(told, "the orphans are told why they wait")
        assert not world.running("orphan")
        assert scheduler.poll() is None


def test_another_scheduler_takes_the_place(world: World, control_plane: ControlPlane) -> None:
    world.add_nodes(2, gpus=4)
    queue = world.add_queue()
    with FaultyProxy(control_plane) as proxy:

        def slow(method: str, path: str) -> Fault | None:
            return Fault(delay=2.0) if path.endswith("/binding") else None

        proxy.rule = slow
        world.scheduler()
        world.binder(url=proxy.url)
        world.add_gang("gang", queue, 4)
        limits = {"cpu": "1", "nvidia.com/gpu": "4"}
        target = world.until(
            lambda: binds(proxy) and world.api.get(r.BIND_REQUESTS, world.namespace, "gang-0"),
            "the gang is being bound",
        )
        foreign = {
            "metadata": {"name": "foreign", "namespace": world.namespace, "annotations": {}},
            "spec": {
                "schedulerName": "somebody-else",
                "nodeName": target["spec"]["selectedNode"],
                "containers": [{"name": "c", "image": "none", "resources": {"limits": limits}}],
            },
        }
        world.api.create(r.PODS, world.namespace, foreign)
        proxy.rule = lambda _method, _path: None
        world.until(lambda: len(world.running("gang")) == 4, "the gang runs all the same")
        assert max(binds(proxy).values()) == 1
        # The kubelet refuses pods of the overfull node; new pods are placed elsewhere.
        world.add_gang("next", queue, 4, gpus=1)
        world.until(lambda: len(world.running("next")) == 4, "the next gang finds the other node")
        assert target["spec"]["selectedNode"] not in {p["spec"]["nodeName"] for p in world.running("next")}


def test_a_bind_refused_for_ever_starves_no_other(world: World) -> None:
    world.add_nodes(1, gpus=2)
    queue = world.add_queue()
    policy = {
        "metadata": {"name": f"{world.name}-refuse"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["pods/binding"],
                        "operations": ["*"],
                    }
                ]
            },
            "validations": [
                {"expression": "!request.name.startsWith('cursed')", "message": "cursed pods stay unbound"}
            ],
        },
    }
    world.api.create(r.ADMISSION_POLICIES, "", policy)
    world.api.create(
        r.ADMISSION_POLICY_BINDINGS,
        "",
        {
            "metadata": {"name": f"{world.name}-refuse"},
            "spec": {
                "policyName": f"{world.name}-refuse",
                "validationActions": ["Deny"],
                "matchResources": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}
                },
            },
        },
    )
    world.until(lambda: is_refused(world, "cursed"), "the server knows the policy")
    try:
        world.scheduler()
        world.binder()
        world.api.create(r.PRIORITY_CLASSES, "", {"metadata": {"name": f"{world.name}-high"}, "value": 90})
        world.add_gang("cursed", queue, 2, priorityClassName=f"{world.name}-high")
        world.until(lambda: condition(world.pods("cursed")[0], "PodBound"), "the refusal is told")
        world.add_gang("patient", queue, 2)
        world.until(lambda: len(world.running("patient")) == 2, "others are served")
        said = condition(world.pods("cursed")[0], "PodBound")
        assert said is not None
        assert said["status"] == "False"
        assert "cursed pods stay unbound" in said["message"]
    finally:
        world.api.delete(r.ADMISSION_POLICY_BINDINGS, "", f"{world.name}-refuse")
        world.api.delete(r.ADMISSION_POLICIES, "", f"{world.name}-refuse")
        world.api.delete(r.PRIORITY_CLASSES, "", f"{world.name}-high")


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_modes_that_do_not_bind(world: World, control_plane: ControlPlane, mode: str) -> None:
    world.add_nodes(1)
    queue = world.add_queue()
    with FaultyProxy(control_plane) as proxy:
        scheduler = world.scheduler(f"--mode={mode}", url=proxy.url)
        world.binder()
        world.add_gang("gang", queue, 4)
        world.add_gang("big", queue, 16)
        world.until(lambda: any(line.get("unscheduled") == 1 for line in scheduler.lines()), "a plan")
        world.stays(lambda: orders(proxy) == 0 and not world.running(), 3.0)

        def told() -> bool:
            return bool((world.group("big").get("status") or {}).get("schedulingConditions"))

        if mode == "advise":
            world.until(told, "it says why")
        assert told() == bool(proxy.writes()) == (mode == "advise")


def test_observe_compares_with_what_really_happens(world: World) -> None:
    """Another scheduler, here one of ours, places the pods as it likes, or evicts them."""
    world.add_nodes(1)
    queue = world.add_queue()
    watcher = world.scheduler("--mode=observe")
    world.until(lambda: any(x["message"] == "scheduling" for x in watcher.lines()), "it observes")
    world.add_gang("low", queue, 4, preemptibility="preemptible")
    world.until(lambda: any(line.get("binds") == 4 for line in watcher.lines()), "it has a plan")
    world.scheduler(user="scheduler2")
    world.binder()
    world.until(lambda: len(world.running("low")) == 4, "the other one acts")

    def observed() -> Counter[str]:
        found: Counter[str] = Counter()
        for line in watcher.lines():
            if line["message"] == "compared with what happened":
                found.update({name: n for name, n in line.items() if isinstance(n, int)})
        return found

    world.until(lambda: observed() == {"same_node": 4}, "it has seen so")


def test_credentials_refused(world: World, control_plane: ControlPlane) -> None:
    with FaultyProxy(control_plane) as proxy:
        first = world.scheduler(url=proxy.url)
        world.until(lambda: any(line["message"] == "scheduling" for line in first.lines()), "it runs")
        proxy.rule = lambda _method, _path: Fault(status=401)
        proxy.drop_connections()
        world.until(lambda: first.poll() == 4, "it ends")


def test_terminated_on_request(world: World) -> None:
    scheduler = world.scheduler("--leader-elect")
    binder = world.binder("--leader-elect")
    for program, message in ((scheduler, "scheduling"), (binder, "binding")):
        world.until(lambda p=program, m=message: any(x["message"] == m for x in p.lines()), "it runs")
    for program, lease in ((scheduler, f"kai-scheduler-{world.pool}"), (binder, "kai-cp-binder")):
        program.kill(signal.SIGTERM)
        assert program.wait(PATIENCE_SECONDS) == 0
        found = world.api.get(r.LEASES, "kai-scheduler", lease)
        assert found is not None
        assert not found["spec"].get("holderIdentity"), "the next one need not wait"
