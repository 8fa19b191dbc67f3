"""The same snapshot gives the same answer, however unevenly the clock runs and whatever the hash seed is."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from math import inf
from pathlib import Path

import pytest

from kai_cp_models.engine import decide
from kai_cp_models.plan import CUT, SPENT, Plan
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from tests.properties.reasking import read
from tests.support.clusters import random_cluster

ROOT = Path(__file__).parents[2]
SETTINGS = Settings.model_validate({"solver": {"budget_seconds": 2, "patience": 0.5}})
HOURS = 3600.0


class Busy:
    """A clock that loses some seconds to another process now and then."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._now = time.monotonic()

    def __call__(self) -> float:
        self._now += self._rng.choice((0.0, 0.0, 0.0, 1.0, 30.0))
        return self._now


def decided(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, clock: Busy) -> Plan:
    """The plan under this clock, with a deadline that it never reaches."""
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", clock)
        return decide(snapshot, SETTINGS, deadline=clock() + 1000 * HOURS)


def told(plan: Plan) -> tuple[object, ...]:
    """Everything that a plan states except its times."""
    return (
        plan.decisions,
        plan.unscheduled,
        [(s.name, s.status, s.objective, s.bound) for s in plan.stages],
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_load_of_the_machine_decides_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clocks that run unevenly, one answer: decisions, reasons, proofs, values and bounds of stages."""
    snapshot = read(random_cluster(seed))
    one, other = (decided(snapshot, monkeypatch, Busy(n)) for n in (1, 2))
    assert told(one) == told(other)


def test_an_answer_that_the_clock_cuts_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a deadline in the past nothing is decided, and a stage says so."""
    plan = decide(read(random_cluster(3)), SETTINGS, deadline=time.monotonic() - 1)
    assert [stage for stage in plan.stages if stage.kind == CUT]


_ANSWERS = """
import time
from kai_cp.bench.generate import NOW, SHAPES
from kai_cp.reader import parse
from kai_cp_models.engine import decide
from kai_cp_models.settings import Settings
from tests.support.clusters import FEATURES, random_cluster

clusters = [SHAPES[shape](20, 5) for shape in ("backlog", "contended", "mixed", "fragmented")]
clusters += [random_cluster(seed, FEATURES) for seed in range(4)]
for cluster in clusters:
    plan = decide(parse(cluster, now=NOW.timestamp()), Settings(), deadline=time.monotonic() + 36000)
    stages = [(s.name, s.status, s.objective, s.bound) for s in plan.stages]
    print(plan.decisions, plan.unscheduled, stages, plan.turns)
"""


def test_the_order_of_hashes_decides_nothing() -> None:
    """Sets of names have another order in every process; two processes give one answer."""
    command = [sys.executable, "-c", _ANSWERS]
    one, other = (
        subprocess.check_output(
            command, text=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}
        ).splitlines()
        for seed in ("1", "2")
    )
    assert len(one) == 8
    assert one == other


class EndsLate:
    """A clock that stands still until it has been read ``reads`` times, and then is past every deadline."""

    def __init__(self, reads: int) -> None:
        self._left = reads

    def __call__(self) -> float:
        self._left -= 1
        return 0.0 if self._left >= 0 else 1000 * HOURS


@pytest.mark.parametrize("seed", range(4))
def test_every_answer_that_the_clock_cuts_says_so(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the deadline falls, the answer is complete, or a stage says that it was cut."""
    snapshot = read(random_cluster(seed))

    def under(reads: int) -> Plan:
        with monkeypatch.context() as patch:
            patch.setattr(time, "monotonic", EndsLate(reads))
            return decide(snapshot, SETTINGS, deadline=10 * HOURS)

    whole = under(10**9)
    for reads in range(1, 240, 8):
        plan = under(reads)
        if not any(stage.kind == CUT for stage in plan.stages):
            assert told(plan) == told(whole), reads


def test_every_answer_that_a_larger_budget_would_change_says_so() -> None:
    """Where no stage says that the budget's work ended a search, a larger budget gives the same answer."""
    whole = Settings.model_validate({"solver": {"budget_seconds": 20}})
    small = [Settings.model_validate({"solver": {"budget_seconds": each}}) for each in (0.02, 0.2)]
    said = Counter[bool]()
    for seed in range(16):
        snapshot = read(random_cluster(seed))
        most = told(decide(snapshot, whole, deadline=inf))
        for settings in small:
            plan = decide(snapshot, settings, deadline=inf)
            ended = any(stage.kind == SPENT for stage in plan.stages)
            said[ended] += 1
            assert ended or told(plan) == most, seed
    assert min(said.values()) > 4
    assert len(said) == 2
