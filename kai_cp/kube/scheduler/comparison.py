"""Compares another scheduler's decisions with our plan, in modes *observe* and *advise*."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kai_cp_models.plan import Plan
from kai_cp_models.pods import Pod, PodKey, PodStatus
from kai_cp_models.snapshot import Snapshot

KEPT: Final = 100_000
SHOWN: Final = 10
PLACED: Final = (PodStatus.BINDING, PodStatus.BOUND, PodStatus.RUNNING)


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison since the last look.

    ``counts`` is by outcome. For a pod that got a place: *same_node* as in our last plan, *other_node*,
    *we_would_wait*. For an evicted pod: *evicted_too* as we would have, *we_would_keep*. ``differences``
    describes the first few that differ from our plan.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    differences: tuple[str, ...] = ()


class Comparison:
    """Remembers our last plan for each pod until another scheduler decides about it."""

    def __init__(self) -> None:
        self._places: dict[tuple[PodKey, str], str | None] = {}
        self._running: dict[tuple[PodKey, str], tuple[bool, float | None]] = {}
        """Pods that ran: whether we would have evicted them, and their group's last eviction until then."""

    def compare(self, snapshot: Snapshot, plan: Plan) -> Compared:
        """Compare what others did since the last call; ``plan`` is kept for the next call."""
        counts: Counter[str] = Counter()
        differences: list[str] = []
        for pod in snapshot.pods:
            outcome, words = self._placed(pod) if pod.status in PLACED else self._evicted(snapshot, pod)
            if outcome:
                counts[outcome] += 1
            if words:
                differences.append(f"{pod.key}: {words}")
        self._remember(snapshot, plan)
        return Compared(counts, tuple(differences[:SHOWN]))

    def _placed(self, pod: Pod) -> tuple[str, str]:
        identity = (pod.key, pod.uid)
        if identity not in self._places:
            return "", ""
        ours = self._places[identity]
        if ours is None:
            return "we_would_wait", f"is on {pod.node}, and would wait"
        if ours == pod.node:
            return "same_node", ""
        return "other_node", f"is on {pod.node}, and would be on {ours}"

    def _evicted(self, snapshot: Snapshot, pod: Pod) -> tuple[str, str]:
        group = None if pod.group is None else snapshot.group_by_key.get(pod.group)
        if pod.status is not PodStatus.RELEASING or group is None:
            return "", ""
        entry = self._running.get((pod.key, pod.uid))
        # A scheduler marks the pod group when it evicts; other pods end for their owners' reasons.
        if entry is None or group.last_eviction == entry[1]:
            return "", ""
        del self._running[pod.key, pod.uid]
        if entry[0]:
            return "evicted_too", ""
        return "we_would_keep", f"is evicted from {pod.node}, and would stay"

    def _remember(self, snapshot: Snapshot, plan: Plan) -> None:
        places = {d.pod: d.node for d in plan.decisions if d.kind != "Evict"}
        evicted = {d.pod for d in plan.decisions if d.kind == "Evict"}
        ran, self._places, self._running = self._running, {}, {}
        for pod in snapshot.pods[:KEPT]:
            identity = (pod.key, pod.uid)
            if pod.status is PodStatus.PENDING and pod.ours:
                self._places[identity] = places.get(pod.key)
            elif pod.status in PLACED and pod.group in snapshot.group_by_key:
                group = snapshot.group_by_key[pod.group]
                self._running[identity] = (pod.key in evicted, group.last_eviction)
            elif pod.status is PodStatus.RELEASING and identity in ran:
                self._running[identity] = ran[identity]  # the mark may arrive later
