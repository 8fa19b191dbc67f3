"""The list of all controllers. A new one needs a module, a line here, and its rights in ``access.py``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, get_args

from kai_cp.kube.api.access import ACCESS, ControllerName, Grant
from kai_cp.kube.controllers.base import Factory
from kai_cp.kube.controllers.podgroup import PodGroupController
from kai_cp.kube.controllers.podgrouper import PodGrouper
from kai_cp.kube.controllers.provisioning import GangProvisioner
from kai_cp.kube.controllers.queue import QueueController
from kai_cp.kube.controllers.scaler import NodeScaleAdjuster
from kai_cp.kube.controllers.shards import ShardController

CONTROLLERS: Final[dict[ControllerName, Factory]] = {
    "podgrouper": PodGrouper,
    "podgroup-controller": PodGroupController,
    "queue-controller": QueueController,
    "shards": ShardController,
    "node-scale-adjuster": NodeScaleAdjuster,
    "provisioning-requests": GangProvisioner,
}
ALL: Final = ",".join(CONTROLLERS)


def chosen(text: str) -> list[ControllerName]:
    """The controllers that ``--controllers`` names. Raises ``ValueError`` for an unknown name."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = sorted(set(names) - CONTROLLERS.keys())
    if unknown or not names:
        what = f"{unknown[0]!r} is none" if unknown else "none is named"
        raise ValueError(f"--controllers: {what}; there are {', '.join(CONTROLLERS)}")
    return [name for name in get_args(ControllerName) if name in names]


def rights(names: Iterable[ControllerName]) -> frozenset[Grant]:
    """The API calls that a process with these controllers may make."""
    found = set(ACCESS["controllers"])
    for name in names:
        found |= ACCESS[name]
    return frozenset(found)
