"""Why a pod group waits: one reason token, a message with names and numbers, and whether it is proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.certificates import dead_end
from kai_cp_models.cycle import Cycle
from kai_cp_models.explain.in_sum import InSum
from kai_cp_models.fairness.amounts import pessimistic_batch
from kai_cp_models.fairness.reclaim import can_reclaim, may_reclaim
from kai_cp_models.joint.problem import ask_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import over_quota, quota_check
from kai_cp_models.plan import Unscheduled
from kai_cp_models.pods import GPU, MILLI, GpuKind, GroupKey, Pod, PodStatus
from kai_cp_models.reasons import UNCONDITIONAL
from kai_cp_models.refusal import Refusal
from kai_cp_models.rules.static.table import refusing
from kai_cp_models.shown import amount, plural, quantity, share
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.units import Gang

_BY_BOUNDS: Final = frozenset({"OverLimit", "NonPreemptibleOverQuota", "OverFairShare"})
_OF_CAPACITY: Final = frozenset(
    {"NodeFragmented", "TopologyFragmented", "NotPossible", "NoVictims", "NotDecidedInTime"}
)
_ANY_BOUND: Final = "OverLimit"
"""Asks for limits and quotas, without what quotas lend."""
_FITS_ALONE: Final = "a pod fits by itself, all that must start together do not"
_FITS_NOW: Final = "it fits in what this cycle leaves free, but got no place there"


def unscheduled(cycle: Cycle, proofs: Container[GroupKey] = ()) -> tuple[Unscheduled, ...]:
    """One entry for every pod group with pending pods that got no place in this cycle; of the refusals, those
    for an unconditional reason are proved, and those of ``proofs``.
    """
    found: list[Unscheduled] = []
    said: dict[tuple[int, object, bool], Unscheduled | None] = {}
    words: dict[tuple[object, ...], tuple[str, str]] = {}
    in_sum = InSum(cycle.ledger)
    gated = _gated(cycle)
    touched, alike = cycle.ledger.touched, cycle.snapshot.alike
    bounded: dict[int, bool] = {}
    for group in cycle.snapshot.groups if gated else cycle.snapshot.waiting_groups:
        key, why = group.key, cycle.waiting.get(group.key)
        if key in gated:
            found.append(Unscheduled(key, "SchedulingGated", _gates(gated[key]), True))
            continue
        if key in touched and cycle.ledger.served(cycle.ledger.fixed.gangs[key]):
            continue
        # What quotas lend to a group depends on more than its kind.
        alone = key in touched or (why is not None and why.reason in _BY_BOUNDS)
        if not alone and why is not None and why.reason in _OF_CAPACITY:
            if (number := alike[key]) not in bounded:
                gang = cycle.ledger.fixed.gangs[key]
                bounded[number] = _over_bounds(cycle.ledger, gang, _ANY_BOUND) is not None
            alone = bounded[number]
        kind = id(why), key if alone else alike.get(key), key in proofs
        if kind not in said:
            said[kind] = _row(cycle, key, why, in_sum, words=words, proved=kind[-1])
        if (row := said[kind]) is not None:
            found.append(Unscheduled(key, row.reason, row.message, row.proved, row.details))
    return tuple(found)


def _row(
    cycle: Cycle,
    key: GroupKey,
    why: Refusal | None,
    in_sum: InSum,
    *,
    words: dict[tuple[object, ...], tuple[str, str]],
    proved: bool,
) -> Unscheduled | None:
    """The entry of a group; None where no pod of it waits. ``why``: its refusal, if it was looked at."""
    ledger = cycle.ledger
    gang, touched = ledger.fixed.gangs[key], key in ledger.touched
    unknown = gang.unknown_subgroup_pods
    pending = [
        pod
        for pod in (*gang.pods, *unknown)
        if (ledger.status(pod) if touched else pod.status) is PodStatus.PENDING
    ]
    if not pending:
        return None
    given = touched and any(pod.key in ledger.held for pod in gang.pods)
    nominated = given and any(ledger.status(pod) is PodStatus.PIPELINED for pod in gang.pods)
    # An action's words on the next increment are about a cycle in which the batch has its place.
    if nominated or (why is None and given and not unknown):
        why = Refusal("NextIncrement", "a batch got its place; the next follows in a later cycle")
    if why is None and not unknown:
        why = _not_looked_at(cycle)
    if why is None:
        names = ", ".join(sorted({pod.subgroup or "default" for pod in unknown}))
        why = Refusal("UnknownSubgroup", f"pods name subgroups that the pod group lacks: {names}")
    return _entry(cycle, gang, pending, why, in_sum, words=words, proved=proved)


def _not_looked_at(cycle: Cycle) -> Refusal:
    """Why no action has looked at a pod group."""
    depth, dropped = cycle.snapshot.policy.queue_depth, ", ".join(sorted(cycle.dropped))
    if cycle.budget.cut:
        return Refusal("NotDecidedInTime", "the cycle ended before this pod group was considered")
    if dropped:
        return Refusal("InternalError", f"{dropped} failed before this pod group was considered")
    if depth:
        limits = ", ".join(f"{action} {most}" for action, most in depth.items())
        words = f"too many come before it in its queue (queueDepthPerAction: {limits})"
        return Refusal("BeyondQueueDepth", words)
    return Refusal("NotDecidedInTime", "no action of this cycle considered this pod group")


def _entry(
    cycle: Cycle,
    gang: Gang,
    pending: Sequence[Pod],
    why: Refusal,
    in_sum: InSum,
    *,
    words: dict[tuple[object, ...], tuple[str, str]],
    proved: bool,
) -> Unscheduled:
    """The entry of a group that waits; what the refusal says of proofs does not count.

    ``words``: reason and message of the kinds of pods that were looked at.
    """
    by_bounds = why.reason in _BY_BOUNDS
    over = _over_bounds(cycle.ledger, gang, why.reason) if by_bounds or why.reason in _OF_CAPACITY else None
    if over is not None:
        why = replace(why, reason=over[0], message=over[1], pod=None)
    elif (
        # The plan changed what its queue holds; a proof needed no search.
        by_bounds or (why.reason == "NotDecidedInTime" and proved)
    ):
        why = Refusal("NodeFragmented", pod=pending[0])
    message, reason = why.message, why.reason
    if why.pod is None:
        if reason == "TopologyFragmented" and _beyond_topology(cycle, gang, in_sum):
            reason = "NoRoomInSum"
            batch = cycle.ledger.state(gang).batch
            told = in_sum.words(batch.all_pods) if batch is not None else ""
            message = f"{told}, and nothing may be evicted for it"
    else:
        # Equal batches wait for one reason; with a topology constraint also what they may take matters.
        group, batch = gang.group, cycle.ledger.state(gang).batch
        own = why.pod if why.pod.group == group.key else pending[0]
        shape = cycle.ledger.fixed.shapes.of(batch) if batch is not None else None
        single = len(pending) == 1
        by_queue = reason == "TopologyFragmented" or own.spec.gpu.kind is GpuKind.MEMORY
        rights = (group.queue, group.priority, group.preemptible) if by_queue else None
        kind = (reason, id(why.pod.spec), id(own.spec), shape, single, rights)
        known = words.get(kind)
        if known is None:
            known = words[kind] = _of_pod(cycle, gang, own, why, in_sum, single=single)
        reason, message = known
        pods = batch.all_pods if batch is not None else ()
        if reason == "NoRoomInSum" and (owed := _owed_nothing(cycle, gang, pods)) is not None:
            reason, message = "OverFairShare", f"{owed}; {message}"
    key = gang.group.key
    # What the cycle has evicted is missing in this plan only.
    unconditional = reason in UNCONDITIONAL and key not in cycle.ledger.touched
    return Unscheduled(key, reason, message, proved or unconditional, why.details)


def _over_bounds(ledger: Ledger, gang: Gang, reason: str) -> tuple[str, str] | None:
    """(reason token, message) where limits and quotas, or the fair share, refuse the group in the end."""
    group = gang.group
    if group.queue not in ledger.snapshot.leaf_queues:
        return None
    state = ledger.state(gang)
    if state.batch is None:
        words = "the gang is not complete: this cycle evicts its other pods"
        return ("NotReady", words) if reason in _BY_BOUNDS else None
    ask = ask_of(ledger, gang, state.batch, state)
    if reason == "OverFairShare":
        why = can_reclaim(ledger.book, group.queue, ask.asked, group.preemptible)
        return None if why is None else (reason, why.message)
    # What quotas lend is for those who take what is free; they wait for capacity and not for the quota.
    lendings = (True, False) if reason in _BY_BOUNDS else (True,)
    return next(filter(None, (quota_check(ledger, ask, lending=lending) for lending in lendings)), None)


def _of_pod(
    cycle: Cycle, gang: Gang, pod: Pod, why: Refusal, in_sum: InSum, *, single: bool
) -> tuple[str, str]:
    """Reason and message of a group of which ``pod`` waits, alone if ``single``.

    The pod that found no node may be one of a group that asks for less.
    """
    refused = pod if why.pod is None else why.pod
    ledger, reason = cycle.ledger, why.reason
    if missing := dead_end(ledger.rules, (refused,)):
        return "DependencyMissing", missing
    message = explain_pod(ledger, pod)
    batch = ledger.state(gang).batch
    if not ledger.fixed.table.accepted(refused):
        reason = "NoNodeAccepts"
    together = batch.all_pods if batch is not None else (pod,)
    alone = _kept_by_one_rule(ledger, together)
    if alone is not None:
        return alone
    if over := _over_where_it_fits(ledger, pod):
        return over
    if single and _FITS_ALONE in message:
        message = message.replace(_FITS_ALONE, _FITS_NOW)
        reason = "FitsAsItIs" if reason == "NodeFragmented" else reason
    elif reason == "NodeFragmented" and in_sum.short(together):
        reason = "NoRoomInSum"
        message = message.replace(_FITS_ALONE, in_sum.words(together))
    elif reason == "TopologyFragmented" and _beyond_topology(cycle, gang, in_sum):
        reason = "NoRoomInSum"
    return reason, message


def _owed_nothing(cycle: Cycle, gang: Gang, pods: Sequence[Pod]) -> str | None:
    """Why its queue may not reclaim, where that keeps the group from work of other queues (4.4) and there is
    none of lower priority in its own."""
    ledger, group, book = cycle.ledger, gang.group, cycle.ledger.book
    if "reclaim" not in cycle.snapshot.policy.actions or _has_lower(ledger, group):
        return None
    asked = pessimistic_batch(cycle.snapshot, pods)
    why = can_reclaim(book, group.queue, asked, group.preemptible)
    others = ledger.fixed.running.units["queue"] != book.index(group.queue)
    return why.message if why is not None and others.any() else None


def _has_lower(ledger: Ledger, group: PodGroup) -> bool:
    """Whether preemptible work of lower priority runs in the group's queue."""
    units = ledger.fixed.running.units
    mine = units["queue"] == ledger.book.index(group.queue)
    return bool((mine & (units["priority"] < group.priority)).any())


