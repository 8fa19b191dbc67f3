"""Why a pod group waits: one reason token, a message with names and numbers, and whether it is proved."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.certificates import OVER_SHARES, dead_end
from kai_cp_models.cycle import Cycle
from kai_cp_models.explain.in_sum import InSum
from kai_cp_models.fairness.amounts import pessimistic_batch
from kai_cp_models.fairness.reclaim import can_reclaim, may_reclaim
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import Placer
from kai_cp_models.plan import Unscheduled
from kai_cp_models.pods import GPU, MILLI, GpuKind, GroupKey, Pod, PodStatus
from kai_cp_models.policy import STATE_ACTIONS
from kai_cp_models.reasons import UNCONDITIONAL
from kai_cp_models.refusal import Proof, Refusal
from kai_cp_models.reservations.times import TIMES
from kai_cp_models.rules.stateful import rollouts
from kai_cp_models.rules.static.table import refusing
from kai_cp_models.shown import amount, plural, quantity, share
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.units import Batch, Gang
from kai_cp_models.unready import DELAYS, unready

logger = logging.getLogger(__name__)
_BY_BOUNDS: Final = frozenset({"OverLimit", "NonPreemptibleOverQuota", "OverFairShare"})
_OF_CAPACITY: Final = frozenset(
    {
        "NodeFragmented",
        "TopologyFragmented",
        "NoNodeAccepts",
        "NoRoomInSum",
        "NotPossible",
        "NoVictims",
        "NotDecidedInTime",
        "NoAction",
    }
)
_OF_THE_PLAN: Final = _BY_BOUNDS | _OF_CAPACITY
"""Reasons that later actions may change, so the finished plan is asked. All other reasons stay as
recorded."""
_WITHOUT_NUMBERS: Final = frozenset({"NoVictims", "NotPossible", "NoRoomInSum"})
"""Certificates about everything that may leave: their words do not say what is asked for and what is free."""
_OF_SUMS: Final = frozenset({"NodeFragmented", *_WITHOUT_NUMBERS})
"""Reasons for too little free capacity, which hide that the nodes are too small even if they are empty."""
_FITS_ALONE: Final = "one pod fits, but not all that must start together"
_SHARES_KEEP: Final = "other queues lose only what they hold beyond fair share or quota, which is too little"
_FITS_NOW: Final = "it fits in what this cycle leaves free, but got no place there"


def unscheduled(cycle: Cycle, proofs: Mapping[GroupKey, Proof] = {}) -> tuple[Unscheduled, ...]:
    """One entry for every pod group with pending pods that got no place in this cycle. Refusals for an
    unconditional reason are proved, and so are those of ``proofs``."""
    found: list[Unscheduled] = []
    said: dict[tuple[object, ...], Unscheduled | None] = {}
    reasons, gated = _Reasons(cycle), _gated(cycle)
    touched, alike = cycle.ledger.touched, cycle.snapshot.alike
    timed = cycle.snapshot.extras[TIMES] is not None
    lends = rollouts.active(cycle.snapshot, cycle.settings.rules)
    for group in cycle.snapshot.groups if gated else cycle.snapshot.waiting_groups:
        key, why = group.key, cycle.waiting.get(group.key)
        if key in gated:
            found.append(Unscheduled(key, "SchedulingGated", _gates(gated[key]), True))
            continue
        if key in touched and cycle.ledger.served(cycle.ledger.fixed.gangs[key]):
            continue
        # A back-off and a maximum run time concern the group alone, and so does what quotas lend.
        own = group.backed_off or (timed and why is None) or (lends and not group.preemptible)
        alone = own or key in touched
        kind = id(why), key if alone else alike.get(key), reasons.beyond_depth(key), proofs.get(key)
        if kind not in said:
            try:
                said[kind] = reasons.row(key, why, proofs.get(key))
            except Exception as problem:
                # A defect costs only the words of the groups that it concerns, and no group its place.
                logger.exception("why pod group %s waits is not known: report this defect", key)
                words = f"why it waits is not known: {type(problem).__name__}: {problem}"
                said[kind] = Unscheduled(key, "InternalError", words, False)
        if (row := said[kind]) is not None:
            found.append(Unscheduled._make((key, *row[1:])))
    return tuple(found)


class _Reasons:
    """Why pod groups wait in the finished plan of a cycle."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle, self._ledger, self._in_sum = cycle, cycle.ledger, InSum(cycle.ledger)
        policy, turns = cycle.snapshot.policy, frozenset(cycle.turns)
        limited = "allocate" in policy.actions and "allocate" in policy.queue_depth
        self._in_depth = turns if limited else None
        """The groups that allocate looked at; None: it looks at all."""
        self._known: dict[tuple[object, ...], tuple[str, str]] = {}
        """Reason and message of the kinds of pods that were looked at."""

    def beyond_depth(self, key: GroupKey) -> bool:
        """Whether allocate did not look at the group, as its depth is limited."""
        return self._in_depth is not None and key not in self._in_depth

    def row(self, key: GroupKey, why: Refusal | None, proof: Proof | None) -> Unscheduled | None:
        """The entry of a group; None where no pod of it waits.

        ``why``: its refusal, if an action looked at it. What the refusal says of proofs does not count.
        """
        ledger = self._ledger
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
        # The action's words on the next increment belong to a cycle in which the batch already has its place.
        if nominated or (why is None and given and not unknown):
            why = Refusal("NextIncrement", "a batch got its place; the next follows in a later cycle")
        if why is None and not unknown:
            why = _not_looked_at(self._cycle)
        if why is None:
            why = Refusal("UnknownSubgroup", _outside_subgroups(unknown))
        reason, message = why.reason, why.message
        if reason in _OF_THE_PLAN:
            reason, message = self._in_the_end(gang, pending, why, proof)
        elif reason in DELAYS:
            # A group that may never start is reported as such before its delay is over.
            reason, message = _never(ledger, pending) or (reason, message)
        # Pods that the cycle has evicted are missing in this plan only.
        unconditional = reason in UNCONDITIONAL and not touched
        return Unscheduled(key, reason, message, proof is not None or unconditional, why.details)

    def _in_the_end(
        self, gang: Gang, pending: Sequence[Pod], why: Refusal, proof: Proof | None
    ) -> tuple[str, str]:
        """(reason token, message) with what queues hold and nodes have free in the end: the group itself,
        bounds of queues, then capacity, then rights to what runs."""
        ledger, group, state = self._ledger, gang.group, self._ledger.state(gang)
        if (lacking := unready(ledger.snapshot, gang, state, None)) is not None:
            evicts = "; this cycle evicts others of it" if group.key in ledger.touched else ""
            return lacking.reason, lacking.message + evicts
        batch = state.batch
        assert batch is not None
        # Quotas lend only to pods that take free capacity; these groups wait for capacity and not for the
        # quota.
        least = ledger.fixed.shapes.of(batch).optimistic
        if over := ledger.over_quota(group, batch.all_pods, least):
            return over
        if self.beyond_depth(group.key) and self._fits(gang, batch):
            why = _not_looked_at(self._cycle)
            return why.reason, why.message
        reason, message, pod = why.reason, why.message, why.pod
        if reason == "OverFairShare" and (owed := self._owed_nothing(group, batch)) is not None:
            return reason, owed
        # The plan changed what its queue holds, so the proof needs no search.
        if reason in _BY_BOUNDS or (reason == "NotDecidedInTime" and proof):
            reason, pod = "NodeFragmented", pending[0]
        if pod is not None:
            reason, message = self._of_pod(gang, batch, pending, pod, reason)
        elif reason == "TopologyFragmented" and (never := _never(ledger, batch.all_pods)):
            reason, message = never
        elif reason == "TopologyFragmented" and self._beyond_topology(group, batch):
            reason = "NoRoomInSum"
            message = f"{self._in_sum.words(batch.all_pods)}, and nothing may be evicted for it"
        elif reason in _WITHOUT_NUMBERS and (sums := self._in_sum.words(batch.all_pods)):
            message = f"{sums}; {message}"
        if reason in _OF_SUMS and (lack := self._in_sum.beyond(batch.all_pods)):
            return "NoNodeAccepts", "; ".join([*refusing(ledger.fixed.table, pending[0]), lack])
        owed = None
        if reason in _WITHOUT_NUMBERS and proof is not None and proof.certificate == OVER_SHARES:
            owed = _SHARES_KEEP
        if reason == "NoRoomInSum" and self._needs_reclaim(group):
            owed = self._owed_nothing(group, batch) or owed
        return (reason, message) if owed is None else ("OverFairShare", f"{owed}; {message}")

    def _of_pod(
        self, gang: Gang, batch: Batch, pending: Sequence[Pod], refused: Pod, reason: str
    ) -> tuple[str, str]:
        """Reason and message of a group if no node was found for one of its pods, or for a pod of a group
        that asks for less. Equal batches wait for one reason; with a topology constraint, what they may take
        matters too."""
        ledger, group, single = self._ledger, gang.group, len(pending) == 1
        own = refused if refused.group == group.key else pending[0]
        lost = (pod for pod in gang.pods if group.key in ledger.touched and not ledger.stays(pod))
        if (first := min(lost, key=attrgetter("sort_key"), default=own)).sort_key < own.sort_key:
            # It starts with what it has lost in this cycle.
            own, single = first, False
        by_queue = reason == "TopologyFragmented" or own.spec.gpu.kind is GpuKind.MEMORY
        rights = (group.queue, group.priority, group.preemptible) if by_queue else None
        kind = (reason, id(refused.spec), id(own.spec), ledger.fixed.shapes.of(batch), single, rights)
        if kind not in self._known:
            self._known[kind] = self._looked_at(gang, batch, own, refused, reason, single=single)
        return self._known[kind]

    def _looked_at(
        self, gang: Gang, batch: Batch, own: Pod, refused: Pod, reason: str, *, single: bool
    ) -> tuple[str, str]:
        """The same, computed. ``single``: only this pod of the group waits."""
        ledger, together = self._ledger, batch.all_pods
        if missing := dead_end(ledger.rules, (refused,)):
            return missing.reason, missing.message
        if never := _never(ledger, (own, *together)):
            return never
        message = explain_pod(ledger, own, one_of=len(together))
        if alone := _kept_by_one_rule(ledger, together) or _over_where_it_fits(ledger, own):
            return alone
        if _FITS_ALONE in message and (single or self._fits(gang, batch)):
            message = message.replace(_FITS_ALONE, _FITS_NOW)
            reason = "FitsAsItIs" if reason == "NodeFragmented" else reason
        elif reason == "NodeFragmented" and self._in_sum.short(together):
            reason, words = "NoRoomInSum", self._in_sum.words(together)
            # If a pod finds no node although there is enough for it in sum, the sum of all pods is reported
            # first.
            told = _FITS_ALONE in message or self._in_sum.short((own,))
            message = message.replace(_FITS_ALONE, words) if told else f"{words}; {message}"
        elif reason == "TopologyFragmented" and self._beyond_topology(gang.group, batch):
            reason = "NoRoomInSum"
        return reason, message

    def _fits(self, gang: Gang, batch: Batch) -> bool:
        """Whether the capacity that the cycle leaves free takes the whole batch, for example if no action
        offers it."""
        self._ledger.mark()
        try:
            return Placer(gang, pipeline_only=True).place(self._ledger, batch) is None
        finally:
            self._ledger.close(kept=False)

    def _needs_reclaim(self, group: PodGroup) -> bool:
        """Whether only work of other queues could leave for the group."""
        return "reclaim" in self._cycle.snapshot.policy.actions and not _has_lower(self._ledger, group)

    def _owed_nothing(self, group: PodGroup, batch: Batch) -> str | None:
        """Why its queue may not reclaim for the batch (4.4). None if it may, or if reclaim could not help
        anyway: no other queue runs anything, or the nodes that accept the pods are too small together."""
        book, queues = self._ledger.book, self._ledger.fixed.running.units["queue"]
        if (queues == book.index(group.queue)).all() or self._in_sum.beyond(batch.all_pods):
            return None
        asked = pessimistic_batch(self._ledger.snapshot, batch.all_pods)
        why = can_reclaim(book, group.queue, asked, group.preemptible)
        return None if why is None else why.message

    def _beyond_topology(self, group: PodGroup, batch: Batch) -> bool:
        """Whether a gang fits not even without its required level, and what may leave cannot help."""
        pods = batch.all_pods
        if not self._in_sum.short(pods) or (
            _may_take(self._ledger, group, pods) and not self._in_sum.beyond(pods)
        ):
            return False
        scopes = (scope for above, _ in batch.leaves for scope in above)
        return not any(scope.constraint is not None and scope.constraint.error for scope in scopes)


