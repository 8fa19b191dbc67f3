"""``kai-cp group``: which pod groups a cluster's workloads get, from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kai_cp.cli.common import WRONG_USAGE, complain, fail
from kai_cp.cli.manifests import read_manifests, write_answers
from kai_cp.cli.options import INPUT, DocumentFormatOption
from kai_cp.cli.output import DocumentFormat

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def group(
    inputs: Annotated[
        Path,
        typer.Argument(
            metavar="INPUTS",
            help="A file of objects (.yaml, .json), a directory of them, or - for standard input.",
        ),
    ],
    outputs: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OUTPUTS]",
            help="Directory for one NAME.json (.yaml) for each file. Default: standard output.",
        ),
    ] = None,
    format: DocumentFormatOption = DocumentFormat.JSON,
    workload_kinds: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Kinds of your own (docs/workloads.md); may be given several times.",
            rich_help_panel=INPUT,
        ),
    ] = None,
) -> None:
    """Show the pod groups that workloads and pods in a file would get, without a cluster.

    The objects are read as a cluster's: owners and pods need uids, and a pod names its owner in
    ownerReferences. An object that cannot be used is named on standard error and left out.

    Exit status: 0 all read, 1 a file or an object is bad, 2 wrong usage.

    Examples:
    kai-cp group workload.yaml
    kubectl get jobs,pods -n team-a -o json | kai-cp group -
    """
    from kai_cp.workloads.kinds import BadKinds, load_kinds
    from kai_cp.workloads.settings import GroupingSettings

    try:
        settings = GroupingSettings(kinds=load_kinds(workload_kinds or []))
    except BadKinds as problem:
        fail(str(problem), WRONG_USAGE)

    def answer(file: Path) -> tuple[list[Any], list[str]]:
        from kai_cp.reader.fields import Malformed
        from kai_cp.workloads.batch import group_documents

        objects, problems = read_manifests(file)
        named, nameless = _named(objects)
        try:
            document = group_documents(named, settings)
        except Malformed as problem:
            raise ValueError(f"GroupingSettings: {problem.below('spec')}") from None
        if not document["pods"] and not problems + nameless:
            complain(f"{file}: holds no pods; pod groups are made for pods: add them beside their owners")
        failed = [f"pod {one['pod']}: {one['message']}" for one in document["errors"]]
        return [document], problems + nameless + failed

    write_answers(inputs, outputs, format, answer)


def _named(objects: Sequence[tuple[str, dict[str, Any]]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The objects that have a kind and a name, and a sentence about each other one."""
    from kai_cp.reader.fields import Malformed, name_at, object_at, text_at

    found: list[dict[str, Any]] = []
    problems: list[str] = []
    for where, one in objects:
        try:
            if name_at(one, "kind") not in ("Stage", "GroupingSettings"):
                meta = object_at(one, "metadata")
                name_at(meta, "name", "metadata")
                text_at(meta, "namespace", "metadata")
            found.append(one)
        except Malformed as problem:
            problems.append(f"{where}: {problem}")
    return found, problems
