"""What an explanation says in words where nothing was tried, and of a gang of one."""

from __future__ import annotations

import pytest

from kai_cp.explain.document import Explainer
from kai_cp.explain.draft import Draft
from kai_cp.explain.text import lines
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import GroupKey
from tests.kai_cp.explain.clusters import NOW, cluster
from tests.support.tiny import node, pod


def words(kinds: tuple[str, ...]) -> str:
    """The text of x, which is larger than the only node, with fixes of these kinds."""
    world = cluster([node("n0", gpus=1)], [pod("x", gpus=2)])
    entry = Explainer(Draft(world, NOW), Settings(), kinds=kinds).explain(GroupKey("default", "x"))
    return "\n".join(lines(entry))


def test_fixes_that_nobody_looked_for_are_not_called_useless() -> None:
    assert "none was tried" in words(())
    assert "none that was tried helps" in words(("add-nodes",))


def test_what_moves_is_not_called_evicted() -> None:
    """One of two pods of one GPU makes place for x, which needs both GPUs of a node."""
    running = [pod("r0", "n0", gpus=1), pod("r1", "n1", gpus=1)]
    world = cluster(
        [node("n0", gpus=2), node("n1", gpus=2)],
        [*running, pod("x", gpus=2)],
        actions="allocate, consolidation",
    )
    explainer = Explainer(Draft(world, NOW), Settings(), kinds=())
    moved = [entry for entry in explainer.explain_all(explainer.waiting()) if entry["state"] == "moved"]
    (text,) = ("\n".join(lines(entry)) for entry in moved)
    assert "Moved    1 pod by consolidation for default/x" in text
    assert "Evicted" not in text


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (("reclaim: lost GPUs by rank", 2_472_309, True), "no permitted plan costs those with the greater"),
        (("preempt: lost work [GPU-milliseconds]", 7_200_000, True), "lost work: 2 GPU-hours; no permitted"),
        (("preempt: lost GPUs", 8, False), "lost GPUs: 8; at least 4 in any plan"),
    ],
)
def test_what_a_plan_costs_is_said_in_units_of_the_reader(stage: tuple[str, int, bool], words: str) -> None:
    world = cluster([node("n0", gpus=1)], [pod("x", gpus=2)])
    entry = Explainer(Draft(world, NOW), Settings(), kinds=()).explain(GroupKey("default", "x"))
    name, value, proved = stage
    one = {"name": name, "value": value, "bound": value / 2, "proved": proved}
    by = {"pods": ["default/r"], "for": [], "action": "preempt", "rule": "priority", "because": "so"}
    text = " ".join(
        " ".join(lines({**entry, "state": "evicted", "evictedBy": {**by, "alternatives": [one]}})).split()
    )
    assert words in text