def _outside_subgroups(pods: Sequence[Pod]) -> str:
    """A note on pods whose labels name no subgroup of their pod group."""
    names = sorted({pod.subgroup for pod in pods if pod.subgroup})
    unnamed = sum(not pod.subgroup for pod in pods)
    parts = [f"pods name subgroups that the pod group lacks: {', '.join(names)}"] if names else []
    return "; ".join([*parts, *([f"{plural(unnamed, 'pod')} without a subgroup"] if unnamed else [])])


def _not_looked_at(cycle: Cycle) -> Refusal:
    """Why no action has looked at a pod group."""
    policy, dropped = cycle.snapshot.policy, ", ".join(sorted(cycle.dropped))
    looking = (action for action in policy.actions if action not in STATE_ACTIONS)
    depths = [f"{action} {policy.queue_depth[action]}" for action in looking if action in policy.queue_depth]
    if cycle.budget.cut:
        return Refusal("NotDecidedInTime", "the cycle ended before this pod group was considered")
    if dropped:
        return Refusal("InternalError", f"{dropped} failed before this pod group was considered")
    if depths:
        words = f"too many come before it in its queue (queueDepthPerAction: {', '.join(depths)})"
        return Refusal("BeyondQueueDepth", words)
    return Refusal("NoAction", "no action of this policy serves it")


