"""``inspection/1``: a first look at a snapshot as a document: its nodes, its queues, and what waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kai_cp.decisions import rfc3339, version
from kai_cp.json_types import plain_number
from kai_cp.reader.notes import IGNORED
from kai_cp.reader.recorded_usage import FETCHED_AT
from kai_cp.starts import rollout_document
from kai_cp_models.pods import ACTIVE_USED, CPU, GPU, MEMORY, MILLI, PODS, UNLIMITED, Pod, PodStatus
from kai_cp_models.queries.cluster import kind_holdings, mig_advice, rollouts_now, unread_notes
from kai_cp_models.queries.shares import Waiter, queue_shares, waiting_line
from kai_cp_models.queries.times import RunTimes
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Node, Queue, Snapshot

SCHEMA: Final = "inspection/1"
RESOURCES: Final = ("cpu", "memory", "gpu")
"""As queues count them: millicores, bytes, GPUs."""


def inspection(snapshot: Snapshot, sha256: str = "", settings: Settings | None = None) -> dict[str, Any]:
    """The document of a snapshot. Amounts: GPUs, millicores, bytes; −1 is unlimited.

    ``settings``: where they switch reservations on, what is stored of them and bounds on waiting are shown.
    """
    line = waiting_line(snapshot)
    pods_by_node = _by_node(snapshot)
    nodes = [_node(node, pods_by_node[node.name]) for node in snapshot.nodes]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "version": version(),
        "snapshotSha256": sha256,
        "now": rfc3339(snapshot.now),
        "cluster": {
            "nodes": len(nodes),
            "gpus": plain_number(sum(node["gpus"]["allocatable"] for node in nodes)),
            "gpusUsed": plain_number(sum(node["gpus"]["used"] for node in nodes)),
            "queues": len(snapshot.queues),
            "podGroups": len(snapshot.groups),
            "waitingPodGroups": len(line),
            "pods": len(snapshot.pods),
            "runningPods": sum(pod.status is PodStatus.RUNNING for pod in snapshot.pods),
        },
        "nodes": nodes,
        "queues": _queues(snapshot, line),
        "waiting": [_waiter(i, waiter, snapshot.now) for i, waiter in enumerate(line, 1)],
        "setAside": [{"object": entry.item, "reason": entry.reason} for entry in snapshot.set_aside],
    }
    if settings is not None and settings.rules.gpu_kinds:
        _by_kind(document, snapshot)
    if settings is not None:
        unread = unread_notes(snapshot, settings.rules)
        document["setAside"] += [{"object": one.item, "reason": one.reason} for one in unread]
        if entries := rollouts_now(snapshot, settings.rules):
            document["rollouts"] = [rollout_document(entry) for entry in entries]
    if settings is not None and settings.reservations.enabled:
        _in_time(document, RunTimes(snapshot, settings))
    if (fetched_at := snapshot.extras[FETCHED_AT]) is not None:
        seconds = max(0.0, snapshot.now - fetched_at)
        document["usage"] = {"fetchedAt": rfc3339(fetched_at), "ageSeconds": round(seconds, 3)}
    if (advice := mig_advice(snapshot)) is not None:
        document["migPartition"] = {
            "podsNow": advice.admitted_now,
            "podsThen": advice.admitted_then,
            "nodes": [
                {"node": change.node, "now": dict(change.now), "then": dict(change.then)}
                for change in advice.changes
            ],
        }
    if ignored := snapshot.extras[IGNORED]:
        document["ignoredFields"] = dict(ignored)
    return document


def _by_kind(document: dict[str, Any], snapshot: Snapshot) -> None:
    """What queues hold of kinds of GPUs."""
    rows = {row["name"]: row for row in document["queues"]}
    for holding in kind_holdings(snapshot):
        bounds = holding.bounds
        amounts = {
            "quota": bounds.quota,
            "limit": bounds.limit,
            "allocated": holding.held,
            "nonPreemptible": holding.firm,
        }
        rows[holding.queue].setdefault("gpuKinds", {})[holding.kind] = {
            name: UNLIMITED if value is None else plain_number(value / MILLI)
            for name, value in amounts.items()
        }


def _in_time(document: dict[str, Any], times: RunTimes) -> None:
    """Stored reservations, and by waiting group how long it can wait at most."""
    document["reservations"] = [
        {
            "podGroup": str(group.key),
            "queue": group.queue,
            "start": rfc3339(stored.start),
            "promised": rfc3339(stored.promised),
            "made": rfc3339(stored.made),
            "nodes": {name: plain_number(gpus) for name, gpus in stored.nodes.items()},
        }
        for group, stored in times.stored()
    ]
    bounds = {str(key): bound for key, bound in times.wait_bounds().items()}
    for row in document["waiting"]:
        bound = bounds.get(row["podGroup"])
        if bound is not None:
            seconds = None if bound.seconds is None else round(bound.seconds)
            row["waitAtMostSeconds"] = seconds
            row["noBoundBecause"] = bound.why or None


def _by_node(snapshot: Snapshot) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        if pod.node is not None and pod.status in ACTIVE_USED:
            found[pod.node].append(pod)
    return found


def _node(node: Node, pods: Sequence[Pod]) -> dict[str, Any]:
    """One node. A shared GPU counts once, however much of it is used."""
    shared = len({group for pod in pods for group in pod.gpu_groups})
    gpus = sum(pod.spec.requests[GPU] for pod in pods if not pod.reservation) / MILLI + shared
    refusing = [node.not_ready] if node.not_ready else []
    refusing += [f"taint {taint.key}" for taint in node.taints if taint.effect != "PreferNoSchedule"]
    return {
        "name": node.name,
        "gpus": {"used": plain_number(gpus), "allocatable": plain_number(node.allocatable[GPU] / MILLI)},
        "sharedGpus": shared,
        "cpu": {"used": sum(pod.spec.requests[CPU] for pod in pods), "allocatable": node.allocatable[CPU]},
        "memory": {
            "used": sum(pod.spec.requests[MEMORY] for pod in pods),
            "allocatable": node.allocatable[MEMORY],
        },
        "pods": {"used": len(pods), "allocatable": node.allocatable[PODS]},
        "refuses": refusing,
    }


def _queues(snapshot: Snapshot, line: Sequence[Waiter]) -> list[dict[str, Any]]:
    """Parents before their children."""
    waiting: dict[str, int] = defaultdict(int)
    shares = queue_shares(snapshot)
    for waiter in line:
        for name in snapshot.queue_path.get(waiter.group.queue, ()):
            waiting[name] += 1
    found = []
    for queue, depth in queue_tree(snapshot):
        fair, used = shares[queue.name].fair, shares[queue.name].allocated
        amounts = {
            resource: {
                "quota": plain_number(queue.quota[at]),
                "limit": plain_number(queue.limit[at]),
                "overQuotaWeight": plain_number(queue.weight[at]),
                "fairShare": plain_number(fair[at]),
                "allocated": plain_number(used[at]),
            }
            for at, resource in enumerate(RESOURCES)
        }
        named = {"name": queue.name, "parent": queue.parent, "depth": depth, "priority": queue.priority}
        found.append({**named, "waitingPodGroups": waiting[queue.name], **amounts})
    return found


def queue_tree(snapshot: Snapshot) -> Iterator[tuple[Queue, int]]:
    """The queues by name, parents before their children, each with the number of levels above it."""
    children: dict[str | None, list[Queue]] = defaultdict(list)
    for queue in snapshot.queues:
        children[queue.parent].append(queue)
    stack = [(queue, 0) for queue in reversed(children[None])]
    while stack:
        queue, depth = stack.pop()
        yield queue, depth
        stack += [(child, depth + 1) for child in reversed(children[queue.name])]


def _waiter(position: int, waiter: Waiter, now: float) -> dict[str, Any]:
    return {
        "position": position if waiter.ready else None,
        "podGroup": str(waiter.group.key),
        "queue": waiter.group.queue,
        "priority": waiter.group.priority,
        "nextPods": waiter.pods,
        "pendingPods": waiter.pending,
        "gpus": plain_number(waiter.gpus),
        "ageSeconds": int(max(0, now - waiter.group.created)),
        "remark": waiter.remark,
    }
