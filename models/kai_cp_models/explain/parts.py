"""Coarser models of a large cluster: a part of its cells, and its sums.

What fits into a part fits into the whole, and what the sums refuse, the whole refuses. Both cost a fraction
of the whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from kai_cp_models.arrays import Ints
from kai_cp_models.explain.ask import AskClass
from kai_cp_models.explain.cells import Cells, Extent, Leaver, request_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GPU, MILLI


def part_of(ledger: Ledger, classes: Sequence[AskClass], cells: Cells, most: int) -> Cells:
    """The ``most`` cells that are most promising for the ask; all of them where there are no more."""
    if cells.exact or len(cells.nodes) <= most:
        return cells
    chosen = _promising(ledger, classes, cells, most)
    number = np.full(len(cells.nodes), -1, dtype=np.int64)
    number[chosen] = np.arange(len(chosen))
    leavers = tuple(
        replace(leaver, cell=int(number[leaver.cell])) for leaver in cells.leavers if number[leaver.cell] >= 0
    )
    nodes = tuple(cells.nodes[n] for n in chosen)
    return replace(
        cells, of=number[cells.of], nodes=nodes, leavers=leavers, room=cells.room[chosen], extent="part"
    )


def sums_of(ledger: Ledger, classes: Sequence[AskClass], cells: Cells, *, domains: bool) -> Cells:
    """Cells merged where no node rule separates them, with their total free capacity; with ``domains``, one
    for each domain in which the batch must be together.

    Parts of shared GPUs count as free, rounded up, and so does what a share gives back.
    """
    first = np.array([nodes[0] for nodes in cells.nodes])
    masks = [mask[first] for item in classes for mask in item.refused.values()]
    for item in classes if domains else ():
        for scope in item.scopes:
            inside, domain = ledger.fixed.table.domains_of(scope)
            masks.append((inside if domain is None else domain)[first])
    keys = np.array([np.zeros(len(first)), *masks], dtype=np.int64)
    _, number = np.unique(keys, axis=1, return_inverse=True)
    number = number.reshape(-1)
    room = cells.room.clip(min=0)
    room[:, GPU] += _spare(ledger)[first]
    total = np.zeros((number.max(initial=-1) + 1, room.shape[1]), dtype=np.int64)
    np.add.at(total, number, room)
    nodes: list[list[int]] = [[] for _ in total]
    for n, mine in enumerate(cells.nodes):
        nodes[number[n]] += mine
    found: dict[Hashable, Leaver] = {}
    for leaver in cells.leavers:
        cell = int(number[leaver.cell])
        request = _with_share(ledger, leaver)
        key = (
            cell,
            request,
            leaver.kept,
            leaver.fixed,
            leaver.level,
            leaver.below,
            leaver.own,
            leaver.placed_now,
            leaver.mover,
            leaver.holds,
        )
        same = found.get(key)
        if same is None:
            pods, holders = list(leaver.pods), list(leaver.holders)
            found[key] = replace(leaver, cell=cell, request=request, pods=pods, holders=holders)
        else:
            same.pods += leaver.pods
            same.holders += leaver.holders
    of = np.where(cells.of >= 0, number[cells.of], -1)
    leavers = tuple(found.values())
    extent: Extent = "domains" if domains else "sum"
    return replace(cells, of=of, nodes=tuple(map(tuple, nodes)), leavers=leavers, room=total, extent=extent)


def _with_share(ledger: Ledger, leaver: Leaver) -> tuple[int, ...]:
    """What a pod frees, with the parts of devices that a share gives back."""
    pod, request = leaver.pods[0], leaver.request
    place = ledger.place_of(pod)
    if not pod.spec.gpu.shares or place is None:
        return request
    total = int(ledger.fixed.table.gpu_memory_mib[place[0]])
    part = -(-MILLI * ledger.share_mib_on(pod, place[0]) // total) * pod.spec.gpu.devices
    return (*request[:GPU], request[GPU] + part, *request[GPU + 1 :])


def _promising(ledger: Ledger, classes: Sequence[AskClass], cells: Cells, most: int) -> list[int]:
    """At most ``most`` cells that are likely to serve the ask, in the order of their numbers.

    Cells where the ask fits once pods have left come first: pods that may leave, then pods that may leave if
    one family is relaxed, then all pods. The others are the cells with the most free GPUs, parts of shared
    ones included, where moved pods find their places. A gang that needs one domain gets cells of its best
    domains.
    """
    item = classes[0]
    first = np.array([nodes[0] for nodes in cells.nodes])
    sizes = np.array([len(nodes) for nodes in cells.nodes])
    free = ledger.free[first]
    gpus = sizes * (free[:, GPU] + _spare(ledger)[first])
    asked = np.array(request_of(item.example))
    accepted = ledger.fixed.table.accepting(item.example)[first]
    domains = [
        domain[first]
        for scope in item.scopes
        for _, domain in (ledger.fixed.table.domains_of(scope),)
        if domain is not None
    ]

    def by_promise(room: Ints, *, spare_first: bool) -> tuple[list[int], Ints]:
        fits = np.where(accepted, (room[:, asked > 0] // asked[asked > 0]).min(axis=1), -1)
        keys = [first, -fits, -gpus] if spare_first else [first, -gpus, -fits]
        for domain in domains:
            total = np.zeros(domain.max(initial=0) + 2, dtype=np.int64)
            np.add.at(total, domain, fits.clip(min=0) * sizes)
            keys += [domain, -total[domain]]
        return np.lexsort(keys).tolist(), fits.clip(min=0) * sizes

    found: dict[int, None] = {}
    rooms = _rooms(cells, free, sizes)
    for k, room in enumerate(rooms, start=1):
        order, fits = by_promise(room, spare_first=False)
        left = item.count
        for n in order:
            if left <= 0 or len(found) >= k * most // (len(rooms) + 1):
                break
            found.setdefault(n)
            left -= int(fits[n])
    order, _ = by_promise(free, spare_first=True)
    for n in order:
        if len(found) >= most:
            break
        found.setdefault(n)
    return sorted(found)


def _rooms(cells: Cells, free: Ints, sizes: Ints) -> list[Ints]:
    """[cells, D] free capacity of one node once pods have left: first the pods that no family protects, then
    those that one family protects, in turn, and last all pods.

    Where one family is relaxed, losses that a queue may suffer only in part do not count, unless that family
    limits them.
    """
    families = sorted({family for leaver in cells.leavers for family in leaver.kept})
    single = [frozenset((family,)) for family in families]
    relaxed = [frozenset[str](), *single, frozenset(families)]
    rooms = [free.copy() for _ in relaxed]
    for leaver in cells.leavers:
        each = np.array(leaver.request) * leaver.count // sizes[leaver.cell]
        for off, room in zip(relaxed, rooms, strict=True):
            partly = leaver.level is not None and off in single and "fair-share" not in off
            moves = leaver.fixed is not None and leaver.fixed <= off
            if moves or (leaver.kept <= off and not partly):
                room[leaver.cell] += each
    return rooms


def _spare(ledger: Ledger) -> Ints:
    """[N] parts of shared GPUs that are free, in milli-GPUs, rounded up."""
    found: Ints = np.zeros(len(ledger.idle), dtype=np.int64)
    for node, there in ledger.devices.items():
        total = int(ledger.fixed.table.gpu_memory_mib[node])
        for device in there.values():
            found[node] += -(-MILLI * max(0, device.free_mib(total, now=False)) // total)
    return found
