"""Explanations on a real API server: the text of a condition, and what the loopback port refuses."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

import orjson
import pytest

from kai_cp.kube.scheduler.explaining import told
from tests.e2e.cycles import ask
from tests.e2e.world import PATIENCE_SECONDS, Program, World

MOST_SECONDS = 60.0
"""The time that the port gives to any question."""
MOST_BYTES = 9 * 1024**3


@pytest.fixture
def scheduler(world: World) -> Program:
    """A scheduler, a queue limited to three GPUs, and a gang in it that asks for four."""
    world.add_nodes(1, gpus=8)
    world.add_queue("q", limit=3)
    world.add_gang("x", world.queues[-1], 4)
    return world.scheduler()


def test_the_condition_says_what_explain_says_with_the_cheapest_fix(world: World, scheduler: Program) -> None:
    def condition() -> dict[str, Any]:
        found = (world.group("x").get("status") or {}).get("schedulingConditions") or [{}]
        return dict(found[-1])

    world.until(lambda: "would start if you" in condition().get("message", ""), "the fix is in the condition")
    said = condition()
    path = f"/explain?podGroup={world.namespace}/x"
    entry = orjson.loads(ask(scheduler, path))["explanations"][0]
    assert said["message"] == told(entry)
    assert said["reasons"][0]["reason"] == entry["reason"] == "OverLimit"
    assert entry["fixes"][0]["kind"] == "raise-limit"
    assert "3" in entry["message"]
    assert f"set the GPU limit of queue {world.queues[-1]} to 4" in said["message"]


QUESTIONS: dict[str, tuple[Any, str]] = {
    "a million nodes": ([{"op": "add-nodes", "like": "NODE", "count": 1_000_000}], "nodes"),
    "a count beyond every number": ([{"op": "add-nodes", "like": "NODE", "count": 10**18}], "nodes"),
    "a job of a billion pods": (
        [
            {
                "op": "add",
                "object": {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": {"name": "j"},
                    "spec": {"parallelism": 10**9, "template": {"spec": {"schedulerName": "kai-scheduler"}}},
                },
            }
        ],
        "pods",
    ),
    "no operation": ([{"op": "format-disks"}], "format-disks"),
}


def test_hostile_questions_are_refused_with_a_sentence_in_time_and_memory(
    world: World, scheduler: Program
) -> None:
    world.until(lambda: world.group("x").get("status"), "a cycle")
    for name, (ops, word) in QUESTIONS.items():
        body = orjson.dumps({"ops": ops}).replace(b"NODE", world.nodes[-1].encode())
        status, answer = posted(scheduler, body)
        assert status == 400, (name, answer)
        assert word in answer, name
        assert answer.count("\n") == 1, name
        assert len(answer) < 400, name
    # A queue that is its own parent, and a cycle of two: set aside as in a snapshot, and the question is
    # answered.
    ring = [
        {"kind": "Queue", "metadata": {"name": name}, "spec": {"parentQueue": parent}}
        for name, parent in (("a", "a"), ("b", "c"), ("c", "b"))
    ]
    status, answer = posted(scheduler, orjson.dumps({"ops": [{"op": "add", "objects": ring}]}))
    assert (status, orjson.loads(answer)["diff"]["gain"]) == (200, [])
    assert posted(scheduler, b"[" * 100_000)[0] == 400
    assert scheduler.memory_bytes() < MOST_BYTES
    assert orjson.loads(ask(scheduler, f"/explain?podGroup={world.namespace}/x&kinds="))["explanations"]


def posted(scheduler: Program, body: bytes) -> tuple[int, str]:
    """Status and answer of a what-if body."""
    url = f"http://127.0.0.1:{scheduler.data}/what-if"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=MOST_SECONDS + PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
