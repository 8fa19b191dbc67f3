"""Policies that place one arriving pod at a time and never move any."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from kai_cp.bench.openb.cluster import TraceCluster
from kai_cp.bench.openb.trace import WHOLE
from kai_cp_models.arrays import Floats, Ints

POPULAR = 0.95
"""Typical pods are the most frequent classes that make up this share of the list."""
MAX_CPU, MAX_GPU = 128_000, 8_000
"""Largest node, by which best fit divides."""


class PlacementPolicy(ABC):
    """Chooses node and devices for a pod. Scores per class are kept and renewed where nodes changed."""

    name: str

    def __init__(self, cluster: TraceCluster) -> None:
        self.cluster = cluster
        count = len(cluster.nodes.cpu)
        self._scores: dict[int, Floats] = {}
        self._devices: dict[int, Ints] = {}
        self._seen: dict[int, int] = {}
        self._all = np.arange(count)

    @abstractmethod
    def score(self, c: int, among: Ints) -> tuple[Floats, Ints]:
        """Score [node] of placing class ``c`` on the nodes ``among``, and the device [node] for a share.

        -inf: the pod does not fit.
        """

    def choose(self, c: int) -> tuple[int, tuple[int, ...]] | None:
        """Best node, smallest name on ties, and devices; None when the pod fits nowhere."""
        scores = self.scores(c)
        node = int(scores.argmax())
        if scores[node] == -np.inf:
            return None
        return node, self.devices(c, node)

    def scores(self, c: int) -> Floats:
        """Scores [node] of all nodes for class ``c``; those of changed nodes are computed again."""
        log = self.cluster.log
        if c not in self._scores:
            self._scores[c], self._devices[c] = self.score(c, self._all)
        elif self._seen[c] < len(log):
            dirty = np.unique(np.array(log[self._seen[c] :], dtype=np.int64))
            self._scores[c][dirty], self._devices[c][dirty] = self.score(c, dirty)
        self._seen[c] = len(log)
        return self._scores[c]

    def devices(self, c: int, node: int) -> tuple[int, ...]:
        """Devices for class ``c`` on ``node``."""
        k = self.cluster.classes
        if k.gpus[c] == 1 and k.milli[c] < WHOLE:
            return (int(self._devices[c][node]),)
        return self.cluster.tightest(c, node)


class BestFit(PlacementPolicy):
    """The published best fit: least weighted sum of CPU and GPU left, as whole percents."""

    name = "best fit"

    def score(self, c: int, among: Ints) -> tuple[Floats, Ints]:
        cluster, k = self.cluster, self.cluster.classes
        cpu = cluster.cpu[among] - k.cpu[c]
        gpu = cluster.left[among].sum(axis=1) - k.total[c]
        value = np.floor((1.0 - (0.5 * cpu / MAX_CPU + 0.5 * gpu / MAX_GPU)) * 100)
        return np.where(cluster.fits(c, among), value, -np.inf), np.zeros(len(among), dtype=np.int64)

    def choose(self, c: int) -> tuple[int, tuple[int, ...]] | None:
        scores = self.scores(c)
        highest = scores.max()
        if highest == -np.inf:
            return None
        lowest = scores[scores > -np.inf].min()
        if highest > lowest:
            scores = np.where(
                scores > -np.inf, np.floor((scores - lowest) * 100 / (highest - lowest)), -np.inf
            )
        node = int(scores.argmax())
        return node, self.cluster.tightest(c, node)


class Fragments:
    """Expected fragment of a node's free GPUs: what a typical pod, drawn at random, could not use."""

    def __init__(self, cluster: TraceCluster) -> None:
        k = cluster.classes
        # As published, a typical pod has no memory: classes that differ only in memory are one class.
        counts: dict[tuple[int, int, int, str], int] = {}
        allowed: dict[str, NDArray[np.bool_]] = {}
        for c in range(len(k)):
            key = (int(k.cpu[c]), int(k.milli[c]), int(k.gpus[c]), k.spec[c])
            counts[key] = counts.get(key, 0) + int(k.count[c])
            allowed[k.spec[c]] = k.allowed[c]
        order = sorted(counts, key=lambda key: (counts[key], key), reverse=True)
        cumulated = np.cumsum([counts[key] for key in order])
        kept = order[: int(np.searchsorted(cumulated, POPULAR * cumulated[-1]) + 1)]
        weight = np.array([counts[key] for key in kept], dtype=np.float64)
        self.weight: Floats = weight / weight.sum()
        self.cpu = np.array([key[0] for key in kept], dtype=np.int64)
        self.gpus = np.array([key[2] for key in kept], dtype=np.int64)
        self.allowed = np.array([allowed[key[3]] for key in kept], dtype=bool)
        milli = np.array([key[1] for key in kept], dtype=np.int64)
        self.levels, self.level_of = np.unique(milli, return_inverse=True)

    def amount(self, left: Ints, cpu: Ints, model: Ints) -> Floats:
        """Milli-GPUs of every given state that are expected to be fragments."""
        enough = left[:, :, None] >= self.levels[None, None, :]
        total = left.sum(axis=1)
        count = enough.sum(axis=1)
        small = total[:, None] - np.einsum("kd,kdl->kl", left, enough)
        usable = (
            (count[:, self.level_of] >= self.gpus)
            & (cpu[:, None] >= self.cpu)
            & self.allowed[:, model].T
            & (self.gpus > 0)
        )
        lost: Floats = np.where(usable, small[:, self.level_of], total[:, None]) @ self.weight
        return lost


