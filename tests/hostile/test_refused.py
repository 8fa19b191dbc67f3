"""One pod group with which every plan is refused: it waits, and no other group does for it.

Whatever the fault names, a node, a queue, a pod, a group or nothing at all, and although the group is one of
many. ``KAI_CP_REFUSED_CLUSTERS`` sets how many clusters are tried.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest

from kai_cp_models import engine
from kai_cp_models.check import Violation
from kai_cp_models.engine import FAILED, REJECTED
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey
from kai_cp_models.snapshot import Snapshot
from tests.properties.reasking import decided, read
from tests.support.options import with_options

COUNT: Final = int(os.environ.get("KAI_CP_REFUSED_CLUSTERS", "5"))
PAIRED: Final = 4
"""A victim leaves for two groups here; for one of them it would leave in part."""
FAULTS: Final[dict[str, Callable[[Snapshot, Decision], dict[str, Any]]]] = {
    "node": lambda _, place: {"node": place.node},
    "queue": lambda snapshot, place: {"queue": snapshot.group_by_key[place.group or GroupKey("", "")].queue},
    "pod": lambda _, place: {"pods": (place.pod,)},
    "group": lambda _, place: {"groups": (place.group,)},
    "nothing": lambda _, __: {},
}


def served(plan: Plan) -> list[Decision]:
    """Places of pods that waited."""
    moved = {one.pod for one in plan.decisions if one.kind == "Evict"}
    return [one for one in plan.decisions if one.kind != "Evict" and one.pod not in moved and one.group]


def left_out(plan: Plan) -> set[GroupKey]:
    """Groups that wait because of a failure."""
    return {row.group for row in plan.unscheduled if row.reason == "InternalError"}


@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("seed", sorted({PAIRED, *range(COUNT)}))
def test_a_group_with_which_plans_are_refused_costs_no_other(
    seed: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, settings = with_options(seed)
    places = served(decided(read(cluster, settings), settings))
    if not places:
        pytest.skip("nothing gets a place")
    guilty = Random(seed).choice(sorted({one.group for one in places if one.group}))
    plain = engine.audit

    def refusing(snapshot: Snapshot, plan: Plan, *more: Any, **named: Any) -> list[Violation]:
        faults = plain(snapshot, plan, *more, **named)
        mine = [one for one in plan.decisions if one.group == guilty and one.kind != "Evict"]
        return [Violation("test", "refused", **FAULTS[what](snapshot, mine[-1])), *faults] if mine else faults

    monkeypatch.setattr(engine, "audit", refusing)
    plan = decided(read(cluster, settings), settings)
    assert left_out(plan) == {guilty}
    assert not [stage.name for stage in plan.stages if stage.kind in (REJECTED, FAILED)]
