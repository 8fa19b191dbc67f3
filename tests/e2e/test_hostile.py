"""One tenant cannot hurt another: an account that may create pods, pod groups and claims in one namespace.

The wait of a victim is counted in cycles, first undisturbed and then beside each attack.
"""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kai_cp.kube.api import resources as r
from kai_cp.kube.demo.controlplane import ControlPlane
from tests.e2e.cycles import cycles_until_bound, snapshot
from tests.e2e.hostile import ATTACKS, Attack, Attacker, devices
from tests.e2e.nonsense import READ, Nonsense, served
from tests.e2e.proxy import Fault, FaultyProxy
from tests.e2e.workloads import Workloads
from tests.e2e.world import Program, World


class Stage:
    """A cluster in which attacks follow each other; the objects stay, so each attack adds to those before."""

    def __init__(self, world: World, settings: Path) -> None:
        self.world = world
        # A busy machine cuts no cycle short; what is then undecided would cost the victim another cycle.
        settings.write_text("solver: {budget_seconds: 5}\n")
        self._flag = f"--settings={settings}"
        # Too few pods fit for the costliest gang, and enough GPUs are free for a victim beside every attack.
        world.add_nodes(8, gpus=16)
        devices(world)
        self.attacker = Attacker(world)
        self.queue = world.add_queue()
        self.start()
        world.binder()
        self.waited("first")
        self.undisturbed = self.waited("undisturbed")

    def start(self) -> None:
        """Start the scheduler."""
        self.scheduler = self.world.scheduler(self._flag)

    def waited(self, victim: str) -> int:
        """Cycles that a gang waits until it is bound."""
        cycles = cycles_until_bound(self.world, self.scheduler, victim, self.queue)
        self.world.until(lambda: len(self.world.running(victim)) == 4, f"{victim} runs")
        return cycles

    def close(self) -> None:
        for process in self.world.processes:
            process.kill()
        self.world.api.delete(r.RESOURCE_SLICES, "", f"{self.world.name}-slice")
        self.attacker.close()


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    world = World(control_plane, "hostile")
    try:
        made = Stage(world, tmp_path_factory.mktemp("stage") / "settings.yaml")
        yield made
        world.until(lambda: not world.audit(), "nothing is left half done")
        made.close()
    finally:
        world.close()


@pytest.fixture
def attacker(world: World) -> Iterator[Attacker]:
    made = Attacker(world)
    yield made
    made.close()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: str(attack.__name__))
def test_a_victim_waits_at_most_twice_as_long_and_the_attacker_gets_a_reason(
    stage: Stage, attack: Attack
) -> None:
    told = attack(stage.attacker)
    victim = attack.__name__.replace("_", "-")
    assert stage.waited(victim) <= 2 * stage.undisturbed
    stage.world.until(lambda: stage.attacker.told(*told), f"an event says why: {told}")


def test_a_new_process_meets_all_of_it_in_its_first_lists(stage: Stage) -> None:
    stage.scheduler.kill()
    stage.start()
    stage.waited("restarted")
    assert stage.waited("afterwards") <= 2 * stage.undisturbed


OPTIONAL = {"nodeResourceTopologies", "deviceTaintRules", "resourceClaims", "resourceSlices", "deviceClasses"}
"""Kinds that an API server need not serve."""


def test_nonsense_of_every_kind_loses_no_cycle_no_thread_and_no_memory(
    world: World, attacker: Attacker
) -> None:
    world.add_nodes(4)
    queue = world.add_queue()
    scheduler, binder, controllers = world.scheduler(), world.binder(), world.controllers()
    cycles_until_bound(world, scheduler, "first", queue)
    undisturbed = cycles_until_bound(world, scheduler, "undisturbed", queue)
    processes = (scheduler, binder, controllers)
    before = [process.memory_bytes() for process in processes]
    nonsense = Nonsense(world, attacker.namespace, seed=11)
    kinds = served(world)
    assert set(READ) - set(kinds) <= OPTIONAL
    try:
        for i in range(4):
            for key in kinds:
                for j in range(4):
                    nonsense.send(key, nonsense.spoiled(key, f"{world.name}-nonsense-{i}-{j}"))
            assert cycles_until_bound(world, scheduler, f"victim-{i}", queue) <= 2 * undisturbed
        taken = {key for key, _ in nonsense.made}
        # A thread that died would not see later objects.
        after = f"{world.name}-after"
        refused = [key for key in kinds if not nonsense.send(key, nonsense.sound(key, after))]
        assert not refused
        world.until(lambda: unseen(scheduler, kinds, after) == [], "every kind is still followed")
        assert len(taken) > len(kinds) // 2, taken
        after_all = [process.memory_bytes() for process in processes]
        assert all(now < 2 * once for now, once in zip(after_all, before, strict=True)), (before, after_all)
    finally:
        nonsense.remove()
    cycles_until_bound(world, scheduler, "last", queue)
    for process in processes:
        assert process.poll() is None
        failed = [line for line in process.lines() if line.get("level") == "error" or "problem" in line]
        assert not failed, failed[:3]


def unseen(scheduler: Program, kinds: list[str], name: str) -> list[str]:
    """The kinds of which the scheduler does not know an object of that name."""
    objects = snapshot(scheduler)
    return [key for key in kinds if name not in {item["metadata"]["name"] for item in objects[key] or ()}]


def test_a_label_on_any_pod_stops_no_sharing(world: World, attacker: Attacker) -> None:
    world.add_nodes(1)
    queue = world.add_queue()
    attacker.pod("scaling", labels={"app": "scaling-pod"})
    world.scheduler()
    world.binder("--resource-reservation-allocation-timeout=2s")
    world.add_group("half", queue)
    world.add_pod("half", "half", gpus=0, annotations={"gpu-fraction": "0.5"})

    def reserved() -> bool:
        items = world.api.raw(r.PODS.path("kai-resource-reservation"))["items"]
        return any(item["spec"].get("nodeName") in world.nodes for item in items)

    world.until(reserved, "a GPU is reserved for the victim")


