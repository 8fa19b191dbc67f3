"""Queue levels: what every queue holds and may hold while reclaim is judged (3.1, 4.4).

Only the division of the cluster into fair shares is taken from the engine; it is not what this module checks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kai_cp_models.check import amounts
from kai_cp_models.check.amounts import CheckedAmounts
from kai_cp_models.check.planned_cluster import PlannedCluster
from kai_cp_models.check.queues import sums
from kai_cp_models.check.snapshot_facts import HeldByQueue, SnapshotFacts
from kai_cp_models.pods import MILLI, UNLIMITED
from kai_cp_models.snapshot import Shares

LevelBound = Literal["quota", "fair_share", "allocatable"]
CheckedBounds = tuple[float, float, float]
"""What a queue may hold, in the units of ``CheckedAmounts``; infinite: any amount."""
_NOISE = 1e-6
_SCALE = (1.0, 1.0, float(MILLI))


@dataclass(eq=False)
class QueueLevel:
    """One queue: what it holds, and its bounds."""

    name: str
    held: CheckedAmounts
    firm: CheckedAmounts
    """Held by non-preemptible pod groups."""
    bounds: Mapping[LevelBound, CheckedBounds]
    user: bool = False
    """Whether it is the queue of a user; only the queues above it bound non-preemptible work (3.7)."""

    def over(self, resource: int, amount: float, bound: LevelBound) -> bool:
        """Whether an amount exceeds a bound."""
        return amount > self.bounds[bound][resource] + _NOISE

    def under(self, resource: int, amount: float, bound: LevelBound) -> bool:
        """Whether an amount is strictly below a finite bound."""
        return amount < self.bounds[bound][resource] - _NOISE < math.inf

    def exceeds(self, total: CheckedAmounts, bound: LevelBound) -> bool:
        """Whether a total exceeds a bound in at least one resource."""
        cpu, memory, gpu = self.bounds[bound]
        return total[0] > cpu + _NOISE or total[1] > memory + _NOISE or total[2] > gpu + _NOISE

    def within(self, total: CheckedAmounts, bound: LevelBound) -> bool:
        """Whether a total is within a bound in all resources."""
        return not self.exceeds(total, bound)

    def shares(self, resource: int) -> bool:
        """Whether the queue has a fair share of the resource that is neither zero nor unlimited."""
        return 0 < self.bounds["fair_share"][resource] < math.inf

    def ratio(self, resource: int, amount: float) -> float:
        """Saturation: an amount relative to the fair share."""
        share = self.bounds["fair_share"][resource]
        if share == 0:
            return math.inf if amount > 0 else 0.0
        return amount / share

    def described(self) -> str:
        """Held, quota and fair share in words."""
        parts = []
        for i, name in enumerate(amounts.NAMES):
            quota, share = (self.bounds[b][i] for b in ("quota", "fair_share"))
            bounds = f"quota {_bound(i, quota)}, fair share {_bound(i, share)}"
            parts.append(f"{name} {amounts.number(i, self.held[i])} ({bounds})")
        return "holds " + ", ".join(parts)


class Levels:
    """All queues, with what they hold so far."""

    def __init__(self, start: SnapshotFacts, total: HeldByQueue, firm: HeldByQueue) -> None:
        self._snapshot = snapshot = start.snapshot
        self._levels: dict[str, QueueLevel] = {}
        self._pairs: dict[tuple[str, str], tuple[QueueLevel, QueueLevel]] = {}
        shares = start.fair_shares
        for queue in snapshot.queues:
            share = shares[queue.name]
            bounds: dict[LevelBound, CheckedBounds] = {
                "quota": _scaled(queue.quota),
                "fair_share": _scaled(share),
                "allocatable": _scaled(_allocatable(queue.quota, queue.limit, share)),
            }
            self._levels[queue.name] = QueueLevel(
                queue.name, total[queue.name], firm[queue.name], bounds, bool(queue.user)
            )

    @staticmethod
    def before_reclaim(world: PlannedCluster) -> Levels:
        """Totals when reclaim starts: those of the snapshot, changed by the actions before it."""
        before = {action for action in world.turns if world.earlier(action, "reclaim")}
        gone = [world.pod(key) for key, one in world.evictions.items() if one.action in before]
        # A share by memory may cost more or less on the node to which it moves.
        moved = [pod for pod in gone if pod.key in world.placed and world.placed[pod.key].action in before]
        placed = (part for (_, action), part in world.added_held.items() if action in before)
        held = sums(world, world.start.held, *placed, arriving=moved, leaving=gone)
        return Levels(world.start, *held)

    def __getitem__(self, queue: str) -> QueueLevel:
        return self._levels[queue]

    def levelled(self, mine: str, theirs: str) -> tuple[QueueLevel, QueueLevel]:
        """The first queues that differ on the way down to two leaf queues."""
        pair = mine, theirs
        if pair not in self._pairs:
            left, right = (reversed(self._snapshot.queue_path[name]) for name in pair)
            one, other = next((a, b) for a, b in zip(left, right, strict=False) if a != b)
            self._pairs[pair] = self._levels[one], self._levels[other]
        return self._pairs[pair]

    def charge(self, queue: str, preemptible: bool, amount: CheckedAmounts, sign: int) -> None:
        """Add or take an amount at a leaf queue and all above it."""
        for name in self._snapshot.queue_path.get(queue, ()):
            level = self._levels[name]
            change = amounts.plus if sign > 0 else amounts.minus
            level.held = change(level.held, amount)
            if not preemptible:
                level.firm = change(level.firm, amount)


def _allocatable(quota: Shares, limit: Shares, fair_share: Shares) -> Shares:
    """How much a queue may hold undisturbed (3.1)."""
    found = []
    for deserved, most, share in zip(quota, limit, fair_share, strict=True):
        if deserved == UNLIMITED:
            found.append(most)
        else:
            larger = max(deserved, share)
            found.append(larger if most == UNLIMITED else min(most, larger))
    return Shares(*found)


def _scaled(shares: Shares) -> CheckedBounds:
    cpu, memory, gpu = (
        math.inf if x == UNLIMITED else x * scale for x, scale in zip(shares, _SCALE, strict=True)
    )
    return cpu, memory, gpu


def _bound(resource: int, value: float) -> str:
    return "unlimited" if value == math.inf else amounts.number(resource, value)
