"""Units: what a pod group offers to be placed next, and what it offers to give up next (5.1 to 5.5).

A pod group is a tree of subgroups. What it gets is always a whole *batch*: first everything missing
for its minimum, then one increment at a time (one elastic pod, or one extra subgroup). What it loses
is always a whole *eviction unit*: surplus pods first, then surplus subgroups, then all that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import NamedTuple

from kai_cp_models.snapshot import (
    ACTIVE_ALLOCATED,
    ALIVE,
    GroupKey,
    Pod,
    PodGroup,
    PodKey,
    PodStatus,
    Snapshot,
    Subgroup,
)

StatusOf = Callable[[Pod], PodStatus]


@dataclass(frozen=True)
class Batch:
    """Pods that are placed together or not at all, in the shape of the gang tree.

    A leaf batch has ``pods``; a set batch has ``parts``, in subgroup order.
    """

    subgroup: Subgroup
    pods: tuple[Pod, ...] = ()
    parts: tuple[Batch, ...] = ()

    @cached_property
    def all_pods(self) -> tuple[Pod, ...]:
        """Every pod of the batch, in placement order."""
        return self.pods + tuple(pod for part in self.parts for pod in part.all_pods)

    @cached_property
    def leaves(self) -> tuple[tuple[tuple[Subgroup, ...], Batch], ...]:
        """Every leaf batch with the constrained subgroups above it (itself included), widest first."""
        here = (self.subgroup,) if self.subgroup.constraint is not None else ()
        own = ((here, self),) if self.subgroup.leaf else ()
        return own + tuple(((*here, *scopes), leaf) for part in self.parts for scopes, leaf in part.leaves)


class Standing(NamedTuple):
    """How a gang stands at one moment; ``batch`` is the next one (5.3), None where nothing can be placed."""

    pending: bool
    ready: bool
    elastic_state: int
    batch: Batch | None


class Unit(NamedTuple):
    """An eviction unit (5.4): pods that leave together, and the elastic state from which they leave.

    ``whole``: the pod group is below its minimum without them.
    """

    pods: tuple[Pod, ...]
    elastic_state: int
    whole: bool


class Gang:
    """The gang tree of one pod group with its pods; statuses are asked for, never stored."""

    def __init__(self, group: PodGroup, members: tuple[Pod, ...]) -> None:
        self.group = group
        self._members = members
        root = group.root
        single = len(root.children) == 1 and root.children[0].leaf and root.minimum == 1
        self._only_leaf = root.children[0] if single else None
        """The pod set of a group that is no more than that, as nearly all are; the others need their tree."""
        names = (root.children[0].name,) if single else {leaf.name for leaf in root.leaves()}
        known = [(pod.subgroup or "default") in names for pod in members]
        self.pods = members if all(known) else tuple(compress(members, known))
        """Pods of known subgroups: others are never placed, never counted (1.2)."""

    @cached_property
    def by_leaf(self) -> Mapping[str, tuple[Pod, ...]]:
        """Pods by the name of their pod set."""
        found: dict[str, list[Pod]] = {leaf.name: [] for leaf in self.group.root.leaves()}
        for pod in self.pods:
            found[pod.subgroup or "default"].append(pod)
        return {name: tuple(pods) for name, pods in found.items()}

    @cached_property
    def strangers(self) -> tuple[Pod, ...]:
        """Pods that name an unknown subgroup."""
        names = {leaf.name for leaf in self.group.root.leaves()}
        return tuple(pod for pod in self._members if (pod.subgroup or "default") not in names)

    @cached_property
    def keys(self) -> frozenset[PodKey]:
        """Keys of ``pods``."""
        return frozenset(pod.key for pod in self.pods)

    @cached_property
    def at_first(self) -> Standing:
        """How the gang stands in the snapshot."""
        return self.standing(_as_read)

    @cached_property
    def satisfied_at_first(self) -> bool:
        """Whether the gang has its minimum in the snapshot."""
        if self._only_leaf is not None:
            return sum(pod.status in ACTIVE_ALLOCATED for pod in self.pods) >= self._only_leaf.minimum
        return self.satisfied(self.group.root, _as_read)

    def standing(self, status_of: StatusOf) -> Standing:
        """How the gang stands when its pods have these statuses."""
        if self._only_leaf is not None:
            return self._standing_of_one(self._only_leaf, status_of)
        pending = any(status_of(pod) is PodStatus.PENDING for pod in self.pods)
        ready = pending and self.ready(status_of)
        batch = self.next_batch(status_of) if ready else None
        return Standing(pending, ready, self.elastic_state(status_of), batch)

    def _standing_of_one(self, leaf: Subgroup, status_of: StatusOf) -> Standing:
        """``standing`` of a group with one pod set."""
        statuses = [status_of(pod) for pod in self.pods]
        waiting = [
            pod for pod, status in zip(self.pods, statuses, strict=True) if status is PodStatus.PENDING
        ]
        active = sum(status in ACTIVE_ALLOCATED for status in statuses)
        ready = bool(waiting) and active + len(waiting) >= leaf.minimum
        batch = None
        if ready:
            pods = tuple(waiting[: max(leaf.minimum - active, 1)])
            batch = Batch(self.group.root, parts=(Batch(leaf, pods=pods),))
        return Standing(bool(waiting), ready, _elastic_state(active, leaf.minimum), batch)

    def pods_below(self, subgroup: Subgroup) -> Iterator[Pod]:
        """Pods of the leaves below ``subgroup``."""
        for leaf in subgroup.leaves():
            yield from self.by_leaf[leaf.name]

    def count(self, leaf: Subgroup, statuses: frozenset[PodStatus], status_of: StatusOf) -> int:
        """Pods of a leaf that are in one of ``statuses``."""
        return sum(status_of(pod) in statuses for pod in self.by_leaf[leaf.name])

    def satisfied(
        self,
        subgroup: Subgroup,
        status_of: StatusOf,
        statuses: frozenset[PodStatus] = ACTIVE_ALLOCATED,
    ) -> bool:
        """Whether the subtree meets its minimum with pods in ``statuses`` (5.1)."""
        return self._met(subgroup, status_of, statuses) >= subgroup.minimum

    def _met(self, subgroup: Subgroup, status_of: StatusOf, statuses: frozenset[PodStatus]) -> int:
        if subgroup.leaf:
            return self.count(subgroup, statuses, status_of)
        return sum(self.satisfied(child, status_of, statuses) for child in subgroup.children)

    def ready(self, status_of: StatusOf, subgroup: Subgroup | None = None) -> bool:
        """Whether enough pods are alive and not gated for the minimum (5.2)."""
        alive = ALIVE - {PodStatus.GATED}
        return self.satisfied(subgroup or self.group.root, status_of, alive)

    def elastic_state(self, status_of: StatusOf) -> int:
        """0: some pod set below its minimum; 1: all exactly at it; 2: some above (3.6)."""
        above = False
        for leaf in self.group.root.leaves():
            active = self.count(leaf, ACTIVE_ALLOCATED, status_of)
            if active < leaf.minimum:
                return 0
            above = above or active > leaf.minimum
        return 2 if above else 1

    @property
    def elastic(self) -> bool:
        """Some pod set has more pods than its minimum (5.5)."""
        return any(len(self.by_leaf[leaf.name]) > leaf.minimum for leaf in self.group.root.leaves())

    def subgroup_key(self, subgroup: Subgroup, status_of: StatusOf) -> tuple[object, ...]:
        """Subgroup order (3.6): below threshold, then required, then emptier, then by name."""
        met = self._met(subgroup, status_of, ACTIVE_ALLOCATED)
        required = subgroup.minimum > 0
        if met < subgroup.minimum:
            return (0, 0, 0.0, subgroup.name)
        ratio = met / subgroup.minimum if required else float(met)
        return (1, 0 if required else 1, ratio, subgroup.name)

    # --- what comes next -------------------------------------------------------------------------

    def next_batch(self, status_of: StatusOf) -> Batch | None:
        """The next batch (5.3), or None when nothing is pending that could be placed."""
        if self._only_leaf is not None:
            return self._standing_of_one(self._only_leaf, status_of).batch
        return self._next(self.group.root, status_of)

    def _pending(self, leaf: Subgroup, status_of: StatusOf) -> list[Pod]:
        return [pod for pod in self.by_leaf[leaf.name] if status_of(pod) is PodStatus.PENDING]

    def _next(self, subgroup: Subgroup, status_of: StatusOf) -> Batch | None:
        if subgroup.leaf:
            missing = subgroup.minimum - self.count(subgroup, ACTIVE_ALLOCATED, status_of)
            pods = self._pending(subgroup, status_of)[: max(missing, 1)]
            return Batch(subgroup, pods=tuple(pods)) if pods else None
        members = sorted(subgroup.children, key=lambda child: self.subgroup_key(child, status_of))
        satisfied = sum(self.satisfied(child, status_of) for child in members)
        if satisfied < subgroup.minimum:
            # Members that cannot become ready would tear the gang (14.1, defect 8): skip them.
            chosen = [
                child
                for child in members
                if not self.satisfied(child, status_of) and self.ready(status_of, child)
            ][: subgroup.minimum - satisfied]
            parts = tuple(part for child in chosen if (part := self._next(child, status_of)))
            return Batch(subgroup, parts=parts) if parts else None
        for child in members:
            below = not self.satisfied(child, status_of)
            if below and not self.ready(status_of, child):
                continue
            part = self._next(child, status_of)
            if part:
                return Batch(subgroup, parts=(part,))
        return None

    # --- what goes next --------------------------------------------------------------------------

    @cached_property
    def units_at_first(self) -> tuple[Unit, ...]:
        """The eviction units of the gang in the snapshot."""
        return self.units(_as_read)

    def units(self, status_of: StatusOf) -> tuple[Unit, ...]:
        """All eviction units, in the order in which they go (5.4)."""
        if self._only_leaf is not None:
            return self._units_of_one(self._only_leaf, status_of)
        gone: set[PodKey] = set()

        def left(pod: Pod) -> PodStatus:
            return PodStatus.RELEASING if pod.key in gone else status_of(pod)

        found: list[Unit] = []
        while pods := self.next_eviction(left):
            state = self.elastic_state(left)
            before = self.satisfied(self.group.root, left)
            gone.update(pod.key for pod in pods)
            whole = not before or not self.satisfied(self.group.root, left)
            found.append(Unit(pods, state, whole))
        return tuple(found)

    def _units_of_one(self, leaf: Subgroup, status_of: StatusOf) -> tuple[Unit, ...]:
        """``units`` of a group with one pod set: what is above the minimum pod by pod, then the rest."""
        active = [pod for pod in self.pods if status_of(pod) in ACTIVE_ALLOCATED]
        kept = min(leaf.minimum, len(active))
        found = [Unit((pod,), 2, False) for pod in reversed(active[kept:])]
        if kept:
            rest = Unit(tuple(active[:kept]), _elastic_state(kept, leaf.minimum), True)
            found.append(rest)
        return tuple(found)

    def next_eviction(self, status_of: StatusOf) -> tuple[Pod, ...]:
        """The next eviction unit (5.4): pods that leave together; () when nothing is left."""
        return tuple(self._shrink(self.group.root, status_of) or self._active(self.group.root, status_of))

    def _active(self, subgroup: Subgroup, status_of: StatusOf) -> list[Pod]:
        return [pod for pod in self.pods_below(subgroup) if status_of(pod) in ACTIVE_ALLOCATED]

    def _reversed_members(self, subgroup: Subgroup, status_of: StatusOf) -> list[Subgroup]:
        return sorted(subgroup.children, key=lambda child: self.subgroup_key(child, status_of), reverse=True)

    def _shrink(self, subgroup: Subgroup, status_of: StatusOf) -> list[Pod]:
        if subgroup.leaf:
            active = self._active(subgroup, status_of)
            return [active[-1]] if len(active) > subgroup.minimum else []
        members = self._reversed_members(subgroup, status_of)
        satisfied = [child for child in members if self.satisfied(child, status_of)]
        if not satisfied:
            return []
        for child in members:
            found = self._shrink(child, status_of)
            if found:
                return found
        if len(satisfied) > subgroup.minimum:
            for child in satisfied:
                found = self._active(child, status_of)
                if found:
                    return found
        return []


def _elastic_state(active: int, minimum: int) -> int:
    """See ``Gang.elastic_state``, for one pod set."""
    return 0 if active < minimum else 1 if active == minimum else 2


def _as_read(pod: Pod) -> PodStatus:
    return pod.status


class Gangs(Mapping[GroupKey, Gang]):
    """The gang of every pod group, built when it is first asked for: most groups just run."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._built: dict[GroupKey, Gang] = {}

    def __getitem__(self, key: GroupKey) -> Gang:
        gang = self._built.get(key)
        if gang is None:
            gang = Gang(self._snapshot.group_by_key[key], self._snapshot.members[key])
            self._built[key] = gang
        return gang

    def __iter__(self) -> Iterator[GroupKey]:
        return iter(self._snapshot.group_by_key)

    def __len__(self) -> int:
        return len(self._snapshot.group_by_key)


def gangs_of(snapshot: Snapshot) -> Gangs:
    """The gang of every pod group."""
    return Gangs(snapshot)
