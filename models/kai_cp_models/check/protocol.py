"""Protocol: a plan is well formed.

Every decision names a known pod and node; a pod is bound, nominated and evicted at most once; only
pending pods are bound; only pending or evicted pods are nominated; only running pods are evicted, and
never one that this cycle placed (14.1); a share names one distinct GPU group per device, and only evictions
name pod groups that they are for. Actions come
in the order of the policy, and an eviction comes before the nominations that rely on it
(snapshot format, section 3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.plan import Decision
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.policy import STATE_ACTIONS, TIME_ACTIONS


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Faults of form."""
    for decision in world.plan.decisions:
        for fault in _alone(world, decision):
            words = f"{decision.kind} of pod {decision.pod}: {fault}"
            yield Violation("protocol", words, pods=(decision.pod,), groups=_of(decision))
    if len(world.plan.decisions) > len(world.binds) + len(world.nominations) + len(world.evictions):
        for (kind, key), times in Counter((d.kind, d.pod) for d in world.plan.decisions).items():
            if times > 1:
                yield Violation("protocol", f"{kind} of pod {key} appears {times} times", pods=(key,))
    yield from _kinds_together(world)
    yield from _order(world)


def _of(decision: Decision) -> tuple[GroupKey, ...]:
    """The pod groups that the decision is for."""
    own = () if decision.group is None else (decision.group,)
    return decision.triggers or own


def _alone(world: PlannedCluster, decision: Decision) -> Iterator[str]:
    """What is wrong with a decision by itself."""
    pod = world.snapshot.pod_by_key.get(decision.pod)
    if pod is None:
        yield "no such pod"
        return
    if decision.kind == "Evict" and pod.status not in ACTIVE_ALLOCATED:
        yield f"the pod does not run, it is {pod.status.value}"
        return
    if decision.node not in world.snapshot.node_index:
        yield f"no such node {decision.node!r}"
        return
    if decision.action not in world.snapshot.policy.actions and decision.action not in TIME_ACTIONS:
        yield f"action {decision.action} is not one of the policy's actions"
    if pod.group != decision.group:
        yield f"the pod belongs to pod group {pod.group}, not to {decision.group}"
    if decision.kind == "Evict":
        if not set(decision.gpu_groups) <= set(pod.gpu_groups):
            yield f"it does not use GPU groups {', '.join(decision.gpu_groups)}"
        if pod.node != decision.node:
            yield f"the pod is on node {pod.node}, not on {decision.node}"
        if pod.group not in world.snapshot.group_by_key:
            yield "it belongs to no pod group"
        if len(set(decision.triggers)) < len(decision.triggers):
            yield "a pod group that it is for is named twice"
        return
    yield from _place(world, decision, pod)


def _place(world: PlannedCluster, decision: Decision, pod: Pod) -> Iterator[str]:
    """What is wrong with a place by itself."""
    if world.group_of(pod) is None:
        yield "it belongs to no pod group"
    if decision.action in STATE_ACTIONS or decision.action == "maxruntime":
        yield f"action {decision.action} places no pods"
    evicted = world.evictions.get(decision.pod)
    if decision.action == "defrag" and (evicted is None or evicted.action != "defrag"):
        yield "defrag places only pods that it moves"
    if decision.kind == "Bind" and pod.status is not PodStatus.PENDING:
        yield f"the pod is {pod.status.value}, not Pending"
    if decision.kind == "Nominate" and pod.status is not PodStatus.PENDING and evicted is None:
        yield f"the pod is {pod.status.value} and is not evicted"
    if decision.triggers:
        yield "a place has no triggers"
    if "" in decision.gpu_groups:
        yield "a GPU group has no name"
    wanted = pod.spec.gpu.devices if pod.spec.gpu.shares else 0
    if len(decision.gpu_groups) != wanted:
        yield f"{len(decision.gpu_groups)} GPU groups are named, {wanted} needed"
    if len(set(decision.gpu_groups)) < len(decision.gpu_groups):
        yield f"the same GPU group is named twice: {', '.join(decision.gpu_groups)}"


def _kinds_together(world: PlannedCluster) -> Iterator[Violation]:
    evicted = {decision.pod for decision in world.plan.decisions if decision.kind == "Evict"}
    for key in world.binds:
        if key in world.nominations:
            yield Violation("protocol", f"pod {key} is bound and nominated", pods=(key,))
        if key in evicted:
            yield Violation(
                "protocol", f"pod {key} is bound and evicted (a moved pod is nominated)", pods=(key,)
            )


def _order(world: PlannedCluster) -> Iterator[Violation]:
    latest, turns = -1, world.turns
    evicted: dict[PodKey, int] = {}
    nominated: dict[PodKey, int] = {}
    first_nomination: dict[tuple[object, str], int] = {}
    for i, decision in enumerate(world.plan.decisions):
        if decision.kind == "Evict":
            evicted[decision.pod] = i
        elif decision.kind == "Nominate":
            nominated[decision.pod] = i
            first_nomination.setdefault((decision.group, decision.action), i)
        if decision.action in STATE_ACTIONS:  # relies on nothing, and nothing relies on it
            continue
        mine = turns.get(decision.action, latest)
        if mine < latest:
            what = f"{decision.kind} of pod {decision.pod} by {decision.action}"
            yield Violation("protocol", f"{what} comes after a later action", groups=_of(decision))
        latest = max(latest, mine)
    for key, decision in world.evictions.items():
        at = evicted[key]
        if at > nominated.get(key, at):
            yield Violation("protocol", f"pod {key} is nominated before it is evicted", pods=(key,))
        for trigger in decision.triggers:
            if at > first_nomination.get((trigger, decision.action), at):
                words = f"pod {key} is evicted for {trigger} after {trigger} was nominated"
                yield Violation("protocol", words, groups=(trigger,))
