"""Units: which pods a pod group gets next, and which it would give up next (5.1 to 5.4).

A pod group is a tree of subgroups. What it gets is always a whole *batch*: first everything missing
for its minimum, then one increment at a time (one elastic pod, or one extra subgroup). What it loses
is always a whole *eviction unit*: surplus pods first, then surplus subgroups, then all that is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, islice
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

from kai_cp_models.pods import ACTIVE_ALLOCATED, ALIVE, GroupKey, Pod, PodSpec, PodStatus
from kai_cp_models.snapshot import PodGroup, Snapshot, Subgroup

_Record = TypeVar("_Record")
StatusOf = Callable[[Pod], PodStatus]
_READY: Final = ALIVE - {PodStatus.GATED}
_as_read: StatusOf = attrgetter("status")


@dataclass(frozen=True, eq=False)
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
        if len(self.parts) == 1:
            return self.parts[0].all_pods
        return self.pods + tuple(pod for part in self.parts for pod in part.all_pods)

    @property
    def leaves(self) -> tuple[tuple[tuple[Subgroup, ...], Batch], ...]:
        """Every leaf batch with the constrained subgroups above it (itself included), widest first."""
        # A leaf that kept itself would live until the collector looks at it.
        return ((self._scope, self),) if self.subgroup.leaf else self._leaves_below

    @cached_property
    def _leaves_below(self) -> tuple[tuple[tuple[Subgroup, ...], Batch], ...]:
        return tuple(((*self._scope, *above), leaf) for part in self.parts for above, leaf in part.leaves)

    @property
    def _scope(self) -> tuple[Subgroup, ...]:
        return () if self.subgroup.constraint is None else (self.subgroup,)

    @cached_property
    def kinds(self) -> tuple[object, ...]:
        """What each leaf batch asks for: the constraints above it, and how many pods have which spec."""
        if len(self.parts) == 1 and not self._scope:
            return self.parts[0].kinds
        return tuple(
            (tuple([one.constraint for one in above]), *_numbers([pod.spec for pod in leaf.pods]).items())
            for above, leaf in self.leaves
        )


class GangState(NamedTuple):
    """The state of a gang at one moment; ``batch`` is the next one (5.3), None if no pod can be placed."""

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


class StatusCounts(NamedTuple):
    """Pods of a gang by status, updated by :meth:`moved` where counting again would cost too much."""

    pending: int
    active: int
    """Of ``ACTIVE_ALLOCATED``, those of the next field included."""
    pipelined: int
    first: int = 0
    """No pod before this one of the gang's pods is pending."""

    @classmethod
    def of(cls, statuses: Iterable[PodStatus]) -> StatusCounts:
        """Count them."""
        pending = active = pipelined = 0
        for status in statuses:
            if status is PodStatus.PENDING:
                pending += 1
            elif status in ACTIVE_ALLOCATED:
                active += 1
                pipelined += status is PodStatus.PIPELINED
        return cls(pending, active, pipelined)

    def moved(self, before: PodStatus, after: PodStatus) -> StatusCounts:
        """After one pod changed its status."""
        return StatusCounts(
            self.pending + (after is PodStatus.PENDING) - (before is PodStatus.PENDING),
            self.active + (after in ACTIVE_ALLOCATED) - (before in ACTIVE_ALLOCATED),
            self.pipelined + (after is PodStatus.PIPELINED) - (before is PodStatus.PIPELINED),
            0 if after is PodStatus.PENDING else self.first,
        )


GangTally = Mapping[str, StatusCounts]
"""The counts of every pod set, by its name."""
Met = dict[str, int]
"""By the name of a subgroup, unique in its group: of a pod set its pods in some statuses, of a set its
satisfied members."""


