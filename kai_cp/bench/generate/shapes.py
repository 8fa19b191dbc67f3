"""The shapes of generated clusters. Each is a function (nodes, seed) -> raw snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kai_cp.bench.generate.builder import DAYS, Builder
from kai_cp.bench.generate.objects import GangSpec, NodeShape, PodRequest

_WHOLE: Final = (*((PodRequest(g), 1) for g in (1, 2, 4, 8)), *((PodRequest(8), size) for size in (2, 4, 8)))
_WHOLE_WEIGHTS: Final = (55, 9, 12, 12, 6, 4, 2)
_SHARES: Final = tuple((PodRequest(fraction=f), 1) for f in (0.25, 0.3, 0.5, 0.6))
_MIXED: Final = (*_WHOLE, *_SHARES)
_MIXED_WEIGHTS: Final = (*_WHOLE_WEIGHTS, 4, 5, 6, 4)


def _ask(builder: Builder, share: float, queues: list[str], *, mixed: bool = False) -> None:
    """Pending pod groups until they ask for ``share`` of the cluster."""
    asked = 0.0
    kinds, weights = (_MIXED, _MIXED_WEIGHTS) if mixed else (_WHOLE, _WHOLE_WEIGHTS)
    while asked < share * builder.capacity:
        request, size = builder.random.choices(kinds, weights=weights)[0]
        queue = builder.random.choice(queues)
        builder.pend(
            GangSpec(builder.name(), queue, request, size, builder.priority(), builder.age(DAYS / 2))
        )
        asked += size * request.amount


def fill(nodes: int, seed: int) -> dict[str, Any]:
    """An empty cluster with demand for 120 % of its GPUs."""
    builder = Builder(seed, nodes)
    _ask(builder, 1.2, builder.leaves)
    return builder.raw.snapshot()


def contended(nodes: int, seed: int) -> dict[str, Any]:
    """A full cluster: half of the queues over their quota, the other half waiting."""
    builder = Builder(seed, nodes)
    half = len(builder.leaves) // 2
    builder.fill(1.0, builder.leaves[:half], _MIXED, _MIXED_WEIGHTS)
    _ask(builder, 0.23, builder.leaves[half:])
    _ask(builder, 0.05, builder.leaves[:half])
    return builder.raw.snapshot()


def fragmented(nodes: int, seed: int) -> dict[str, Any]:
    """93 % full of small scattered pods; pods that need whole or half nodes wait."""
    builder = Builder(seed, nodes)
    builder.fill(0.93, builder.leaves, ((PodRequest(1), 1), (PodRequest(2), 1)), (85, 15), scatter=True)
    asked = 0
    while asked < 0.055 * builder.capacity:
        gpus = builder.random.choices((1, 2, 4, 8), weights=(62, 6, 17, 15))[0]
        queue = builder.random.choice(builder.leaves)
        builder.pend(GangSpec(builder.name(), queue, PodRequest(gpus), 1, "train", builder.age(DAYS / 2)))
        asked += gpus
    return builder.raw.snapshot()


def racks(nodes: int, seed: int) -> dict[str, Any]:
    """60 % full; gangs of whole nodes with required or preferred racks wait, beside single pods."""
    builder = Builder(seed, nodes)
    builder.fill(0.6, builder.leaves, _WHOLE, _WHOLE_WEIGHTS)
    asked = 0
    while asked < 0.5 * builder.capacity:
        kind = builder.random.random()
        size = builder.random.choice((2, 4, 8)) if kind < 0.3 else 1
        gpus = 8 if size > 1 else builder.random.choice((1, 1, 2, 4, 8))
        level = "rack" if size > 1 else ""
        queue = builder.random.choice(builder.leaves)
        builder.pend(
            GangSpec(
                builder.name(),
                queue,
                PodRequest(gpus),
                size,
                "train",
                builder.age(DAYS / 2),
                level=level,
                preferred=size > 1 and builder.random.random() < 0.4,
            )
        )
        asked += size * gpus
    return builder.raw.snapshot()


def backlog(nodes: int, seed: int) -> dict[str, Any]:
    """Full, with many small waiting pod groups that request three quarters of the cluster, few of them
    entitled.
    """
    builder = Builder(seed, nodes)
    builder.fill(1.0, builder.leaves, _WHOLE, _WHOLE_WEIGHTS)
    _ask(builder, 2.4, builder.leaves)
    return builder.raw.snapshot()


def quiet(nodes: int, seed: int) -> dict[str, Any]:
    """Full and nothing waits: the usual cycle of an idle scheduler."""
    builder = Builder(seed, nodes)
    builder.fill(1.0, builder.leaves, _WHOLE, _WHOLE_WEIGHTS)
    return builder.raw.snapshot()


def crowd(nodes: int, seed: int) -> dict[str, Any]:
    """35 small shares on every node and nothing waits (4,000 nodes: 140,000 pods)."""
    builder = Builder(seed, nodes, shape=NodeShape(cpus=192))
    builder.fill(7 / 8, builder.leaves, ((PodRequest(fraction=0.2), 1),), (1,))
    return builder.raw.snapshot()


def busy(nodes: int, seed: int) -> dict[str, Any]:
    """85 % full of one-GPU pods, a quarter of their number waits (10,000 nodes: about 68,000 pods)."""
    builder = Builder(seed, nodes)
    builder.fill(0.85, builder.leaves, ((PodRequest(1), 1), (PodRequest(2), 1)), (95, 5))
    waiting = len(builder.raw.pods) // 4
    for _ in range(waiting):
        queue = builder.random.choice(builder.leaves)
        builder.pend(
            GangSpec(builder.name(), queue, PodRequest(1), 1, builder.priority(), builder.age(DAYS / 2))
        )
    return builder.raw.snapshot()


def mixed(nodes: int, seed: int) -> dict[str, Any]:
    """90 % full with fractions, and another 30 % requested."""
    builder = Builder(seed, nodes)
    builder.fill(0.9, builder.leaves, _MIXED, _MIXED_WEIGHTS)
    _ask(builder, 0.3, builder.leaves, mixed=True)
    return builder.raw.snapshot()


def nvl72(nodes: int, seed: int) -> dict[str, Any]:
    """GB200 NVL72 racks of 18 nodes with 4 GPUs, a third of the GPUs in use, half of the racks untouched.

    A gang of 288 GPUs waits in four segments of 72 that each need one rack, with 200 small pod groups.
    """
    shape = NodeShape(4, 144, 960, 189_471, "NVIDIA-GB200")
    builder = Builder(seed, nodes, shape=shape, rack=18, racks_in_zone=10, busy=0.5)
    kinds = ((PodRequest(1), 1), (PodRequest(2), 1), (PodRequest(4), 1), (PodRequest(4), 4))
    builder.fill(0.34, builder.leaves, kinds, (50, 20, 20, 10))
    builder.pend(
        GangSpec("segments", builder.leaves[0], PodRequest(4), 72, "train", DAYS, level="rack", segments=4)
    )
    for _ in range(200):
        request, size = builder.random.choices(kinds, weights=(40, 25, 25, 10))[0]
        level = "rack" if size > 1 else ""
        queue = builder.random.choice(builder.leaves)
        builder.pend(
            GangSpec(builder.name(), queue, request, size, "train", builder.age(DAYS / 2), level=level)
        )
    return builder.raw.snapshot()


def unschedulable(nodes: int, seed: int) -> dict[str, Any]:
    """Full of work over its quota, and a gang of ten whole nodes while only nine can be emptied.

    Every other node holds one pod that is not preemptible: no eviction helps, which counting proves.
    """
    builder = Builder(seed, nodes)
    half = len(builder.leaves) // 2
    emptied = min(9, nodes - 1)
    hungry = builder.leaves[:half]

    def train() -> bool:
        queue = builder.random.choice(hungry)
        return builder.run(GangSpec(builder.name(), queue, PodRequest(1), 1, "train", builder.age()))

    for i in range(nodes - emptied):
        queue = builder.leaves[half + i % half]
        builder.run(GangSpec(builder.name(), queue, PodRequest(1), 1, "build", builder.age()))
        for _ in range(builder.shape.gpus - 1):  # the tightest node first, which is the one in use
            train()
    while train():
        pass
    builder.pend(GangSpec("too-large", builder.leaves[-1], PodRequest(8), emptied + 1, "train", 3600))
    return builder.raw.snapshot()


SHAPES: Final[dict[str, Callable[[int, int], dict[str, Any]]]] = {
    "fill": fill,
    "contended": contended,
    "fragmented": fragmented,
    "racks": racks,
    "backlog": backlog,
    "quiet": quiet,
    "crowd": crowd,
    "busy": busy,
    "mixed": mixed,
    "nvl72": nvl72,
    "unschedulable": unschedulable,
}
"""Every shape by name."""
