"""Settings side by side, and a search that resumes and never leaves the preferences."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import optuna
import pytest
import yaml
from typer.testing import CliRunner

from kai_cp.bench.generate import NOW, SHAPES
from kai_cp.reader import parse
from kai_cp.settings import load
from kai_cp.tune.cli import app
from kai_cp.tune.compare import mark
from kai_cp.tune.measure import MEASURES, fragmentation, hops, measure, share_error
from kai_cp.tune.search import search, study_name, with_overrides
from kai_cp.tune.space import Space, read_space
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.settings import Settings, SolverSettings
from kai_cp_topology.records import Locality
from tests.support.times import runs, settings, waits, world
from tests.support.worlds import cluster, node

QUICK = Settings(solver=SolverSettings(budget_seconds=0.2))
SPACE = {
    "parameters": {
        "objective.max_moved_gpus_per_admitted_gpu": {"low": 0, "high": 2},
        "objective.lost_work_cap_seconds": {"choices": [3600, 604800]},
    },
    "objectives": ["admitted", "lost"],
}
SINCE = ["--now", "2026-11-20T12:00:00Z", "--budget", "0.2"]


@pytest.fixture
def snapshot_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SHAPES["mixed"](5, 1)))
    return path


def test_side_by_side_marks_differences(tmp_path: Path, snapshot_file: Path) -> None:
    a, b, page = tmp_path / "a.yaml", tmp_path / "b.yaml", tmp_path / "page.html"
    a.write_text("solver: {seed: 0}\n")
    b.write_text("objective: {max_moved_gpus_per_admitted_gpu: 0}\n")
    done = CliRunner().invoke(
        app, ["--config", str(a), "--config", str(b), str(snapshot_file), "--report", str(page), *SINCE]
    )
    assert done.exit_code == 0, done.output
    assert "GPUs admitted" in done.output
    assert "max_moved_gpus_per_admitted_gpu" in page.read_text("utf-8")


def test_days_are_compared_by_waits_and_promises(tmp_path: Path) -> None:
    """An hour and a half of four nodes, with and without reservations."""
    a, b = tmp_path / "without.yaml", tmp_path / "with.yaml"
    a.write_text("time: {default_runtime_seconds: 600}\n")
    b.write_text("time: {default_runtime_seconds: 600}\nreservations: {enabled: true, after_seconds: 0}\n")
    arguments = ["--days", "1-2", "--hours", "1.5", "--nodes", "4", "--config", str(a), "--config", str(b)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    for words in ("day 1", "day 2", "mean of all", "wait of jobs to 8 GPUs (h)", "starts kept"):
        assert words in done.output
    assert "GPUs admitted" not in done.output


def test_days_are_searched(tmp_path: Path) -> None:
    space, out = tmp_path / "space.yaml", tmp_path / "tuned.yaml"
    parameters = {"reservations.most": {"low": 1, "high": 2}}
    space.write_text(yaml.safe_dump({"parameters": parameters, "objectives": ["wait_large", "broken"]}))
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    arguments = ["--days", "1", "--hours", "0.5", "--nodes", "4", "--search", str(space), "--trials", "1"]
    done = CliRunner().invoke(app, [*arguments, "--storage", storage, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert load(out) == Settings()
    space.write_text(yaml.safe_dump({"parameters": parameters, "objectives": ["admitted"]}))
    done = CliRunner().invoke(app, [*arguments, "--storage", storage, "--out", str(out)])
    assert done.exit_code == 2
    assert "admitted is not measured here" in done.output


def test_snapshots_or_days(tmp_path: Path, snapshot_file: Path) -> None:
    files = ["--config", str(tmp_path / "a.yaml"), "--config", str(tmp_path / "b.yaml")]
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("{}\n")
    for more in ([], [str(snapshot_file), "--days", "1"], ["--days", "one"]):
        assert CliRunner().invoke(app, [*files, *more]).exit_code == 2


def test_one_configuration_is_wrong_usage(tmp_path: Path, snapshot_file: Path) -> None:
    assert CliRunner().invoke(app, [str(snapshot_file)]).exit_code == 2


def test_marks() -> None:
    assert [mark([10, 10.01, 12, 8], i, MEASURES["admitted"]) for i in range(4)] == ["", "", "+", "-"]
    assert [mark([10, 12, 8], i, MEASURES["lost"]) for i in range(3)] == ["", "-", "+"]
    assert [mark([10, 12, 8, 5], i, MEASURES["seconds"]) for i in range(4)] == ["", "", "", "+"]
    assert mark([0.08, 0.04], 1, MEASURES["seconds"]) == "", "that is noise"


def test_search_resumes_and_writes_settings_the_scheduler_takes(tmp_path: Path, snapshot_file: Path) -> None:
    space, out = tmp_path / "space.yaml", tmp_path / "tuned.yaml"
    space.write_text(yaml.safe_dump(SPACE))
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    arguments = ["--search", str(space), str(snapshot_file), "--storage", storage, "--out", str(out), *SINCE]
    done = CliRunner().invoke(app, [*arguments, "--trials", "2"])
    assert done.exit_code == 0, done.output
    assert load(out).solver.budget_seconds == 0.2
    snapshot = parse(json.loads(snapshot_file.read_text()), now=NOW.timestamp())
    finished: list[int] = []
    name = study_name(read_space(space), QUICK, {"small": "x"})
    for trials in (2, 3):
        front = search(
            read_space(space),
            QUICK,
            [partial(measure, snapshot)],
            trials=trials,
            storage=storage,
            name=name,
            report=finished.append,
        )
        assert front
    assert len(finished) == 3, "the second call runs only the missing trial"


def test_another_time_or_version_is_another_study(
    tmp_path: Path, snapshot_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(yaml.safe_dump(SPACE))
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    arguments = ["--search", str(space), str(snapshot_file), "--storage", storage, "--trials", "1"]

    def studies(now: str) -> int:
        out = ["--out", str(tmp_path / "tuned.yaml"), "--now", now]
        assert CliRunner().invoke(app, [*arguments, *out]).exit_code == 0
        return len(optuna.get_all_study_names(storage))

    assert studies("2026-11-20T12:00:00Z") == 1
    assert studies("2026-11-20T12:00:00Z") == 1
    assert studies("2026-11-27T12:00:00Z") == 2
    monkeypatch.setattr("kai_cp.tune.search.version", lambda: "another")
    assert studies("2026-11-27T12:00:00Z") == 3


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            {"parameters": {"rules.topology_spread": {"choices": [True]}}},
            "rules.topology_spread: only preferences",
        ),
        ({"parameters": {"gangs": {"choices": [False]}}}, "gangs: no such setting"),
        ({"parameters": {"objective.nothing": {"low": 0, "high": 1}}}, "no such setting"),
        ({"objectives": ["happiness"]}, "no such measure"),
        ({"parameters": {"solver.seed": {"low": 3, "high": 1}}}, "low first"),
        ({"parameters": {}}, "parameters"),
        ({"extra": 1}, "extra: unknown key"),
    ],
)
def test_bad_spaces_are_refused(tmp_path: Path, change: dict[str, object], complaint: str) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(yaml.safe_dump({**SPACE, **change}))
    with pytest.raises(ValueError, match=complaint):
        read_space(path)


def test_overrides_keep_the_rest_of_the_base() -> None:
    base = Settings(solver=SolverSettings(budget_seconds=3, seed=7))
    changed = with_overrides(base, {"objective.lost_work_cap_seconds": 60})
    assert changed.objective.lost_work_cap_seconds == 60
    assert changed.solver == base.solver


def test_order_and_weights_of_the_goals_are_searched(tmp_path: Path) -> None:
    present = ", ".join(Settings().objective.goals)
    orders = [present, "lost_work + moved_pods, newest_first"]
    space = Space.model_validate(
        {
            "parameters": {
                "objective.goals": {"choices": orders},
                "objective.weights.moved_pods": {"low": 0.5, "high": 4},
            },
            "objectives": ["lost_hours", "moved"],
        }
    )
    snapshot = parse(SHAPES["mixed"](5, 1), now=NOW.timestamp())
    found = search(
        space,
        QUICK,
        [partial(measure, snapshot)],
        trials=3,
        storage=f"sqlite:///{tmp_path / 'study.db'}",
        name="goals",
    )
    assert found[0].overrides == {"objective.goals": present, "objective.weights.moved_pods": 1.0}
    changed = with_overrides(QUICK, {"objective.goals": orders[1], "objective.weights.moved_pods": 2.0})
    assert changed.objective.goals == ("lost_work + moved_pods", "newest_first")
    assert changed.objective.weights.moved_pods == 2.0


def test_numbers_by_hand() -> None:
    snapshot = parse(SHAPES["quiet"](4, 1), now=NOW.timestamp())
    measured = measure(snapshot, QUICK)
    assert measured.values.keys() < MEASURES.keys()
    assert measured.values["admitted"] == measured.values["lost"] == 0
    assert measured.errors == ()
    empty = parse(SHAPES["fill"](2, 1), now=NOW.timestamp())
    assert fragmentation(empty, Plan()) == 0
    pod = next(p for p in empty.pods if p.spec.gpu.devices == 1)
    bound = Plan(decisions=(Decision("Bind", pod.key, pod.group, empty.nodes[0].name, "allocate"),))
    assert fragmentation(empty, bound) == pytest.approx(7 / 15)
    assert share_error(empty, Plan()) == 0
    assert hops(bound) == 0
    far = Locality(100, 6, "zone", 2, 8)
    assert hops(replace(bound, localities={pod.group: far} if pod.group else {})) == 6
    assert Space.model_validate(SPACE).objectives == ("admitted", "lost")


def test_tune_measures_benefit_and_cost_of_reservations() -> None:
    """big starts in half an hour on two nodes, of which one stands idle until then: 4 GPU-hours."""
    members = world(runs("a", "n2", lasts="30m"), waits("big", 2, lasts="4h", reserve=True, waited=60))
    snapshot = cluster(nodes=(node("n1"), node("n2")), **members)
    measured = measure(snapshot, settings())
    assert (measured.values["dated"], measured.values["held_idle"], measured.errors) == (16, 4, ())
    none = settings(reservations={"max_idle_gpu_hours": 3.0})
    assert measure(snapshot, none).values["dated"] == 0
    assert measure(snapshot, Settings()).values["held_idle"] == 0


def test_tune_searches_the_limits_of_holders(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("parameters: {reservations.most: {low: 1, high: 8}}\nobjectives: [dated, held_idle]\n")
    assert read_space(path).objectives == ("dated", "held_idle")


def test_a_measure_has_its_unit_once() -> None:
    assert [MEASURES[name].label for name in ("lost", "lost_hours")] == ["GPUs lost", "work lost (GPU-hours)"]
