"""The most GPUs of a set of pods that fit on a set of nodes: column generation.

The master problem chooses how many nodes of each bin carry which pattern (a multiset of pods that fits one
node). A pattern enters when its value at the present prices exceeds its node's price. Prices give a valid
bound at any time (Lagrange): the worth of all pods at their price plus, per node, the most that a pattern
could still gain. The fluid relaxation gives the first bound and the first prices. The loop ends when bound
and master agree, or at the deadline.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from kai_cp_models.bounds.fluid import fluid_prices
from kai_cp_models.bounds.master import Master
from kai_cp_models.bounds.pricing import Pricing
from kai_cp_models.bounds.problem import WHOLE, Bin, BinItem

Pattern = tuple[int, ...]
"""Pods of each item on one node."""


@dataclass(frozen=True, slots=True)
class PackingBound:
    """``bound``: no placement uses more milli-GPUs. ``value``: that of the fractional master (<= bound).

    ``prices``: what one more pod of each item would be worth, in milli-GPUs.
    """

    bound: float
    value: float
    prices: tuple[float, ...]
    columns: int
    rounds: int

    @property
    def gap(self) -> float:
        """Relative distance of value and bound."""
        return (self.bound - self.value) / max(1.0, self.bound)


def packing_bound(
    items: Sequence[BinItem],
    bins: Sequence[Bin],
    *,
    seconds: float,
    gap: float = 1e-4,
    workers: int = 1,
    start: Sequence[tuple[int, Pattern]] = (),
) -> PackingBound:
    """Compute the bound on the milli-GPUs in use. ``start``: patterns known to fit, as (bin, pattern)."""
    end = time.monotonic() + seconds
    master = Master(items, bins)
    pricings = [Pricing(items, bins[b], b, workers) for b in range(len(bins))]
    known: set[tuple[int, Pattern]] = set()
    for b, pattern in start:
        if (b, pattern) not in known:
            known.add((b, pattern))
            master.add(b, pattern)
    trivial = float(sum(b.count * b.devices * WHOLE for b in bins))
    fluid = fluid_prices(items, bins, [item.count for item in items])
    best = min(trivial, float(sum(item.value * item.count for item in items)), fluid.value)
    rounds = 0
    value, prices = master.solve()
    centre = fluid.pods.tolist()
    while time.monotonic() < end:
        rounds += 1
        # Prices between the best ones so far and the master's: the master's own prices oscillate and stall.
        trial = [0.7 * c + 0.3 * p for c, p in zip(centre, prices, strict=True)]
        improved = False
        for point in (trial, prices):
            total = sum(price * item.count for price, item in zip(point, items, strict=True))
            added = 0
            for b, pricing in enumerate(pricings):
                left = (end - time.monotonic()) / (2 * len(bins))
                found = pricing.solve(point, max(0.05, min(5.0, left)))
                total += bins[b].count * found.bound
                for pattern in found.patterns:
                    if (b, pattern) not in known:
                        known.add((b, pattern))
                        master.add(b, pattern)
                        added += 1
            if total < best:
                best, centre, improved = total, point, True
            if added:
                break
        value, prices = master.solve()
        if best - value <= gap * best or (not added and not improved):
            break
    return PackingBound(best, value, tuple(centre), len(known), rounds)
