"""The engine beside the scheduler gets only what changed, and can never hold the scheduler up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from kai_cp.kube.scheduler.worker_decider import Differ, SnapshotMirror, WorkerDecider, stretched
from kai_cp.reader import parse
from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan, Unscheduled
from kai_cp_models.pods import GroupKey
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS
from tests.kai_cp.kube.samples import bind, group, node, pod, queue, snapshot
from tests.support.plans import UNHURRIED

NOW = 1_800_000_000.0


def raw(*pods: dict[str, Any]) -> dict[str, Any]:
    return snapshot(
        pods=list(pods), nodes=[node("n")], queues=[queue()], podGroups=[group()], topologies=None
    )


def test_the_worker_gets_changes_and_knows_the_whole() -> None:
    differ, mirror = Differ(), SnapshotMirror()
    a, b, c = pod("a"), pod("b"), pod("c")
    first = raw(a, b)
    task = differ.task(first, NOW, None, UNHURRIED)
    assert task.fresh
    assert mirror.apply(task) == first
    changed = {**b, "status": {"phase": "Failed"}}
    objects = {**first["rawObjects"], "pods": [changed, c]}
    second = {**first, "rawObjects": objects}
    task = differ.task(second, NOW, None, UNHURRIED)
    assert set(task.lists) == {"pods"}
    assert task.lists["pods"] is not None
    assert orjson.loads(task.lists["pods"].upserts) == [changed, c]
    assert task.lists["pods"].removed == [("ns", "a")]
    assert mirror.apply(task) == second
    off = {**second, "rawObjects": {**objects, "pods": None}}
    assert mirror.apply(differ.task(off, NOW, None, UNHURRIED)) == off
    assert mirror.apply(differ.task(second, NOW, None, UNHURRIED)) == second


@pytest.fixture
def decider() -> Iterator[WorkerDecider]:
    made = WorkerDecider(UNHURRIED)
    yield made
    made.stop()


def test_the_worker_decides_as_the_engine_in_this_process_does(decider: WorkerDecider) -> None:
    a = pod("a")
    for seen in (raw(a, pod("b")), raw(a, pod("c"))):
        ours, here = decider(seen, NOW, None), parse(seen, now=NOW)
        assert ours.problem == ""
        assert ours.plan.decisions == decide(here, UNHURRIED).decisions
        assert len(ours.plan.decisions) == 2
        assert ours.snapshot == parse(seen, now=NOW, judged=False)


def test_the_solver_is_loaded_by_the_engine_s_process_alone() -> None:
    """In the scheduler it would cost 64 MiB and a second at the start."""
    code = """
import sys, kai_cp.kube.scheduler.process
from kai_cp.kube.telemetry.cycles import CycleLog
from kai_cp.kube.scheduler.explaining import Explaining
from kai_cp_models.settings import Settings
explaining = Explaining(CycleLog(), Settings())
explaining.routes()
explaining.start()
explaining.stop()
sys.exit("ortools" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_dead_worker_loses_one_cycle(decider: WorkerDecider) -> None:
    seen = raw(pod("a"))
    assert decider(seen, NOW, None).plan.decisions
    process = decider._worker._process  # noqa: SLF001
    assert process is not None
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(PATIENCE_SECONDS)
    failed = decider(seen, NOW, None)
    assert failed.problem
    assert failed.plan.decisions == ()
    assert decider(seen, NOW, None).plan.decisions


def test_a_budget_that_decides_less_than_it_leaves_is_doubled() -> None:
    waits = (Unscheduled(GroupKey("ns", "g"), "NotDecidedInTime", "", False),)
    assert stretched(1.0, Plan((bind("a", "n"),), 2 * waits), "") == 2.0
    nothing, something = Plan(unscheduled=waits), Plan((bind("a", "n"),), waits)
    grown = 1.0
    for _ in range(6):
        grown = stretched(grown, nothing, "")
    assert grown == 16.0
    assert stretched(1.0, Plan(), "the engine was ended at its deadline") == 2.0
    assert stretched(8.0, something, "") == 4.0
    assert stretched(1.0, Plan(), "") == 1.0
