"""Nodes (2.3 to 2.5, 3.1, 7.2): amounts, GPU memory, MIG mode, readiness."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from kai_cp.json_types import Json
from kai_cp.keys import GPU_MEMORY_LABEL
from kai_cp.reader.devices import PoolPart, newest, read_pool
from kai_cp.reader.document import parsed
from kai_cp.reader.fields import Malformed, bool_at, entry, object_at, objects_at, shown, strings_at, text_at
from kai_cp.reader.listed import ListedObjects
from kai_cp.reader.memo import Memo, versioned
from kai_cp.reader.notes import Identity, Notes, title
from kai_cp.reader.policy import go_bool
from kai_cp.reader.resources import ResourceAmounts, amounts, vector
from kai_cp_models.migs import MIG_PREFIX
from kai_cp_models.pods import MILLI
from kai_cp_models.policy import Policy
from kai_cp_models.snapshot import Node, Taint

_GPU_COUNT: Final = "nvidia.com/gpu.count"
_MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
_MIG_ENABLED: Final = "node-role.kubernetes.io/mig-enabled"
_DEFAULT_GPU_MEMORY_MIB = 100
_BYTES_FROM = 2**20
_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_WHOLE: Final = re.compile(r"\d{1,15}", re.ASCII)


@dataclass(frozen=True, slots=True)
class NodeDraft:
    """A node before the dimensions of the snapshot are known."""

    node: Node
    amounts: ResourceAmounts

    def finished(self, dimensions: tuple[str, ...]) -> Node:
        """The node with its vector."""
        return replace(self.node, allocatable=vector(self.amounts, dimensions))


NodesMemo = Memo[Identity, Any, NodeDraft]


def read_nodes(
    objects: ListedObjects,
    policy: Policy,
    dra_gpus: Mapping[str, int],
    notes: Notes,
    memo: NodesMemo,
) -> dict[str, NodeDraft]:
    """Nodes by name. With restricted scheduling nodes without a worker label are left out (7.3)."""

    def read(identity: Identity, item: Any) -> tuple[NodeDraft | None, bool]:
        obj, before = parsed(item), len(notes)
        try:
            draft = _draft(obj, identity[1], dra_gpus.get(identity[1], 0), notes)
        except Malformed as problem:
            notes.aside(title("Node", identity), problem)
            return None, False
        # A node with notes is read again, so that its notes are reported again.
        final = versioned(obj) and len(notes) == before
        labels = draft.node.labels
        works = policy.gpu_worker_label in labels or policy.cpu_worker_label in labels
        return (draft if works or not policy.restrict_node_scheduling else None), final

    drafts = memo.read(objects.unparsed, (policy, dra_gpus), read, changed=objects.changed)
    return {name: draft for (_, name), draft in drafts.items()}


def count_dra_gpus(slices: Mapping[Identity, Any]) -> dict[str, int]:
    """The number of GPU devices in slices bound to a node, by node (2.5); unreadable slices count none.

    While a driver replaces the slices of a pool, the newest ones count, as for claims.
    """
    parts: dict[Identity, PoolPart] = {}
    for identity, raw in slices.items():
        with suppress(Malformed):
            parts[identity] = read_pool(raw, identity)
    found: dict[str, int] = {}
    for identity in newest(parts):
        part, devices = parts[identity], slices[identity]["spec"].get("devices")
        if part.node and isinstance(devices, list) and "gpu" in part.pool[0].lower():
            found[part.node] = found.get(part.node, 0) + len(devices)
    return found


def _draft(obj: Json, name: str, dra_gpus: int, notes: Notes) -> NodeDraft:
    metadata = object_at(obj, "metadata")
    spec = object_at(obj, "spec")
    status = object_at(obj, "status")
    labels = strings_at(metadata, "labels", "metadata")
    found = amounts(object_at(status, "allocatable", "status"), "status.allocatable")
    memory_mib, synced = _gpu_memory_mib(labels, name, notes)
    problems = _problems(spec, status)
    gpus = found.get("gpu", 0) // MILLI
    if dra_gpus:
        found["gpu"] = found.get("gpu", 0) + dra_gpus * MILLI
    node = Node(
        name=name,
        allocatable=(),
        labels=labels,
        taints=tuple(_taints(spec)),
        gpu_memory_mib=memory_mib,
        gpu_memory_synced=synced,
        gpu_count=_gpu_count(labels, gpus),
        mig_enabled=_mig_enabled(labels, found),
        mig_strategy=labels.get(_MIG_STRATEGY, ""),
        not_ready=", ".join(problems),
        healthy=not problems,
        dra_gpus=dra_gpus,
    )
    return NodeDraft(node, found)


def _gpu_memory_mib(labels: Mapping[str, str], name: str, notes: Notes) -> tuple[int, bool]:
    """Memory of each GPU, and whether the node states it (2.3)."""
    text = labels.get(GPU_MEMORY_LABEL)
    if text is None:
        return _DEFAULT_GPU_MEMORY_MIB, False
    if not _WHOLE.fullmatch(text):
        problem = f"{shown(text)} is not a number of MiB; the label is ignored"
        notes.aside(f"Node {name}", f"{entry('metadata.labels', GPU_MEMORY_LABEL)}: {problem}")
        return _DEFAULT_GPU_MEMORY_MIB, False
    mib = gpu_memory_mib(text)
    return (mib, True) if mib else (_DEFAULT_GPU_MEMORY_MIB, False)


def gpu_memory_mib(text: str) -> int:
    """Memory of a GPU from its label, in MiB: large numbers are bytes; rounded down to hundreds (2.3).

    0: the label gives no number.
    """
    mib = int(text) if _WHOLE.fullmatch(text) else 0
    if mib >= _BYTES_FROM:
        mib //= _BYTES_FROM
    return mib - mib % 100


def _gpu_count(labels: Mapping[str, str], allocatable: int) -> int:
    text = labels.get(_GPU_COUNT, "")
    return int(text) if _WHOLE.fullmatch(text) else allocatable


def _mig_enabled(labels: Mapping[str, str], found: ResourceAmounts) -> bool:
    """The label if there is one, otherwise whether the node offers MIG instances (2.4)."""
    if _MIG_ENABLED not in labels:
        return any(name.startswith(MIG_PREFIX) for name in found)
    try:
        return go_bool(labels[_MIG_ENABLED])
    except ValueError:
        return False


def _taints(spec: Json) -> Iterable[Taint]:
    for i, raw in enumerate(objects_at(spec, "taints", "spec")):
        where = f"spec.taints[{i}]"
        yield Taint(text_at(raw, "key", where), text_at(raw, "value", where), text_at(raw, "effect", where))


def _problems(spec: Json, status: Json) -> list[str]:
    """Why the node accepts no pods (7.2), in words."""
    problems = ["unschedulable"] if bool_at(spec, "unschedulable", "spec") else []
    for i, condition in enumerate(objects_at(status, "conditions", "status")):
        where = f"status.conditions[{i}]"
        kind, value = text_at(condition, "type", where), text_at(condition, "status", where)
        if kind == "Ready" and value != "True":
            problems.append("not Ready" if value == "False" else f"Ready is {value or 'not told'}")
        elif kind in _PRESSURES and value != "False":
            problems.append(kind)
    return problems
