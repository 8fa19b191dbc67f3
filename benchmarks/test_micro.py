"""Micro benchmarks of the parts of a cycle, as ratios to a fixed piece of Python work on the same machine.

``pytest benchmarks`` measures; ``pytest benchmarks --benchmark-disable`` runs every piece once, as a test.
Times are of one machine: compare the column *yardsticks* in ``extra_info``, not seconds.
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
from kai_cp_models.actions.allocate import allocate
from kai_cp_models.actions.common import waiting_groups
from kai_cp_models.check import violations
from kai_cp_models.cycle import Cycle
from kai_cp_models.engine import decide
from kai_cp_models.fairness.order import FairOrder
from kai_cp_models.ledger import Ledger
from kai_cp_models.settings import Settings, SolverSettings
from kai_cp_models.snapshot import Plan, Snapshot

SETTINGS = Settings(solver=SolverSettings(budget_seconds=1.0))


def _yardstick() -> float:
    """Seconds of a fixed piece of Python: what this machine's speed is today."""
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
    """1,000 nodes when measured, few when only run."""
    return 40 if request.config.getoption("benchmark_disable", default=False) else 1000


@pytest.fixture(scope="session")
def raw(nodes: int) -> dict[str, Any]:
    return SHAPES["fill"](nodes, 1)


@pytest.fixture(scope="session")
def snapshot(raw: dict[str, Any]) -> Snapshot:
    return parse(raw, now=NOW.timestamp())


@pytest.fixture(scope="session")
def plan(snapshot: Snapshot) -> Plan:
    return _greedy(snapshot)


def _greedy(snapshot: Snapshot) -> Plan:
    cycle = Cycle(snapshot, SETTINGS, Ledger.of(snapshot, SETTINGS.rules), math.inf)
    cycle.budget.begin(1.0)
    allocate(cycle, joint=False)
    return Plan(decisions=cycle.decisions())


def _pops(snapshot: Snapshot) -> int:
    from kai_cp_models.actions.common import entry_of

    ledger = Ledger.of(snapshot, SETTINGS.rules)
    cycle = Cycle(snapshot, SETTINGS, ledger, math.inf)
    entries = {
        key: entry_of(ledger, snapshot.group_by_key[key], batch)
        for key, batch in waiting_groups(cycle, "allocate").items()
    }
    order = FairOrder(snapshot, ledger.book, entries)
    count = 0
    while order.pop() is not None:
        count += 1
    return count


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


def test_ledger_and_fair_shares(benchmark: Any, yardstick: float, snapshot: Snapshot) -> None:
    ledger = _measure(benchmark, yardstick, lambda: Ledger.of(snapshot, SETTINGS.rules))
    assert all(ledger.book.fair_share_of(queue.name).gpu != 0 for queue in snapshot.queues)


def test_fair_order(benchmark: Any, yardstick: float, snapshot: Snapshot) -> None:
    assert _measure(benchmark, yardstick, lambda: _pops(snapshot)) == len(snapshot.groups)


def test_greedy_pass(benchmark: Any, yardstick: float, snapshot: Snapshot) -> None:
    assert _measure(benchmark, yardstick, lambda: _greedy(snapshot)).decisions


def test_checker(benchmark: Any, yardstick: float, snapshot: Snapshot, plan: Plan) -> None:
    assert _measure(benchmark, yardstick, lambda: violations(snapshot, plan, SETTINGS.rules)) == []


def test_quiet_cycle(benchmark: Any, yardstick: float, nodes: int) -> None:
    quiet = parse(SHAPES["quiet"](nodes, 1), now=NOW.timestamp())
    assert _measure(benchmark, yardstick, lambda: decide(quiet, SETTINGS)).decisions == ()