class PotentialPolicy(PlacementPolicy):
    """Places a pod where the potential of the node falls least (or rises most)."""

    @abstractmethod
    def potential(self, left: Ints, cpu: Ints, model: Ints) -> Floats:
        """Worth of node states: room per device, free milli-CPUs and model of each."""

    @abstractmethod
    def scale(self, gain: Floats) -> Floats:
        """Score [node] to compare, from a gain [node] of potential in milli-GPUs."""

    def score(self, c: int, among: Ints) -> tuple[Floats, Ints]:
        cluster, k = self.cluster, self.cluster.classes
        scores = np.full(len(among), -np.inf)
        chosen = np.zeros(len(among), dtype=np.int64)
        at = np.flatnonzero(cluster.fits(c, among))
        if not len(at):
            return scores, chosen
        left = cluster.left[among[at]]
        cpu = cluster.cpu[among[at]]
        model = cluster.nodes.model[among[at]]
        before = self.potential(left, cpu, model)
        row, device, after = candidates(left, int(k.gpus[c]), int(k.milli[c]))
        gain = self.potential(after, cpu[row] - k.cpu[c], model[row]) - before[row]
        value = self.scale(gain)
        best = np.full(len(at), -np.inf)
        np.maximum.at(best, row, value)
        # The first device that reaches the best value: walk backwards so that it is written last.
        hit = np.flatnonzero(value == best[row])[::-1]
        picked = np.zeros(len(at), dtype=np.int64)
        picked[row[hit]] = device[hit]
        scores[at], chosen[at] = best, picked
        return scores, chosen


class FragmentationGradient(PotentialPolicy):
    """FGD as published: the node whose expected fragment grows least, in whole percents of a sigmoid."""

    name = "fragmentation gradient descent"

    def __init__(self, cluster: TraceCluster) -> None:
        super().__init__(cluster)
        self.fragments = Fragments(cluster)

    def potential(self, left: Ints, cpu: Ints, model: Ints) -> Floats:
        return -self.fragments.amount(left, cpu, model)

    def scale(self, gain: Floats) -> Floats:
        return np.floor(100.0 / (1.0 + np.exp(-gain / WHOLE)))


def candidates(left: Ints, gpus: int, milli: int) -> tuple[Ints, Ints, Ints]:
    """(row, device, device room after) for every way to place a pod on the nodes with room ``left``.

    A share may go to any device with room (devices with equal room are one way); whole devices go
    to the first free ones.
    """
    if gpus == 0:
        rows = np.arange(len(left))
        return rows, np.zeros(len(left), dtype=np.int64), left
    if gpus > 1 or milli == WHOLE:
        free = left >= milli
        taken = free & (np.cumsum(free, axis=1) <= gpus)
        return np.arange(len(left)), np.zeros(len(left), dtype=np.int64), left - taken * milli
    repeated = np.zeros(left.shape, dtype=bool)
    for d in range(1, left.shape[1]):
        repeated[:, d] = (left[:, :d] == left[:, d : d + 1]).any(axis=1)
    row, device = np.nonzero((left >= milli) & ~repeated)
    after = left[row]
    after[np.arange(len(row)), device] -= milli
    return row, device, after
