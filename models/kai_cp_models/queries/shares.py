"""Queues: the fair order (3.5, 3.6), fair shares, and the GPUs of pods."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import pessimistic_batch
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.order import Entry, FairOrder, group_sort_key
from kai_cp_models.ledger import Ledger
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GPU, MILLI, GroupKey, Pod, PodStatus
from kai_cp_models.queries.cluster import begun
from kai_cp_models.reasons import NOT_OWED
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import PodGroup, Shares, Snapshot
from kai_cp_models.units import Gang

_ROUNDING: Final = 1e-9
"""Sums of fractions of GPUs that differ by less count as equal."""


@dataclass(frozen=True, slots=True)
class QueueShares:
    """What a queue is owed and what it holds, as KAI writes it: milli-CPUs, bytes, GPUs."""

    fair: Shares
    allocated: Shares


@dataclass(frozen=True, slots=True)
class Waiter:
    """A pod group with ``pending`` pods. Its next batch has ``pods`` of them and needs ``gpus``."""

    group: PodGroup
    ready: bool
    pods: int
    pending: int
    gpus: float
    remark: str = ""


def queue_shares(snapshot: Snapshot) -> Mapping[str, QueueShares]:
    """Fair share and allocation of every queue before anything is decided (3.1 to 3.4)."""
    book = QueueBook.of(snapshot)
    return {
        queue.name: QueueShares(book.fair_share_of(queue.name), book.allocated_shares(queue.name))
        for queue in snapshot.queues
    }


def fair_line(snapshot: Snapshot, settings: Settings, served: Container[GroupKey] = ()) -> Iterator[GroupKey]:
    """The waiting pod groups that allocate would look at, in the fair order of the snapshot (3.5, 3.6).

    Groups of ``served`` are charged to their queue before the next group is popped.
    """
    from kai_cp_models.actions.asking import line_of, waiting_groups

    cycle = begun(snapshot, settings)
    ledger, groups = cycle.ledger, snapshot.group_by_key
    asks = waiting_groups(cycle, "allocate")
    order = line_of(ledger, asks)
    while (key := order.pop()) is not None:
        yield key
        if key in served:
            ledger.book.charge(groups[key].queue, asks[key].asked, groups[key].preemptible)
            order.charged(groups[key].queue)


def waiting_line(snapshot: Snapshot) -> list[Waiter]:
    """All waiting groups in the fair order that holds if each is served in turn; groups that cannot be served
    come last."""
    ledger = Ledger.of(snapshot)
    book, gangs, shapes = ledger.book, ledger.fixed.gangs, ledger.fixed.shapes
    found: dict[GroupKey, Waiter] = {}
    entries: dict[GroupKey, Entry] = {}
    for group in snapshot.waiting_groups:
        gang = gangs[group.key]
        state = gang.at_first
        if not state.pending:
            continue
        batch = state.batch
        count, size = (0, (0, 0, 0)) if batch is None else (len(batch.all_pods), shapes.of(batch).pessimistic)
        pending = sum(pod.status is PodStatus.PENDING for pod in gang.pods)
        remark = _remark(snapshot, group, gang)
        found[group.key] = Waiter(group, not remark, count, pending, size[GPU] / MILLI, remark)
        if not remark:
            promised = batch is not None and ledger.promised(batch.all_pods)
            entries[group.key] = group_sort_key(group, state.elastic_state, promised=promised), size
    order = FairOrder(snapshot, book, entries)
    line: list[Waiter] = []
    while (key := order.pop()) is not None:
        waiter = found[key]
        line.append(waiter)
        book.charge(waiter.group.queue, entries[key][1], waiter.group.preemptible)
        order.charged(waiter.group.queue)
    return line + [waiter for waiter in found.values() if not waiter.ready]


def gpus_asked(snapshot: Snapshot, pods: Iterable[Pod]) -> float:
    """GPUs that pods ask for; a share counts its portion, a share of memory its part of the smallest GPU."""
    return pessimistic_batch(snapshot, pods)[GPU] / MILLI


def gpus_of(snapshot: Snapshot, pod: Pod, node: str | None = None) -> float:
    """GPUs of a pod on ``node``, by default its own; a share of memory is its part of a GPU there."""
    name = node or pod.node
    if name is None or name not in snapshot.node_index:
        return gpus_asked(snapshot, (pod,))
    return amounts.accepted(snapshot, pod, snapshot.nodes[snapshot.node_index[name]])[GPU] / MILLI


def whole_gpus(pods: Iterable[Pod]) -> float:
    """GPUs of pods on any node: a share counts its portion, a share of memory a whole device."""
    return sum(amounts.milli_gpus(pod) for pod in pods) / MILLI


@dataclass(frozen=True, slots=True)
class OwedGroups:
    """What the next batches need of those pod groups that wait for a reason which more capacity would
    remove."""

    plan: Plan
    paths: Mapping[str, tuple[str, ...]]
    needs: Mapping[GroupKey, tuple[str, Shares]]
    """Queue, and CPU, memory and GPUs, by pod group."""

    @staticmethod
    def of(snapshot: Snapshot, plan: Plan) -> OwedGroups:
        """The waiting pod groups of a plan, without what the plan gives a place."""
        found: dict[GroupKey, tuple[str, Shares]] = {}
        placed = {decision.pod for decision in plan.decisions if decision.kind != "Evict"}

        def status_of(pod: Pod) -> PodStatus:
            return PodStatus.BINDING if pod.key in placed else pod.status

        for entry in plan.unscheduled:
            group = snapshot.group_by_key.get(entry.group)
            if group is None or entry.reason in NOT_OWED:
                continue
            batch = Gang(group, snapshot.members[entry.group]).state(status_of).batch
            if batch is not None:
                cpu, memory, milli_gpus = amounts.pessimistic_batch(snapshot, batch.all_pods)
                found[entry.group] = group.queue, Shares(float(cpu), float(memory), milli_gpus / MILLI)
        return OwedGroups(plan, snapshot.queue_path, found)

    def by_queue(self, lender: str = "") -> dict[str, list[GroupKey]]:
        """By leaf queue: pod groups whose next batch is within the fair share after the plan.

        This compares the fair shares of the queue and of every queue above it, in CPU, memory and GPUs. With
        a ``lender``, only queues below the lowest common ancestor count, because that ancestor divides its
        share between them.
        """
        found: dict[str, list[GroupKey]] = {}
        above = self.paths.get(lender, ())
        for key, (queue, needs) in self.needs.items():
            path = [name for name in self.paths.get(queue, ()) if name not in above]
            if path and all(self._within(name, needs) for name in path):
                found.setdefault(queue, []).append(key)
        return found

    def _within(self, queue: str, needs: Shares) -> bool:
        report = self.plan.queues.get(queue)
        return report is not None and all(
            share < 0 or held + need <= share + _ROUNDING
            for share, held, need in zip(report.fair_share, report.allocated_after, needs, strict=True)
        )


def _remark(snapshot: Snapshot, group: PodGroup, gang: Gang) -> str:
    """Why no action considers the group (4.1), or ""."""
    if group.queue not in snapshot.queue_by_name:
        return f"queue {group.queue or '(none)'} does not exist"
    if group.queue not in snapshot.leaf_queues:
        return f"queue {group.queue} has child queues"
    if not gang.at_first.ready:
        return "not enough pods for its gang yet"
    return "backed off after a failed attempt" if group.backed_off else ""
