"""The cases of the suites kai and scale: recorded snapshots, and generated ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kai_cp.bench.generate import SHAPES
from kai_cp.reader.container import load

SCALE_NODES: Final = (100, 1000)
"""Sizes of the suite scale unless told otherwise; the full run goes to 10,000."""
NVL72_NODES: Final = 1800
"""A hundred racks of 18: the size of the shape ``nvl72`` unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Case:
    """A case by name; made from a file, or generated (``shape``, ``nodes``, ``seed``)."""

    suite: str
    name: str
    path: Path | None = None
    shape: str = ""
    nodes: int = 0
    seed: int | None = None

    def raw(self) -> Any:
        """The snapshot document."""
        if self.path is not None:
            return load(self.path).raw
        return SHAPES[self.shape](self.nodes, self.seed or 0)


def recorded_cases(folder: Path, shapes: Sequence[str], nodes: Sequence[int]) -> list[Case]:
    """Snapshots of a directory, smallest files first; ``shapes`` selects by the beginning of the name."""
    paths = sorted(folder.glob("*.json.gz"), key=lambda path: (path.stat().st_size, path.name))
    found = []
    for path in paths:
        name = path.name.removesuffix(".json.gz")
        if shapes and not any(_begins(name, shape) for shape in shapes):
            continue
        if nodes and not any(f"-{n}-" in name or name.endswith(f"_{n}Node") for n in nodes):
            continue
        found.append(Case("kai", name, path))
    return found


def generated_cases(shapes: Iterable[str], nodes: Sequence[int], seeds: Iterable[int]) -> list[Case]:
    """Generated clusters: every shape, size and seed."""
    found = []
    for shape in shapes or SHAPES:
        sizes = nodes or ((NVL72_NODES,) if shape == "nvl72" else SCALE_NODES)
        for size in sizes:
            for seed in seeds:
                found.append(Case("scale", f"{shape}-{size}-s{seed}", None, shape, size, seed))
    return sorted(found, key=lambda case: case.nodes)


def _begins(name: str, shape: str) -> bool:
    return name == shape or any(name.startswith(shape + mark) for mark in "-_")
