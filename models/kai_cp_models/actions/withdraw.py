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
from kai_cp_models.pods import ACTIVE_USED, GPU, MILLI, GroupKey, Pod, PodKey
from kai_cp_models.snapshot import PodGroup, Snapshot


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
        if come_home(ledger, [pod]):
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


def come_home(ledger: Ledger, pods: Sequence[Pod]) -> bool:
    """Let all the pods be back where they run; False: one of them has no room there, or others rely on its
    new place, and nothing changed.
    """
    moved = [pod for pod in pods if pod.key in ledger.held]
    if moved and ledger.relied_on(moved):
        return False
    ledger.mark()
    for pod in moved:
        ledger.unplace(pod)
    for pod in pods:
        if not has_room_at_home(ledger, pod):
            ledger.back()
            return False
        ledger.unevict(pod)
    ledger.keep()
    return True


def has_room_at_home(ledger: Ledger, pod: Pod) -> bool:
    """Whether its queue, its node and every rule have room for an evicted pod, which has no other place,
    where it ran.
    """
    if pod.status not in ACTIVE_USED:
        return False
    node = ledger.home(pod)
    free = ledger.room.free_on[node]
    if any(map(lt, free, ledger.fixed.taken_on(pod, node))):
        return False
    if pod.spec.gpu.shares and not _devices_have_room(ledger, pod, node, free[GPU]):
        return False
    group = ledger.snapshot.group_by_key.get(pod.group) if pod.group else None
    if group is not None and over_limit(ledger.book, group.queue, ledger.fixed.charge(pod, node)) is not None:
        return False
    if group is not None and _apart(ledger, group, pod, node):
        return False
    return not any(rule.concerns(pod) for rule in ledger.rules) or bool(ledger.fits(pod, now=False)[node])


def _apart(ledger: Ledger, group: PodGroup, pod: Pod, node: int) -> bool:
    """Whether pods that one topology level must hold together with this one got places apart from ``node``
    (8.3)."""
    for scope in group.root.scopes_of(pod.subgroup or "default"):
        inside, leaves = ledger.fixed.table.inside((scope,), node), {leaf.name for leaf in scope.leaves()}
        members = (one for one in ledger.fixed.gangs[group.key].pods if (one.subgroup or "default") in leaves)
        if any(one.key in ledger.held and not inside[ledger.held[one.key].node] for one in members):
            return True
    return False


def _devices_have_room(ledger: Ledger, pod: Pod, node: int, free_milli_gpus: int) -> bool:
    """Whether its devices have room for an evicted share: those that all others leave count as whole GPUs."""
    need, whole = ledger.share_mib_on(pod, node), 0
    for name in pod.gpu_groups:
        free = ledger.device_free_mib(node, name, now=False) if (node, name) in ledger.devices else -1
        if 0 <= free < need:
            return False
        whole += free < 0
    return whole * MILLI <= free_milli_gpus
