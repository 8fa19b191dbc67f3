"""What holds room at the cycle's start: stored reservations that still stand, and what backfill owes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kai_cp_models.cycle import Cycle
from kai_cp_models.joint.problem import Ask
from kai_cp_models.reservations.gang import GangNeeds, shape_of, unsuited
from kai_cp_models.reservations.inputs import Stored
from kai_cp_models.reservations.instants import clock
from kai_cp_models.reservations.times import Times
from kai_cp_models.snapshot import (
    ACTIVE_ALLOCATED,
    ACTIVE_USED,
    GPU,
    MILLI,
    GroupKey,
    PodGroup,
    Reservation,
    Snapshot,
)
from kai_cp_models.units import Batch


@dataclass(frozen=True, eq=False)
class Holder:
    """A waiting gang with a stored reservation that it may still hold."""

    ask: Ask
    shape: GangNeeds
    stored: Stored

    @property
    def key(self) -> GroupKey:
        """The pod group."""
        return self.ask.group.key


def candidate(cycle: Cycle, times: Times, ask: Ask) -> GangNeeds | None:
    """The shape of an ask that may hold room: a whole gang, large enough, that wants to (12.1)."""
    group, settings = ask.group, times.settings.reservations
    if any(pod.status in ACTIVE_USED for pod in ask.gang.pods) or not times.asks_for_reservation(group):
        return None
    notes = times.notes(group.key)
    if notes.expired is not None and times.now < notes.expired + settings.max_overdue_seconds:
        return None
    if unsuited(cycle.ledger, ask):
        return None
    shape = shape_of(cycle.ledger, ask)
    if shape is None or shape.milli_gpus < settings.min_gpus * MILLI:
        return None
    return shape


def stored_holders(
    cycle: Cycle, times: Times, batches: Mapping[GroupKey, Batch]
) -> tuple[list[Holder], dict[GroupKey, Reservation]]:
    """Holders of earlier cycles in the order in which they began to hold, and those that are dropped."""
    snapshot, settings = cycle.snapshot, times.settings.reservations
    found: list[Holder] = []
    dropped: dict[GroupKey, Reservation] = {}
    for group in snapshot.groups:
        stored = times.stored(group.key)
        if stored is None or runs(snapshot, group):
            continue
        batch = batches.get(group.key)
        ask = None if batch is None else Ask(group, cycle.ledger.fixed.gangs[group.key], batch)
        shape = None if ask is None else candidate(cycle, times, ask)
        if times.now > stored.start + settings.max_overdue_seconds:
            text = f"its start was due at {clock(stored.start, times.now)} and is given up"
            dropped[group.key] = drop(group, stored, "Expired", text, expired=times.now)
        elif ask is None or shape is None:
            text = (
                "it asks for no reservation any more" if ask else "it does not wait as a whole gang any more"
            )
            dropped[group.key] = drop(group, stored, "OptedOut", text)
        else:
            found.append(Holder(ask, shape, stored))
    # A user may have written an early ``made``: it brings no group before the moment at which it might hold.
    since = {one.key: max(one.stored.made, times.may_hold_since(one.ask.group)) for one in found}
    found.sort(key=lambda holder: (since[holder.key], holder.key))
    for holder in found[settings.most :]:
        text = f"no more than {settings.most} pod groups may hold reservations"
        dropped[holder.key] = drop(holder.ask.group, holder.stored, "OptedOut", text)
    return found[: settings.most], dropped


def drop(
    group: PodGroup, stored: Stored | None, cause: str, message: str, *, expired: float | None = None
) -> Reservation:
    """The report of a reservation that ends without a start."""
    return Reservation(
        group.key,
        group.queue,
        "dropped",
        start=None if stored is None else stored.start,
        promised=None if stored is None else stored.promised,
        made=None if stored is None else stored.made,
        cause=cause,
        message=message,
        expired=expired,
    )


def runs(snapshot: Snapshot, group: PodGroup) -> bool:
    """Whether any pod of the group holds a place."""
    return any(pod.status in ACTIVE_ALLOCATED for pod in snapshot.members[group.key])


def backfilled(
    times: Times, group: PodGroup, stored: Stored, start: float, taken: Mapping[GroupKey, float]
) -> dict[GroupKey, float]:
    """Groups that run on the holder's places by backfill and are in its way at ``start``; they leave then.

    By backfill: preemptible, and started at or after the reservation was made. The newest are in the way
    first. ``taken``: groups that leave earlier for another group.
    """
    snapshot = times.snapshot
    by_node: dict[str, list[tuple[PodGroup, int]]] = {name: [] for name in stored.nodes}
    for pod in snapshot.pods:
        on = by_node.get(pod.node or "")
        if on is not None and pod.status in ACTIVE_ALLOCATED:
            owner = snapshot.group_by_key.get(pod.group) if pod.group is not None else None
            if owner is not None:
                on.append(
                    (owner, pod.spec.requests[GPU] + pod.spec.gpu.devices * MILLI * pod.spec.gpu.shares)
                )
    found: dict[GroupKey, float] = {}
    for name, gpus in sorted(stored.nodes.items()):
        node = snapshot.nodes[snapshot.node_index[name]]
        there = [
            (one, size) for one, size in by_node[name] if _remains(times, one, start, {**taken, **found})
        ]
        left = node.allocatable[GPU] - round(gpus * MILLI) - sum(size for _, size in there)
        in_the_way = sorted(
            {
                one.key: (one, sum(size for other, size in there if other.key == one.key))
                for one, _ in there
                if one.preemptible and one.key != group.key and times.start(one) >= stored.made
            }.values(),
            key=lambda entry: (-times.start(entry[0]), entry[0].key),
        )
        for one, size in in_the_way:
            if left >= 0:
                break
            found[one.key] = start
            left += size
    return found


def _remains(times: Times, group: PodGroup, start: float, leaving: Mapping[GroupKey, float]) -> bool:
    """Whether a running group is still there at ``start`` by itself."""
    return min(times.end(group.key), leaving.get(group.key, float("inf"))) > start


def cause_of_delay(
    times: Times, holder: Holder, bound: str | None, over: Sequence[str] = (), slid: Sequence[PodGroup] = ()
) -> str:
    """Why a promise cannot be kept. ``bound``: which bound of the queues ``over`` it refuses, or None.

    ``slid``: holders that start later than they were to, and so end later.
    """
    snapshot, stored = times.snapshot, holder.stored
    for name in stored.nodes:
        i = snapshot.node_index.get(name)
        if i is None or not any(part.mask[i] for part in holder.shape.parts):
            return "NodeLost"
    if bound is not None:
        # What runs too long, or began too late, holds what the queue was to have back by then.
        late = {group.key for group in slid}
        if any(
            group.key in late or _overran(times, group) or _came_between(times, group, stored, bound)
            for group in _below(snapshot, over)
        ):
            return "Overrun"
        return "BeyondShare" if bound == "share" else "LimitLowered"
    group = holder.ask.group
    for pod in snapshot.pods:
        owner = snapshot.group_by_key.get(pod.group) if pod.group is not None else None
        if owner is None or pod.node not in stored.nodes or pod.status not in ACTIVE_ALLOCATED:
            continue
        higher = owner.queue == group.queue and owner.priority > group.priority + group.aged
        if higher and times.start(owner) >= stored.made and not _overran(times, owner):
            return "HigherPriority"
    return "Overrun"


def _below(snapshot: Snapshot, queues: Sequence[str]) -> list[PodGroup]:
    return [g for g in snapshot.groups if set(snapshot.queue_path.get(g.queue, ())) & set(queues)]


def _came_between(times: Times, group: PodGroup, stored: Stored, bound: str) -> bool:
    """Whether a group that started after the reservation was made is still there at its start.

    It was to be gone by then, or on other places within the same share. Where a limit or a quota refuses,
    only what is on the holder's own places shows that this bound was not lowered.
    """
    if not times.runs(group) or times.start(group) < stored.made or times.end(group.key) <= stored.start:
        return False
    return bound == "share" or any(pod.node in stored.nodes for pod in times.snapshot.members[group.key])


def _overran(times: Times, group: PodGroup) -> bool:
    expected = times.expected(group)
    return times.runs(group) and expected is not None and times.start(group) + expected <= times.now
