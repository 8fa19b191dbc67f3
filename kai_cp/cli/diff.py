"""``kai-cp diff``: compares two answers or two snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kai_cp.cli.common import BAD_INPUT, WRONG_USAGE, complain, fail, file_or_exit
from kai_cp.cli.options import AllOption, FormatOption
from kai_cp.cli.output import CommandResult, OutputFormat, answer
from kai_cp.cli.world import PART, decisions_or_exit

if TYPE_CHECKING:
    from kai_cp_models.plan import Plan
    from kai_cp_models.settings import Settings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class FileContent(NamedTuple):
    """What a file holds: a snapshot, an answer with its document, or both."""

    snapshot: Mapping[str, Any] | None
    document: Mapping[str, Any] = {}
    plan: Plan | None = None

    @property
    def tells_what_waits(self) -> bool:
        """Whether the answer names the pod groups that stay pending."""
        return "unscheduled" in self.document


_HELP = "decisions/1, or a snapshot: .zip, .json, .json.gz, a pipe, or - for standard input."


@app.command()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=_HELP)],
    b: Annotated[str, typer.Argument(metavar="B", help=_HELP)],
    format: FormatOption = OutputFormat.TABLE,
    everything: AllOption = False,
) -> None:
    """Show what differs between two answers, or between two snapshots.

    Two answers, of any scheduler, are compared by pod group, evicted pod and node. Two snapshots are compared
    object by object and field by field; where both are zips of cycles, their answers are compared as well.

    Exit status: 0 nothing differs, 1 something differs, 2 an input is bad or wrong usage.

    Examples:
    kai-cp diff kai.json ours.json
    kai-cp diff before.zip after.zip -o json
    """
    from kai_cp.files import STDIN
    from kai_cp.questions import diff as questions
    from kai_cp.reader.container import label_of
    from kai_cp.report.section import ROWS_SHOWN
    from kai_cp.report.terminal import stdout
    from kai_cp_models.settings import Settings

    if a == b == STDIN:
        fail("only one of A and B can come from standard input", WRONG_USAGE)
    names = (Path(label_of(a)).name, Path(label_of(b)).name)
    settings = Settings()
    found: list[dict[str, Any]] = []
    one, two = _contents(a, b, settings)
    if one.snapshot is not None and two.snapshot is not None:
        found.append(questions.snapshots(one.snapshot, two.snapshot))
    if one.plan is not None and two.plan is not None:
        _comparable({a: one, b: two}, told=bool(found))
        found.append(questions.decisions(one.plan, two.plan, (one.tells_what_waits, two.tells_what_waits)))
    if not found:
        fail(f"{a} and {b}: one is a snapshot, the other an answer; name two of a kind", WRONG_USAGE)
    rows = [row for document in found for row in _rows(document)]

    def shown(wide: bool) -> None:
        console = stdout(wide=wide)
        for document in found:
            console.print(questions.headline(document), style="bold", crop=False)
            for section in questions.sections(document, names):
                if section.rows:
                    console.print(section.render(None if everything else ROWS_SHOWN), crop=False)

    answer(
        CommandResult(
            found,
            names=lambda: (f"{kind}/{name}" for kind, name, *_ in rows),
            table=lambda: (("kind", "name", "a", "b"), rows),
            show=shown,
        ),
        format,
    )
    if rows:
        raise typer.Exit(1)


def _rows(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    if document["schema"] == "snapshot-diff/1":
        return [
            (entry["kind"], entry["object"], entry["change"], " ".join(entry.get("fields", ())))
            for entry in document["objects"]
        ]
    rows = [("podgroup", entry["podGroup"], entry["a"], entry["b"]) for entry in document["podGroups"]]
    pods = (*document["evictions"], *document["places"])
    return rows + [("pod", entry["pod"], entry["a"], entry["b"]) for entry in pods]


def _contents(a: str, b: str, settings: Settings) -> tuple[FileContent, FileContent]:
    """What the two files hold; a bad one ends the program."""
    from kai_cp.files import TooLate, within

    try:
        with within(settings.limits.read_seconds, f"{a}, {b}"):
            return _read(a, settings), _read(b, settings)
    except typer.Exit:
        # As in every diff, 1 means that something differs.
        raise typer.Exit(WRONG_USAGE) from None
    except TooLate as problem:
        fail(str(problem), WRONG_USAGE)


def _comparable(answers: Mapping[str, FileContent], *, told: bool) -> None:
    """End the program if one answer is only a part. Say so if the answers are for two snapshots that are not
    compared themselves (``told``)."""
    parts = {name: answer.document.get("selected") for name, answer in answers.items()}
    if len(set(map(repr, parts.values()))) > 1:
        part = next(name for name, selected in parts.items() if selected)
        fail(f"{part}: {PART}; compare all of it, or the same part of both", WRONG_USAGE)
    hashes = {answer.document.get("snapshotSha256") for answer in answers.values()} - {None, ""}
    if len(hashes) > 1 and not told:
        complain(f"{' and '.join(answers)}: they were made for two different snapshots")


def _read(argument: str, settings: Settings) -> FileContent:
    from kai_cp.decisions import BadDecisions, recorded
    from kai_cp.reader.container import OtherContent, UnreadableSnapshot
    from kai_cp.reading import loaded

    path = Path(file_or_exit(argument, settings))
    snapshot = None
    try:
        snapshot = loaded(path, settings).raw
        recorded(path)
    except OtherContent:
        pass
    except UnreadableSnapshot as problem:
        fail(str(problem), BAD_INPUT)
    except BadDecisions:
        return FileContent(snapshot)
    return FileContent(snapshot, *decisions_or_exit(path))