def test_a_label_makes_no_gpu_free(world: World, attacker: Attacker) -> None:
    """The audit of the world fails if the victim is bound to a full node."""
    world.add_nodes(1, gpus=2)
    queue = world.add_queue()
    world.scheduler()
    world.binder()
    attacker.group("taken", 2)
    for i in range(2):
        attacker.pod(
            f"taken-{i}",
            "taken",
            requests={"nvidia.com/gpu": "1"},
            labels={"app": "kai-resource-reservation"},
        )

    def running() -> int:
        items = world.api.raw(r.PODS.path(attacker.namespace))["items"]
        return sum(item["status"].get("phase") == "Running" for item in items)

    world.until(lambda: running() == 2, "the attacker's pods run")
    world.add_gang("victim", queue, 1, 2)
    world.stays(lambda: not world.running("victim"), 4.0)


def test_orders_of_one_tenant_hold_no_other_up(
    world: World, attacker: Attacker, control_plane: ControlPlane
) -> None:
    """Each takes a second to be stored, so all take 25 s: a gang that comes after them is bound before."""
    world.add_nodes(4)
    queue = world.add_queue()
    with FaultyProxy(control_plane) as proxy:

        def sent() -> list[str]:
            orders = r.BIND_REQUESTS.path(attacker.namespace)
            return [path for _, method, path in proxy.seen if method == "POST" and path == orders]

        scheduler = world.scheduler(url=proxy.url)
        world.binder()
        cycles_until_bound(world, scheduler, "first", queue)
        undisturbed = cycles_until_bound(world, scheduler, "undisturbed", queue)
        proxy.rule = lambda method, path: (
            Fault(delay=5.0)  # Two minutes for all of them, so that some are left when the victim runs.
            if method == "POST" and path == r.BIND_REQUESTS.path(attacker.namespace)
            else None
        )
        attacker.group("order", 200)
        attacker.pods((f"order-{i}" for i in range(200)), "order")
        world.until(sent, "the attacker's orders are being sent")
        assert cycles_until_bound(world, scheduler, "victim", queue) <= 2 * undisturbed
        world.until(lambda: len(world.running("victim")) == 4, "the victim runs")
        assert len(sent()) < 200
        proxy.rule = lambda _method, _path: None

        def running() -> int:
            items = world.api.raw(r.PODS.path(attacker.namespace))["items"]
            return sum(item["status"].get("phase") == "Running" for item in items)

        world.until(lambda: running() == 200, "the attacker's pods run")
        assert len(sent()) == 200, "none is sent twice"


def test_large_pods_and_names_that_are_paths_harm_no_other_tenant(
    world: World, attacker: Attacker, control_plane: ControlPlane
) -> None:
    """Pods of 1 MiB, owners that are a watch to read, and ConfigMaps that are another tenant's pod."""
    world.add_nodes(4)
    queue = world.add_queue()
    scheduler = world.scheduler()
    made = Workloads(world, queue)
    with FaultyProxy(control_plane) as proxy:
        grouper = made.start("--controllers=podgrouper", url=proxy.url)
        binder = world.binder(url=proxy.url)
        world.add_gang("victim", queue, 4)
        world.until(lambda: len(world.running("victim")) == 4, "the victim runs")
        attacker.group("attack")
        tolerations = [{"key": "k" * 63, "operator": "Equal", "value": f"{i:063}"} for i in range(6000)]
        for i in range(6):
            attacker.pod(f"large-{i}", "attack", tolerations=tolerations)
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "?watch=1", "uid": "u"}
        for i in range(20):
            attacker.pod(f"owned-{i}", owners=[{**owner, "controller": True}])
        config = f"../../{world.namespace}/pods/victim-0?x="
        notes = {"gpu-fraction": "0.5", "runai/shared-gpu-configmap": config}
        attacker.pod("shares", "attack", annotations=notes)
        world.until(lambda: attacker.told("Pod", "large-0", "more than 524288 bytes"), "it is told")
        world.until(lambda: attacker.told("Pod", "shares", "ConfigMap"), "the binder gives up")
        read = "/replicasets/%3Fwatch%3D1"
        world.until(lambda: any(path.endswith(read) for _, _, path in proxy.seen), "the owner is looked for")
        deleted = [path for _, method, path in proxy.seen if method == "DELETE"]
        assert not [path for path in deleted if f"/namespaces/{world.namespace}/" in path]
        scheduler.kill()
        world.scheduler()
        made.pod("alone")
        world.until(lambda: len(world.running()) == 5, "a pod that needs a group gets it, and runs")
        assert len(world.running("victim")) == 4
        assert binder.poll() is None
        assert grouper.poll() is None


def test_half_sent_requests_keep_no_probe_out_and_no_gang_waiting(world: World) -> None:
    world.add_nodes(2)
    queue = world.add_queue()
    scheduler = world.scheduler()
    cycles_until_bound(world, scheduler, "first", queue)
    undisturbed = cycles_until_bound(world, scheduler, "undisturbed", queue)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def healthy() -> bool:
        try:
            with opener.open(f"http://127.0.0.1:{scheduler.listen}/healthz", timeout=30) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    world.until(healthy, "it answers")
    held = []
    for _ in range(200):
        connection = socket.create_connection(("127.0.0.1", scheduler.listen), timeout=60)
        connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        held.append(connection)
    world.stays(healthy, 0.5)
    assert cycles_until_bound(world, scheduler, "victim", queue) <= 2 * undisturbed
    for connection in held:
        connection.close()
