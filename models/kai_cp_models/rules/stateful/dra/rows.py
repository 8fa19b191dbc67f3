"""Device counts as linear rows: what enters a node may not take more devices than are free there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.pods import PodKey
from kai_cp_models.records.devices import ALL, Wanted
from kai_cp_models.rules.stateful.dra.catalog import Catalog
from kai_cp_models.rules.stateful.protocol import Row

RequestRows = tuple[Wanted, ...]
_MOST_SETS: Final = 32
"""The most sets of devices that get a row for every node."""


def rows(
    catalog: Catalog,
    wants: Sequence[Sequence[RequestRows]],
    nodes: Sequence[int],
    free: Mask,
    releases: Mapping[PodKey, Sequence[int]],
) -> Iterator[Row]:
    """For every set of devices that some request accepts, requests within it are at most its free devices.

    Unions of sets that overlap get rows too: devices suffice if and only if they suffice for every such
    union.

    ``wants``: open requests per class; ``releases``: devices that an eviction frees. Only requests
    with one alternative over unshareable devices are counted.
    """
    shareable = np.array([device.view.shareable for device in catalog.devices], dtype=np.bool_)
    counted: list[tuple[int, int, Mask]] = []
    for c, requests in enumerate(wants):
        for request in requests:
            fits = catalog.satisfying(request[0]) if catalog.usable(request[0]) else None
            if (
                len(request) == 1
                and fits is not None
                and not request[0].admin
                and not (fits & shareable).any()
            ):
                counted.append((c, 1 if request[0].mode == ALL else request[0].count, fits))
    for devices in _unions([fits for _, _, fits in counted]):
        inside = [(c, count) for c, count, fits in counted if not (fits & ~devices).any()]
        need: dict[int, int] = {}
        for c, count in inside:
            need[c] = need.get(c, 0) + count
        available = catalog.per_node(devices & free)
        for node in nodes:
            leaving = _leaving(catalog, releases, devices, node)
            yield Row({(c, node): n for c, n in need.items()}, int(available[node]), leaving, "dra")
        if catalog.reach:
            total = int(np.count_nonzero(devices & free))
            entering = {(c, node): n for c, n in need.items() for node in nodes}
            yield Row(entering, total, _leaving(catalog, releases, devices, None), "dra")


def _unions(sets: Sequence[Mask]) -> Sequence[Mask]:
    """The distinct sets, with the unions of those that overlap; at most ``_MOST_SETS``."""
    found = {devices.tobytes(): devices for devices in sets}
    queue = list(found.values())
    while queue and len(found) < _MOST_SETS:
        one = queue.pop()
        for other in list(found.values()):
            union = one | other
            if (one & other).any() and union.tobytes() not in found and len(found) < _MOST_SETS:
                found[union.tobytes()] = union
                queue.append(union)
    return list(found.values())


def _leaving(
    catalog: Catalog, releases: Mapping[PodKey, Sequence[int]], devices: Mask, node: int | None
) -> dict[PodKey, int]:
    """Devices of a set that each eviction frees on a node (None: anywhere)."""
    found = {
        pod: sum(bool(devices[i]) and (node is None or catalog.reaches(i, node)) for i in held)
        for pod, held in releases.items()
    }
    return {pod: count for pod, count in found.items() if count}
