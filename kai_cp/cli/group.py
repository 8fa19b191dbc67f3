"""``kai-cp group``: which pod groups a cluster's workloads get, from files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kai_cp.cli.common import BAD_INPUT, WRONG_USAGE, complain, fail

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def group(
    inputs: Annotated[Path, typer.Argument(help="A file of objects (.yaml, .json), or a directory of them.")],
    outputs: Annotated[
        Path | None, typer.Argument(help="Directory for one NAME.json a file; default: to standard output.")
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
            documents = _documents(file)
        except (OSError, ValueError) as problem:
            complain(f"{file}: {problem}")
            status = BAD_INPUT
            continue
        answer = orjson.dumps(group_documents(documents, settings), option=orjson.OPT_INDENT_2)
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


def _documents(file: Path) -> list[dict[str, Any]]:
    """The objects in a file; ValueError says which one is none."""
    import orjson
    import yaml

    from kai_cp import yaml_text

    text = file.read_text("utf-8")
    try:
        loaded = orjson.loads(text) if file.suffix == ".json" else yaml_text.load_all(text)
    except yaml.YAMLError as problem:
        raise ValueError(f"no YAML: {str(problem).splitlines()[0]}") from None
    loaded = loaded.get("items", [loaded]) if isinstance(loaded, dict) else loaded
    found = [document for document in loaded if document is not None] if isinstance(loaded, list) else []
    for i, document in enumerate(found):
        meta = document.get("metadata", {}) if isinstance(document, dict) else None
        if not isinstance(meta, dict) or not isinstance(document.get("kind"), str):
            raise ValueError(f"document {i}: no object with a kind")
    return found
