"""What is taken back leaves no trace: places, devices, queues, rules, and what is remembered about places."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from kai_cp.reader import parse
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import Pod
from kai_cp_models.snapshot import Snapshot
from tests.kai_cp_models.test_fitting import FEATURES, step
from tests.kai_cp_models.test_ledger import picture
from tests.support import objects as raw
from tests.support.clusters import random_cluster
from tests.support.extras import KINDS, TOGETHER, with_extras
from tests.support.worlds import cluster, fraction, node, pod

SEEDS = range(24)
STATEFUL = sorted(KINDS.keys() - {"starts", "rollouts"})
"""Holds are a rule only once the time axis has planned them, and few groups are in rollout;
``test_holders.py`` and ``test_rollouts.py`` have those."""


def world(seed: int, kind: str) -> tuple[Snapshot, Ledger]:
    """A random cluster in which the rule of that kind matters, and its ledger."""
    drawn = with_extras(random_cluster(seed, FEATURES), seed, frozenset((kind,)))
    snapshot = parse(drawn, now=raw.NOW.timestamp())
    return snapshot, Ledger.of(snapshot, TOGETHER.rules)


def answers(ledger: Ledger, one: Pod) -> tuple[object, ...]:
    """All that a ledger says about a pod without a place."""
    extra = (rule.score(one) for rule in ledger.rules)
    return (
        ledger.fits(one, now=True).tolist(),
        ledger.fits(one, now=False).tolist(),
        ledger.view(one).shared.tolist(),
        ledger.slots(one, now=False).tolist(),
        [None if score is None else score.tolist() for score in extra],
        [rule.refusals(one) for rule in ledger.rules if rule.concerns(one)],
        [rule.evictable(one) for rule in ledger.rules if rule.concerns(one)],
    )


def same(ledger: Ledger, other: Ledger) -> None:
    """Both ledgers are in one state, whichever questions are asked."""
    assert picture(ledger) == picture(other)
    assert ledger.held == other.held
    np.testing.assert_array_equal(ledger.shared_free(), other.shared_free())
    for one in ledger.snapshot.pods:
        if one.key not in ledger.held:
            assert answers(ledger, one) == answers(other, one)


@pytest.mark.parametrize("kind", STATEFUL)
@pytest.mark.parametrize("seed", SEEDS)
def test_back_is_where_the_mark_was(seed: int, kind: str) -> None:
    """Random operations between nested marks are taken back or kept; those that are kept are done to a
    copy as well.
    """
    rng = Random(seed)
    snapshot, ledger = world(seed, kind)
    before: list[Ledger] = []
    for _ in range(40):
        drawn = rng.random()
        if drawn < 0.2:
            before.append(ledger.copy())
            ledger.mark()
        elif drawn < 0.3 and before:
            ledger.close(kept=False)
            same(ledger, before.pop())
        elif drawn < 0.35 and before:
            ledger.close(kept=True)
            before.pop()
        else:
            step(rng, ledger, snapshot)
    while before:
        ledger.close(kept=False)
        same(ledger, before.pop())


@pytest.mark.parametrize("kind", STATEFUL)
def test_the_rules_have_a_say_in_it(kind: str) -> None:
    """Places of pods that the rule concerns are among those that are taken back."""
    concerned = 0
    for seed in SEEDS:
        rng = Random(seed)
        snapshot, ledger = world(seed, kind)
        for _ in range(20):
            step(rng, ledger, snapshot)
        pods = [snapshot.pod_by_key[key] for key in ledger.evicted | ledger.held]
        concerned += sum(rule.concerns(one) for rule in ledger.rules for one in pods)
    assert concerned > 20


def test_a_device_that_others_joined_is_as_it_was() -> None:
    """The first member of a new device pays for its reservation, whichever pods are on it when it returns."""

    first, second = pod("a-0", spec=fraction(300)), pod("b-0", spec=fraction(300))
    ledger = Ledger.of(cluster([first, second], nodes=[node("n1", 1)]))
    ledger.place(first, 0, ("x",), pipelined=False)
    ledger.place(second, 0, ("x",), pipelined=False)
    state = ledger.copy()
    ledger.mark()
    ledger.unplace(first)
    ledger.close(kept=False)
    same(ledger, state)
