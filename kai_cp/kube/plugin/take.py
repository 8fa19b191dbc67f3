"""A live cluster as a snapshot file, with read-only rights.

Two sources. *scheduler*: the last cycle that the running scheduler recorded, with its decisions, through
``kubectl port-forward`` (needs ``create`` on ``pods/portforward`` in its namespace). *api*: the API server's
lists (needs the ClusterRole for readers).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from kai_cp.cli.common import FORBIDDEN, MISSING, NOT_RUNNING, REFUSED, UNREACHABLE
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import ApiError, KubeError, NotReachable, Unauthorized
from kai_cp.kube.api.retry import Backoff
from kai_cp.kube.api.transport import Transport, configuration
from kai_cp.kube.scheduler.cache import KINDS
from kai_cp.kube.scheduler.options import SchedulerOptions, default_config
from kai_cp.kube.scheduler.snapshot_file import archive

LABELS: Final = "app.kubernetes.io/name=kai-cp,app.kubernetes.io/component=scheduler"
DATA_PORT: Final = 8081
FORWARD_SECONDS: Final = 10.0
READ_SECONDS: Final = 60.0
FORWARDED: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


class NoSnapshot(Exception):
    """The cluster cannot be read; the text says what to do, ``status`` is the exit status that says which."""

    def __init__(self, text: str, status: int = MISSING) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """The cluster to read; empty: the kubeconfig's current one."""

    kubeconfig: str = ""
    context: str = ""

    @property
    def flags(self) -> list[str]:
        """The flags for kubectl."""
        named = (("kubeconfig", self.kubeconfig), ("context", self.context))
        return [f"--{name}={value}" for name, value in named if value]

    @property
    def said(self) -> str:
        """The text for messages."""
        return f"context {self.context}" if self.context else "the current context"


def take(cluster: ClusterChoice, source: str, options: SchedulerOptions) -> tuple[bytes, str]:
    """The snapshot as a zip, and where it comes from. ``source``: *auto*, *scheduler* or *api*. ``options``:
    those of the scheduler, where the lists are read.

    Raises:
        NoSnapshot: The cluster cannot be reached, or a right is missing.
    """
    transport = _transport(cluster)
    why = ""
    try:
        if source != "api":
            try:
                return _last_cycle(cluster, transport)
            except NoSnapshot as problem:
                if source == "scheduler":
                    raise
                why = f" ({problem})"
            except ApiError as error:
                if source == "scheduler" or error.status != 403:
                    raise
                why = f" ({error.message})"
        return _listed(transport, options), f"the API server's lists{why}"
    except Unauthorized:
        raise NoSnapshot(
            f"{cluster.said}: the API server refuses the credentials; they may have expired: log in again",
            REFUSED,
        ) from None
    except NotReachable as error:
        raise NoSnapshot(f"{cluster.said}: the API server cannot be reached: {error}", UNREACHABLE) from None
    except ApiError as error:
        if error.status == 403:
            raise NoSnapshot(
                f"{cluster.said}: {error.message}. Ask for the ClusterRole whose name ends in -reader",
                FORBIDDEN,
            ) from None
        raise NoSnapshot(f"{cluster.said}: {error}") from None
    except KubeError as error:
        raise NoSnapshot(f"{cluster.said}: {error}") from None
    finally:
        transport.close()


def _transport(cluster: ClusterChoice) -> Transport:
    try:
        settings = configuration(cluster.kubeconfig, cluster.context)
    except (ConfigException, OSError, ValueError) as error:
        where = cluster.kubeconfig or "the usual kubeconfig file"
        raise NoSnapshot(f"{where} cannot be used: {str(error).splitlines()[0]}") from None
    return Transport(settings, "reader", backoff=Backoff(attempts=2))


