"""What the command line names as input: files, directories of files, ``-``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUFFIXES: Final = (".json.gz", ".json", ".zip")
STDIN: Final = "-"


@dataclass(frozen=True, slots=True)
class Input:
    """One snapshot to be read: ``name`` of its output without suffix; no ``path``: standard input."""

    name: str
    path: Path | None

    @property
    def label(self) -> str:
        """How messages call it."""
        return "standard input" if self.path is None else str(self.path)


class BadInput(ValueError):
    """An input that cannot be read at all; the text is one line for the user."""


def base_name(path: Path) -> str:
    """File name without the suffix of a snapshot."""
    for suffix in SUFFIXES:
        if path.name.endswith(suffix) and path.name != suffix:
            return path.name[: -len(suffix)]
    return path.name


def expand(argument: str) -> list[Input]:
    """The inputs an argument stands for. Raises ``BadInput`` for a path that is not there or empty.

    In a directory, ``NAME.options.json`` belongs to the snapshot NAME and is no snapshot.
    """
    if argument == STDIN:
        return [Input("stdin", None)]
    path = Path(argument)
    if not path.exists():
        raise BadInput(f"{path}: no such file or directory")
    if not path.is_dir():
        return [Input(base_name(path), path)]
    found = sorted(entry for entry in path.iterdir() if _is_snapshot(entry))
    if not found:
        raise BadInput(f"{path}: holds no snapshot ({', '.join(sorted(SUFFIXES))})")
    return [Input(base_name(entry), entry) for entry in found]


def _is_snapshot(path: Path) -> bool:
    return (
        path.name.endswith(SUFFIXES)
        and not path.name.startswith(".")
        and not path.name.endswith(".options.json")
        and path.is_file()
    )


def clashes(inputs: Iterable[Input]) -> list[Sequence[Input]]:
    """Inputs whose outputs would have one name."""
    by_name: dict[str, list[Input]] = {}
    for item in inputs:
        by_name.setdefault(item.name, []).append(item)
    return [items for items in by_name.values() if len(items) > 1]
