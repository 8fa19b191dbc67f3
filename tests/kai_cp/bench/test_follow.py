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
from tests.support import objects as raw
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


def test_objects_that_a_plan_changes_have_a_new_version_and_others_stay_as_they_were() -> None:
    raw = SHAPES["mixed"](8, 1)
    plan = decide(parse(raw, now=NOW.timestamp()), SETTINGS)
    after = following(raw, plan, (), NOW.timestamp())["rawObjects"]
    before = {one["metadata"]["name"]: one for one in raw["rawObjects"]["pods"]}
    pods = {one["metadata"]["name"]: one for one in after["pods"]}
    bound = {decision.pod.name for decision in plan.decisions if decision.kind == "Bind"}
    assert bound
    assert all(pods[name]["metadata"]["resourceVersion"] for name in pods)
    assert bound <= {name for name, one in pods.items() if one is not before[name]} < pods.keys()
    changed = [(before[name]["metadata"], pods[name]["metadata"]) for name in bound]
    assert all(old["resourceVersion"] != new["resourceVersion"] for old, new in changed)


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


ACTIONS = "allocate, consolidation, reclaim, preempt, stalegangeviction"


def cycles(world: raw.Object, count: int) -> list[list[tuple[str, str]]]:
    """What the next cycles do, each after the one before was carried out and its victims wait again."""
    found, now = [], NOW.timestamp()
    for i in range(count):
        snapshot = parse(world, now=now + i)
        plan = decide(snapshot, SETTINGS)
        assert violations(snapshot, plan) == []
        found.append([(one.kind, one.pod.name) for one in plan.decisions])
        world = following(world, plan, (), now + i)
    return found


def test_a_freed_place_is_the_triggers_in_the_next_cycle() -> None:
    """The node is full of queue a, whose pods b may not take for two hours. t may preempt one of them. In the
    fair order b0 comes before t, as b holds nothing; it would take what is freed, and t would preempt again.
    """
    pods = [tiny.pod(f"a{i}", "n0", queue="a", gpus=1) for i in range(3)]
    pods += [
        tiny.pod("t", queue="a", gpus=1, priority="build-preemptible"),
        tiny.pod("b0", queue="b", gpus=1),
    ]
    none = {"gpu": 0, "cpu": 0, "memory": 0}
    started = {"annotations": {"kai.scheduler/last-start-timestamp": raw.ago(60)}}
    world = tiny.cluster(
        [tiny.node("n0", gpus=3)],
        pods,
        queues=[tiny.queue("a", quota=none, reclaimMinRuntime="2h"), tiny.queue("b", quota=none)],
        groups={f"a{i}": started for i in range(3)},
        actions=ACTIONS,
    )
    first, second, third = cycles(world, 3)
    assert first == [("Evict", "a2"), ("Nominate", "t")]
    assert second == [("Bind", "t")]
    assert third == []


def test_a_victims_queue_does_not_get_back_what_it_gave() -> None:
    """r (queue a, 5 GPUs) gives way to t (queue b). w of queue a fits nowhere before. Once r is gone it comes
    before t, as its queue has the higher priority and is within its quota again."""
    pods = [tiny.pod("w", queue="a", gpus=2), tiny.pod("t", queue="b", gpus=5)]
    pods += [tiny.pod("ra", "n1", queue="a", gpus=2, priority="build")]
    pods += [
        tiny.pod("rb", "n2", queue="a", gpus=1, priority="build"),
        tiny.pod("r", "n0", queue="a", gpus=5),
    ]
    nodes = [tiny.node("n0", gpus=5), tiny.node("n1", gpus=3), tiny.node("n2", gpus=2)]
    queues = [tiny.queue("a", quota={"gpu": 5}, priority=200), tiny.queue("b", quota={"gpu": 5})]
    first, second = cycles(tiny.cluster(nodes, pods, queues=queues, actions=ACTIONS), 2)
    assert first == [("Evict", "r"), ("Nominate", "t")]
    assert second == [("Bind", "t")]


def test_a_promise_that_no_plan_repeats_is_taken_back() -> None:
    """t was promised n0, which is gone."""
    world = tiny.cluster([tiny.node("n1", gpus=1)], [tiny.pod("t", gpus=1), tiny.pod("a", "n1", gpus=1)])
    world["rawObjects"]["pods"][0]["status"]["nominatedNodeName"] = "n0"
    now = NOW.timestamp()
    after = following(world, decide(parse(world, now=now), SETTINGS), (), now)
    assert [one["status"].get("nominatedNodeName") for one in after["rawObjects"]["pods"]] == [None, None]
    assert world["rawObjects"]["pods"][0]["status"]["nominatedNodeName"] == "n0"