class _Queue:
    """The pods of every pod set that wait, in their order; those passed once are not looked at again."""

    def __init__(self, by_leaf: Mapping[str, tuple[Pod, ...]], tally: GangTally, status_of: StatusOf) -> None:
        self._by_leaf = by_leaf
        self._status_of = status_of
        self.tally: GangTally = tally
        """``tally`` with what was passed."""

    def first(self, name: str, most: int) -> tuple[Pod, ...]:
        """The first ``most`` of a pod set."""
        pods, counts = self._by_leaf[name], self.tally[name]
        waiting = (i for i in range(counts.first, len(pods)) if self._status_of(pods[i]) is PodStatus.PENDING)
        found = list(islice(waiting, most))
        if found and found[0] > counts.first:
            self.tally = {**self.tally, name: counts._replace(first=found[0])}
        return tuple(pods[i] for i in found)

    def leave(self, name: str) -> None:
        """Remove the first waiting pod of a pod set, whatever its status is."""
        self.first(name, 1)
        counts = self.tally[name]
        self.tally = {**self.tally, name: counts._replace(first=counts.first + 1)}


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
        if self._only_leaf is not None:
            return {self._only_leaf.name: self.pods}
        found: dict[str, list[Pod]] = {leaf.name: [] for leaf in self.group.root.leaves()}
        for pod in self.pods:
            found[pod.subgroup or "default"].append(pod)
        return {name: tuple(pods) for name, pods in found.items()}

    @property
    def unknown_subgroup_pods(self) -> tuple[Pod, ...]:
        """Pods that name an unknown subgroup."""
        if self.pods is self._members:
            return ()
        return tuple(pod for pod in self._members if (pod.subgroup or "default") not in self.by_leaf)

    @cached_property
    def active(self) -> tuple[Pod, ...]:
        """The pods that count toward its minimum in the snapshot."""
        return tuple(pod for pod in self.pods if pod.status in ACTIVE_ALLOCATED)

    @cached_property
    def at_first(self) -> GangState:
        """How the gang stands in the snapshot."""
        return self.state(_as_read)

    @cached_property
    def satisfied_at_first(self) -> bool:
        """Whether the gang has its minimum in the snapshot."""
        if self._only_leaf is not None:
            return len(self.active) >= self._only_leaf.minimum
        return self.satisfied(self.group.root, _as_read)

    def state(self, status_of: StatusOf) -> GangState:
        """The state of the gang when its pods have these statuses."""
        return self.state_of(self.tally(status_of), status_of)[0]

    def tally(self, status_of: StatusOf) -> GangTally:
        """Its pods, counted now."""
        return {name: StatusCounts.of(map(status_of, pods)) for name, pods in self.by_leaf.items()}

    def state_of(self, tally: GangTally, status_of: StatusOf) -> tuple[GangState, GangTally]:
        """``state`` from counted pods, and the tally to use from now on."""
        if self._only_leaf is not None:
            return self._state_of_one(self._only_leaf, tally, status_of)
        pending = any(counts.pending for counts in tally.values())
        met = self._met({name: counts.active for name, counts in tally.items()})
        could = self._met({name: counts.active + counts.pending for name, counts in tally.items()})
        batch = None
        found: GangTally = tally
        if ready := pending and _satisfied(self.group.root, could):
            queue = _Queue(self.by_leaf, tally, status_of)
            batch = self._next(self.group.root, queue, met, could)
            found = queue.tally
        return GangState(pending, ready, self._elastic(met), batch), found

    def _state_of_one(
        self, leaf: Subgroup, tally: GangTally, status_of: StatusOf
    ) -> tuple[GangState, GangTally]:
        """``state_of`` a group with one pod set."""
        counts, batch = tally[leaf.name], None
        ready = counts.pending > 0 and counts.active + counts.pending >= leaf.minimum
        if ready:
            most, queue = max(leaf.minimum - counts.active, 1), _Queue(self.by_leaf, tally, status_of)
            all_wait = counts.pending == len(self.pods)
            pods = self.pods[:most] if all_wait else queue.first(leaf.name, most)
            tally = queue.tally
            batch = Batch(self.group.root, parts=(Batch(leaf, pods=pods),))
        return GangState(counts.pending > 0, ready, _elastic_state(counts.active, leaf.minimum), batch), tally

    def pods_below(self, subgroup: Subgroup) -> Iterator[Pod]:
        """Pods of the leaves below ``subgroup``."""
        for leaf in subgroup.leaves():
            yield from self.by_leaf[leaf.name]

    def satisfied(
        self,
        subgroup: Subgroup,
        status_of: StatusOf,
        statuses: frozenset[PodStatus] = ACTIVE_ALLOCATED,
    ) -> bool:
        """Whether the subtree meets its minimum with pods in ``statuses`` (5.1)."""
        if self._only_leaf is not None:
            return sum(status_of(pod) in statuses for pod in self.pods) >= self._only_leaf.minimum
        return self._counted(status_of, statuses)[subgroup.name] >= subgroup.minimum

    @cached_property
    def _upwards(self) -> tuple[Subgroup, ...]:
        """Every subgroup, members before what they are members of."""
        found = [self.group.root]
        for subgroup in found:
            found += subgroup.children
        return tuple(reversed(found))

    def _counted(self, status_of: StatusOf, statuses: frozenset[PodStatus] = ACTIVE_ALLOCATED) -> Met:
        """How far every subgroup meets its minimum with pods in ``statuses``; each is looked at once."""
        return self._met(
            {name: sum(status_of(pod) in statuses for pod in pods) for name, pods in self.by_leaf.items()}
        )

    def _met(self, counts: Mapping[str, int]) -> Met:
        """How far every subgroup meets its minimum with these numbers of pods in each pod set."""
        met: Met = {}
        for subgroup in self._upwards:
            if subgroup.leaf:
                met[subgroup.name] = counts[subgroup.name]
            else:
                met[subgroup.name] = sum(_satisfied(child, met) for child in subgroup.children)
        return met

    def ready(self, status_of: StatusOf) -> bool:
        """Whether enough pods are alive and not gated for the minimum (5.2)."""
        return self.satisfied(self.group.root, status_of, _READY)

    def elastic_state(self, status_of: StatusOf) -> int:
        """0: some pod set below its minimum; 1: all exactly at it; 2: some above (3.6)."""
        return self._elastic(self._counted(status_of))

    def _elastic(self, met: Met) -> int:
        above = False
        for subgroup in self._upwards:
            if subgroup.leaf:
                if met[subgroup.name] < subgroup.minimum:
                    return 0
                above = above or met[subgroup.name] > subgroup.minimum
        return 2 if above else 1

    # --- what comes next -------------------------------------------------------------------------

    def next_batch(self, status_of: StatusOf) -> Batch | None:
        """The next batch (5.3), or None when nothing is pending that could be placed."""
        if self._only_leaf is not None:
            return self.state(status_of).batch
        return next(self._batches(status_of), None)

    @cached_property
    def all_waiting(self) -> GangState:
        """The state when all pods wait."""
        counts = {name: StatusCounts(len(pods), 0, 0) for name, pods in self.by_leaf.items()}
        return self.state_of(counts, lambda _: PodStatus.PENDING)[0]

    def batches(self) -> Iterator[Batch]:
        """The next batches in the snapshot, as if each got its places before the one that follows."""
        return self._batches(_as_read)

    def _batches(self, status_of: StatusOf) -> Iterator[Batch]:
        queue = _Queue(self.by_leaf, self.tally(status_of), status_of)
        met, could = self._counted(status_of), self._counted(status_of, _READY)
        while (batch := self._next(self.group.root, queue, met, could)) is not None:
            yield batch
            for pod in batch.all_pods:
                path = self._paths[pod.subgroup or "default"]
                queue.leave(path[0].name)
                _count(path, 1, met)

    def _next(self, subgroup: Subgroup, queue: _Queue, met: Met, could: Met) -> Batch | None:
        """``next_batch`` of a subtree; ``could``: how far it would be met if all that are ready ran."""
        missing = subgroup.minimum - met[subgroup.name]
        if subgroup.leaf:
            pods = queue.first(subgroup.name, max(missing, 1))
            return Batch(subgroup, pods=pods) if pods else None
        members = sorted(subgroup.children, key=lambda child: _turn(child, met))
        if missing > 0:
            # Members that cannot become ready would tear the gang (14.1): skip them.
            able = (c for c in members if not _satisfied(c, met) and _satisfied(c, could))
            chosen = islice(able, missing)
            parts = tuple(part for c in chosen if (part := self._next(c, queue, met, could)))
            return Batch(subgroup, parts=parts) if parts else None
        for child in members:
            if not _satisfied(child, met) and not _satisfied(child, could):
                continue
            part = self._next(child, queue, met, could)
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
        root, met, active = self.group.root, self._counted(status_of), self._active_pods(status_of)
        found: list[Unit] = []
        while pods := self._leaving(met, active):
            state, before = self._elastic(met), _satisfied(root, met)
            self._take(pods, met, active)
            found.append(Unit(pods, state, not before or not _satisfied(root, met)))
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

    def _active_pods(self, status_of: StatusOf) -> dict[str, list[Pod]]:
        """The pods of every pod set that count, by its name."""
        return {
            name: [pod for pod in pods if status_of(pod) in ACTIVE_ALLOCATED]
            for name, pods in self.by_leaf.items()
        }

    def _leaving(self, met: Met, active: Mapping[str, Sequence[Pod]]) -> tuple[Pod, ...]:
        """The next eviction unit of what is left; () when nothing is."""
        root = self.group.root
        return self._shrink(root, met, active) or self._all_of(root, active)

    def _take(self, pods: Iterable[Pod], met: Met, active: Mapping[str, list[Pod]]) -> None:
        """Remove an eviction unit from ``left``: the last pod of each pod set, or all of them."""
        for pod in pods:
            path = self._paths[pod.subgroup or "default"]
            active[path[0].name].pop()
            _count(path, -1, met)

    @cached_property
    def _paths(self) -> Mapping[str, tuple[Subgroup, ...]]:
        """From every pod set, by name, up to the root."""
        paths: dict[str, tuple[Subgroup, ...]] = {self.group.root.name: (self.group.root,)}
        for subgroup in reversed(self._upwards):
            for child in subgroup.children:
                paths[child.name] = (child, *paths[subgroup.name])
        return {leaf.name: paths[leaf.name] for leaf in self.group.root.leaves()}

    def _all_of(self, subgroup: Subgroup, active: Mapping[str, Sequence[Pod]]) -> tuple[Pod, ...]:
        return tuple(pod for leaf in subgroup.leaves() for pod in active[leaf.name])

    def _shrink(self, subgroup: Subgroup, met: Met, active: Mapping[str, Sequence[Pod]]) -> tuple[Pod, ...]:
        if subgroup.leaf:
            pods = active[subgroup.name]
            return (pods[-1],) if len(pods) > subgroup.minimum else ()
        members = sorted(subgroup.children, key=lambda child: _turn(child, met), reverse=True)
        satisfied = [child for child in members if _satisfied(child, met)]
        if not satisfied:
            return ()
        for child in members:
            found = self._shrink(child, met, active)
            if found:
                return found
        if len(satisfied) > subgroup.minimum:
            for child in satisfied:
                found = self._all_of(child, active)
                if found:
                    return found
        return ()


