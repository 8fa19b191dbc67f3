"""Shared GPUs: what is on a device, and what that leaves of it (2.6)."""

from __future__ import annotations

from dataclasses import dataclass

from kai_cp_models.pods import MILLI, GpuKind, Pod


@dataclass(frozen=True, slots=True)
class SharedDevice:
    """One shared GPU: MiB and number of its members by what becomes of them."""

    active_mib: int = 0
    releasing_mib: int = 0
    pipelined_mib: int = 0
    active: int = 0
    releasing: int = 0
    pipelined: int = 0

    def plus(self, role: str, mib: int, sign: int) -> SharedDevice:
        """The device with one member more (``sign`` 1) or less (-1) in ``role``."""
        active, releasing, pipelined = self.active_mib, self.releasing_mib, self.pipelined_mib
        members = self.active, self.releasing, self.pipelined
        if role == "active":
            return SharedDevice(active + sign * mib, releasing, pipelined, members[0] + sign, *members[1:])
        if role == "releasing":
            count = members[1] + sign
            return SharedDevice(active, releasing + sign * mib, pipelined, members[0], count, members[2])
        return SharedDevice(active, releasing, pipelined + sign * mib, *members[:2], members[2] + sign)

    @property
    def empty(self) -> bool:
        """No members left."""
        return not (self.active or self.releasing or self.pipelined)

    @property
    def whole_gpu(self) -> tuple[int, int]:
        """(idle, releasing) change of the node's whole-GPU account, in devices (2.6)."""
        if self.active or self.releasing:
            releasing = (1 - (self.pipelined > 0)) if not self.active else 0
            return -1, releasing
        return 0, -1 if self.pipelined else 0

    def future_free_mib(self, total_mib: int) -> int:
        """Memory left when everything releasing is gone; -1 when the device goes away whole."""
        if not (self.active or self.pipelined):
            return -1
        return total_mib - self.active_mib - self.pipelined_mib

    def free_now_mib(self, total_mib: int) -> int:
        """Memory free at this moment; -1 when no pod really holds the device yet."""
        if not (self.active or self.releasing):
            return -1
        return total_mib - self.active_mib - self.releasing_mib

    def used_mib(self) -> int:
        """Memory used by all members."""
        return self.active_mib + self.releasing_mib + self.pipelined_mib


def share_mib(pod: Pod, gpu_memory_mib: int) -> int:
    """Memory that one device of a share takes of GPUs of that size (2.3)."""
    gpu = pod.spec.gpu
    return gpu.memory_mib if gpu.kind is GpuKind.MEMORY else gpu.milli_portion * gpu_memory_mib // MILLI