def _last_cycle(cluster: ClusterChoice, transport: Transport) -> tuple[bytes, str]:
    """The last snapshot and decisions of the running scheduler."""
    if shutil.which("kubectl") is None:
        raise NoSnapshot("kubectl is not installed, so the scheduler cannot be asked")
    pods = transport.list_pages(r.PODS, selector=LABELS)[0]
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
    ours = [pod for pod in running if _schedules(transport, pod)]
    if not ours:
        others = ", ".join(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in running[:3])
        but = f" (the accounts of {others} may not list all pods, so they are none)" if others else ""
        text = f"{cluster.said}: no scheduler of kai-cp runs here{but}; --source=api reads the lists"
        raise NoSnapshot(text, NOT_RUNNING)
    reasons: list[NoSnapshot] = []
    for pod in ours:
        try:
            return _asked(cluster, pod)
        except NoSnapshot as problem:
            reasons.append(problem)
    raise NoSnapshot("; ".join(dict.fromkeys(map(str, reasons))), reasons[0].status)


def _schedules(transport: Transport, pod: dict[str, Any]) -> bool:
    """Whether the pod's account may list all pods, as a scheduler's may. Its labels alone say nothing: who
    may create pods could answer in the scheduler's place.
    """
    namespace = pod["metadata"]["namespace"]
    account = pod["spec"].get("serviceAccountName") or "default"
    everyone = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    asked = {
        "user": f"system:serviceaccount:{namespace}:{account}",
        "groups": everyone,
        "resourceAttributes": {"verb": "list", "resource": "pods"},
    }
    answer = transport.create(r.ACCESS_REVIEWS, "", {"spec": asked})
    return bool((answer.get("status") or {}).get("allowed"))


def _asked(cluster: ClusterChoice, pod: dict[str, Any]) -> tuple[bytes, str]:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    with _forwarded(cluster, namespace, name) as port:
        try:
            cycles = orjson.loads(_get(port, "/debug/cycles"))["cycles"]
            if not cycles:
                raise NoSnapshot(f"{namespace}/{name} has recorded no cycle yet; ask again", NOT_RUNNING)
            number = cycles[-1]["cycle"]
            return _get(port, f"/debug/cycles/{number}"), f"cycle {number} of {namespace}/{name}"
        except (OSError, HTTPError, ValueError, KeyError, TypeError) as error:
            raise NoSnapshot(f"{namespace}/{name} does not answer: {error}", NOT_RUNNING) from None


def _get(port: int, path: str) -> bytes:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=READ_SECONDS) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        raise OSError(f"{path}: status {error.code}") from None


@contextmanager
def _forwarded(cluster: ClusterChoice, namespace: str, pod: str) -> Iterator[int]:
    """A local port that leads to the pod's data port."""
    command = ["kubectl", *cluster.flags, "-n", namespace, "port-forward", f"pod/{pod}", f":{DATA_PORT}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        found = FORWARDED.search(process.stdout.readline())
        if found is None:
            process.terminate()
            said = process.stderr.read().strip().splitlines()
            text = said[-1] if said else "refused"
            status = FORBIDDEN if "forbidden" in text.lower() else NOT_RUNNING
            raise NoSnapshot(f"port-forward to {namespace}/{pod}: {text}", status)
        yield int(found[1])
    finally:
        process.terminate()
        process.wait(FORWARD_SECONDS)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _listed(transport: Transport, options: SchedulerOptions) -> bytes:
    """The cluster from the API server's lists, all node pools together."""
    lists: dict[str, Any] = {}
    for kind in KINDS:
        try:
            items, _ = transport.list_pages(kind.resource, metadata_only=kind.metadata_only)
        except ApiError as error:
            if error.status != 404:
                raise
            lists[kind.key] = None  # not served here
            continue
        lists[kind.key] = [kind.transform(item) for item in items]
    raw = {
        "config": default_config(),
        "schedulerParams": options.params(),
        "rawObjects": lists,
        "discovery": {"serverVersion": transport.raw("/version") or {}, "resources": []},
    }
    return b"".join(archive(raw))
