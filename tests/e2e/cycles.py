"""How many cycles a scheduler takes to serve a gang: a count, so that a busy machine changes nothing."""

from __future__ import annotations

import io
import urllib.request
import zipfile
from typing import Any

import orjson

from tests.e2e.world import PATIENCE_SECONDS, Program, World

Object = dict[str, Any]


def cycles_until_bound(world: World, scheduler: Program, name: str, queue: str, size: int = 4) -> int:
    """Make a gang of one-GPU pods; cycles that saw it whole, up to the one that ordered it to be bound."""
    looked_at = max(numbers(scheduler), default=0)
    world.add_gang(name, queue, size)
    seen = 0

    def bound() -> int:
        nonlocal looked_at, seen
        for number in numbers(scheduler):
            if number <= looked_at:
                continue
            looked_at = number
            objects, decisions = cycle(scheduler, number)
            if not seen and whole(objects, world.namespace, name, size):
                seen = number
            if seen and {f"{name}-{i}" for i in range(size)} <= ordered(decisions, world.namespace):
                return number - seen + 1
        return 0

    return int(world.until(bound, f"the gang {name} is bound"))


def numbers(scheduler: Program) -> list[int]:
    """Numbers of the cycles that the scheduler remembers; none before it serves."""
    try:
        found = orjson.loads(ask(scheduler, "/debug/cycles"))["cycles"]
    except OSError:
        return []
    return [entry["cycle"] for entry in found]


def cycle(scheduler: Program, number: int) -> tuple[Object, list[Object]]:
    """What a cycle saw and what it decided."""
    with zipfile.ZipFile(io.BytesIO(ask(scheduler, f"/debug/cycles/{number}"))) as archive:
        objects = orjson.loads(archive.read("snapshot.json"))["rawObjects"]
        return objects, orjson.loads(archive.read("decisions.json"))["decisions"]


def snapshot(scheduler: Program) -> Object:
    """What the scheduler knows of the cluster now: lists by kind."""
    with zipfile.ZipFile(io.BytesIO(ask(scheduler, "/get-snapshot"))) as archive:
        objects: Object = orjson.loads(archive.read("snapshot.json"))["rawObjects"]
        return objects


def ask(scheduler: Program, path: str) -> bytes:
    """The answer of the scheduler's data port."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{scheduler.data}{path}", timeout=PATIENCE_SECONDS) as answer:
        return bytes(answer.read())


def whole(objects: Object, namespace: str, name: str, size: int) -> bool:
    """Whether the pod group and all its pods are there."""
    groups = {
        item["metadata"]["name"]
        for item in objects["podGroups"]
        if item["metadata"]["namespace"] == namespace
    }
    pods = [
        item
        for item in objects["pods"]
        if item["metadata"]["namespace"] == namespace
        and (item["metadata"].get("annotations") or {}).get("pod-group-name") == name
    ]
    return name in groups and len(pods) == size


def ordered(decisions: list[Object], namespace: str) -> set[str]:
    """Names of the namespace's pods that are ordered to be bound."""
    return {
        entry["pod"] for entry in decisions if entry["kind"] == "Bind" and entry["namespace"] == namespace
    }