def _never(ledger: Ledger, pods: Sequence[Pod]) -> tuple[str, str] | None:
    """(reason token, message) if one of the pods could start on no node, even an empty one."""
    if missing := dead_end(ledger.rules, pods):
        return missing.reason, missing.message
    table = ledger.fixed.table
    one = next((pod for pod in pods if not table.takes_when_empty(pod)), None)
    if one is None:
        return None
    return "NoNodeAccepts", "; ".join([*refusing(table, one), *_beyond_nodes(ledger, one)])


def _beyond_nodes(ledger: Ledger, pod: Pod) -> list[str]:
    """What the pod needs that no node accepting it has, even if empty."""
    table, names = ledger.fixed.table, ledger.snapshot.dimensions
    nodes = table.accepting(pod)
    if not nodes.any():
        return []
    most = table.allocatable[nodes].max(axis=0).tolist()
    wanted = [0 if d == GPU and pod.spec.gpu.shares else n for d, n in enumerate(pod.spec.requests)]
    short = [
        f"needs {quantity(name, asked)}; the largest node that accepts it has {amount(name, has)}"
        for name, asked, has in zip(names, wanted, most, strict=True)
        if asked > has
    ]
    parts = [quantity(name, asked) for name, asked in zip(names, wanted, strict=True) if asked]
    return short or [f"no node has {', '.join(parts)} at once, even if empty"]


