"""The command line as its user meets it: real processes, the sample snapshot, wrong usage, bad inputs."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kai_cp.cli.app import Commands, app
from kai_cp.cli.output import OutputFormat
from kai_cp.cli.streams import guarded
from kai_cp.documents import problems
from kai_cp_models.check import Violation

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo-cluster.json"
NOW = "2026-11-20T12:00:00Z"
AMPLE = ("--budget", "10", "--patience", "1000")
"""Time enough on any machine, so that answers are equal and proved."""
HEAVY = (
    "ortools",
    "numpy",
    "pydantic",
    "kubernetes",
    "networkx",
    "matplotlib",
    "optuna",
    "rich",
    "orjson",
    "yaml",
)


def run(*arguments: str | Path, data: bytes | None = None) -> subprocess.CompletedProcess[str]:
    """The command inside this process."""
    words = [str(argument) for argument in arguments]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        done = CliRunner().invoke(app, words, input=data, prog_name="kai-cp")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def run_apart(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command as its user runs it."""
    return subprocess.run(
        [sys.executable, "-m", "kai_cp", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "200"},
        check=False,
    )


def document(text: str) -> dict[str, Any]:
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def timeless(text: str) -> dict[str, Any]:
    found = document(text)
    found["timings"] = None
    found["stages"] = [{**stage, "seconds": None} for stage in found["stages"]]
    return found


@pytest.fixture(scope="module")
def solved() -> dict[str, Any]:
    done = run_apart("solve", DEMO, "--now", NOW, "--format", "json", *AMPLE)
    assert done.returncode == 0, done.stderr
    return document(done.stdout)


class TestStartUp:
    def test_overview_imports_nothing_heavy(self) -> None:
        code = (
            "import sys, contextlib\n"
            "from kai_cp.cli.app import command\n"
            "with contextlib.suppress(SystemExit): command.main(['--help'])\n"
            f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "HEAVY []" in done.stdout
        assert all(name in done.stdout for name in Commands.table)

    @pytest.mark.parametrize("name", list(Commands.table))
    def test_every_command_answers_help(self, name: str) -> None:
        """At 80 columns, with ``-h``: options are not cut, and the words are plain."""
        done = run(name, "-h")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"kai-cp {name}" in done.stdout
        lines = done.stdout.splitlines()
        assert max(map(len, lines)) <= 80
        assert not [line for line in lines if re.search(r"\w-$", line)], "a name that is broken at a hyphen"
        assert not re.findall(r"<\w+>|[a-z]…|\bNone\b|\[default|list\[|float|integer", done.stdout)
        listed = done.stdout.partition("\nCommands:\n")[2]
        assert "..." not in listed, "a sentence that was cut"
        arguments = done.stdout.partition("\nArguments:\n")[2].partition("\n\n")[0]
        assert not re.findall(r"(?m)^  \[?[a-z]", arguments), "an argument has the name of its usage line"

    def test_of_two_names_of_a_switch_the_default_is_named(self) -> None:
        """``on`` says nothing between ``--stay`` and ``--end``."""
        assert "Default: --end." in run("demo-cluster", "-h").stdout
        assert "Default: --log-json." in run("binder", "-h").stdout
        assert "Default: on." in run("scheduler", "-h").stdout, "beside --x / --no-x"

    def test_a_default_has_its_unit(self) -> None:
        assert "Default: 7776000s." in run("admission", "-h").stdout.replace("\n" + 32 * " ", " ")
        assert "Default: 10." in run("explain", "-h").stdout.replace("\n" + 20 * " ", " ")
        assert "Default: 48." in run("bench", "-h").stdout

    def test_version(self) -> None:
        assert run("--version").stdout.startswith("kai-cp 0.")


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((), "COMMAND"),
            (("slove",), "Did you mean 'solve'?"),
            (("solve",), "Missing argument"),
            (("solve", DEMO, "--now", "yesterday"), "--now: 'yesterday' is not an RFC 3339 time"),
            (("solve", DEMO, "--budget", "-1"), "--budget: expected a number greater than 0, not -1"),
            (("solve", DEMO, "--budget", "inf"), "--budget: inf is not an amount"),
            (
                ("solve", DEMO, "--workers", "0"),
                "--workers: expected a number greater than or equal to 1",
            ),
            (("solve", DEMO, "--budget", "x"), "Invalid value for '--budget': expected a number\n"),
            (("what-if", DEMO, "--most", "0"), "'--most': expected a number greater than or equal to 1"),
            (("defrag", DEMO, "--for", "nodes=4"), "such as gang=8x8@rack; ask --free nodes --most 4"),
            (("schema", "decision"), "there is no document decision; the nearest: decisions"),
            (
                ("config", "explain", "solver.pat"),
                "there is no setting solver.pat; the nearest: solver.patience",
            ),
            (("solve", DEMO, "--format", "xml"), "xml"),
            (("solve", DEMO, "--config", "none.yaml"), "none.yaml: cannot be read"),
            (("solve", DEMO, "--usage", "none.yaml"), "--usage: none.yaml: cannot be read"),
            (("solve", DEMO, "--output-dir", DEMO.parent), "is an input and would be overwritten"),
            (("inspect", DEMO, "--resource", "tape"), "tape"),
        ],
    )
    def test_wrong_usage_is_status_2_and_one_clear_line(
        self, arguments: Sequence[str | Path], words: str
    ) -> None:
        done = run(*arguments)
        assert done.returncode == 2
        assert words in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


