"""Start etcd, kube-apiserver, kube-controller-manager and kwok as processes on loopback.

All are parts of one binary (``tests/kubetest``); ``$KUBEBUILDER_ASSETS`` may provide the first two. Every
child ends with this process, because it watches its standard input, a pipe from here.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import yaml

READY_SECONDS = 60.0
ADMIN = "admin"
CONTROLLERS = (
    "namespace garbage-collector serviceaccount job replicaset deployment disruption pod-garbage-collector "
    "resourcequota ttl-after-finished taint-eviction resourceclaim validatingadmissionpolicy-status"
)
STAGES = Path(__file__).with_name("kwok.yaml")


class ControlPlaneError(Exception):
    """A part of the control plane did not start; the text shows the end of its log."""


def free_port() -> int:
    """A free TCP port on loopback that the system gives to no other process for a minute.

    A closed connection of a port keeps it (TIME_WAIT): the system neither chooses it for another process
    nor for a connection, but a server that names it may listen on it with SO_REUSEADDR, as those in Go and
    Python do.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        address: tuple[str, int] = server.getsockname()
        with socket.create_connection(address):
            connection, _ = server.accept()
            connection.close()  # The side that closes first is the one that waits.
    return address[1]


class ControlPlane:
    """A control plane; use it as a context manager.

    ``users`` are more user names with their groups; each gets the token ``<name>-token`` and no rights.
    """

    def __init__(
        self,
        binary: Path,
        *,
        users: Mapping[str, Sequence[str]] | None = None,
        nodes: bool = True,
        apiserver_flags: Sequence[str] = (),
    ) -> None:
        self._binary = binary
        self._users = {ADMIN: ["system:masters"], "kwok": ["system:masters"], "kcm": ["system:masters"]}
        self._users.update({name: list(groups) for name, groups in (users or {}).items()})
        self._nodes = nodes
        self._flags = tuple(apiserver_flags)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, IO[bytes]] = {}
        shared = Path("/dev/shm")
        self.directory = Path(tempfile.mkdtemp(prefix="kai-cp-", dir=shared if shared.is_dir() else None))
        self.port = free_port()
        self._etcd = free_port()

    @property
    def url(self) -> str:
        """Address of the API server."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        """Certificate authority of the API server."""
        return self.directory / "ca.crt"

    def token(self, user: str = ADMIN) -> str:
        """Bearer token of a user."""
        return f"{user}-token"

    def kubeconfig(self, user: str = ADMIN, *, url: str = "") -> Path:
        """A kubeconfig file of ``user``, for the API server or for a proxy in front of it."""
        path = self.directory / f"{user}-{(url or self.url).rsplit(':', 1)[-1]}.kubeconfig"
        cluster = {"server": url or self.url, "certificate-authority": str(self.ca)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": user}}],
            "current-context": "local",
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until the API server is ready."""
        subprocess.run([str(self._binary), "certs", str(self.directory)], check=True)
        lines = [
            f'{self.token(user)},{user},uid-{user},"{",".join(groups)}"'
            for user, groups in self._users.items()
        ]
        (self.directory / "tokens.csv").write_text("\n".join(lines) + "\n")
        self._start_etcd()
        self.start_apiserver()
        self._start_controllers()
        if self._nodes:
            self._start_kwok()

    def stop(self) -> None:
        """End every process and remove its files."""
        for name in list(self._processes):
            self.kill(name)
        for log in self._logs.values():
            log.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def processes(self) -> Mapping[str, subprocess.Popen[bytes]]:
        """The running parts by name."""
        return self._processes

    def kill(self, name: str) -> None:
        """End one part at once, for example ``kube-apiserver``."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        if process.stdin:
            process.stdin.close()

    def pause(self, name: str, *, resume: bool = False) -> None:
        """Freeze a part as if its machine hung; ``resume`` lets it go on."""
        self._processes[name].send_signal(signal.SIGCONT if resume else signal.SIGSTOP)

    def log(self, name: str, lines: int = 30) -> str:
        """The end of a part's log."""
        path = self.directory / f"{name}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""

    def _spawn(self, name: str, flags: Sequence[str]) -> None:
        assets = os.environ.get("KUBEBUILDER_ASSETS")
        given = Path(assets) / name if assets else None
        command = [str(given)] if given and given.exists() else [str(self._binary), name]
        if name not in self._logs:
            self._logs[name] = (self.directory / f"{name}.log").open("ab")
        self._processes[name] = subprocess.Popen(
            [*command, *flags],
            stdin=subprocess.PIPE,
            stdout=self._logs[name],
            stderr=subprocess.STDOUT,
            cwd=self.directory,
            env={**os.environ, "KUBETEST_LIFELINE": "1"},
        )

    def _start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{free_port()}"
        flags = {
            "data-dir": str(self.directory / "etcd"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "unsafe-no-fsync": "true",
            "heartbeat-interval": "50",
            "election-timeout": "250",
            "log-level": "error",
            "quota-backend-bytes": "2147483648",
        }
        self._spawn("etcd", [f"--{key}={value}" for key, value in flags.items()])

    def start_apiserver(self) -> None:
        """Start the API server (again) and wait until it is ready."""
        key = str(self.directory / "sa.key")
        flags = {
            "etcd-servers": f"http://127.0.0.1:{self._etcd}",
            "bind-address": "127.0.0.1",
            "secure-port": str(self.port),
            "advertise-address": "127.0.0.1",
            "endpoint-reconciler-type": "none",
            "tls-cert-file": str(self.directory / "serving.crt"),
            "tls-private-key-file": str(self.directory / "serving.key"),
            "client-ca-file": str(self.ca),
            "token-auth-file": str(self.directory / "tokens.csv"),
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
            "service-cluster-ip-range": "10.0.0.0/24",
            "allow-privileged": "true",
            "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition",
            "enable-priority-and-fairness": "false",
            "max-requests-inflight": "0",
            "max-mutating-requests-inflight": "0",
            "profiling": "false",
            "shutdown-delay-duration": "0s",
        }
        self._spawn("kube-apiserver", [*(f"--{key}={value}" for key, value in flags.items()), *self._flags])
        self._wait_ready()

    def _wait_ready(self) -> None:
        context = ssl.create_default_context(cafile=str(self.ca))
        request = urllib.request.Request(
            f"{self.url}/readyz", headers={"Authorization": "Bearer admin-token"}
        )
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), urllib.request.ProxyHandler({})
        )
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            for name in ("etcd", "kube-apiserver"):
                if self._processes[name].poll() is not None:
                    raise ControlPlaneError(f"{name} ended at once:\n{self.log(name)}")
            try:
                with opener.open(request, timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        raise ControlPlaneError(f"the API server is not ready:\n{self.log('kube-apiserver')}")

    def _start_controllers(self) -> None:
        flags = {
            "kubeconfig": str(self.kubeconfig("kcm")),
            "leader-elect": "false",
            "secure-port": "0",
            "authentication-skip-lookup": "true",
            "kube-api-qps": "1000",
            "kube-api-burst": "2000",
            "enable-dynamic-provisioning": "false",
            "controllers": ",".join(f"{name}-controller" for name in CONTROLLERS.split()),
        }
        self._spawn("kube-controller-manager", [f"--{key}={value}" for key, value in flags.items()])

    def _start_kwok(self) -> None:
        flags = {
            "kubeconfig": str(self.kubeconfig("kwok")),
            "manage-all-nodes": "true",
            "config": str(STAGES),
            "node-ip": "10.0.0.1",
            "cidr": "10.1.0.0/16",
            "node-lease-duration-seconds": "0",
        }
        self._spawn("kwok", [f"--{key}={value}" for key, value in flags.items()])
