"""What queues may lose to a trigger at most, and which trigger took more than it may (4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest

from kai_cp_models.actions.reclaim_bounds import most_lost_milli_gpus, overreaching, shared_out
from kai_cp_models.fairness import amounts
from kai_cp_models.joint.policy import RECLAIM
from kai_cp_models.joint.problem import EvictionUnit
from kai_cp_models.joint.victim_candidates import Charges, VictimCandidate, gpu_weight
from kai_cp_models.ledger import Ledger
from kai_cp_models.snapshot import GroupKey, Queue, Shares, Snapshot
from tests.kai_cp_models.joint.build import asks_of
from tests.support.worlds import cluster, gpu_bound, group, node, pod, pods, queue, spec

BOTH = Shares(8_000, 2**40, 4)
"""8 CPUs, ample memory and 4 GPUs."""


def units(ledger: Ledger, *names: str) -> list[VictimCandidate]:
    """Every running pod of these groups, newest first, as a unit of its own."""
    found: list[VictimCandidate] = []
    for name in names:
        gang = ledger.fixed.gangs[GroupKey("ns", name)]
        for chain, one in enumerate(reversed(gang.pods)):
            offer = EvictionUnit(gang.group, (one,), chain, whole=False)
            holds = Charges(ledger).of(offer.pods)
            bucket = (gang.group.queue, gang.group.priority, 1)
            found.append(VictimCandidate(offer, len(found), bucket, (0.0, 0.0), holds, gpu_weight(one), 0))
    return found


# --- the most that can be lost ---------------------------------------------------------------------


def world(*queues: Queue, gpus: int, asked: int = 1, cpus: int = 0) -> Snapshot:
    """v runs ``gpus`` pods of one GPU, t of q asks for ``asked``; a node of 16 GPUs."""
    return cluster(
        [*pods("v", gpus, "n1", spec=spec(1, cpus=cpus)), *pods("t", asked, spec=spec(1, cpus=0))],
        [group("v", queue="v"), group("t", asked, queue="q")],
        [node(gpus=16)],
        queues,
    )


QUOTAS = (queue("q", quota=gpu_bound(4)), queue("v", quota=gpu_bound(4)))
OVER = (queue("q", quota=gpu_bound(0)), queue("v", quota=gpu_bound(4)))
"""q takes over its quota, so v keeps its fair share: 4 and half of the 12 that are over."""
CPUS = (queue("q", quota=gpu_bound(4)), queue("v", quota=BOTH))
UNBOUND = (queue("q"), queue("v"))

MOST: list[tuple[str, Snapshot, int, float]] = [
    # (what, world, largest unit in milli-GPUs, what can be lost)
    ("8 over a quota of 4", world(*QUOTAS, gpus=8), 1000, 4999),
    ("one over", world(*QUOTAS, gpus=5), 1000, 1999),
    ("at the quota", world(*QUOTAS, gpus=4), 1000, 0),
    ("below it", world(*QUOTAS, gpus=2), 1000, 0),
    ("the last unit may be large", world(*QUOTAS, gpus=5), 8000, 8999),
    ("a batch beyond the quota of its queue: v keeps its fair share of 10",
     world(*OVER, gpus=12, asked=6), 1000, 2999),
    ("CPUs keep the queue open", world(*CPUS, gpus=5, cpus=2), 1000, inf),
    ("CPUs that are within", world(*CPUS, gpus=5, cpus=1), 1000, 1999),
    ("a queue without a bound gives nothing", world(*UNBOUND, gpus=8), 1000, 0),
]  # fmt: skip


@pytest.mark.parametrize(("snapshot", "largest", "most"), [x[1:] for x in MOST], ids=[x[0] for x in MOST])
def test_the_most_that_can_be_lost(snapshot: Snapshot, largest: int, most: float) -> None:
    """Units go while the queue holds more than its due: the last may start one milli-GPU above it."""
    ledger = Ledger.of(snapshot)
    (ask,) = asks_of(ledger, "t")
    asked = amounts.pessimistic_batch(snapshot, ask.pods)
    assert most_lost_milli_gpus(ledger.book, ask, asked, {"v": largest}) == most


def test_queues_add_up_and_leaves_of_one_department_do_not() -> None:
    """u and v hang below d (quota 4, holds 6), w stands alone (quota 2, holds 3); q is outside.

    d gives 6 - 4 and the larger of two units of 1 and 2 GPUs but a milli-GPU, w gives 1 and a unit of 1.
    """
    snapshot = cluster(
        [*pods("u", 3, "n1"), *pods("v", 3, "n1"), *pods("w", 3, "n1"), pod("t-0")],
        [*(group(name, queue=name) for name in "uvw"), group("t", queue="q")],
        [node(gpus=16)],
        [
            queue("q", quota=gpu_bound(4)),
            queue("d", quota=gpu_bound(4)),
            queue("u", "d"),
            queue("v", "d"),
            queue("w", quota=gpu_bound(2)),
        ],
    )
    ledger = Ledger.of(snapshot)
    (ask,) = asks_of(ledger, "t")
    asked = amounts.pessimistic_batch(snapshot, ask.pods)
    largest = {"u": 1000, "v": 2000, "w": 1000}
    assert most_lost_milli_gpus(ledger.book, ask, asked, largest) == 3999 + 1999
    assert most_lost_milli_gpus(ledger.book, ask, asked, {}) == 0


# --- who took too much -----------------------------------------------------------------------------


def triggers(quota: float = 4) -> Snapshot:
    """v holds all 8 GPUs and is due 4; t0 to t4 of q, due ``quota``, ask for one each."""
    return cluster(
        [*pods("v", 8, "n1"), *(pod(f"t{i}-0") for i in range(5))],
        [group("v", queue="v"), *(group(f"t{i}", queue="q", created=float(i)) for i in range(5))],
        queues=[queue("q", quota=gpu_bound(quota)), queue("v", quota=gpu_bound(8 - quota))],
    )


def beyond(snapshot: Snapshot, *names: str, lost: int, owners: Sequence[int]) -> str | None:
    """Which of the triggers overreaches when the first ``lost`` units go, unit i to trigger ``owners[i]``."""
    base = Ledger.of(snapshot)
    asks = asks_of(base, *names)
    ranked = units(base, "v")
    ledger = base.copy()
    for item in ranked[:lost]:
        for one in item.unit.pods:
            ledger.evict(one)
    found = overreaching(
        base, asks, ranked, ledger, {o: (asks[owner].group.key,) for o, owner in enumerate(owners)}
    )
    return None if found is None else found.group.key.name


def test_each_takes_what_it_may() -> None:
    """v holds 8, 7, 6, 5 when the four units go, always more than 4."""
    assert beyond(triggers(), "t0", "t1", "t2", "t3", lost=4, owners=(0, 1, 2, 3)) is None


def test_the_fifth_may_not_reclaim() -> None:
    """With it q would hold 5 of a fair share of 4."""
    names = ("t0", "t1", "t2", "t3", "t4")
    assert beyond(triggers(), *names, lost=5, owners=(0, 1, 2, 3, 4)) == "t4"
    # Not even when somebody else is named for the loss, or when nothing is lost.
    assert beyond(triggers(), *names, lost=4, owners=(0, 1, 2, 3)) == "t4"


def test_one_that_takes_a_unit_too_many_is_named() -> None:
    """t1 takes four units: the last one starts from 4, which is all that v is due."""
    assert beyond(triggers(), "t0", "t1", lost=5, owners=(0, 1, 1, 1, 1)) == "t1"
    assert beyond(triggers(), "t0", "t1", lost=4, owners=(0, 1, 1, 1)) is None


def test_the_first_is_named() -> None:
    """A queue that is due nothing reclaims nothing; the order of the triggers decides who is named."""
    assert beyond(triggers(0), "t1", "t0", lost=1, owners=(1,)) == "t1"


def test_what_is_placed_again_is_no_loss() -> None:
    """Five units move for t0; the fifth would be one too many if it were lost."""
    snapshot = triggers()
    base = Ledger.of(cluster(snapshot.pods, snapshot.groups, [node("n1"), node("n2")], snapshot.queues))
    (ask,) = asks_of(base, "t0")
    ranked = units(base, "v")
    owners = dict.fromkeys(range(5), (ask.group.key,))
    ledger = base.copy()
    for item in ranked[:5]:
        ledger.evict(item.unit.pods[0])
    assert overreaching(base, [ask], ranked, ledger, owners) is ask
    ledger.place(ranked[4].unit.pods[0], 1, pipelined=True)
    assert overreaching(base, [ask], ranked, ledger, owners) is None


# --- whom the losses go to -------------------------------------------------------------------------


def test_each_ask_takes_until_it_has_what_it_needs() -> None:
    """Four units for t0 (one GPU) and t1 (one GPU): one each, and what nobody needs names both."""
    base = Ledger.of(triggers())
    asks = asks_of(base, "t0", "t1")
    ranked = units(base, "v")
    every = frozenset(item.rank for item in ranked)
    takes = {ask.group.key: every for ask in asks}
    lost = [item.rank < 3 for item in ranked]
    t0, t1 = (ask.group.key for ask in asks)
    found = shared_out(base, RECLAIM, asks, ranked, lost, moved=(), takes=takes)
    assert found == {0: (t0,), 1: (t1,), 2: (t0, t1)}


def test_an_ask_takes_only_what_it_may() -> None:
    """t0 may take unit 1 only, t1 both; a unit that moves names whoever may take it."""
    base = Ledger.of(triggers())
    asks = asks_of(base, "t0", "t1")
    ranked = units(base, "v")[:3]
    t0, t1 = (ask.group.key for ask in asks)
    takes = {t0: frozenset((1,)), t1: frozenset((0, 1, 2))}
    moved = {ranked[2].unit.pods[0].key}
    found = shared_out(base, RECLAIM, asks, ranked, [True, True, False], moved=moved, takes=takes)
    assert found == {0: (t1,), 1: (t0,), 2: (t1,)}
