"""Random queue trees, with books that keep the running pods within limits and quotas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.support import objects as raw

Charge = tuple[int, int, int]
"""(milli_cpus, memory_bytes, hundredths of GPUs)."""
_SCALE = {"cpu": 1.0, "memory": 1e6, "gpu": 100.0}


@dataclass
class Tree:
    """The queues of a cluster."""

    objects: list[raw.Object] = field(default_factory=list)
    leaves: list[str] = field(default_factory=list)
    parents: dict[str, str | None] = field(default_factory=dict)
    used: dict[tuple[str, bool], list[int]] = field(default_factory=dict)
    bounds: dict[tuple[str, bool], list[float]] = field(default_factory=dict)
    """By (queue, firm): limits, and quotas for non-preemptible work; -1 unlimited."""

    def leaf(self, rng: Random) -> str:
        """A queue that may run jobs."""
        return rng.choice(self.leaves)

    def room(self, queue: str, charge: Charge, *, firm: bool) -> bool:
        """Whether the queue and all its ancestors can take this amount in addition."""
        return all(
            bound < 0 or not more or held + more <= bound
            for name in self._path(queue)
            for kind in ((False, True) if firm else (False,))
            for held, more, bound in zip(self.used[name, kind], charge, self.bounds[name, kind], strict=True)
        )

    def charge(self, queue: str, charge: Charge, *, firm: bool) -> None:
        """Charge the amount to the queue and all its ancestors."""
        for name in self._path(queue):
            for kind in (False, True) if firm else (False,):
                self.used[name, kind] = [a + b for a, b in zip(self.used[name, kind], charge, strict=True)]

    def _path(self, queue: str) -> Iterator[str]:
        name: str | None = queue
        while name is not None:
            yield name
            name = self.parents[name]


def draw_tree(rng: Random, features: frozenset[str], gpus: int) -> Tree:
    """Top-level queues with one to three levels below them (feature ``deep``), or none."""
    tree = Tree()
    for i in range(rng.randint(1, 3)):
        depth = rng.randint(1, 4) if "deep" in features else 2
        _grow(rng, features, tree, f"d{i}", None, depth, max(gpus, 1))
    return tree


def _grow(
    rng: Random, features: frozenset[str], tree: Tree, name: str, parent: str | None, depth: int, gpus: int
) -> None:
    resources: dict[str, dict[str, float]] = {}
    for resource, scale in (("gpu", gpus), ("cpu", 64_000), ("memory", 512_000)):
        rare = resource != "gpu"
        quota = _amount(rng, scale) if "quotas" in features and not (rare and rng.random() < 0.7) else -1
        limit = _amount(rng, scale) if "limits" in features and rng.random() < (0.1 if rare else 0.4) else -1
        if limit == 0 and rng.random() < 0.7:
            limit = -1
        weight = rng.choice((0, 1, 1, 1, 2, 3))
        resources[resource] = {"quota": quota, "limit": limit, "overQuotaWeight": weight}
    if "quotas" not in features:
        resources["gpu"]["quota"] = gpus // 3
    more: dict[str, object] = {}
    if "priorities" in features and rng.random() < 0.3:
        more["priority"] = rng.choice((50, 100, 200))
    if "runtime" in features:
        for key in ("preemptMinRuntime", "reclaimMinRuntime"):
            if rng.random() < 0.3:
                more[key] = rng.choice(("0s", "30s", "20m"))
    tree.objects.append(raw.queue(name, parent, rng.randint(1000, 90_000), resources, **more))
    tree.parents[name] = parent
    for kind, bound in ((False, "limit"), (True, "quota")):
        tree.used[name, kind] = [0, 0, 0]
        values = [(resources[r][bound], _SCALE[r]) for r in ("cpu", "memory", "gpu")]
        tree.bounds[name, kind] = [-1 if value == -1 else value * scale for value, scale in values]
    if depth == 1 or (depth < 3 and rng.random() < 0.1):
        tree.leaves.append(name)
        return
    for i in range(rng.randint(1, 3)):
        _grow(rng, features, tree, f"{name}-{i}", name, depth - 1, max(gpus // 2, 1))


def _amount(rng: Random, scale: int) -> float:
    return rng.choice((-1, 0, max(scale // 8, 1), scale // 4, scale // 2, scale))
