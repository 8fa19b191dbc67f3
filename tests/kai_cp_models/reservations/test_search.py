"""A scene that follows its ledger equals one that is made anew, whatever was asked of it before."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.budget import Budget
from kai_cp_models.joint.problem import Ask, ask_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import Placer
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.reservations.gang import GangNeeds
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.reservations.search import Scene, put_again
from kai_cp_models.reservations.state import TimeState
from kai_cp_models.snapshot import Snapshot
from tests.support.brute import worlds
from tests.support.times import at, runs, settings, world
from tests.support.worlds import cluster, fraction, group, node, pod, pods, queue, spec

ENDS = st.sampled_from([None, 10, 20, 30])
THERE = st.lists(ENDS, min_size=4, max_size=4)
CHOSEN = settings()


@dataclass(frozen=True)
class Comes:
    """A group that starts: its size, when it ends, whether it may move, and what is asked before it."""

    count: int
    share: bool
    lasts: int | None
    moves: bool
    asked: int


COMING = st.builds(
    Comes,
    count=st.integers(1, 3),
    share=st.booleans(),
    lasts=ENDS,
    moves=st.booleans(),
    asked=st.sampled_from([0, 10, 15, 20, 30]),
)


def noted(name: str, lasts: int | None, **more: object) -> object:
    return group(name, notes=() if lasts is None else (("kai-cp/expected-runtime", f"{lasts}m"),), **more)


def snapshot_of(there: list[int | None], coming: list[Comes]) -> Snapshot:
    """r0 with whole GPUs and shares on two devices run on n1; pods of a coming group are alike."""
    first, *shares = there
    members = world(runs("r0", "n1", 2, None if first is None else f"{first}m", queue="a"))
    for i, lasts in enumerate(shares):
        members["groups"].append(noted(f"s{i}", lasts, last_start=at(0), queue="b"))
        members["pods"].append(pod(f"s{i}-0", "n1", spec=fraction(400), gpu_groups=(f"d{i % 2}",)))
    for i, one in enumerate(coming):
        members["groups"].append(noted(f"w{i}", one.lasts, queue="ab"[i % 2], preemptible=bool(i % 3)))
        members["pods"] += pods(f"w{i}", one.count, spec=fraction(300) if one.share else spec(1))
    nodes = node("n1", gpus=5), node("n2", gpus=3)
    return cluster(nodes=nodes, queues=(queue("a"), queue("b")), **members)


def gpus_left(ledger: Ledger, until: dict[str, int | None], minutes: int) -> list[int]:
    """Milli-GPUs by node that no pod uses: one that has not left, nor ended, uses its GPUs, all of a shared
    one."""
    used: list[set[str]] = [set(), set()]
    for one in ledger.snapshot.pods:
        end = until[one.key.name.split("-")[0]]
        place = ledger.place_of(one)
        if place and ledger.stays(one) and (end is None or minutes < end):
            whole = one.spec.requests[2] // 1000
            used[place[0]] |= {*place[1], *(f"{one.key.name}/{i}" for i in range(whole))}
    return [1000 * (total - len(found)) for total, found in zip((5, 3), used, strict=True)]


@given(
    st.lists(ENDS, min_size=4, max_size=4),
    st.sets(st.integers(0, 3)),
    st.lists(COMING, min_size=1, max_size=5),
)
@worlds(150)
def test_a_scene_that_follows_equals_a_new_one(
    there: list[int | None], leave: set[int], coming: list[Comes]
) -> None:
    """The free capacity of every instant, with and without what may move, and what queues hold then."""
    snapshot, times = prepare(snapshot_of(there, coming), CHOSEN)
    assert times is not None
    names = ["r0-0", "s0-0", "s1-0", "s2-0"]
    evicted = [snapshot.pod_by_key[PodKey("ns", names[i])] for i in sorted(leave)]
    state, ledger = TimeState(times), Ledger.of(snapshot).without(evicted)
    movable: dict[GroupKey, tuple[Ask, GangNeeds, float]] = {}

    def base() -> Ledger:
        found = Ledger.of(snapshot).without(evicted)
        stay = [snapshot.pod_by_key[key] for key in ledger.held]
        put_again(found, ledger, [one for one in stay if one.group not in movable])
        return found

    def scene() -> Scene:
        return Scene(state, ledger, base, movable, CHOSEN.solver, Budget.of(CHOSEN.solver, snapshot, 1e9))

    followed = scene()
    for i, one in enumerate(coming):
        for line in (followed.timeline, followed.before):
            line.free(at(one.asked))
            line.gpus(at(one.asked))
        followed.loads.at(at(one.asked))
        gang = ledger.fixed.gangs[GroupKey("ns", f"w{i}")]
        batch = ledger.state(gang).batch
        while batch is not None:
            ask = ask_of(ledger, gang, batch)
            if Placer(gang).place(ledger, batch) is not None:
                break
            if one.moves and one.count == 1:
                movable[ask.group.key] = ask, None, 0.0  # type: ignore[assignment]
            followed.add(ask)
            batch = ledger.state(gang).batch
    anew = scene()
    # What cannot be preempted and has no limit stays for ever.
    ends = [*there, *(one.lasts if i % 3 else None for i, one in enumerate(coming))]
    until = dict(zip(["r0", "s0", "s1", "s2", *(f"w{i}" for i in range(len(coming)))], ends, strict=True))
    for minutes in range(0, 45, 5):
        instant = at(minutes)
        assert followed.timeline.free(instant)[:, 2].tolist() == gpus_left(ledger, until, minutes)
        for ours, theirs in ((followed.timeline, anew.timeline), (followed.before, anew.before)):
            assert ours.free(instant).tolist() == theirs.free(instant).tolist()
            assert ours.gpus(instant) == theirs.gpus(instant)
        assert followed.loads.at(instant).held == anew.loads.at(instant).held
        assert followed.loads.at(instant).firm == anew.loads.at(instant).firm


@given(THERE, st.lists(COMING, min_size=1, max_size=5), st.integers(0, 35))
@worlds(100)
def test_gpus_not_in_use_are_those_of_every_instant(
    there: list[int | None], coming: list[Comes], last: int
) -> None:
    snapshot, times = prepare(snapshot_of(there, coming), CHOSEN)
    assert times is not None
    ledger = Ledger.of(snapshot)
    for i in range(len(coming)):
        gang = ledger.fixed.gangs[GroupKey("ns", f"w{i}")]
        batch = ledger.state(gang).batch
        assert batch is not None
        Placer(gang).place(ledger, batch)
    timeline = TimeState(times).timeline(ledger)
    edges, unused = timeline.unused(at(last))
    assert (edges[0], edges[-1], len(unused)) == (at(0), at(last), len(edges) - 1)
    for (low, high), row in zip(pairwise(edges.tolist()), unused, strict=True):
        for instant in (low, np.nextafter(high, 0)):
            assert row.tolist() == (timeline.free(instant)[:, 2].clip(min=0) // 1000).tolist()
