"""Other answers to the same cases: from a directory, from an older run, or KAI's recorded ones."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kai_cp.bench.outcome import Deed
from kai_cp_models.snapshot import PodKey


@dataclass(frozen=True)
class Peers:
    """``deeds``: decisions by case; ``seconds``: time it took by case, where known."""

    name: str
    deeds: Mapping[str, tuple[Deed, ...]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


def recorded(folder: Path) -> Peers:
    """KAI's recorded decisions and times of a directory with ``kai_decisions.jsonl.gz``."""
    deeds: dict[str, tuple[Deed, ...]] = {}
    path = folder / "kai_decisions.jsonl.gz"
    if path.exists():
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                entry = json.loads(line)
                deeds[entry["case"]] = tuple(_deeds(entry["decisions"]))
    seconds: dict[str, float] = {}
    times = folder / "kai_times.json"
    if times.exists():
        for case, entry in json.loads(times.read_text("utf-8")).items():
            runs = entry.get("kai_total_ms") or []
            if runs:
                seconds[case] = sorted(runs)[len(runs) // 2] / 1000
    return Peers("KAI", deeds, seconds)


def directory(folder: Path) -> Peers:
    """``decisions/1`` documents CASE.json of a directory; their solve time is taken from ``timings``."""
    if (folder / "kai_decisions.jsonl.gz").exists():
        return recorded(folder)
    deeds: dict[str, tuple[Deed, ...]] = {}
    seconds: dict[str, float] = {}
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text("utf-8"))
        if isinstance(document, dict) and isinstance(document.get("decisions"), list):
            deeds[path.stem] = tuple(_deeds(document["decisions"]))
            timings = document.get("timings") or {}
            seconds[path.stem] = sum(timings.get(phase, 0.0) for phase in ("prepare", "solve", "check"))
    return Peers(folder.name, deeds, seconds)


def _deeds(decisions: list[dict[str, Any]]) -> Iterator[Deed]:
    for entry in decisions:
        yield entry["kind"], PodKey(entry.get("namespace") or "default", entry["pod"])
