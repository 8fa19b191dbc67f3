"""What holds capacity that a waiting pod group could use: units, and the families that keep each in place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kai_cp_models.explain.families import Families
from kai_cp_models.explain.situation import HeldUnit, Situation
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.reclaim import ResourceBounds, VictimFilter, can_reclaim, within_quotas
from kai_cp_models.fairness.runtime import delayed, granted, protected
from kai_cp_models.pods import GroupKey, Pod
from kai_cp_models.policy import ActionName
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.units import Batch


@dataclass(frozen=True, slots=True)
class VictimUnit:
    """One eviction unit (5.4) of a pod group that holds capacity.

    ``kept``: the families that each forbid to evict it. ``fixed``: the families that forbid to move it; None
    where it can never move. ``chain``: its position in its group. ``placed_now``: the cycle gave it its
    place. ``level``: the levelled queue whose due limits what it may lose; None where no queue does.
    """

    group: PodGroup
    pods: tuple[Pod, ...]
    chain: int
    kept: Families
    fixed: Families | None
    holds: Amounts
    placed_now: bool = False
    level: str | None = None


class Holders:
    """The holders that compete with one pod group."""

    def __init__(self, situation: Situation, group: PodGroup, batch: Batch | None) -> None:
        self._situation = situation
        self._snapshot = situation.snapshot
        self._ledger = situation.after
        self._group = group
        pods = batch.all_pods if batch is not None else ()
        self._asked = amounts.pessimistic_batch(self._snapshot, pods)
        self._served = situation.served_before(group.key)
        self._delayed = delayed(self._snapshot, group) is not None
        self._known = group.queue in self._snapshot.leaf_queues
        self._families: dict[tuple[object, ...], Families] = {}
        self._seconds: dict[str, float] = {}
        self._fixes: dict[bool, Families] = {}

    @cached_property
    def reclaim_bounds(self) -> dict[str, ResourceBounds]:
        """Per resource, what levelled queues must hold more than before a unit below them leaves (4.4)."""
        return dict(self._dues.values())

    @cached_property
    def _dues(self) -> dict[str, tuple[str, ResourceBounds]]:
        """By queue that the group may reclaim from, the levelled queue whose due limits what it loses."""
        book, mine, asked = self._ledger.book, self._group, self._asked
        if not self._known or can_reclaim(book, mine.queue, asked, mine.preemptible) is not None:
            return {}
        i, victims = book.index(mine.queue), VictimFilter(book)
        found = victims.victims(i, (asked,))
        may = sorted(map(book.name, book.tree.leaf_rows[found >= 0].tolist()))
        return victims.dues(i, within_quotas(book, mine.queue, asked), may)

    def all(self) -> list[VictimUnit]:
        """All of them, by pod group and in the order in which its units leave."""
        return [self._holder(unit) for unit in self._situation.units if unit.group.key != self._group.key]

    def _holder(self, unit: HeldUnit) -> VictimUnit:
        group = unit.group
        if unit.placed:
            before = group.key in self._served
            kept = frozenset(("order",)) if before else self._kept(group, whole=False)
            level = None if before else self._level(group.queue)
            fixed = frozenset[str]() if unit.placed == len(unit.pods) else None
            return VictimUnit(group, unit.pods, unit.chain, kept, fixed, unit.holds, True, level)
        kept = self._kept(group, whole=unit.whole)
        fixed = self._fixed(group.preemptible) if unit.movable else None
        level = self._level(group.queue)
        return VictimUnit(group, unit.pods, unit.chain, kept, fixed, unit.holds, False, level)

    def _level(self, queue: str) -> str | None:
        """The levelled queue whose due limits what a queue loses to the group (4.4); None where there is
        none."""
        return self._dues[queue][0] if queue in self._dues else None

    def _kept(self, group: PodGroup, *, whole: bool) -> Families:
        """The families that forbid to evict a running group for the asker (4.1, 4.3, 4.4, 4.6)."""
        same = group.queue == self._group.queue
        shielded = whole and self._protected(group)
        outranked = same and group.priority < self._group.priority
        key = ("kept", same or group.queue, outranked, group.preemptible, shielded)
        found = self._families.get(key)
        if found is None:
            found = self._families[key] = self._kept_by(group, same, outranked, shielded)
        return found

    def _kept_by(self, group: PodGroup, same: bool, outranked: bool, shielded: bool) -> Families:
        found = set()
        if same and not outranked:
            found.add("priority")
        if not same and self._known and group.queue not in self._dues:
            found.add("fair-share")
        if not group.preemptible:
            found.add("non-preemptible")
        if shielded:
            found.add("min-runtime")
        if self._delayed:
            found.add("delay")
        action = "preempt" if same else "reclaim"
        if action not in self._snapshot.policy.actions:
            found.add(f"action:{action}")
        return frozenset(found)

    def _protected(self, group: PodGroup) -> bool:
        if not self._known or group.queue not in self._snapshot.queue_by_name:
            return False
        seconds = self._seconds.get(group.queue)
        if seconds is None:
            action: ActionName = "preempt" if group.queue == self._group.queue else "reclaim"
            seconds = granted(self._snapshot, group.queue, action, self._group.queue)
            self._seconds[group.queue] = seconds
        return protected(self._snapshot, group, seconds)

    def _fixed(self, preemptible: bool) -> Families:
        """The families that forbid to move a running group for the asker (4.5)."""
        known = self._fixes.get(preemptible)
        if known is None:
            known = self._fixes[preemptible] = self._fixed_by(preemptible)
        return known

    def _fixed_by(self, preemptible: bool) -> Families:
        policy = self._snapshot.policy
        found = set()
        if "consolidation" not in policy.actions:
            found.add("action:consolidation")
        spread = "spread" in (policy.gpu_strategy, policy.cpu_strategy)
        if spread or not self._group.preemptible or policy.max_consolidation_preemptees == 0:
            found.add("consolidation")
        if not preemptible:
            found.add("non-preemptible")
        if self._delayed:
            found.add("delay")
        return frozenset(found)


def groups_of(holders: list[VictimUnit]) -> dict[GroupKey, list[int]]:
    """Positions of the holders of each pod group, in the order in which they leave."""
    found: dict[GroupKey, list[int]] = {}
    for i, holder in enumerate(holders):
        found.setdefault(holder.group.key, []).append(i)
    return found
