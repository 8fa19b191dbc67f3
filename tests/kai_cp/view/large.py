"""A large cluster for the page: 5,000 nodes in racks, 50,000 pods, of which some start, some leave, and
most stay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kai_cp.reader import parse
from kai_cp.view.data import view
from kai_cp_models.plan import Decision, Plan, Reservation, Stage, Unscheduled
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.settings import Settings
from tests.kai_cp.kube.samples import group, node, pod, queue, snapshot

NOW = 1_800_000_000.0
RACK = 16
GPUS = 8
GANG = 5
"""Pods of a pod group, one GPU each."""
QUEUES = 60


def document(nodes: int = 5_000, pods: int = 50_000) -> dict[str, Any]:
    """``view/1`` of it: seven of ten pods run and the rest wait; a twentieth starts, and as many leave."""
    running, groups = pods * 7 // 10, pods // GANG
    names = [f"rack{i // RACK:03}-node{i % RACK:02}" for i in range(nodes)]
    found = [node(name, gpus=GPUS) for name in names]
    for i, item in enumerate(found):
        item["metadata"]["labels"] |= {"rack": f"rack{i // RACK:03}", "kubernetes.io/hostname": names[i]}
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    raw = snapshot(
        nodes=found,
        pods=[
            pod(f"job-{i // GANG:05}-{i % GANG}", f"job-{i // GANG:05}", **_place(names, i, running))
            for i in range(pods)
        ],
        queues=[queue(f"team-{i:02}") for i in range(QUEUES)],
        podGroups=[group(f"job-{i:05}", GANG, f"team-{i % QUEUES:02}") for i in range(groups)],
        topologies=[{"metadata": {"name": "hall", "uid": "t"}, "spec": {"levels": levels}}],
    )
    plan = replace(_plan(names, running // GANG, groups), reservations=(_hold(names, groups),))
    settings = Settings.model_validate({"reservations": {"enabled": True}})
    return view("large cluster", parse(raw, now=NOW), plan, settings=settings)


def _hold(names: list[str], groups: int) -> Reservation:
    """The last pod group starts in an hour on the nodes of three racks."""
    key, places = GroupKey("ns", f"job-{groups - 1:05}"), dict.fromkeys(names[: 3 * RACK], float(GPUS))
    return Reservation(key, "team-00", "made", NOW + 3600, NOW + 3600, NOW, places)


def _place(names: list[str], i: int, running: int) -> dict[str, Any]:
    return {"node": names[i % len(names)], "phase": "Running"} if i < running else {}


def _plan(names: list[str], running: int, groups: int) -> Plan:
    moved = (groups - running) // 6
    decisions = []
    for i in range(moved):
        mine, theirs = GroupKey("ns", f"job-{running + i:05}"), GroupKey("ns", f"job-{i:05}")
        for k in range(GANG):
            victim, chosen = PodKey("ns", f"{theirs.name}-{k}"), PodKey("ns", f"{mine.name}-{k}")
            place = names[(i * GANG + k) % len(names)]
            decisions.append(Decision("Evict", victim, theirs, place, "reclaim", triggers=(mine,)))
            decisions.append(Decision("Nominate", chosen, mine, place, "reclaim"))
    waiting = (GroupKey("ns", f"job-{i:05}") for i in range(running + moved, groups))
    left = tuple(
        Unscheduled(key, "NodeFragmented", "5 GPUs are free, no node has them", True) for key in waiting
    )
    return Plan(tuple(decisions), left, stages=(Stage("reclaim", "lost work", "OPTIMAL", 1, 1, 0.0),))
