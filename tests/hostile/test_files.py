"""Files of unknown origin: no command prints their text unescaped, waits for them, or reads them
without a limit.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from kai_cp import files, yaml_text
from kai_cp.bench import peers, records
from kai_cp.cli.streams import guarded
from kai_cp.reader import UnreadableSnapshot, load
from tests.kai_cp.test_cli import DEMO, NOW, run

Raw = dict[str, Any]
MARKUP = "<script>alert(1)</script>"
ESCAPE = "\x1b]0;owned\x07\x1b[2J\r\nforged: line"


def renamed(value: Any, names: set[str], change: Callable[[str], str]) -> Any:
    """The value with every text that names an object changed alike, so that references still hold."""
    if isinstance(value, dict):
        return {key: renamed(inner, names, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [renamed(inner, names, change) for inner in value]
    return change(value) if isinstance(value, str) and value in names else value


def noted(value: Any, text: str) -> Any:
    """The value with a text in place of every message and reason, and also in annotations and labels."""
    if isinstance(value, list):
        return [noted(inner, text) for inner in value]
    if not isinstance(value, dict):
        return value
    found = {key: noted(inner, text) for key, inner in value.items()}
    for key in found.keys() & {"message", "reason", "displayName"}:
        found[key] = text
    for key in found.keys() & {"annotations", "labels"}:
        found[key] = {**(found[key] or {}), text: text, "kai-cp/max-runtime": text, "gpu-memory": text}
    return found


def written(path: Path, change: Callable[[Raw], Raw]) -> Path:
    """The sample snapshot, changed."""
    raw = orjson.loads(DEMO.read_bytes())
    path.write_bytes(orjson.dumps({**raw, "rawObjects": change(raw["rawObjects"])}))
    return path


def forged(objects: Raw) -> Raw:
    """With texts that move a terminal wherever an object may hold any text."""
    return {
        key: [noted(item, ESCAPE) for item in items] if key in ("pods", "podGroups", "queues") else items
        for key, items in objects.items()
    }


COMMANDS = ("solve", "inspect", "topology", "pending", "queues", "evictions", "audit", "reserve", "defrag")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_table_moves_the_terminal(tmp_path: Path, command: str) -> None:
    snapshot = written(tmp_path / "forged.json", forged)
    plain(run(command, snapshot, "--now", NOW))


def plain(done: subprocess.CompletedProcess[str]) -> None:
    """The output of a command is only text, and no line that a file forged."""
    assert done.returncode in (0, 1), done.stderr
    shown = done.stdout + done.stderr
    assert shown
    assert all(line.isprintable() for line in shown.split("\n"))
    assert "\nforged" not in shown


def misnamed(objects: Raw) -> Raw:
    """With a name that moves a terminal wherever an object is named."""
    return dict(renamed(objects, names_of(objects), lambda name: name + ESCAPE))


def names_of(objects: Raw) -> set[str]:
    return {item["metadata"]["name"] for items in objects.values() for item in items or ()}


@pytest.mark.parametrize("change", [forged, misnamed], ids=lambda change: str(change.__name__))
def test_no_explanation_or_comparison_moves_it(tmp_path: Path, change: Callable[[Raw], Raw]) -> None:
    snapshot = written(tmp_path / "hostile.json", change)
    plain(run("explain", snapshot, "--all", "--no-fixes", "--now", NOW))
    plain(run("diff", DEMO, snapshot))
    plain(run("diff", snapshot, DEMO, "-o", "json"))


def test_no_answer_moves_it(tmp_path: Path) -> None:
    """Answers are compared and checked, and foreign ones may contain any name."""
    done = run("solve", DEMO, "--now", NOW, "-o", "json")
    answer = orjson.loads(done.stdout)
    ours, theirs = tmp_path / "ours.json", tmp_path / "theirs.json"
    ours.write_bytes(orjson.dumps(answer))
    names = {entry[key] for entry in answer["decisions"] for key in ("pod", "node") if entry.get(key)}
    theirs.write_bytes(orjson.dumps(noted(renamed(answer, names, lambda name: name + ESCAPE), ESCAPE)))
    plain(run("diff", ours, theirs))
    plain(run("check", DEMO, theirs))


def test_the_page_runs_nothing_that_a_name_says(tmp_path: Path) -> None:
    def marked(objects: Raw) -> Raw:
        return dict(renamed(objects, names_of(objects), lambda name: name + MARKUP))

    snapshot = written(tmp_path / "marked.json", marked)
    page = tmp_path / "page.html"
    done = run("view", snapshot, "--now", NOW, "--output", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text("utf-8")
    assert "alert(1)" in text
    assert MARKUP not in text


def ended(*words: str | Path) -> tuple[int, str]:
    """Exit status and standard error of a command that ends with the sentence for the error."""
    with contextlib.redirect_stderr(io.StringIO()) as said:
        status = guarded(lambda: sys.exit(run(*words).returncode))
    return status, said.getvalue()


# --- size, depth and time ----------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--config", "--usage"])
@pytest.mark.parametrize("text", ["[" * 5000, "a: " * 3000, "a: &a [*a]\nb: *a", "x" * 5_000_000])
def test_a_deep_or_long_file_is_one_sentence(tmp_path: Path, option: str, text: str) -> None:
    file = tmp_path / "deep.yaml"
    file.write_text(text)
    done = run("inspect", DEMO, option, file)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert str(file) in done.stderr


WORST_YAML: dict[str, str] = {
    "values": "[" + "a," * 1_000_000 + "a]",
    "a number by sixties": "1" + ":59" * 1_000_000,
    "aliases of aliases": "a: &a [x, x]\n"
    + "".join(f"a{i}: &a{i} [*a{i - 1 or ''}, *a{i - 1 or ''}]\n" for i in range(1, 40)),
    "depth": "- " * 3000,
}


@pytest.mark.parametrize("name", WORST_YAML)
@pytest.mark.parametrize("read", [yaml_text.load, yaml_text.load_all])
def test_long_work_is_refused_by_count(name: str, read: Callable[[str], Any]) -> None:
    """On every thread, without a clock: values, depth and digits are counted while they are read."""
    found: list[str] = []

    def body() -> None:
        try:
            read(WORST_YAML[name].replace("*a0", "*a"))
        except yaml.YAMLError as problem:
            found.append(str(problem))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert len(found) == 1
    assert "more than" in found[0] or "nested too deep" in found[0]


def raised_on_a_thread(kind: type[Exception], work: Callable[[], object]) -> list[str]:
    """The error of that kind that the work raises on another thread than the main one."""
    found: list[str] = []

    def body() -> None:
        try:
            work()
        except kind as problem:
            found.append(str(problem))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return found


def test_a_silent_pipe_is_given_up_on_every_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SILENT_SECONDS", 0.05)
    pipe = tmp_path / "settings.yaml"
    os.mkfifo(pipe)
    assert raised_on_a_thread(OSError, lambda: files.read(pipe)) == ["[Errno 110] nothing came for 0.05 s"]


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "settings.yaml"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"x" * 300_000,))
    writer.start()
    assert files.read(pipe) == b"x" * 300_000
    writer.join()


def test_a_device_without_an_end_is_read_to_the_limit() -> None:
    with pytest.raises(files.TooLarge, match="larger than 1000 bytes"):
        files.read("/dev/zero", 1000)


@pytest.mark.parametrize(
    "text", ["[" * 5000, "parameters: &a [*a]", "parameters: {__class__: {low: 0, high: 1}}"]
)
def test_a_hostile_search_space_is_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(text)
    done = run("tune", DEMO, "--search", file, "--out", tmp_path / "out.yaml", "--now", NOW)
    assert done.returncode == 2
    assert str(file) in done.stderr


def test_a_study_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    space, study = tmp_path / "space.yaml", tmp_path / "study.db"
    space.write_text("parameters: {solver.seed: {choices: [0, 1]}}\n")
    study.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    words = (
        "tune",
        DEMO,
        "--search",
        space,
        "--storage",
        f"sqlite:///{study}",
        "--out",
        tmp_path / "out.yaml",
    )
    status, said = ended(*words, "--now", NOW)
    assert status in (1, 2, 3)
    assert "defect" not in said


HOSTILE_TRIALS: dict[str, tuple[Any, float]] = {
    "text": ("x" * 2_000_000, 1.0),
    "others": ({"rules.gpu_kinds": True}, 1.0),
    "range": ({"solver.seed": 10**30}, 1.0),
    "not a number": ({"solver.seed": "\x1b[2J"}, 1.0),
    "endless": ({"solver.seed": 1}, float("inf")),
}


@pytest.mark.parametrize("kind", [*HOSTILE_TRIALS, "deep"])
def test_a_hostile_study_is_one_sentence(tmp_path: Path, kind: str) -> None:
    """A study of unknown origin sets nothing that the search space does not name."""
    optuna = pytest.importorskip("optuna")
    from kai_cp.tune.search import search
    from kai_cp.tune.space import Range, Space
    from kai_cp_models.settings import Settings

    file = tmp_path / "study.db"
    overrides, value = HOSTILE_TRIALS.get(kind, ({"solver.seed": 1}, 1.0))
    study = optuna.create_study(storage=f"sqlite:///{file}", study_name="s", direction="maximize")
    study.add_trial(optuna.trial.create_trial(value=value, user_attrs={"overrides": overrides}))
    if kind == "deep":
        with contextlib.closing(sqlite3.connect(file)) as base, base:
            base.execute("UPDATE trial_user_attributes SET value_json = ?", ("[" * 200_000,))
    space = Space(parameters={"solver.seed": Range(low=0, high=9)}, objectives=("admitted",))
    with pytest.raises(ValueError, match="--storage: study s cannot be read: ") as said:
        search(space, Settings(), [], trials=1, storage=f"sqlite:///{file}", name="s")
    assert str(said.value).isprintable()
    assert len(str(said.value)) < 300


def test_work_that_takes_too_long_ends_even_if_it_catches_everything() -> None:
    def busy() -> None:
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    late = pytest.raises(files.TooLate, match=r"work: not done within 0.05 s \(limits.read_seconds\)")
    with late, files.within(0.05, "work"):
        busy()
    with files.within(60, "work"):
        pass


def test_deadlines_nest_and_the_shorter_holds() -> None:
    def inner(seconds: float, work_seconds: float) -> None:
        with files.within(seconds, "inner"):
            time.sleep(work_seconds)

    def outer(seconds: float, *inside: tuple[float, float]) -> None:
        with files.within(seconds, "outer"):
            for one in inside:
                inner(*one)
            time.sleep(60)

    limit = signal.getitimer(signal.ITIMER_REAL)[0]  # Of the test, where tests have one.
    with pytest.raises(files.TooLate, match="outer"):
        outer(0.05, (60, 60))
    with pytest.raises(files.TooLate, match="inner"):
        outer(60, (0.05, 60))
    with files.within(600, "outer"):
        inner(300, 0)
        assert 300 < signal.getitimer(signal.ITIMER_REAL)[0] <= 600
    left = signal.getitimer(signal.ITIMER_REAL)[0]
    assert left > 600 if limit else left == 0


def test_a_deadline_that_could_not_hold_is_refused() -> None:
    def work() -> None:
        with files.within(60, "work"):
            pass

    assert raised_on_a_thread(RuntimeError, work) == ["a deadline works only on the main thread"]


def test_a_snapshot_on_silent_input_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SILENT_SECONDS", 0.05)
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "wb", buffering=0) as writer:
        monkeypatch.setattr("sys.stdin", stdin)
        writer.write(b"PK")
        with pytest.raises(UnreadableSnapshot, match=r"^standard input: nothing came for 0\.05 s$"):
            load(files.STDIN)


def test_closed_input_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UnreadableSnapshot, match=r"^standard input: it is closed$"):
        load(files.STDIN)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (gzip.compress(b"0" * 5_000_000), "larger than 1000000 bytes"),
        (gzip.compress(b"{}")[:-5], "damaged or cut short"),
        (b"{}", "damaged or cut short"),
        (gzip.compress(b'{"case": "a"}'), "not answers"),
        (gzip.compress(b'{"case": "a", "decisions": [5]}'), "not answers"),
        (gzip.compress(b"[" * 100_000), "not answers"),
    ],
)
def test_hostile_answers_of_others_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, words: str
) -> None:
    monkeypatch.setattr(files.read_gzip, "__defaults__", (1_000_000,))
    (tmp_path / "kai_decisions.jsonl.gz").write_bytes(data)
    with pytest.raises(peers.UnreadableAnswers, match=words) as said:
        peers.recorded(tmp_path)
    assert str(tmp_path) in str(said.value)


@pytest.mark.parametrize("text", ["[]", '{"decisions": 5}'])
def test_other_documents_are_no_answers(tmp_path: Path, text: str) -> None:
    (tmp_path / "case.json").write_text(text)
    assert peers.directory(tmp_path).deeds == {}


@pytest.mark.parametrize("text", ["{", '{"decisions": [5]}', '{"decisions": [], "timings": 5}'])
def test_hostile_documents_of_others_are_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "case.json").write_text(text)
    with pytest.raises(peers.UnreadableAnswers, match=r"case\.json: these are not answers"):
        peers.directory(tmp_path)


def test_results_without_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    with pytest.raises(files.TooLarge, match="larger than 1000 bytes"):
        list(records.read(Path("/dev/zero")))


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "PIPE", "--config", "SETTINGS"),
        ("topology", "PIPE", "--config", "SETTINGS"),
        ("check", DEMO, "PIPE", "--config", "SETTINGS"),
        ("audit", DEMO, "PIPE", "--config", "SETTINGS"),
        ("tune", "PIPE", "--config", "SETTINGS", "--search", "SPACE"),
    ],
    ids=lambda words: str(words[0]),
)
def test_a_command_that_reads_for_too_long_says_so(tmp_path: Path, words: tuple[str | Path, ...]) -> None:
    """A pipe into which nothing is written keeps the reader waiting."""
    given = {
        "PIPE": tmp_path / "pipe.json",
        "SETTINGS": tmp_path / "settings.yaml",
        "SPACE": tmp_path / "space.yaml",
    }
    os.mkfifo(given["PIPE"])
    given["SETTINGS"].write_text("limits: {read_seconds: 0.2}\n")
    given["SPACE"].write_text("parameters: {solver.seed: {choices: [0, 1]}}\n")
    assert ended(*(given.get(str(word), word) for word in words)) == (
        1,
        f"kai-cp: {given['PIPE']}: not done within 0.2 s (limits.read_seconds)\n",
    )


def test_standard_input_that_stays_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SILENT_SECONDS", 0.05)
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "wb", buffering=0) as writer:
        monkeypatch.setattr("sys.stdin", stdin)
        writer.write(b"{")
        with pytest.raises(OSError, match=r"nothing came for 0\.05 s"):
            files.read(files.STDIN)


def test_a_pipe_that_drips_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIPE_SECONDS", 0.0)
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "wb", buffering=0) as writer:
        monkeypatch.setattr("sys.stdin", stdin)
        writer.write(b"{")
        with pytest.raises(OSError, match="no end within 0 s"):
            files.read(files.STDIN)
