"""The cycle after a plan: bound pods run, evicted pods wait, deleted pods are gone."""

from __future__ import annotations

import pytest

from kai_cp.bench.follow import following
from kai_cp.bench.generate import NOW
from kai_cp.bench.generate.shapes import SHAPES
from kai_cp.reader import ParseMemo, parse
from kai_cp_models.check import violations
from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan
from kai_cp_models.pods import PodStatus
from kai_cp_models.settings import Settings

SETTINGS = Settings.model_validate({"solver": {"budget_seconds": 20, "patience": 1000, "workers": 1}})


@pytest.mark.parametrize("shape", ["mixed", "contended"])
def test_a_plan_is_carried_out(shape: str) -> None:
    raw = SHAPES[shape](8, 1)
    memo = ParseMemo()
    before = parse(raw, now=NOW.timestamp(), memo=memo)
    plan = decide(before, SETTINGS)
    kinds = {d.pod: d for d in plan.decisions if d.kind != "Nominate"}
    assert kinds
    gone = {next(p.key for p in before.pods if p.key not in kinds)}
    after = parse(following(raw, plan, gone), now=NOW.timestamp() + 1, memo=memo)
    assert {p.key for p in after.pods} == {p.key for p in before.pods} - gone
    assert not after.set_aside
    for key, decision in kinds.items():
        pod = after.pod_by_key[key]
        if decision.kind == "Bind":
            assert (pod.status, pod.node) == (PodStatus.RUNNING, decision.node)
            assert pod.gpu_groups == decision.gpu_groups[:1]
        else:
            assert (pod.status, pod.node, pod.gpu_groups) == (PodStatus.PENDING, None, ())
    # No place is given twice: neither doing nothing nor the next decisions break a rule.
    assert violations(after, Plan()) == []
    assert violations(after, decide(after, SETTINGS)) == []
