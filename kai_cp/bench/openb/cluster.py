"""The state of the openb cluster while pods arrive, as arrays over nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kai_cp.bench.openb.trace import DEVICES, WHOLE, Classes, Nodes
from kai_cp_models.arrays import Ints


class TraceCluster:
    """Free CPU and memory per node, and free milli-GPUs per device (0 where there is no device).

    ``log`` names the nodes in the order in which they changed. A policy that keeps scores reads only the new
    part of the log and computes the scores of those nodes again.
    """

    def __init__(self, nodes: Nodes, classes: Classes) -> None:
        self.nodes = nodes
        self.classes = classes
        self.cpu = nodes.cpu.copy()
        self.memory = nodes.memory.copy()
        self.left = np.where(np.arange(DEVICES)[None, :] < nodes.gpus[:, None], WHOLE, 0).astype(np.int64)
        self.log: list[int] = []
        self.running: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        """Pod number -> (class, node, devices)."""
        self.used = 0
        """Milli-GPUs in use."""
        self.of_class: Ints = np.zeros(len(classes), dtype=np.int64)
        """Running pods of each class."""

    def fits(self, c: int, among: Ints | slice = slice(None)) -> NDArray[np.bool_]:
        """Which nodes can take a pod of class ``c`` now: [node], of the nodes ``among``."""
        k = self.classes
        ok = (self.cpu[among] >= k.cpu[c]) & (self.memory[among] >= k.memory[c])
        if k.gpus[c]:
            ok &= k.allowed[c, self.nodes.model[among]]
            ok &= (self.left[among] >= k.milli[c]).sum(axis=1) >= k.gpus[c]
        return np.asarray(ok)

    def tightest(self, c: int, node: int) -> tuple[int, ...]:
        """The fullest devices that still fit a pod of class ``c`` on ``node``."""
        count = int(self.classes.gpus[c])
        if count == 0:
            return ()
        row = self.left[node]
        fitting = np.flatnonzero(row >= self.classes.milli[c])
        order = fitting[np.argsort(row[fitting], kind="stable")]
        return tuple(int(d) for d in order[:count])

    def place(self, pod: int, c: int, node: int, devices: tuple[int, ...]) -> None:
        """Start a pod; it must fit."""
        self._take(c, node, devices, 1)
        self.running[pod] = (c, node, devices)

    def remove(self, pod: int) -> tuple[int, int, tuple[int, ...]]:
        """Stop a pod; returns its class and where it was."""
        c, node, devices = self.running.pop(pod)
        self._take(c, node, devices, -1)
        return c, node, devices

    def _take(self, c: int, node: int, devices: tuple[int, ...], sign: int) -> None:
        k = self.classes
        self.cpu[node] -= sign * k.cpu[c]
        self.memory[node] -= sign * k.memory[c]
        for device in devices:
            self.left[node, device] -= sign * k.milli[c]
        self.used += sign * int(k.total[c])
        self.of_class[c] += sign
        self.log.append(node)

    def share_used(self) -> float:
        """GPUs in use, in percent of all."""
        return 100.0 * self.used / self.nodes.total_milli_gpus

    def legal(self) -> bool:
        """Recount everything from the running pods: no amount is exceeded and the books agree."""
        k = self.classes
        cpu, memory = self.nodes.cpu.copy(), self.nodes.memory.copy()
        left = np.where(np.arange(DEVICES)[None, :] < self.nodes.gpus[:, None], WHOLE, 0)
        for c, node, devices in self.running.values():
            cpu[node] -= k.cpu[c]
            memory[node] -= k.memory[c]
            if len(set(devices)) != k.gpus[c] or (devices and not k.allowed[c, self.nodes.model[node]]):
                return False
            for device in devices:
                left[node, device] -= k.milli[c]
        agree = (cpu == self.cpu).all() and (memory == self.memory).all() and (left == self.left).all()
        return bool(agree and min(cpu.min(), memory.min(), left.min()) >= 0)
