"""Withdrawal: when a later action takes back the place of an earlier trigger, its evictions are taken back.

A place that an earlier action of the cycle gave may be withdrawn, never evicted (14.1). A pod evicted or
moved only for it stays where it was. Where a new trigger now uses that pod's place and may take it itself,
the eviction is for the new trigger (formulation 1.5). A group does not inherit what it had no right to take;
in that case the place is not withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import lt

from kai_cp_models.actions.eviction_plan import moved_beyond
from kai_cp_models.cycle import Eviction, MustStay
from kai_cp_models.fairness.quota_checks import over_limit
from kai_cp_models.joint.policy import CONSOLIDATION, EvictionPolicy
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey, Pod, PodKey
from kai_cp_models.snapshot import Snapshot


def settle(
    ledger: Ledger,
    evicted_by: Mapping[PodKey, Eviction],
    withdrawn: frozenset[GroupKey],
    successors: Callable[[Pod], tuple[GroupKey, ...]],
    policy: EvictionPolicy,
) -> dict[PodKey, Eviction]:
    """Take needless evictions back, and return the triggers of each that remains.

    ``successors``: the triggers of the action that use the free place where a pod ran and may take it
    themselves. Raises ``MustStay`` where an eviction can neither be taken back nor be inherited.
    """
    kept: dict[PodKey, Eviction] = {}
    for key, eviction in sorted(evicted_by.items()):
        left = tuple(trigger for trigger in eviction.triggers if trigger not in withdrawn)
        if left or not eviction.triggers:
            kept[key] = replace(eviction, triggers=left)
            continue
        pod = ledger.snapshot.pod_by_key[key]
        if restored(ledger, pod):
            continue
        if takers := successors(pod):
            kept[key] = Eviction(policy.name, takers, policy.message(takers))
        else:
            raise must_stay(evicted_by)
    if _moves_too_many(ledger.snapshot, kept):
        raise must_stay(evicted_by)
    return kept


def must_stay(evicted_by: Mapping[PodKey, Eviction]) -> MustStay:
    """Nothing of what earlier actions evicted for may be withdrawn."""
    return MustStay(frozenset(trigger for one in evicted_by.values() for trigger in one.triggers))


def _moves_too_many(snapshot: Snapshot, evicted_by: Mapping[PodKey, Eviction]) -> bool:
    """Whether consolidation moves more pod groups than it may for the triggers that remain (4.6)."""
    moves = [
        (snapshot.pod_by_key[key].group, one.triggers)
        for key, one in evicted_by.items()
        if one.action == CONSOLIDATION.name
    ]
    return bool(moved_beyond(moves, snapshot.policy.max_consolidation_preemptees))


def restored(ledger: Ledger, pod: Pod, *, keep: bool = True) -> bool:
    """Let the pod be back where it runs; False: its room or its queue's limit is taken, or others joined it
    where it moved, and nothing changed.

    ``keep`` False: only tell whether that is so.
    """
    if pod.key in ledger.held and ledger.relied_on([pod]):
        return False
    ledger.mark()
    if pod.key in ledger.held:
        ledger.unplace(pod)
    back = come_home(ledger, [pod])
    (ledger.keep if back and keep else ledger.back)()
    return back


def come_home(ledger: Ledger, pods: Sequence[Pod]) -> bool:
    """Take back the evictions of pods without another place; False: they do not fit, and nothing changed."""
    home: list[Pod] = []
    for pod in pods:
        if not has_room_at_home(ledger, pod):
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


def has_room_at_home(ledger: Ledger, pod: Pod) -> bool:
    """Whether limits and its node have room for the pod where it ran; the devices of shares are tested later.

    Other rules would count a place that the pod has elsewhere, so they are asked only where it has none.
    """
    if _taken(ledger, pod) or _beyond_limit(ledger, pod):
        return False
    if pod.key in ledger.held or not any(rule.concerns(pod) for rule in ledger.rules):
        return True
    return bool(ledger.fits(pod, now=False)[ledger.snapshot.node_index[pod.node or ""]])


def _taken(ledger: Ledger, pod: Pod) -> bool:
    """Whether the pod's request no longer fits its node; the devices of shares are tested later."""
    node = ledger.snapshot.node_index[pod.node or ""]
    return any(map(lt, ledger.room.free_on(node), ledger.amounts_on(pod, node)))


def _beyond_limit(ledger: Ledger, pod: Pod) -> bool:
    group = ledger.snapshot.group_by_key.get(pod.group) if pod.group else None
    if group is None:
        return False
    node = ledger.snapshot.node_index[pod.node or ""]
    return over_limit(ledger.book, group.queue, ledger.fixed.charge(pod, node)) is not None


def _has_room(ledger: Ledger, pod: Pod) -> bool:
    """Whether node and devices of a pod that came home are not promised twice."""
    node = ledger.snapshot.node_index[pod.node or ""]
    if min(ledger.room.free_on(node)) < 0:
        return False
    total = ledger.fixed.mib_on[node]
    devices = (ledger.devices.get((node, name)) for name in pod.gpu_groups)
    return all(device is None or device.future_free_mib(total) >= 0 for device in devices)
