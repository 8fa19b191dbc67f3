"""Every command of the pages about installing, and every question to a running scheduler, on a real API
server.

A page's ``console`` blocks are run as they stand; the text after ``# ->`` is what a command must print in the
end. Our processes run with the flags and accounts of the Deployments, and restart after Helm.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.transport import Transport, configuration
from kai_cp.kube.demo.controlplane import ControlPlane, free_port
from kai_cp.kube.install import install
from tests.e2e.test_chart import eventually, planned_cycles
from tests.e2e.test_plugin import KUBECTL
from tests.e2e.world import GPU, NAMESPACE, PATIENCE_SECONDS, Object, Program, admin, ready
from tests.kubetest.build import find, find_helm

ROOT = Path(__file__).parents[2]
NAME = "kai-cp"
QUEUE = "kai.scheduler/queue"
PAGES = ("deploy/README.md", "deploy/chart/kai-cp/README.md", "docs/observe-to-enforce.md")
LIVE = ("docs/looking.md", "docs/my-job-is-pending.md", "docs/explain-and-what-if.md")
"""Pages with questions to a running scheduler; tests/docs/test_commands.py runs their commands on files."""
INSTALL = f"helm install {NAME} deploy/chart/kai-cp -n {NAME} --create-namespace"
ELSEWHERE = ("docker ",)
"""Commands that cannot run on a machine without a container daemon."""
WRAPPER = """#!/bin/bash
for word in "$@"; do
  if [ "$word" = port-forward ]; then exec "{python}" "{folder}/forward" "$@"; fi
done
if [ "$1" = kai-cp ]; then shift; cd "{folder}" && exec "{python}" -m kai_cp.kube.plugin.main "$@"; fi
exec "{binary}" kubectl "$@"
"""


def commands(page: str) -> list[tuple[str, str]]:
    """The commands of a page, and what each must print ("" if nothing is promised)."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL):
        for line in block.splitlines():
            command, _, comment = line.partition("  #")
            said = comment.partition("->")[2].strip()
            if command.strip() and not command.startswith(ELSEWHERE):
                found.append((command.strip(), said))
    return found


