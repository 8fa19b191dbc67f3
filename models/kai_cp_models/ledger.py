"""The ledger: what every node and queue holds at one moment of a cycle (2.6, 3.1).

It starts from the snapshot and follows the virtual operations of the cycle: place (now or pipelined),
evict, and their exact reversals. A trial works on ``copy()`` and is dropped on failure, so nothing
is ever undone by hand. Amounts are integers in the units of ``Snapshot.dimensions``.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.devices import open_rules
from kai_cp_models.devices.protocol import RuleState
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fitting import Fitting
from kai_cp_models.rules.closeness import Fabric, fabric_of
from kai_cp_models.rules.table import NodeTable
from kai_cp_models.settings import OptionalRules
from kai_cp_models.shapes import Shape, Shapes
from kai_cp_models.snapshot import (
    ACTIVE_USED,
    ALLOCATED,
    GPU,
    MILLI,
    PODS,
    GpuKind,
    GroupKey,
    Pod,
    PodKey,
    PodStatus,
    Snapshot,
)
from kai_cp_models.units import Batch, Gang, Standing, gangs_of

Vector = NDArray[np.int64]
Mask = NDArray[np.bool_]

_NAMESPACE: Final = uuid.UUID("6f3c9b0e-5a41-5d0e-9d5c-7b1f0f5b3a11")


@dataclass(frozen=True, slots=True)
class Device:
    """One shared GPU: MiB and number of its members by what becomes of them."""

    active_mib: int = 0
    releasing_mib: int = 0
    pipelined_mib: int = 0
    active: int = 0
    releasing: int = 0
    pipelined: int = 0

    def plus(self, role: str, mib: int, sign: int) -> Device:
        """The device with one member more (``sign`` 1) or less (-1) in ``role``."""
        change = {f"{role}_mib": getattr(self, f"{role}_mib") + sign * mib, role: getattr(self, role) + sign}
        values = {name: getattr(self, name) for name in self.__slots__}
        return Device(**(values | change))

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
        """Memory free at this moment; -1 when nobody really holds the device yet."""
        if not (self.active or self.releasing):
            return -1
        return total_mib - self.active_mib - self.releasing_mib

    def used_mib(self) -> int:
        """Memory used by all members."""
        return self.active_mib + self.releasing_mib + self.pipelined_mib


_ROLE: Final = {PodStatus.RELEASING: "releasing", PodStatus.PIPELINED: "pipelined"}


@dataclass(frozen=True, slots=True)
class Held:
    """A place that a pod holds in the cycle: node index, GPU groups, status, charge, binder details."""

    node: int
    gpu_groups: tuple[str, ...]
    status: PodStatus
    charged: Vector
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Fixed:
    """What does not change in a cycle, shared by all copies of a ledger."""

    snapshot: Snapshot
    table: NodeTable
    gangs: Mapping[GroupKey, Gang]
    gpu_memory_mib: Vector
    advertised: Mask
    """[N, D] dimensions the node has at all; others are never charged (2.1)."""
    close: bool
    """Whether gangs prefer close places."""

    @cached_property
    def fabric(self) -> Fabric | None:
        """The places that nodes share; None: nothing is known of them."""
        return fabric_of(self.snapshot)

    @property
    def closeness(self) -> Fabric | None:
        """The places by which gangs are kept close; None: they need not be."""
        return self.fabric if self.close else None

    @cached_property
    def shapes(self) -> Shapes:
        """What batches ask for."""
        return Shapes(self.snapshot)

    chains: dict[GroupKey, object] = field(default_factory=dict)
    """What groups give up while their pods are as read, see ``joint.offers``."""


class Ledger:
    """Mutable accounting of one virtual state; see the module's docstring."""

    def __init__(
        self,
        fixed: Fixed,
        idle: Vector,
        releasing: Vector,
        devices: dict[tuple[int, str], Device],
        groups_on: dict[int, tuple[str, ...]],
        book: QueueBook,
        rules: tuple[RuleState, ...],
        changed: dict[PodKey, PodStatus],
        held: dict[PodKey, Held],
    ) -> None:
        self.fixed = fixed
        self.idle = idle
        self.releasing = releasing
        self.devices = devices
        self.groups_on = groups_on
        self.book = book
        self.rules = rules
        self.changed = changed
        """Pods whose status differs from the snapshot."""
        self.held = held
        """Places given in this cycle (pending pods placed, evicted pods placed again)."""
        self._fitting = Fitting()

    @classmethod
    def of(
        cls, snapshot: Snapshot, options: OptionalRules | None = None, *, close_gangs: bool = True
    ) -> Ledger:
        """The ledger of the snapshot as it is.

        ``options``: rules that KAI lacks, by default none. ``close_gangs``: the setting of that name.
        """
        table = NodeTable(snapshot)
        allocatable = table.allocatable
        fixed = Fixed(
            snapshot,
            table,
            gangs_of(snapshot),
            np.array([node.gpu_memory_mib for node in snapshot.nodes], dtype=np.int64),
            allocatable > 0,
            close_gangs,
        )
        ledger = cls(
            fixed,
            allocatable.copy(),
            np.zeros_like(allocatable),
            {},
            {},
            QueueBook.of(snapshot),
            open_rules(snapshot, options),
            {},
            {},
        )
        ledger._load()
        return ledger

    def copy(self) -> Ledger:
        """An independent ledger in the same state."""
        result = Ledger(
            self.fixed,
            self.idle.copy(),
            self.releasing.copy(),
            dict(self.devices),
            dict(self.groups_on),
            self.book.copy(),
            tuple(rule.copy() for rule in self.rules),
            dict(self.changed),
            dict(self.held),
        )
        result._fitting = self._fitting.copy()
        return result

    # --- questions -------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot the ledger started from."""
        return self.fixed.snapshot

    def status(self, pod: Pod) -> PodStatus:
        """Status of the pod at this moment of the cycle."""
        return self.changed.get(pod.key, pod.status)

    def standing(self, gang: Gang) -> Standing:
        """How the gang stands at this moment; one whose pods are as read is looked at once a cycle."""
        return gang.at_first if self.untouched(gang) else gang.standing(self.status)

    def untouched(self, gang: Gang) -> bool:
        """Whether all pods of the gang are as the snapshot has them."""
        return self.changed.keys().isdisjoint(gang.keys)

    def asked(self, batch: Batch) -> Amounts:
        """The size of the batch in order, demand and reclaim (2.3)."""
        return self.fixed.shapes.of(batch).pessimistic

    def shape(self, batch: Batch) -> Shape:
        """What the batch asks for, whoever asks."""
        return self.fixed.shapes.of(batch)

    def place_of(self, pod: Pod) -> tuple[int, tuple[str, ...]] | None:
        """(node index, GPU groups) where the pod is or will be, or None."""
        held = self.held.get(pod.key)
        if held is not None:
            return held.node, held.gpu_groups
        if pod.node is None or self.status(pod) not in ACTIVE_USED:
            return None
        node = self.snapshot.node_index.get(pod.node)
        return None if node is None else (node, pod.gpu_groups)

    def share_mib(self, pod: Pod) -> Vector:
        """[N] memory that one device of a share takes on each node (2.3)."""
        gpu = pod.spec.gpu
        if gpu.kind is GpuKind.MEMORY:
            return np.full_like(self.fixed.gpu_memory_mib, gpu.memory_mib)
        return gpu.milli_portion * self.fixed.gpu_memory_mib // MILLI

    def share_mib_on(self, pod: Pod, node: int) -> int:
        """Memory that one device of a share takes on ``node``."""
        gpu = pod.spec.gpu
        if gpu.kind is GpuKind.MEMORY:
            return gpu.memory_mib
        return int(gpu.milli_portion * int(self.fixed.gpu_memory_mib[node]) // MILLI)

    def fits(self, pod: Pod, *, now: bool) -> Mask:
        """[N] nodes with room for the pod: idle now, or once everything releasing is gone (2.6).

        Static node rules and device rules are included.
        """
        mask = self._fitting.mask(self, pod, "now" if now else "later")
        for rule in self.rules:
            if rule.concerns(pod) and mask.any():
                allowed = rule.mask(pod, now=now)
                if allowed is not None:
                    mask &= allowed
        return mask

    def best(self, pod: Pod, within: Mask) -> tuple[int, bool] | None:
        """The node that scores best for the pod, and whether its room is idle; -1: none has room.

        The same answer as ``fits`` and ``scores`` give, without scoring every node; None where that takes
        more than ranks: device rules, GPU memory, a nominated node, spreading.
        """
        spec = pod.spec
        special = spec.claims or spec.gpu.kind is GpuKind.MEMORY or pod.nominated_node is not None
        if special or any(rule.concerns(pod) for rule in self.rules):
            return None
        return self._fitting.best(self, pod, within)

    def device_free_mib(self, node: int, name: str, *, now: bool) -> int:
        """Memory of a shared device that is free now, or once its releasing members are gone."""
        device = self.devices[node, name]
        total = int(self.fixed.gpu_memory_mib[node])
        future = device.future_free_mib(total)
        return min(future, device.free_now_mib(total)) if now else future

    def shares_room(self, pod: Pod) -> Mask:
        """[N] nodes with a shared device that the pod's GPU requirement fits (gpusharingorder, 6)."""
        return self._fitting.mask(self, pod, "shared")

    def choose_groups(self, pod: Pod, node: int) -> tuple[tuple[str, ...], bool]:
        """GPU groups for a share on ``node``, one per device, and whether all have room now (2.6)."""
        need = self.share_mib_on(pod, node)
        total = int(self.fixed.gpu_memory_mib[node])
        policy = self.snapshot.policy
        spread = policy.plugin("gpuspread")
        options: list[tuple[float, str]] = []
        for name in self.groups_on.get(node, ()):
            if self.device_free_mib(node, name, now=False) >= need:
                used = self.devices[node, name].used_mib() / total
                options.append((1 - used if spread else used, name))
        options.sort(key=lambda option: (-option[0], option[1]))
        whole = max(int(self.idle[node, GPU] + self.releasing[node, GPU]), 0) // MILLI
        chosen: list[str] = []
        fresh = 0
        devices = pod.spec.gpu.devices
        shared = [name for _, name in options]
        if spread:
            slots = int(self.idle[node, PODS] + self.releasing[node, PODS])
            fresh = min(whole, devices, max(slots - 1, 0))
        chosen += shared[: devices - fresh]
        fresh = devices - len(chosen)
        for _ in range(fresh):
            chosen.append(self.fresh_group(pod, node, taken=chosen))
        names = tuple(chosen)
        return names, self.groups_free_now(pod, node, names)

    def fresh_group(self, pod: Pod, node: int, taken: Sequence[str] = ()) -> str:
        """Name of a new GPU group: a function of pod and node, so equal inputs give equal answers."""
        salt = 0
        while True:
            name = str(uuid.uuid5(_NAMESPACE, f"{self.snapshot.nodes[node].name}/{pod.uid}/{salt}"))
            salt += 1
            if (node, name) not in self.devices and name not in taken:
                return name

    def groups_free_now(self, pod: Pod, node: int, names: tuple[str, ...]) -> bool:
        """Whether the named devices (known or new) have room for a share at this moment."""
        need = self.share_mib_on(pod, node)
        fresh = 0
        for name in names:
            if (node, name) not in self.devices:
                fresh += 1
            elif self.device_free_mib(node, name, now=True) < need:
                return False
        slots = int(self.idle[node, PODS])
        return fresh * MILLI <= max(int(self.idle[node, GPU]), 0) and slots >= 1 + fresh

    def shared_free(self) -> NDArray[np.float64]:
        """[N] free portions of joinable shared devices, in devices (8.3 step 2)."""
        free = np.zeros(len(self.idle))
        for node, names in self.groups_on.items():
            total = int(self.fixed.gpu_memory_mib[node])
            free[node] = sum(max(self.device_free_mib(node, name, now=False), 0) for name in names) / total
        return free

    def extra_score(self, pod: Pod) -> NDArray[np.float64] | None:
        """[N] sum of the scores of the device rules for the pod (6), or None."""
        found = [value for rule in self.rules if (value := rule.score(pod)) is not None]
        return sum(found[1:], start=found[0]) if found else None

    def details_of(self, pod: Pod) -> Mapping[str, Any]:
        """What the binder needs beyond node and groups, for a place of this cycle."""
        held = self.held[pod.key]
        found = dict(held.details)
        for rule in self.rules:
            if rule.concerns(pod):
                found |= rule.details(pod, held.node) or {}
        return found

    # --- operations ------------------------------------------------------------------------------

    def place(self, pod: Pod, node: int, gpu_groups: tuple[str, ...] = (), *, pipelined: bool) -> None:
        """Give the pod a place: bound this cycle, or pipelined (bound when something frees up)."""
        self._fitting.touch(node)
        status = PodStatus.PIPELINED if pipelined else PodStatus.ALLOCATED
        vector = self._vector_on(pod, node)
        # A new group brings a reservation pod, which needs a slot of its own (2.6).
        vector[PODS] += sum((node, name) not in self.devices for name in gpu_groups)
        if pipelined:
            self.releasing[node] -= vector
        else:
            self.idle[node] -= vector
        if gpu_groups:
            self._share(pod, node, gpu_groups, "pipelined" if pipelined else "active", 1)
        details: dict[str, Any] = {}
        for rule in self.rules:
            if rule.concerns(pod):
                details |= rule.place(pod, node, pipelined=pipelined)
        self._charge_queue(pod, node, 1)
        self.held[pod.key] = Held(node, gpu_groups, status, vector, details)
        self.changed[pod.key] = status

    def unplace(self, pod: Pod) -> None:
        """Take back a place given in this cycle; an evicted pod stays evicted."""
        held = self.held.pop(pod.key)
        self._fitting.touch(held.node)
        for rule in self.rules:
            if rule.concerns(pod):
                rule.remove(pod, held.node)
        if held.gpu_groups:
            self._share(pod, held.node, held.gpu_groups, _ROLE.get(held.status, "active"), -1)
        if held.status is PodStatus.PIPELINED:
            self.releasing[held.node] += held.charged
        else:
            self.idle[held.node] += held.charged
        self._charge_queue(pod, held.node, -1)
        if pod.status is PodStatus.PENDING:
            del self.changed[pod.key]
        else:
            self.changed[pod.key] = PodStatus.RELEASING

    def pipeline(self, pod: Pod) -> None:
        """Turn a place given now into a pipelined one (an incomplete gang starts together, 4.2)."""
        held = self.held[pod.key]
        if held.status is not PodStatus.PIPELINED:
            self.unplace(pod)
            self.place(pod, held.node, held.gpu_groups, pipelined=True)

    def evict(self, pod: Pod) -> None:
        """A pod that runs in the snapshot starts releasing."""
        node = self.snapshot.node_index[pod.node or ""]
        self._fitting.touch(node)
        self.releasing[node] += self._vector_on(pod, node)
        if pod.gpu_groups and pod.spec.gpu.shares:
            self._share(pod, node, pod.gpu_groups, "active", -1)
            self._share(pod, node, pod.gpu_groups, "releasing", 1)
        for rule in self.rules:
            if rule.concerns(pod):
                rule.evict(pod)
        if pod.status in ALLOCATED:
            self._charge_queue(pod, node, -1)
        self.changed[pod.key] = PodStatus.RELEASING

    def unevict(self, pod: Pod) -> None:
        """Take back an eviction of this cycle; the pod must hold no other place."""
        node = self.snapshot.node_index[pod.node or ""]
        self._fitting.touch(node)
        self.releasing[node] -= self._vector_on(pod, node)
        if pod.gpu_groups and pod.spec.gpu.shares:
            self._share(pod, node, pod.gpu_groups, "releasing", -1)
            self._share(pod, node, pod.gpu_groups, "active", 1)
        for rule in self.rules:
            if rule.concerns(pod):
                rule.unevict(pod)
        if pod.status in ALLOCATED:
            self._charge_queue(pod, node, 1)
        del self.changed[pod.key]

    # --- bookkeeping -----------------------------------------------------------------------------

    def _load(self) -> None:
        """Account for everything that holds a place in the snapshot."""
        index = self.snapshot.node_index
        # There are many pods and few requests: pods share their specs.
        rows: dict[tuple[int, bool], int] = {}
        requests: list[tuple[int, ...]] = []
        row_of: list[int] = []
        node_of: list[int] = []
        leaving: list[bool] = []
        sharing: list[tuple[Pod, int]] = []
        for pod in self.snapshot.pods:
            node = index.get(pod.node) if pod.node and pod.status in ACTIVE_USED else None
            if node is None:
                continue
            kind = (id(pod.spec), pod.reservation)
            row = rows.get(kind)
            if row is None:
                row = rows[kind] = len(requests)
                requests.append(self._vector(pod))
            row_of.append(row)
            node_of.append(node)
            leaving.append(pod.status is PodStatus.RELEASING)
            if pod.gpu_groups and not pod.reservation:
                sharing.append((pod, node))
        if not row_of:
            return
        nodes, gone = np.array(node_of), np.array(leaving)
        vectors = np.array(requests, dtype=np.int64)[row_of] * self.fixed.advertised[nodes]
        np.subtract.at(self.idle, nodes, vectors)
        np.add.at(self.releasing, nodes[gone], vectors[gone])
        self._load_devices(sharing)

    def _load_devices(self, sharing: Sequence[tuple[Pod, int]]) -> None:
        """Account for the shared devices of pods and their nodes: each is summed up, then charged."""
        sums: dict[tuple[int, str], list[int]] = {}
        memory = self.fixed.gpu_memory_mib.tolist()
        needs: dict[tuple[int, int], int] = {}
        for pod, node in sharing:
            if not pod.spec.gpu.shares:
                continue
            kind = (id(pod.spec), memory[node])
            need = needs.get(kind)
            if need is None:
                need = needs[kind] = self.share_mib_on(pod, node)
            # Active and releasing members stand in this order in a device.
            role = 1 if pod.status is PodStatus.RELEASING else 0
            for name in pod.gpu_groups:
                members = sums.get((node, name))
                if members is None:
                    members = sums[node, name] = [0, 0, 0, 0, 0, 0]
                members[role] += need
                members[role + 3] += 1
        names: dict[int, list[str]] = defaultdict(list)
        whole: list[tuple[int, int]] = []
        for (node, name), members in sums.items():
            device = self.devices[node, name] = Device(*members)
            whole.append(device.whole_gpu)
            names[node].append(name)
        if whole:
            nodes, changes = np.array([node for node, _ in sums]), MILLI * np.array(whole)
            np.add.at(self.idle[:, GPU], nodes, changes[:, 0])
            np.add.at(self.releasing[:, GPU], nodes, changes[:, 1])
        self.groups_on.update((node, tuple(sorted(group))) for node, group in names.items())

    def _vector(self, pod: Pod) -> tuple[int, ...]:
        if pod.reservation or pod.spec.gpu.shares:
            return (*pod.spec.requests[:GPU], 0, *pod.spec.requests[GPU + 1 :])
        return pod.spec.requests

    def _vector_on(self, pod: Pod, node: int) -> Vector:
        vector: Vector = np.array(self._vector(pod), dtype=np.int64) * self.fixed.advertised[node]
        return vector

    def _share(self, pod: Pod, node: int, names: tuple[str, ...], role: str, sign: int) -> None:
        need = self.share_mib_on(pod, node)
        for name in names:
            before = self.devices.get((node, name), Device())
            after = before.plus(role, need, sign)
            idle = after.whole_gpu[0] - before.whole_gpu[0]
            releasing = after.whole_gpu[1] - before.whole_gpu[1]
            self.idle[node, GPU] += idle * MILLI
            self.releasing[node, GPU] += releasing * MILLI
            known = self.groups_on.get(node, ())
            if after.empty:
                del self.devices[node, name]
                left = tuple(other for other in known if other != name)
                if left:
                    self.groups_on[node] = left
                else:
                    self.groups_on.pop(node, None)
            else:
                self.devices[node, name] = after
                if name not in known:
                    self.groups_on[node] = tuple(sorted((*known, name)))

    def _charge_queue(self, pod: Pod, node: int, sign: int) -> None:
        group = self.snapshot.group_by_key.get(pod.group) if pod.group else None
        if group is not None and group.queue in self.snapshot.queue_by_name:
            accepted = amounts.accepted(self.snapshot, pod, self.snapshot.nodes[node])
            self.book.charge(group.queue, accepted, group.preemptible, sign)
