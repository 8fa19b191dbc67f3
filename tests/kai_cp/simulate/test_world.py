"""The simulator on workloads small enough to follow by hand."""

from __future__ import annotations

import pytest

from kai_cp.simulate.policies import POLICIES
from kai_cp.simulate.shares import fair_division, share_error
from kai_cp.simulate.starts import promises_kept
from kai_cp.simulate.workload import SIZES, Job, WorkloadTrace, philly
from kai_cp.simulate.world import Simulation
from kai_cp_models.settings import Settings

QUOTAS = (("queue-00", 8.0), ("queue-01", 8.0))


def _run(jobs: tuple[Job, ...], policy: str, nodes: int = 1, seconds: float = 3600.0):  # type: ignore[no-untyped-def]
    return Simulation(WorkloadTrace(nodes, QUOTAS, jobs, seconds), POLICIES[policy], Settings()).run()


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_one_job_waits_for_a_look_and_ends_on_time(policy: str) -> None:
    run = _run((Job("job-00000", "queue-00", 10.0, 8, 1, 600.0),), policy)
    ((gpus, wait),) = run.waits
    assert gpus == 8
    assert 50 <= wait <= 70  # The next cycle is at 60 s; binding and starting take 6 s.
    assert run.finished == 1
    assert run.utilisation == pytest.approx(600 / 3600, abs=0.02)
    assert (run.evictions, run.errors) == (0, ())


def test_strict_order_makes_a_small_job_wait_behind_a_large_one() -> None:
    jobs = (
        Job("job-00000", "queue-00", 1.0, 6, 1, 1200.0),
        Job("job-00001", "queue-00", 70.0, 4, 1, 300.0),
        Job("job-00002", "queue-01", 80.0, 1, 1, 300.0),
    )
    strict = dict(zip((0, 1, 2), (w for _, w in _run(jobs, "first come").waits), strict=True))
    fair = dict(zip((0, 1, 2), (w for _, w in _run(jobs, "kai_cp greedy").waits), strict=True))
    assert strict[2] > 1000
    assert fair[2] < 120


def test_reclaim_returns_the_share_of_a_queue_and_counts_the_loss() -> None:
    jobs = (
        *(Job(f"job-{i:05}", "queue-00", 1.0 + i / 10, 1, 1, 3000.0) for i in range(8)),
        Job("job-00008", "queue-01", 600.0, 4, 1, 600.0),
    )
    quotas = (("queue-00", 4.0), ("queue-01", 4.0))
    run = Simulation(WorkloadTrace(1, quotas, jobs, 3600.0), POLICIES["kai_cp"], Settings()).run()
    assert run.evictions >= 4
    assert run.lost_gpu_seconds >= 4 * 500
    assert run.waits[8][1] < 300
    still = Simulation(WorkloadTrace(1, quotas, jobs, 3600.0), POLICIES["kai_cp greedy"], Settings()).run()
    assert still.evictions == 0
    assert still.share_error > run.share_error


def test_workload_has_the_sizes_it_promises() -> None:
    jobs = philly(3, nodes=64, hours=400).jobs
    share = {size: sum(job.total == size for job in jobs) / len(jobs) for size, _ in SIZES}
    assert share[1] == pytest.approx(0.93, abs=0.01)
    assert share[8] == pytest.approx(0.02, abs=0.006)
    assert len({job.queue for job in jobs}) == 15
    assert philly(3, hours=2).jobs == philly(3, hours=2).jobs


def test_fair_division_by_hand() -> None:
    quota = {"a": 2.0, "b": 2.0, "c": 2.0}
    assert fair_division(12, quota, {"a": 1, "b": 9, "c": 9}) == pytest.approx({"a": 1, "b": 5.5, "c": 5.5})
    assert fair_division(3, quota, {"a": 9, "b": 9, "c": 9}) == pytest.approx({"a": 1, "b": 1, "c": 1})
    held = {"a": 1.0, "b": 9.0, "c": 2.0}
    assert share_error(12, quota, {"a": 1, "b": 9, "c": 9}, held) == pytest.approx(7 / 12)


def test_a_gang_gets_its_date_while_small_jobs_fill_the_gap() -> None:
    """Two nodes. long keeps one for an hour, and the gang holds both from then on; a short job runs
    before it.
    """
    jobs = (
        Job("job-00000", "queue-00", 10.0, 8, 1, 3600.0, 3600.0),
        Job("job-00001", "queue-00", 70.0, 8, 2, 1800.0, 1800.0),
        Job("job-00002", "queue-00", 200.0, 8, 1, 600.0, 600.0),
        Job("job-00003", "queue-00", 900.0, 8, 1, 7200.0, 7200.0),
    )
    quotas = (("queue-00", 16.0),)
    workload = WorkloadTrace(2, quotas, jobs, 3 * 3600.0)
    with_ = Settings.model_validate(
        {"reservations": {"enabled": True, "after_seconds": 60}, "time": {"margin_seconds": 60}}
    )
    run = Simulation(workload, POLICIES["kai_cp"], with_).run()
    assert run.errors == ()
    waits = [seconds for _, seconds in run.waits]
    assert waits[2] < 120  # Backfilled at once.
    assert 3500 <= waits[1] <= 3900  # Both nodes, when the long job has ended.
    assert waits[3] > 4000  # It would have used the gang's node for two hours.
    promise = run.promises[0]
    assert (promise.gpus, promise.causes) == (16, ())
    # long runs from 66 s on: its end, and a minute's margin. The cycles between kept that start.
    assert 3720 <= promise.promised <= 3790
    found = promises_kept(run, workload)
    assert (found.kept, found.broken, found.open) == (2, {}, 0), "that of the last job, too"
    without = Simulation(workload, POLICIES["kai_cp"], Settings()).run()
    assert [seconds for _, seconds in without.waits][1] > 7000


def test_a_broken_promise_has_the_cause_that_was_reported_last() -> None:
    """One node. The job before the gang runs twice as long as it declared, which breaks the promise."""
    jobs = (
        Job("job-00000", "queue-00", 10.0, 8, 1, 3600.0, 1800.0),
        Job("job-00001", "queue-00", 70.0, 8, 1, 600.0, 600.0),
    )
    workload = WorkloadTrace(1, (("queue-00", 8.0),), jobs, 2 * 3600.0)
    settings = Settings.model_validate({"reservations": {"enabled": True, "after_seconds": 0}})
    found = promises_kept(Simulation(workload, POLICIES["kai_cp"], settings).run(), workload)
    assert (found.kept, found.broken) == (0, {"Overrun": 1})
