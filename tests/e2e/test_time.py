"""Starts in the future on a real API server: made, kept over a crash, backfilled, carried out, not forged."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import ApiError
from tests.e2e.world import Program, World

NOTE = "kai-cp/reservation"
EXPECTED = "kai-cp/expected-runtime"
START_SECONDS = 75
"""Until the promised start: the steps before it take a third of that time on a busy machine."""


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def add_group(world: World, name: str, queue: str, size: int, gpus: int, **more: Any) -> None:
    """A gang whose pod group carries annotations."""
    notes, spec = more.pop("notes", {}), more.pop("spec", {})
    body = {
        "metadata": {
            "name": name,
            "namespace": world.namespace,
            "labels": world.labels,
            "annotations": notes,
        },
        "spec": {"queue": queue, "minMember": size, **more},
    }
    world.api.create(r.POD_GROUPS, world.namespace, body)
    for i in range(size):
        world.add_pod(f"{name}-{i}", name, gpus, spec=spec)


def on(node: str) -> dict[str, Any]:
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def held(world: World, name: str = "hero") -> dict[str, Any]:
    """The reservation of a pod group from its annotation; {} without one."""
    found: dict[str, Any] = json.loads(world.annotations(name).get(NOTE, "{}"))
    return found


def scheduler(world: World, tmp_path: Path) -> Program:
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump({"reservations": {"enabled": True}}))
    return world.scheduler(f"--settings={settings}")


def start_of(world: World, name: str) -> float:
    note = "kai.scheduler/last-start-timestamp"
    return seconds(world.until(lambda: world.annotations(name).get(note), f"{name} has started"))


def evictions(world: World, group: str) -> list[dict[str, Any]]:
    """What is told of the evictions of a pod group."""
    return [e for e in world.events("Evict") if e["involvedObject"]["name"] == group]


def test_a_promise_is_kept_over_a_crash_backfilled_and_carried_out(world: World, tmp_path: Path) -> None:
    """hero needs both nodes, and a keeps one for 75 s. s declares 1 s, stays longer, and is evicted
    when hero starts.
    """
    first, second = world.add_nodes(2)
    queue = world.add_queue()
    process = scheduler(world, tmp_path)
    world.binder()
    add_group(world, "a", queue, 1, 8, notes={EXPECTED: f"{START_SECONDS}s"}, spec=on(first))
    due = start_of(world, "a") + START_SECONDS
    add_group(world, "hero", queue, 2, 8, notes={"kai-cp/reserve": "true", EXPECTED: "1h"})
    made = world.until(lambda: held(world), "the reservation is written")
    assert made["nodes"] == {first: 8, second: 8}
    assert seconds(made["start"]) == due
    process.kill()
    scheduler(world, tmp_path)
    add_group(world, "s", queue, 1, 4, notes={EXPECTED: "1s"}, preemptibility="preemptible")
    add_group(world, "t", queue, 1, 4, notes={EXPECTED: "2h"}, preemptibility="preemptible")
    world.until(lambda: world.running("s"), "backfill runs")
    assert held(world) == made, "the same promise after the crash"
    assert not world.running("t"), "what does not end before the start waits"
    assert time.time() < due, "all of this came before the start"
    # The clock of the machine may step, so what is compared are the instants that the scheduler wrote.
    world.until(lambda: time.time() >= due - 1.0, "a ends", 2.0 * START_SECONDS)
    world.api.delete(r.PODS, world.namespace, "a-0")
    world.until(lambda: len(world.running("hero")) == 2, "the holder runs")
    assert not world.running("s")
    ended = world.until(lambda: world.annotations("s").get("kai.scheduler/last-eviction-timestamp"), "noted")
    assert min(seconds(ended), start_of(world, "hero")) >= due
    told = world.until(lambda: evictions(world, "s"), "it is told")
    assert told[0]["metadata"]["annotations"]["evictor-pod-group-name"] == "hero"
    assert "reservation" in json.dumps(told[0]["metadata"]["annotations"])
    world.until(lambda: NOTE not in world.annotations("hero"), "the annotation goes with the start")


def test_a_lost_node_moves_the_start_with_its_cause(world: World, tmp_path: Path) -> None:
    """a, b and c end after 10, 10 and 20 minutes; hero holds two nodes, one of which is cordoned."""
    nodes = world.add_nodes(3)
    queue = world.add_queue()
    scheduler(world, tmp_path)
    world.binder()
    for name, node, lasts in zip("abc", nodes, ("10m", "10m", "20m"), strict=True):
        add_group(world, name, queue, 1, 8, notes={EXPECTED: lasts}, spec=on(node))
    late = start_of(world, "c") + 1200
    add_group(world, "hero", queue, 2, 8, notes={"kai-cp/reserve": "true", EXPECTED: "1h"})
    made = world.until(lambda: held(world), "the reservation is written")
    assert set(made["nodes"]) == set(nodes[:2])
    world.api.patch(r.NODES, "", nodes[1], {"spec": {"unschedulable": True}})
    moved = world.until(lambda: (found := held(world)) != made and found, "the reservation moves")
    assert set(moved["nodes"]) == {nodes[0], nodes[2]}
    assert seconds(moved["start"]) == late
    assert moved["promised"] == made["promised"]
    said = world.until(lambda: [e for e in world.events() if "NodeLost" in e["message"]], "the cause is told")
    assert said[0]["involvedObject"]["name"].startswith("hero")


def test_no_other_account_writes_a_reservation(world: World, tmp_path: Path) -> None:
    """An edit is refused, and so is a group that comes with one; deleting it is allowed, and undone."""
    first, second = world.add_nodes(2)
    queue = world.add_queue()
    scheduler(world, tmp_path)
    world.binder()
    add_group(world, "a", queue, 1, 8, notes={EXPECTED: "10m"}, spec=on(first))
    start_of(world, "a")
    add_group(world, "hero", queue, 2, 8, notes={"kai-cp/reserve": "true", EXPECTED: "1h"})
    made = world.until(lambda: held(world), "the reservation is written")
    forged = json.dumps({**made, "start": made["made"], "promised": made["made"]})
    with pytest.raises(ApiError, match="kai-cp/reservation"):
        world.api.patch(r.POD_GROUPS, world.namespace, "hero", {"metadata": {"annotations": {NOTE: forged}}})
    with pytest.raises(ApiError, match="kai-cp/reservation"):
        add_group(world, "forger", queue, 2, 8, notes={NOTE: forged})
    assert held(world) == made
    world.api.patch(r.POD_GROUPS, world.namespace, "hero", {"metadata": {"annotations": {NOTE: None}}})
    again = world.until(lambda: held(world), "it is planned anew")
    assert again["nodes"] == {first: 8, second: 8}


def test_an_owner_cannot_restart_a_group_that_a_maximum_ended(world: World, tmp_path: Path) -> None:
    """a runs for its 5 seconds and is ended: its owner can neither delete that note nor change its time."""
    world.add_nodes(1)
    queue = world.add_queue()
    settings = tmp_path / "settings.yaml"
    maximum = {"enforce": True, "requeue_delay_seconds": 3600}
    settings.write_text(yaml.safe_dump({"max_runtime": maximum}))
    world.scheduler(f"--settings={settings}")
    world.binder()
    add_group(world, "a", queue, 1, 8, notes={"kai-cp/max-runtime": "5s"})
    world.until(lambda: world.annotations("a").get("kai-cp/ended"), "the maximum ends it")
    before = world.annotations("a")
    for note, text in (
        ("kai-cp/ended", None),
        ("kai.scheduler/last-eviction-timestamp", "2020-01-01T00:00:00Z"),
    ):
        with pytest.raises(ApiError, match="only the scheduler changes when it ended a pod group"):
            world.api.patch(r.POD_GROUPS, world.namespace, "a", {"metadata": {"annotations": {note: text}}})
    world.api.patch(r.POD_GROUPS, world.namespace, "a", {"metadata": {"annotations": {"own": "note"}}})
    assert world.annotations("a")["kai-cp/ended"] == before["kai-cp/ended"]


def test_a_pod_is_moved_for_the_goal_unless_a_group_needs_capacity(world: World, tmp_path: Path) -> None:
    """a and b run on two nodes, of which one is to become free. While big waits, which needs both
    nodes, nothing moves; then a does.
    """
    first, second = world.add_nodes(2)
    queue = world.add_queue()
    acts = {"goal": "nodes=1", "mode": "act", "windows": ["00:00-24:00"], "max_moves_per_hour": 5}
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump({"defrag": {**acts, "mode": "report"}}))
    process = world.scheduler(f"--settings={settings}")
    world.binder()
    for name, gpus, other in (("a", 2, second), ("b", 4, first)):
        world.api.patch(r.NODES, "", other, {"spec": {"unschedulable": True}})
        world.add_gang(name, queue, 1, gpus, preemptibility="preemptible")
        world.until(lambda name=name: world.running(name), f"{name} runs")
        world.api.patch(r.NODES, "", other, {"spec": {"unschedulable": None}})
    world.add_gang("big", queue, 2, 8)
    world.stays(lambda: len(world.running()) == 2, 3.0)
    process.kill()
    settings.write_text(yaml.safe_dump({"defrag": acts}))
    world.scheduler(f"--settings={settings}")
    world.until(lambda: (world.group("big").get("status") or {}).get("schedulingConditions"), "said why")
    world.stays(lambda: len(world.running()) == 2, 5.0)
    for i in range(2):
        world.api.delete(r.PODS, world.namespace, f"big-{i}")
    world.api.delete(r.POD_GROUPS, world.namespace, "big")
    world.until(lambda: not world.pods("a"), "the first by name is moved")
    assert world.running("b"), "the other stays"
    told = world.until(lambda: evictions(world, "a"), "it is told")
    assert told[0]["metadata"]["annotations"]["evictor-action-type"] == "defrag"
    note = json.loads(world.until(lambda: world.annotations("a").get("kai-cp/moved"), "and noted"))
    assert (note["pods"], len(note["at"])) == (1, 1)
    world.add_pod("a-again", "a", 2)
    world.until(lambda: world.running("a"), "it runs again")
    assert world.running("a")[0]["spec"]["nodeName"] == second
    world.stays(lambda: len(world.running()) == 2, 3.0)
