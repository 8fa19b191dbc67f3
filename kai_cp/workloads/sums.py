"""What pods and pod groups ask for and hold, as the status of pod groups and queues shows it (3, 4).

A sum counts in thousandths of a resource's unit, so that it is exact. Containers, init containers, sidecars
and overhead count as they do for the scheduler: by the same function.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kai_cp.json_types import Json
from kai_cp.keys import GPU, GPU_MEMORY_LABEL, RECEIVED_TYPE
from kai_cp.reader.fields import Malformed, object_at, text_at
from kai_cp.reader.needs import read_claims
from kai_cp.reader.nodes import gpu_memory_mib
from kai_cp.reader.requests import read_requests, readable_requests
from kai_cp.reader.resize import as_held
from kai_cp.reader.resources import dimension
from kai_cp.reader.shares import read_gpu
from kai_cp_models.pods import MILLI, GpuKind, in_bytes
from kai_cp_models.quantity import scaled

Sum = dict[str, int]
"""Thousandths of the unit by resource name."""

_SHOWN_MEMORY: Final = "run.ai/gpu.memory"
"""Resource under which a requested share of memory is shown, in MiB, while no node is known."""
_AMD_LABEL: Final = re.compile(r"beta\.amd\.com/gpu\.vram\.(\d+)([KMGT]?)")
_AMD_MEBIBYTES: Final = {"": 1e-6, "K": 1e-3, "M": 1.0, "G": 1e3, "T": 1e6}
_HELD: Final = frozenset(("Pending", "Running"))
_NON_PREEMPTIBLE_PRIORITY: Final = 100
_DEFAULT_PRIORITY: Final = 50
FIELDS: Final = ("requested", "allocated", "allocatedNonPreemptible")
STANDARD: Final = frozenset(("cpu", "memory", GPU))
MOST_NAMES: Final = 200
"""Resources that a list of a queue's status names. Pods may ask for any number of invented ones, and a status
that is too large for the server would no longer be written, for all that share the queue.
"""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one pod adds to its group. ``problem``: what could not be read of it, "" if everything was."""

    requested: Sum = field(default_factory=dict)
    allocated: Sum = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    """Names of its ResourceClaims, which several pods may share."""
    holds: bool = False
    problem: str = ""


