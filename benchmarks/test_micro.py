"""Micro benchmarks of the parts of a cycle, as ratios to a fixed piece of Python work on the same machine.

``pytest benchmarks`` measures; ``pytest benchmarks --benchmark-disable`` runs every piece once, as a test.
Compare the column *yardsticks* in ``extra_info`` between machines, not seconds.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from kai_cp.bench.generate import NOW, SHAPES
from kai_cp.reader import ParseMemo, parse
from kai_cp_models.check import violations
from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan
from kai_cp_models.queries.cluster import greedy_plan, idle_gpus
from kai_cp_models.queries.shares import fair_line, queue_shares
from kai_cp_models.settings import Settings, SolverSettings
from kai_cp_models.snapshot import Snapshot

SETTINGS = Settings(solver=SolverSettings(budget_seconds=1.0))


def _yardstick() -> float:
    """Seconds of a fixed piece of Python, which show the present speed of the machine."""
    best = math.inf
    for _ in range(5):
        begin = time.perf_counter()
        text = json.dumps({str(i): [i, str(i)] for i in range(20_000)})
        sum(len(value[1]) for value in json.loads(text).values())
        best = min(best, time.perf_counter() - begin)
    return best


@pytest.fixture(scope="session")
def yardstick() -> float:
    return _yardstick()


@pytest.fixture(scope="session")
def nodes(request: pytest.FixtureRequest) -> int:
    """1,000 nodes when measured, a few when only run."""
    return 40 if request.config.getoption("benchmark_disable", default=False) else 1000


@pytest.fixture(scope="session")
def raw(nodes: int) -> dict[str, Any]:
    return SHAPES["fill"](nodes, 1)


@pytest.fixture(scope="session")
def snapshot(raw: dict[str, Any]) -> Snapshot:
    return parse(raw, now=NOW.timestamp())


@pytest.fixture(scope="session")
def plan(snapshot: Snapshot) -> Plan:
    return greedy_plan(snapshot, SETTINGS)


def _measure(benchmark: Any, yardstick: float, work: Callable[[], Any]) -> Any:
    result = benchmark.pedantic(work, rounds=3, warmup_rounds=1)
    if benchmark.stats is not None:
        benchmark.extra_info["yardsticks"] = round(benchmark.stats.stats.min / yardstick, 1)
    return result


def test_read(benchmark: Any, yardstick: float, raw: dict[str, Any]) -> None:
    found = _measure(benchmark, yardstick, lambda: parse(raw, now=NOW.timestamp()))
    assert found.set_aside == ()


def test_read_again(benchmark: Any, yardstick: float, raw: dict[str, Any]) -> None:
    memo = ParseMemo()
    first = parse(raw, now=NOW.timestamp(), memo=memo)
    found = _measure(benchmark, yardstick, lambda: parse(raw, now=NOW.timestamp(), memo=memo))
    assert found.pods == first.pods


def test_idle_gpus(benchmark: Any, yardstick: float, snapshot: Snapshot) -> None:
    assert len(_measure(benchmark, yardstick, lambda: idle_gpus(snapshot))) == len(snapshot.nodes)


def test_fair_shares(benchmark: Any, yardstick: float, snapshot: Snapshot) -> None:
    shares = _measure(benchmark, yardstick, lambda: queue_shares(snapshot))
    assert all(found.fair.gpu != 0 for found in shares.values())


def test_fair_order(benchmark: Any, yardstick: float, snapshot: Snapshot) -> None:
    line = _measure(benchmark, yardstick, lambda: list(fair_line(snapshot, SETTINGS)))
    assert len(line) == len(snapshot.groups)


def test_greedy_pass(benchmark: Any, yardstick: float, snapshot: Snapshot) -> None:
    assert _measure(benchmark, yardstick, lambda: greedy_plan(snapshot, SETTINGS)).decisions


def test_checker(benchmark: Any, yardstick: float, snapshot: Snapshot, plan: Plan) -> None:
    assert _measure(benchmark, yardstick, lambda: violations(snapshot, plan, SETTINGS.rules)) == []


def test_quiet_cycle(benchmark: Any, yardstick: float, nodes: int) -> None:
    quiet = parse(SHAPES["quiet"](nodes, 1), now=NOW.timestamp())
    assert _measure(benchmark, yardstick, lambda: decide(quiet, SETTINGS)).decisions == ()
