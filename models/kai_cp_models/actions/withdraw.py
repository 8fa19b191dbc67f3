"""Withdrawal: when a later action takes back the place of an earlier trigger, its evictions are settled.

A place that an earlier action of the cycle gave may be withdrawn, never evicted (14.1). What was
evicted or moved only for it stays where it was; where the room has gone to the new trigger in the
meantime, the eviction is for that one (formulation 1.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kai_cp_models.cycle import Eviction
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.gates import over_limit
from kai_cp_models.ledger import Ledger
from kai_cp_models.snapshot import ActionName, GroupKey, Pod, PodKey


def settle(
    ledger: Ledger,
    evicted_by: Mapping[PodKey, Eviction],
    withdrawn: frozenset[GroupKey],
    heirs: tuple[GroupKey, ...],
    action: ActionName,
) -> tuple[Ledger, dict[PodKey, Eviction]]:
    """The ledger with needless evictions taken back, and who each remaining eviction is for.

    ``heirs``: the triggers of ``action``, which inherit what cannot be taken back; a move stays one of
    consolidation where that may serve them.
    """
    kept: dict[PodKey, Eviction] = {}
    preemptible = tuple(heir for heir in heirs if ledger.snapshot.group_by_key[heir].preemptible)
    standing = {
        trigger
        for eviction in evicted_by.values()
        if eviction.action == "consolidation"
        for trigger in eviction.triggers
        if trigger not in withdrawn
    }
    # A move may serve whoever consolidation serves; an heir that may not evict here is no reason for it.
    movers = preemptible or tuple(sorted(standing))
    for key, eviction in sorted(evicted_by.items()):
        left = tuple(trigger for trigger in eviction.triggers if trigger not in withdrawn)
        if left or not eviction.triggers:
            kept[key] = replace(eviction, triggers=left)
            continue
        back = restored(ledger, [ledger.snapshot.pod_by_key[key]])
        if back is not None:
            ledger = back
        else:
            if eviction.action == "consolidation" and movers:
                kept[key] = replace(eviction, triggers=movers)
            else:
                kept[key] = replace(eviction, triggers=heirs, action=action)
    return ledger, kept


def restored(ledger: Ledger, pods: Sequence[Pod]) -> Ledger | None:
    """The ledger with the pods back where they run, or None when their room or queue's limit is taken."""
    trial = ledger.copy()
    for pod in pods:
        if pod.key in trial.held:
            trial.unplace(pod)
    return trial if come_home(trial, pods) else None


def come_home(ledger: Ledger, pods: Sequence[Pod]) -> bool:
    """Take back the evictions of pods without another place; False: there is no room, nothing has changed."""
    home: list[Pod] = []
    for pod in pods:
        if _beyond_limit(ledger, pod) or _taken(ledger, pod):
            break
        ledger.unevict(pod)
        home.append(pod)
        if not _has_room(ledger, pod):
            break
    else:
        return True
    for pod in reversed(home):
        ledger.evict(pod)
    return False


def _taken(ledger: Ledger, pod: Pod) -> bool:
    """Whether the pod's request no longer fits its node; of shares the devices tell afterwards."""
    node = ledger.snapshot.node_index[pod.node or ""]
    free = ledger.idle[node] + ledger.releasing[node]
    wanted = np.array(pod.spec.requests) * ledger.fixed.advertised[node]
    return not pod.spec.gpu.shares and bool((free < wanted).any())


def _beyond_limit(ledger: Ledger, pod: Pod) -> bool:
    group = ledger.snapshot.group_by_key.get(pod.group) if pod.group else None
    if group is None:
        return False
    node = ledger.snapshot.nodes[ledger.snapshot.node_index[pod.node or ""]]
    return over_limit(ledger.book, group.queue, amounts.accepted(ledger.snapshot, pod, node)) is not None


def _has_room(ledger: Ledger, pod: Pod) -> bool:
    """Whether node and devices of a pod that came home are not promised twice."""
    node = ledger.snapshot.node_index[pod.node or ""]
    if (ledger.idle[node] + ledger.releasing[node] < 0).any():
        return False
    total = int(ledger.fixed.gpu_memory_mib[node])
    devices = (ledger.devices.get((node, name)) for name in pod.gpu_groups)
    return all(device is None or device.future_free_mib(total) >= 0 for device in devices)
