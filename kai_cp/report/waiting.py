"""The line of waiting pod groups in fair order, as if each were served when its turn comes (3.5, 3.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kai_cp_models.fairness.amounts import Amounts, pessimistic_batch
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.order import FairOrder, group_sort_key
from kai_cp_models.snapshot import GPU, MILLI, GroupKey, PodGroup, PodStatus, Snapshot
from kai_cp_models.units import Gang, gangs_of


@dataclass(frozen=True, slots=True)
class Waiter:
    """A pod group with pending pods. ``pods`` of its ``pending`` ones come next, and need ``gpus``."""

    group: PodGroup
    ready: bool
    pods: int
    pending: int
    gpus: float
    remark: str = ""


def waiters(snapshot: Snapshot, book: QueueBook) -> list[Waiter]:
    """All that wait: first those that may be served, in order; ``book`` is charged as they are."""
    gangs = gangs_of(snapshot)
    pending = {
        group.key: [pod for pod in gangs[group.key].pods if pod.status is PodStatus.PENDING]
        for group in snapshot.groups
    }
    found: dict[GroupKey, Waiter] = {}
    sizes: dict[GroupKey, Amounts] = {}
    for group in snapshot.groups:
        gang, pods = gangs[group.key], pending[group.key]
        if not pods:
            continue
        batch = gang.next_batch(lambda pod: pod.status)
        remark = _remark(snapshot, group, gang)
        chosen: Sequence[object] = () if batch is None else batch.all_pods
        size = (0, 0, 0) if batch is None else pessimistic_batch(snapshot, batch.all_pods)
        found[group.key] = Waiter(group, not remark, len(chosen), len(pods), size[GPU] / MILLI, remark)
        sizes[group.key] = size
    entries = {
        key: (group_sort_key(waiter.group, gangs[key].elastic_state(lambda pod: pod.status)), sizes[key])
        for key, waiter in found.items()
        if waiter.ready
    }
    order = FairOrder(snapshot, book, entries)
    line: list[Waiter] = []
    while (key := order.pop()) is not None:
        waiter = found[key]
        line.append(waiter)
        book.charge(waiter.group.queue, sizes[key], waiter.group.preemptible)
        order.charged(waiter.group.queue)
    return line + [waiter for waiter in found.values() if not waiter.ready]


def _remark(snapshot: Snapshot, group: PodGroup, gang: Gang) -> str:
    """Why the group is not considered at all (4.1), or nothing."""
    if group.queue not in snapshot.queue_by_name:
        return f"queue {group.queue or '(none)'} does not exist"
    if group.queue not in snapshot.leaf_queues:
        return f"queue {group.queue} has child queues"
    if not gang.ready(lambda pod: pod.status):
        return "not enough pods for its gang yet"
    return "backed off after a failed attempt" if group.backed_off else ""
