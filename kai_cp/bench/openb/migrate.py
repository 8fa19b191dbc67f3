"""Bounded migration: running pods may move when an arriving pod fits nowhere.

Per 100 arrivals at most one percent of the pods that ran at their beginning are moved. For a pod that
fits nowhere, nodes are tried in the order of how few pods would have to leave: shares of one device,
and pods whose CPUs are missing. Every pod that leaves must fit elsewhere, or the attempt is undone.
"""

from __future__ import annotations

from itertools import combinations
from typing import Final

import numpy as np

from kai_cp.bench.openb.cluster import TraceCluster
from kai_cp.bench.openb.policies import PlacementPolicy
from kai_cp.bench.openb.trace import WHOLE
from kai_cp_models.arrays import Ints

WINDOW: Final = 100
"""Arrivals that share a budget."""
SHARE: Final = 0.01
"""Moves per window, as a share of the running pods."""
TRIES: Final = 24
"""Nodes tried for one arriving pod."""
PAUSE: Final = 10
"""Pods that must have come or moved before a class is tried again after a failed attempt."""
MOST: Final = 5
"""Most pods that move for one arriving pod."""


class MigratingPolicy:
    """A policy that may also move pods. ``moves`` in total; ``worst`` is the largest share in a window,
    percent.
    """

    def __init__(self, cluster: TraceCluster, policy: PlacementPolicy) -> None:
        self.cluster = cluster
        self.policy = policy
        self.moves = 0
        self.worst = 0.0
        self._budget = 0
        self._arrived = 0
        self._spent = 0
        self._ran = 1
        self._hopeless: dict[int, int] = {}
        """Class -> length of the log from which on another try is worth it."""
        self._on_node: list[set[int]] = [set() for _ in range(len(cluster.nodes.cpu))]

    def arrive(self, pod: int, c: int) -> bool:
        """Place an arriving pod, and move others if needed; False if the pod is refused."""
        if self._arrived % WINDOW == 0:
            self._ran = max(1, len(self.cluster.running))
            self._budget = int(SHARE * len(self.cluster.running))
            self._spent = 0
        self._arrived += 1
        choice = self.policy.choose(c)
        if choice is not None:
            self._start(pod, c, *choice)
            return True
        log = self.cluster.log
        if self._budget <= 0 or not self.cluster.classes.gpus[c] or len(log) < self._hopeless.get(c, 0):
            return False
        for node in self._candidates(c):
            moved = self._make_room(c, node)
            if moved is None:
                continue
            self.moves += moved
            self._spent += moved
            self._budget -= moved
            self.worst = max(self.worst, 100.0 * self._spent / self._ran)
            self._start(pod, c, node, self.cluster.tightest(c, node))
            return True
        self._hopeless[c] = len(log) + PAUSE
        return False

    def _start(self, pod: int, c: int, node: int, devices: tuple[int, ...]) -> None:
        self.cluster.place(pod, c, node, devices)
        self._on_node[node].add(pod)

    def _stop(self, pod: int) -> tuple[int, int, tuple[int, ...]]:
        place = self.cluster.remove(pod)
        self._on_node[place[1]].discard(pod)
        return place

    def _candidates(self, c: int) -> Ints:
        """Nodes that could hold the pod; nodes where the least must leave come first."""
        cluster, k = self.cluster, self.cluster.classes
        gpus, milli = int(k.gpus[c]), int(k.milli[c])
        lacks = np.maximum(0, milli - cluster.left)
        lacks[np.arange(lacks.shape[1])[None, :] >= cluster.nodes.gpus[:, None]] = 8 * WHOLE
        missing = np.sort(lacks, axis=1)[:, :gpus].sum(axis=1) / WHOLE
        possible = (
            k.allowed[c, cluster.nodes.model]
            & (cluster.nodes.gpus >= gpus)
            & (cluster.nodes.cpu >= k.cpu[c])
            & (cluster.nodes.memory >= k.memory[c])
        )
        cost = np.where(possible, missing + np.maximum(0, k.cpu[c] - cluster.cpu) / 20_000, np.inf)
        order = np.argsort(cost, kind="stable")[:TRIES]
        return order[cost[order] < np.inf].astype(np.int64)

    def _make_room(self, c: int, node: int) -> int | None:
        """Move pods off ``node`` until class ``c`` fits; None, without any change, if that is impossible."""
        leaving = self._who_leaves(c, node)
        if leaving is None or len(leaving) > min(MOST, self._budget):
            return None
        if not all(self._room_elsewhere(self.cluster.running[pod][0], node) for pod in leaving):
            return None  # Check first without changing anything, since every change needs new scores.
        old = [(pod, *self._stop(pod)) for pod in leaving]
        placed: list[int] = []
        for pod, class_, _node, _devices in sorted(old, key=lambda e: -int(self.cluster.classes.total[e[1]])):
            choice = self._elsewhere(class_, node)
            if choice is None:
                break
            self._start(pod, class_, *choice)
            placed.append(pod)
        if len(placed) == len(old) and bool(self.cluster.fits(c, np.array([node]))[0]):
            return len(old)
        for pod in placed:
            self._stop(pod)
        for pod, class_, home, devices in old:
            self._start(pod, class_, home, devices)
        return None

    def _room_elsewhere(self, c: int, node: int) -> bool:
        scores = self.policy.scores(c)
        return bool(np.delete(scores, node).max(initial=-np.inf) > -np.inf)

    def _elsewhere(self, c: int, node: int) -> tuple[int, tuple[int, ...]] | None:
        scores = self.policy.scores(c)
        kept = scores[node]
        scores[node] = -np.inf
        choice = self.policy.choose(c)
        scores[node] = kept
        return choice

    def _who_leaves(self, c: int, node: int) -> list[int] | None:
        """The fewest pods, by a simple rule, without which class ``c`` fits on ``node``."""
        cluster, k = self.cluster, self.cluster.classes
        here = sorted(self._on_node[node])
        where = {pod: cluster.running[pod] for pod in here}
        leaving: list[int] = []
        fitting = int((cluster.left[node] >= k.milli[c]).sum())
        missing = int(k.gpus[c]) - fitting
        devices = [d for d in range(int(cluster.nodes.gpus[node])) if cluster.left[node, d] < k.milli[c]]
        cheapest: list[tuple[int, int, list[int]]] = []
        for device in devices if missing > 0 else ():
            shares = [p for p in here if device in where[p][2] and k.milli[where[p][0]] < WHOLE]
            if not shares:
                continue
            amounts = {p: int(k.milli[where[p][0]]) for p in shares}
            need = int(k.milli[c] - cluster.left[node, device])
            found = _fewest(shares, amounts, need)
            if found:
                cheapest.append((len(found), sum(amounts[p] for p in found), found))
        cheapest.sort()
        if missing > len(cheapest):
            return None
        for _, _, pods in cheapest[: max(0, missing)]:
            leaving += pods
        cpu = int(k.cpu[c] - cluster.cpu[node]) - sum(int(k.cpu[where[p][0]]) for p in leaving)
        memory = int(k.memory[c] - cluster.memory[node]) - sum(int(k.memory[where[p][0]]) for p in leaving)
        # Pods without GPUs first, then pods with the most CPUs per GPU.
        others = sorted(
            (p for p in here if p not in leaving and k.total[where[p][0]] < k.total[c]),
            key=lambda p: (int(k.total[where[p][0]]), -int(k.cpu[where[p][0]])),
        )
        for pod in others:
            if cpu <= 0 and memory <= 0:
                break
            leaving.append(pod)
            cpu -= int(k.cpu[where[pod][0]])
            memory -= int(k.memory[where[pod][0]])
        return leaving if cpu <= 0 and memory <= 0 else None


def _fewest(pods: list[int], amounts: dict[int, int], need: int) -> list[int]:
    """The smallest set of at most three pods that frees ``need`` milli-GPUs, least amount first."""
    for size in range(1, min(3, len(pods)) + 1):
        sets = [s for s in combinations(pods, size) if sum(amounts[p] for p in s) >= need]
        if sets:
            return list(min(sets, key=lambda s: (sum(amounts[p] for p in s), s)))
    return []
