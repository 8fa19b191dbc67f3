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
from kai_cp_models.snapshot import PodGroup, Shares, Snapshot

LevelBound = Literal["quota", "fair_share", "allocatable"]
CheckedBounds = tuple[float | None, float | None, float | None]
"""What a queue may hold, in the units of ``CheckedAmounts``; None: any amount."""
_NOISE = 1e-6
_SCALE = (1.0, 1.0, float(MILLI))


@dataclass
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
        most = self.bounds[bound][resource]
        return most is not None and amount > most + _NOISE

    def under(self, resource: int, amount: float, bound: LevelBound) -> bool:
        """Whether an amount is strictly below a finite bound."""
        most = self.bounds[bound][resource]
        return most is not None and amount < most - _NOISE

    def exceeds(self, total: CheckedAmounts, bound: LevelBound) -> bool:
        """Whether a total exceeds a bound in at least one resource."""
        return any(self.over(i, amount, bound) for i, amount in enumerate(total))

    def within(self, total: CheckedAmounts, bound: LevelBound) -> bool:
        """Whether a total is within a bound in all resources."""
        return not self.exceeds(total, bound)

    def shares(self, resource: int) -> bool:
        """Whether the queue has a fair share of a resource at all."""
        share = self.bounds["fair_share"][resource]
        return share is not None and share > 0

    def ratio(self, resource: int, amount: float) -> float:
        """Saturation: an amount relative to the fair share."""
        share = self.bounds["fair_share"][resource]
        if share is None:
            return 0.0
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
        placed = [world.pod(k) for k in world.added if world.earlier(world.placed[k].action, "reclaim")]
        gone = [world.pod(k) for k in world.lost if world.earlier(world.evictions[k].action, "reclaim")]
        return Levels(world.start, *sums(world, placed, gone))

    def __getitem__(self, queue: str) -> QueueLevel:
        return self._levels[queue]

    def charge(self, group: PodGroup, amount: CheckedAmounts, sign: int) -> None:
        """Add or take an amount at a group's queue and all above it."""
        for name in self._snapshot.queue_path.get(group.queue, ()):
            level = self._levels[name]
            change = amounts.plus if sign > 0 else amounts.minus
            level.held = change(level.held, amount)
            if not group.preemptible:
                level.firm = change(level.firm, amount)


def levelled(snapshot: Snapshot, mine: str, theirs: str) -> tuple[str, str]:
    """The first queues that differ on the way down to two leaf queues."""
    left, right = reversed(snapshot.queue_path[mine]), reversed(snapshot.queue_path[theirs])
    return next((a, b) for a, b in zip(left, right, strict=False) if a != b)


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
        None if x == UNLIMITED else x * scale for x, scale in zip(shares, _SCALE, strict=True)
    )
    return cpu, memory, gpu


def _bound(resource: int, value: float | None) -> str:
    return "unlimited" if value is None else amounts.number(resource, value)
