"""What may leave: queue by queue it is the same as pod by pod."""

from __future__ import annotations

import numpy as np
import pytest

from kai_cp_models.arrays import Mask
from kai_cp_models.fairness.amounts import total
from kai_cp_models.joint.counting import Counting
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_ALLOCATED, Pod
from kai_cp_models.proof.departures import Departures
from kai_cp_models.snapshot import Snapshot
from tests.support.worlds import cluster, fraction, gpu_bound, group, node, pod, pods, queue, spec

LOW = ("v", 100)
"""What groups above this priority may take of the queue."""
HIGH = ("v", 200)
OTHER = ("w", 1000)
STALE = ("ended", 0)
"""What ends for its own state."""
Sources = frozenset[tuple[str, int]]
SETS: list[Sources] = [
    frozenset(),
    frozenset({LOW}),
    frozenset({LOW, HIGH}),
    frozenset({HIGH, OTHER}),
    frozenset({OTHER, STALE}),
    frozenset({HIGH, OTHER, STALE}),
]


def running() -> Snapshot:
    """Queue v runs two groups of different priority, w a group with a pod of a pod set that it does not have,
    one that cannot be preempted, and a share.
    """
    members = [
        *pods("a", 2, "n1", spec=spec(2)),
        *pods("b", 1, "n1", spec=spec(1)),
        *pods("c", 2, "n2", spec=spec(1)),
        *pods("fixed", 1, "n2", spec=spec(2)),
        pod("foreign-0", "n2", "c", subgroup="unknown"),
        pod("s-0", "n2", spec=fraction(500), gpu_groups=("x",)),
    ]
    groups = [
        group("a", queue="v", priority=50),
        group("b", queue="v", priority=150),
        group("c", queue="w"),
        group("fixed", queue="w", preemptible=False),
        group("s", queue="w"),
    ]
    queues = [queue("root"), *(queue(name, "root", quota=gpu_bound(8)) for name in "vw")]
    return cluster(members, groups, nodes=[node("n1", 8), node("n2", 8)], queues=queues)


def departures() -> tuple[Departures, Ledger]:
    """The pod of the group that cannot be preempted is evicted for its group's state, and the foreign one."""
    snapshot = running()
    ledger = Ledger.of(snapshot)
    stale = [one for one in snapshot.pods if one.key.name in ("fixed-0", "foreign-0")]
    return Departures(ledger, stale), ledger


def taken_by(made: Departures, sources: Sources) -> Mask:
    """The same pods, said by the queues."""
    index = made.base.book.tree.index
    found = made.ended if STALE in sources else np.zeros_like(made.ended)
    for name, priority in sources - {STALE}:
        seconds, below = np.full(len(index) + 1, np.nan), np.full(len(index) + 1, -np.inf)
        seconds[index[name]], below[index[name]] = 0.0, priority
        found = found | made.old_enough(seconds, below)
    return found


def one_by_one(snapshot: Snapshot, sources: Sources) -> dict[str, Pod]:
    """The pods of the sources, said by hand."""
    names = {LOW: "a", HIGH: "ab", OTHER: "cs", STALE: "f"}
    return {
        one.key.name: one
        for one in snapshot.pods
        if one.node is not None and any(one.key.name[0] in names[source] for source in sources)
    }


@pytest.mark.parametrize("sources", SETS)
def test_each_pod_leaves_once(sources: Sources) -> None:
    made, ledger = departures()
    wanted, taken = one_by_one(ledger.snapshot, sources), taken_by(made, sources)
    assert sorted(one.key.name for one in made.pods(taken)) == sorted(wanted)
    movable = {one.key.name for one in ledger.snapshot.pods if one.key.name[0] != "f"}
    gone = [one.key.name for one in made.pods(taken | made.movable)]
    assert sorted(gone) == sorted(wanted.keys() | movable)


@pytest.mark.parametrize("sources", SETS)
@pytest.mark.parametrize("moves", [False, True])
def test_free_capacity_by_parts_is_that_of_all_pods(sources: Sources, moves: bool) -> None:
    made, ledger = departures()
    counting, taken = Counting(ledger, ledger.snapshot.pods, everywhere=True), taken_by(made, sources)
    mask = taken | made.movable if moves else taken
    gone = list(made.pods(mask))
    assert counting.room(made.columns(mask)).tolist() == counting.room(counting.leaving(gone)).tolist()


@pytest.mark.parametrize("sources", SETS)
def test_queues_are_charged_less_by_what_leaves_below_them(sources: Sources) -> None:
    made, ledger = departures()
    snapshot, given = ledger.snapshot, made.given(taken_by(made, sources))
    for name in ("root", "v", "w"):
        below = [
            one
            for one in one_by_one(snapshot, sources).values()
            if one.status in ACTIVE_ALLOCATED
            and one.group is not None
            and name in snapshot.queue_path[snapshot.group_by_key[one.group].queue]
        ]
        charged = total(ledger.fixed.charge(one, snapshot.node_index[one.node or ""]) for one in below)
        assert given[ledger.book.index(name)] == charged
