"""Which trigger each loss is charged to, and which trigger took more than it may (4.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kai_cp_models.actions.reclaim_bounds import overreaching, shared_out
from kai_cp_models.joint.policy import RECLAIM
from kai_cp_models.joint.problem import Ask, EvictionUnit
from kai_cp_models.joint.victim_candidates import Reach, VictimOrder, charged
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey
from kai_cp_models.running import gpu_weight
from kai_cp_models.snapshot import Snapshot
from tests.kai_cp_models.joint.build import asks_of
from tests.support.worlds import (
    cluster,
    evict,
    gpu_bound,
    gpu_memory,
    group,
    judged,
    node,
    nominate,
    pod,
    pods,
    queue,
    spec,
)


def units(ledger: Ledger, *names: str) -> list[EvictionUnit]:
    """Every running pod of these groups, newest first, as a unit of its own."""
    found: list[EvictionUnit] = []
    for name in names:
        gang = ledger.fixed.gangs[GroupKey("ns", name)]
        for chain, one in enumerate(reversed(gang.pods)):
            unit = EvictionUnit(
                gang.group,
                (one,),
                chain,
                whole=False,
                rank=len(found),
                bucket=(gang.group.queue, gang.group.priority, 1),
                holds=charged(ledger, (one,)),
                weight=gpu_weight(one),
            )
            found.append(unit)
    return found


def order_of(base: Ledger, rights: Mapping[Ask, frozenset[int]]) -> VictimOrder:
    """The part of an order of units that says what each ask may take under reclaim."""
    return SimpleNamespace(reach=Reach(base, RECLAIM), takes=rights.__getitem__)  # type: ignore[return-value]


def triggers(quota: float = 4) -> Snapshot:
    """v holds all 8 GPUs and is due 4; t0 to t4 of q, due ``quota``, ask for one GPU each."""
    return cluster(
        [*pods("v", 8, "n1"), *(pod(f"t{i}-0") for i in range(5))],
        [group("v", queue="v"), *(group(f"t{i}", queue="q", created=float(i)) for i in range(5))],
        queues=[queue("q", quota=gpu_bound(quota)), queue("v", quota=gpu_bound(8 - quota))],
    )


def beyond(snapshot: Snapshot, *names: str, lost: int, owners: Sequence[int], place: int = 0) -> str | None:
    """The trigger that overreaches when the first ``lost`` units are lost, unit i to trigger ``owners[i]``.

    ``place``: index of the node where the triggers get their places.
    """
    base = Ledger.of(snapshot)
    asks = asks_of(base, *names)
    ranked = units(base, "v")
    ledger = base.copy()
    for item in ranked[:lost]:
        for one in item.pods:
            ledger.evict(one)
    for ask in asks:
        ledger.place(ask.pods[0], place, pipelined=True)
    taken = {item: (asks[owner].group.key,) for item, owner in zip(ranked, owners, strict=False)}
    found = overreaching(base, asks, ledger, taken)
    return None if found is None else found.group.key.name


def test_each_takes_what_it_may() -> None:
    """v holds 8, 7, 6 and 5 GPUs before each of the four units leaves, which is always more than 4."""
    assert beyond(triggers(), "t0", "t1", "t2", "t3", lost=4, owners=(0, 1, 2, 3)) is None


def test_the_fifth_may_not_reclaim() -> None:
    """With a fifth trigger q would hold 5 GPUs of a fair share of 4."""
    names = ("t0", "t1", "t2", "t3", "t4")
    assert beyond(triggers(), *names, lost=5, owners=(0, 1, 2, 3, 4)) == "t4"
    # That holds, too, when another trigger is named for the loss, or when nothing is lost.
    assert beyond(triggers(), *names, lost=4, owners=(0, 1, 2, 3)) == "t4"


@pytest.mark.parametrize(("place", "found"), [(0, None), (1, "t4")])
def test_a_trigger_counts_with_what_its_place_costs(place: int, found: str | None) -> None:
    """t0 and t1 ask for 10,000 MiB, which is a quarter of a GPU of n1 and a whole one of n2. With t4, q would
    hold 3.5 GPUs on n1 and 5 on n2; its fair share of the 8 GPUs is 4.
    """
    world = triggers()
    small = {f"t{i}-0" for i in range(2)}
    members = [replace(one, spec=gpu_memory(10_000)) if one.key.name in small else one for one in world.pods]
    nodes = [node("n1", gpus=7), node("n2", gpus=1, gpu_memory_mib=10_000)]
    snapshot = cluster(members, world.groups, nodes, world.queues)
    names = ("t0", "t1", "t2", "t3", "t4")
    assert beyond(snapshot, *names, lost=4, owners=(0, 1, 2, 3), place=place) == found


def test_the_trigger_that_takes_a_unit_too_many_is_named() -> None:
    """t1 takes four units. Before the last one v holds only 4, all of which v is due."""
    assert beyond(triggers(), "t0", "t1", lost=5, owners=(0, 1, 1, 1, 1)) == "t1"
    assert beyond(triggers(), "t0", "t1", lost=4, owners=(0, 1, 1, 1)) is None


def test_the_first_is_named() -> None:
    """A queue that is due nothing reclaims nothing. The first trigger in order is named."""
    assert beyond(triggers(0), "t1", "t0", lost=1, owners=(1,)) == "t1"


def test_a_victim_that_is_placed_again_is_no_loss() -> None:
    """Five units leave for t0 and get other places; the fifth would be one too many if it were lost."""
    snapshot = triggers()
    base = Ledger.of(cluster(snapshot.pods, snapshot.groups, [node("n1"), node("n2")], snapshot.queues))
    (ask,) = asks_of(base, "t0")
    ranked = units(base, "v")
    owners = dict.fromkeys(ranked[:5], (ask.group.key,))
    ledger = base.copy()
    for item in ranked[:5]:
        ledger.evict(item.pods[0])
    assert overreaching(base, [ask], ledger, owners) is ask
    ledger.place(ranked[4].pods[0], 1, pipelined=True)
    assert overreaching(base, [ask], ledger, owners) is None


def test_a_place_that_was_withdrawn_counts_only_before_it_was() -> None:
    """v's pods hold the five GPUs that their queue is due, and w got two in this cycle. t takes these back
    and one that runs, which is too much. So it is where w gets another place after that; only a place that
    was never withdrawn would count for t.
    """
    snapshot = cluster(
        [*pods("v", 5, "n1"), pod("w-0", spec=spec(2)), pod("t-0", spec=spec(2))],
        [group("v", queue="v"), group("w", queue="v"), group("t", queue="q")],
        queues=[queue("q", quota=gpu_bound(3)), queue("v", quota=gpu_bound(5))],
    )
    before = Ledger.of(snapshot)
    given, (ask,) = before.fixed.gangs[GroupKey("ns", "w")].pods[0], asks_of(before, "t")
    before.place(given, 0, pipelined=False)
    taken, ran = units(before, "w", "v")[:2]
    after, owners = before.copy(), {taken: (ask.group.key,), ran: (ask.group.key,)}
    after.unplace(given)
    after.evict(ran.pods[0])
    after.place(ask.pods[0], 0, pipelined=True)
    assert overreaching(before, [ask], after, owners) is ask
    after.place(given, 0, pipelined=True)
    assert overreaching(before, [ask], after, owners) is None
    assert overreaching(before, [ask], after, owners, {given.key}) is ask


@pytest.mark.parametrize(("moved_to", "found"), [("large", "t1"), ("other", None)])
def test_a_share_that_moves_counts_with_what_its_new_place_costs(moved_to: str, found: str | None) -> None:
    """v is due 5 GPUs and holds 6: four, and two shares of 10,000 MiB that are charged a GPU each. t0 moves
    the shares and takes nothing, then t1 takes a GPU. Where the shares move to a large GPU, v has 4.5 left
    before that.
    """
    snapshot = cluster(
        [
            *pods("v", 4, "large"),
            *(pod(f"m-{i}", "small", spec=gpu_memory(10_000), gpu_groups=(f"s{i}",)) for i in range(2)),
            *(pod(f"t{i}-0") for i in range(5)),
        ],
        [
            group("v", queue="v"),
            group("m", queue="v"),
            *(group(f"t{i}", queue="q", created=float(i)) for i in range(5)),
        ],
        [
            node("large", gpus=5),
            *(node(name, gpus=2, gpu_memory_mib=10_000) for name in ("small", "other")),
        ],
        queues=[queue("q", quota=gpu_bound(4)), queue("v", quota=gpu_bound(5))],
    )
    base = Ledger.of(snapshot)
    asks, ranked = asks_of(base, "t0", "t1"), units(base, "m", "v")[:3]
    (t0, t1), ledger, to = (ask.group.key for ask in asks), base.copy(), snapshot.node_index[moved_to]
    for item in ranked:
        ledger.evict(item.pods[0])
    for item in ranked[:2]:
        ledger.place(item.pods[0], to, pipelined=True)
    ledger.place(asks[0].pods[0], snapshot.node_index["small"], pipelined=True)
    ledger.place(asks[1].pods[0], snapshot.node_index["large"], pipelined=True)
    owners = dict(zip(ranked, ((t0,), (t0,), (t1,)), strict=True))
    beyond_it = overreaching(base, asks, ledger, owners)
    assert (None if beyond_it is None else beyond_it.group.key.name) == found
    faults = judged(
        snapshot,
        *(evict(f"m-{i}", "reclaim", "t0", node="small") for i in range(2)),
        evict("v-3", "reclaim", "t1", node="large"),
        nominate("t0-0", "small", "reclaim"),
        nominate("t1-0", "large", "reclaim"),
        *(nominate(f"m-{i}", moved_to, "reclaim", gpu_groups=(f"n{i}",)) for i in range(2)),
    )
    blamed = {fault.split(" of queue")[0] for fault in faults if fault.startswith("reclaim")}
    assert blamed == (set() if found is None else {f"reclaim: pod group ns/{found}"})


# --- which asks the losses are charged to ---------------------------------------------------------------


def test_each_ask_takes_until_it_has_what_it_needs() -> None:
    """Four units for t0 (one GPU) and t1 (one GPU): each takes one, and both are named for those that neither
    needs.
    """
    base = Ledger.of(triggers())
    asks = asks_of(base, "t0", "t1")
    ranked = units(base, "v")
    every = frozenset(item.rank for item in ranked)
    lost = [item.rank < 3 for item in ranked]
    t0, t1 = (ask.group.key for ask in asks)
    found = shared_out(order_of(base, dict.fromkeys(asks, every)), asks, ranked, lost, ())
    assert [found[item] for item in ranked[:3]] == [(t0,), (t1,), (t0, t1)]


def test_an_ask_takes_only_what_it_may() -> None:
    """t0 may take unit 1 only, t1 both units. A unit that moves names every ask that may take it."""
    base = Ledger.of(triggers())
    asks = asks_of(base, "t0", "t1")
    ranked = units(base, "v")[:3]
    t0, t1 = (ask.group.key for ask in asks)
    takes = dict(zip(asks, (frozenset((1,)), frozenset((0, 1, 2))), strict=True))
    moved = {ranked[2].pods[0].key}
    found = shared_out(order_of(base, takes), asks, ranked, [True, True, False], moved)
    assert [found[item] for item in ranked] == [(t1,), (t0,), (t1,)]
