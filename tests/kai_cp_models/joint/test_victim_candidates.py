"""Which places of a cycle a later action may take back, and what it takes with them (formulation 1.5)."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp.reader import parse
from kai_cp_models.actions.asking import waiting_groups
from kai_cp_models.cycle import Cycle, Eviction
from kai_cp_models.fairness.reclaim import due_bounds, over, victim_allowed, within_quotas
from kai_cp_models.fairness.runtime import granted
from kai_cp_models.joint.policy import CONSOLIDATION, PREEMPT, RECLAIM
from kai_cp_models.joint.victim_candidates import Entitlement, Reach, victim_candidates
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.settings import Settings
from tests.support.clusters import clusters
from tests.support.objects import NOW, Object
from tests.support.worlds import cluster, group, leaf, node, pod, queue, spec, tree

L, M, W = (GroupKey("ns", name) for name in "lmw")


@pytest.mark.parametrize(
    ("triggers", "queue_of_m", "offered", "taken"),
    [
        ((), "q", {L: (), M: ()}, {L, M}),
        ((L,), "q", {L: ("m-0",), M: ()}, {L, M}),
        ((L,), "other", {L: ("m-0",)}, set()),
        ((L, W), "q", {M: ()}, {M}),
    ],
    ids=["for none", "for it alone", "h may not take what moved", "for another as well"],
)
def test_a_place_is_taken_with_what_was_evicted_for_it(
    triggers: tuple[GroupKey, ...],
    queue_of_m: str,
    offered: dict[GroupKey, tuple[str, ...]],
    taken: set[GroupKey],
) -> None:
    """m has moved from n1 to n2 for ``triggers``, and l got n1. h of higher priority waits, and may stop m,
    too, where it is in its queue."""
    snapshot = cluster(
        [pod("m-0", "n1", spec=spec(8)), pod("l-0", spec=spec(8)), pod("h-0", spec=spec(8))],
        [group("m", queue=queue_of_m, priority=40), group("l", priority=20), group("h", priority=60)],
        [node("n1"), node("n2")],
        [queue("q"), queue("other")],
    )
    ledger = Ledger.of(snapshot)
    moved, placed = (snapshot.pod_by_key[PodKey("ns", name)] for name in ("m-0", "l-0"))
    ledger.evict(moved)
    ledger.place(moved, 1, pipelined=True)
    ledger.place(placed, 0, pipelined=True)
    cycle = Cycle(snapshot, Settings(), ledger, time.monotonic() + 600)
    if triggers:
        cycle.evicted_by[moved.key] = Eviction("consolidation", triggers, "")
    [ask] = waiting_groups(cycle, "preempt").values()
    ranked = victim_candidates(cycle, [ask], PREEMPT)
    assert {one.group.key: tuple(left.key.name for _, left in one.owed) for one in ranked} == offered
    ranks = ranked.takes(ask)
    assert {ranked[rank].group.key for rank in ranks} == taken


@pytest.mark.parametrize(("queue_of_m", "taken"), [("q", {"l-b", "l-a", "m-0"}), ("other", set())])
def test_later_units_stay_where_a_place_may_not_be_taken(queue_of_m: str, taken: set[str]) -> None:
    """l needs one of its subgroups a and b. b got its place beside a, as m moved. b would go first (5.4);
    so h may not take a either, if it may not take what moved."""
    both = tree(1, leaf("a", 1), leaf("b", 1))
    snapshot = cluster(
        [
            pod("m-0", "n1", spec=spec(8)),
            *(pod(f"l-{name}", subgroup=name, spec=spec(8)) for name in "ab"),
            pod("h-0", spec=spec(8)),
        ],
        [
            group("m", queue=queue_of_m, priority=40),
            group("l", priority=20, root=both),
            group("h", priority=60),
        ],
        [node("n1"), node("n2"), node("n3")],
        [queue("q"), queue("other")],
    )
    ledger = Ledger.of(snapshot)
    moved, first, second = (snapshot.pod_by_key[PodKey("ns", name)] for name in ("m-0", "l-a", "l-b"))
    ledger.evict(moved)
    for one, at in ((moved, 1), (first, 2), (second, 0)):
        ledger.place(one, at, pipelined=True)
    cycle = Cycle(snapshot, Settings(), ledger, time.monotonic() + 600)
    cycle.evicted_by[moved.key] = Eviction("consolidation", (L,), "")
    [ask] = waiting_groups(cycle, "preempt").values()
    ranked = victim_candidates(cycle, [ask], PREEMPT)
    offered = [one.pods[0].key.name for one in ranked]
    assert offered == ["l-b", "l-a", *(["m-0"] if queue_of_m == "q" else [])]
    assert {ranked[i].pods[0].key.name for i in ranked.takes(ask)} == taken


@pytest.mark.parametrize(("evicted", "offered"), [(True, set()), (False, {L})], ids=["for l", "for none"])
def test_a_place_that_evictions_gave_is_not_moved(evicted: bool, offered: set[GroupKey]) -> None:
    """Preempt comes before consolidation: m was evicted for l, and would be a move without a new place."""
    snapshot = cluster(
        [pod("m-0", "n1", spec=spec(8)), pod("l-0", spec=spec(8)), pod("h-0", spec=spec(8))],
        [group("m", priority=10), group("l", priority=20), group("h", priority=60)],
        [node("n1"), node("n2")],
        [queue("q")],
    )
    ledger = Ledger.of(snapshot)
    lost, placed = (snapshot.pod_by_key[PodKey("ns", name)] for name in ("m-0", "l-0"))
    ledger.evict(lost)
    ledger.place(placed, 0, pipelined=True)
    cycle = Cycle(snapshot, Settings(), ledger, time.monotonic() + 600)
    if evicted:
        cycle.evicted_by[lost.key] = Eviction("preempt", (L,), "")
    [ask] = (one for key, one in waiting_groups(cycle, "consolidation").items() if key.name == "h")
    units = victim_candidates(cycle, [ask], CONSOLIDATION)
    assert {one.group.key for one in units} == offered


@given(cluster=clusters(), method=st.sampled_from(["lca", "queue"]))
def test_queues_are_looked_at_as_pair_by_pair(cluster: Object, method: Any) -> None:
    """Which queues each queue may reclaim from, how long groups there stay, and what is over its due."""
    read = parse(cluster, now=NOW.timestamp())
    plugins = read.policy.plugins | {"minruntime"}
    policy = replace(read.policy, plugins=plugins, reclaim_resolve_method=method)
    ledger = Ledger.of(replace(read, policy=policy))
    snapshot, leaves = ledger.snapshot, ledger.book.tree.leaves
    reach = Reach(ledger, RECLAIM)
    for mine, asked in product(leaves, [(0, 0, 0), (1000, 1, 1000), (0, 0, 4000)]):
        expected = [
            granted(snapshot, queue.name, "reclaim", mine)
            if queue.name in leaves
            and queue.name != mine
            and victim_allowed(ledger.book, mine, asked, queue.name)
            else nan
            for queue in snapshot.queues
        ]
        found = reach.undisturbed(Entitlement(mine, inf, asked))
        assert repr(found.tolist()) == repr([*expected, nan])
        dues = {queue: due_bounds(ledger.book, mine, asked, queue) for queue in leaves if queue != mine}
        above = {queue: due for queue, due in dues.items() if over(ledger.book.allocated_of(due[0]), due[1])}
        assert reach.filter is not None
        assert reach.filter.dues(leaves[mine], within_quotas(ledger.book, mine, asked), leaves) == above
