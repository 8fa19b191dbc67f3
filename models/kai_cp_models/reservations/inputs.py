"""Annotations of the time axis beside the snapshot: a reservation that cannot hold counts as missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kai_cp_models.pods import GPU, MILLI
from kai_cp_models.records.notes import (
    RESERVATION,
    TIME_NOTES,
    Closed,
    Expired,
    GroupNotes,
    QueueNotes,
    Stored,
    unread_of,
)
from kai_cp_models.shown import shown
from kai_cp_models.snapshot import PodGroup, Queue, SetAside, Snapshot


class Inputs:
    """What pod groups and queues declare; ``aside`` collects what cannot be used. ``horizon``: of starts, in
    seconds.
    """

    def __init__(self, snapshot: Snapshot, horizon: float) -> None:
        self._snapshot = snapshot
        self._horizon = horizon
        self.aside: list[SetAside] = []

    def queue(self, queue: Queue) -> QueueNotes:
        """What the queue declares."""
        self._report(f"Queue {queue.name}", queue.notes)
        return queue.notes

    def group(self, group: PodGroup) -> GroupNotes:
        """What the pod group declares; its reservation only if it can hold."""
        item = f"PodGroup {group.key}"
        self._report(item, group.notes)
        fault = self._fault(group, group.notes.reservation)
        if fault is None:
            return group.notes
        where, problem = fault
        field = f"metadata.annotations[{RESERVATION}].{where}"
        self.aside.append(SetAside(item, f"{field}: {problem}; treated as absent", field))
        return replace(group.notes, reservation=None)

    def _report(self, item: str, notes: GroupNotes | QueueNotes) -> None:
        self.aside += [SetAside(item, one.reason, one.field) for one in unread_of(notes, TIME_NOTES)]

    def _fault(self, group: PodGroup, noted: Stored | Closed | Expired | None) -> tuple[str, str] | None:
        """The field of a reservation that is wrong, and why; None: the reservation can hold."""
        now = self._snapshot.now
        if noted is None:
            return None
        if isinstance(noted, Expired):
            return ("expired", "lies in the future") if noted.at > now else None
        if noted.made > now:
            return "made", "lies in the future"
        if noted.made < group.created:
            return "made", "lies before the pod group's creation"
        if isinstance(noted, Closed) and noted.idle.since > now:
            return "idle.since", "lies in the future"
        if isinstance(noted, Stored) and noted.start > now + self._horizon:
            # We never write such a start: time only brings a start closer.
            return "start", "lies beyond the horizon"
        problem = self._places_fault(group, noted.nodes)
        return None if problem is None else ("nodes", problem)

    def _places_fault(self, group: PodGroup, nodes: Mapping[str, float]) -> str | None:
        """The nodes exist, and the gang needs their GPUs."""
        for name in nodes:
            if name not in self._snapshot.node_index:
                return f"there is no node {shown(name)}"
        total = sum(nodes.values())
        need = sum(pod.spec.requests[GPU] for pod in self._snapshot.members[group.key]) / MILLI
        return f"{total:g} GPUs are more than the gang's {need:g}" if total > need else None
