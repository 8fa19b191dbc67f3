"""The first look at a snapshot: its nodes, its queues, and who waits in which order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from kai_cp.report.partition import partition
from kai_cp.report.section import ROWS_SHOWN, Section, ignored
from kai_cp.report.terminal import amount, plural
from kai_cp.report.waiting import Waiter, waiters
from kai_cp_models.devices.mig import mig_report
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.snapshot import (
    ACTIVE_USED,
    CPU,
    GPU,
    MEMORY,
    MILLI,
    PODS,
    Node,
    Pod,
    PodStatus,
    Queue,
    Snapshot,
)

RESOURCES = ("cpu", "memory", "gpu")
_SCALE = {"cpu": (MILLI, "cores"), "memory": (2**30, "GiB"), "gpu": (1, "GPUs")}


def report(name: str, snapshot: Snapshot, resource: str, *, everything: bool = False) -> RenderableType:
    """The whole view; queues are shown in one ``resource``."""
    most = None if everything else ROWS_SHOWN
    book = QueueBook.of(snapshot)
    line = waiters(snapshot, book.copy())
    sections = [
        _nodes(snapshot),
        _queues(snapshot, book, line, resource),
        _waiting(snapshot, line),
        _partition(snapshot),
        Section(
            "Set aside: left out of all of this",
            ("Object", "Reason"),
            [(entry.item, entry.reason) for entry in snapshot.set_aside],
            fixed=("Object",),
        ),
        ignored(snapshot.extras.get("ignored_fields", {})),
    ]
    return Group(
        _headline(name, snapshot, line), *(section.render(most) for section in sections if section.rows)
    )


def _partition(snapshot: Snapshot) -> Section:
    found = mig_report(snapshot)
    if found is None:
        return partition(0, 0, ())
    nodes = ((change.node, change.now, change.then) for change in found.changes)
    return partition(found.admitted_now, found.admitted_then, nodes)


def _headline(name: str, snapshot: Snapshot, line: Sequence[Waiter]) -> Text:
    pods_by_node = _by_node(snapshot)
    total = sum(node.allocatable[GPU] for node in snapshot.nodes) / MILLI
    used = sum(_gpus_used(pods_by_node[node.name]) for node in snapshot.nodes)
    running = sum(pod.status is PodStatus.RUNNING for pod in snapshot.pods)
    text = Text.assemble((name, "bold"), ": ")
    text.append(
        f"{plural(len(snapshot.nodes), 'node')}, {amount(used)} of {amount(total)} GPUs in use; "
        f"{plural(len(snapshot.queues), 'queue')}; {plural(len(snapshot.groups), 'pod group')}, "
        f"{len(line)} waiting; {plural(len(snapshot.pods), 'pod')}, {running:,} running"
    )
    if snapshot.set_aside:
        text.append(f"; {plural(len(snapshot.set_aside), 'object')} set aside", style="yellow")
    return text.append(".")


def _by_node(snapshot: Snapshot) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        if pod.node is not None and pod.status in ACTIVE_USED:
            found[pod.node].append(pod)
    return found


def _gpus_used(pods: Sequence[Pod]) -> float:
    """Devices in use: whole ones, and each shared one once however much of it is used."""
    shared = {group for pod in pods for group in pod.gpu_groups}
    return sum(pod.spec.requests[GPU] for pod in pods if not pod.reservation) / MILLI + len(shared)


def _nodes(snapshot: Snapshot) -> Section:
    pods_by_node = _by_node(snapshot)
    rows = [_node(node, pods_by_node[node.name]) for node in snapshot.nodes]
    numbers = ("GPUs", "Shared", "CPUs", "Memory [GiB]", "Pods")
    return Section(
        "Nodes: used / allocatable", ("Node", *numbers, "State"), rows, right=numbers, fixed=("Node",)
    )


def _node(node: Node, pods: Sequence[Pod]) -> tuple[str | Text, ...]:
    shared = len({group for pod in pods for group in pod.gpu_groups})
    cpus = sum(pod.spec.requests[CPU] for pod in pods) / MILLI
    memory = sum(pod.spec.requests[MEMORY] for pod in pods) / 2**30
    refusing = [node.not_ready] if node.not_ready else []
    refusing += [f"taint {taint.key}" for taint in node.taints if taint.effect != "PreferNoSchedule"]
    return (
        node.name,
        f"{amount(_gpus_used(pods))} / {amount(node.allocatable[GPU] / MILLI)}",
        str(shared or ""),
        f"{cpus:,.1f} / {node.allocatable[CPU] / MILLI:,.0f}",
        f"{memory:,.1f} / {node.allocatable[MEMORY] / 2**30:,.0f}",
        f"{len(pods)} / {node.allocatable[PODS]}",
        Text(", ".join(refusing) or "ready", style="yellow" if refusing else ""),
    )


def _queues(snapshot: Snapshot, book: QueueBook, line: Sequence[Waiter], resource: str) -> Section:
    at = RESOURCES.index(resource)
    scale, unit = _SCALE[resource]
    waiting: dict[str, int] = defaultdict(int)
    for waiter in line:
        for name in snapshot.queue_path.get(waiter.group.queue, ()):
            waiting[name] += 1

    def shown(value: float) -> str:
        return amount(value) if value == -1 else amount(value / scale)

    rows = []
    for queue, depth in _tree(snapshot):
        used, fair = book.allocated_shares(queue.name)[at], book.fair_share_of(queue.name)[at]
        rows.append(
            (
                "  " * depth + queue.name,
                shown(queue.quota[at]),
                shown(queue.limit[at]),
                amount(queue.weight[at]),
                shown(fair),
                Text(shown(used), style="yellow" if used > fair else ""),
                str(queue.priority),
                str(waiting[queue.name] or ""),
            )
        )
    numbers = ("Quota", "Limit", "Weight", "Fair share", "Allocated", "Priority", "Waiting")
    return Section(f"Queues, in {unit}", ("Queue", *numbers), rows, right=numbers, fixed=("Queue",))


def _tree(snapshot: Snapshot) -> Iterator[tuple[Queue, int]]:
    children: dict[str | None, list[Queue]] = defaultdict(list)
    for queue in snapshot.queues:
        children[queue.parent].append(queue)
    stack = [(queue, 0) for queue in reversed(children[None])]
    while stack:
        queue, depth = stack.pop()
        yield queue, depth
        stack += [(child, depth + 1) for child in reversed(children[queue.name])]


def _waiting(snapshot: Snapshot, line: Sequence[Waiter]) -> Section:
    rows = [
        (
            str(i) if waiter.ready else "-",
            str(waiter.group.key),
            waiter.group.queue,
            str(waiter.group.priority),
            f"{waiter.pods} of {waiter.pending}",
            amount(waiter.gpus),
            _age(snapshot.now - waiter.group.created),
            waiter.remark,
        )
        for i, waiter in enumerate(line, 1)
    ]
    columns = ("#", "Pod group", "Queue", "Priority", "Next pods", "GPUs", "Age", "Remark")
    right = ("#", "Priority", "Next pods", "GPUs", "Age")
    return Section("Waiting, in fair order", columns, rows, right=right, fixed=("Pod group", "Queue"))


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"
