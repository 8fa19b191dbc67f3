"""What holds capacity at the start of the cycle: stored reservations that still stand, and the backfill that
must leave for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kai_cp_models.cycle import Cycle
from kai_cp_models.joint.problem import Ask
from kai_cp_models.plan import Reservation
from kai_cp_models.pods import ACTIVE_ALLOCATED, ACTIVE_USED, MILLI, GroupKey
from kai_cp_models.records.notes import Stored
from kai_cp_models.reservations.gang import GangNeeds, shape_of, unsuited
from kai_cp_models.reservations.times import Times
from kai_cp_models.shown import clock
from kai_cp_models.snapshot import PodGroup, Snapshot

if TYPE_CHECKING:
    from kai_cp_models.reservations.loads import Beyond


@dataclass(frozen=True, eq=False)
class Holder:
    """A waiting gang with a stored reservation that it may still hold."""

    ask: Ask
    shape: GangNeeds
    stored: Stored
    since: float
    """When it began to hold, or could have begun: a user may have written a ``made`` that is too early."""
    due: float
    """The start it has been promised so far; backfill in its way leaves then."""

    @property
    def order(self) -> tuple[float, int]:
        """Its position among all that hold capacity: before the holds that this cycle makes."""
        return self.since, 0

    @property
    def key(self) -> GroupKey:
        """The pod group."""
        return self.ask.group.key


def candidate(cycle: Cycle, times: Times, ask: Ask) -> GangNeeds | None:
    """The shape of an ask that may hold capacity: a whole gang that is large enough and wants a reservation
    (12.1)."""
    group, settings = ask.group, times.settings.reservations
    begun = any(cycle.ledger.status(pod) in ACTIVE_USED for pod in ask.gang.pods)
    if begun or not times.asks_for_reservation(group):
        return None
    notes = times.notes(group.key)
    if notes.expired is not None and times.now < notes.expired + settings.max_overdue_seconds:
        return None
    if unsuited(cycle.ledger, ask):
        return None
    shape = shape_of(cycle.ledger, ask)
    if shape.milli_gpus < settings.min_gpus * MILLI:
        return None
    return shape


def stored_holders(
    cycle: Cycle, times: Times, asks: Mapping[GroupKey, Ask]
) -> tuple[list[Holder], dict[GroupKey, Reservation]]:
    """The holders of earlier cycles in the order in which they began to hold, and the holders that are
    dropped."""
    snapshot, settings = cycle.snapshot, times.settings.reservations
    found: list[Holder] = []
    dropped: dict[GroupKey, Reservation] = {}
    for group in snapshot.groups:
        stored = times.stored(group.key)
        if stored is None or runs(snapshot, group):
            continue
        ask = asks.get(group.key)
        shape = None if ask is None else candidate(cycle, times, ask)
        if times.now > stored.start + settings.max_overdue_seconds:
            text = f"its start was due at {clock(stored.start, times.now)} and is given up"
            dropped[group.key] = drop(group, stored, "Expired", text, expired=times.now)
        elif group.key in cycle.left_out:
            text = f"it was {cycle.left_out[group.key].message}"
            dropped[group.key] = drop(group, stored, "LeftOut", text)
        elif ask is None or shape is None:
            text = (
                "it asks for no reservation any more" if ask else "it does not wait as a whole gang any more"
            )
            dropped[group.key] = drop(group, stored, "OptedOut", text)
        else:
            since = max(stored.made, times.may_hold_since(group))
            found.append(Holder(ask, shape, stored, since, stored.start))
    found.sort(key=lambda holder: (holder.order, holder.key))
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


def cause_of_delay(
    times: Times,
    holder: Holder,
    bound: Beyond | None,
    late: Collection[PodGroup] = (),
    came: Collection[PodGroup] = (),
) -> str:
    """Why a promise cannot be kept. ``bound``: the bound of a queue that it would break, or None.

    ``late``: groups that stay longer than was known. ``came``: groups that were placed in this cycle, on the
    holder's places if no bound is broken.
    """
    snapshot, stored, group = times.snapshot, holder.stored, holder.ask.group
    for name in stored.nodes:
        i = snapshot.node_index.get(name)
        if i is None or not any(part.mask[i] for part in holder.shape.parts):
            return "NodeLost"
    if any(outranks(one, group) for one in came):
        return "HigherPriority"
    if bound is not None:
        # A group that runs too long, or began too late, holds what the queue should have had back by then.
        keys = {one.key for one in late}
        if any(
            one.key in keys or _overran(times, one) or _came_between(times, one, stored, bound.bound)
            for one in snapshot.groups
            if bound.queue in snapshot.queue_path.get(one.queue, ())
        ):
            return "Overrun"
        return "BeyondShare" if bound.bound == "share" else "LimitLowered"
    for pod in snapshot.pods:
        owner = snapshot.group_by_key.get(pod.group) if pod.group is not None else None
        if owner is None or pod.node not in stored.nodes or pod.status not in ACTIVE_ALLOCATED:
            continue
        if outranks(owner, group) and times.start(owner) >= stored.made and not _overran(times, owner):
            return "HigherPriority"
    return "Overrun"


def outranks(group: PodGroup, holder: PodGroup) -> bool:
    """Whether the group could preempt the holder if the holder ran: same queue, and higher than the holder's
    aged priority."""
    return group.queue == holder.queue and group.priority > holder.priority + holder.aged


def _came_between(times: Times, group: PodGroup, stored: Stored, bound: str) -> bool:
    """Whether a group that started after the reservation was made still runs at its start.

    The group should have ended by then, or should run on other places within the same share. Where a limit or
    a quota refuses, only groups on the holder's own places show that this bound was not lowered.
    """
    if not times.runs(group) or times.start(group) < stored.made or times.end(group.key) <= stored.start:
        return False
    return bound == "share" or any(pod.node in stored.nodes for pod in times.snapshot.members[group.key])


def _overran(times: Times, group: PodGroup) -> bool:
    expected = times.expected(group)
    return times.runs(group) and expected is not None and times.start(group) + expected <= times.now
