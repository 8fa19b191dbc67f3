"""The problem of defragmentation: the pods that may move, their targets, and the value of a state (section
8).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints
from kai_cp_models.defrag.notes import moved
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_ALLOCATED, ACTIVE_USED, GPU, MILLI, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.reservations.held import NAME as HELD
from kai_cp_models.reservations.times import Times
from kai_cp_models.reservations.vectors import demand
from kai_cp_models.rules.stateful.budgets import Budgets
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import PodGroup, Snapshot

Immovable = Literal["NonPreemptible", "Exempt", "MinRuntime", "DisruptionBudget", "TornGang", "SharedGpu"]
_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class DefragQuestion:
    """What should become free.

    ``level``: a node label; None for single nodes (or anywhere, for gangs). ``pods`` and ``gpus``: gangs of
    ``pods`` pods with ``gpus`` whole GPUs each that fit at the same time, every gang inside one domain; 0:
    free nodes or domains.
    """

    level: str | None = None
    pods: int = 0
    gpus: int = 0

    @property
    def gang(self) -> bool:
        """Whether the question asks for capacity for gangs."""
        return self.pods > 0


@dataclass(frozen=True, eq=False)
class RestartUnit:
    """Pods that restart together: a gang, or one pod that its group can spare for a moment.

    ``nodes``: position of each pod's node. ``domain``: [N] of the level at which the group must stay
    together, -1 for nodes it may not use; None: anywhere. ``pinned``: the domain of the group's other pods,
    which stay.
    """

    group: PodGroup
    pods: tuple[Pod, ...]
    nodes: tuple[int, ...]
    needs: tuple[Ints, ...]
    masks: tuple[NDArray[np.bool_], ...]
    lost_gpu_hours: float
    domain: Ints | None = None
    pinned: int | None = None


@dataclass(frozen=True, slots=True)
class Excluded:
    """A pod group that could not be moved, and why."""

    group: GroupKey
    reason: Immovable


class Problem:
    """One snapshot and one question."""

    def __init__(
        self,
        snapshot: Snapshot,
        settings: Settings,
        question: DefragQuestion,
        *,
        within: Ledger | None = None,
    ) -> None:
        """``within``: a ledger whose held capacity binds the moves."""
        self._within = within
        self.snapshot = snapshot
        self.settings = settings
        self.question = question
        self.times = Times(snapshot, settings)
        self.ledger = Ledger.of(snapshot, settings.rules)
        self.free: Ints = self.ledger.idle.copy()
        """[N, D] what is free now; pods that are still releasing hold their capacity."""
        ready = self.ledger.fixed.table.ready
        self.nodes = [
            i for i, node in enumerate(snapshot.nodes) if ready[i] and node.allocatable[GPU] >= MILLI
        ]
        """Usable nodes with GPUs."""
        self.budgets = Budgets(snapshot)
        self.units: list[RestartUnit] = []
        self.excluded: list[Excluded] = []
        for group in snapshot.groups:
            self._offer(group)

    def _offer(self, group: PodGroup) -> None:
        pods = [pod for pod in self.snapshot.members[group.key] if pod.status in ACTIVE_ALLOCATED]
        if not any(pod.spec.needs_gpu for pod in pods):
            return
        why = self._refusal(group, pods)
        units: list[tuple[Pod, ...]] = []
        if why is None:
            found = self._units(group, pods)
            units = [unit for unit in found if self.budgets.allow(unit, self.budgets.allowed)]
            why = None if units else "DisruptionBudget"
            if not group.preemptible and any(len(unit) > 1 for unit in found):
                why = "NonPreemptible"
        if why is not None:
            self.excluded.append(Excluded(group.key, why))
            return
        age = max(0.0, self.times.now - self.times.start(group))
        self.units += (self._unit(group, unit, pods, age) for unit in units)

    def _refusal(self, group: PodGroup, pods: Sequence[Pod]) -> Immovable | None:
        path = self.snapshot.queue_path.get(group.queue, ())
        said = {group.notes.defrag, *(self.snapshot.queue_by_name[name].notes.defrag for name in path)}
        if not group.preemptible and not (self.settings.defrag.serving and self._serves(said, pods)):
            return "NonPreemptible"
        if False in said:
            return "Exempt"
        gang = self.ledger.fixed.gangs[group.key]
        if not gang.at_first.satisfied:
            return "TornGang"
        age = self.times.now - self.times.start(group)
        if age < self.settings.defrag.min_runtime_seconds or moved(group, self.times.now) is not None:
            return "MinRuntime"
        if any(pod.spec.gpu.shares or pod.spec.claims for pod in pods):
            return "SharedGpu"
        return None

    def _serves(self, said: Collection[bool | None], pods: Sequence[Pod]) -> bool:
        """Whether pods that cannot be preempted may move: an annotation allows it, and budgets cover them."""
        return True in said and all(pod.key in self.budgets.of for pod in pods)

    def _units(self, group: PodGroup, pods: Sequence[Pod]) -> list[tuple[Pod, ...]]:
        """One pod at a time where the group keeps its minimum without any one pod; otherwise all together."""
        gang = self.ledger.fixed.gangs[group.key]
        tally = gang.at_first.tally

        def spared(name: str, one: Pod) -> bool:
            less = gang.moved(tally, name, one.status, PodStatus.RELEASING)
            return less.counts[gang.top.name].active >= gang.top.minimum

        # The pods of a pod set are alike.
        sets = {pod.subgroup or "default": pod for pod in pods}
        if len(pods) > 1 and all(spared(*one) for one in sets.items()):
            return [(pod,) for pod in pods]
        return [tuple(pods)]

    def _unit(
        self, group: PodGroup, pods: tuple[Pod, ...], members: Sequence[Pod], age: float
    ) -> RestartUnit:
        index = self.snapshot.node_index
        domain = self._domain(group)
        pinned: int | None = None
        if domain is not None and len(pods) < len(members):
            pinned = int(domain[index[members[0].node or ""]])
        gpus = sum(int(demand(pod)[GPU]) for pod in pods) / MILLI
        usable = self.ledger.fixed.table.ready
        masks = tuple(self.ledger.fixed.table.accepting(pod) & usable & self._open(pod) for pod in pods)
        return RestartUnit(
            group,
            pods,
            tuple(index[pod.node or ""] for pod in pods),
            tuple(demand(pod) for pod in pods),
            masks,
            gpus * age / _HOUR,
            domain,
            pinned,
        )

    def _open(self, pod: Pod) -> NDArray[np.bool_]:
        """[N] nodes from which no hold keeps the pod away."""
        found = np.ones(len(self.snapshot.nodes), dtype=bool)
        for rule in self._within.rules if self._within is not None else ():
            mask = rule.mask(pod, now=False) if rule.name == HELD else None
            if mask is not None:
                found &= mask
        return found

    def _domain(self, group: PodGroup) -> Ints | None:
        return self.ledger.fixed.table.domains_of(group.root)[1]

    @cached_property
    def domains(self) -> list[list[int]]:
        """Nodes of every domain of the question's level; without a level, one domain of all nodes."""
        level = self.question.level
        if level is None:
            return [self.nodes] if self.question.gang else [[node] for node in self.nodes]
        found: dict[str, list[int]] = {}
        for node in self.nodes:
            value = self.snapshot.nodes[node].labels.get(level)
            if value is not None:
                found.setdefault(value, []).append(node)
        return [found[name] for name in sorted(found)]

    @cached_property
    def gpu_pods(self) -> Mapping[int, tuple[PodKey, ...]]:
        """Pods that hold GPUs, by node."""
        found: dict[int, list[PodKey]] = {}
        index = self.snapshot.node_index
        for pod in self.snapshot.pods:
            if pod.node in index and pod.status in ACTIVE_USED and not pod.reservation and pod.spec.needs_gpu:
                found.setdefault(index[pod.node], []).append(pod.key)
        return {node: tuple(keys) for node, keys in found.items()}

    def value(self, moved: Mapping[PodKey, int]) -> int:
        """What the question is worth when these pods are on other nodes."""
        if self.question.gang:
            free = self.free_after(moved)[:, GPU] // (self.question.gpus * MILLI)
            pieces = np.maximum(free, 0)
            return sum(int(pieces[nodes].sum()) // self.question.pods for nodes in self.domains)
        busy = self.busy_after(moved)
        return sum(not busy & set(nodes) for nodes in self.domains)

    def free_after(self, moved: Mapping[PodKey, int]) -> Ints:
        """[N, D] free when these pods are on other nodes."""
        free = self.free.copy()
        index = self.snapshot.node_index
        for key, node in moved.items():
            pod = self.snapshot.pod_by_key[key]
            free[index[pod.node or ""]] += demand(pod)
            free[node] -= demand(pod)
        return free

    def busy_after(self, moved: Mapping[PodKey, int]) -> set[int]:
        """Nodes with a GPU pod when these pods are on other nodes."""
        busy = {node for node, keys in self.gpu_pods.items() if any(key not in moved for key in keys)}
        gpu = {key for keys in self.gpu_pods.values() for key in keys}
        return busy | {node for key, node in moved.items() if key in gpu}
