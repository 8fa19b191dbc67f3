"""What an explanation says in words where nothing was tried, and of a gang of one."""

from __future__ import annotations

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
