"""When running groups end, how long waiting groups will run, and which groups may hold capacity (12.1,
12.8)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from kai_cp_models.extras import Key
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, Pod, PodStatus
from kai_cp_models.records.notes import NO_GROUP_NOTES, GroupNotes, QueueNotes, Stored
from kai_cp_models.reservations.inputs import Inputs
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import PodGroup, SetAside, Snapshot

NEVER: Final = math.inf
_ON_THE_WAY: Final = (PodStatus.BINDING, PodStatus.BOUND)


class Times:
    """Run times and wishes of the pod groups of one snapshot. Instants are seconds since the epoch.

    Every answer is a function of snapshot and settings; nothing is remembered between cycles.
    """

    def __init__(self, snapshot: Snapshot, settings: Settings) -> None:
        self.snapshot = snapshot
        self.settings = settings
        self.now = snapshot.now
        inputs = Inputs(snapshot, float(settings.reservations.horizon_seconds))
        self._queues: dict[str, QueueNotes] = {queue.name: inputs.queue(queue) for queue in snapshot.queues}
        self._groups: dict[GroupKey, GroupNotes] = {
            g.key: inputs.group(g) for g in snapshot.groups if g.notes is not NO_GROUP_NOTES
        }
        self.aside: tuple[SetAside, ...] = tuple(sorted(inputs.aside, key=lambda one: (one.item, one.reason)))
        self._ends: dict[GroupKey, float] = {}
        self._untils: dict[GroupKey, float] = {}
        self.occupancies: dict[object, object] = {}
        """What ``timeline`` has computed from these times, by bounds."""
        self.departures: dict[Any, Any] = {}
        """The results of ``leaving``, by starts."""
        self.charges: list[tuple[PodGroup, float, tuple[int, int, int]]] | None = None
        """Running groups that no cycle has touched, with their ends and what they cost their queues."""
        self.windows: dict[Any, Mapping[GroupKey, Any]] = {}
        """How ``state`` counts each group in held capacity, by the holders."""

    def notes(self, key: GroupKey) -> GroupNotes:
        """What the annotations of the group say."""
        return self._groups.get(key, NO_GROUP_NOTES)

    def _queue_notes(self, group: PodGroup) -> Iterator[QueueNotes]:
        """What the annotations of its queues say, the nearest queue first."""
        for name in self.snapshot.queue_path.get(group.queue, ()):
            yield self._queues[name]

    def _maximum(self, group: PodGroup) -> float:
        """The smallest maximum of the group and its queues; infinite without one."""
        said = [self.notes(group.key).maximum, *(queue.maximum for queue in self._queue_notes(group))]
        return min((one for one in said if one is not None), default=NEVER)

    def _queue_maximum(self, group: PodGroup) -> float:
        said = (queue.maximum for queue in self._queue_notes(group))
        return min((one for one in said if one is not None), default=NEVER)

    def _deadline(self, group: PodGroup) -> float:
        """The largest deadline of its pods: one without any may stay forever."""
        pods = self.snapshot.members[group.key]
        return max((_deadline_of(pod) for pod in pods), default=NEVER)

    def limit(self, group: PodGroup) -> float:
        """Seconds after which the group has certainly ended (D); infinite without a hard limit."""
        hard = self._deadline(group)
        return min(hard, self._maximum(group)) if self.settings.max_runtime.enforce else hard

    def expected(self, group: PodGroup) -> float | None:
        """Seconds that the group is expected to run, as far as declared (E)."""
        found = self._said(group)
        if found is None:
            return None
        own = self.notes(group.key).maximum
        longest = float(self.settings.time.longest_runtime_seconds)
        return min(found, self.limit(group), NEVER if own is None else own, longest)

    def _said(self, group: PodGroup) -> float | None:
        notes = self.notes(group.key)
        if notes.expected is not None:
            return notes.expected
        own = min(NEVER if notes.maximum is None else notes.maximum, self._deadline(group))
        if own < NEVER:
            return own
        for queue in self._queue_notes(group):
            if queue.default is not None:
                return queue.default
        if self.settings.time.default_runtime_seconds > 0:
            return float(self.settings.time.default_runtime_seconds)
        above = self._queue_maximum(group)
        return above if above < NEVER else None

    def _active(self, group: PodGroup) -> list[Pod]:
        return [pod for pod in self.snapshot.members[group.key] if pod.status in ACTIVE_ALLOCATED]

    def _started(self, group: PodGroup) -> list[float]:
        """When its running pods started, as far as the kubelet has said."""
        return [pod.started for pod in self._active(group) if pod.started is not None]

    def runs(self, group: PodGroup) -> bool:
        """Whether any pod of the group holds a place."""
        return any(pod.status in ACTIVE_ALLOCATED for pod in self.snapshot.members[group.key])

    def start(self, group: PodGroup) -> float:
        """When a running group started."""
        if group.last_start is not None and group.last_start <= self.now:
            return group.last_start
        return min(self._started(group), default=self.now)

    def began(self, group: PodGroup) -> float:
        """When a running group started at the latest: no later than its oldest pod, whatever is noted."""
        return min([self.start(group), *self._started(group)])

    def entered(self, group: PodGroup, pods: Iterable[Pod]) -> float:
        """When the last of these pods of a running group took its place; an annotation cannot claim a time
        before the pod started. A pod that has not started yet came now if its group was evicted, or the pod
        itself created, after the noted start."""
        start = self.start(group)

        def came(pod: Pod) -> float:
            noted = start >= max(pod.created, group.last_eviction or 0.0)
            unseen = start if noted or pod.status not in _ON_THE_WAY else self.now
            return unseen if pod.started is None else pod.started

        return max([start, *map(came, pods)])

    def end(self, key: GroupKey | None) -> float:
        """When the capacity of a running group is free again; infinite where unknown."""
        group = None if key is None else self.snapshot.group_by_key.get(key)
        if group is None:
            return NEVER
        found = self._ends.get(group.key)
        if found is None:
            found = self._ends[group.key] = self._end(group)
        return found

    def _end(self, group: PodGroup) -> float:
        start, expected = self.start(group), self.expected(group)
        soft = NEVER if expected is None else self._estimate(start, expected)
        lasts = (
            (self.now if pod.started is None else pod.started) + _deadline_of(pod)
            for pod in self._active(group)
        )
        hard = max(lasts, default=NEVER)
        if self.settings.max_runtime.enforce:
            hard = min(hard, start + self._maximum(group))
        end = min(soft, hard)
        return end if end == NEVER else max(self.now, end) + self.settings.time.margin_seconds

    def _estimate(self, start: float, expected: float) -> float:
        """The earliest start + E·2^k after now: an estimate that has passed doubles."""
        if start + expected > self.now:
            return start + expected
        if self.settings.time.overrun == "unknown":
            return NEVER
        doublings = max(0, math.floor(math.log2(max((self.now - start) / expected, 1.0))))
        while start + expected * 2.0**doublings <= self.now:
            doublings += 1
        return start + expected * 2.0**doublings

    def overdue(self, group: PodGroup) -> bool:
        """Whether the group has run for its enforced maximum; the kubelet enforces deadlines."""
        if not self.settings.max_runtime.enforce:
            return False
        return self.began(group) + self._maximum(group) <= self.now

    def requeue_delay_left(self, group: PodGroup) -> float:
        """Seconds that a group waits because its maximum ended it or ends it now; 0: none."""
        delay, ended = self.settings.max_runtime.requeue_delay_seconds, self.notes(group.key).ended
        if not self.settings.max_runtime.enforce or delay <= 0:
            return 0.0
        if self.runs(group) and self.overdue(group):
            return delay
        if group.last_eviction is None or group.last_eviction != ended:
            return 0.0
        return max(0.0, group.last_eviction + delay - self.now)

    @cached_property
    def unknown_ends(self) -> int:
        """Running groups without a known end."""
        return sum(self.runs(group) and self.end(group.key) == NEVER for group in self.snapshot.groups)

    def until(self, group: PodGroup) -> float:
        """Until when an ask that starts now counts in held capacity; infinite: it may use none (12.8)."""
        found = self._untils.get(group.key)
        if found is None:
            found = self._untils[group.key] = self._until(group)
        return found

    def _until(self, group: PodGroup) -> float:
        limit, expected = self.limit(group), self.expected(group)
        if self.settings.reservations.backfill == "none":
            return NEVER
        margin = self.settings.time.margin_seconds
        if group.preemptible and expected is not None:
            return self.now + min(limit, expected) + margin
        return self.now + limit + margin if limit < NEVER else NEVER

    def gives_way(self, group: PodGroup) -> bool:
        """Whether an ask without a run time may stay in held capacity until the start that needs it (12.8).

        A group for which a holder waits is not evicted at the start, so further pods of it do not stay there.
        """
        mode = self.settings.reservations.backfill
        waits = mode == "preemptible" and group.preemptible and self.until(group) == NEVER
        return waits and group.key not in self._awaited

    @cached_property
    def _awaited(self) -> frozenset[GroupKey]:
        """Groups whose ends holders wait for (12.5)."""
        found = (self.stored(group.key) for group in self.snapshot.waiting_groups)
        return frozenset().union(*(stored.beside for stored in found if stored is not None))

    def waited(self, group: PodGroup) -> float:
        """Seconds since the group was created or last evicted."""
        since = group.created if group.last_eviction is None else max(group.created, group.last_eviction)
        return self.now - since

    def asks_for_reservation(self, group: PodGroup) -> bool:
        """Whether the group wants a start in the future: it asks for one, or has waited long enough
        (12.1)."""
        wish = self.notes(group.key).reserve
        return self.waited(group) >= self.patience(group) if wish is None else wish

    def may_hold_since(self, group: PodGroup) -> float:
        """The earliest time from which the group could hold capacity; an annotation cannot claim an earlier
        one."""
        asked = self.notes(group.key).reserve is True
        return group.created if asked else self.now - self.waited(group) + self.patience(group)

    def patience(self, group: PodGroup) -> float:
        """Seconds after which a group holds capacity without asking: by its nearest queue, else by the
        settings."""
        after = next((q.after for q in self._queue_notes(group) if q.after is not None), None)
        if after is not None:
            return after
        seconds = self.settings.reservations.after_seconds
        return NEVER if seconds < 0 else float(seconds)

    def opted_out(self, group: PodGroup) -> bool:
        """Whether the group wants no reservation."""
        return self.notes(group.key).reserve is False

    def hero(self, group: PodGroup) -> bool:
        """Whether the group's queue gets offers of starts that evict other groups (6)."""
        if not self.settings.reservations.hero:
            return False
        return next((q.hero for q in self._queue_notes(group) if q.hero is not None), False)

    @property
    def drains(self) -> bool:
        """Whether places are closed until they are empty where no end is known (4.5)."""
        reservations = self.settings.reservations
        return reservations.enabled and reservations.without_ends == "drain"

    def due(self, key: GroupKey) -> Stored | None:
        """The readable reservation of the group; closed places count as one whose start has come."""
        closed = self.notes(key).closed
        if closed is None or not self.drains:
            return self.stored(key)
        return Stored(self.now, self.now, closed.made, closed.nodes, closed.beside)

    def stored(self, key: GroupKey) -> Stored | None:
        """The readable reservation of the group."""
        return self.notes(key).stored


def _deadline_of(pod: Pod) -> float:
    return NEVER if pod.deadline_seconds is None else pod.deadline_seconds


TIMES: Final[Key[Times | None]] = Key("time", None)
"""The run times of the cycle; None: the time axis is off."""
