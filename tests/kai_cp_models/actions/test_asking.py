"""What waiting groups ask an action for, in the middle of a cycle, told from each group alone."""

from __future__ import annotations

import json
from random import Random

import pytest

from kai_cp_models.actions.asking import line_of, waiting_groups
from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness.order import FairOrder
from kai_cp_models.joint.problem import Ask, ask_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import started
from kai_cp_models.pods import GroupKey
from kai_cp_models.policy import ActionName
from kai_cp_models.records.notes import FAILURES
from kai_cp_models.refusal import Refusal
from kai_cp_models.snapshot import Snapshot
from tests.support import tiny
from tests.support.objects import ago
from tests.support.plans import SETTINGS, lost, placed, solved
from tests.support.worlds import NOW, cluster, group, node, pods, queue

SEEDS = range(30)


def drawn(rng: Random) -> Snapshot:
    """Groups that wait, run, or both; some lack pods, some may not evict yet, some are in backoff, some in no
    queue."""
    members, groups = [], []
    for i in range(10):
        name, running = f"g{i}", rng.choice((0, 0, 1, 2))
        members += pods(name, running, "n1")
        members += [*pods(f"{name}-w", rng.choice((0, 1, 1, 3)), group=name)]
        groups.append(
            group(
                name,
                rng.choice((1, 1, 2)),
                rng.choice(("q", "q", "r", "none")),
                priority=rng.choice((50, 100)),
                preemptible=rng.random() < 0.7,
                created=NOW - rng.randint(1, 5),
                preemption_delay_seconds=rng.choice((0, 0, 3)),
                backed_off=rng.random() < 0.2,
            )
        )
    return cluster(members, groups, [node("n1", gpus=30), node("n2", gpus=3)], [queue("q"), queue("r")])


def changed(snapshot: Snapshot, rng: Random) -> Cycle:
    """A cycle in which some groups got places and some pods were evicted."""
    cycle = Cycle(snapshot, SETTINGS, Ledger.of(snapshot), float("inf"))
    for ask in waiting_groups(cycle, "allocate").values():
        if rng.random() < 0.4:
            started(cycle.ledger, ask)
    for pod in snapshot.pods:
        if pod.node is not None and rng.random() < 0.3:
            cycle.ledger.evict(pod)
    if rng.random() < 0.5:
        cycle.left_out = {GroupKey("ns", "g3"): Refusal("InternalError", "it was faulty")}
    return cycle


def asked_alone(cycle: Cycle, action: ActionName) -> dict[GroupKey, Ask]:
    """What each group asks for, looked at by itself."""
    found: dict[GroupKey, Ask] = {}
    for one in cycle.snapshot.groups:
        gang = cycle.ledger.fixed.gangs[one.key]
        state = gang.state(cycle.ledger.status)
        fixed = action == "consolidation" and not one.preemptible
        waits = action != "allocate" and one.created + one.preemption_delay_seconds > NOW
        if state.batch is not None and not (one.backed_off or one.queue == "none" or fixed or waits):
            found[one.key] = ask_of(cycle.ledger, gang, state.batch, state)
    return {key: ask for key, ask in found.items() if key not in cycle.left_out}


@pytest.mark.parametrize("action", ["allocate", "consolidation", "reclaim", "preempt"])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_action_is_asked_for_what_each_group_asks_for_alone(seed: int, action: ActionName) -> None:
    rng = Random(seed)
    cycle = changed(drawn(rng), rng)
    asks, alone = waiting_groups(cycle, action), asked_alone(cycle, action)
    found, expected = (
        {key: (ask.pods, ask.entry, ask.kind) for key, ask in some.items()} for some in (asks, alone)
    )
    assert found == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_the_line_of_some_asks_is_that_of_their_entries(seed: int) -> None:
    rng = Random(seed)
    cycle = changed(drawn(rng), rng)
    every = waiting_groups(cycle, "allocate")
    share = rng.choice((0.2, 0.8))
    some = {key: ask for key, ask in every.items() if rng.random() < share}
    line = line_of(cycle.ledger, some)
    entries = {key: ask.entry for key, ask in some.items()}
    anew = FairOrder(cycle.snapshot, cycle.ledger.book, entries)
    assert list(iter(line.pop, None)) == list(iter(anew.pop, None))


@pytest.mark.parametrize(("times", "idle"), [(1, 0), (4, 0), (4, 4)])
def test_a_group_whose_pod_cannot_be_bound_gets_only_what_is_idle(times: int, idle: int) -> None:
    """v holds n1 over its queue's quota of nothing, and t is owed a node. v would stop in vain."""
    note = {"uid": "uid-t", "times": times, "last": ago(5)}
    pods = [tiny.pod("v", "n1", gpus=4, queue="y"), tiny.pod("t", gpus=4, queue="z")]
    pods[1]["metadata"]["uid"] = "uid-t"
    snapshot = tiny.world(
        [tiny.node("n1", gpus=4), tiny.node("n2", gpus=idle)],
        pods,
        queues=[tiny.queue("y", quota={"gpu": 0}), tiny.queue("z", quota={"gpu": 4})],
        groups={"t": {"annotations": {FAILURES: json.dumps(note)}}},
        actions="allocate, consolidation, reclaim, preempt",
    )
    plan = solved(snapshot)
    assert lost(plan) == ({"v"} if times == 1 else set())
    assert placed(plan) == ({"t"} if times == 1 or idle else set())
    if not idle and times > 1:
        (row,) = plan.unscheduled
        assert row.reason == "InVain"
        assert "4 times in a row" in row.message
