"""``-o``: the forms in which a command gives its result."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

Document = Mapping[str, Any]


class Format(StrEnum):
    """What goes to standard output."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"


def write(text: str | bytes) -> None:
    """To standard output, as it is."""
    if isinstance(text, bytes):
        sys.stdout.flush()
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(text)


def as_json(documents: Sequence[Document]) -> bytes:
    """One document indented; of several, each on one line."""
    import orjson

    if len(documents) == 1:
        return orjson.dumps(documents[0], option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return b"".join(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE) for document in documents)


def as_yaml(documents: Sequence[Document]) -> str:
    """YAML documents, as kubectl writes them."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump_all(documents, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1_000))


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table with one header, as spreadsheets read it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
