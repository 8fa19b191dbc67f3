"""The smoke suite: generated clusters of every common shape, a simulated hour, two failing clusters."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from kai_cp.bench.cli import app
from kai_cp.bench.records import CaseResult, MattersResult, SimulationResult, read


def test_smoke_suite_passes_its_audit(tmp_path: Path) -> None:
    out = tmp_path / "smoke.jsonl"
    done = CliRunner().invoke(app, ["--suite", "smoke", "--nodes", "16", "--budget", "2", "--out", str(out)])
    assert done.exit_code == 0, done.output
    results = list(read(out))
    cases = {r.case.split("-")[0]: r for r in results if isinstance(r, CaseResult)}
    assert cases["unschedulable"].status == "OPTIMAL", "that nothing can be done is proved"
    assert cases["quiet"].outcome.evicted_pods == 0
    assert cases["fill"].outcome.admitted_gpus > 0.8 * 16 * 8
    assert {r.policy for r in results if isinstance(r, SimulationResult)} == {
        "kai_cp",
        "kai_cp greedy",
        "first come",
    }
    waits = {r.policy: r.waiting_minutes["1"] for r in results if isinstance(r, SimulationResult)}
    assert waits["kai_cp"] < waits["first come"], "a suite on which all policies are equal shows nothing"
    assert sum(r.clusters for r in results if isinstance(r, MattersResult)) == 2