def _has_lower(ledger: Ledger, group: PodGroup) -> bool:
    """Whether preemptible work of lower priority runs in the group's queue."""
    units = ledger.fixed.running.units
    mine = units["queue"] == ledger.book.index(group.queue)
    return bool((mine & (units["priority"] < group.priority)).any())


def _kept_by_one_rule(ledger: Ledger, pods: Sequence[Pod]) -> tuple[str, str] | None:
    """(reason token, message) if a single stateful rule is in the way."""
    found = (rule.alone(pods, ledger.fixed.table.accepting) for rule in ledger.rules)
    return next((one for one in found if one is not None), None)


def _may_take(ledger: Ledger, group: PodGroup, pods: Sequence[Pod]) -> bool:
    """Whether running work of the group's own queue, or of another, might leave for these pods (4.1, 4.4)."""
    book = ledger.book
    if _has_lower(ledger, group):
        return True
    asked = pessimistic_batch(ledger.snapshot, pods)
    others = (book.name(i) for i in np.unique(ledger.fixed.running.units["queue"]).tolist())
    return any(
        may_reclaim(book, group.queue, asked, group.preemptible, queue)
        for queue in others
        if queue != group.queue
    )


def _in_topology(ledger: Ledger, pod: Pod, mask: Mask) -> Mask:
    """[N] those of the nodes that the topology constraints above the pod allow."""
    group = ledger.snapshot.group_by_key.get(pod.group) if pod.group else None
    scopes = () if group is None else group.root.scopes_of(pod.subgroup or "default")
    for scope in scopes:
        mask = mask & ledger.fixed.table.domains_of(scope)[0]
    return mask


