"""Why a pod group waits: which rules block it, and which least changes could help.

A ``Situation`` is a decided cycle; ``blocking_of_all`` proves what blocks its pod groups; families of rules
have the same names as in the documents. Every other function here answers one question about a situation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.explain import repair
from kai_cp_models.explain.ask import AskClass, classes_of, device_families
from kai_cp_models.explain.blocking import ALL_SECONDS, Blocking, Work, blocking_of, blocking_of_all
from kai_cp_models.explain.bound import GpuBound, gpu_bound
from kai_cp_models.explain.families import (
    DEVICE_RULES,
    VICTIM_RULES,
    Families,
    kind_of,
    ordered,
    subject_of,
)
from kai_cp_models.explain.own import own_faults
from kai_cp_models.explain.position import FairLine, Position
from kai_cp_models.explain.repair import PodChanges, Repair
from kai_cp_models.explain.situation import Situation, admitted
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.reclaim import levelled
from kai_cp_models.fairness.runtime import began, delayed, granted
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_ALLOCATED, UNLIMITED, GroupKey, Pod, PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.rules.static.table import refusing
from kai_cp_models.rules.static.taints import REFUSING, tolerates
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import PodGroup, Shares, Snapshot, Taint

__all__ = [
    "ALL_SECONDS",
    "DEVICE_RULES",
    "VICTIM_RULES",
    "AskClass",
    "Blocking",
    "BoundShortage",
    "FairLine",
    "Families",
    "GpuBound",
    "LevelledQueue",
    "PodChanges",
    "Position",
    "Situation",
    "Work",
    "admitted",
    "asked_classes",
    "blocking_of",
    "blocking_of_all",
    "changes",
    "charge_steps",
    "eviction_units",
    "free_after",
    "gpu_bound",
    "has_devices",
    "kind_of",
    "lasting",
    "levelled_queues",
    "moves_fit",
    "new_places",
    "ordered",
    "own_faults",
    "protected_until",
    "question_of",
    "refused_by_others",
    "refused_nodes",
    "refuses",
    "shortages",
    "shut_out",
    "subject_of",
    "wanted_below",
    "within_limits",
]


def question_of(situation: Situation, group: PodGroup) -> object:
    """A key that is equal for pod groups with the same blocking sets and the same fixes.

    A group without a batch has a key of its own.
    """
    batch = situation.batch(group.key)
    if batch is None:
        return group.key
    gang = situation.gang(group.key)
    started = any(pod.key in situation.after.held for pod in gang.pods)
    delay = delayed(situation.snapshot, group) is not None
    faults, served = own_faults(situation, group), situation.served_before(group.key)
    asked = situation.kind_of(gang, batch)
    return group.queue, group.priority, group.preemptible, delay, started, faults, asked, served


def asked_classes(situation: Situation, group: PodGroup) -> list[AskClass]:
    """The next batch of a pod group, class by class, each with the nodes that static rules refuse."""
    return classes_of(situation.after, situation.gang(group.key), situation.batch(group.key))


def shut_out(snapshot: Snapshot, settings: Settings, key: GroupKey) -> bool:
    """Whether no node takes one of the pods of the group's next batch, even if it is empty.

    Then no cycle on the snapshot admits the group.
    """
    ledger = Ledger.of(snapshot, settings.rules, close_gangs=settings.objective.close_gangs)
    batch = ledger.fixed.gangs[key].at_first.batch
    return batch is not None and not all(map(ledger.fixed.table.takes_when_empty, batch.all_pods))


def lasting(situation: Situation, group: PodGroup, sets: Iterable[Families]) -> list[Families]:
    """The blocking sets that stay whatever other pods do.

    They contain no rule about running pods, and no rule by which a waiting pod may open a node to the group.
    """
    snapshot, classes = situation.snapshot, asked_classes(situation, group)
    others = [g.key for g in snapshot.waiting_groups if g.key != group.key]
    ends = set(VICTIM_RULES)
    for family, position in device_families(situation.before, classes):
        rule = situation.before.rules[position]
        asked = [item.example for item in classes if rule.opened_by(item.example)]
        if asked and any(
            pod.status is PodStatus.PENDING and rule.opened_by(one, pod)
            for key in others
            for pod in snapshot.members[key]
            for one in asked
        ):
            ends.add(kind_of(family))
    return [one for one in sets if ends.isdisjoint(map(kind_of, one))]


def refused_nodes(situation: Situation, item: AskClass) -> list[str]:
    """Why static rules refuse a class of pods, in words with the number of nodes."""
    return refusing(situation.after.fixed.table, item.example)


def refused_by_others(situation: Situation, item: AskClass, families: Families) -> tuple[Mask, list[str]]:
    """[N] nodes that stateful rules of these families refuse a class of pods once the plan is carried out,
    and why, in words."""
    ledger = situation.after
    refused = np.zeros(len(ledger.idle), dtype=np.bool_)
    words: list[str] = []
    for family, position in device_families(ledger, [item]):
        allowed = ledger.rules[position].mask(item.example, now=False) if family in families else None
        if allowed is not None and not allowed.all():
            refused |= ~allowed
            words.append(ledger.rules[position].refusals(item.example))
    return refused, [one for one in words if one]


def free_after(situation: Situation) -> Ints:
    """[N, D] what is idle or releasing on every node once the plan is carried out; negative where pods hold
    more than the node has."""
    found: Ints = situation.after.free
    return found


class LevelledQueue(NamedTuple):
    """One of two queues that reclaim compares, with what it holds and is owed."""

    name: str
    allocated: Shares
    fair: Shares


def levelled_queues(situation: Situation, asker: str, victim: str) -> tuple[LevelledQueue, LevelledQueue]:
    """The two queues that 4.4 compares, on the paths of two leaf queues: the trigger's and the victim's."""
    book = situation.before.book
    mine, theirs = (
        LevelledQueue(name, book.allocated_shares(name), book.fair_share_of(name))
        for name in levelled(book, asker, victim)
    )
    return mine, theirs


@dataclass(frozen=True, slots=True)
class BoundShortage:
    """A bound of a queue that the next batch exceeds, in milli-CPUs, bytes or milli-GPUs.

    ``resource``: 0 CPU, 1 memory, 2 GPU. ``needed``: the smallest bound that the batch would not exceed.
    """

    queue: str
    resource: int
    needed: int


def shortages(
    situation: Situation, group: PodGroup, field: Literal["limit", "quota"], *, of_all: bool = False
) -> Iterator[BoundShortage]:
    """Bounds on the path of a pod group's queue that its batch and the pods there exceed together (3.7).

    ``of_all``: bounds that all held and waiting pods below the queue exceed together.
    """
    book, batch = situation.after.book, situation.batch(group.key)
    size = amounts.optimistic_batch(situation.snapshot, batch.all_pods if batch else ())
    firm = field == "quota" and not group.preemptible
    bounds = book.limit if field == "limit" else book.firm_quota if firm else book.quota
    for i in book.line(group.queue) if group.queue in situation.snapshot.queue_by_name else ():
        held = (book.firm if firm else book.held)[i]
        below = wanted_below(situation, book.name(i)) if of_all else None
        whole = [int(held[r] + size[r]) for r in range(len(size))] if below is None else below
        for r in range(len(size)):
            if size[r] and bounds[i][r] != UNLIMITED and whole[r] > bounds[i][r]:
                yield BoundShortage(book.name(i), r, whole[r])


def within_limits(situation: Situation, group: PodGroup) -> Callable[[Iterable[Pod]], bool]:
    """Whether the batch of a pod group may be within the limits of its queues (3.7) once given pods have left
    and the group has evicted what it might, if all other pods keep what they hold after the cycle."""
    snapshot, book = situation.snapshot, situation.after.book
    short = [
        (one.queue, one.resource, one.needed - int(book.limit[book.index(one.queue)][one.resource]))
        for one in shortages(situation, group, "limit")
    ]

    def evictable(pod: Pod) -> bool:
        """Whether preempt or reclaim could evict it for the pod group, judged by the first tests of these
        actions."""
        held = snapshot.group_by_key[pod.group] if pod.group is not None else None
        if held is None or not held.preemptible:
            return False
        return held.queue != group.queue or held.priority < group.priority

    def held_by(pods: Iterable[Pod]) -> Counter[tuple[str, int]]:
        found: Counter[tuple[str, int]] = Counter()
        for pod in pods:
            if pod.group is None or pod.key in situation.evicted:
                continue
            charge = amounts.most(snapshot, pod)
            for queue in snapshot.queue_path.get(snapshot.group_by_key[pod.group].queue, ()):
                found.update({(queue, r): size for r, size in enumerate(charge)})
        return found

    holders = [pod for pod in snapshot.pods if pod.status in ACTIVE_ALLOCATED or pod.key in situation.given]
    anyway = held_by(filter(evictable, holders)) if short else Counter()

    def within(leaving: Iterable[Pod]) -> bool:
        freed = held_by(pod for pod in leaving if not evictable(pod)) if short else anyway
        return all(anyway[queue, r] + freed[queue, r] >= over for queue, r, over in short)

    return within


def wanted_below(situation: Situation, queue: str) -> amounts.Amounts:
    """What a queue holds plus what all waiting pods below it ask for: milli-CPUs, bytes, milli-GPUs."""
    book, snapshot = situation.before.book, situation.snapshot
    cpu, memory, gpu = book.held[book.index(queue)]
    found = int(cpu), int(memory), int(gpu)
    for group in snapshot.waiting_groups:
        if queue in snapshot.queue_path.get(group.queue, ()):
            pods = [pod for pod in situation.gang(group.key).pods if pod.node is None]
            found = amounts.add(found, amounts.optimistic_batch(snapshot, pods))
    return found


def charge_steps(situation: Situation, groups: Iterable[PodGroup]) -> amounts.Amounts:
    """The largest steps that divide every charge of a pod, and of the next batch of each group: milli-CPUs,
    bytes, milli-GPUs."""
    snapshot = situation.snapshot
    found = amounts.NOTHING
    for group in groups:
        batch = situation.batch(group.key)
        whole = amounts.optimistic_batch(snapshot, batch.all_pods if batch else ())
        found = math.gcd(found[0], whole[0]), math.gcd(found[1], whole[1]), math.gcd(found[2], whole[2])
    for pod in snapshot.pods:
        if pod.group is not None:
            cpu, memory, gpu = amounts.optimistic(snapshot, pod)
            found = math.gcd(found[0], cpu), math.gcd(found[1], memory), math.gcd(found[2], gpu)
    return found


def protected_until(snapshot: Snapshot, queue: str) -> Iterator[tuple[float, GroupKey]]:
    """Running pod groups that a minimum runtime protects from ``queue`` now, with the end of the
    protection."""
    seconds: dict[str, float] = {}
    for other in snapshot.groups:
        start = began(snapshot, other)
        if start is None or other.queue not in snapshot.queue_by_name:
            continue
        if other.queue not in seconds:
            action: ActionName = "preempt" if other.queue == queue else "reclaim"
            seconds[other.queue] = granted(snapshot, other.queue, action, queue)
        over = start + seconds[other.queue]
        running = any(pod.status in ACTIVE_ALLOCATED for pod in snapshot.members[other.key])
        if over > snapshot.now and running:
            yield over, other.key


def refuses(taint: Taint, pods: Iterable[Pod]) -> bool:
    """Whether a taint keeps one of the pods off its node (7.1)."""
    return taint.effect in REFUSING and any(
        not any(tolerates(toleration, taint) for toleration in pod.spec.tolerations) for pod in pods
    )


def changes(
    situation: Situation,
    group: PodGroup,
    kind: Literal["stop", "move"],
    *,
    bent: bool = False,
    work: Work,
    most: int,
) -> Iterator[PodChanges]:
    """Pods to stop or to move for a pod group, the least first; only a cycle on the changed snapshot shows
    whether one helps.

    ``bent``: fair shares and the order may change with it. ``work``: what the model may do; ``most``: the
    most candidates.
    """
    model = Repair(situation, group, kind, bent=bent)
    work.built(model)
    return model.candidates(work, most)


def has_devices(situation: Situation, pod: Pod) -> bool:
    """Whether a pod holds more than its requests on its node, so that no move of it is proposed."""
    return repair.has_devices(situation.before, pod)


def eviction_units(situation: Situation, key: GroupKey) -> list[tuple[Pod, ...]]:
    """The pods of every eviction unit of a pod group (5.4), in the order in which they go."""
    return [unit.pods for unit in situation.gang(key).units_at_first]


def moves_fit(situation: Situation, pods: Sequence[Pod], nodes: Sequence[int]) -> bool:
    """Whether every pod fits on its new node once all of them have left the old one."""
    ledger = _once_left(situation, pods)
    for pod, node in zip(pods, nodes, strict=True):
        if not ledger.fits_on(pod, node, now=False):
            return False
        ledger.place(pod, node, pipelined=True)
    return True


def new_places(
    situation: Situation, pods: Sequence[Pod], look: Callable[[], None]
) -> Iterator[tuple[int, ...]]:
    """Every choice of another node for each pod once all of them have left, in the order of the nodes.

    ``look`` is called before each search over all nodes, and may raise to end the enumeration.
    """
    yield from _placed(_once_left(situation, pods), pods, look)


def _once_left(situation: Situation, pods: Sequence[Pod]) -> Ledger:
    """What is free once pods have left."""
    ledger = situation.before.copy()
    for pod in pods:
        ledger.evict(pod)
    return ledger


def _placed(ledger: Ledger, pods: Sequence[Pod], look: Callable[[], None]) -> Iterator[tuple[int, ...]]:
    if not pods:
        yield ()
        return
    look()
    first, *rest = pods
    for node in map(int, np.flatnonzero(ledger.fits(first, now=False))):
        if ledger.fixed.snapshot.nodes[node].name != first.node:
            after = ledger.copy()
            after.place(first, node, pipelined=True)
            for others in _placed(after, rest, look):
                yield node, *others
