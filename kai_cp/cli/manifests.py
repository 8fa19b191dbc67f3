"""Kubernetes objects in files: manifests, lists of them, and what ``kubectl get`` prints."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import typer

from kai_cp.cli.common import BAD_INPUT, complain, fail
from kai_cp.cli.output import DocumentFormat, as_json, as_yaml

_SUFFIXES: Final = ("yaml", "yml", "json")
_PACKED: Final = (b"PK\x03\x04", b"\x1f\x8b")
"""The first bytes of a zip and of a gzip file."""
_EXPECTED: Final = "; expected manifests, or the output of kubectl get -o json (kai-cp solve reads snapshots)"

FileAnswer = Callable[[Path], tuple[list[Any], list[str]]]
"""From a file to its answers, and a sentence about each object without one. OSError and ValueError are about
the whole file."""


def write_answers(inputs: Path, outputs: Path | None, format: DocumentFormat, answer: FileAnswer) -> None:
    """Write the answers of a file, or of each manifest of a directory. Bad files and objects are named on
    standard error, and their status ends the program.

    ``outputs``: directory for a NAME.json or NAME.yaml for each file, a list in JSON where the file has
    several answers; None: standard output.
    """
    bad = False
    for file in _files(inputs):
        try:
            found, problems = answer(file)
        except OSError as problem:
            found, problems = [], [problem.strerror or str(problem)]
        except ValueError as problem:
            found, problems = [], [str(problem)]
        for text in problems:
            complain(f"{file}: {text}")
        bad = bad or bool(problems)
        if outputs is None:
            typer.echo(b"".join(_dumped(one, format) for one in found), nl=False)
        elif found:
            outputs.mkdir(parents=True, exist_ok=True)
            whole = [found] if format is DocumentFormat.JSON and len(found) > 1 else found
            content = b"".join(_dumped(one, format) for one in whole)
            (outputs / f"{file.stem}.{format.value}").write_bytes(content)
    if bad:
        raise typer.Exit(BAD_INPUT)


def _dumped(document: Any, format: DocumentFormat) -> bytes:
    """One answer; in YAML each is a document of its own."""
    if format is DocumentFormat.YAML:
        return b"---\n" + as_yaml([document]).encode()
    return as_json([document])


def read_manifests(file: Path) -> tuple[list[tuple[str, dict[str, Any]]], list[str]]:
    """The objects of a file (``-``: standard input), those of lists too, each with its place, and a sentence
    about each document that is none.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is neither JSON nor YAML; the text says where.
    """
    import orjson

    objects: list[tuple[str, dict[str, Any]]] = []
    problems: list[str] = []
    for i, document in enumerate(_documents(file)):
        for where, one in _unrolled(f"document {i + 1}", document):
            if isinstance(one, dict) and "rawObjects" in one:
                raise ValueError(f"this is a snapshot{_EXPECTED}")
            if not isinstance(one, dict):
                problems.append(f"{where}: expected an object")
                continue
            try:
                # As an API server reads it: dates are texts, and numbers have at most 64 bits.
                objects.append((where, orjson.loads(orjson.dumps(one))))
            except (TypeError, ValueError, RecursionError) as problem:
                problems.append(f"{where}: {problem}")
    return objects, problems if objects or problems else ["holds no object"]


def _files(inputs: Path) -> list[Path]:
    """The file, or the manifests of a directory. Of two files with one stem the JSON file is taken, which is
    quicker to read."""
    if not inputs.is_dir():
        return [inputs]
    found = {file.stem: file for suffix in _SUFFIXES for file in sorted(inputs.glob(f"*.{suffix}"))}
    if not found:
        fail(f"{inputs}: no .yaml or .json file", BAD_INPUT)
    return [found[stem] for stem in sorted(found)]


def _documents(file: Path) -> list[Any]:
    """Every document of the file: one in JSON, any number in YAML."""
    import orjson
    import yaml

    from kai_cp import files, yaml_text

    content = files.read(file).removeprefix(codecs.BOM_UTF8)
    if content.startswith(_PACKED):
        raise ValueError(f"is packed, as snapshots are{_EXPECTED}")
    if not content.strip():
        return []
    try:
        return [orjson.loads(content)]
    except orjson.JSONDecodeError as problem:
        not_json = f"not JSON: {problem}"
    try:
        text = files.text_of(content)
        if file.suffix == ".json":
            raise ValueError(not_json)
        return yaml_text.load_all(text)
    except files.NoText as problem:
        raise ValueError(f"neither JSON nor YAML: {problem.strerror}") from None
    except yaml.YAMLError as problem:
        raise ValueError(yaml_text.why(problem)) from None


def _unrolled(where: str, document: Any) -> Iterator[tuple[str, Any]]:
    """A document, or the objects of a list, each with its place; an empty document gives nothing."""
    items = document
    if isinstance(document, dict) and str(document.get("kind")).endswith("List"):
        items = document.get("items") or []
    if isinstance(items, list):
        for i, item in enumerate(items):
            yield f"{where}, item {i + 1}", item
    elif document is not None:
        yield where, items