def _over_where_it_fits(ledger: Ledger, pod: Pod) -> tuple[str, str] | None:
    """(reason token, message) if every node with enough capacity charges a share by memory more than its
    queue may hold (2.3). The message uses the node that charges the least."""
    group = ledger.snapshot.group_by_key.get(pod.group) if pod.group else None
    nodes = np.flatnonzero(ledger.fits(pod, now=False)).tolist()
    if group is None or not nodes or pod.spec.gpu.kind is not GpuKind.MEMORY:
        return None
    node = min(nodes, key=lambda node: ledger.fixed.charge(pod, node))
    over = ledger.over_quota(group, (pod,), ledger.fixed.charge(pod, node))
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


def explain_pod(ledger: Ledger, pod: Pod, *, one_of: int = 1) -> str:
    """Why no node takes the pod in the ledger's state: static refusals by count, then the missing capacity.
    ``one_of``: how many pods must start together; the needs named are those of one pod."""
    parts = refusing(ledger.fixed.table, pod)
    for rule in ledger.rules:
        if rule.concerns(pod) and (words := rule.refusals(pod)):
            parts.append(words)
    parts += _room(ledger, pod, "needs" if one_of == 1 else "a pod needs")
    return "; ".join(parts) or "no node takes it"


def _room(ledger: Ledger, pod: Pod, needs: str) -> list[str]:
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
    short = []
    if gpu.shares:
        wanted[GPU] = 0
        whole = int(free[:, GPU].max()) // MILLI
        if whole < gpu.devices:
            idle = (
                f"at most {whole} {'is' if whole == 1 else 'are'} idle on one node"
                if whole
                else "none is idle"
            )
            short.append(f"{needs} {share(gpu)}; no GPU that pods share has that much free, and {idle}")
    where = "in all" if nodes.all() else "on the others"
    for asked, name, each in zip(wanted, ledger.snapshot.dimensions, free.T, strict=True):
        total, most = int(each.sum()), int(each.max())
        if asked > most:
            on_one = f", at most {amount(name, most)} on one node" if total >= asked else ""
            short.append(f"{needs} {quantity(name, asked)}; {amount(name, total)} free {where}{on_one}")
    if short:
        return short
    whole_gpus = [MILLI * gpu.devices if d == GPU and gpu.shares else n for d, n in enumerate(wanted)]
    if (free >= whole_gpus).all(axis=1).any():
        return []  # The rule that refuses such a node has named it already.
    parts = [quantity(*pair) for pair in zip(ledger.snapshot.dimensions, wanted, strict=True) if pair[1]]
    together = ", ".join([*parts, *([share(gpu)] if gpu.shares else [])])
    return [f"no node has {together} free at once"]
