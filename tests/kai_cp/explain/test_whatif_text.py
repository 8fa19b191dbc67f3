"""The text of a what-if: one of something is told as one."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.explain.operations import beside_the_present
from kai_cp.explain.text import describe
from kai_cp.explain.whatif_text import lines

SIDE = {"pending": [], "stages": [], "evicted": 2}
DIFF = {
    "gain": [], "lose": [], "addedPlaced": [], "gpusBefore": 1, "gpusAfter": 1,
    "lostBefore": 1, "lostAfter": 0, "movedBefore": 0, "movedAfter": 0, "cycles": 1, "settled": True,
}  # fmt: skip


def text(pods: list[str]) -> str:
    stop = {"kind": "stop", "amount": len(pods), "proof": "proved", "ops": [{"op": "stop", "pods": pods}]}
    document: dict[str, Any] = {
        "now": "2026-11-20T12:00:00Z", "ops": [], "before": SIDE, "after": SIDE, "diff": DIFF,
        "least": stop, "bound": {"gpus": 1, "inUse": 1},
    }  # fmt: skip
    return "\n".join(lines(document, "s"))


def test_one_is_told_as_one() -> None:
    said = text(["ns/a"])
    assert "Evicted  1 pod before, 0 after" in said
    assert "settled after 1 cycle\n" in said
    assert "no scheduler has more than 1 GPU in use" in said


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        (["ns/a"], "Least    stop ns/a\n"),
        ([f"ns/{c}" for c in "abcdef"], "stop ns/a, ns/b, ns/c, ns/d and 2 more, 6 pods in all\n"),
    ],
)
def test_the_least_stop_names_its_pods_and_counts_several(pods: list[str], words: str) -> None:
    assert words in text(pods)


def test_figures_of_the_first_cycle_are_called_so_beside_those_of_the_end() -> None:
    assert "Refused  0 pod groups before, 0 after, in the first cycle\n" in text(["ns/a"])


def test_the_price_of_what_is_in_use_is_what_the_same_cycle_evicts() -> None:
    assert "cycle has 1, and evicts 2 pods\n" in text(["ns/a"])


def test_raises_have_their_unit() -> None:
    op = {"op": "set-queue", "queue": "q", "resource": "cpu", "field": "limit", "value": 3000}
    least = {
        "kind": "raise-limit", "amount": 2000, "proof": "proved", "ops": [op],
        "below": {"amount": 1000, "waiting": ["ns/a"]},
    }  # fmt: skip
    document = {"now": "", "ops": [], "before": SIDE, "after": SIDE, "diff": DIFF, "least": least}
    said = " ".join("\n".join(lines(document, "s")).split())
    assert "set the CPU limit of queue q to 3 CPUs; raised by 1 CPU, ns/a would" in said


@pytest.mark.parametrize(
    ("resource", "value", "was", "words"),
    [
        ("gpu", 8, 0, "set the GPU quota of queue q to 8 GPUs (now 0)"),
        ("gpu", 1, -1, "set the GPU quota of queue q to 1 GPU (now none)"),
        ("cpu", 5000, 4500, "set the CPU quota of queue q to 5 CPUs (now 4.5)"),
        ("memory", -1, 2000, "set no memory quota for queue q (now 2,000)"),
    ],
)
def test_a_bound_is_told_beside_what_it_was(resource: str, value: int, was: int, words: str) -> None:
    op = {"op": "set-queue", "queue": "q", "resource": resource, "field": "quota", "value": value}
    stated = {"metadata": {"name": "q"}, "spec": {"resources": {resource: {"quota": was}}}}
    assert describe({"ops": beside_the_present({"rawObjects": {"queues": [stated]}}, [op])}) == words
    unstated = {"metadata": {"name": "q"}, "spec": None}
    assert beside_the_present({"rawObjects": {"queues": [unstated]}}, [op]) == [op]


def test_a_question_without_a_change_is_answered_and_nothing_else_is_said() -> None:
    once = {key: value for key, value in DIFF.items() if key not in ("cycles", "settled")}
    document: dict[str, Any] = {
        "now": "2026-11-20T12:00:00Z", "ops": [], "before": SIDE, "after": SIDE, "diff": once,
        "bound": {"gpus": 1, "inUse": 1},
    }  # fmt: skip
    first, *_ = lines(document, "s")
    assert first.startswith("Bound    no scheduler has more than 1 GPU")
    changed = {**document, "ops": [{"op": "drain", "nodes": ["n"]}]}
    assert lines(changed, "s")[:2] == ["No pod group gains or loses.", "Change   drain n"]


def test_the_reason_of_what_is_added_and_waits_is_told() -> None:
    waits = {"podGroup": "ns/new", "reason": "QueueNotLeaf"}
    old = {"podGroup": "ns/old", "reason": "OverLimit"}
    document: dict[str, Any] = {
        "now": "", "ops": [{"op": "add", "object": {"kind": "Job", "metadata": {"name": "new"}}}],
        "before": {**SIDE, "pending": [old]}, "after": {**SIDE, "pending": [old, waits]}, "diff": DIFF,
    }  # fmt: skip
    assert "\nWaiting  ns/new (QueueNotLeaf), in the first cycle\n" in "\n".join(lines(document, "s"))


def test_a_group_that_was_changed_and_waits_is_named_with_its_reason() -> None:
    old, other = {"podGroup": "ns/x", "reason": "OverLimit"}, {"podGroup": "ns/y", "reason": "OverLimit"}
    once = {key: value for key, value in DIFF.items() if key not in ("cycles", "settled")}
    document: dict[str, Any] = {
        "now": "", "ops": [{"op": "set-priority", "podGroup": "podgroup/ns/x", "value": 9}],
        "before": {**SIDE, "pending": [old, other]}, "after": {**SIDE, "pending": [old, other]}, "diff": once,
    }  # fmt: skip
    assert "\nWaiting  ns/x (OverLimit)\n" in "\n".join(lines(document, "s"))
    document["diff"] = {**once, "gain": ["ns/x"]}
    assert "Waiting" not in "\n".join(lines(document, "s"))
