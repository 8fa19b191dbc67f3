"""Times in a snapshot: when pod groups may evict, run times, reservations, and bounds on waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kai_cp_models.fairness.runtime import delayed
from kai_cp_models.pods import GroupKey
from kai_cp_models.records.notes import Stored
from kai_cp_models.reservations.bounds import WaitBound, wait_bounds
from kai_cp_models.reservations.times import NEVER, Times
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import PodGroup, Snapshot


def delay_seconds(snapshot: Snapshot, group: PodGroup) -> float | None:
    """Seconds left before a pod group may trigger evictions (4.1); None: it may now."""
    return delayed(snapshot, group)


class RunTimes:
    """Run times, ends and reservations as pod groups and queues declare them (12.1)."""

    def __init__(self, snapshot: Snapshot, settings: Settings) -> None:
        self._times = Times(snapshot, settings)

    def expected(self, group: PodGroup) -> float | None:
        """Seconds that a pod group runs, as declared; None where nothing is declared."""
        return self._times.expected(group)

    def end(self, key: GroupKey) -> float | None:
        """When a running pod group ends, in seconds since the epoch; None: unknown."""
        found = self._times.end(key)
        return None if found == NEVER else found

    def stored(self) -> list[tuple[PodGroup, Stored]]:
        """The reservations that pod groups carry and that can be read, the earliest start first."""
        times = self._times
        held = [(group, stored) for group in times.snapshot.groups if (stored := times.stored(group.key))]
        return sorted(held, key=lambda entry: (entry[1].start, entry[0].key))

    def wait_bounds(self) -> Mapping[GroupKey, WaitBound]:
        """How long each waiting pod group can wait at most; nothing where aging or reservations are off."""
        return wait_bounds(self._times)


def asking_to_reserve(snapshot: Snapshot, key: GroupKey) -> Snapshot:
    """The snapshot in which a pod group asks for a start in the future, whatever its annotations say."""

    def asking(group: PodGroup) -> PodGroup:
        return replace(group, notes=replace(group.notes, reserve=True))

    return replace(snapshot, groups=tuple(asking(one) if one.key == key else one for one in snapshot.groups))
