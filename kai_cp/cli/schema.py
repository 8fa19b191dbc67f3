"""``kai-cp schema``: the JSON Schema of every document that a command writes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kai_cp.cli.common import WRONG_USAGE, fail
from kai_cp.cli.options import SHOWN
from kai_cp.cli.output import write

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class SchemaFormat(StrEnum):
    """The format of the schemas."""

    JSON = "json"
    MARKDOWN = "markdown"


def _names() -> list[str]:
    """For completion of the shell."""
    from kai_cp.documents import NAMES

    return [known.partition("/")[0] for known in NAMES]


@app.command()
def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Such as decisions, or decisions/1. Default: list the names.",
            autocompletion=_names,
        ),
    ] = None,
    format: Annotated[
        SchemaFormat,
        typer.Option(
            "--format", "-o", help="JSON Schema, or the page docs/reference-json.md.", rich_help_panel=SHOWN
        ),
    ] = SchemaFormat.JSON,
) -> None:
    """Print the JSON Schema of a document, or the names of all.

    Exit status: 0 printed, 2 wrong usage.

    Examples:
    kai-cp schema
    kai-cp schema decisions
    """
    from kai_cp.cli.output import as_json
    from kai_cp.documents import NAMES
    from kai_cp.documents import schema as schema_of
    from kai_cp.explain.draft import nearest

    if format is SchemaFormat.MARKDOWN:
        from kai_cp.report.reference import documents_page

        write(documents_page())
    elif name is None:
        write("".join(f"{known}\n" for known in NAMES))
    else:
        found = next((known for known in NAMES if name in (known, known.partition("/")[0])), None)
        if found is None:
            close = nearest(name, _names())
            fail(f"there is no document {name}{close}; `kai-cp schema` lists all", WRONG_USAGE)
        write(as_json([schema_of(found)]))