def usage_of(pod: Json, node_labels: Mapping[str, str]) -> Usage:
    """What a pod asks for, and what it holds on its node; nothing once it has ended."""
    status = pod.get("status") or {}
    phase = status.get("phase") or "Pending"
    if phase not in _HELD:
        return Usage()
    holds = phase == "Running" or _scheduled(status)
    spec = pod.get("spec") or {}
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    problem = ""
    claims: tuple[str, ...] = ()
    try:
        amounts, _ = read_requests(as_held(spec, status))
        gpu = read_gpu(annotations, amounts)
        claims = tuple(claim.claim for claim in read_claims(spec, status) if claim.claim)
    except Malformed as problem_found:
        problem = str(problem_found)
        amounts, gpu = readable_requests(spec), None
    total = by_name(amounts, spec)
    requested, allocated = dict(total), dict(total)
    if gpu is not None and gpu.shares:
        received = annotations.get(RECEIVED_TYPE) == "Fraction"
        if gpu.kind is GpuKind.MEMORY:
            requested[_SHOWN_MEMORY] = gpu.memory_mib * gpu.devices * MILLI
            size = memory_of_gpu(node_labels) if received else 0
            if size:
                # Rounded up to hundredths of a device, as the scheduler charges it.
                allocated[GPU] = gpu.devices * -(-100 * gpu.memory_mib // size) * (MILLI // 100)
            elif received and holds:
                problem = f"its node has no label {GPU_MEMORY_LABEL}, so its share of a GPU is not known"
        else:
            requested[GPU] = gpu.milli_portion * gpu.devices
            if received:
                allocated[GPU] = requested[GPU]
    return Usage(requested, allocated if holds else {}, claims, holds, problem)


def claim_usage(claim: Json) -> Sum:
    """GPUs that a ResourceClaim asks for, by the name of their device class."""
    found: Sum = {}
    spec = claim.get("spec") or {}
    requests = (spec.get("devices") or {}).get("requests") or ()
    for request in requests:
        exact = request.get("exactly") or {}
        name = exact.get("deviceClassName") or ""
        if "gpu" not in name.lower():
            continue
        count = exact.get("count") or 1
        if exact.get("allocationMode") == "All":
            results = (((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}).get(
                "results"
            )
            count = sum(result.get("request") == request.get("name") for result in results or ()) or 1
        found[name] = found.get(name, 0) + count * MILLI
    return found


class GroupSums:
    """What the pods of one group ask for and hold in all, brought up to date by those that changed."""

    def __init__(self) -> None:
        self._requested: Sum = {}
        self._allocated: Sum = {}
        self._asking: Sum = {}
        """Pods that name each claim; ``_holding``: of these, the ones that hold a place."""
        self._holding: Sum = {}
        self._pods: Mapping[Any, Json] = {}
        self._labels: Mapping[Any, Mapping[str, str]] = {}
        """Of the nodes of pods for which these count."""

    def update(
        self, pods: Mapping[Any, Json], labels: Mapping[Any, Mapping[str, str]]
    ) -> list[tuple[Json, str]]:
        """Count the pods, each with the labels of its node, in the place of those before; the same object
        with the same labels counts as before. Returns what could not be read of the others."""
        before, known = self._pods, self._labels
        new = {
            key: usage_of(pod, labels.get(key, {}))
            for key, pod in pods.items()
            if before.get(key) is not pod or known.get(key) != labels.get(key)
        }
        old = before.keys() - (pods.keys() - new.keys())
        gone = [usage_of(before[key], known.get(key, {})) for key in old]
        for sign, usages in ((-1, gone), (1, new.values())):
            for usage in usages:
                self._count(usage, sign)
        self._pods, self._labels = pods, labels
        return [(pods[key], usage.problem) for key, usage in new.items() if usage.problem]

    def _count(self, usage: Usage, sign: int) -> None:
        claims = dict.fromkeys(usage.claims, 1)
        for into, found in (
            (self._requested, usage.requested),
            (self._allocated, usage.allocated),
            (self._asking, claims),
            (self._holding, claims if usage.holds else {}),
        ):
            add(into, {name: sign * amount for name, amount in found.items()})

    @property
    def claims(self) -> Iterable[str]:
        """Names of the ResourceClaims of its pods."""
        return self._asking.keys()

    def status(self, claims: Mapping[str, Json], *, preemptible: bool) -> dict[str, dict[str, str]]:
        """``status.resourcesStatus`` of the group. A claim that several of its pods share counts once."""
        requested, allocated = dict(self._requested), dict(self._allocated)
        for name in sorted(self._asking.keys() & claims.keys()):
            found = claim_usage(claims[name])
            add(requested, found)
            if name in self._holding:
                add(allocated, found)
        return {
            "requested": resource_list(requested),
            "allocated": resource_list(allocated),
            "allocatedNonPreemptible": {} if preemptible else resource_list(allocated),
        }


def is_preemptible(spec: Json, classes: Mapping[str, Json]) -> bool:
    """Whether a group may be evicted for others (1.2): said, or else by its priority."""
    said = spec.get("preemptibility") or ""
    if said:
        return bool(said == "preemptible")
    found = classes.get(spec.get("priorityClassName") or "")
    if found is None:
        # Of several global defaults the lowest counts, as in Kubernetes and for the scheduler.
        defaults = (one for one in classes.values() if one.get("globalDefault"))
        found = min(defaults, key=_value, default=None)
    return (_DEFAULT_PRIORITY if found is None else _value(found)) < _NON_PREEMPTIBLE_PRIORITY


def _value(priority_class: Json) -> int:
    return int(priority_class.get("value") or 0)


def add(into: Sum, other: Mapping[str, int]) -> None:
    """``into`` += ``other``; what comes to nothing goes, as names of resources may be new each time."""
    for name, amount in other.items():
        into[name] = into.get(name, 0) + amount
        if not into[name]:
            del into[name]


def shortened(found: Sum, held: Mapping[str, int]) -> Sum:
    """The sum with no more names than a queue's status shows, the well-known and the ``held`` ones first."""
    names = sorted(found, key=lambda name: (name not in STANDARD, not held.get(name), name))
    return {name: found[name] for name in names[:MOST_NAMES]}


def parsed(resources: Any) -> Sum:
    """A ResourceList as a sum; what cannot be read in it is left out."""
    found: Sum = {}
    for name, value in (resources if isinstance(resources, dict) else {}).items():
        try:
            if in_bytes(name):
                found[name] = scaled(str(value), 0) * MILLI
            else:
                found[name] = scaled(str(value), 1)
        except ValueError:
            continue
    return found


def resource_list(found: Mapping[str, int]) -> dict[str, str]:
    """A sum as a ResourceList with canonical quantities; zeros are left out."""
    return {name: _quantity(amount) for name, amount in sorted(found.items()) if amount}


def gpus_of(found: Mapping[str, int]) -> int:
    """Thousandths of GPUs in a sum: of every vendor, of device classes, and of MIG by their g numbers."""
    total = 0
    for name, amount in found.items():
        mig = re.fullmatch(r"nvidia\.com/mig-(\d+)g\..*", name)
        if mig:
            total += int(mig[1]) * amount
        elif name != _SHOWN_MEMORY and (name.endswith("gpu") or ("/" not in name and "gpu" in name.lower())):
            total += amount
    return total


def memory_of_gpu(labels: Mapping[str, str]) -> int:
    """Memory of one GPU of a node by its labels [MiB]; 0 when they do not tell."""
    if told := gpu_memory_mib(labels.get(GPU_MEMORY_LABEL, "")):
        return told
    for key in labels:
        found = _AMD_LABEL.fullmatch(key)
        if found:
            return int(int(found[1]) * _AMD_MEBIBYTES[found[2]])
    return 0


def _scheduled(status: Json) -> bool:
    conditions = status.get("conditions") or ()
    return any(c.get("type") == "PodScheduled" and c.get("status") == "True" for c in conditions)


def by_name(amounts: Mapping[str, int], spec: Json) -> Sum:
    """Amounts by dimension as thousandths by resource name; places for pods are not a resource here."""
    found: Sum = {}
    for name, amount in amounts.items():
        if name == "pods":
            continue
        kind = dimension(name if name != "gpu" else GPU)
        milli = kind is not None and kind.milli
        found[_gpu_name(spec) if name == "gpu" else name] = amount if milli else amount * MILLI
    return found


def _gpu_name(spec: Json) -> str:
    """The name under which a pod asks for GPUs."""
    try:
        for key in ("containers", "initContainers"):
            for container in spec.get(key) or ():
                requests = object_at(object_at(container, "resources"), "requests")
                names = sorted(name for name in requests if name.endswith("gpu"))
                if names:
                    return names[0]
    except Malformed:
        pass
    return GPU


def _quantity(milli: int) -> str:
    return str(milli // MILLI) if milli % MILLI == 0 else f"{milli}m"


def queue_of(group: Json) -> str:
    """The queue of a pod group, "" when it names none that can be read."""
    try:
        return text_at(object_at(group, "spec"), "queue")
    except Malformed:
        return ""