def _kept_by_one_rule(ledger: Ledger, pods: Sequence[Pod]) -> tuple[str, str] | None:
    """(reason token, message) if one stateful rule alone is in the way."""
    found = (rule.alone(pods, ledger.fixed.table.accepting) for rule in ledger.rules)
    return next((one for one in found if one is not None), None)


def _beyond_topology(cycle: Cycle, gang: Gang, in_sum: InSum) -> bool:
    """Whether a gang did not fit even without its required level, and nothing may leave for it."""
    batch = cycle.ledger.state(gang).batch
    if batch is None or not in_sum.short(batch.all_pods) or _may_take(cycle, gang, batch.all_pods):
        return False
    scopes = (scope for above, _ in batch.leaves for scope in above)
    return not any(scope.constraint is not None and scope.constraint.error for scope in scopes)


def _may_take(cycle: Cycle, gang: Gang, pods: Sequence[Pod]) -> bool:
    """Whether running work of its own queue, or of another, might leave for these pods (4.1, 4.4)."""
    ledger, group, book = cycle.ledger, gang.group, cycle.ledger.book
    if _has_lower(ledger, group):
        return True
    asked = pessimistic_batch(cycle.snapshot, pods)
    others = (book.name(i) for i in np.unique(ledger.fixed.running.units["queue"]).tolist())
    return any(
        may_reclaim(book, group.queue, asked, group.preemptible, queue)
        for queue in others
        if queue != group.queue
    )


