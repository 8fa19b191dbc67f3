"""A first-fit ledger for generated pods, which keeps every generated state of running pods legal."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random


@dataclass
class Ask:
    """The request of one pod of a generated job; GPU memory in MiB, portion in hundredths."""

    milli_cpus: int = 1000
    mib: int = 1024
    gpus: int = 0
    portion: int = 0
    gpu_mib: int = 0
    devices: int = 1
    mig: str = ""
    ports: tuple[int, ...] = ()
    selector: dict[str, str] = field(default_factory=dict)
    tolerates: bool = False

    @property
    def shares(self) -> bool:
        """Whether devices are shared."""
        return bool(self.portion or self.gpu_mib)

    def gpu_hundredths(self, gpu_memory: int) -> int:
        """The charge to the queue on a node with such GPUs."""
        if self.mig:
            return 100 * int(self.mig.removeprefix("nvidia.com/mig-").partition("g.")[0])
        if self.gpu_mib:
            return self.devices * -(-100 * self.gpu_mib // gpu_memory)
        return self.devices * self.portion if self.portion else 100 * self.gpus


@dataclass
class Floor:
    """The free capacity of one node."""

    name: str
    labels: dict[str, str]
    milli_cpus: int
    mib: int
    gpus: int
    slots: int
    gpu_memory: int
    synced: bool = True
    tainted: bool = False
    usable: bool = True
    migs: dict[str, int] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    """Used MiB of every GPU group."""
    ports: set[int] = field(default_factory=set)

    def put(self, ask: Ask, rng: Random) -> list[str] | None:
        """Take the pod's request and return its GPU groups, or None if it does not fit."""
        if not self._fits(ask):
            return None
        groups = self._devices(ask, rng) if ask.shares else []
        if groups is None:
            return None
        self.milli_cpus -= ask.milli_cpus
        self.mib -= ask.mib
        self.gpus -= ask.gpus
        self.slots -= 1
        self.ports |= set(ask.ports)
        if ask.mig:
            self.migs[ask.mig] -= 1
        return groups

    def _fits(self, ask: Ask) -> bool:
        if not self.usable or (self.tainted and not ask.tolerates):
            return False
        if any(self.labels.get(key) != value for key, value in ask.selector.items()):
            return False
        if (ask.gpus or ask.shares) and self.migs:
            return False
        if ask.gpu_mib and (not self.synced or ask.gpu_mib > self.gpu_memory):
            return False
        if ask.mig and not self.migs.get(ask.mig):
            return False
        room = ask.milli_cpus <= self.milli_cpus and ask.mib <= self.mib and ask.gpus <= self.gpus
        return room and self.slots >= 1 + ask.shares * ask.devices and not self.ports & set(ask.ports)

    def _devices(self, ask: Ask, rng: Random) -> list[str] | None:
        need = ask.gpu_mib or ask.portion * self.gpu_memory // 100
        joined = [g for g, used in self.shared.items() if used + need <= self.gpu_memory]
        rng.shuffle(joined)
        chosen = joined[: ask.devices]
        fresh = ask.devices - len(chosen)
        if fresh > self.gpus:
            return None
        for _ in range(fresh):
            name = f"{rng.getrandbits(32):08x}-0000-4000-8000-{rng.getrandbits(48):012x}"
            self.gpus -= 1
            self.slots -= 1  # its reservation pod
            self.shared[name] = 0
            chosen.append(name)
        for name in chosen:
            self.shared[name] += need
        return chosen
