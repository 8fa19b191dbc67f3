"""Cells and leavers: nodes that the question cannot tell apart, and equal pods that may leave them.

In a small cluster every node and every eviction unit counts by itself, so the answer is exact. In a large
one equal nodes form one cell, and equal pods of a cell are counted. A gang then counts as single pods, which
allows more than the rules do, never less.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.explain.ask import AskClass
from kai_cp_models.explain.families import Families
from kai_cp_models.explain.holders import VictimUnit
from kai_cp_models.fairness.amounts import NOTHING, Amounts
from kai_cp_models.joint.victim_candidates import charged
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GPU, Pod, PodKey, PodSpec
from kai_cp_models.snapshot import Subgroup

MOST_NODES: Final = 64
MOST_HOLDERS: Final = 400
"""The largest size at which every node and every eviction unit is modelled by itself."""


Extent = Literal["whole", "part", "domains", "sum"]
"""``part``: cells where nothing enters or leaves are left out, which allows less than the rules do. Sums over
unlike nodes allow more: ``domains`` keeps nodes apart that rules for nodes and domains tell apart, ``sum``
ignores topology."""


@dataclass
class Leaver:
    """Pods of one cell that may leave on equal terms. ``holders``: positions of their units, one each.

    ``request``: what one of them frees on its node. ``holds``: what its queue is charged for it. ``below``:
    the bounded queues on the asker's path that count it. ``own``: it is in the asker's own queue.
    """

    cell: int
    kept: Families
    fixed: Families | None
    request: tuple[int, ...]
    holds: Amounts
    below: tuple[str, ...]
    own: bool
    level: str | None
    placed_now: bool
    mover: int | None
    pods: list[Pod] = field(default_factory=list)
    holders: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many pods."""
        return len(self.pods)


@dataclass
class Mover:
    """Where pods of one spec may move: static rules, and the topology that pins them."""

    example: Pod
    mask: Mask


@dataclass(frozen=True)
class Cells:
    """The partition. ``of``: [N] cell of every node, -1 outside; ``nodes``: those of every cell."""

    of: Ints
    nodes: tuple[tuple[int, ...], ...]
    leavers: tuple[Leaver, ...]
    movers: tuple[Mover, ...]
    room: Ints
    """[cells, D] what is free on all nodes of every cell together."""
    exact: bool
    """Whether every node and every unit is modelled by itself."""
    extent: Extent = "whole"

    @property
    def summed(self) -> bool:
        """Whether only the total capacity of the nodes of a cell counts."""
        return self.extent in ("domains", "sum")

    @property
    def leaver_of(self) -> dict[PodKey, int]:
        """The leaver of each pod that may go."""
        return {pod.key: i for i, leaver in enumerate(self.leavers) for pod in leaver.pods}


def request_of(pod: Pod) -> tuple[int, ...]:
    """What a pod is charged on its node; shares are charged on their devices."""
    requests = pod.spec.requests
    if pod.spec.gpu.shares or pod.reservation:
        return (*requests[:GPU], 0, *requests[GPU + 1 :])
    return requests


def partition(
    ledger: Ledger,
    classes: Sequence[AskClass],
    holders: Sequence[VictimUnit],
    *,
    queue: str,
    bounded: Sequence[str],
    apart: bool,
) -> Cells:
    """The cells for an ask of ``queue``.

    ``bounded``: queues on its path whose limit or quota matters. ``apart``: nodes are distinguished whatever
    their number (stateful rules, shares).
    """
    exact = len(ledger.idle) <= MOST_NODES and len(holders) <= MOST_HOLDERS
    movers: list[Mover] = []
    drafts = _drafts(ledger, holders, movers, queue, bounded, exact=exact)
    if exact or apart:
        of: Ints = np.arange(len(ledger.idle))
        nodes: tuple[tuple[int, ...], ...] = tuple((n,) for n in range(len(of)))
    else:
        of, nodes = _cells(ledger, classes, drafts, movers)
    found: dict[Hashable, Leaver] = {}
    for key, leaver in drafts.items():
        leaver.cell = int(of[leaver.cell])
        merged: Hashable = key if exact else (*key[1:], leaver.cell)
        if merged in found:
            found[merged].pods += leaver.pods
            found[merged].holders += leaver.holders
        else:
            found[merged] = leaver
    first = [mine[0] for mine in nodes]
    sizes = np.array([len(mine) for mine in nodes], dtype=np.int64)
    room = ledger.free[first] * sizes[:, None]
    return Cells(of, nodes, tuple(found.values()), tuple(movers), room, exact)


