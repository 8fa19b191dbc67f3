"""Sets of the engine's reasons (docs/reasons.md) by what would not help against them.

A reason that is in none of the sets counts as one against which something may help.
"""

from __future__ import annotations

from typing import Final

UNCONDITIONAL: Final = frozenset(
    (
        "SchedulingGated",
        "QueueDoesNotExist",
        "QueueNotLeaf",
        "SchedulingBackoff",
        "NotReady",
        "UnknownSubgroup",
        "RequeueDelay",
        "NoAction",
    )
)
"""The reason lies in the object itself, or in the policy, whatever the plan is."""

BY_ITS_QUEUE: Final = frozenset(("OverLimit", "OverGpuKind", "NonPreemptibleOverQuota"))
"""The queue's limits, and its quota for what cannot be preempted, are used up by its own work."""

NOT_FOR_CAPACITY: Final = UNCONDITIONAL | BY_ITS_QUEUE | {"DependencyMissing"}
"""More free capacity would not help, of whatever kind."""

NOT_FOR_SHARES: Final = NOT_FOR_CAPACITY | {"NoNodeAccepts"}
"""Giving the existing GPUs to other groups would not help either."""

NOT_OWED: Final = NOT_FOR_SHARES | {"Withdrawn", "NextIncrement"}
"""Nothing has to be given: the next cycle goes on with these pod groups."""

NOT_FOR_MOVES: Final = NOT_FOR_SHARES | {
    "WaitingForReservation",
    "ReservationBeyondShare",
    "ReservationTooDear",
}
"""Moving running pods would not help either: a reservation says when these groups start."""
