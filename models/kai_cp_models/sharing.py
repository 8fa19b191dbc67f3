"""Shared GPUs: the pods on a device, and the memory that they leave free (2.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from kai_cp_models.arrays import Ints
from kai_cp_models.pods import MILLI, GpuKind, Pod

ACTIVE: Final = 0
RELEASING: Final = 1
PIPELINED: Final = 2
"""Roles of the members of a shared device."""


class SharedDevice(NamedTuple):
    """One shared GPU: memory in MiB and number of its members, by role.

    A member is one pod that holds a part of the device. ``active`` members run, ``releasing`` ones are
    leaving, ``pipelined`` ones have a promise and wait for capacity.
    """

    active_mib: int = 0
    releasing_mib: int = 0
    pipelined_mib: int = 0
    active: int = 0
    releasing: int = 0
    pipelined: int = 0
    new: int = 0
    """1 if no pod of the snapshot is on it: it brings a reservation pod."""

    def plus(self, role: int, mib: int, sign: int) -> SharedDevice:
        """The device after a member that holds ``mib`` MiB came (``sign`` 1) or went (-1); ``role``: one of
        ``ACTIVE``, ``RELEASING`` and ``PIPELINED``."""
        values = list(self)
        values[role] += sign * mib
        values[role + 3] += sign
        return SharedDevice(*values)

    @property
    def empty(self) -> bool:
        """Whether the device has no members."""
        return not (self.active or self.releasing or self.pipelined)

    @property
    def whole_gpu(self) -> tuple[int, int]:
        """The devices (idle, releasing) by which a shared GPU changes the whole GPUs of its node (2.6)."""
        if self.active or self.releasing:
            releasing = (1 - (self.pipelined > 0)) if not self.active else 0
            return -1, releasing
        return 0, -1 if self.pipelined else 0

    def free_mib(self, total_mib: int, *, now: bool) -> int:
        """MiB that are free once all releasing members have left, or if fewer ``now``; -1: no pod holds the
        device then, so it is a whole one."""
        later = total_mib - self.active_mib - self.pipelined_mib if self.active or self.pipelined else -1
        there = total_mib - self.active_mib - self.releasing_mib if self.active or self.releasing else -1
        return min(later, there) if now else later

    def used_mib(self) -> int:
        """MiB that all members hold together."""
        return self.active_mib + self.releasing_mib + self.pipelined_mib


class SharedFree(NamedTuple):
    """Shared devices as columns, [device]: the ``node`` of each, its MiB in ``total``, and those free ``now``
    and ``later``, once all releasing members have left; -1: no pod holds the device."""

    node: Ints
    total: Ints
    now: Ints
    later: Ints

    @classmethod
    def of(cls, devices: Mapping[int, Mapping[str, SharedDevice]], mib_on: Sequence[int]) -> SharedFree:
        """The columns of devices by node and name. ``mib_on``: by node, memory of one GPU."""
        nodes = [node for node, there in devices.items() for _ in there]
        total = np.array([mib_on[node] for node in nodes], dtype=np.int64)
        found = [device for there in devices.values() for device in there.values()]
        rows = np.array(found, dtype=np.int64).reshape(-1, len(SharedDevice._fields))
        active_mib, releasing_mib, pipelined_mib, active, releasing, pipelined, _ = rows.T
        later = np.where(active + pipelined, total - active_mib - pipelined_mib, -1)
        now = np.where(active + releasing, total - active_mib - releasing_mib, -1)
        return cls(np.array(nodes, dtype=np.int64), total, np.minimum(now, later), later)


def share_mib(pod: Pod, gpu_memory_mib: int) -> int:
    """MiB that the pod takes of each of its devices, on GPUs of ``gpu_memory_mib`` MiB (2.3)."""
    gpu = pod.spec.gpu
    return gpu.memory_mib if gpu.kind is GpuKind.MEMORY else gpu.milli_portion * gpu_memory_mib // MILLI
