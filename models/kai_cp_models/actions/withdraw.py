"""Withdrawal: when a later action takes back the place of an earlier trigger, its evictions are settled.

A place that an earlier action of the cycle gave may be withdrawn, never evicted (14.1). What was
evicted or moved only for it stays where it was; where the room has gone to the new trigger in the
meantime, the eviction is for that one (formulation 1.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

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
        node = trial.snapshot.node_index[pod.node or ""]
        group = trial.snapshot.group_by_key.get(pod.group) if pod.group else None
        if group is not None:
            charge = amounts.accepted(trial.snapshot, pod, trial.snapshot.nodes[node])
            if over_limit(trial.book, group.queue, charge) is not None:
                return None
        trial.unevict(pod)
        if (trial.idle[node] + trial.releasing[node] < 0).any():
            return None
        for name in pod.gpu_groups:
            device = trial.devices.get((node, name))
            total = int(trial.fixed.gpu_memory_mib[node])
            if device is not None and device.future_free_mib(total) < 0:
                return None
    return trial
