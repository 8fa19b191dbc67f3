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
from tests.support import devices as dra
from tests.support import tiny

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
    after = parse(following(raw, plan, gone, NOW.timestamp()), now=NOW.timestamp() + 1, memo=memo)
    assert {p.key for p in after.pods} == {p.key for p in before.pods} - gone
    assert not after.set_aside
    for key, decision in kinds.items():
        pod = after.pod_by_key[key]
        if decision.kind == "Bind":
            assert (pod.status, pod.node) == (PodStatus.RUNNING, decision.node)
            assert pod.gpu_groups == decision.gpu_groups
        else:
            assert (pod.status, pod.node, pod.gpu_groups) == (PodStatus.PENDING, None, ())
    # No place is given twice: neither doing nothing nor the next decisions break a rule.
    assert violations(after, Plan()) == []
    assert violations(after, decide(after, SETTINGS)) == []


def test_shared_gpus_and_devices_of_claims_are_held() -> None:
    """x gets halves of both GPUs and the device: y, which asks for the same, then waits."""
    notes = {"gpu-fraction": "0.6", "gpu-fraction-num-devices": "2"}
    pods = [tiny.pod(name, notes=notes, resourceClaims=dra.claims(name)) for name in "xy"]
    raw = tiny.cluster(
        [tiny.node("n0", gpus=2)],
        pods,
        deviceClasses=[dra.device_class()],
        resourceSlices=[dra.slice_of("n0", dra.device("d"))],
        resourceClaims=[dra.claim(name, dra.exact()) for name in "xy"],
    )
    now = NOW.timestamp()
    plan = decide(parse(raw, now=now), SETTINGS)
    (decision,) = plan.decisions
    after = parse(following(raw, plan, (), now), now=now + 1)
    (x,) = (pod for pod in after.pods if pod.key == decision.pod)
    assert (x.status, x.gpu_groups, len(decision.gpu_groups)) == (PodStatus.RUNNING, decision.gpu_groups, 2)
    assert decide(after, SETTINGS).decisions == ()
    assert violations(after, Plan()) == []