def _drafts(
    ledger: Ledger,
    holders: Sequence[VictimUnit],
    movers: list[Mover],
    queue: str,
    bounded: Sequence[str],
    *,
    exact: bool,
) -> dict[tuple[Hashable, ...], Leaver]:
    """Leavers by node; ``cell`` is the node for now."""
    numbers: dict[Hashable, int] = {}
    requests: dict[PodSpec, tuple[int, ...]] = {}
    paths = ledger.snapshot.queue_path
    found: dict[tuple[Hashable, ...], Leaver] = {}
    for u, holder in enumerate(holders):
        root = holder.group.root
        above = paths.get(holder.group.queue, ())
        below = tuple(name for name in bounded if name in above)
        for pod in holder.pods:
            place = ledger.place_of(pod)
            if place is None:
                continue
            node = place[0]
            mover = _mover(ledger, holder, pod, node, root, numbers=numbers, movers=movers)
            request = requests.get(pod.spec)
            if request is None or pod.reservation:
                request = requests[pod.spec] = request_of(pod)
            share = pod.key if pod.spec.gpu.shares else None
            holds = charged(ledger, (pod,)) if below or holder.level is not None else NOTHING
            key = (
                node if not exact else (node, pod.key),
                request,
                share,
                holder.kept,
                holder.fixed,
                holder.level,
                below,
                holder.group.queue == queue,
                holder.placed_now,
                mover,
                holds,
            )
            leaver = found.get(key)
            if leaver is None:
                leaver = found[key] = Leaver(
                    node,
                    holder.kept,
                    holder.fixed,
                    request,
                    holds,
                    below,
                    holder.group.queue == queue,
                    holder.level,
                    holder.placed_now,
                    mover,
                )
            leaver.pods.append(pod)
            leaver.holders.append(u)
    return found


def _mover(
    ledger: Ledger,
    holder: VictimUnit,
    pod: Pod,
    node: int,
    root: Subgroup,
    *,
    numbers: dict[Hashable, int],
    movers: list[Mover],
) -> int | None:
    """The mover of a pod, None where it cannot be moved."""
    if holder.fixed is None:
        return None
    table = ledger.fixed.table
    scopes = root.scopes_of(pod.subgroup or "default")
    domains = (table.domains_of(scope)[1] for scope in scopes)
    pinned = (None if domain is None else int(domain[node]) for domain in domains)
    key = (pod.spec, *zip((scope.constraint for scope in scopes), pinned, strict=True))
    number = numbers.get(key)
    if number is None:
        number = numbers[key] = len(movers)
        movers.append(Mover(pod, table.accepting(pod) & table.inside(scopes, node)))
    return number


def _cells(
    ledger: Ledger,
    classes: Sequence[AskClass],
    drafts: dict[tuple[Hashable, ...], Leaver],
    movers: Sequence[Mover],
) -> tuple[Ints, tuple[tuple[int, ...], ...]]:
    """Nodes that are equal in free capacity, refusals, domains and leavers."""
    free = ledger.free
    masks = [mask for item in classes for mask in item.refused.values()] + [m.mask for m in movers]
    bits = np.packbits(np.array(masks, dtype=bool).reshape(len(masks), len(free)), axis=0)
    domains = [
        domain if domain is not None else inside.astype(np.int64)
        for item in classes
        for scope in item.scopes
        for inside, domain in (ledger.fixed.table.domains_of(scope),)
    ]
    where = np.array(domains, dtype=np.int64).reshape(len(domains), len(free))
    profile: dict[int, list[tuple[int, int]]] = {}
    kinds: dict[Hashable, int] = {}
    for key, leaver in drafts.items():
        kind = kinds.setdefault(key[1:], len(kinds))
        profile.setdefault(leaver.cell, []).append((kind, leaver.count))
    numbers: dict[Hashable, int] = {}
    members: list[list[int]] = []
    of = np.zeros(len(free), dtype=np.int64)
    for n in range(len(free)):
        alone = n if ledger.devices.get(n) else -1
        key = (
            alone,
            free[n].tobytes(),
            bits[:, n].tobytes(),
            where[:, n].tobytes(),
            tuple(sorted(profile.get(n, ()))),
        )
        of[n] = numbers.setdefault(key, len(numbers))
        if of[n] == len(members):
            members.append([])
        members[of[n]].append(n)
    return of, tuple(map(tuple, members))
