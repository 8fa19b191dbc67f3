"""What is remembered about places for a pod equals what a fresh look finds, whatever happened in between."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest

from kai_cp.reader import parse
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ALLOCATED, GPU, ClaimRef, GpuKind, GpuRequest, Pod, PodStatus
from kai_cp_models.scores import scores
from kai_cp_models.snapshot import Snapshot
from tests.support import objects as raw
from tests.support.clusters import random_cluster
from tests.support.worlds import cluster, fraction, node, pod, spec

SEEDS = range(40)
STEPS = 30
FEATURES = frozenset(
    (
        "fractions",
        "memory",
        "multi",
        "releasing",
        "taints",
        "cpu",
        "slots",
        "ports",
        "affinity",
        "mig",
        "others",
    )
)


def snapshot_of(seed: int) -> Snapshot:
    return parse(random_cluster(seed, FEATURES), now=raw.NOW.timestamp())


def forgetful(ledger: Ledger) -> Ledger:
    """The same state with nothing remembered."""
    return replace(ledger, _views={}, _shared=None).copy()


def same(ledger: Ledger, pods: list[Pod]) -> None:
    """Every question about every pod has the answer of a fresh look."""
    fresh = forgetful(ledger)
    for one in pods:
        for now in (True, False):
            fits = fresh.fits(one, now=now)
            np.testing.assert_array_equal(ledger.fits(one, now=now), fits)
            slots = fresh.slots(one, now=now)
            np.testing.assert_array_equal(ledger.slots(one, now=now), slots)
            np.testing.assert_array_equal(slots > 0, fits)
        np.testing.assert_array_equal(ledger.view(one).shared, fresh.view(one).shared)
        assert ledger.has_room(one) == fresh.has_room(one)
    for at, free in enumerate(ledger.shared_free().tolist()):
        total, there = ledger.fixed.mib_on[at], ledger.devices.get(at, {})
        assert free == sum(max(one.free_mib(total, now=False), 0) for one in there.values()) / total


def step(rng: Random, ledger: Ledger, snapshot: Snapshot) -> str | None:
    """One operation that the ledger's state allows; None where the drawn operation has no object."""
    kind = rng.choice(("place", "place", "unplace", "pipeline", "evict", "unevict"))
    pods = [one for one in snapshot.pods if one.group is not None and not one.reservation]
    if kind == "place":
        found = [p for p in pods if p.key not in ledger.held and ledger.status(p) is PodStatus.PENDING]
        found += [p for p in pods if p.key in ledger.evicted and p.key not in ledger.held]
        if not found:
            return None
        one = rng.choice(found)
        now = one.status is PodStatus.PENDING and rng.random() < 0.5
        nodes = np.flatnonzero(ledger.fits(one, now=now)).tolist()
        if not nodes:
            return None
        where = rng.choice(nodes)
        ledger.place(one, where, pipelined=not now)
        return kind
    if kind in ("unplace", "pipeline"):
        found = [p for p in pods if p.key in ledger.held]
    elif kind == "evict":
        found = [p for p in pods if p.node and p.status in ALLOCATED and p.key not in ledger.evicted]
    else:
        found = [p for p in pods if p.key in ledger.evicted and p.key not in ledger.held]
    if not found:
        return None
    getattr(ledger, kind)(rng.choice(found))
    return kind


@cache
def run(seed: int) -> set[str]:
    """Random operations with questions in between; now and then the run continues with a copy."""
    rng = Random(seed)
    snapshot = snapshot_of(seed)
    ledger = Ledger.of(snapshot)
    kept: list[tuple[Ledger, dict[str, list[bool]]]] = []
    done: set[str] = set()
    for _ in range(STEPS):
        done |= {kind for kind in (step(rng, ledger, snapshot),) if kind}
        some = rng.sample(snapshot.pods, min(4, len(snapshot.pods)))
        same(ledger, some)
        if rng.random() < 0.2:
            answers = {str(one.key): ledger.fits(one, now=False).tolist() for one in snapshot.pods}
            kept.append((ledger, answers))
            ledger = ledger.copy()
    same(ledger, list(snapshot.pods))
    # Changes to the copies do not affect the ledgers that they were copied from.
    for before, answers in kept:
        same(before, list(snapshot.pods))
        for one in snapshot.pods:
            assert before.fits(one, now=False).tolist() == answers[str(one.key)]
    return done


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_holds_what_a_fresh_look_finds(seed: int) -> None:
    run(seed)


def test_the_random_operations_cover_the_cases() -> None:
    """Every operation occurs, and places appear and disappear by them."""
    done = [run(seed) for seed in range(20)]
    for kind in ("place", "unplace", "pipeline", "evict", "unevict"):
        assert sum(kind in one for one in done) >= 5


def test_asked_again_after_a_change_by_hand() -> None:
    """One GPU: a takes it, and b has no place. c asks for a share and finds none until d has its device
    there.
    """
    d = pod("d-0", spec=fraction(300))
    a, b, c = pod("a-0"), pod("b-0"), pod("c-0", spec=fraction(700))
    ledger = Ledger.of(cluster([a, b, c, d], nodes=[node("n1", 1), node("n2", 0)]))

    def room(one: Pod) -> list[bool]:
        return [bool(fits) for fits in ledger.fits(one, now=True)]

    assert (room(b), room(c)) == ([True, False], [True, False])
    ledger.place(a, 0, pipelined=False)
    assert (room(b), room(c)) == ([False, False], [False, False])
    ledger.unplace(a)
    ledger.place(d, 0, ("x",), pipelined=False)
    assert (room(b), room(c)) == ([False, False], [True, False])
    assert ledger.view(c).shared.tolist() == [True, False]
    trial = ledger.copy()
    trial.place(c, 0, ("x",), pipelined=False)
    assert trial.fits(c, now=True).tolist() == [False, False]
    assert room(c) == [True, False]


