"""Studies survive the process that runs them: after a kill in SQLite, and shared by workers in PostgreSQL."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import optuna
import pytest
import yaml

from kai_cp.bench.generate import NOW, SHAPES
from kai_cp.reader import parse
from kai_cp.settings import load
from kai_cp.tune.search import search
from kai_cp.tune.space import Space
from kai_cp_models.engine import decide
from kai_cp_models.settings import Settings

SPACE = {
    "parameters": {
        "objective.max_moved_gpus_per_admitted_gpu": {"low": 0.5, "high": 2},
        "objective.lost_work_cap_seconds": {"choices": [7200]},
    },
    "objectives": ["admitted"],
}
DONE = (optuna.trial.TrialState.COMPLETE,)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.json").write_text(json.dumps(SHAPES["mixed"](4, 1)))
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(SPACE))
    return tmp_path


def start(folder: Path, storage: str, trials: int, out: str = "tuned.yaml") -> subprocess.Popen[bytes]:
    """``kai-cp tune --search`` in a process of its own."""
    command = [sys.executable, "-m", "kai_cp", "tune", "--search", "space.yaml", "small.json"]
    command += ["--trials", str(trials), "--storage", storage, "--out", out, "--budget", "0.2"]
    command += ["--now", "2026-11-20T12:00:00Z"]
    with (folder / f"{out}.log").open("w") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)


def finish(process: subprocess.Popen[bytes], folder: Path, out: str = "tuned.yaml") -> None:
    assert process.wait(300) == 0, (folder / f"{out}.log").read_text()


def finished(storage: str) -> dict[int, tuple[list[float], dict[str, object]]]:
    """Values and parameters of the finished trials of the only study, by number."""
    shared = optuna.storages.RDBStorage(storage)
    try:
        (study,) = shared.get_all_studies()
        trials = shared.get_all_trials(study._study_id, states=DONE)  # noqa: SLF001
        return {trial.number: (trial.values, trial.params) for trial in trials}
    finally:
        shared.engine.dispose()


def test_a_killed_search_goes_on_where_it_was(folder: Path) -> None:
    storage = f"sqlite:///{folder / 'study.db'}"
    process = start(folder, storage, 10_000)
    try:
        limit = time.monotonic() + 240
        while _count(folder / "study.db") < 2:
            assert process.poll() is None, (folder / "tuned.yaml.log").read_text()
            assert time.monotonic() < limit, "no trial was finished"
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    assert not (folder / "tuned.yaml").exists()
    before = finished(storage)
    finish(start(folder, storage, len(before) + 2), folder)
    after = finished(storage)
    assert len(after) == len(before) + 2
    assert {number: after[number] for number in before} == before
    # The scheduler reads what was found, and decides with it.
    chosen = load(folder / "tuned.yaml")
    said = (folder / "tuned.yaml.log").read_text()
    if "Nothing better than the present settings" in said:
        assert chosen.objective == Settings().objective
    else:
        assert chosen.objective.lost_work_cap_seconds == 7200
        assert 0.5 <= chosen.objective.max_moved_gpus_per_admitted_gpu <= 2
    snapshot = parse(json.loads((folder / "small.json").read_text()), now=NOW.timestamp())
    assert decide(snapshot, chosen, deadline=time.monotonic() + 600).decisions


def _count(database: Path) -> int:
    """Finished trials; read only, because Optuna would make the tables that the other process is making."""
    if not database.exists():
        return 0
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        try:
            (count,) = connection.execute("SELECT count(*) FROM trials WHERE state = 'COMPLETE'").fetchone()
        except sqlite3.OperationalError:  # No table yet, or locked.
            return 0
    return int(count)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A private PostgreSQL server on a socket in a directory of its own; returns the URL of a database."""
    programs = shutil.which("initdb"), *sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = next((Path(program).resolve() for program in programs if program), None)
    if initdb is None:
        pytest.skip("no PostgreSQL server is installed here (initdb is missing)")
    user = pwd.getpwuid(os.getuid()).pw_name
    if user == "root":  # PostgreSQL refuses to be run by root.
        user = "postgres"
        try:
            pwd.getpwnam(user)
        except KeyError:
            pytest.skip("PostgreSQL cannot run as root, and there is no user postgres")
    home = Path(tempfile.mkdtemp(prefix="kai-cp-pg-"))
    data = home / "data"
    if os.getuid() == 0:
        shutil.chown(home, user)
    with (home / "log").open("wb") as log:
        subprocess.run(
            [initdb, "--pgdata", data, "--username", "kai", "--auth", "trust", "--no-sync"],
            check=True,
            stdout=log,
            stderr=log,
            cwd=home,
            user=user if os.getuid() == 0 else None,
        )
        process = subprocess.Popen(
            [initdb.with_name("postgres"), "-D", data, "-k", home, "-c", "listen_addresses=", "-F"],
            stdout=log,
            stderr=log,
            cwd=home,
            user=user if os.getuid() == 0 else None,
        )
        try:
            limit = time.monotonic() + 240
            while not (home / ".s.PGSQL.5432").exists():
                assert process.poll() is None, (home / "log").read_text()
                assert time.monotonic() < limit, (home / "log").read_text()
                time.sleep(0.1)
            yield f"postgresql://kai@/postgres?host={home}"
        finally:
            process.send_signal(signal.SIGINT)  # Connected clients do not delay the end.
            process.wait(60)
            shutil.rmtree(home)


def test_workers_share_a_study_in_postgresql(server: str, folder: Path) -> None:
    finish(start(folder, server, 1), folder)
    workers = [start(folder, server, 4, f"tuned-{i}.yaml") for i in range(2)]
    for i, worker in enumerate(workers):
        finish(worker, folder, f"tuned-{i}.yaml")
    found = finished(server.replace("postgresql://", "postgresql+psycopg://"))
    # Each worker stops when it sees enough trials; the other one may then be in the middle of a trial.
    assert len(found) in (4, 5)
    for i in range(2):
        assert load(folder / f"tuned-{i}.yaml").objective.lost_work_cap_seconds in (7200, 604_800)


@pytest.mark.parametrize(
    ("storage", "complaint"),
    [
        ("postgresql://kai@localhost:1/postgres", "--storage: .*connection"),
        ("mysql://kai@localhost/study", "--storage: the driver of this database is not installed"),
        ("no URL at all", "--storage: "),
    ],
)
def test_a_storage_that_cannot_be_used_is_named(storage: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        search(Space.model_validate(SPACE), Settings(), [], trials=1, storage=storage, name="x")


def test_a_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ValueError, match=r"kai-cp\[postgresql\]"):
        search(Space.model_validate(SPACE), Settings(), [], trials=1, storage="postgresql://kai@/x", name="x")
