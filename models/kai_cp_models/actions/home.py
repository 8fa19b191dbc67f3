"""Coming home: an evicted pod keeps running where it ran, if its place is still free."""

from __future__ import annotations

from collections.abc import Sequence
from operator import lt

from kai_cp_models.fairness.quota_checks import over_limit
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_USED, Pod
from kai_cp_models.snapshot import PodGroup


def come_home(ledger: Ledger, pods: Sequence[Pod]) -> bool:
    """Bring all the pods back to where they ran. False: one has no room there, or others rely on its new
    place; then nothing has changed."""
    moved = [pod for pod in pods if pod.key in ledger.held]
    if moved and ledger.relied_on(moved):
        return False
    ledger.mark()
    for pod in moved:
        ledger.unplace(pod)
    for pod in pods:
        if not has_room_at_home(ledger, pod):
            return ledger.close(kept=False)
        ledger.unevict(pod)
    return ledger.close(kept=True)


def has_room_at_home(ledger: Ledger, pod: Pod) -> bool:
    """Whether its queue, its node and every rule have room for an evicted pod, which has no other place,
    where it ran. Only what has come in this cycle can be in its way.
    """
    if pod.status not in ACTIVE_USED or not capacity_at_home(ledger, pod):
        return False
    node = ledger.home(pod)
    alone = not ledger.come.get(node)
    if not alone and not ledger.own_devices_free(pod):
        return False
    group = ledger.snapshot.group_by_key.get(pod.group) if pod.group else None
    if group is not None:
        charge, book = ledger.fixed.charge(pod, node), ledger.book
        over = over_limit(book, group.queue, charge, among=book.entered) is not None
        if over or _apart(ledger, group, pod, node):
            return False
    asked = (rule for rule in ledger.rules if rule.concerns(pod) and not (alone and rule.of_one_node))
    masks = (rule.mask(pod, now=False) for rule in asked)
    return all(mask is None or mask[node] for mask in masks)


def capacity_at_home(ledger: Ledger, pod: Pod) -> bool:
    """Whether the node where an evicted pod ran has as much free as the pod takes, or no pod has come there:
    a pod that never left needs no free capacity, however overfull the node is."""
    node = ledger.home(pod)
    short = any(map(lt, ledger.room.free_on[node], ledger.fixed.taken_on(pod, node)))
    return not (short and ledger.come.get(node))


def _apart(ledger: Ledger, group: PodGroup, pod: Pod, node: int) -> bool:
    """Whether pods that one topology level must hold together with this one got places apart from ``node``
    (8.3)."""
    for scope in group.root.scopes_of(pod.subgroup or "default"):
        inside, leaves = ledger.fixed.table.inside((scope,), node), scope.scopes
        members = (one for one in ledger.fixed.gangs[group.key].pods if (one.subgroup or "default") in leaves)
        if any(one.key in ledger.held and not inside[ledger.held[one.key].node] for one in members):
            return True
    return False
