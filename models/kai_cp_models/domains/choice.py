"""Topology domains: where a constrained subtree may go, and in which order to try (8.3, 8.4).

A subtree with a required level goes into one domain of that level. A preferred level is tried first, then
ever wider levels.

Two tests tell whether a domain may have enough free capacity. KAI's estimate (8.3 steps 2 and 3) judges the
batch by its element-wise largest pod; it orders the candidates, but can refuse what fits. The bound of
``DomainCapacity.may_fit`` never does. Domains that only the bound admits come last, so a failure message is a
proof for the given ``free``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Floats, Ints, Mask
from kai_cp_models.domains.capacity import Demand, DomainCapacity
from kai_cp_models.domains.tree import TopologyTree
from kai_cp_models.pods import Pod
from kai_cp_models.snapshot import TopologyConstraint


@dataclass(frozen=True)
class Candidates:
    """Where a batch may go. ``domains``: (level, domain) in the order to try; empty with a ``message``.

    ``score``: [N] the topology score of every node (8.4), NaN for nodes that have none; None without a
    preferred level.
    """

    tree: TopologyTree
    valid: Mask
    domains: tuple[tuple[int, int], ...] = ()
    score: Floats | None = None
    message: str = ""

    @property
    def masks(self) -> Iterator[Mask]:
        """[N] nodes of every candidate, in the order to try; computed on demand."""
        for level, index in self.domains:
            yield (self.tree.domain[level] == index) & self.valid


def candidates(
    tree: TopologyTree,
    constraint: TopologyConstraint,
    pods: Sequence[Pod],
    node_mask: Mask,
    free: Ints,
    *,
    shared_free: NDArray[np.float64],
    active_nodes: Ints,
) -> Candidates:
    """Candidate domains for ``pods``, the batch of one constrained subtree (8.3).

    ``free``: [N, D] once everything releasing is gone. ``shared_free``: [N] free portions of joinable shared
    GPUs, in devices. ``active_nodes``: nodes of the active-allocated pods of the whole subtree; a required
    level is pinned to their domains.
    """
    valid: Mask = node_mask & tree.member
    required, preferred = tree.level_of(constraint.required), tree.level_of(constraint.preferred)
    if required is None or preferred is None:
        unknown = constraint.required if required is None else constraint.preferred
        return Candidates(tree, valid, message=f"topology {tree.name} has no level {unknown}")
    start = max(required, preferred)
    if start == 0:
        return Candidates(tree, valid, message=f"topology {tree.name}: the constraint names no level")
    if not pods or not valid.any():
        return Candidates(
            tree, valid, message=f"topology {tree.name}: no usable node has the labels of all its levels"
        )
    room = DomainCapacity(tree, valid, Demand.of(pods), free, shared_free)
    common = room.common_level(start)
    eligible = room.eligible(required, active_nodes)
    strict: list[tuple[int, int]] = []
    loose: list[tuple[int, int]] = []
    ranks = room.ranks(start)
    for level in range(start, max(required, common) - 1, -1):
        allowed = room.present(level) & eligible[level]
        may_fit = room.may_fit(level) & allowed
        fits = room.fits(level) & may_fit
        order = np.argsort(ranks[level], kind="stable")
        strict += zip(repeat(level), order[fits[order]].tolist())
        loose += zip(repeat(level), order[(may_fit & ~fits)[order]].tolist())
    score = room.score(ranks[preferred], preferred, min(common, preferred)) if preferred else None
    if not strict and not loose:
        level = max(required, common) if required else common
        pinned = bool(required) and len(active_nodes) > 0
        return Candidates(tree, valid, score=score, message=room.failure(level, eligible[level], pinned))
    return Candidates(tree, valid, (*strict, *loose), score)
