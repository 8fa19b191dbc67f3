"""Runtime: pod groups that may not be disturbed yet, and those that may not disturb yet (4.1, 4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from kai_cp_models.pods import ACTIVE_ALLOCATED
from kai_cp_models.policy import ActionName
from kai_cp_models.snapshot import PodGroup, Snapshot

MinRuntimeSetting = Literal["preempt_min_runtime_seconds", "reclaim_min_runtime_seconds"]


def protected(snapshot: Snapshot, group: PodGroup, seconds: float) -> bool:
    """Whether the group has run for less than the ``seconds`` that it is ``granted`` (4.6).

    An elastic group may still give up surplus pods.
    """
    start = began(snapshot, group)
    return start is not None and snapshot.now < start + seconds


def began(snapshot: Snapshot, group: PodGroup) -> float | None:
    """When the group started last, as it is noted; but no later than its oldest pod that runs, whatever its
    owner wrote: the scheduler notes a start where no pod runs (4.2).

    Where no pod says when it started, the note counts as it is; None: there is none.
    """
    if group.last_start is None:
        return None
    active = (pod for pod in snapshot.members[group.key] if pod.status in ACTIVE_ALLOCATED)
    started = (pod.started for pod in active if pod.started is not None)
    return min([group.last_start, *started])


def granted(snapshot: Snapshot, queue: str, action: ActionName, trigger_queue: str) -> float:
    """Seconds that a group in ``queue`` runs undisturbed by ``action`` for ``trigger_queue``.

    Only reclaim and preempt have such a time.
    """
    if not snapshot.policy.plugin("minruntime"):
        return 0.0
    if action == "reclaim":
        return reclaim_min_runtime(snapshot, queue, trigger_queue)
    if action == "preempt":
        return preempt_min_runtime(snapshot, queue)
    return 0.0


def preempt_min_runtime(snapshot: Snapshot, queue: str) -> float:
    """Seconds that a group in ``queue`` runs before it may be preempted: nearest setting, leaf to root."""
    found = _nearest(snapshot, snapshot.queue_path[queue], "preempt_min_runtime_seconds")
    return snapshot.policy.default_preempt_min_runtime_seconds if found is None else found


def reclaim_min_runtime(snapshot: Snapshot, queue: str, trigger_queue: str) -> float:
    """Seconds that a group in ``queue`` runs before ``trigger_queue`` may reclaim from it.

    Method ``queue``: nearest setting, leaf to root. Method ``lca``: nearest one from the child of the
    lowest common ancestor upwards; between different top-level queues only the victim's top-level one.
    """
    path = snapshot.queue_path[queue]
    if snapshot.policy.reclaim_resolve_method == "lca":
        shared = set(snapshot.queue_path[trigger_queue])
        common = sum(name in shared for name in path)
        # With nothing in common the walk starts at the victim's top-level queue.
        path = path[max(len(path) - common - 1, 0) :]
    found = _nearest(snapshot, path, "reclaim_min_runtime_seconds")
    return snapshot.policy.default_reclaim_min_runtime_seconds if found is None else found


def delayed(snapshot: Snapshot, group: PodGroup) -> float | None:
    """Seconds left before the group may trigger evictions (4.1); None when it may now."""
    since = group.created if group.last_eviction is None else max(group.created, group.last_eviction)
    left = max(since + group.preemption_delay_seconds, doubted_until(snapshot, group)) - snapshot.now
    return left if left > 0 else None


def doubted_until(snapshot: Snapshot, group: PodGroup) -> float:
    """Until when nothing is evicted for a group: a pod of it that still waits lost the places that it got
    several times in a row, so others would stop for nothing. 0: there is no doubt."""
    noted = group.notes.failures
    waits = noted is not None and any(
        pod.uid == noted.uid and pod.node is None for pod in snapshot.members[group.key]
    )
    return noted.doubted_until if noted is not None and waits else 0.0


def _nearest(snapshot: Snapshot, path: Sequence[str], setting: MinRuntimeSetting) -> float | None:
    queues = snapshot.queue_by_name
    for name in path:
        value: float | None = getattr(queues[name], setting)
        if value is not None:
            return value
    return None
