"""The number of cycles that a scheduler takes to serve a gang: a count, so that a busy machine changes
nothing.
"""

from __future__ import annotations

import io
import urllib.error
import urllib.request
import zipfile
from typing import Any

import orjson

from tests.e2e.world import PATIENCE_SECONDS, Program, World

Object = dict[str, Any]


def cycles_until_bound(world: World, scheduler: Program, name: str, queue: str, size: int = 4) -> int:
    """Make a gang of one-GPU pods; returns the cycles that saw it whole, up to the one that ordered its
    binds.

    A scheduler remembers only its last twenty cycles, and on a busy machine it makes them faster than their
    snapshots can be fetched. So only cycles that order as many pods are fetched, and then those before the
    right one.
    """
    before = max((entry["cycle"] for entry in summaries(scheduler)), default=0)
    world.add_gang(name, queue, size)
    pods = {f"{name}-{i}" for i in range(size)}
    asked: set[int] = set()

    def ordering() -> int:
        for entry in summaries(scheduler):
            number = entry["cycle"]
            if number <= before or number in asked or entry["decisions"].get("Bind", 0) < size:
                continue
            asked.add(number)
            found = cycle(scheduler, number)
            if found is not None and pods <= ordered(found[1], world.namespace):
                return int(number)
        return 0

    bound = int(world.until(ordering, f"the gang {name} is bound"))
    first = bound
    while first > before + 1:
        found = cycle(scheduler, first - 1)
        if found is None or not whole(found[0], world.namespace, name, size):
            break
        first -= 1
    return bound - first + 1


def summaries(scheduler: Program) -> list[Object]:
    """The cycles that the scheduler remembers; none before it serves."""
    try:
        return list(orjson.loads(ask(scheduler, "/debug/cycles"))["cycles"])
    except OSError:
        return []


def cycle(scheduler: Program, number: int) -> tuple[Object, list[Object]] | None:
    """What a cycle saw and decided; None once it is forgotten."""
    try:
        answer = ask(scheduler, f"/debug/cycles/{number}")
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
    with zipfile.ZipFile(io.BytesIO(answer)) as archive:
        objects = orjson.loads(archive.read("snapshot.json"))["rawObjects"]
        return objects, orjson.loads(archive.read("decisions.json"))["decisions"]


def snapshot(scheduler: Program) -> Object:
    """The scheduler's present view of the cluster: lists by kind."""
    with zipfile.ZipFile(io.BytesIO(ask(scheduler, "/get-snapshot"))) as archive:
        objects: Object = orjson.loads(archive.read("snapshot.json"))["rawObjects"]
        return objects


def ask(scheduler: Program, path: str) -> bytes:
    """The answer of the scheduler's data port."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{scheduler.data}{path}", timeout=PATIENCE_SECONDS) as answer:
        return bytes(answer.read())


def whole(objects: Object, namespace: str, name: str, size: int) -> bool:
    """Whether the pod group and all its pods exist."""
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
    """Names of the namespace's pods whose bind is ordered."""
    return {
        entry["pod"] for entry in decisions if entry["kind"] == "Bind" and entry["namespace"] == namespace
    }
