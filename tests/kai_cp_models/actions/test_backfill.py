"""Capacity that evictions leave over is given out in the same cycle, in the fair order."""

from __future__ import annotations

import logging
import time

import orjson
import pytest

from kai_cp.bench.generate import NOW, SHAPES
from kai_cp.reader import parse
from kai_cp_models.actions.backfill import backfill
from kai_cp_models.actions.eviction_plan import NO_VICTIMS, NOTHING_SUFFICES, OUT_OF_TIME
from kai_cp_models.cycle import Cycle, Eviction
from kai_cp_models.engine import decide
from kai_cp_models.joint.problem import Ask, ask_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.refusal import Refusal
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from kai_cp_models.units import Batch
from tests.support.plans import bound, evicted, lost, nominated, reasons, solved
from tests.support.worlds import cluster, gpu_bound, group, node, pod, pods, queue, spec


def world(*, victims: bool = True, limit: int = 8, waiting: int = 1) -> Snapshot:
    """Queue v holds a whole node with one gang and is due half of it; t of queue q takes that half. Queue r
    already holds its share, so its waiting pods reclaim nothing. If there are ``victims``, the waiting
    pods come before a running pod of their queue. Four GPUs are left over.
    """
    members = [*pods("v", 8, "n1"), pod("t-0", spec=spec(4)), pod("low-0", "n2")]
    members += [pod(f"u{i}-0") for i in range(waiting)]
    groups = [group("v", 8, queue="v"), group("t", queue="q")]
    groups += [group("low", queue="r", priority=10 if victims else 60)]
    groups += [group(f"u{i}", queue="r", priority=60, created=float(i)) for i in range(waiting)]
    queues = [
        queue("q", quota=gpu_bound(4)),
        queue("r", quota=gpu_bound(1), limit=gpu_bound(limit)),
        queue("v", quota=gpu_bound(4)),
    ]
    nodes = [node("n1"), node("n2", gpus=1)]
    return cluster(members, groups, nodes, queues, actions=("allocate", "reclaim", "preempt"))


def test_capacity_left_over_is_promised_without_a_further_eviction() -> None:
    plan = solved(world())
    assert lost(plan) == {f"v-{i}" for i in range(8)} == evicted(plan)
    assert nominated(plan) == {"t-0": "n1", "u0-0": "n1"}


@pytest.mark.parametrize(
    ("snapshot", "served", "low_goes"),
    [
        pytest.param(world(victims=False), 1, False, id="even where no pod may be disturbed for it"),
        pytest.param(world(limit=2), 1, False, id="within the queue's limit"),
        pytest.param(world(limit=1), 1, True, id="at the limit one gives way"),
        pytest.param(world(limit=3, waiting=4), 3, True, id="the fourth has to wait"),
        pytest.param(world(waiting=5), 5, True, id="four fit as they are, the fifth preempts"),
    ],
)
def test_the_fair_order_decides_between_waiting_pods(snapshot: Snapshot, served: int, low_goes: bool) -> None:
    plan = solved(snapshot)
    assert sum(name.startswith("u") for name in nominated(plan)) == served
    assert ("low-0" in lost(plan)) is low_goes
    # In the fair order the waiting pods come last, because they are the youngest.
    waiting = len([p for p in snapshot.pods if p.key.name.startswith("u")])
    assert sorted(name for name in reasons(plan) if name.startswith("u")) == [
        f"u{i}" for i in range(served, waiting)
    ]


def test_a_queue_at_its_limit_refuses_its_own_pods_only() -> None:
    """u0 of queue r, which is at its limit, comes before w of queue s; both ask for one GPU."""
    snapshot = world(victims=False, limit=1)
    snapshot = cluster(
        [*snapshot.pods, pod("w-0"), pod("s-0", "n3")],
        [*snapshot.groups, group("w", queue="s", created=9.0), group("s", queue="s", priority=60)],
        [*snapshot.nodes, node("n3", gpus=1)],
        [*snapshot.queues, queue("s", quota=gpu_bound(1))],
        actions=("allocate", "reclaim", "preempt"),
    )
    assert set(nominated(solved(snapshot))) == {"t-0", "w-0"}


@pytest.mark.parametrize(("priority", "served"), [(60, {"u-0"}), (10, set())])
def test_an_action_without_allocate_serves_only_groups_for_which_it_may_evict(
    priority: int, served: set[str]
) -> None:
    """u fits without evictions. Allocate is off, and preempt evicts low only for a higher priority."""
    snapshot = cluster(
        [pod("low-0", "n1"), pod("u-0")],
        [group("low", priority=10), group("u", priority=priority)],
        [node("n1")],
        actions=("preempt",),
    )
    plan = solved(snapshot)
    assert set(bound(plan)) == served
    assert not evicted(plan)
    assert not nominated(plan)


@pytest.mark.parametrize(
    ("why", "served"), [(OUT_OF_TIME, True), (NOTHING_SUFFICES, True), (NO_VICTIMS, False)]
)
def test_without_allocate_idle_capacity_goes_to_groups_that_were_searched_for(
    why: Refusal, served: bool
) -> None:
    """The search for u ended before it was found to need no eviction, or found too few victims when less was
    idle. Without victims there is no search.
    """
    snapshot = cluster([pod("u-0")], [group("u")], [node("n1")], actions=("preempt",))
    cycle = Cycle(snapshot, Settings(), Ledger.of(snapshot), time.monotonic() + 600)
    cycle.waiting[snapshot.groups[0].key] = why
    backfill(cycle, "preempt")
    assert (snapshot.pods[0].key in cycle.ledger.held) is served


