"""Rollouts (3.8): how much of the non-preemptible pods' holdings quotas do not count, and for which pods.

It is counted from the pods that hold a place in the end. For every workload in rollout it is the smaller of
what its newest revision holds and what all other revisions hold. It applies only when the option is on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property

from kai_cp_models.check import amounts
from kai_cp_models.check.planned_cluster import PlannedCluster
from kai_cp_models.check.snapshot_facts import HeldByQueue
from kai_cp_models.pods import Pod, PodKey

_Workload = tuple[str, str, str]
"""Namespace, name, leaf queue."""


class Rollouts:
    """The rollouts of a planned cluster whose time is not over."""

    def __init__(self, world: PlannedCluster) -> None:
        self._world = world

    @cached_property
    def _newest(self) -> Mapping[_Workload, str]:
        """The revision of every workload in rollout whose first pod is the latest."""
        seconds = self._lent_for()
        first: dict[_Workload, dict[str, float]] = defaultdict(dict)
        for pod in self._world.snapshot.pods if seconds else ():
            workload = self._workload(pod)
            if workload is not None and workload[2] in seconds and pod.revision is not None:
                revisions = first[workload]
                revisions[pod.revision.name] = min(
                    pod.created, revisions.get(pod.revision.name, float("inf"))
                )
        found = {}
        for workload, revisions in first.items():
            newest = sorted(revisions, key=lambda name: (revisions[name], name))[-1]
            if len(revisions) > 1 and self._world.snapshot.now - revisions[newest] <= seconds[workload[2]]:
                found[workload] = newest
        return found

    def _lent_for(self) -> Mapping[str, float]:
        """For how many seconds a leaf queue lends quota: the shortest time that its path states."""
        snapshot, found = self._world.snapshot, dict[str, float]()
        for queue in snapshot.queues if self._world.options.rollouts else ():
            seconds = queue.notes.rollout
            if seconds is not None:
                below = (leaf for leaf in snapshot.leaf_queues if queue.name in snapshot.queue_path[leaf])
                found |= {leaf: min(seconds, found.get(leaf, seconds)) for leaf in below}
        return found

    def _workload(self, pod: Pod) -> _Workload | None:
        group = self._world.group_of(pod)
        if group is None or group.preemptible or pod.revision is None:
            return None
        return pod.key.namespace, pod.revision.workload, group.queue

    def is_new(self, pod: Pod) -> bool:
        """Whether the pod is of the new revision of a workload in rollout."""
        workload = self._workload(pod)
        if workload is None or pod.revision is None:
            return False
        return self._newest.get(workload) == pod.revision.name

    def borrowing(self, pods: Iterable[Pod]) -> list[Pod]:
        """Pods that quotas lend to, for which nothing is evicted; the others keep the quota by the plain
        sum."""
        if not self._newest:
            return []
        triggers = {key for decision in self._world.evictions.values() for key in decision.triggers}
        return [pod for pod in pods if self.is_new(pod) and pod.group not in triggers]

    def given_back(self, places: Mapping[PodKey, str]) -> HeldByQueue:
        """What queues and their ancestors do not count; ``places``: the node of every pod that holds one."""
        world, found = self._world, HeldByQueue()
        old: dict[_Workload, amounts.CheckedAmounts] = {}
        new: dict[_Workload, amounts.CheckedAmounts] = {}
        for key, node in places.items() if self._newest else ():
            pod = world.pod(key)
            workload = self._workload(pod)
            if workload is None or workload not in self._newest:
                continue
            side = new if self.is_new(pod) else old
            cost = amounts.charge(world.snapshot, pod, world.node(node))
            side[workload] = amounts.plus(side.get(workload, (0, 0, 0)), cost)
        for workload in old.keys() & new.keys():
            cpu, memory, gpu = map(min, old[workload], new[workload])
            for queue in world.snapshot.queue_path.get(workload[2], ()):
                found.add(queue, (cpu, memory, gpu))
        return found
