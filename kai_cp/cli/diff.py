"""``kai-cp diff``: compares two answers or two snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kai_cp.cli.ask import FormatOption
from kai_cp.cli.common import BAD_INPUT, WRONG_USAGE, fail, file_or_exit
from kai_cp.cli.options import AllOption
from kai_cp.cli.output import CommandResult, OutputFormat, answer

if TYPE_CHECKING:
    from kai_cp_models.settings import Settings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_HELP = "decisions/1, or a snapshot: .zip, .json, .json.gz."


@app.command()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=_HELP)],
    b: Annotated[str, typer.Argument(metavar="B", help=_HELP)],
    format: FormatOption = OutputFormat.TABLE,
    everything: AllOption = False,
) -> None:
    """Show what differs between two answers, or between two snapshots.

    Two answers are compared by pod group and evicted pod, of any scheduler. Two snapshots are compared
    object by object; where both are zips of cycles, their answers are compared as well.

    Exit status: 0 nothing differs, 1 something differs, 2 an input is bad or wrong usage.

    Examples:
    kai-cp diff kai.json ours.json
    kai-cp diff before.zip after.zip -o json
    """
    from kai_cp.files import within
    from kai_cp.questions import diff as questions
    from kai_cp.report.section import ROWS_SHOWN
    from kai_cp.report.terminal import stdout
    from kai_cp_models.settings import Settings

    names = (Path(a).name, Path(b).name)
    settings, found = Settings(), []
    with within(settings.limits.read_seconds, f"{a}, {b}"):
        for old, new in _documents(a, b, settings):
            decided = "decisions" in old
            found.append(questions.decisions(old, new) if decided else questions.snapshots(old, new))
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
    return rows + [("pod", entry["pod"], entry["a"], entry["b"]) for entry in document["evictions"]]


def _documents(a: str, b: str, settings: Settings) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The pairs of documents to compare: raw snapshots first, then answers."""
    try:
        one, two = _read(a, settings), _read(b, settings)
    except typer.Exit:
        # 1 means here that something differs, as of every diff.
        raise typer.Exit(WRONG_USAGE) from None
    pairs = [(one[key], two[key]) for key in ("snapshot", "decisions") if key in one and key in two]
    if not pairs:
        fail(f"{a} and {b}: one is a snapshot, the other an answer; name two of a kind", WRONG_USAGE)
    return pairs


def _read(argument: str, settings: Settings) -> dict[str, Mapping[str, Any]]:
    import orjson

    from kai_cp import files
    from kai_cp.cli.world import decisions_or_exit
    from kai_cp.decisions import BadDecisions, recorded
    from kai_cp.reader.container import UnreadableSnapshot
    from kai_cp.reading import loaded

    path = Path(file_or_exit(argument, settings))
    if path.suffix == ".json":
        try:
            document = orjson.loads(files.read(path))
        except OSError as error:
            fail(f"{path}: {error.strerror or error}", BAD_INPUT)
        except orjson.JSONDecodeError as error:
            fail(f"{path}: not JSON: {error}", BAD_INPUT)
        if isinstance(document, Mapping) and str(document.get("schema", "")).startswith("decisions/"):
            return {"decisions": decisions_or_exit(path)[0]}
    try:
        found: dict[str, Mapping[str, Any]] = {"snapshot": loaded(path, settings).raw}
    except UnreadableSnapshot as problem:
        fail(str(problem), BAD_INPUT)
    with suppress(BadDecisions):
        found["decisions"] = decisions_or_exit(path, recorded(path))[0]
    return found