def _in_topology(ledger: Ledger, pod: Pod, mask: Mask) -> Mask:
    """[N] those of the nodes that the topology constraints above the pod allow at all."""
    group = ledger.snapshot.group_by_key.get(pod.group) if pod.group else None
    scopes = () if group is None else group.root.scopes_of(pod.subgroup or "default")
    for scope in scopes:
        mask = mask & ledger.fixed.table.domains_of(scope)[0]
    return mask


def _over_where_it_fits(ledger: Ledger, pod: Pod) -> tuple[str, str] | None:
    """(reason token, message) if every node with room charges a share by memory more than its queue may
    hold (2.3): on the node that charges the least."""
    group = ledger.snapshot.group_by_key.get(pod.group) if pod.group else None
    nodes = np.flatnonzero(ledger.fits(pod, now=False)).tolist()
    if group is None or not nodes or pod.spec.gpu.kind is not GpuKind.MEMORY:
        return None
    node = min(nodes, key=lambda node: ledger.fixed.charge(pod, node))
    over = over_quota(ledger, group, (pod,), ledger.fixed.charge(pod, node), lending=True)
    return None if over is None else (over[0], f"{over[1]} on node {ledger.snapshot.nodes[node].name}")


def _gates(pods: int) -> str:
    who = f"{pods} pods wait until their" if pods > 1 else "its pod waits until its"
    return f"{who} scheduling gates are removed"


