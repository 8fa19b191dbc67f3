"""Claimed devices as linear rows: pods that enter a node take no more devices than are free there, and pods
that share a claim go to nodes that can use one allocation."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.pods import PodKey
from kai_cp_models.records.devices import ALL, Wanted
from kai_cp_models.rules.stateful.dra.catalog import Catalog
from kai_cp_models.rules.stateful.protocol import Row

RequestRows = tuple[Wanted, ...]
_MOST_SETS: Final = 32
"""The most sets of devices that get a row for every node."""
Site = frozenset[int]
"""The nodes that can use one allocation."""


class SharedClaim(NamedTuple):
    """A claim of several pods.

    ``users``: the classes of the pods that enter, ``most`` of them in all. ``sites``: the pods enter one of
    these. ``requests``: those that take free devices wherever the pods go. ``kept``: the site of the present
    allocation, which stays as long as one of the ``holders`` does; {}: an allocation that cannot leave.
    """

    name: Hashable
    users: Sequence[int]
    most: int
    sites: frozenset[Site]
    requests: Sequence[RequestRows] = ()
    kept: Site = Site()
    holders: Sequence[Mapping[PodKey, int]] = ()

    def chosen(self, coefficient: int, among: frozenset[Site] | None = None) -> dict[Hashable, int]:
        """A coefficient for the choice of each site; ``among``: only for these."""
        found = self.sites if among is None else self.sites & among
        return {(self.name, site): coefficient for site in found}

    def rows(self, nodes: Sequence[int]) -> Iterator[Row]:
        """Its users enter one of its sites."""
        at: dict[int, set[Site]] = {}
        for site in self.sites:
            for node in site:
                at.setdefault(node, set()).add(site)
        for node in nodes:
            here = self.chosen(-self.most, frozenset(at.get(node, ())))
            yield Row({(c, node): 1 for c in self.users}, 0, name="dra", chosen=here)
        yield Row({}, 1, name="dra", chosen=self.chosen(1))
        for holder in self.holders:
            yield Row({}, 0, holder, "dra", self.chosen(1, self.sites - {self.kept}))


def sites(catalog: Catalog, requests: Sequence[RequestRows]) -> frozenset[Site]:
    """The sites of a claim, from the request whose devices reach the fewest nodes; none: unknown."""
    found: list[frozenset[Site]] = []
    for ways in requests:
        if all(map(catalog.usable, ways)):
            fits: Mask = np.logical_or.reduce([catalog.satisfying(wanted) for wanted in ways])
            reached = [Site((n,)) for n in np.unique(catalog.node_of[fits]).tolist() if n >= 0]
            for i, reach in catalog.reach.items():
                if fits[i]:
                    nodes = np.flatnonzero(reach).tolist()
                    bound = catalog.devices[i].binds_to_node
                    reached += [Site((n,)) for n in nodes] if bound else [Site(nodes)]
            found.append(frozenset(reached))
    return min(found, key=lambda each: max(map(len, each), default=0), default=frozenset())


def rows(
    catalog: Catalog,
    wants: Sequence[Sequence[RequestRows]],
    shared: Sequence[SharedClaim],
    nodes: Sequence[int],
    *,
    free: Mask,
    releases: Mapping[PodKey, Sequence[int]],
) -> Iterator[Row]:
    """For every set of devices that some request accepts: the requests within the set take at most its free
    devices.

    Unions of overlapping sets get rows too: the devices suffice if and only if they suffice for every such
    union.

    ``wants``: open requests per class; ``releases``: devices that an eviction frees. Only requests with one
    alternative over unshareable devices are counted, those of a shared claim once.
    """
    shareable = np.array([device.view.shareable for device in catalog.devices], dtype=np.bool_)
    counted: list[tuple[int, int, Mask]] = []
    for c, requests in enumerate([*wants, *(claim.requests for claim in shared)]):
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
        each = {c: n for c, n in need.items() if c < len(wants)}
        once = [(shared[c - len(wants)], n) for c, n in need.items() if c >= len(wants)]
        available = catalog.per_node(devices & free)
        for node in nodes:
            here = frozenset((Site((node,)),))
            chosen = dict(chain.from_iterable(claim.chosen(n, here).items() for claim, n in once))
            leaving = _leaving(catalog, releases, devices, node)
            yield Row({(c, node): n for c, n in each.items()}, int(available[node]), leaving, "dra", chosen)
        if catalog.reach:
            total = int(np.count_nonzero(devices & free))
            entering = {(c, node): n for c, n in each.items() for node in nodes}
            chosen = dict(chain.from_iterable(claim.chosen(n).items() for claim, n in once))
            yield Row(entering, total, _leaving(catalog, releases, devices, None), "dra", chosen)


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
