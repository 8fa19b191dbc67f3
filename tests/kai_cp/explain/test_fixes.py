"""Fixes in the order of cost that the settings say."""

from __future__ import annotations

from kai_cp.explain.document import Explainer
from kai_cp.explain.draft import Draft
from kai_cp_models.settings import ExplainSettings, FixKind, Settings
from kai_cp_models.snapshot import GroupKey
from tests.kai_cp.explain.clusters import NOW, cluster
from tests.support.tiny import node, pod

X = GroupKey("default", "x")


def kinds_with(*order: FixKind) -> list[str]:
    """Kinds of the fixes for x, behind a job that cannot be preempted, under an order of cost."""
    raw = cluster(
        [node("n0", gpus=2)],
        [pod("hog", "n0", gpus=2), pod("x", gpus=2)],
        groups={"hog": {"preemptibility": "non-preemptible"}},
    )
    settings = Settings(explain=ExplainSettings(fix_order=order))
    entry = Explainer(Draft(raw, NOW), settings).explain(X)
    return [fix["kind"] for fix in entry["fixes"]]


def test_the_settings_say_what_is_cheapest() -> None:
    assert kinds_with("stop", "add-nodes") == ["stop", "add-nodes"]
    assert kinds_with("add-nodes", "stop") == ["add-nodes", "stop"]


def test_a_kind_that_is_left_out_is_not_looked_for() -> None:
    assert kinds_with("add-nodes") == ["add-nodes"]
