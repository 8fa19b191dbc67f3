"""``view/1``: the content of the page as one JSON document, from one snapshot and one plan.

Pod groups and nodes are listed once and named by their place in the list, so that 50,000 pods stay small. A
node's GPUs are a list of cells; a cell is FREE, the number of the pod group that holds the device, or the
list of them where it is shared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kai_cp.decisions import ENGINE, rfc3339, version
from kai_cp.inspection import queue_tree
from kai_cp.json_types import Object
from kai_cp.over_time import bars
from kai_cp.topology_view import fabric
from kai_cp_models.plan import Decision, Plan, Unscheduled
from kai_cp_models.pods import ACTIVE_USED, GPU, MILLI, GroupKey, PodKey
from kai_cp_models.queries.shares import OwedGroups, Waiter, gpus_of, queue_shares, waiting_line
from kai_cp_models.queries.times import RunTimes
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Shares, Snapshot
from kai_cp_topology.report import Report

SCHEMA: Final = "view/1"
FREE: Final = -1
OTHER: Final = -2
"""A cell held by a pod without pod group: another scheduler's."""
PARTS: Final = ("runs", "starts", "reserved")
"""The states of a bar of the picture over time; a bar names its state by the position here."""
Cell = int | list[int]


def view(
    name: str,
    snapshot: Snapshot,
    plan: Plan | None,
    *,
    mode: str = "",
    fixes: Mapping[str, Object] | None = None,
    asks: bool = False,
    settings: Settings | None = None,
    broken: Sequence[str] = (),
) -> Object:
    """The document of a snapshot; without ``plan`` nothing was decided yet.

    Args:
        name: What the page is called.
        snapshot: The cluster.
        plan: What was decided on it.
        mode: Of the scheduler that serves the page.
        fixes: ``remedies`` by pod group; groups that were not asked about are absent.
        asks: Whether the page may ask its host for fixes.
        settings: With which it was decided; without them nothing is shown over time.
        broken: Rules that the plan breaks, in words.
    """
    report = fabric(snapshot)
    line = waiting_line(snapshot)
    groups = [group.key for group in snapshot.groups]
    number = {key: i for i, key in enumerate(groups)}
    return {
        "schema": SCHEMA,
        "engine": f"{ENGINE} {version()}",
        "name": name,
        "mode": mode,
        "asks": asks,
        "now": rfc3339(snapshot.now),
        "decided": plan is not None,
        "broken": list(broken),
        "groups": [_group(snapshot, key) for key in groups],
        "queues": _queues(snapshot, plan, line),
        "pending": _pending(snapshot, plan, line, number, fixes or {}),
        "levels": _levels(report, snapshot),
        "nodes": _nodes(snapshot, report),
        "cells": _cells(snapshot, (), number),
        "cellsAfter": _after(snapshot, plan, number),
        "starts": _starts(plan, number),
        "evictions": _evictions(snapshot, plan, number),
        "time": _over_time(snapshot, plan, number, settings),
        "stages": _stages(plan),
        "skipped": [{"item": entry.item, "reason": entry.reason} for entry in snapshot.set_aside],
    }


def _group(snapshot: Snapshot, key: GroupKey) -> Object:
    group = snapshot.group_by_key[key]
    members = snapshot.members[key]
    return {
        "name": str(key),
        "queue": group.queue,
        "priority": group.priority,
        "preemptible": group.preemptible,
        "pods": len(members),
        "running": sum(pod.status in ACTIVE_USED for pod in members),
        "created": rfc3339(group.created),
    }


def _queues(snapshot: Snapshot, plan: Plan | None, line: Sequence[Waiter]) -> list[Object]:
    """The tree, parents first; amounts in milli-CPUs, bytes and GPUs; -1 is unlimited."""
    waiting: dict[str, int] = defaultdict(int)
    for waiter in line:
        for name in snapshot.queue_path.get(waiter.group.queue, ()):
            waiting[name] += 1
    shares = queue_shares(snapshot)
    starved = OwedGroups.of(snapshot, plan).by_queue() if plan is not None else {}
    return [
        {
            "name": queue.name,
            "title": queue.display_name,
            "depth": depth,
            "priority": queue.priority,
            "quota": list(queue.quota),
            "limit": list(queue.limit),
            "weight": list(queue.weight),
            "fair": list(shares[queue.name].fair),
            "used": list(shares[queue.name].allocated),
            "after": _after_queue(plan, queue.name),
            "waiting": waiting[queue.name],
            "starved": len(starved.get(queue.name, ())),
        }
        for queue, depth in queue_tree(snapshot)
    ]


