"""What would end a reason to wait, stated once: sets of the engine's reasons (docs/reasons.md).

The sets say what would not help, so that a reason that is new counts as one that may be helped.
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
    )
)
"""They lie in the object itself, whatever the plan is."""

BY_ITS_QUEUE: Final = frozenset(("OverLimit", "OverGpuKind", "NonPreemptibleOverQuota"))
"""The queue's limits, and its quota for what cannot be preempted, are used up by its own work."""

NOT_FOR_CAPACITY: Final = UNCONDITIONAL | BY_ITS_QUEUE | {"DependencyMissing"}
"""More free capacity would not help, of whatever kind."""

NOT_FOR_SHARES: Final = NOT_FOR_CAPACITY | {"NoNodeAccepts"}
"""Neither would the GPUs that there are, were they given to others than now."""

NOT_FOR_MOVES: Final = NOT_FOR_SHARES | {
    "WaitingForReservation",
    "ReservationBeyondShare",
    "ReservationTooDear",
}
"""Neither would moving what runs: a reservation says when these start."""