def test_the_caller_may_change_the_answer() -> None:
    one = pod("a-0", spec=spec(2))
    ledger = Ledger.of(cluster([one], nodes=[node("n1", 2), node("n2", 2)]))
    for _ in range(3):
        mask = ledger.fits(one, now=True)
        assert mask.tolist() == [True, True]
        mask[:] = False
    ledger.place(one, 0, pipelined=False)
    mask = ledger.fits(one, now=True)
    mask[:] = True
    assert ledger.fits(one, now=True).tolist() == [False, True]


def test_specs_that_are_gone_leave_no_answer_behind() -> None:
    """Answers are kept by the identity of a spec, which Python gives out again when the spec is gone."""
    ledger = Ledger.of(cluster([], nodes=[node("n1", 4)]))
    for size in (1, 9) * 200:
        assert ledger.fits(pod("a-0", spec=spec(size)), now=True).tolist() == [size == 1]


# --- the best node without scoring all ------------------------------------------------------------


def scored(ledger: Ledger, one: Pod, within: np.ndarray) -> tuple[int, bool]:
    """The best node and whether its capacity is idle, by the scores of all nodes."""
    fitting = ledger.fits(one, now=False) & within
    now = ledger.fits(one, now=True)
    if not fitting.any():
        return -1, False
    value = scores(
        ledger.fixed.table,
        one,
        fitting,
        ledger.free,
        fits_now=now,
        fits_shared=ledger.view(one).shared,
    )
    node = int(np.argmax(np.where(fitting, value, -np.inf)))
    return node, bool(now[node])


SCORED = ("predicates", "gpusharingorder", "nodeavailability", "resourcetype", "nodeplacement")
POLICIES = (
    frozenset((*SCORED, "nominatednode")),
    frozenset(("predicates", "gpusharingorder", "nodeplacement")),
    frozenset(("predicates", "nodeavailability", "resourcetype")),
)


@pytest.mark.parametrize("plugins", POLICIES, ids=lambda names: f"{len(names)} plugins")
@pytest.mark.parametrize("seed", range(20))
def test_the_best_node_is_the_one_that_scores_best(seed: int, plugins: frozenset[str]) -> None:
    """Random operations; every pod is asked about in between, on all nodes and on some."""
    rng = Random(seed)
    read = snapshot_of(seed)
    names = (None, "gone", *(one.name for one in read.nodes))
    named = tuple(replace(one, nominated_node=rng.choice(names)) for one in read.pods)
    snapshot = replace(read, pods=named, policy=replace(read.policy, plugins=plugins))
    ledger = Ledger.of(snapshot)
    short = 0
    for _ in range(STEPS):
        step(rng, ledger, snapshot)
        for one in rng.sample(snapshot.pods, min(6, len(snapshot.pods))):
            within = np.array([rng.random() < 0.7 for _ in snapshot.nodes])
            for mask in (within, np.ones(len(snapshot.nodes), dtype=bool)):
                found = ledger.best(one, mask)
                if found is not None:
                    short += 1
                    assert found == scored(ledger, one, mask), one.key
        if rng.random() < 0.2:
            ledger = ledger.copy()
    assert short


def test_pods_that_take_more_than_ranks_have_no_short_way() -> None:
    """GPU memory, spreading, a claim: scores of all nodes decide. A nominated node is looked at first."""
    plain = pod("a-0")
    everywhere = np.ones(2, dtype=bool)

    def best(one: Pod, **policy: Any) -> tuple[int, bool] | None:
        snapshot = cluster([one], nodes=[node("n1", 2), node("n2", 1)], plugins=POLICIES[0])
        snapshot = replace(snapshot, policy=replace(snapshot.policy, **policy))
        return Ledger.of(snapshot).best(one, everywhere)

    assert best(plain) == (1, True)
    assert best(replace(plain, nominated_node="n1")) == (0, True)
    assert best(replace(plain, nominated_node="n1"), plugins=POLICIES[1]) == (1, True)
    assert best(plain, gpu_strategy="spread") is None
    memory = GpuRequest(GpuKind.MEMORY, devices=1, milli_portion=0, memory_mib=1000)
    assert best(replace(plain, spec=replace(plain.spec, gpu=memory))) is None
    assert best(replace(plain, spec=replace(plain.spec, claims=(ClaimRef("gpu", "mine"),)))) is None


def test_a_node_over_its_capacity_takes_no_shares() -> None:
    """n2 shares two GPUs and has one, and it is not known which of them exists."""
    holders = [pod(f"d-{i}", "n2", spec=fraction(300), gpu_groups=(f"x{i}",)) for i in range(2)]
    one = pod("a-0", spec=fraction(300))
    snapshot = cluster([one, *holders], nodes=[node("n1", 2), node("n2", 1)], plugins=POLICIES[0])
    ledger = Ledger.of(snapshot)
    assert ledger.idle[1, GPU] < 0
    assert ledger.best(one, np.ones(2, dtype=bool)) == (0, True)
