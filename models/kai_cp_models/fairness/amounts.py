"""Amounts: what a pod costs its queue in the three fair resources (2.3, 2.4).

A share given as GPU memory has no size of its own; it depends on the node. So there are three views.
``accepted`` is the charge once the node is known. ``optimistic`` counts with the largest GPUs; it refuses
only what no node could take. ``pessimistic`` counts with the smallest; demand, order and the size of a
reclaim use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from kai_cp_models.extras import CLAIM_MILLI_GPUS
from kai_cp_models.pods import CPU, GPU, MEMORY, MILLI, UNLIMITED, GpuKind, Pod
from kai_cp_models.snapshot import Node, Snapshot

Amounts = tuple[int, int, int]
"""(milli_cpus, memory_bytes, milli_gpus)."""
Involved = tuple[bool, bool, bool]
"""One flag per fair resource, in the order of ``Amounts``."""

NOTHING: Final[Amounts] = (0, 0, 0)
UNBOUNDED: Final[Amounts] = (UNLIMITED, UNLIMITED, UNLIMITED)

_DEFAULT_GPU_MEMORY_MIB: Final = 100
"""Memory assumed of a GPU whose memory is unknown (2.3)."""
_MILLI_STEP: Final = 10
"""Shares are charged in hundredths of a device (2.3)."""
_MIG_NAME: Final = re.compile(r"^nvidia\.com/mig-(\d+)g\.(\d+)gb$")


def accepted(snapshot: Snapshot, pod: Pod, node: Node) -> Amounts:
    """What the pod is charged once it is placed on ``node`` (2.3, end)."""
    return _accepted_at(snapshot, pod, node.gpu_memory_mib)


def optimistic(snapshot: Snapshot, pod: Pod) -> Amounts:
    """The least the pod can be charged: memory shares against the largest GPU (limits, quotas)."""
    return optimistic_batch(snapshot, (pod,))


def pessimistic(snapshot: Snapshot, pod: Pod) -> Amounts:
    """The size in order, demand and reclaim: memory shares against the smallest GPU, not rounded (2.3)."""
    return pessimistic_batch(snapshot, (pod,))


def optimistic_batch(snapshot: Snapshot, pods: Iterable[Pod]) -> Amounts:
    """``optimistic`` of several pods, rounded up once for all of them."""
    bounds = snapshot.gpu_memory_bounds_mib
    return _batch(snapshot, pods, bounds[1] if bounds else _DEFAULT_GPU_MEMORY_MIB)


def pessimistic_batch(snapshot: Snapshot, pods: Iterable[Pod]) -> Amounts:
    """``pessimistic`` of several pods, rounded up once for all of them: three thirds are one GPU."""
    return _batch(snapshot, pods, smallest_gpu_mib(snapshot))


def most(snapshot: Snapshot, pod: Pod) -> Amounts:
    """The most the pod can be charged: what it is on the smallest GPU (2.3)."""
    return _accepted_at(snapshot, pod, smallest_gpu_mib(snapshot))


def _accepted_at(snapshot: Snapshot, pod: Pod, gpu_mib: int) -> Amounts:
    """What the pod is charged on a node whose GPUs have ``gpu_mib`` of memory."""
    gpu = pod.spec.gpu
    cpu, memory, milli_gpus = without_shared_memory(snapshot, pod)
    if gpu.kind is GpuKind.MEMORY:
        milli_gpus += gpu.devices * memory_portion(gpu.memory_mib, gpu_mib)
    return cpu, memory, milli_gpus


def without_shared_memory(snapshot: Snapshot, pod: Pod) -> Amounts:
    """The part of the cost that does not depend on the node: everything but shares given as GPU memory."""
    spec = pod.spec
    if spec.gpu.kind is GpuKind.FRACTION:
        milli_gpus = spec.gpu.milli_portion * spec.gpu.devices
    elif spec.gpu.kind is GpuKind.MEMORY:
        milli_gpus = 0
    else:
        milli_gpus = spec.requests[GPU] + mig_milli_gpus(snapshot.dimensions, spec.requests)
    return spec.requests[CPU], spec.requests[MEMORY], milli_gpus + claim_milli_gpus(snapshot, pod)


def shared_memory_mib(pod: Pod) -> int:
    """GPU memory that the pod asks for on all its devices together; 0 for other kinds."""
    gpu = pod.spec.gpu
    return gpu.devices * gpu.memory_mib if gpu.kind is GpuKind.MEMORY else 0


def smallest_gpu_mib(snapshot: Snapshot) -> int:
    """The divisor of pessimistic memory shares."""
    bounds = snapshot.gpu_memory_bounds_mib
    return bounds[0] if bounds else _DEFAULT_GPU_MEMORY_MIB


def total(amounts: Iterable[Amounts]) -> Amounts:
    """Sum of amounts."""
    cpu = memory = gpu = 0
    for one in amounts:
        cpu += one[0]
        memory += one[1]
        gpu += one[2]
    return cpu, memory, gpu


def milli_gpus(pod: Pod) -> int:
    """Milli-GPUs of a pod: a share counts its portion, a memory share a whole device."""
    gpu = pod.spec.gpu
    return gpu.devices * (gpu.milli_portion or MILLI) if gpu.shares else pod.spec.requests[GPU]


def add(left: Amounts, right: Amounts) -> Amounts:
    """``left`` plus ``right``."""
    return left[0] + right[0], left[1] + right[1], left[2] + right[2]


def subtract(left: Amounts, right: Amounts) -> Amounts:
    """``left`` minus ``right``."""
    return left[0] - right[0], left[1] - right[1], left[2] - right[2]


def least(left: Amounts, right: Amounts) -> Amounts:
    """The smaller of both, resource by resource."""
    return min(left[0], right[0]), min(left[1], right[1]), min(left[2], right[2])


def involved(snapshot: Snapshot, pods: Iterable[Pod]) -> Involved:
    """Resources that the pods ask for, as reclaim's saturation test sees them (4.4).

    MIG instances cost GPUs but do not mark GPU as involved.
    """
    cpu = memory = gpu = False
    for pod in pods:
        cpu = cpu or pod.spec.requests[CPU] > 0
        memory = memory or pod.spec.requests[MEMORY] > 0
        gpu = gpu or pod.spec.gpu.shares or pod.spec.requests[GPU] > 0 or claim_milli_gpus(snapshot, pod) > 0
    return cpu, memory, gpu


def memory_portion(memory_mib: int, gpu_memory_mib: int) -> int:
    """The milli_gpus that a memory share takes of one device: rounded up to hundredths (2.3)."""
    return -(-100 * memory_mib // gpu_memory_mib) * _MILLI_STEP


def claim_milli_gpus(snapshot: Snapshot, pod: Pod) -> int:
    """GPUs that the pod asks for through resource claims (2.5)."""
    return snapshot.extras[CLAIM_MILLI_GPUS].get(pod.key, 0)


def mig_milli_gpus(dimensions: tuple[str, ...], vector: tuple[int, ...]) -> int:
    """The cost of the MIG instances in a resource vector: their g numbers (2.4)."""
    return MILLI * sum(vector[i] * slices for i, slices in mig_slices(dimensions))


@lru_cache(maxsize=64)
def mig_slices(dimensions: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """(dimension index, g number) of every MIG instance type that counts (2.4)."""
    matches = ((i, _MIG_NAME.match(name)) for i, name in enumerate(dimensions))
    return tuple((i, int(match[1])) for i, match in matches if match)


def _batch(snapshot: Snapshot, pods: Iterable[Pod], gpu_memory_mib: int) -> Amounts:
    cpu = memory = gpu = shared_mib = 0
    for pod in pods:
        shared_mib += shared_memory_mib(pod)
        sized = without_shared_memory(snapshot, pod)
        cpu += sized[0]
        memory += sized[1]
        gpu += sized[2]
    return cpu, memory, gpu - (-MILLI * shared_mib // gpu_memory_mib)
