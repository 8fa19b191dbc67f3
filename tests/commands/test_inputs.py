"""What commands read alike: standard input, the one snapshot of a directory, how a file begins."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.kai_cp.test_cli import DEMO, NOW, run

ASKING = ("pending", "queues", "evictions", "audit", "plan")


@pytest.mark.parametrize("command", ASKING)
def test_standard_input_is_read_as_the_file_is(command: str) -> None:
    line = (command, "--now", NOW, "-o", "csv")
    given, piped = run(*line, DEMO), run(*line, "-", data=DEMO.read_bytes())
    assert (piped.returncode, piped.stderr) == (0, "")
    # "plan" begins each row with the name of its input.
    assert piped.stdout.replace("stdin,", f"{DEMO.stem},") == given.stdout


@pytest.mark.parametrize("command", [*ASKING, "inspect", "view", "check"])
def test_a_directory_is_its_one_snapshot_and_none_or_two_are_told(tmp_path: Path, command: str) -> None:
    answers = tmp_path / "answer.json"
    answers.write_text(run("solve", DEMO, "--now", NOW, "-o", "json").stdout)
    folder = tmp_path / "day"
    folder.mkdir()
    line = [command, folder]
    if command in ("check", "view"):
        line.append(answers)
    if command == "view":
        line += ["--output", tmp_path / "page.html"]
    done = run(*line)
    assert (done.returncode, done.stderr) == (
        1,
        f"kai-cp: {folder}: the directory holds no .json, .json.gz, .zip file\n",
    )
    shutil.copy(DEMO, folder / "a.json")
    assert run(*line).returncode == 0
    shutil.copy(DEMO, folder / "b.json")
    done = run(*line)
    assert (done.returncode, done.stderr) == (2, f"kai-cp: {folder}: holds 2 snapshots; name one of them\n")


def test_a_mark_of_the_byte_order_is_no_part_of_the_json(tmp_path: Path) -> None:
    marked = tmp_path / "marked.json"
    marked.write_bytes(b"\xef\xbb\xbf" + DEMO.read_bytes())
    line = ("inspect", "--now", NOW, "-o", "json")
    assert run(*line, marked).stdout == run(*line, DEMO).stdout


@pytest.mark.parametrize("name", ["x.zip", "x.json.gz", "x.json"])
def test_an_empty_file_is_told_to_be_empty(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    done = run("inspect", tmp_path / name)
    assert (done.returncode, done.stderr) == (1, f"kai-cp: {tmp_path / name}: it is empty\n")


def test_a_small_snapshot_that_could_not_be_written_is_not_looked_for(tmp_path: Path) -> None:
    done = run("snapshot", "reduce", DEMO, tmp_path / "no" / "x.json", "--fact", "waiting default/giant")
    assert done.returncode == 2
    assert done.stderr == f"kai-cp: OUTPUT: {tmp_path / 'no' / 'x.json'}: No such file or directory\n"


def test_the_end_of_the_calendar_is_shown_and_not_passed(tmp_path: Path) -> None:
    """A declared run time is stretched where a pod group outlives it, here by millennia."""
    raw = json.loads(DEMO.read_bytes())
    for group in raw["rawObjects"]["podGroups"]:
        group["metadata"].setdefault("annotations", {})["kai-cp/expected-runtime"] = "1h"
    snapshot, config = tmp_path / "snapshot.json", tmp_path / "settings.yaml"
    snapshot.write_text(json.dumps(raw))
    config.write_text("reservations: {enabled: true, after_seconds: 0, min_gpus: 1}\n")
    late = "9999-12-31T23:59:59Z"
    for line in (
        ("solve", snapshot, "-o", "json"),
        ("reserve", snapshot, "--picture", tmp_path / "plan.svg"),
        ("explain", snapshot, "--all"),
    ):
        done = run(*line, "--now", late, "--config", config)
        assert (done.returncode, done.stderr) == (0, ""), line


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["solve", DEMO, "--config"], 2),
        (["solve", DEMO, "--usage"], 2),
        (["what-if", DEMO, "--add"], 1),
        (["tune", DEMO, "--search"], 2),
        (["group", DEMO, "--workload-kinds"], 2),
        (["admit"], 1),
        (["migrate"], 1),
    ],
)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe", "it is not text in UTF-8"),
        (b"a: 1\nb: [1\nc: 2\n", "not YAML: line 3: expected ',' or ']', but got ':'"),
        (None, "No such file or directory"),
    ],
)
def test_a_bad_file_of_yaml_is_told_in_one_line_with_the_place(
    tmp_path: Path, words: list[str | Path], status: int, content: bytes | None, said: str
) -> None:
    path = tmp_path / "given.yaml"
    if content is not None:
        path.write_bytes(content)
    done = run(*words, path)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("kai-cp: ")
    assert done.stderr.endswith(f": {said}\n")
    assert (done.stderr.count("\n"), str(path) in done.stderr, "Errno" in done.stderr) == (1, True, False)


def test_fair_shares_of_queues_count_the_usage_of_the_past(tmp_path: Path) -> None:
    usage = tmp_path / "usage.yaml"
    usage.write_text("vision: {gpu: 0.9}\n")
    raw = json.loads(DEMO.read_bytes())
    for plugin in (one for tier in raw["config"]["tiers"] for one in tier["plugins"]):
        if plugin["name"] == "proportion":
            plugin["arguments"] = {"kValue": "1"}
    for queue in raw["rawObjects"]["queues"]:
        queue["spec"]["resources"]["gpu"]["quota"] = 1
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text(json.dumps(raw))

    def shares(*words: str | Path) -> dict[str, float]:
        told = json.loads(run("queues", snapshot, *words, "--now", NOW, "-o", "json").stdout)
        return {entry["queue"]: entry["fairShare"] for entry in told["queues"]}

    solved = json.loads(run("solve", snapshot, "--usage", usage, "--now", NOW, "-o", "json").stdout)
    assert shares("--usage", usage) == {name: q["fairShare"]["gpu"] for name, q in solved["queues"].items()}
    assert shares("--usage", usage) != shares()


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "--all"],
        ["what-if", "--until-settled"],
        ["view"],
        ["reserve"],
        ["inspect"],
        *([c] for c in ASKING),
    ],
)
def test_usage_that_is_no_share_is_refused_by_every_command(tmp_path: Path, words: list[str]) -> None:
    usage = tmp_path / "usage.yaml"
    usage.write_text("vision: {gpu: many}\n")
    done = run(words[0], DEMO, *words[1:], "--usage", usage)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == f"kai-cp: --usage: {usage}: vision.gpu: 'many' is not a share of the cluster from 0 to 1\n"
    )


def test_lists_that_are_none_stop_no_command(tmp_path: Path) -> None:
    raw = json.loads(DEMO.read_text())
    raw["rawObjects"] |= {"configMaps": 5, "resourceSlices": "none"}
    raw["rawObjects"]["pods"] += ["no pod", {"spec": {"nodeName": {}}}]
    raw["rawObjects"]["bindRequests"] = [None, {"metadata": 7}]
    odd, small = tmp_path / "odd.json", tmp_path / "small.json"
    odd.write_text(json.dumps(raw))
    same = run("diff", odd, odd)
    assert (same.returncode, same.stderr) == (0, "")
    assert run("diff", odd, DEMO).stderr == ""
    done = run("snapshot", "reduce", odd, small, "--fact", "waiting default/giant NoNodeAccepts")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.dumps(json.loads(small.read_text()))) < len(odd.read_bytes()) / 5


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "inf"])
@pytest.mark.parametrize("words", [("explain", "--all"), ("what-if", "--least", "move")])
def test_a_budget_that_is_no_time_is_refused(words: tuple[str, str], seconds: str) -> None:
    done = run(words[0], DEMO, *words[1:], "--budget", seconds)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"kai-cp: --budget: {seconds} is not a number of seconds above 0\n"