def _gated(cycle: Cycle) -> dict[GroupKey, int]:
    """Pod groups all of whose waiting pods have a scheduling gate, and how many those are."""
    gated = np.flatnonzero(cycle.snapshot.columns.having((PodStatus.GATED,))).tolist()
    if not gated:
        return {}
    waiting = {group.key for group in cycle.snapshot.waiting_groups}
    groups = (cycle.snapshot.pods[row].group for row in gated)
    return Counter(group for group in groups if group is not None and group not in waiting)


def explain_pod(ledger: Ledger, pod: Pod) -> str:
    """Why no node takes the pod in the ledger's state: static refusals by count, then the missing
    capacity."""
    parts = refusing(ledger.fixed.table, pod)
    for rule in ledger.rules:
        if rule.concerns(pod) and (words := rule.refusals(pod)):
            parts.append(words)
    parts += _room(ledger, pod)
    return "; ".join(parts) or "no node takes it"


def _room(ledger: Ledger, pod: Pod) -> list[str]:
    """What the pod needs and what the nodes that accept it have free, per dimension that no node covers."""
    nodes = ledger.fixed.table.accepting(pod)
    if not nodes.any():
        return []
    if (fits := ledger.fits(pod, now=False)).any():
        outside = f"{plural(int(fits.sum()), 'node')} with enough free capacity outside its topology"
        return [_FITS_ALONE if _in_topology(ledger, pod, fits).any() else outside]
    free = ledger.free[nodes].clip(min=0)
    gpu = pod.spec.gpu
    wanted = list(pod.spec.requests)
    if gpu.shares:
        wanted[GPU] = 0
        whole = int(free[:, GPU].max()) // MILLI
        if whole < gpu.devices:
            return [f"needs {share(gpu)}; shared ones have less free, at most {whole} are idle on one node"]
    where = "in all" if nodes.all() else "on the others"
    short = [
        f"needs {quantity(name, asked)}; {amount(name, int(free[:, d].sum()))} free {where}, "
        f"at most {amount(name, int(free[:, d].max()))} on one node"
        for d, (asked, name) in enumerate(zip(wanted, ledger.snapshot.dimensions, strict=True))
        if asked > int(free[:, d].max())
    ]
    if short:
        return short
    whole_gpus = [MILLI * gpu.devices if d == GPU and gpu.shares else n for d, n in enumerate(wanted)]
    if (free >= whole_gpus).all(axis=1).any():
        return []  # The rule that refuses such a node has said so.
    parts = [quantity(*pair) for pair in zip(ledger.snapshot.dimensions, wanted, strict=True) if pair[1]]
    asked = ", ".join([*parts, *([share(gpu)] if gpu.shares else [])])
    return [f"no node has {asked} free at once"]