class TestSolve:
    def test_sample_shows_every_kind_of_decision(self, solved: dict[str, Any]) -> None:
        kinds = {decision["kind"] for decision in solved["decisions"]}
        assert kinds == {"Bind", "Nominate", "Evict"}
        assert {"allocate", "reclaim", "preempt"} <= {d["action"] for d in solved["decisions"]}
        assert {entry["reason"] for entry in solved["unscheduled"]} >= {"OverLimit"}
        assert [entry["object"] for entry in solved["setAside"]] == ["Pod default/broken-0"]
        assert {stage["status"] for stage in solved["stages"]} == {"OPTIMAL"}

    def test_same_input_same_answer_however_it_is_packed(self, tmp_path: Path) -> None:
        text = DEMO.read_bytes()
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "plain.json").write_bytes(text)
        (tmp_path / "in" / "packed.json.gz").write_bytes(gzip.compress(text))
        with zipfile.ZipFile(tmp_path / "in" / "served.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("snapshot.json", text)
        (tmp_path / "in" / "plain.options.json").write_text("{}")
        done = run("solve", tmp_path / "in", "--now", NOW, "--output-dir", tmp_path / "out", *AMPLE)
        assert done.returncode == 0, done.stderr
        written = sorted(path.name for path in (tmp_path / "out").iterdir())
        assert written == ["packed.json", "plain.json", "served.json"]
        answers = [timeless((tmp_path / "out" / name).read_text()) for name in written]
        assert answers[0] == answers[1] == answers[2]
        assert "3 answers written" in done.stdout

    def test_without_now_it_is_read_as_of_when_it_was_taken(self, tmp_path: Path) -> None:
        """The newest event in the sample; a deletion is planned for later, and a user wrote a later time."""
        raw = document(DEMO.read_text())
        pod = raw["rawObjects"]["pods"][0]
        pod["metadata"]["creationTimestamp"] = "2026-11-20T12:34:56Z"
        pod["metadata"]["deletionTimestamp"] = "2026-11-20T13:00:00Z"
        pod["metadata"]["annotations"] = {"delete-after": "2026-11-20T14:00:00Z"}
        (tmp_path / "later.json").write_text(json.dumps(raw))
        assert document(run("solve", tmp_path / "later.json", "-o", "json").stdout)["now"] == (
            "2026-11-20T12:34:56Z"
        )

    def test_a_recorded_cycle_is_read_as_of_its_decision(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "cycle.zip", "w") as archive:
            archive.writestr("snapshot.json", DEMO.read_text())
            archive.writestr("decisions.json", '{"now": "2026-11-20T12:00:07Z"}')
        assert document(run("solve", tmp_path / "cycle.zip", "-o", "json").stdout)["now"] == (
            "2026-11-20T12:00:07Z"
        )

    def test_a_search_that_was_cut_is_no_nothing_to_change(self) -> None:
        """The budget ends before anything can be decided, on any machine."""
        done = run("solve", DEMO, "--now", NOW, "--budget", "0.000001")
        assert "nothing to change" not in done.stdout
        assert "no plan found in" in done.stdout.splitlines()[0]

    def test_ctrl_c_in_the_first_second_is_one_line_and_no_traceback(self) -> None:
        command = [sys.executable, "-X", "importtime", "-m", "kai_cp", "solve", DEMO]
        process = subprocess.Popen(command, stdout=-1, stderr=-1, start_new_session=True)
        assert process.stderr is not None
        assert any(b" kai_cp.cli" in line for line in process.stderr), (
            "what comes before is Python's own start"
        )
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert b"Traceback" not in errors
        assert (process.returncode, b"kai-cp: interrupted\n" in errors) == (130, True)

    @pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit(130)])
    def test_a_command_that_ctrl_c_ends_says_so(
        self, capsys: pytest.CaptureFixture[str], raised: BaseException
    ) -> None:
        def interrupted() -> None:
            raise raised

        assert guarded(interrupted) == 130
        assert capsys.readouterr().err == "kai-cp: interrupted\n"

    def test_a_full_disk_is_a_sentence(self) -> None:
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "kai_cp", "inspect", DEMO], stdout=full, stderr=-1, check=False
            )
        assert done.returncode == 3
        assert done.stderr == b"kai-cp: output cannot be written: No space left on device\n"

    def test_a_refusal_of_the_system_is_not_said_to_be_the_output(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def refused() -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        assert guarded(refused) == 3
        assert capsys.readouterr().err == "kai-cp: Too many open files\n"

    @pytest.mark.parametrize("command", [("solve",), ("inspect",), ("topology",), ("inspect", "-o", "json")])
    def test_a_closed_output_is_a_sentence(self, command: tuple[str, ...]) -> None:
        words = [sys.executable, "-m", "kai_cp", *command, str(DEMO)]
        done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *words], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (
            3,
            b"kai-cp: output cannot be written: Bad file descriptor\n",
        )

    def test_complaints_of_a_closed_error_stream_are_no_output(self) -> None:
        words = [sys.executable, "-m", "kai_cp", "inspect", "none.json"]
        done = subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", *words], capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (1, b"")

    @pytest.mark.parametrize("command", ["solve", "queues", "inspect"])
    def test_a_reader_that_has_seen_enough_is_no_error(self, command: str) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "kai_cp", command, str(DEMO)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait(timeout=60) == 0

    def test_a_terminal_without_unicode_gets_plain_letters(self) -> None:
        plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
        done = subprocess.run(
            [sys.executable, "-m", "kai_cp", "inspect", DEMO], capture_output=True, env=plain, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"unlimited" in done.stdout

    def test_a_pipe_is_read_like_a_file(self) -> None:
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m kai_cp inspect <(cat {DEMO})"],
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")

    def test_standard_input(self, solved: dict[str, Any]) -> None:
        done = run("solve", "-", "--now", NOW, "--format", "json", *AMPLE, data=DEMO.read_bytes())
        assert timeless(done.stdout)["decisions"] == solved["decisions"]

    @pytest.mark.parametrize(
        ("redirection", "words"),
        [
            ("< /dev/null", "standard input: it is empty"),
            ("< /dev/zero", "standard input: larger than 1000 bytes"),
            ("<&-", "standard input: it is closed"),
        ],
    )
    def test_bad_standard_input_is_one_sentence(self, tmp_path: Path, redirection: str, words: str) -> None:
        (tmp_path / "small.yaml").write_text("max_snapshot_bytes: 1000\n")
        line = f"{sys.executable} -m kai_cp solve - --config {tmp_path}/small.yaml {redirection}"
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (1, f"kai-cp: {words}\n")

    def test_table_answers_in_its_first_line_and_names_everyone(self, solved: dict[str, Any]) -> None:
        done = run("solve", DEMO, "--now", NOW, "--all", *AMPLE)
        assert done.returncode == 0
        first = done.stdout.splitlines()[0]
        assert first.startswith("demo-cluster (8 nodes, 56 GPUs): ")
        assert "stay pending" in first
        assert "Proved optimal" in first
        for decision in solved["decisions"]:
            assert f"{decision['namespace']}/{decision['podGroup']}" in done.stdout
        for entry in solved["unscheduled"]:
            assert entry["podGroup"] in done.stdout
            assert entry["reason"] in done.stdout

    def test_every_form_holds_every_decision(self, solved: dict[str, Any]) -> None:
        """Wide, CSV, names and YAML contain the same as the document."""
        solve = ("solve", DEMO, "--now", NOW, *AMPLE, "-o")
        wide = run(*solve, "wide").stdout
        assert all(decision["node"] in wide for decision in solved["decisions"])
        rows = list(csv.DictReader(io.StringIO(run(*solve, "csv").stdout)))
        told = [(row["kind"], row["pod"], row["node"]) for row in rows if row["kind"] != "Pending"]
        assert told == [(d["kind"], d["pod"], d["node"]) for d in solved["decisions"]]
        assert [r["podGroup"] for r in rows if r["kind"] == "Pending"] == ["giant", "legacy", "replay"]
        names = run(*solve, "name").stdout.split()
        assert names[0] == f"pod/default/{solved['decisions'][0]['pod']}"
        assert names[-1] == "podgroup/default/replay"
        assert yaml.safe_load(run(*solve, "yaml").stdout)["decisions"] == solved["decisions"]

    @pytest.mark.parametrize(
        ("option", "pending"),
        [
            (("--queue", "research"), ["default/giant", "default/legacy"]),
            (("--queue", "serving"), ["default/replay"]),
            (("--group", "giant"), ["default/giant"]),
            (("--group", "default/giant,replay"), ["default/giant", "default/replay"]),
            (("--group", "llm-base"), []),
        ],
    )
    def test_a_part_is_shown_on_request(self, option: tuple[str, ...], pending: list[str]) -> None:
        """A queue includes those below it. The document says that it is a part, and check refuses it."""
        done = run("solve", DEMO, "--now", NOW, *AMPLE, "-o", "json", *option)
        answer = document(done.stdout)
        assert [entry["podGroup"] for entry in answer["unscheduled"]] == pending
        queues = {d["queue"] for d in answer["decisions"] if "for" not in d}
        assert queues <= {*option, "language", "vision", None}
        placed = {f"{d['namespace']}/{d['podGroup']}" for d in answer["decisions"] if d["kind"] != "Evict"}
        assert {entry["podGroup"] for entry in answer["localities"]} <= placed
        refused = run("check", DEMO, "-", data=done.stdout.encode())
        assert refused.returncode == 1
        assert "a part of an answer" in refused.stderr

    @pytest.mark.parametrize("command", ["solve", "inspect", "pending"])
    def test_names_of_which_there_is_nothing_are_said(self, command: str) -> None:
        named = {"--queue": "resaerch", "--namespace": "defualt", "--group": "default/gaint"}
        options = [word for pair in named.items() for word in pair]
        done = run(command, DEMO, "--now", NOW, *options)
        assert done.stderr.splitlines() == [
            "kai-cp: --namespace defualt: demo-cluster has nothing of that name; the nearest: default",
            "kai-cp: --group default/gaint: demo-cluster has nothing of that name; "
            "the nearest: default/giant, default/legacy, default/ablation",
            "kai-cp: --queue: demo-cluster has no queue resaerch; the nearest: research",
        ]
        assert run(command, DEMO, "--now", NOW, "--namespace", "default", "--group", "giant").stderr == ""

    @pytest.mark.parametrize("command", ["solve", "inspect", "pending"])
    @pytest.mark.parametrize(("option", "status"), [("--group", 2), ("--namespace", 0), ("--queue", 2)])
    def test_a_queue_or_pod_group_that_is_not_there_is_wrong_usage(
        self, command: str, option: str, status: int
    ) -> None:
        """A namespace may exist and be empty, and a pod group that simply runs is in no answer."""
        assert run(command, DEMO, "--now", NOW, option, "gaint").returncode == status
        quiet = run(command, DEMO, "--now", NOW, "--group", "llm-base")
        assert (quiet.returncode, "that waits or changes" in quiet.stderr) == (0, True)

    @pytest.mark.parametrize("option", [("--group", "detector"), ("--queue", "vision")])
    def test_evictions_belong_also_to_those_that_they_are_for(self, option: tuple[str, str]) -> None:
        told = document(run("evictions", DEMO, "--now", NOW, *option, "-o", "json").stdout)["evictions"]
        pods = ["default/llm-sweep-1-0", "default/llm-sweep-2-0", "default/llm-tune-0"]
        assert sorted(entry["pod"] for entry in told) == pods

    def test_several_inputs_are_a_row_each(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            (tmp_path / f"{name}.json").write_bytes(DEMO.read_bytes())
        short = run("solve", tmp_path, *AMPLE).stdout
        assert "Stay pending" not in short
        assert {line.split()[0] for line in short.splitlines() if "proved optimal" in line} == {"one", "two"}
        assert "Stay pending" in run("solve", tmp_path, "--details", *AMPLE).stdout
        assert "Stay pending" not in run("solve", DEMO, "--summary", *AMPLE).stdout

    def test_an_empty_world_is_a_warning(self, tmp_path: Path) -> None:
        (tmp_path / "empty.json").write_text('{"rawObjects": {}}')
        for command, *given in (["solve"], ["inspect"], ["explain", "--all"], ["what-if", "--after", "30m"]):
            done = run(command, tmp_path / "empty.json", *given)
            assert "the snapshot has no nodes and no pods; is it the right one?" in done.stderr
            assert "empty.json" in done.stderr

    def test_usage_of_unknown_queues_or_above_the_whole_is_refused(self, tmp_path: Path) -> None:
        cases = [("nope: {gpu: 0.3}", 1, "nope"), ("vision: {gpu: 1.5}", 2, "vision.gpu: 1.5 is not a share")]
        for text, status, words in cases:
            (tmp_path / "usage.yaml").write_text(text)
            for command in ("solve", "inspect"):
                done = run(command, DEMO, "--usage", tmp_path / "usage.yaml")
                assert (done.returncode, done.stdout) == (status, "")
                assert words in done.stderr

    def test_one_bad_input_does_not_stop_the_others(self, tmp_path: Path) -> None:
        text = DEMO.read_bytes()
        bad = {
            "not-a-zip.zip": b"hello",
            "truncated.json": text[: len(text) // 2],
            "empty.json": b"",
            "other.json": b'{"a": 1}',
            "list.json": b"[]",
            "damaged.json.gz": gzip.compress(text)[:500],
        }
        for name, content in bad.items():
            (tmp_path / name).write_bytes(content)
        inputs = [*sorted(tmp_path.iterdir()), tmp_path / "nowhere.json", DEMO]
        done = run_apart("solve", *inputs, "--now", NOW, "--output-dir", tmp_path / "out", *AMPLE)
        assert done.returncode == 1
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["demo-cluster.json"]
        assert "Traceback" not in done.stderr
        for name in (*bad, "nowhere.json"):
            assert sum(name in line for line in done.stderr.splitlines()) == 1, name

    def test_unknown_fields_are_ignored_and_counted(self, tmp_path: Path, solved: dict[str, Any]) -> None:
        snapshot = document(DEMO.read_text())
        snapshot["version"] = "v9.9"
        for queue in snapshot["rawObjects"]["queues"]:
            queue["spec"]["colour"] = "red"
        (tmp_path / "newer.json").write_text(json.dumps(snapshot))
        done = run("solve", tmp_path / "newer.json", "--now", NOW, "--format", "json", *AMPLE)
        assert done.returncode == 0
        answer = document(done.stdout)
        assert answer["decisions"] == solved["decisions"]
        assert answer["ignoredFields"] == {"rawObjects.queues[].spec.colour": 5, "version": 1}

    def test_snapshot_beyond_the_size_limit_is_refused(self, tmp_path: Path) -> None:
        settings = tmp_path / "small.yaml"
        settings.write_text("max_snapshot_bytes: 1000\n")
        bomb = tmp_path / "bomb.zip"
        with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("snapshot.json", b" " * 10_000_000)
        done = run("solve", bomb, "--config", settings)
        assert done.returncode == 1
        assert "larger than the limit of 1000 bytes" in done.stderr


class TestCheck:
    def test_own_decisions_break_nothing(self, tmp_path: Path, solved: dict[str, Any]) -> None:
        path = tmp_path / "decisions.json"
        path.write_text(json.dumps(solved))
        done = run("check", DEMO, path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "no rule broken" in done.stdout

    def test_decisions_may_come_in_the_zip_of_a_cycle(self, tmp_path: Path, solved: dict[str, Any]) -> None:
        path = tmp_path / "cycle.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("snapshot.json", DEMO.read_text())
            archive.writestr("decisions.json", json.dumps(solved))
        done = run("check", path)
        assert "no rule broken" in done.stdout

    def test_without_any_decisions_it_says_so(self) -> None:
        done = run("check", DEMO)
        assert done.returncode == 1
        assert "name the file with the decisions" in done.stderr

    def test_messages_call_a_pipe_by_its_name(self, solved: dict[str, Any]) -> None:
        cut = json.dumps(solved)[:500].encode()
        for words in (("check", DEMO, "-"), ("diff", DEMO, "-"), ("solve", "-")):
            done = run(*words, data=cut)
            assert "kai-cp: standard input: the JSON ends in the middle" in done.stderr, words
            assert "/tmp" not in done.stderr

    def test_every_broken_rule_is_named(self, tmp_path: Path, solved: dict[str, Any]) -> None:
        wrong = json.loads(json.dumps(solved))
        for decision in wrong["decisions"]:
            if decision["kind"] == "Bind":
                decision["node"] = "gpu-0"
        path = tmp_path / "decisions.json"
        path.write_text(json.dumps(wrong))
        done = run("check", DEMO, path)
        assert done.returncode == 1
        assert "gpu-0" in done.stdout

    def test_decisions_for_another_snapshot_are_noted(self, tmp_path: Path, solved: dict[str, Any]) -> None:
        path = tmp_path / "decisions.json"
        path.write_text(json.dumps({**solved, "snapshotSha256": "f" * 64}))
        assert "the decisions are for another snapshot" in run("check", DEMO, path).stderr

    @pytest.mark.parametrize(
        ("field", "value", "words"),
        [
            ("snapshotSha256", 12, "snapshotSha256 is not a text"),
            ("now", "yesterday", "now is 'yesterday', expected a time"),
            ("now", 5, "now is not a text"),
            ("rawObjects", {}, "this is a snapshot; name the file with the decisions"),
        ],
    )
    def test_a_bad_field_is_told_with_the_file(
        self, tmp_path: Path, solved: dict[str, Any], field: str, value: Any, words: str
    ) -> None:
        path = tmp_path / "decisions.json"
        path.write_text(json.dumps({**solved, field: value}))
        done = run("check", DEMO, path)
        assert done.returncode == 1
        assert done.stderr.startswith(f"kai-cp: {path}: {words}")

    def test_decisions_may_be_packed(self, tmp_path: Path, solved: dict[str, Any]) -> None:
        text = json.dumps(solved).encode()
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr("decisions.json", text)
        (tmp_path / "a.json.gz").write_bytes(gzip.compress(text))
        (tmp_path / "bom.json").write_bytes(b"\xef\xbb\xbf" + text)
        for name in ("a.zip", "a.json.gz", "bom.json"):
            done = run("check", DEMO, tmp_path / name)
            assert (done.returncode, done.stderr) == (0, ""), name

    def test_a_broken_rule_is_told_once_and_in_every_form(
        self, tmp_path: Path, solved: dict[str, Any]
    ) -> None:
        wrong = json.loads(json.dumps(solved))
        wrong["decisions"][0]["node"] = "nowhere"
        path = tmp_path / "decisions.json"
        path.write_text(json.dumps(wrong))
        done = run("check", DEMO, path, "-o", "json")
        assert done.returncode == 1
        found = json.loads(done.stdout)
        assert problems("check/1", found) == []
        lines = [f"- {entry['rule']}: {entry['message']}" for entry in found["violations"]]
        assert "no such node 'nowhere'" in lines[0]
        assert len(set(lines)) == len(lines)
        assert run("check", DEMO, path).stdout.splitlines()[1:] == lines

    @pytest.mark.parametrize("content", ["", "[]", '{"decisions": 3}', '{"decisions": [{"kind": "Bind"}]}'])
    def test_bad_decisions_are_one_clear_line(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "decisions.json"
        path.write_text(content)
        done = run("check", DEMO, path)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert "decisions.json" in done.stderr


class TestInspect:
    def test_nodes_queues_and_the_line(self) -> None:
        done = run("inspect", DEMO, "--now", NOW)
        assert (done.returncode, done.stderr) == (0, "")
        for word in ("gpu-7", "language", "default/detector", "Fair share", "Pod default/broken-0"):
            assert word in done.stdout
        line = [row.split()[1] for row in done.stdout.splitlines() if row.strip()[:2].strip().isdigit()]
        assert line.index("default/chat-api") < line.index("default/replay")

    def test_bad_snapshot_is_one_clear_line(self, tmp_path: Path) -> None:
        (tmp_path / "bad.json").write_text("{")
        done = run("inspect", tmp_path / "bad.json")
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1


class TestTopology:
    def test_text_and_picture(self, tmp_path: Path) -> None:
        done = run("topology", DEMO)
        assert (done.returncode, done.stderr) == (0, "")
        assert "rack rack-a" in done.stdout
        drawn = run("topology", DEMO, "--format", "png", "--output", tmp_path / "fabric.png")
        assert drawn.returncode == 0
        assert (tmp_path / "fabric.png").read_bytes().startswith(b"\x89PNG")

    def test_unwritable_picture_is_wrong_usage(self, tmp_path: Path) -> None:
        done = run("topology", DEMO, "--format", "svg", "--output", tmp_path / "no" / "fabric.svg")
        assert done.returncode == 2
        assert "--output" in done.stderr


def test_sample_snapshot_is_the_one_its_script_makes() -> None:
    code = "import json, make_demo_cluster as m; print(json.dumps(m.demo(), indent=1))"
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=DEMO.parent, capture_output=True, text=True, check=True
    )
    assert made.stdout == DEMO.read_text("utf-8"), "run: make docs"


def test_rule_and_message_of_a_violation_are_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They were read out of a sentence: a rule with a colon in its name lost a part of it."""
    one = Violation("gangs: minimum", "a has 1 of 2 pods: too few")
    monkeypatch.setattr("kai_cp_models.queries.cluster.faults", lambda *_: [one, one])
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps({"schema": "decisions/1", "decisions": []}))
    done = CliRunner().invoke(app, ["check", str(DEMO), str(answer), "-o", "json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["violations"] == [{"rule": one.rule, "message": one.words}]


@pytest.mark.parametrize(
    "arguments",
    [("explain", DEMO, "default/giant", "--budget", "1"), ("what-if", DEMO, "--disable", "reclaim")],
)
def test_explain_and_what_if_have_the_formats_of_the_others(arguments: tuple[str | Path, ...]) -> None:
    found = {form: run(*arguments, "--now", NOW, "-o", form) for form in OutputFormat}
    assert {done.returncode for done in found.values()} == {0}
    document = json.loads(found[OutputFormat.JSON].stdout)
    timings = {"timings": document.pop("timings", None)}
    assert {**yaml.safe_load(found[OutputFormat.YAML].stdout), **timings} == {**document, **timings}
    names = found[OutputFormat.NAME].stdout.split()
    assert all(name.startswith("podgroup/") for name in names)
    assert len(list(csv.reader(io.StringIO(found[OutputFormat.CSV].stdout)))) == len(names) + 1
    assert found[OutputFormat.WIDE].stdout == found[OutputFormat.TABLE].stdout


def test_a_what_if_without_a_change_asks_for_one() -> None:
    done = run("what-if", DEMO)
    assert (done.returncode, done.stdout) == (2, "")
    assert "name a change, such as --drain NODE" in done.stderr


def test_documents_of_topology_and_group_are_yaml_too(tmp_path: Path) -> None:
    as_json, as_yaml = (run("topology", DEMO, "-o", form).stdout for form in ("json", "yaml"))
    assert yaml.safe_load(as_yaml) == json.loads(as_json)
    file = tmp_path / "pods.yaml"
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "n", "uid": "u"}}
    file.write_text(json.dumps(pod | {"spec": {"schedulerName": "kai-scheduler", "containers": []}}))
    as_json, as_yaml = (run("group", file, "-o", form).stdout for form in ("json", "yaml"))
    assert as_json
    assert list(yaml.safe_load_all(as_yaml)) == [json.loads(as_json)]
    run("group", file, tmp_path / "out", "-o", "yaml")
    assert (tmp_path / "out" / "pods.yaml").read_text() == as_yaml


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("schema", "snapshot"), "snapshot-diff"),
        (("config", "explain", "solver.pat"), "solver.patience"),
        (("what-if", "snapshot.zip", "--enable", "recl"), "reclaim"),
        (("solve", "-o", "wi"), "wide"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_the_shell_completes_names_that_the_program_knows(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], offered: str
) -> None:
    monkeypatch.setenv("_KAI_CP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(("kai-cp", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    assert run().stdout.split() == [offered]


GROUPS = {"snapshot": ("reduce",), "config": ("explain", "show")}
PAGES = [tuple(filter(None, (name, below))) for name in Commands.table for below in GROUPS.get(name, ("",))]


@pytest.mark.parametrize("page", PAGES, ids=" ".join)
def test_a_help_page_tells_the_exit_statuses(page: tuple[str, ...]) -> None:
    assert "Exit status: 0 " in run(*page, "-h").stdout
