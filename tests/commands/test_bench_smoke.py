"""The smoke suite: generated clusters of every common shape, a simulated hour, two failing clusters."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from kai_cp.bench.cli import app
from kai_cp.bench.records import CaseResult, MattersResult, SimulationResult, read
from kai_cp.simulate.starts import POLICIES


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


def test_reservations_are_measured_beside_none(tmp_path: Path) -> None:
    out, page = tmp_path / "gangs.jsonl", tmp_path / "gangs.html"
    wanted = ["--suite", "gangs", "--shapes", "declared", "--nodes", "4", "--hours", "2", "--budget", "20"]
    done = CliRunner().invoke(app, [*wanted, "--out", str(out), "--report", str(page)])
    assert done.exit_code == 0, done.output
    runs = [r for r in read(out) if isinstance(r, SimulationResult)]
    assert [r.policy for r in runs] == list(POLICIES)
    assert len({r.groups for r in runs}) == 1, "all meet the same jobs"
    promises = [r.promises for r in runs]
    assert promises[0] is not None
    assert (promises[0].kept, promises[0].open, promises[0].idle_gpu_hours) == (0, 0, 0.0)
    assert any(p is not None and p.kept + p.open for p in promises[1:]), "no promises show nothing"
    assert "Reservations over time" in page.read_text("utf-8")
    assert "EASY-like" in done.output
