"""Other answers to the same cases: from a directory, from an older run, or KAI's recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import orjson

from kai_cp import files
from kai_cp.bench.outcome import Deed
from kai_cp_models.pods import PodKey

T = TypeVar("T")


class UnreadableAnswers(Exception):
    """A file of answers to compare with is unreadable; the text names it and says what is wrong."""


@dataclass(frozen=True)
class Peers:
    """``deeds``: decisions by case; ``seconds``: time it took by case, where known."""

    name: str
    deeds: Mapping[str, tuple[Deed, ...]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


def recorded(folder: Path) -> Peers:
    """KAI's recorded decisions and times of a directory with ``kai_decisions.jsonl.gz``.

    Raises ``UnreadableAnswers``.
    """
    deeds: dict[str, tuple[Deed, ...]] = {}
    path = folder / "kai_decisions.jsonl.gz"
    if path.exists():
        deeds = _understood(path, lambda: _kai_deeds(files.read_gzip(path)))
    seconds: dict[str, float] = {}
    times = folder / "kai_times.json"
    if times.exists():
        seconds = _understood(times, lambda: _kai_seconds(files.read(times)))
    return Peers("KAI", deeds, seconds)


def directory(folder: Path) -> Peers:
    """``decisions/1`` documents CASE.json of a directory; their solve time is taken from ``timings``.

    Raises ``UnreadableAnswers``.
    """
    if (folder / "kai_decisions.jsonl.gz").exists():
        return recorded(folder)
    deeds: dict[str, tuple[Deed, ...]] = {}
    seconds: dict[str, float] = {}
    for path in sorted(folder.glob("*.json")):
        document = _understood(path, partial(_document, path))
        if document is not None:
            deeds[path.stem], seconds[path.stem] = document
    return Peers(folder.name, deeds, seconds)


def _understood(path: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except OSError as problem:
        raise UnreadableAnswers(f"{path}: {problem.strerror or problem}") from None
    except (ValueError, LookupError, TypeError, AttributeError) as problem:
        reason = f"{type(problem).__name__}: {problem}"
        raise UnreadableAnswers(f"{path}: these are not answers to compare with ({reason})") from None


def _kai_deeds(lines: bytes) -> dict[str, tuple[Deed, ...]]:
    entries = map(orjson.loads, filter(None, lines.split(b"\n")))
    return {entry["case"]: tuple(_deeds(entry["decisions"])) for entry in entries}


def _kai_seconds(text: bytes) -> dict[str, float]:
    """The median of each case's runs."""
    found = {}
    for case, entry in orjson.loads(text).items():
        runs = entry.get("kai_total_ms") or []
        if runs:
            found[case] = sorted(runs)[len(runs) // 2] / 1000
    return found


def _document(path: Path) -> tuple[tuple[Deed, ...], float] | None:
    """The decisions of an answer and the time they took; None for another document."""
    document = orjson.loads(files.read(path))
    if not isinstance(document, dict) or not isinstance(document.get("decisions"), list):
        return None
    timings = document.get("timings") or {}
    took = sum(timings.get(phase, 0.0) for phase in ("prepare", "solve", "check"))
    return tuple(_deeds(document["decisions"])), took


def _deeds(decisions: list[dict[str, Any]]) -> Iterator[Deed]:
    for entry in decisions:
        yield entry["kind"], PodKey(entry.get("namespace") or "default", entry["pod"])
