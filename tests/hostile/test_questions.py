"""What-if bodies that ask for too much, or make no sense: one sentence each, after little work."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest

from kai_cp.explain import service
from kai_cp.explain.draft import BadOperation
from kai_cp.explain.operations import applied
from kai_cp.explain.tasks import ExplainTask, RefusedQuestion, question_of
from kai_cp_models.settings import Settings
from tests.kai_cp.explain.clusters import NOW, cluster
from tests.support.tiny import node, pod

OPS: dict[str, list[Any]] = {
    "a million nodes": [{"op": "add-nodes", "like": "n0", "count": 1_000_000}],
    "a million nodes in parts": [{"op": "add-nodes", "like": "n0", "count": 9_000}] * 200,
    "a count beyond every number": [{"op": "add-nodes", "like": "n0", "count": 10**30}],
    "a count that is text": [{"op": "add-nodes", "like": "n0", "count": "1000000"}],
    "a negative count": [{"op": "add-nodes", "like": "n0", "count": -1}],
    "copies of copies": [
        {"op": "add-nodes", "like": "n0" + "-copy-1" * i, "count": 5_000} for i in range(40)
    ],
    "too many operations": [{"op": "cordon", "nodes": ["n0"]}] * 100_000,
    "objects without end": [{"op": "add", "objects": [{"kind": "Pod", "metadata": {"name": "p"}}] * 200_000}],
    "a queue that is its own parent": [
        {"op": "add", "object": {"kind": "Queue", "metadata": {"name": "a"}, "spec": {"parentQueue": "a"}}}
    ],
    "no operation": [{"op": "format-disks"}],
    "no object": ["cordon"],
    "no node": [{"op": "drain", "nodes": ["n99"]}],
    "nodes that are none": [{"op": "drain", "nodes": 5}],
    "a pod that is none": [{"op": "stop", "pods": [None]}],
    "a quota that is none": [
        {"op": "set-queue", "queue": "q", "resource": "gpu", "field": "quota", "value": "lots"}
    ],
    "a date that is none": [{"op": "at", "now": "tomorrow"}],
    "a minimum beyond every number": [{"op": "set-min-member", "podGroup": "default/x", "value": 1e300}],
}
SOUND = frozenset(("a queue that is its own parent",))
"""These are accepted: the reader sets the object aside and says so."""


@pytest.mark.parametrize("name", sorted(OPS.keys() - SOUND))
def test_operations_are_refused_with_one_sentence(name: str) -> None:
    world = cluster([node("n0", gpus=1)], [pod("x", gpus=1)])
    began = time.process_time()
    with pytest.raises(BadOperation) as refused:
        applied(world, OPS[name], NOW)
    assert time.process_time() - began < 5
    assert str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'"' * 1_000,
        b"[" * 100_000,
        b'{"ops": 5}',
        b'{"ops": [5]}',
        b'{"most": 1e9}',
        b'{"most": true}',
        b'{"most": 0}',
        b'{"least": "nodes:n0"}',
        b'{"least": {"kind": 5}}',
        b'{"shell": "rm"}',
        orjson.dumps({"ops": [{"op": "add", "object": {"k": "v" * 100}}]})[:-3],
    ],
)
def test_bodies_are_refused_with_one_sentence(body: bytes) -> None:
    with pytest.raises(BadOperation) as refused:
        question_of(body)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_an_answer_has_the_memory_of_its_setting_and_says_when_it_needs_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds: list[int] = []
    monkeypatch.setattr(service.memory, "bound", bounds.append)
    monkeypatch.setattr(service, "NICE", 0)
    settings = Settings.model_validate({"limits": {"memory_bytes": 512 * 1024**2}})
    raw = orjson.dumps(cluster([node("n0")], []))
    assert isinstance(service.answer(ExplainTask(raw, NOW, settings, ())), bytes)

    def exhausted(_task: ExplainTask) -> None:
        raise MemoryError

    monkeypatch.setattr(service, "_explained", exhausted)
    refused = service.answer(ExplainTask(raw, NOW, settings, ()))
    assert refused == RefusedQuestion("it would need more memory than is allowed")
    assert bounds == [512 * 1024**2] * 2
