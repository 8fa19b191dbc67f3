"""``kai-cp group``: which pod groups a cluster's workloads get, from files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kai_cp.cli.common import BAD_INPUT, WRONG_USAGE, complain, documents, fail

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def group(
    inputs: Annotated[
        Path,
        typer.Argument(metavar="INPUTS", help="A file of objects (.yaml, .json), or a directory of them."),
    ],
    outputs: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OUTPUTS]", help="Directory for one NAME.json for each file. Default: standard output."
        ),
    ] = None,
    workload_kinds: Annotated[
        list[Path] | None, typer.Option(help="File with kinds of your own; may be given several times.")
    ] = None,
) -> None:
    """Show the pod groups that workloads and pods in a file would get, without a cluster.

    The objects are read as a cluster's: owners and pods need uids. Exit status: 0, or 1 when a file is bad.
    """
    import orjson

    from kai_cp.workloads.batch import group_documents
    from kai_cp.workloads.kinds import BadKinds, load_kinds
    from kai_cp.workloads.settings import GroupingSettings

    try:
        settings = GroupingSettings(kinds=load_kinds(workload_kinds or []))
    except BadKinds as problem:
        fail(str(problem), WRONG_USAGE)
    files = _files(inputs)
    if outputs is not None:
        outputs.mkdir(parents=True, exist_ok=True)
    status = 0
    for file in files:
        try:
            objects = _objects(file)
        except (OSError, ValueError) as problem:
            complain(f"{file}: {problem}")
            status = BAD_INPUT
            continue
        answer = orjson.dumps(group_documents(objects, settings), option=orjson.OPT_INDENT_2)
        if outputs is None:
            typer.echo(answer.decode())
        else:
            (outputs / f"{file.stem}.json").write_bytes(answer)
    if status:
        raise typer.Exit(status)


def _files(inputs: Path) -> list[Path]:
    """The files to read; of two with one stem the JSON one, which is quicker to read."""
    if not inputs.is_dir():
        return [inputs]
    found = {
        file.stem: file for suffix in ("yaml", "yml", "json") for file in sorted(inputs.glob(f"*.{suffix}"))
    }
    if not found:
        fail(f"{inputs}: no .yaml or .json file", BAD_INPUT)
    return [found[stem] for stem in sorted(found)]


def _objects(file: Path) -> list[dict[str, Any]]:
    """The objects in a file, those of lists too; ValueError says which one is none."""
    found: list[Any] = []
    for document in documents(file):
        listed = document.get("items", [document]) if isinstance(document, dict) else document
        found += listed if isinstance(listed, list) else [listed]
    found = [one for one in found if one is not None]
    for i, one in enumerate(found):
        meta = one.get("metadata", {}) if isinstance(one, dict) else None
        if not isinstance(meta, dict) or not isinstance(one.get("kind"), str):
            raise ValueError(f"document {i}: no object with a kind")
    return found
