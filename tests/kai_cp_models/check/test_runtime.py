"""Minimum runtimes, as the checker judges them (4.6)."""

from __future__ import annotations

import pytest

from kai_cp_models.check import violations
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.policy import ActionName
from tests.support.objects import ago
from tests.support.plans import evicted, solved
from tests.support.tiny import node, pod, queue, world


def _named(name: str, kind: str, action: ActionName, node: str = "n0", *triggers: str) -> Decision:
    keys = tuple(GroupKey("default", trigger) for trigger in triggers)
    group = GroupKey("default", name.partition("-")[0])
    return Decision(kind, PodKey("default", name), group, node, action, triggers=keys)  # type: ignore[arg-type]


@pytest.mark.parametrize(("actions", "spared"), [("reclaim, preempt", True), ("preempt, reclaim", False)])
def test_a_surplus_pod_is_what_the_group_had_beyond_its_minimum_when_the_action_ran(
    actions: str, spared: bool
) -> None:
    """Reclaim may take the second pod, preempt both; once preempt has taken the first, none is surplus."""
    snapshot = world(
        [node(gpus=2)],
        [
            *(pod(f"runs-{i}", "n0", gpus=1, group="runs", queue="rich") for i in range(2)),
            pod("poor", gpus=1, queue="poor"),
            pod("high", gpus=1, queue="rich", priority="build"),
        ],
        groups={"runs": {"annotations": {"kai.scheduler/last-start-timestamp": ago(10)}}},
        queues=[queue("rich", quota={"gpu": 1}), queue("poor", quota={"gpu": 1})],
        actions=actions,
        minruntime={"defaultReclaimMinRuntime": "10m"},
    )

    by_action = {
        "reclaim": [
            _named("runs-1", "Evict", "reclaim", "n0", "poor"),
            _named("poor", "Nominate", "reclaim"),
        ],
        "preempt": [
            _named("runs-0", "Evict", "preempt", "n0", "high"),
            _named("high", "Nominate", "preempt"),
        ],
    }
    plan = Plan(tuple(decision for name in actions.split(", ") for decision in by_action[name]))
    faults = violations(snapshot, plan)
    assert [fault.partition(":")[0] for fault in faults] == ([] if spared else ["runtime"])


def test_a_protected_group_is_not_moved_as_a_whole() -> None:
    """It may give up one of its two pods, and a new place for both is no reason to stop both."""
    snapshot = world(
        [node("n0", gpus=2), node("n1", gpus=2, labels={"kind": "old"})],
        [
            *(pod(f"runs-{i}", "n0", gpus=1, group="runs") for i in range(2)),
            pod("high", gpus=2, priority="build"),
        ],
        groups={"runs": {"annotations": {"kai.scheduler/last-start-timestamp": ago(10)}}},
        actions="preempt",
        minruntime={"defaultPreemptMinRuntime": "10m"},
    )
    evictions = [_named(f"runs-{i}", "Evict", "preempt", "n0", "high") for i in range(2)]
    moves = [_named(f"runs-{i}", "Nominate", "preempt", "n1") for i in range(2)]
    faults = violations(snapshot, Plan((*evictions, *moves, _named("high", "Nominate", "preempt"))))
    assert [fault.partition(":")[0] for fault in faults] == ["runtime"]


@pytest.mark.parametrize(("first", "second"), [("near", "far"), ("far", "near")])
def test_the_trigger_that_an_eviction_is_charged_to_grants_the_minimum_runtime(
    first: str, second: str
) -> None:
    """Between departments the runtime of the victim's department holds, within it that of its queue."""
    snapshot = world(
        [node(gpus=2)],
        [
            pod("runs", "n0", gpus=2, queue="rich"),
            pod("near", gpus=1, queue="near"),
            pod("far", gpus=1, queue="far"),
        ],
        groups={"runs": {"annotations": {"kai.scheduler/last-start-timestamp": ago(10)}}},
        queues=[
            queue("mine", "", reclaimMinRuntime="10m"),
            queue("rich", "mine", quota={"gpu": 0}, reclaimMinRuntime="0s"),
            queue("near", "mine", quota={"gpu": 1}),
            queue("far", quota={"gpu": 1}),
        ],
        actions="reclaim",
    )
    plan = [_named("runs", "Evict", "reclaim", "n0", first, second)]
    plan += [_named(name, "Nominate", "reclaim") for name in (first, second)]
    faults = [fault for fault in violations(snapshot, Plan(tuple(plan))) if fault.startswith("runtime")]
    assert bool(faults) is (first == "far")


@pytest.mark.parametrize(
    ("noted", "ran", "spared", "said"),
    [
        (120, 120, True, False),
        (7200, 7200, False, False),
        (60, 7200, False, False),
        (-10, 7200, False, True),
        (-86400 * 365, 7200, False, True),
        (-10, None, True, True),
    ],
)
def test_an_owner_cannot_write_that_its_pods_started_later(
    noted: int, ran: int | None, spared: bool, said: bool
) -> None:
    """Five minutes are granted. The note counts no later than the pod's own start, in decisions and for the
    checker; while no pod has said when it started, as KAI counts it. A time in the future is named.
    """
    status = {} if ran is None else {"startTime": ago(ran)}
    snapshot = world(
        [node(gpus=1)],
        [pod("runs", "n0", gpus=1, queue="rich", status=status), pod("poor", gpus=1, queue="poor")],
        groups={"runs": {"annotations": {"kai.scheduler/last-start-timestamp": ago(noted)}}},
        queues=[queue("rich", quota={"gpu": 0}), queue("poor", quota={"gpu": 1})],
        actions="reclaim",
        minruntime={"defaultReclaimMinRuntime": "5m"},
    )
    assert bool(evicted(solved(snapshot))) is not spared
    taken = Plan(
        (_named("runs", "Evict", "reclaim", "n0", "poor"), _named("poor", "Nominate", "reclaim")),
    )
    assert any(fault.startswith("runtime") for fault in violations(snapshot, taken)) is spared
    assert any("last-start-timestamp" in one.reason for one in snapshot.set_aside) is said


@pytest.mark.parametrize(("state", "spared"), [("Running", True), ("Releasing", False)])
def test_a_pod_that_terminates_is_none_that_the_group_keeps(state: str, spared: bool) -> None:
    """A protected group may give up what it has beyond its minimum of one pod: of two pods one, and none
    where the other goes away by itself."""
    snapshot = world(
        [node(gpus=1), node("n1", gpus=1)],
        [
            pod("runs-0", "n1", gpus=1, group="runs", state=state),
            pod("runs-1", "n0", gpus=1, group="runs"),
            pod("high", gpus=1, priority="build"),
        ],
        groups={"runs": {"annotations": {"kai.scheduler/last-start-timestamp": ago(10)}}},
        actions="preempt",
        minruntime={"defaultPreemptMinRuntime": "10m"},
    )
    plan = Plan((_named("runs-1", "Evict", "preempt", "n0", "high"), _named("high", "Nominate", "preempt")))
    faults = violations(snapshot, plan)
    assert [fault.partition(":")[0] for fault in faults] == ([] if spared else ["runtime"])
