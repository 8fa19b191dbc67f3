"""The text of a what-if: one of something is told as one."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.explain.whatif_text import lines

SIDE = {"pending": [], "stages": []}
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
    assert "Stopped  1 pod before, 0 after" in said
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
