"""Builds a cluster of running and pending pods whose every state is legal."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from kai_cp.bench.generate.objects import (
    NON_PREEMPTIBLE,
    GangSpec,
    NodeShape,
    PodRequest,
    RawCluster,
    ago,
    group,
    node,
    pod,
    queue,
)

DAYS = 5 * 86_400
"""Greatest age of a running pod group in seconds."""


class Builder:
    """A cluster under construction.

    ``free``: whole GPUs left per node. Nodes are kept in one list per number of free GPUs, so that a place is
    found without a scan. A shared GPU has 1,000 milli-GPUs. ``busy``: share of the racks that get pods before
    all others.
    """

    def __init__(
        self,
        seed: int,
        nodes: int,
        *,
        shape: NodeShape | None = None,
        rack: int = 16,
        racks_in_zone: int = 8,
        departments: int = 4,
        projects: int = 4,
        busy: float = 1.0,
    ) -> None:
        self.random = random.Random(seed)
        self.shape = shape or NodeShape()
        self.raw = RawCluster()
        self.rack = rack
        self.names = [f"node-{i:05}" for i in range(nodes)]
        for i, name in enumerate(self.names):
            number = i // rack
            labels = {"rack": f"rack-{number:04}", "zone": f"zone-{number // racks_in_zone:03}"}
            self.raw.nodes.append(node(name, self.shape, labels))
        self.free = [self.shape.gpus] * nodes
        self._levels: list[list[int]] = [[] for _ in range(self.shape.gpus + 1)]
        # Nodes are taken from the end of a list, so the racks that stay free come first.
        first_free = round(busy * nodes / rack) * rack if busy < 1 else nodes
        order = list(range(min(first_free, nodes)))
        self.random.shuffle(order)
        order = [*range(first_free, nodes), *order]
        self._levels[self.shape.gpus] = order
        self._open_devices: list[tuple[int, int, str]] = []
        self._devices = 0
        self._jobs = 0
        self._used = 0
        self.capacity = nodes * self.shape.gpus
        self.quota_of: dict[str, float] = {}
        self.protected: dict[str, float] = {}
        self.leaves = self._make_queues(departments, projects)

    def _make_queues(self, departments: int, projects: int) -> list[str]:
        born = 90 * 86_400
        leaves: list[str] = []
        share = self.capacity * 0.88 / departments
        for d in range(departments):
            department = f"dept-{d}"
            quota = float(int(share / projects) * projects)
            self.raw.queues.append(queue(department, quota, ago(born - d)))
            for p in range(projects):
                name = f"{department}-proj-{p}"
                mine = quota / projects
                self.raw.queues.append(queue(name, mine, ago(born - 10 * d - p - 1), department))
                self.quota_of[name] = mine
                self.protected[name] = 0.0
                leaves.append(name)
        return leaves

    def name(self) -> str:
        """A new pod group name."""
        self._jobs += 1
        return f"job-{self._jobs:06}"

    def age(self, longest: float = DAYS) -> float:
        """A random age of at least ten minutes, in seconds."""
        return 600 + self.random.random() * (longest - 600)

    def priority(self) -> str:
        """A random priority class, mostly training."""
        return self.random.choices(
            ("train", "build-preemptible", "build", "inference"), weights=(74, 13, 9, 4)
        )[0]

    def pend(self, gang: GangSpec) -> None:
        """Add a waiting pod group."""
        self.raw.groups.append(group(gang, running=False))
        self.raw.pods.extend(pod(gang, i) for i in range(gang.size))

    def run(self, gang: GangSpec, *, scatter: bool = False) -> bool:
        """Add a running pod group; False if it does not fit. ``scatter``: on any node, not the tightest.

        Work that is not preemptible stays inside its queue's quota (4.1), else it becomes training work.
        """
        amount = gang.size * gang.request.amount
        if (
            gang.priority in NON_PREEMPTIBLE
            and self.protected[gang.queue] + amount > self.quota_of[gang.queue]
        ):
            gang = replace(gang, priority="train")
        places: list[tuple[int, str]] = []
        for _ in range(gang.size):
            place = (
                self._take_share(gang.request)
                if gang.request.fraction
                else self._take(gang.request.gpus, scatter)
            )
            if place is None:
                for index, _group in places:
                    self.give_back(index, gang.request.gpus)
                return False
            places.append(place)
        if gang.priority in NON_PREEMPTIBLE:
            self.protected[gang.queue] += amount
        self.raw.groups.append(group(gang, running=True))
        for i, (index, gpu_group) in enumerate(places):
            self.raw.pods.append(pod(gang, i, self.names[index], gpu_group))
        return True

    def _take(self, gpus: int, scatter: bool) -> tuple[int, str] | None:
        levels = [left for left in range(gpus, len(self._levels)) if self._levels[left]]
        if not levels:
            return None
        if scatter:
            weights = [len(self._levels[left]) for left in levels]
            level = self.random.choices(levels, weights=weights)[0]
        else:
            level = levels[0]
        line = self._levels[level]
        at = self.random.randrange(len(line)) if scatter else len(line) - 1
        index = line[at]
        line[at] = line[-1]
        line.pop()
        self.free[index] -= gpus
        self._used += gpus
        self._levels[self.free[index]].append(index)
        return index, ""

    def give_back(self, index: int, gpus: int) -> None:
        """Free ``gpus`` whole GPUs of a node again."""
        self._levels[self.free[index]].remove(index)
        self.free[index] += gpus
        self._used -= gpus
        self._levels[self.free[index]].append(index)

    def _take_share(self, request: PodRequest) -> tuple[int, str] | None:
        milli = round(request.fraction * 1000)
        for at, (index, room, name) in enumerate(self._open_devices):
            if room >= milli:
                if room - milli >= 100:
                    self._open_devices[at] = (index, room - milli, name)
                else:
                    self._open_devices.pop(at)
                return index, name
        place = self._take(1, scatter=False)
        if place is None:
            return None
        name = f"group-{self._devices}"
        self._devices += 1
        self._open_devices.append((place[0], 1000 - milli, name))
        del self._open_devices[:-32]
        return place[0], name

    def used(self) -> float:
        """Share of the GPUs in use."""
        return self._used / self.capacity

    def fill(
        self,
        target: float,
        queues: Sequence[str],
        gangs: Sequence[tuple[PodRequest, int]],
        weights: Sequence[float],
        *,
        scatter: bool = False,
    ) -> None:
        """Run random pod groups of the kinds ``gangs`` (request, size) until ``target`` of the GPUs is in
        use.
        """
        misses = 0
        while misses < 40 and self.used() < target:
            request, size = self.random.choices(gangs, weights=weights)[0]
            gang = GangSpec(
                self.name(), self.random.choice(queues), request, size, self.priority(), self.age()
            )
            misses = 0 if self.run(gang, scatter=scatter) else misses + 1