def _numbers(specs: Sequence[PodSpec]) -> Mapping[PodSpec, int]:
    """How many there are of each."""
    return {specs[0]: 1} if len(specs) == 1 else Counter(specs)


def _satisfied(subgroup: Subgroup, met: Met) -> bool:
    """Whether a subgroup is counted to meet its minimum (5.1)."""
    return met[subgroup.name] >= subgroup.minimum


def _count(path: Sequence[Subgroup], step: int, met: Met) -> None:
    """One pod more (1) or less (-1) in the first of these, which lead up to the root."""
    for subgroup in path:
        stood = _satisfied(subgroup, met)
        met[subgroup.name] += step
        if _satisfied(subgroup, met) == stood:
            return


def _turn(subgroup: Subgroup, met: Met) -> tuple[object, ...]:
    """Subgroup order (3.6): below threshold, then required, then emptier, then by name."""
    count = met[subgroup.name]
    if count < subgroup.minimum:
        return (0, 0, 0.0, subgroup.name)
    required = subgroup.minimum > 0
    ratio = count / subgroup.minimum if required else float(count)
    return (1, 0 if required else 1, ratio, subgroup.name)


def _elastic_state(active: int, minimum: int) -> int:
    """See ``Gang.elastic_state``, for one pod set."""
    return 0 if active < minimum else 1 if active == minimum else 2


class Gangs(dict[GroupKey, Gang]):
    """The gangs of a snapshot's pod groups; each is built when it is first asked for, as most groups just
    run. One whose records are those of the cycle before is the same, with all that is known of it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, last = snapshot, snapshot.derived
        if last.groups is not snapshot.groups or last.pods is not snapshot.pods:
            stale: set[GroupKey | None] = {one.key for one in _differing(last.groups, snapshot.groups)}
            stale.update(one.group for one in _differing(last.pods, snapshot.pods))
            last.gangs = {key: gang for key, gang in last.gangs.items() if key not in stale}
            last.groups, last.pods = snapshot.groups, snapshot.pods
        self._known = last.gangs
        super().__init__(self._known)

    def __missing__(self, key: GroupKey) -> Gang:
        gang = Gang(self._snapshot.group_by_key[key], self._snapshot.members[key])
        self[key] = self._known[key] = gang
        return gang


def _differing(before: Sequence[_Record], now: Sequence[_Record]) -> list[_Record]:
    """The records that only one of the two has, as objects."""
    there, here = set(map(id, before)), set(map(id, now))
    return [*(one for one in before if id(one) not in here), *(one for one in now if id(one) not in there)]