class Machine:
    """An administrator's machine: Helm, kubectl with our plugin, and a cluster in which KAI runs."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self.api = admin(plane)
        self.processes: list[Program] = []
        (folder / "deploy").symlink_to(ROOT / "deploy")
        (folder / "values.yaml").write_text(yaml.safe_dump({"image": {"registry": "REGISTRY", "tag": "TAG"}}))
        kai_cp = f'#!/bin/bash\nexec "{sys.executable}" -m kai_cp "$@"\n'
        helm = f'#!/bin/bash\nexec "{find_helm()}" "$@"\n'
        kubectl = WRAPPER.format(python=sys.executable, folder=folder, binary=find())
        for name, text in (("kai-cp", kai_cp), ("helm", helm), ("kubectl", kubectl), ("forward", "")):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        kubeconfig = str(self.plane.kubeconfig())
        return {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "KUBECONFIG": kubeconfig}

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """A line of the page, in bash."""
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=self.environment,
        )

    def follow(self, command: str, said: str) -> None:
        """Run a command; it must succeed, or print what the page promises within some time."""
        if "port-forward" in command:
            self.look(command)
            return
        if command.endswith(" -w"):
            self.watch(command)
            return
        done = self.run(command)
        if not said:
            fine = (0, 1) if " diff " in command else (0,)  # There may be differences.
            assert done.returncode in fine, f"{command}\n{done.stdout}{done.stderr}\n{self.logs()}"
        end = time.monotonic() + PATIENCE_SECONDS
        while said and said not in done.stdout:
            assert time.monotonic() < end, f"{command} said\n{done.stdout}{done.stderr}\n{self.logs()}"
            time.sleep(1.0)
            done = self.run(command)
        if "helm " in command:
            self.restart()

    def look(self, command: str) -> None:
        """Forward the port, and open the page behind it."""
        # Another local port, because 8081 may be in use on this machine.
        words = [":8081" if word == "8081" else word for word in command.split()]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=self.environment) as forwarding:
            assert forwarding.stdout is not None
            port = re.findall(r"127\.0\.0\.1:(\d+)", forwarding.stdout.readline())[0]
            with urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
                assert b"<title>kai_cp</title>" in answer.read()
            forwarding.kill()

    def watch(self, command: str) -> None:
        """Run a command that prints something and continues until Ctrl-C."""
        with subprocess.Popen(
            command.split(), stdout=subprocess.PIPE, text=True, env=self.environment, cwd=self.folder
        ) as watching:
            assert watching.stdout is not None
            assert watching.stdout.readline(), command
            watching.send_signal(signal.SIGINT)
            watching.stdout.read()
        assert watching.returncode == 130, command

    def ask(self, command: str) -> None:
        """Ask the port that stands for the one that the page forwards."""
        (scheduler,) = self.processes
        done = self.run(command.replace("localhost:8081", f"127.0.0.1:{scheduler.data}"))
        assert "team-a/llm-7b" in done.stdout, f"{command}\n{done.stdout}{done.stderr}"

    def restart(self) -> None:
        """Run what the Deployments of the release say now."""
        self.stop()
        text = self.run(f"kubectl -n {NAME} get deployments -l app.kubernetes.io/name=kai-cp -o yaml").stdout
        for item in yaml.safe_load(text)["items"] if text else ():
            self.start(item)

    def start(self, deployment: Object) -> None:
        """One process of a Deployment, as its account."""
        pod = deployment["spec"]["template"]["spec"]
        document = yaml.safe_load(self.plane.kubeconfig().read_text())
        token = self.run(f"kubectl create token {pod['serviceAccountName']} -n {NAME}").stdout.strip()
        document["users"][0]["user"] = {"token": token}
        listen, data = free_port(), free_port()
        path = self.folder / f"{listen}.kubeconfig"
        path.write_text(yaml.safe_dump(document))
        flags = [*pod["containers"][0]["args"], f"--kubeconfig={path}"]
        flags.append(f"--listen-address=127.0.0.1:{listen}")
        if scheduler := flags[0] == "scheduler":
            flags.append(f"--plugin-server-address=127.0.0.1:{data}")
        program = Program(flags, self.folder / f"{listen}.log", listen, data)
        self.processes.append(program)
        if scheduler:
            (self.folder / "forward").write_text(KUBECTL.format(python=sys.executable, port=data))
            eventually(lambda: planned_cycles(program), f"a cycle is recorded\n{program.tail()}")

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
        self.processes.clear()

    def clean(self) -> None:
        """Check that nothing of kai_cp is left."""
        self.stop()
        self.run(f"helm uninstall {NAME} -n {NAME}")
        self.run(f"kubectl delete namespace {NAME} --ignore-not-found")

    def logs(self) -> str:
        return "\n".join(process.tail() for process in self.processes)


@pytest.fixture(scope="module")
def machine(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if find_helm() is None:
        pytest.skip("there is no Helm; build it with `make control-plane`")
    with ControlPlane(binary) as plane:
        install(Transport(configuration(str(plane.kubeconfig())), "admin"))
        made = Machine(plane, tmp_path_factory.mktemp("machine"))
        log = (plane.directory / "kube-scheduler.log").open("wb")
        flags = [f"--kubeconfig={plane.kubeconfig()}", "--leader-elect=false", "--secure-port=0"]
        flags.append("--authentication-skip-lookup=true")
        theirs = subprocess.Popen(
            [str(binary), "kube-scheduler", *flags], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            furnish(made)
            yield made
        finally:
            made.stop()
            theirs.kill()
            theirs.wait()
            log.close()
            made.api.close()


def furnish(machine: Machine) -> None:
    """Two nodes, KAI's namespaces and Deployments, and team-a with a small job and large ones."""
    api = machine.api
    for name in ("kai-scheduler", "kai-resource-reservation", "team-a"):
        api.create(NAMESPACE, "", {"metadata": {"name": name}})
    for name in ("node-0", "n7"):
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
        meta = {"name": name, "labels": {"type": "kwok"}}
        api.create(r.NODES, "", {"metadata": meta, "status": {"capacity": amounts, "allocatable": amounts}})
        eventually(lambda name=name: ready(api.get(r.NODES, "", name)), "the node is ready")
    for name in ("kai-operator", "kai-scheduler-default", "binder"):
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        api.create(r.DEPLOYMENTS, "kai-scheduler", {"metadata": {"name": name}, "spec": spec})
    plenty = {key: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for key in ("cpu", "memory", "gpu")}
    for name, parent in (("dept", None), ("team", "dept")):
        spec = {"resources": plenty, **({"parentQueue": parent} if parent else {})}
        api.create(r.QUEUES, "", {"metadata": {"name": name}, "spec": spec})
    for name, amount in (("small", 1), ("large", 16), ("llm", 16), ("llm-7b", 16)):
        labels = {QUEUE: "team"}
        group = {"metadata": {"name": name, "labels": labels}, "spec": {"queue": "team", "minMember": 1}}
        api.create(r.POD_GROUPS, "team-a", group)
        container = {"name": "main", "image": "none", "resources": {"limits": {GPU: str(amount)}}}
        meta = {"name": name, "labels": labels, "annotations": {"pod-group-name": name}}
        body = {"metadata": meta, "spec": {"schedulerName": "kai-scheduler", "containers": [container]}}
        api.create(r.PODS, "team-a", body)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_does_what_it_says(machine: Machine, page: str) -> None:
    found = commands(page)
    assert found, page
    try:
        for command, said in found:
            machine.follow(command, said)
    finally:
        machine.clean()


@pytest.fixture(scope="module")
def observed(machine: Machine) -> Iterator[Machine]:
    """The machine while a scheduler observes the cluster."""
    try:
        machine.follow(INSTALL, "")
        yield machine
    finally:
        machine.clean()


@pytest.mark.parametrize("page", LIVE)
def test_every_question_of_the_page_is_answered_by_what_runs(observed: Machine, page: str) -> None:
    asked = [command for command, _ in commands(page) if command.startswith(("kubectl ", "curl "))]
    assert asked, page
    for command in asked:
        if command.startswith("curl "):
            observed.ask(command)
        else:
            observed.follow(command, "")