def _after_queue(plan: Plan | None, name: str) -> list[float] | None:
    found: Shares | None = None
    if plan is not None and name in plan.queues:
        found = plan.queues[name].allocated_after
    return list(found) if found is not None else None


def _pending(
    snapshot: Snapshot,
    plan: Plan | None,
    line: Sequence[Waiter],
    number: Mapping[GroupKey, int],
    fixes: Mapping[str, Object],
) -> list[Object]:
    """The waiting pod groups in fair order; after a plan only those that it leaves pending."""
    why = {entry.group: entry for entry in plan.unscheduled} if plan is not None else {}
    placed = _placed(plan)
    found = []
    for place, waiter in enumerate(line, 1):
        key = waiter.group.key
        if plan is not None and key not in why and key in placed:
            continue
        entry = _waits(snapshot, waiter, place, number[key], why.get(key))
        known = fixes.get(str(key))
        found.append(entry if known is None else {**entry, **known})
    return found


def _placed(plan: Plan | None) -> set[GroupKey | None]:
    return {d.group for d in plan.decisions if d.kind != "Evict"} if plan is not None else set()


def _waits(snapshot: Snapshot, waiter: Waiter, place: int, number: int, why: Unscheduled | None) -> Object:
    return {
        "group": number,
        "position": place if waiter.ready else None,
        "gpus": waiter.gpus,
        "pods": waiter.pods,
        "pending": waiter.pending,
        "seconds": max(0.0, snapshot.now - waiter.group.created),
        "reason": why.reason if why is not None else "",
        "message": why.message if why is not None else waiter.remark,
        "proved": why.proved if why is not None else False,
    }


def _levels(report: Report, snapshot: Snapshot) -> list[Object]:
    """Trees of domains: names of the levels, and each node's path of values, or null outside the tree."""
    found: list[Object] = []
    for tree in report.trees:
        labels = [level.label for level in tree.levels]
        outside = set(tree.outside)
        paths = [
            None if node.name in outside else [node.labels.get(label, "") for label in labels]
            for node in snapshot.nodes
        ]
        found.append({"name": tree.name, "levels": [level.name for level in tree.levels], "paths": paths})
    return found


def _nodes(snapshot: Snapshot, report: Report) -> list[Object]:
    return [
        {
            "name": node.name,
            "gpus": node.allocatable[GPU] // MILLI,
            "closed": node.not_ready,
            "domain": report.nodes[node.name].clique,
            "product": report.nodes[node.name].product,
        }
        for node in snapshot.nodes
    ]


