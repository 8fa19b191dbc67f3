"""Tiny worlds for tests, in few words: nodes of 8 GPUs, queues without bounds, pods of one GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from kai_cp.reader.annotations import group_notes, queue_notes
from kai_cp_models.check import violations
from kai_cp_models.extras import Extras
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import UNLIMITED, GpuKind, GpuRequest, GroupKey, Pod, PodKey, PodSpec, PodStatus
from kai_cp_models.policy import ActionName, Policy
from kai_cp_models.snapshot import (
    Node,
    PodGroup,
    Queue,
    SetAside,
    Shares,
    Snapshot,
    Subgroup,
    Topology,
    TopologyConstraint,
)

DIMENSIONS = ("cpu", "memory", "gpu", "pods")
NOW = 1_000_000.0
PLUGINS = frozenset({"predicates", "proportion", "priority", "elastic", "minruntime", "topology"})
FREE = Shares(UNLIMITED, UNLIMITED, UNLIMITED)


def node(
    name: str = "n1", gpus: int = 8, cpus: int = 64, gib: int = 512, pods: int = 110, **more: Any
) -> Node:
    """A ready node whose GPUs have 40,000 MiB."""
    values: dict[str, Any] = {
        "allocatable": (cpus * 1000, gib * 2**30, gpus * 1000, pods),
        "gpu_memory_mib": 40_000 if gpus else 100,
        "gpu_memory_synced": bool(gpus),
        "gpu_count": gpus,
    }
    return Node(name=name, **{**values, **more})


def gpu_bound(gpus: float) -> Shares:
    """A quota or limit on GPUs only."""
    return Shares(UNLIMITED, UNLIMITED, gpus)


def queue(name: str = "q", parent: str | None = None, **more: Any) -> Queue:
    """A queue without limit and with an unlimited quota. ``notes``: its annotations, name and text."""
    values: dict[str, Any] = {"created": 0.0, "quota": FREE, "limit": FREE, "weight": Shares(1, 1, 1)}
    values["notes"] = queue_notes(tuple(more.pop("notes", ())))
    return Queue(name=name, parent=parent, **{**values, **more})


def noted(one: PodGroup, *annotations: tuple[str, str]) -> PodGroup:
    """The pod group with these annotations and no others of ours."""
    return replace(one, notes=group_notes(annotations))


def group(name: str = "g", minimum: int = 1, queue: str = "q", **more: Any) -> PodGroup:
    """A preemptible pod group of priority 50 with one pod set. ``notes``: its annotations, name and text."""
    constraint = more.pop("constraint", None)
    root = more.pop("root", None) or Subgroup("", 1, (Subgroup("default", minimum),), False, constraint)
    values: dict[str, Any] = {"uid": name, "priority": 50, "preemptible": True, "created": 0.0}
    values["notes"] = group_notes(tuple(more.pop("notes", ())))
    return PodGroup(key=GroupKey("ns", name), queue=queue, root=root, **{**values, **more})


def tree(
    k: int, *children: Subgroup, name: str = "", constraint: TopologyConstraint | None = None
) -> Subgroup:
    """A set of subgroups of which ``k`` must be satisfied."""
    return Subgroup(name, k, children, False, constraint)


def leaf(name: str, minimum: int, constraint: TopologyConstraint | None = None) -> Subgroup:
    """A pod set."""
    return Subgroup(name, minimum, constraint=constraint)


def spec(gpus: int = 1, cpus: float = 1, gib: float = 1, **more: Any) -> PodSpec:
    """A pod that asks for whole GPUs."""
    requests = (int(cpus * 1000), int(gib * 2**30), gpus * 1000, 1)
    return PodSpec(**{"requests": requests, "gpu": GpuRequest(devices=gpus), **more})


def fraction(milli_portion: int = 500, devices: int = 1, **more: Any) -> PodSpec:
    """A pod that asks for a portion of devices."""
    gpu = GpuRequest(GpuKind.FRACTION, devices, milli_portion)
    return spec(0, gpu=gpu, **more)


def gpu_memory(mib: int, devices: int = 1) -> PodSpec:
    """A pod that asks for memory of devices."""
    return spec(0, gpu=GpuRequest(GpuKind.MEMORY, devices, 0, mib))


def pod(name: str, node: str | None = None, group: str | None = "", **more: Any) -> Pod:
    """A pod, running if it has a node. Its group is the name up to the last dash if none is given."""
    owner = name.rpartition("-")[0] if group == "" else group
    gpu_groups = more.pop("gpu_groups", ())
    values: dict[str, Any] = {
        "uid": name,
        "spec": more.pop("spec", None) or spec(),
        "status": PodStatus.RUNNING if node else PodStatus.PENDING,
        "created": 0.0,
    }
    return Pod(
        key=PodKey("ns", name),
        group=GroupKey("ns", owner) if owner else None,
        node=node,
        gpu_groups=tuple(gpu_groups),
        **{**values, **more},
    )


def pods(owner: str, count: int, node: str | None = None, **more: Any) -> tuple[Pod, ...]:
    """``count`` equal pods of a group, ``owner-0`` and so on."""
    return tuple(pod(f"{owner}-{i}", node, **more) for i in range(count))


def cluster(
    pods: Iterable[Pod],
    groups: Iterable[PodGroup] = (),
    nodes: Iterable[Node] = (),
    queues: Iterable[Queue] = (),
    *,
    dimensions: Sequence[str] = DIMENSIONS,
    topologies: Iterable[Topology] = (),
    extras: Extras | None = None,
    set_aside: Iterable[SetAside] = (),
    **policy: Any,
) -> Snapshot:
    """A snapshot: one node, one queue and a default group for every pod where none is given.

    ``policy``: fields of :class:`Policy`.
    """
    pods = tuple(sorted(pods, key=lambda p: p.key))
    known = {g.key: g for g in groups}
    for one in pods:
        if one.group is not None and one.group not in known:
            known[one.group] = group(one.group.name)
    return Snapshot(
        now=NOW,
        dimensions=tuple(dimensions),
        nodes=tuple(sorted(nodes, key=lambda n: n.name)) or (node(),),
        queues=tuple(sorted(queues, key=lambda q: q.name)) or (queue(),),
        groups=tuple(known[key] for key in sorted(known)),
        pods=pods,
        topologies=tuple(topologies),
        extras=extras or Extras(),
        policy=Policy(**{"plugins": PLUGINS, **policy}),
        set_aside=tuple(set_aside),
    )


def _decision(kind: str, name: str, node: str, action: str, more: dict[str, Any]) -> Decision:
    owner = more.pop("group", "")
    owner = name.rpartition("-")[0] if owner == "" else owner
    triggers = tuple(GroupKey("ns", x) for x in more.pop("triggers", ()))
    key = GroupKey("ns", owner) if owner else None
    return Decision(kind, PodKey("ns", name), key, node, action, triggers=triggers, **more)  # type: ignore[arg-type]


def bind(name: str, node: str = "n1", action: ActionName = "allocate", **more: Any) -> Decision:
    """A bind."""
    return _decision("Bind", name, node, action, more)


def nominate(name: str, node: str = "n1", action: ActionName = "allocate", **more: Any) -> Decision:
    """A nomination."""
    return _decision("Nominate", name, node, action, more)


def evict(name: str, action: ActionName, *triggers: str, node: str = "n1", **more: Any) -> Decision:
    """An eviction for ``triggers``."""
    return _decision("Evict", name, node, action, {**more, "triggers": triggers})


def plan(*decisions: Decision) -> Plan:
    """A plan of these decisions."""
    return Plan(decisions=decisions)


def judged(snapshot: Snapshot, *decisions: Decision) -> list[str]:
    """The faults that the checker finds in these decisions."""
    return violations(snapshot, plan(*decisions))


def named(faults: list[str], *words: str) -> bool:
    """Whether one fault has all the words."""
    return any(all(word in fault for word in words) for fault in faults)
