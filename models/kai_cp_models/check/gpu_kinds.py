"""Kinds of GPUs (docs/gpu-kinds.md): a queue gets no more of a kind than its limit and quota for it.

This is tested for every kind of which the plan gives a queue more, and for every kind on which a pod moves to
another node, where the pod has to start again. What the queue and all queues below it hold in the end stays
within the limit; what their non-preemptible pod groups hold stays within the quota. Binds must keep the
bounds while the victims are still there. The check applies only when the option is on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kai_cp_models.check import amounts, hardware
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.pods import ACTIVE_USED, GPU, MILLI, Pod, PodStatus
from kai_cp_topology.records import PRODUCT_LABEL

_Sums = Counter[tuple[str, str, bool]]
"""Milli-GPUs by queue, kind, and whether only non-preemptible pod groups count."""


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Queues that get more GPUs of a kind than they may have."""
    if not world.options.gpu_kinds or all(queue.notes.kinds is None for queue in world.snapshot.queues):
        return
    bounds = {queue.name: queue.notes.kinds or {} for queue in world.snapshot.queues}
    told = hardware.labels_of(world.snapshot)
    kinds = {name: labels.get(PRODUCT_LABEL, "unknown") for name, labels in told.items()}
    holding = [(pod, pod.node) for pod in world.snapshot.pods if pod.status in ACTIVE_USED and pod.node]
    before = _sums(world, kinds, holding)
    gone = {pod.key for pod, _ in holding if pod.status is PodStatus.RELEASING} | world.evictions.keys()
    leaving = _sums(world, kinds, ((pod, at) for pod, at in holding if pod.key in gone))
    bound = _sums(world, kinds, ((world.pod(key), d.node) for key, d in world.binds.items()))
    placed = _sums(world, kinds, ((world.pod(key), d.node) for key, d in world.placed.items()))
    elsewhere = ((world.pod(key), d.node) for key, d in world.placed.items() if world.pod(key).node != d.node)
    starting = _sums(world, kinds, elsewhere)
    for (name, kind, firm), arriving in sorted(placed.items()):
        at = bounds.get(name, {}).get(kind)
        most = None if at is None else at.quota if firm else at.limit
        if most is None or not arriving:
            continue
        cell = name, kind, firm
        end, now = before[cell] - leaving[cell] + arriving, before[cell] + bound[cell]
        more = starting[cell] > 0 or end > before[cell]
        what = "quota, used by non-preemptible pods" if firm else "limit"
        for held, when, counts in ((now, "now", bound[cell] > 0), (end, "in the end", more)):
            if counts and held > most:
                yield Violation(
                    "gpu_kinds",
                    f"queue {name} would hold {held / MILLI:g} of {most / MILLI:g} GPUs of"
                    f" {kind} ({what}) {when}",
                    queue=name,
                )
                break


def _sums(world: PlannedCluster, kinds: dict[str, str], pods: Iterable[tuple[Pod, str]]) -> _Sums:
    """What queues hold of every kind through pods on nodes, ancestors included."""
    found: _Sums = Counter()
    for pod, at in pods:
        group = world.group_of(pod)
        if group is None or at not in kinds:
            continue
        cost = amounts.charge(world.snapshot, pod, world.node(at))[GPU]
        for name in world.snapshot.queue_path.get(group.queue, ()) if cost else ():
            found[name, kinds[at], False] += cost
            if not group.preemptible:
                found[name, kinds[at], True] += cost
    return found
