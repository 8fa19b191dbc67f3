"""Every command, with every kind of foreign file, and with nonsense for every option.

The commands and their options are those of the program, so a new one is tried without a line here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kai_cp.cli.app import Commands, command
from kai_cp.cli.streams import guarded

DEMO = Path(__file__).parents[2] / "examples" / "demo-cluster.json"
CONTENTS = {
    "missing.json": None,
    "empty.json": b"",
    "binary.zip": b"PK\x03\x04" + bytes(range(256)),
    "list.json": b"[1]",
    "text.yaml": b"just a text",
    "latin.yaml": b"caf\xe9: 1\n",
    "deep.json": b"[" * 50_000,
}
DIRECTORY = "directory"
FILES = (*CONTENTS, DIRECTORY)
NOT_RUN = {"demo-cluster"}
"""It would build a control plane."""


def leaves(found: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and its subcommands."""
    below = getattr(found, "commands", {})
    if not below or found.callback is not None:
        yield path, found
    for name, one in below.items():
        yield from leaves(one, (*path, name))


def commands() -> dict[tuple[str, ...], Any]:
    """Every command by its words."""
    group: Any = command
    return {
        path: found
        for name in Commands.table
        if name not in NOT_RUN
        for path, found in leaves(group.load(name), (name,))
    }


COMMANDS = commands()
EVERY = pytest.mark.parametrize("path", COMMANDS, ids="-".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bad files, and a small snapshot in which nothing is to be decided."""
    home = tmp_path_factory.mktemp("bad")
    for name, content in CONTENTS.items():
        if content is not None:
            (home / name).write_bytes(content)
    (home / DIRECTORY).mkdir()
    snapshot = json.loads(DEMO.read_bytes())
    snapshot["rawObjects"]["pods"] = snapshot["rawObjects"]["podGroups"] = []
    (home / "good.json").write_text(json.dumps(snapshot))
    return home


@pytest.fixture
def run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Any:
    """Run a command line in that folder, without any cluster; returns its status and its error text."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)

    def go(*words: str) -> tuple[int, str]:
        status = guarded(lambda: command.main(list(words), prog_name="kai-cp"))
        return status, capfd.readouterr().err

    return go


def said_well(words: tuple[str, ...], status: int, complaint: str) -> None:
    """A status that says which error it was, and a few sentences; never a defect or a traceback."""
    assert status in (0, 1, 2, 3), f"{words}: {status} {complaint}"
    assert "Traceback" not in complaint, words
    if status:
        assert 1 <= len(complaint.strip().splitlines()) <= 8, f"{words}: {complaint}"


def is_option(parameter: Any) -> bool:
    """Whether it is an option followed by a value."""
    return bool(parameter.param_type_name == "option" and not parameter.is_flag)


def takes_file(parameter: Any) -> bool:
    """Whether its value is a file or a directory."""
    said = f"{parameter.metavar or ''} {parameter.name}".upper()
    return any(word in said for word in ("FILE", "SNAPSHOT", "DECISIONS", "INPUT", "DIR", "CONFIG"))


def is_written(parameter: Any) -> bool:
    """Whether that file is written."""
    return any(word in parameter.name for word in ("output", "report", "out"))


def needed(found: Any) -> list[str]:
    """Words for the mandatory arguments."""
    return ["good.json" for one in found.params if one.param_type_name == "argument" and one.required]


@EVERY
def test_files_that_are_none(path: tuple[str, ...], run: Any) -> None:
    found = COMMANDS[path]
    arguments = [one for one in found.params if one.param_type_name == "argument" and not is_written(one)]
    options = [one for one in found.params if is_option(one) and takes_file(one) and not is_written(one)]
    for name in FILES:
        for i in range(len(arguments)):
            words = needed(found)
            words[i : i + 1] = [name]
            line = (*path, *words)
            said_well(line, *run(*line))
        for option in options:
            line = (*path, *needed(found), option.opts[-1], name)
            said_well(line, *run(*line))


@EVERY
def test_answers_that_cannot_be_written(path: tuple[str, ...], run: Any) -> None:
    found = COMMANDS[path]
    for option in filter(is_written, filter(is_option, found.params)):
        line = (*path, *needed(found), option.opts[-1], "good.json/x")
        said_well(line, *run(*line))


@EVERY
def test_nonsense_for_options(path: tuple[str, ...], run: Any) -> None:
    found = COMMANDS[path]
    status, complaint = run(*path, "--no-such-option")
    assert status == 2, complaint
    for option in filter(is_option, found.params):
        if not takes_file(option) and not is_written(option):
            for nonsense in ("abc", "nan"):
                line = (*path, *needed(found), option.opts[-1], nonsense)
                said_well(line, *run(*line))
