"""The Helm chart on a real API server: installed, changed, rolled back and removed by real Helm.

Our processes run with the flags of the chart's Deployments and with tokens of its accounts, so a missing
right shows.
"""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args
from urllib.request import urlopen

import orjson
import pytest
import yaml

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.access import ControllerName
from kai_cp.kube.api.transport import Transport, configuration
from kai_cp.kube.demo.controlplane import ControlPlane, free_port
from kai_cp.kube.install import install
from tests.deploy.helm import CHART, objects
from tests.e2e.admin import AdminTransport
from tests.e2e.world import GPU, NAMESPACE, PATIENCE_SECONDS, Object, Program, admin, ready
from tests.kubetest.build import find, find_helm

POOL = "kai.scheduler/node-pool"
QUEUE = "kai.scheduler/queue"
"""Within this time everything of a removed release is gone."""
numbers = itertools.count()


@pytest.fixture(scope="module")
def plane(binary: Path) -> Iterator[ControlPlane]:
    if find_helm() is None:
        pytest.skip("there is no Helm; build it with `make control-plane`")
    with ControlPlane(binary) as made:
        install(Transport(configuration(str(made.kubeconfig())), "admin"))
        yield made


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[AdminTransport]:
    made = admin(plane)
    yield made
    made.close()


class Release:
    """One installation of the chart, and processes that run as its Deployments would."""

    def __init__(self, plane: ControlPlane, api: AdminTransport, name: str) -> None:
        self.plane, self.api, self.name = plane, api, name
        self.namespace = f"{name}-system"
        self.work = f"{name}-work"
        self.values: Object = {
            "schedulerName": f"{name}-scheduler",
            "shards": [{"name": "default", "nodePool": name}],
            "scheduler": {"replicas": 1},
            "binder": {"replicas": 1},
            "reservation": {"namespace": f"{name}-reservation", "createNamespace": True},
        }
        self.processes: list[Program] = []
        api.create(NAMESPACE, "", {"metadata": {"name": self.work}})

    def helm(self, *arguments: str, **values: Any) -> str:
        """Run Helm on the cluster with these values on top of those of the release."""
        command = [
            str(find_helm()),
            f"--kubeconfig={self.plane.kubeconfig()}",
            "-n",
            self.namespace,
            *arguments,
        ]
        done = subprocess.run(
            command,
            input=yaml.safe_dump({**self.values, **values}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install(self, mode: str) -> None:
        self.helm("install", self.name, str(CHART), "--create-namespace", "-f", "-", mode=mode)

    def upgrade(self, mode: str) -> None:
        self.helm("upgrade", self.name, str(CHART), "-f", "-", mode=mode)

    def kubectl(self, *arguments: str) -> str:
        """The output of kubectl."""
        command = [str(find()), "kubectl", f"--kubeconfig={self.plane.kubeconfig()}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def found(self) -> list[Object]:
        """The release's objects as the server has them, without those that are gone."""
        there = []
        for item in objects(self.helm("get", "manifest", self.name)):
            text = self.kubectl("get", "--ignore-not-found", "-o", "yaml", *self.path(item))
            if text.strip():
                there.append(yaml.safe_load(text))
        return there

    @staticmethod
    def path(item: Object) -> list[str]:
        group = item["apiVersion"].rpartition("/")[0]
        kind = f"{item['kind']}.{group}" if group else item["kind"]
        where = item["metadata"].get("namespace")
        return [kind, item["metadata"]["name"], *(["-n", where] if where else [])]

    def name_of(self, item: Object) -> str:
        """The object's name as kubectl prints it; empty: it does not exist."""
        return self.kubectl("get", "--ignore-not-found", "-o", "name", *self.path(item))

    def uninstall(self) -> None:
        """Remove the release, and wait until nothing of it is left."""
        items = objects(self.helm("get", "manifest", self.name))
        self.helm("uninstall", self.name)
        for item in items:
            eventually(
                lambda item=item: not self.name_of(item),
                f"{item['kind']} {item['metadata']['name']} is gone",
            )

    def start(self, component: str) -> Program:
        """Run what the Deployment of a component would run, as its account."""
        found = [
            item
            for item in self.found()
            if item["kind"] == "Deployment"
            and item["metadata"]["labels"]["app.kubernetes.io/component"] == component
        ]
        pod = found[0]["spec"]["template"]["spec"]
        token = self.kubectl("create", "token", pod["serviceAccountName"], "-n", self.namespace).strip()
        number = next(numbers)
        path = self.plane.directory / f"{self.name}-{component}-{number}.kubeconfig"
        document = yaml.safe_load(self.plane.kubeconfig().read_text())
        document["users"][0]["user"] = {"token": token}
        path.write_text(yaml.safe_dump(document))
        listen, data = free_port(), free_port()
        flags = [
            *pod["containers"][0]["args"],
            f"--kubeconfig={path}",
            f"--listen-address=127.0.0.1:{listen}",
        ]
        if component == "scheduler":
            flags.append(f"--plugin-server-address=127.0.0.1:{data}")
        program = Program(flags, self.plane.directory / f"{self.name}-{component}-{number}.log", listen, data)
        self.processes.append(program)
        return program

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
        self.processes.clear()

    # --- work --------------------------------------------------------------------------------------

    def add_node(self) -> str:
        """A node with 8 GPUs in the release's pool."""
        name = f"{self.name}-node"
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
        labels = {POOL: self.name, "type": "kwok"}
        body = {
            "metadata": {"name": name, "labels": labels},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        self.api.create(r.NODES, "", body)
        eventually(lambda: ready(self.api.get(r.NODES, "", name)), "the node is ready")
        return name

    def add_queue(self) -> None:
        plenty = {key: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for key in ("cpu", "memory", "gpu")}
        for name, parent in ((f"{self.name}-dept", None), (f"{self.name}-team", f"{self.name}-dept")):
            spec = {"resources": plenty, **({"parentQueue": parent} if parent else {})}
            self.api.create(
                r.QUEUES, "", {"metadata": {"name": name, "labels": {POOL: self.name}}, "spec": spec}
            )

    def add_pod(self, name: str) -> None:
        """A pod of one GPU with a group of its own."""
        labels = {POOL: self.name, QUEUE: f"{self.name}-team"}
        group = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"queue": f"{self.name}-team", "minMember": 1},
        }
        self.api.create(r.POD_GROUPS, self.work, group)
        container = {"name": "main", "image": "none", "resources": {"limits": {GPU: "1"}}}
        body = {
            "metadata": {"name": name, "labels": labels, "annotations": {"pod-group-name": name}},
            "spec": {"schedulerName": self.values["schedulerName"], "containers": [container]},
        }
        self.api.create(r.PODS, self.work, body)

    def add_job(self, name: str, *, notes: Object) -> None:
        """A Job of one pod, which asks for a GPU or, as ``notes`` say, for a part of one."""
        labels = {POOL: self.name, QUEUE: f"{self.name}-team"}
        limits = {} if notes else {"limits": {GPU: "1"}}
        spec = {
            "schedulerName": self.values["schedulerName"],
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none", "resources": limits}],
        }
        template = {"metadata": {"labels": {**labels, "run": name}, "annotations": notes}, "spec": spec}
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": self.work, "labels": labels},
            "spec": {"template": template},
        }
        command = [str(find()), "kubectl", f"--kubeconfig={self.plane.kubeconfig()}", "create", "-f", "-"]
        subprocess.run(command, input=yaml.safe_dump(body), capture_output=True, text=True, check=True)

    def node_of_job(self, name: str) -> str:
        """The node of the Job's pod; empty: it has none yet."""
        pods = self.api.raw(f"{r.PODS.path(self.work)}?labelSelector=run%3D{name}")["items"]
        return str(pods[0]["spec"].get("nodeName") or "") if pods else ""

    def held(self) -> str:
        """GPUs that the status of the queue says it holds."""
        status = (self.api.get(r.QUEUES, "", f"{self.name}-team") or {}).get("status") or {}
        return str((status.get("allocated") or {}).get(GPU))

    def node_of(self, name: str) -> str:
        pod = self.api.get(r.PODS, self.work, name)
        return str(((pod or {}).get("spec") or {}).get("nodeName") or "")

    def logs(self) -> str:
        return "\n".join(process.tail() for process in self.processes)

    def complaints(self) -> list[Object]:
        """Log lines about something that was refused: an error of the API server says ``Forbidden``.

        Its status, 403, is not looked for: one time stamp in a thousand has these digits.
        """
        return [
            line
            for process in self.processes
            for line in process.lines()
            if "forbidden" in str(line).lower() or "not in kai_cp" in str(line)
        ]


def eventually(met: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """Wait until ``met`` returns a true value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := met():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds:g} s: {what}")


@pytest.fixture
def releases(plane: ControlPlane, api: AdminTransport) -> Iterator[Callable[[str], Release]]:
    made: list[Release] = []

    def make(name: str) -> Release:
        made.append(Release(plane, api, name))
        return made[-1]

    yield make
    for release in made:
        release.stop()


def planned_cycles(program: Program) -> list[Object]:
    """The cycles that a scheduler recorded."""
    try:
        with urlopen(f"http://127.0.0.1:{program.data}/debug/cycles", timeout=PATIENCE_SECONDS) as answer:
            cycles: list[Object] = orjson.loads(answer.read())["cycles"]
    except OSError:
        return []
    return cycles


def planned_binds(program: Program) -> int:
    """Binds in the plans that a scheduler recorded."""
    return max((cycle["decisions"].get("Bind", 0) for cycle in planned_cycles(program)), default=0)


def answers(program: Program) -> bool:
    """Whether a process says that it is ready."""
    try:
        with urlopen(f"http://127.0.0.1:{program.listen}/readyz", timeout=PATIENCE_SECONDS) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def may(release: Release, verb: str, resource: str) -> bool:
    """The answer of the server's authorizer for the scheduler's account."""
    account = f"system:serviceaccount:{release.namespace}:{release.name}-kai-cp-scheduler"
    command = [str(find()), "kubectl", f"--kubeconfig={release.plane.kubeconfig()}", "auth", "can-i"]
    done = subprocess.run(
        [*command, verb, resource, f"--as={account}", "-A"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() == "yes"


def test_observe_then_enforce_then_back_then_gone(releases: Callable[[str], Release]) -> None:
    one = releases("one")
    # The namespace admits only confined pods: the restricted profile.
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    one.api.create(NAMESPACE, "", {"metadata": {"name": one.namespace, "labels": labels}})
    one.add_queue()
    node = one.add_node()
    one.add_pod("p")

    one.install("observe")
    scheduler = one.start("scheduler")
    try:
        eventually(lambda: planned_binds(scheduler) == 1, "a plan is recorded")
        assert one.api.raw(r.BIND_REQUESTS.path(one.work))["items"] == []
        assert not may(one, "create", "bindrequests.scheduling.run.ai")
        assert not may(one, "delete", "pods")
        assert one.node_of("p") == ""
        assert one.complaints() == []
    except AssertionError as error:
        raise AssertionError(f"{error}\n{one.logs()}") from error
    one.stop()
    # The controller made the pod of the Deployment, so the profile accepts it.
    pods = one.api.raw(r.PODS.path(one.namespace))["items"]
    assert len(pods) == 1

    one.upgrade("enforce")
    one.start("scheduler")
    one.start("binder")
    try:
        eventually(lambda: one.node_of("p") == node, "the pod is bound")
        assert one.complaints() == []
    except AssertionError as error:
        raise AssertionError(f"{error}\n{one.logs()}") from error
    one.stop()

    one.helm("rollback", one.name, "1")
    deployments = [item for item in one.found() if item["kind"] == "Deployment"]
    assert [
        "--mode=observe" in item["spec"]["template"]["spec"]["containers"][0]["args"] for item in deployments
    ] == [True]
    assert not may(one, "delete", "pods")

    one.uninstall()
    left = one.kubectl(
        "get",
        "clusterroles,clusterrolebindings",
        "-l",
        f"app.kubernetes.io/instance={one.name}",
        "-o",
        "name",
    )
    assert left == ""
    # Definitions and workloads stay.
    assert one.api.get(r.POD_GROUPS, one.work, "p") is not None
    assert one.node_of("p") == node


def test_the_server_takes_everything_that_can_be_switched_on(releases: Callable[[str], Release]) -> None:
    full = releases("full")
    names = list(get_args(ControllerName))
    full.values |= {
        "controllers": {"enabled": names, "scaling": {"create": True, "namespace": "full-scale"}},
        "admission": {"enabled": True, "failurePolicy": "Ignore"},
        "defaults": {"queues": True, "priorityClasses": True},
        "networkPolicy": {"enabled": True},
        "monitoring": {"dashboards": {"enabled": True}},
    }
    full.install("enforce")
    wanted = objects(full.helm("get", "manifest", full.name))
    found = full.found()
    assert len(found) == len(wanted)
    kinds = {item["kind"] for item in found}
    assert {"ValidatingWebhookConfiguration", "NetworkPolicy", "Queue", "PriorityClass"} <= kinds
    full.helm("uninstall", full.name)
    left = {item["kind"] for item in wanted if full.name_of(item)}
    # A namespace is gone as soon as its content is; default objects are kept for those that use them.
    assert left - {"Namespace"} == {"Queue", "PriorityClass"}


def test_every_process_has_the_rights_that_it_needs(releases: Callable[[str], Release]) -> None:
    """All parts together, each as its own account: a Job is grouped, placed, bound and reported, a GPU is
    shared, and nothing that any of them asks for is refused.
    """
    whole = releases("whole")
    whole.values |= {
        "controllers": {
            "enabled": list(get_args(ControllerName)),
            "scaling": {"create": True, "namespace": "whole-scale"},
            "replicas": 1,
        },
        "admission": {"enabled": True, "failurePolicy": "Ignore", "replicas": 1},
        "reservation": {
            "namespace": "whole-reservation",
            "createNamespace": True,
            "createServiceAccount": True,
        },
    }
    whole.add_queue()
    node = whole.add_node()
    whole.install("enforce")
    try:
        started = [whole.start(name) for name in ("scheduler", "binder", "controllers", "admission")]
        for process in started:
            eventually(lambda process=process: answers(process), f"{process.log.name} is ready")
        whole.add_job("train", notes={})
        whole.add_job("share", notes={"gpu-fraction": "0.5"})
        for name in ("train", "share"):
            eventually(lambda name=name: whole.node_of_job(name) == node, f"{name} is bound")
        eventually(lambda: whole.held() == "1500m", "the queue says what it holds")
        assert whole.complaints() == []
    except AssertionError as error:
        raise AssertionError(f"{error}\n{whole.logs()}") from error


def test_foreign_definitions_stay_as_they_are(releases: Callable[[str], Release]) -> None:
    late = releases("late")
    names = [f"{kind}.scheduling.run.ai" for kind in ("queues", "podgroups", "bindrequests")]
    before = late.kubectl("get", "crds", *names, "-o", "yaml")
    with pytest.raises(AssertionError, match="CustomResourceDefinition"):
        late.helm("install", late.name, str(CHART), "--create-namespace", "-f", "-", crds={"install": True})
    assert late.kubectl("get", "crds", *names, "-o", "yaml") == before


def test_two_releases_side_by_side_and_one_goes(releases: Callable[[str], Release]) -> None:
    red, blue = releases("red"), releases("blue")
    nodes = {}
    for release in (red, blue):
        release.add_queue()
        nodes[release.name] = release.add_node()
        release.install("enforce")
        release.start("scheduler")
        release.start("binder")
        release.add_pod("p")
    try:
        for release in (red, blue):
            eventually(lambda x=release: x.node_of("p") == nodes[x.name], f"{release.name} binds its pod")
        before = {(i["kind"], i["metadata"]["name"]): i["metadata"].get("generation") for i in blue.found()}

        red.stop()
        red.uninstall()
        blue.add_pod("q")
        eventually(lambda: blue.node_of("q") == nodes["blue"], "the other goes on")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{red.logs()}\n{blue.logs()}") from error
    after = {(i["kind"], i["metadata"]["name"]): i["metadata"].get("generation") for i in blue.found()}
    assert after == before
    assert all(process.poll() is None for process in blue.processes)
    assert blue.complaints() == []
    assert red.node_of("p") == nodes["red"]
