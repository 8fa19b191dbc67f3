"""Node and pod lists of openb, and the sequences of arrivals made from them.

Amounts are milli-CPUs, MiB and milli-GPUs. Pods with equal requests are one class, so a sequence of
arrivals is an array of class numbers.
"""

from __future__ import annotations

import csv
import io
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_cp import files
from kai_cp_models.arrays import Ints

DEVICES: Final = 8
"""Most GPUs a node has; the device arrays are this wide."""
WHOLE: Final = 1000
"""Milli-GPUs of one device."""
ARRIVALS: Final = 1.3
"""GPUs asked for in all, as a multiple of the GPUs there are."""
LISTS: Final = ("default", "gpushare100", "gpuspec33", "multigpu50")
SEEDS: Final = tuple(range(42, 52))
"""The ten seeds of the published runs."""


@dataclass(frozen=True)
class Nodes:
    """Nodes in the order in which ties are broken.

    ``gpus``: devices of each; ``model``: index into ``models``.
    """

    cpu: Ints
    memory: Ints
    gpus: Ints
    model: Ints
    models: tuple[str, ...]

    @property
    def total_milli_gpus(self) -> int:
        """Milli-GPUs of all nodes."""
        return int(self.gpus.sum()) * WHOLE


@dataclass(frozen=True)
class Classes:
    """Distinct requests. ``milli``: share of each of ``gpus`` devices; ``allowed``: [class, model]."""

    cpu: Ints
    memory: Ints
    gpus: Ints
    milli: Ints
    allowed: NDArray[np.bool_]
    spec: tuple[str, ...]
    """The allowed models as written."""
    count: Ints
    """Pods of each class in the list."""

    def __len__(self) -> int:
        return len(self.cpu)

    @property
    def total(self) -> Ints:
        """Milli-GPUs asked by a pod of each class."""
        return self.gpus * self.milli


def _rows(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(files.read_text(file, files.MOST_BYTES), newline="")))


def read_nodes(folder: Path) -> Nodes:
    """The 1,213 nodes with GPUs (6,212 devices), in the order of their names."""
    rows = sorted(_rows(folder / "openb_node_list_gpu_node.csv"), key=lambda row: row["sn"])
    models = tuple(sorted({row["model"] for row in rows}))
    return Nodes(
        cpu=_ints([row["cpu_milli"] for row in rows]),
        memory=_ints([row["memory_mib"] for row in rows]),
        gpus=_ints([row["gpu"] for row in rows]),
        model=_ints([models.index(row["model"]) for row in rows]),
        models=models,
    )


def shuffled(nodes: Nodes, seed: int) -> Nodes:
    """The nodes in random order, as published: there a random number is put in front of every node's name.

    Ties go to the first node, so without this they would go to one model of GPU before the others.
    """
    order = np.random.default_rng(seed).permutation(len(nodes.cpu))
    return replace(
        nodes,
        cpu=nodes.cpu[order],
        memory=nodes.memory[order],
        gpus=nodes.gpus[order],
        model=nodes.model[order],
    )


def read_pods(folder: Path, name: str, models: tuple[str, ...]) -> tuple[Classes, Ints]:
    """Classes of a pod list, and the class of every pod in the order of the file."""
    rows = _rows(folder / f"openb_pod_list_{name}.csv")
    seen: dict[tuple[int, int, int, int, str], int] = {}
    members: list[int] = []
    for row in rows:
        gpus = int(row["num_gpu"])
        spec = (row.get("gpu_spec") or "") if gpus else ""
        milli = int(row["gpu_milli"]) if gpus else 0
        key = (int(row["cpu_milli"]), int(row["memory_mib"]), gpus, milli, spec)
        members.append(seen.setdefault(key, len(seen)))
    keys = list(seen)
    allowed = np.array(
        [[not spec or model in spec.split("|") for model in models] for *_, spec in keys], dtype=bool
    )
    of_pods = _ints(members)
    classes = Classes(
        cpu=_ints([key[0] for key in keys]),
        memory=_ints([key[1] for key in keys]),
        gpus=_ints([key[2] for key in keys]),
        milli=_ints([key[3] for key in keys]),
        allowed=allowed,
        spec=tuple(key[4] for key in keys),
        count=np.bincount(of_pods, minlength=len(keys)).astype(np.int64),
    )
    return classes, of_pods


def arrivals(classes: Classes, of_pods: Ints, nodes: Nodes, seed: int, ratio: float = ARRIVALS) -> Ints:
    """Class of each arriving pod: the list in random order, grown or thinned to ``ratio`` of the GPUs.

    The published simulator does the same: it shuffles the list, then appends random pods of the list while
    the sum stays within the target, or removes random ones until it does. ``of_pods``: the class of each pod
    of the list.
    """
    target = ratio * nodes.total_milli_gpus
    rng = random.Random(seed)
    sequence = of_pods.tolist()
    rng.shuffle(sequence)
    total = classes.total.tolist()
    asked = sum(total[c] for c in sequence)
    while asked > target:
        asked -= total[sequence.pop(rng.randrange(len(sequence)))]
    draw = of_pods.tolist()
    while True:
        c = draw[rng.randrange(len(draw))]
        if asked + total[c] > target:
            return _ints(sequence)
        asked += total[c]
        sequence.append(c)


def _ints(values: list[str] | list[int]) -> Ints:
    return np.array([int(value) for value in values], dtype=np.int64)
