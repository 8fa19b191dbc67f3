"""What pods are worth to the metrics: GPUs held, and pod groups that wait for what their queue is owed."""

from __future__ import annotations

from kai_cp_models.fairness import amounts
from kai_cp_models.reasons import NOT_FOR_SHARES
from kai_cp_models.snapshot import MILLI, GroupKey, Plan, Pod, PodStatus, Shares, Snapshot
from kai_cp_models.units import Gang


def gpus_of(snapshot: Snapshot, pod: Pod, node: str | None = None) -> float:
    """GPUs of a pod on ``node``, by default its own; a share of memory is its part of a GPU there."""
    name = node or pod.node
    if name is None or name not in snapshot.node_index:
        return amounts.pessimistic(snapshot, pod)[2] / MILLI
    return amounts.accepted(snapshot, pod, snapshot.nodes[snapshot.node_index[name]])[2] / MILLI


def owed(snapshot: Snapshot, plan: Plan) -> dict[str, list[GroupKey]]:
    """By leaf queue: pod groups that wait although what they need next is within the fair share.

    The fair share of the queue and of every queue above it, in CPU, memory and GPUs, after the plan.
    """
    found: dict[str, list[GroupKey]] = {}
    placed = {decision.pod for decision in plan.decisions if decision.kind != "Evict"}

    def status_of(pod: Pod) -> PodStatus:
        return PodStatus.BINDING if pod.key in placed else pod.status

    for entry in plan.unscheduled:
        group = snapshot.group_by_key.get(entry.group)
        if group is None or entry.reason in NOT_FOR_SHARES:
            continue
        batch = Gang(group, snapshot.members[entry.group]).next_batch(status_of)
        if batch is None:
            continue
        cpu, memory, milli_gpus = amounts.pessimistic_batch(snapshot, batch.all_pods)
        needs = Shares(float(cpu), float(memory), milli_gpus / MILLI)
        path = snapshot.queue_path.get(group.queue, ())
        if path and all(_owed(plan, name, needs) for name in path):
            found.setdefault(group.queue, []).append(entry.group)
    return found


def _owed(plan: Plan, queue: str, needs: Shares) -> bool:
    report = plan.queues.get(queue)
    return report is not None and all(
        share < 0 or held + need <= share
        for share, held, need in zip(report.fair_share, report.allocated_after, needs, strict=True)
    )
