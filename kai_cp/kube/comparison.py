"""What another scheduler did with the pods this one had a plan for: the record of *observe* and *advise*."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from kai_cp_models.snapshot import Placement, Plan, PodKey, PodStatus, Snapshot

KEPT: Final = 100_000
PLACED: Final = (PodStatus.BINDING, PodStatus.BOUND, PodStatus.RUNNING)


class Comparison:
    """Remembers the last planned place of each waiting pod until it is placed by somebody."""

    def __init__(self) -> None:
        self._planned: dict[tuple[PodKey, str], Placement | None] = {}

    def compare(self, snapshot: Snapshot, plan: Plan) -> Mapping[str, int]:
        """Counts since the last call.

        *same_node*, *other_node*: we had planned a place and the pod got one. *we_would_wait*: it got one
        and we had planned none.
        """
        counts: Counter[str] = Counter()
        seen: dict[tuple[PodKey, str], Placement | None] = {}
        ours = {d.pod: Placement(d.node, d.gpu_groups) for d in plan.decisions if d.kind != "Evict"}
        for pod in snapshot.pods:
            identity = (pod.key, pod.uid)
            if pod.status is PodStatus.PENDING and pod.ours:
                if len(seen) < KEPT:
                    seen[identity] = ours.get(pod.key)
            elif pod.status in PLACED and identity in self._planned:
                planned = self._planned[identity]
                if planned is None:
                    counts["we_would_wait"] += 1
                else:
                    counts["same_node" if planned.node == pod.node else "other_node"] += 1
        self._planned = seen
        return counts
