"""What a pod costs: on its node and in its queue (2.1 to 2.5).

This is written a second time from the rules on purpose: the engine has its own.
"""

from __future__ import annotations

import re
from typing import Final

from kai_cp_models.extras import CLAIM_MILLI_GPUS
from kai_cp_models.pods import BASE_DIMENSIONS, CPU, GPU, MEMORY, MILLI, GpuKind, Pod
from kai_cp_models.snapshot import Node, Snapshot

CheckedAmounts = tuple[int, int, int]
"""(milli_cpus, memory_bytes, milli_gpus)."""

NAMES: Final = ("CPU", "memory", "GPU")
_UNITS: Final = (MILLI, 2**30, MILLI)
_WORDS: Final = ("CPUs", "GiB of memory", "GPUs")
_MIG_NAME: Final = re.compile(r"nvidia\.com/mig-(\d+)g\.(\d+)gb")


def share_mib(pod: Pod, node: Node) -> int:
    """GPU memory that a share takes on each of its devices (2.3)."""
    if pod.spec.gpu.kind is GpuKind.MEMORY:
        return pod.spec.gpu.memory_mib
    return pod.spec.gpu.milli_portion * node.gpu_memory_mib // MILLI


def charge(snapshot: Snapshot, pod: Pod, node: Node) -> CheckedAmounts:
    """What a pod on ``node`` counts in its queue (2.3, end): the accepted amount."""
    gpu = pod.spec.gpu
    if gpu.kind is GpuKind.MEMORY:
        hundredths = -(-100 * gpu.memory_mib // node.gpu_memory_mib)
        milli_gpus = gpu.devices * hundredths * MILLI // 100
    else:
        milli_gpus = _sized_gpus(snapshot, pod)
    return pod.spec.requests[CPU], pod.spec.requests[MEMORY], milli_gpus + _claimed(snapshot, pod)


def demand(snapshot: Snapshot, pods: list[Pod]) -> CheckedAmounts:
    """What a batch without place asks for: GPU memory as part of the smallest GPU, rounded up once (2.3)."""
    bounds = snapshot.gpu_memory_bounds_mib
    divisor = bounds[0] if bounds else 100
    cpu = memory = milli_gpus = shared_mib = 0
    for pod in pods:
        gpu = pod.spec.gpu
        cpu, memory = cpu + pod.spec.requests[CPU], memory + pod.spec.requests[MEMORY]
        milli_gpus += _sized_gpus(snapshot, pod) + _claimed(snapshot, pod)
        shared_mib += gpu.devices * gpu.memory_mib if gpu.kind is GpuKind.MEMORY else 0
    return cpu, memory, milli_gpus - (-MILLI * shared_mib // divisor)


def involves(snapshot: Snapshot, pods: list[Pod]) -> tuple[bool, bool, bool]:
    """Resources that pods ask for; MIG instances do not mark the GPU (4.4)."""
    return (
        any(pod.spec.requests[CPU] for pod in pods),
        any(pod.spec.requests[MEMORY] for pod in pods),
        any(pod.spec.requests[GPU] or pod.spec.gpu.shares or _claimed(snapshot, pod) for pod in pods),
    )


def plus(left: CheckedAmounts, right: CheckedAmounts) -> CheckedAmounts:
    """Sum of two amounts."""
    return left[0] + right[0], left[1] + right[1], left[2] + right[2]


def minus(left: CheckedAmounts, right: CheckedAmounts) -> CheckedAmounts:
    """Difference of two amounts."""
    return left[0] - right[0], left[1] - right[1], left[2] - right[2]


def in_words(resource: int, amount: float) -> str:
    """An amount with its unit."""
    return f"{number(resource, amount)} {_WORDS[resource]}"


def number(resource: int, amount: float) -> str:
    """An amount as a number in its unit, without the unit."""
    return f"{round(amount / _UNITS[resource], 3):g}"


def _sized_gpus(snapshot: Snapshot, pod: Pod) -> int:
    if pod.spec.gpu.kind is GpuKind.MEMORY:
        return 0
    if pod.spec.gpu.kind is GpuKind.FRACTION:
        return pod.spec.gpu.milli_portion * pod.spec.gpu.devices
    instances = 0
    for i in range(len(BASE_DIMENSIONS), len(pod.spec.requests)):
        amount = pod.spec.requests[i]
        match = _MIG_NAME.fullmatch(snapshot.dimensions[i]) if amount else None
        if match:
            instances += int(match[1]) * amount
    return pod.spec.requests[GPU] + MILLI * instances


def _claimed(snapshot: Snapshot, pod: Pod) -> int:
    """GPUs asked for through resource claims (2.5)."""
    return snapshot.extras[CLAIM_MILLI_GPUS].get(pod.key, 0)