def test_a_victim_that_runs_on_beside_moved_ones_is_not_evicted() -> None:
    """t has n1, so v-0 and v-1 move to n2. With these v has its minimum, and v-2 stays on n3."""
    homes = {"v-0": "n1", "v-1": "n1", "v-2": "n3"}
    running = [pod(name, home) for name, home in homes.items()]
    nodes = [node("n1", gpus=2), node("n2", gpus=2), node("n3", gpus=1)]
    snapshot = cluster([*running, pod("t-0", spec=spec(2))], [group("v", 2), group("t")], nodes)
    cycle = Cycle(snapshot, Settings(), Ledger.of(snapshot), time.monotonic() + 60)
    for one in running:
        cycle.ledger.evict(one)
        cycle.evicted_by[one.key] = Eviction("preempt", (GroupKey("ns", "t"),), "")
    cycle.ledger.place(snapshot.pod_by_key[PodKey("ns", "t-0")], 0, pipelined=True)
    backfill(cycle, "preempt")
    assert {key.name for key in cycle.evicted_by} == {"v-0", "v-1"}
    moved = [d for d in cycle.decisions() if d.kind == "Nominate" and d.pod.name != "t-0"]
    assert {d.pod.name: d.node for d in moved} == {"v-0": "n2", "v-1": "n2"}


# --- reclaimed pods stay evicted if their return would put the trigger's department above its share
# ----------


@pytest.mark.parametrize(("department", "stays"), [("a", {"v0-0"}), ("b", {"v1-0"}), (None, set())])
def test_a_victim_whose_return_breaks_the_reclaim_stays_away(department: str | None, stays: set[str]) -> None:
    """One pod of each department was reclaimed, and no group uses the GPUs. The reclaim holds only while the
    victim of the trigger's own department stays evicted.
    """
    departments = [
        queue("a"),
        queue("b"),
        queue("a1", "a"),
        queue("b1", "b"),
        queue("a2", "a"),
        queue("b2", "b"),
    ]
    trigger = group("t", queue=f"{department or 'a'}2")
    snapshot = cluster(
        [pod("v0-0", "n1"), pod("v1-0", "n1")],
        [group("v0", queue="a1"), group("v1", queue="b1"), trigger],
        queues=departments,
        actions=("reclaim",),
    )
    cycle = Cycle(snapshot, Settings(), Ledger.of(snapshot), time.monotonic() + 600)
    gang = cycle.ledger.fixed.gangs[trigger.key]
    ask = ask_of(cycle.ledger, gang, Batch(gang.top, (pod("t-0"),)))
    for one in snapshot.pods:
        cycle.ledger.evict(one)
        cycle.evicted_by[one.key] = Eviction("reclaim", (trigger.key,), "")

    def overreaching(ledger: Ledger) -> Ask | None:
        return ask if any(key.name in stays and key not in ledger.evicted for key in keys) else None

    keys = [one.key for one in snapshot.pods]
    cycle.overreaching = overreaching
    backfill(cycle, "reclaim")
    assert {key.name for key in cycle.evicted_by} == stays


def test_the_checker_takes_every_reclaim_of_two_departments(caplog: pytest.LogCaptureFixture) -> None:
    """One trigger takes from both departments. Three pods that returned would put its own department above
    the other one.
    """
    snapshot = parse(orjson.loads(orjson.dumps(SHAPES["contended"](500, 2))), now=NOW.timestamp())
    settings = Settings.model_validate({"solver": {"budget_seconds": 60}})
    with caplog.at_level(logging.ERROR):
        plan = decide(snapshot, settings, deadline=time.monotonic() + 600)
    assert not caplog.records
    assert any(decision.action == "reclaim" for decision in plan.decisions)


def test_further_pods_of_a_trigger_come_before_a_group_of_lower_priority() -> None:
    """t-0 reclaims the GPU that its queue is due, for which v leaves as a whole. The other GPU is left over:
    it goes to t-1, as in the next allocate, though t may reclaim no more than the one.
    """
    snapshot = cluster(
        [*pods("v", 2, "n1"), *pods("t", 3), pod("u-0")],
        [group("v", 2, queue="v"), group("t", priority=60), group("u", priority=10)],
        [node("n1", gpus=2)],
        [queue("v", quota=gpu_bound(1)), queue("q", quota=gpu_bound(1))],
        actions=("allocate", "reclaim"),
    )
    plan = solved(snapshot)
    assert set(nominated(plan)) == {"t-0", "t-1"}


def test_a_group_is_bound_where_what_is_left_over_is_idle_now() -> None:
    """a has places on n1 and n2 until t, of higher priority, takes n1 as a whole. The gang a waits then, and
    b, which may evict v as well, starts on n2: nothing has to leave there. So v leaves for t alone."""
    snapshot = cluster(
        [pod("v-0", "n1", spec=spec(2)), pod("t-0", spec=spec(3)), *pods("a", 2), pod("b-0")],
        [group("v", priority=10), group("t", priority=60), group("a", 2), group("b", priority=20)],
        [node("n1", gpus=3), node("n2", gpus=1)],
        actions=("allocate", "preempt"),
    )
    plan = solved(snapshot)
    assert nominated(plan) == {"t-0": "n1"}
    assert bound(plan) == {"b-0": "n2"}
    (eviction,) = (decision for decision in plan.decisions if decision.kind == "Evict")
    assert [key.name for key in eviction.triggers] == ["t"]
