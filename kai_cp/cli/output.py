"""``-o``: the output formats of a command."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kai_cp.json_types import Document

Table = tuple[Sequence[str], Iterable[Sequence[Any]]]
"""Columns and rows."""


class OutputFormat(StrEnum):
    """What goes to standard output."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"


class DocumentFormat(StrEnum):
    """What goes to standard output or files where every answer is one document."""

    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command in every format; only the chosen one is made.

    ``names`` are the lines of ``-o name``; ``table`` is for ``-o csv``; ``show`` prints the report (*wide* if
    called with True).
    """

    documents: Sequence[Document]
    names: Callable[[], Iterable[str]]
    table: Callable[[], Table]
    show: Callable[[bool], None]


def of_rows(
    document: Document,
    rows: Sequence[Document],
    columns: Sequence[str],
    label: str,
    show: Callable[[bool], None],
) -> CommandResult:
    """The result of a document with a list of rows.

    ``columns``: the fields of a row in CSV; ``label``: its name, such as ``podgroup/{podGroup}``.
    """
    return CommandResult(
        [document],
        names=lambda: (label.format(**row) for row in rows),
        table=lambda: (columns, ([row.get(column) for column in columns] for row in rows)),
        show=show,
    )


def answer(result: CommandResult, format: OutputFormat) -> None:
    """Print a result in one format."""
    match format:
        case OutputFormat.JSON:
            write(as_json(result.documents))
        case OutputFormat.YAML:
            write(as_yaml(result.documents))
        case OutputFormat.NAME:
            write("".join(f"{name}\n" for name in result.names()))
        case OutputFormat.CSV:
            write(as_csv(*result.table()))
        case _:
            result.show(format is OutputFormat.WIDE)


def write(text: str | bytes) -> None:
    """Write text unchanged to standard output."""
    if isinstance(text, bytes):
        sys.stdout.flush()
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(text)


def as_json(documents: Sequence[Document]) -> bytes:
    """One document, indented; several documents, one per line."""
    import orjson

    if len(documents) == 1:
        return orjson.dumps(documents[0], option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return b"".join(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE) for document in documents)


def as_yaml(documents: Sequence[Document]) -> str:
    """YAML documents, as kubectl writes them."""
    from kai_cp.yaml_text import written

    return written(*documents, width=1_000)


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table with one header, as spreadsheets read it; a list is one cell, and so is a mapping, as JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_flat(value) for value in row] for row in rows)
    return text.getvalue()


def _flat(value: Any) -> Any:
    import orjson

    if isinstance(value, dict):
        return orjson.dumps(value).decode()
    return " ".join(map(str, value)) if isinstance(value, list) else value
