"""Results may have any author: the page of a bench or tune run shows their names and executes none of
them.
"""

from __future__ import annotations

from html import escape
from typing import Any

import pytest

from kai_cp.bench.records import (
    AdmissionDifference,
    BoundResult,
    CaseResult,
    MattersResult,
    NetEffect,
    Origin,
    Peer,
    PolicyResult,
    PromisesKept,
    SimulationResult,
)
from kai_cp.bench.report import page
from kai_cp.tune.compare import html
from kai_cp.tune.measure import Measured

EVIL = "</td><script>alert(1)</script>\"'$\\frac{$"
ORIGIN = Origin(
    machine=EVIL, cores=1, memory_gib=1, python=EVIL, versions={EVIL: EVIL}, commit=EVIL, settings=EVIL
)
GANGS: dict[str, Any] = {
    **{"case": EVIL, "policy": EVIL, "seed": 1, "hours": 1, "groups": 1, "finished": 1, "utilisation": 0.5},
    **{
        "waiting_minutes": {EVIL: 1.0},
        "waiting_p95_minutes": {EVIL: 1.0},
        "longest_wait_minutes": {EVIL: 1.0},
    },
    **{"evictions": 0, "moves": 0, "lost_gpu_hours": 0, "share_error": 0, "cycles": 1, "seconds": 1},
    **{"slowest_cycle_seconds": 1, "errors": (EVIL,), "origin": ORIGIN},
}
RESULTS = (
    CaseResult(
        **{
            "suite": EVIL,
            "case": EVIL,
            "seed": 1,
            "stages": (),
            "moments": (),
            "pending_groups": 1,
            "nodes": 1,
        },
        **{"running_pods": 1, "pending_pods": 1, "budget_seconds": 1, "peak_memory_mib": 1, "gap": 0.5},
        seconds={"decide": 0.5, "read": 0.1},
        status=EVIL,
        outcome=NetEffect(bound_gpus=1),
        peer=Peer(
            name=EVIL,
            outcome=NetEffect(bound_gpus=2),
            seconds=1.0,
            first=AdmissionDifference(group=EVIL, turn=1, here=False),
        ),
        errors=(EVIL,),
        origin=ORIGIN,
    ),
    PolicyResult(
        suite=EVIL, case=EVIL, policy=EVIL, seed=1, used=90, seconds=1, errors=(EVIL,), origin=ORIGIN
    ),
    BoundResult(suite=EVIL, case=EVIL, seed=1, bound=95, value=95, columns=1, seconds=1, origin=ORIGIN),
    SimulationResult(**GANGS),
    SimulationResult(**GANGS, promises=PromisesKept(kept=1, broken={EVIL: 1}, open=0, idle_gpu_hours=0)),
    MattersResult(
        **{"suite": EVIL, "case": EVIL, "seed": 1, "budget_seconds": 1, "clusters": 1, "improved": 1},
        **{"certified": 1, "equal_certified": 0, "mean_seconds": 1, "errors": (EVIL,), "origin": ORIGIN},
    ),
)


def harmless(text: str) -> None:
    assert "alert(1)" in text
    assert "<script" not in text


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: str(result.kind))
def test_a_bench_report_runs_nothing_that_a_result_says(result: Any) -> None:
    harmless(page([result]))


def test_a_tune_report_runs_nothing_that_a_name_says() -> None:
    configs = [EVIL, "other"]
    results = {EVIL: {name: Measured({"admitted": 1.0}, {}) for name in configs}}
    settings = {name: {EVIL: {EVIL: name}} for name in configs}
    text = html(results, configs, settings)
    harmless(text)
    assert text.count(escape(EVIL)) >= 4
