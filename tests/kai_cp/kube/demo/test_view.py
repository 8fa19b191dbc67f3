"""The screen of the demonstration."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console

from kai_cp.kube.api import resources as r
from kai_cp.kube.demo.view import DemoView
from tests.kai_cp.kube.samples import node, pod

WAITS = "8 of 8 nodes: 0 GPUs free"


def test_pods_beyond_those_that_run_say_why_they_wait() -> None:
    """The scheduler gives a pod group that runs in part no condition, only its pods that wait."""
    pods = [pod("sweep-0", "sweep", node="n0", phase="Running"), pod("sweep-1", "sweep")]
    pods[1]["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": WAITS}]
    for one in pods:
        one["metadata"]["namespace"] = "demo"
    group = {"metadata": {"name": "sweep"}, "spec": {"queue": "vision", "minMember": 1}}
    objects: dict[Any, list[Any]] = {r.PODS: pods, r.POD_GROUPS: [group], r.NODES: [node("n0")], r.QUEUES: []}
    stores = {kind: SimpleNamespace(all=lambda items=items: items) for kind, items in objects.items()}
    api = SimpleNamespace(raw=lambda path: {"items": []})
    view = DemoView(cast(Any, SimpleNamespace(stores=stores)), cast(Any, api))
    console = Console(file=io.StringIO(), width=200)
    console.print(view.draw("now"))
    assert WAITS in cast(io.StringIO, console.file).getvalue()
