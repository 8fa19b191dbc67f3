"""What a test needs of a cluster: nodes, queues, gangs, our processes, and ways to wait for conditions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.api.transport import Transport, configuration
from kai_cp.kube.demo.controlplane import ControlPlane, free_port
from kai_cp.kube.install import install
from tests.deploy.helm import instead_of_kai
from tests.e2e.admin import AdminTransport

POOL = "kai.scheduler/node-pool"
READER = "kai-scheduler-kai-cp-reader"
"""The ClusterRole of people who only read."""
ACCOUNTS = {
    "kai-cp-scheduler": ("scheduler", "scheduler2"),
    "kai-cp-binder": ("binder",),
    "kai-cp-controllers": ("controllers",),
    "kai-cp-admission": ("admission",),
}
GPU = "nvidia.com/gpu"
NAMESPACES = ("kai-scheduler", "kai-resource-reservation", "kai-scale-adjust")
KINDS = {
    "ClusterRole": Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
    "ClusterRoleBinding": Resource(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False
    ),
    "Role": Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    "RoleBinding": Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    "ServiceAccount": Resource("", "v1", "serviceaccounts", "ServiceAccount"),
}
NAMESPACE = Resource("", "v1", "namespaces", "Namespace", False)
JOBS = Resource("batch", "v1", "jobs", "Job")
Object = dict[str, Any]
PATIENCE_SECONDS = 180.0
"""How long a test waits for an event: on a busy machine it is late, and no test is about that."""


def admin(plane: ControlPlane) -> AdminTransport:
    """A transport that may do everything."""
    return AdminTransport(configuration(str(plane.kubeconfig())))


def prepare(plane: ControlPlane) -> None:
    """CRDs, namespaces, and the chart's RBAC with test users in place of the service accounts."""
    install(Transport(configuration(str(plane.kubeconfig())), "admin"))
    api = admin(plane)
    for name in NAMESPACES:
        api.create(NAMESPACE, "", {"metadata": {"name": name}})
    made = instead_of_kai()
    for document in (item for item in made if item["kind"] in KINDS):
        if document["kind"] in ("ClusterRoleBinding", "RoleBinding"):
            subjects = [
                {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
                for subject in document["subjects"]
                for user in ACCOUNTS.get(subject["name"], ())
            ]
            document["subjects"] = subjects
        kind = KINDS[document["kind"]]
        api.create(kind, document["metadata"].get("namespace", ""), document)
    for document in policies(made):
        resource = (
            r.ADMISSION_POLICY_BINDINGS if document["kind"].endswith("Binding") else r.ADMISSION_POLICIES
        )
        api.create(resource, "", document)


def policies(made: list[Object]) -> Iterator[Object]:
    """The chart's policies for the users and node pools of these tests."""
    for document in (item for item in made if item["kind"].startswith("ValidatingAdmissionPolicy")):
        spec = document["spec"]
        for entry in [*spec.get("matchConditions", ()), *spec.get("validations", ())]:
            text = entry["expression"].replace(
                'k == "kai.scheduler/node-pool"', 'k.startsWith("kai-cp.test/")'
            )
            for account, users in ACCOUNTS.items():
                name = f'"system:serviceaccount:kai-scheduler:{account}"'
                listed = ", ".join(f'"{user}"' for user in users)
                text = text.replace(f"username == {name}", f"username in [{listed}]").replace(name, listed)
            entry["expression"] = text
        yield document


class World:
    """One test's part of the cluster: every object carries its pool label."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.plane = plane
        self.name = name
        self.api = admin(plane)
        self.processes: list[Program] = []
        self.pool_key = f"kai-cp.test/{name}"
        self.pool = name
        self.nodes: list[str] = []
        self.queues: list[str] = []
        self.namespace = name
        self.api.create(NAMESPACE, "", {"metadata": {"name": name}})

    def close(self) -> None:
        """Stop our processes, then remove what the test made."""
        for process in self.processes:
            process.kill()
        for pod in self.pods():
            self.api.delete(r.PODS, self.namespace, pod["metadata"]["name"], grace=0)
        for pod in self.api.list_pages(r.PODS)[0]:
            if pod["spec"].get("nodeName") in self.nodes:
                self.api.delete(r.PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], grace=0)
        for node in self.nodes:
            self.api.delete(r.NODES, "", node)
        for queue in self.queues:
            self.api.delete(r.QUEUES, "", queue)
        self.api.delete(NAMESPACE, "", self.namespace)
        self.api.close()

    # --- making things ---------------------------------------------------------------------------

    @property
    def labels(self) -> dict[str, str]:
        return {self.pool_key: self.pool}

    def add_nodes(self, count: int, gpus: int = 8, **labels: str) -> list[str]:
        """Fake nodes, Ready when this returns."""
        made = []
        for _ in range(count):
            name = f"{self.name}-n{len(self.nodes)}"
            amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
            self.api.create(
                r.NODES,
                "",
                {
                    "metadata": {
                        "name": name,
                        "labels": {
                            **self.labels,
                            "kubernetes.io/hostname": name,
                            "nvidia.com/gpu.memory": "81920",
                            "nvidia.com/gpu.count": str(gpus),
                            **labels,
                        },
                    },
                    "status": {"allocatable": amounts, "capacity": amounts},
                },
            )
            self.nodes.append(name)
            made.append(name)
        self.until(lambda: all(ready(self.api.get(r.NODES, "", name)) for name in made), "nodes are Ready")
        return made

    def add_queue(
        self,
        name: str = "q",
        parent: str = "",
        quota: float = -1,
        weight: float = 1,
        limit: float = -1,
        **spec: Any,
    ) -> str:
        """A queue with the same figures for every resource unless its GPU quota is finite."""
        full = f"{self.name}-{name}"
        other = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        body: Object = {
            "metadata": {"name": full, "labels": self.labels},
            "spec": {
                "resources": {
                    "cpu": other,
                    "memory": other,
                    "gpu": {"quota": quota, "limit": limit, "overQuotaWeight": weight},
                },
                **spec,
            },
        }
        if parent:
            body["spec"]["parentQueue"] = parent
        self.api.create(r.QUEUES, "", body)
        self.queues.append(full)
        return full

    def add_group(self, name: str, queue: str, minimum: int = 1, **spec: Any) -> Object:
        """A pod group."""
        body = {
            "metadata": {"name": name, "namespace": self.namespace, "labels": self.labels},
            "spec": {"queue": queue, "minMember": minimum, **spec},
        }
        return self.api.create(r.POD_GROUPS, self.namespace, body)

    def add_pod(self, name: str, group: str, gpus: int = 1, grace: int = 1, **extra: Any) -> Object:
        """One pod of a group. ``extra``: annotations, labels, spec."""
        limits = {"cpu": "100m", "memory": "100Mi"}
        if gpus:
            limits["nvidia.com/gpu"] = str(gpus)
        body = {
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "annotations": {"pod-group-name": group, **extra.get("annotations", {})},
                "labels": extra.get("labels", {}),
            },
            "spec": {
                "schedulerName": "kai-scheduler",
                "terminationGracePeriodSeconds": grace,
                "containers": [
                    {"name": "main", "image": "none", "resources": {"limits": limits, "requests": limits}}
                ],
                **extra.get("spec", {}),
            },
        }
        return self.api.create(r.PODS, self.namespace, body)

    def add_gang(
        self, name: str, queue: str, size: int, gpus: int = 1, minimum: int | None = None, **spec: Any
    ) -> None:
        """A pod group with all its pods."""
        grace = spec.pop("grace", 1)
        self.add_group(name, queue, size if minimum is None else minimum, **spec)
        for i in range(size):
            self.add_pod(f"{name}-{i}", name, gpus, grace)

    def bind_role(self, role: str, user: str) -> None:
        """Give a user one of the ClusterRoles that we ship."""
        api = "rbac.authorization.k8s.io"
        body = {
            "metadata": {"name": f"{self.name}-{user}"},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": user, "apiGroup": api}],
        }
        self.api.create(KINDS["ClusterRoleBinding"], "", body)

    # --- our processes ---------------------------------------------------------------------------

    def scheduler(self, *flags: str, user: str = "scheduler", url: str = "") -> Program:
        """Start ``kai-cp scheduler`` for this test's pool."""
        port = free_port()
        return self._start(
            "scheduler",
            user,
            url,
            f"--nodepool-label-key={self.pool_key}",
            f"--partition-label-value={self.pool}",
            f"--plugin-server-address=127.0.0.1:{port}",
            "--mode=enforce",
            *flags,
            data=port,
        )

    def binder(self, *flags: str, user: str = "binder", url: str = "") -> Program:
        """Start ``kai-cp binder``."""
        return self._start("binder", user, url, *flags)

    def controllers(self, *flags: str, user: str = "controllers", url: str = "") -> Program:
        """Start ``kai-cp controllers``."""
        return self._start("controllers", user, url, *flags)

    def admission(self, port: int, *flags: str) -> Program:
        """Start ``kai-cp admission`` on a port."""
        names = "--certificate-names=127.0.0.1"
        return self._start("admission", "admission", "", f"--webhook-addr={port}", names, *flags)

    def _start(self, command: str, user: str, url: str, *flags: str, data: int = 0) -> Program:
        kubeconfig = self.plane.kubeconfig(user, url=url)
        listen = free_port()
        log = self.plane.directory / f"{self.name}-{command}-{len(self.processes)}.log"
        program = Program(
            [command, f"--kubeconfig={kubeconfig}", f"--listen-address=127.0.0.1:{listen}", *flags],
            log,
            listen,
            data,
        )
        self.processes.append(program)
        return program

    # --- looking ---------------------------------------------------------------------------------

    def pods(self, group: str = "") -> list[Object]:
        """Pods of the test's namespace (of a group)."""
        path = r.PODS.path(self.namespace)
        items: list[Object] = self.api.raw(path)["items"]
        return [
            p
            for p in items
            if not group or (p["metadata"].get("annotations") or {}).get("pod-group-name") == group
        ]

    def running(self, group: str = "") -> list[Object]:
        """Those that run and are not being deleted."""
        return [
            pod
            for pod in self.pods(group)
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def events(self, reason: str = "") -> list[Object]:
        """Events of the test's namespace."""
        items: list[Object] = self.api.raw(r.EVENTS.path(self.namespace))["items"]
        return [event for event in items if not reason or event["reason"] == reason]

    def group(self, name: str) -> Object:
        """A pod group as it is now."""
        found = self.api.get(r.POD_GROUPS, self.namespace, name)
        assert found is not None
        return found

    def annotations(self, name: str) -> Object:
        """Annotations of a pod group."""
        return self.group(name)["metadata"].get("annotations") or {}

    def phase(self, pod: str) -> str:
        """Phase of a pod's BindRequest."""
        request = self.api.get(r.BIND_REQUESTS, self.namespace, pod)
        return str(((request or {}).get("status") or {}).get("phase") or "")

    def until(self, met: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
        """Wait until ``met`` returns a true value; fail with the logs of the processes otherwise."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = met()
            if answer:
                return answer
            time.sleep(0.05)
        logs = "\n".join(process.tail() for process in self.processes)
        raise AssertionError(f"not within {seconds:g} s: {what}\n{logs}")

    def settles(self, seen: Callable[[], Any], what: str, seconds: float = 4.0) -> None:
        """Wait until ``seen`` returns the same value for that long, so that all activity has ended."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            before = seen()
            time.sleep(seconds)
            if seen() == before:
                return
        raise AssertionError(f"it goes on: {what}")

    def audit(self) -> list[str]:
        """Faults that must never exist: a node over its capacity, a torn gang."""
        wrong = []
        pods = [pod for pod in self.api.list_pages(r.PODS)[0] if holds_room(pod)]
        for node in self.nodes:
            room = int(((self.api.get(r.NODES, "", node) or {}).get("status") or {})["allocatable"][GPU])
            held = sum(gpus(pod) for pod in pods if pod["spec"]["nodeName"] == node)
            if held > room:
                wrong.append(f"node {node} has {room} GPUs, and its pods hold {held}")
        for group in self.api.raw(r.POD_GROUPS.path(self.namespace))["items"]:
            name, minimum = group["metadata"]["name"], group["spec"].get("minMember", 1)
            placed = sum(holds_room(pod) for pod in self.pods(name))
            if 0 < placed < minimum:
                wrong.append(f"gang {name} of {minimum} has {placed} pods placed")
        return wrong

    def stays(self, met: Callable[[], Any], seconds: float = 2.0) -> None:
        """Fail with the logs of the processes as soon as ``met`` returns a false value within the time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert met(), "\n".join(process.tail() for process in self.processes)
            time.sleep(0.1)


class Program:
    """One of our processes."""

    def __init__(self, arguments: Sequence[str], log: Path, listen: int, data: int) -> None:
        self.log = log
        self.listen = listen
        self.data = data
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kai_cp", *arguments],
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                cwd=Path(__file__).parents[2],
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; wait for the end if the process must end."""
        if self._process.poll() is None:
            self._process.send_signal(number)
            if number == signal.SIGKILL:
                self._process.wait()

    def memory_bytes(self) -> int:
        """The peak memory of the process and of the processes that it started."""
        return sum(_peak(pid) for pid in (self.pid, *_descendants(self.pid)))

    def wait(self, seconds: float) -> int:
        """Its exit status."""
        return self._process.wait(seconds)

    def ready(self) -> bool:
        """Whether it has all lists, as leader or as the next one."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.listen}/readyz", timeout=PATIENCE_SECONDS) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def poll(self) -> int | None:
        """Exit status, or None while it runs."""
        return self._process.poll()

    def lines(self) -> Iterable[Object]:
        """Its log so far."""
        for line in self.log.read_bytes().splitlines():
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError:
                continue

    def tail(self, lines: int = 25) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace").splitlines()
        return f"--- {self.log.name}\n" + "\n".join(text[-lines:])


def _peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def _descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [found for child in map(int, children) for found in (child, *_descendants(child))]


def holds_room(pod: Object) -> bool:
    """Whether a pod of our scheduler, or a reservation for one, is placed and stays."""
    meta, phase = pod["metadata"], pod["status"].get("phase")
    ours = pod["spec"].get("schedulerName") == "kai-scheduler" or meta["namespace"] == NAMESPACES[1]
    placed = bool(pod["spec"].get("nodeName")) and "deletionTimestamp" not in meta
    return ours and placed and phase not in ("Succeeded", "Failed")


def gpus(pod: Object) -> int:
    """Whole GPUs of a pod."""
    limits = (container["resources"].get("limits") or {} for container in pod["spec"]["containers"])
    return sum(int(entry.get(GPU, 0)) for entry in limits)


def ready(node: Object | None) -> bool:
    """Whether a node is Ready."""
    conditions = ((node or {}).get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def condition(item: Object, kind: str) -> Object | None:
    """A condition of an object."""
    return next((c for c in item["status"].get("conditions") or () if c["type"] == kind), None)


def ignore_absent(call: Callable[[], object]) -> None:
    """Run a deletion of an object that may be gone."""
    try:
        call()
    except ApiError as error:
        if error.status != 404:
            raise