def _cells(
    snapshot: Snapshot, decisions: Iterable[Decision], number: Mapping[GroupKey, int]
) -> list[list[Cell]]:
    """Cells of every node once ``decisions`` are carried out."""
    at: dict[PodKey, tuple[str, tuple[str, ...]]] = {
        pod.key: (pod.node, pod.gpu_groups)
        for pod in snapshot.pods
        if pod.node is not None and pod.status in ACTIVE_USED and not pod.reservation
    }
    for decision in decisions:
        if decision.kind == "Evict":
            at.pop(decision.pod, None)
        elif decision.pod in snapshot.pod_by_key:
            at[decision.pod] = (decision.node, decision.gpu_groups)
    whole: dict[str, list[Cell]] = defaultdict(list)
    shared: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for key, (node, devices) in at.items():
        pod = snapshot.pod_by_key[key]
        owner = number.get(pod.group, OTHER) if pod.group is not None else OTHER
        if devices:
            for device in devices:
                shared[node][device].append(owner)
        else:
            whole[node] += [owner] * round(gpus_of(snapshot, pod, node))
    return [
        _node_cells(node.allocatable[GPU] // MILLI, whole[node.name], shared[node.name])
        for node in snapshot.nodes
    ]


def _node_cells(gpus: int, whole: list[Cell], shared: Mapping[str, list[int]]) -> list[Cell]:
    """Cells in a fixed order: whole devices by pod group, shared ones, then what is free."""
    cells: list[Cell] = sorted(whole, key=lambda cell: cell if isinstance(cell, int) else 0)
    cells += [sorted(owners) for _, owners in sorted(shared.items())]
    return cells + [FREE] * max(0, gpus - len(cells))


def _after(snapshot: Snapshot, plan: Plan | None, number: Mapping[GroupKey, int]) -> dict[str, list[Cell]]:
    """The cells after the plan by number of the node, if they differ."""
    if plan is None:
        return {}
    before, after = _cells(snapshot, (), number), _cells(snapshot, _evictions_first(plan), number)
    pairs = enumerate(zip(before, after, strict=True))
    return {str(i): new for i, (old, new) in pairs if old != new}


def _evictions_first(plan: Plan) -> list[Decision]:
    return sorted(plan.decisions, key=lambda decision: decision.kind != "Evict")


def _starts(plan: Plan | None, number: Mapping[GroupKey, int]) -> list[Object]:
    """The pods that get places, by pod group and action; moved pods are listed with the evictions."""
    if plan is None:
        return []
    gone = {decision.pod for decision in plan.decisions if decision.kind == "Evict"}
    found: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    for decision in plan.decisions:
        group = number.get(decision.group, OTHER) if decision.group is not None else OTHER
        if decision.kind != "Evict" and decision.pod not in gone and group != OTHER:
            found[group, decision.kind, decision.action].append(decision.node)
    return [
        {"group": group, "kind": kind, "action": action, "pods": len(nodes), "nodes": sorted(set(nodes))}
        for (group, kind, action), nodes in found.items()
    ]


def _evictions(snapshot: Snapshot, plan: Plan | None, number: Mapping[GroupKey, int]) -> list[Object]:
    if plan is None:
        return []
    moved = {decision.pod: decision.node for decision in plan.decisions if decision.kind == "Nominate"}
    return [
        {
            "pod": str(decision.pod),
            "group": number.get(decision.group, OTHER) if decision.group is not None else OTHER,
            "gpus": gpus_of(snapshot, snapshot.pod_by_key[decision.pod]),
            "from": decision.node,
            "to": moved.get(decision.pod, ""),
            "action": decision.action,
            "for": [number[key] for key in decision.triggers if key in number],
            "message": decision.message,
        }
        for decision in plan.decisions
        if decision.kind == "Evict" and decision.pod in snapshot.pod_by_key
    ]


def _over_time(
    snapshot: Snapshot, plan: Plan | None, number: Mapping[GroupKey, int], settings: Settings | None
) -> Object | None:
    """Starts in the future and what is on the nodes until then; None if nothing is planned ahead."""
    if plan is None or plan.reservations is None or settings is None:
        return None
    now = snapshot.now
    return {
        "bars": [
            [
                snapshot.node_index[bar.node],
                number[bar.group],
                round(bar.gpus, 3),
                round(bar.start - now),
                None if bar.end is None else round(bar.end - now),
                PARTS.index(bar.part),
            ]
            for bar in bars(snapshot, plan, RunTimes(snapshot, settings))
            if bar.group in number
        ],
        "starts": [
            {
                "group": number[entry.group],
                "state": entry.state,
                "cause": entry.cause or "",
                "start": None if entry.start is None else round(entry.start - now),
                "promised": None if entry.promised is None else round(entry.promised - now),
                "gpus": sum(entry.nodes.values()),
                "nodes": sorted(entry.nodes),
                "idleGpuHours": round(entry.idle_gpu_hours, 3),
                "message": entry.message,
            }
            for entry in plan.reservations
            if entry.group in number
        ],
    }


def _stages(plan: Plan | None) -> list[Object]:
    if plan is None:
        return []
    return [
        {"name": s.name, "status": s.status, "objective": s.objective, "bound": s.bound, "gap": s.gap}
        for s in plan.stages
    ]
