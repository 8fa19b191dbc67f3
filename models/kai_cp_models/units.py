"""Units: which pods a pod group gets next, and which it would give up next (5.1 to 5.4).

A pod group is a tree of subgroups. What it gets is always a whole *batch*: first everything missing
for its minimum, then one increment at a time (one elastic pod, or one extra subgroup). What it loses
is always a whole *eviction unit*: surplus pods first, then surplus subgroups, then all that is left.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, compress, islice, pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.snapshot import PodGroup, Snapshot, Subgroup

StatusOf = Callable[[Pod], PodStatus]
as_read: StatusOf = attrgetter("status")
"""The status of a pod in the snapshot."""


@dataclass(eq=False)
class Batch:
    """Pods that are placed together or not at all, in the shape of the gang tree; never changed. A leaf batch
    has ``pods``; a set batch has ``parts``, in subgroup order."""

    subgroup: Subgroup
    pods: tuple[Pod, ...] = ()
    parts: tuple[Batch, ...] = ()

    @cached_property
    def all_pods(self) -> tuple[Pod, ...]:
        """Every pod of the batch, in placement order."""
        return self.pods or tuple(pod for part in self.parts for pod in part.all_pods)

    def of(self, pods: tuple[Pod, ...]) -> Batch:
        """The same for other pods, where all are of one pod set."""
        return Batch(self.subgroup, pods[: len(self.pods)], tuple([part.of(pods) for part in self.parts]))

    @property
    def leaves(self) -> tuple[tuple[tuple[Subgroup, ...], Batch], ...]:
        """Every leaf batch with the constrained subgroups above it (itself included), widest first."""
        scope = () if self.subgroup.constraint is None else (self.subgroup,)
        if self.subgroup.leaf:
            return ((scope, self),)
        return tuple(((*scope, *above), leaf) for part in self.parts for above, leaf in part.leaves)

    @cached_property
    def kinds(self) -> tuple[object, ...]:
        """What each leaf batch asks for: the constraints above it, and how many pods have which spec."""
        return tuple(
            (tuple([one.constraint for one in above]), *[(x, specs.count(x)) for x in dict.fromkeys(specs)])
            for above, leaf in self.leaves
            for specs in [[pod.spec for pod in leaf.pods]]
        )


class Unit(NamedTuple):
    """An eviction unit (5.4): pods that leave together, and the elastic state from which they leave.
    ``whole``: the pod group is below its minimum without them."""

    pods: tuple[Pod, ...]
    elastic_state: int
    whole: bool


class StatusCounts(NamedTuple):
    """Pods of a pod set by status. Of a set of subgroups its members: the ``active`` ones are satisfied, the
    ``pending`` ones could become so."""

    pending: int
    active: int
    """Of ``ACTIVE_ALLOCATED``, those of the next field included."""
    pipelined: int = 0
    first: int = 0
    """No pod before this one of the pod set is pending."""

    @classmethod
    def of(cls, statuses: Sequence[PodStatus]) -> StatusCounts:
        """Count them."""
        active = sum(map(ACTIVE_ALLOCATED.__contains__, statuses))
        return cls(statuses.count(PodStatus.PENDING), active, statuses.count(PodStatus.PIPELINED))

    def moved(self, before: PodStatus, after: PodStatus) -> StatusCounts:
        """After one pod changed its status."""
        return StatusCounts(
            self.pending + (after is PodStatus.PENDING) - (before is PodStatus.PENDING),
            self.active + (after in ACTIVE_ALLOCATED) - (before in ACTIVE_ALLOCATED),
            self.pipelined + (after is PodStatus.PIPELINED) - (before is PodStatus.PIPELINED),
            0 if after is PodStatus.PENDING else self.first,
        )


_Turn = tuple[int, int, float, str]
"""Subgroup order (3.6): below its minimum, then with one, then emptier, then by name."""


@dataclass(slots=True)
class GangTally:
    """How far every subgroup of a gang is served. ``Gang.moved`` makes the one that follows, with a step for
    each level of the tree; none changes, but for the note where the waiting pods of a pod set begin."""

    counts: dict[str, StatusCounts]
    """By the name of the subgroup."""
    offers: dict[str, list[_Turn]]
    """By the name of a set: the members that can be given something, in subgroup order."""

    @property
    def met(self) -> Met:
        """How far every subgroup meets its minimum, see ``satisfied``."""
        return {name: counts.active for name, counts in self.counts.items()}


Met = dict[str, int]
"""By subgroup: of a pod set its pods in some statuses, of a set its satisfied members."""


class GangState(NamedTuple):
    """How a gang stands at one moment.

    ``pending``: whether a pod is. ``ready``: whether one is, and enough are alive and not gated for the
    minimum (5.2). ``satisfied``: it has its minimum (5.1). ``elastic_state``: 0: some pod set is below its
    minimum; 1: all are exactly at it; 2: some are above (3.6). ``batch``: the next one (5.3), None if no pod
    can be placed. ``tally``: the counts that say so.
    """

    pending: bool
    ready: bool
    satisfied: bool
    elastic_state: int
    batch: Batch | None
    tally: GangTally


class Gang:
    """The gang tree of one pod group with its pods; statuses are asked for, never stored."""

    def __init__(self, group: PodGroup, members: tuple[Pod, ...]) -> None:
        self.group = group
        self.top = only_pod_set(group.root) or group.root
        """The pod set that represents the whole group."""
        unknown: list[Pod] = []
        by_leaf: dict[str, list[Pod]] = {leaf.name: [] for leaf in self.top.leaves()}
        for pod in members:
            by_leaf.get(pod.subgroup or "default", unknown).append(pod)
        self.by_leaf = {name: tuple(pods) for name, pods in by_leaf.items()}
        """Pods by the name of their pod set."""
        self.unknown_subgroup_pods = tuple(unknown)
        """Pods that name an unknown subgroup: they are never placed, never counted (1.2)."""
        known = (pod for pod in members if (pod.subgroup or "default") in by_leaf)
        self.pods = tuple(known) if unknown else members
        """Pods of known subgroups."""
        self.waiting = len(members) if all(pod.status is PodStatus.PENDING for pod in members) else 0
        """How many pods wait in the snapshot; 0 where not all do."""
        self._counted: dict[PodStatus, GangTally] = {}
        """What was counted where all pods had one status; gangs that are alike share it."""

    def of_alike(self, group: PodGroup, members: tuple[Pod, ...]) -> Gang:
        """The gang of a group with an equal tree and as many pods; those of both are of one pod set and have
        one status."""
        # One by one: a dictionary for each of so many takes twice as long.
        found = object.__new__(Gang)
        found.group, found.top, found.waiting = group, self.top, self.waiting
        found._counted, found._sets, found.lines = self._counted, self._sets, self.lines
        unknown = self.unknown_subgroup_pods
        found.pods, found.unknown_subgroup_pods = ((), members) if unknown else (members, ())
        found.by_leaf = {name: members if pods else () for name, pods in self.by_leaf.items()}
        pending, ready, met, state, batch, tally = self.at_first
        batch = None if batch is None else batch.of(members)
        found.at_first = GangState(pending, ready, met, state, batch, tally)
        return found

    @cached_property
    def at_first(self) -> GangState:
        """How the gang stands in the snapshot."""
        return self.state(as_read)

    @cached_property
    def stopped(self) -> GangState:
        """How the gang stands when all its pods of the snapshot that run are evicted, and only they wait."""

        def status_of(pod: Pod) -> PodStatus:
            if pod.status in ACTIVE_ALLOCATED:
                return PodStatus.PENDING
            return PodStatus.GATED if pod.status is PodStatus.PENDING else pod.status

        return self.state(status_of)

    def tally(self, status_of: StatusOf) -> GangTally:
        """Its pods, counted now."""
        statuses = [list(map(status_of, pods)) for pods in self.by_leaf.values()]
        kinds = set[PodStatus]().union(*statuses)
        if len(kinds) != 1:
            return self._count(statuses)
        if (found := self._counted.get(kind := kinds.pop())) is None:
            found = self._counted[kind] = self._count(statuses)
        return found

    def _count(self, statuses: Sequence[Sequence[PodStatus]]) -> GangTally:
        """``statuses``: by pod set, in the order of ``by_leaf``."""
        counts = {name: StatusCounts.of(some) for name, some in zip(self.by_leaf, statuses, strict=True)}
        offers: dict[str, list[_Turn]] = {}
        for subgroup in self._sets:
            members = [stands(one, counts[one.name], offers) for one in subgroup.children]
            active = sum(served for served, _, _ in members)
            counts[subgroup.name] = StatusCounts(sum(able for _, able, _ in members) - active, active)
            offers[subgroup.name] = sorted(turn for _, _, turn in members if turn is not None)
        return GangTally(counts, offers)

    def moved(self, tally: GangTally, pod_set: str, before: PodStatus, after: PodStatus) -> GangTally:
        """The tally after a pod of a pod set changed its status; those of unknown subgroups do not count."""
        if (was := tally.counts.get(pod_set)) is None:
            return tally
        now = was.moved(before, after)
        line, counts, offers = self.lines[pod_set], {**tally.counts, pod_set: now}, tally.offers
        for member, above in () if self.top.leaf else pairwise(line):
            served, able, turn = stands(member, was, tally.offers)
            serves, enables, next_turn = stands(member, now, offers)
            if turn != next_turn:
                ranked = offers[above.name].copy()
                if turn is not None:
                    del ranked[bisect_left(ranked, turn)]
                if next_turn is not None:
                    insort(ranked, next_turn)
                offers = {**offers, above.name: ranked}
            elif (served, able) == (serves, enables):
                break
            was, more = counts[above.name], serves - served
            now = counts[above.name] = StatusCounts(was.pending + enables - able - more, was.active + more)
        return GangTally(counts, offers)

    def waits(self, tally: GangTally) -> bool:
        """Whether a pod set lacks its minimum without pods that wait for others to leave."""
        sets = ((tally.counts[leaf.name], leaf.minimum) for leaf in self.top.leaves())
        return any(one.pipelined and one.active - one.pipelined < minimum for one, minimum in sets)

    def state(self, status_of: StatusOf, tally: GangTally | None = None) -> GangState:
        """How the gang stands when its pods have these statuses. ``tally``: their counts, if known."""
        tally = self.tally(status_of) if tally is None else tally
        pending = below = above = False
        for leaf in self.top.leaves():
            one, minimum = tally.counts[leaf.name], leaf.minimum
            pending, below = pending or one.pending > 0, below or one.active < minimum
            above = above or one.active > minimum
        top, batch = tally.counts[self.top.name], None
        ready = pending and top.active + top.pending >= self.top.minimum
        if ready and (self.top.leaf or tally.offers[self.top.name]):
            batch = self._next(self.top, tally, status_of)
            if self.top.leaf and self.group.root.constraint is not None:
                batch = Batch(self.group.root, parts=(batch,))
        elastic_state = 0 if below else 2 if above else 1
        return GangState(pending, ready, top.active >= self.top.minimum, elastic_state, batch, tally)

    def pods_below(self, subgroup: Subgroup) -> tuple[Pod, ...]:
        """Pods of the leaves below ``subgroup``."""
        return _all_of(subgroup, self.by_leaf)

    @cached_property
    def lines(self) -> Mapping[str, tuple[Subgroup, ...]]:
        """By the name of a pod set: it and the sets above it, the narrowest first."""
        found: dict[str, tuple[Subgroup, ...]] = {}
        left: list[tuple[Subgroup, ...]] = [(self.group.root,)]
        while left:
            line = left.pop()
            if line[0].leaf:
                found[line[0].name] = line
            left.extend((child, *line) for child in line[0].children)
        return found

    @cached_property
    def _sets(self) -> tuple[Subgroup, ...]:
        """Every set of subgroups in ``top``, members before what they are members of."""
        found = [] if self.top.leaf else [self.top]
        for subgroup in found:
            found += (child for child in subgroup.children if not child.leaf)
        return tuple(reversed(found))

    # --- what comes next -------------------------------------------------------------------------

    def batches(self) -> Iterator[Batch]:
        """The next batches in the snapshot, as if each got its places before the one that follows."""
        placed: set[PodKey] = set()
        state = self.at_first
        while state.batch is not None:
            yield state.batch
            placed.update(pod.key for pod in state.batch.all_pods)
            state = self.state(lambda pod: PodStatus.ALLOCATED if pod.key in placed else pod.status)

    def _first_waiting(self, tally: GangTally, status_of: StatusOf, name: str, most: int) -> tuple[Pod, ...]:
        """The first ``most`` pods of a pod set that wait; the tally keeps where they begin, so that those
        before are not looked at again."""
        pods, counts = self.by_leaf[name], tally.counts[name]
        if counts.pending == len(pods):
            return pods[:most]
        waiting = (i for i in range(counts.first, len(pods)) if status_of(pods[i]) is PodStatus.PENDING)
        found = list(islice(waiting, most))
        tally.counts[name] = counts._replace(first=found[0])
        return tuple(pods[i] for i in found)

    def _next(self, subgroup: Subgroup, tally: GangTally, status_of: StatusOf) -> Batch:
        """The next batch of a subtree that can be given something: all that its minimum lacks, or one more.
        Members that cannot become ready would tear the gang (14.1); they offer nothing."""
        missing = subgroup.minimum - tally.counts[subgroup.name].active
        most = max(missing, 1)
        if subgroup.leaf:
            return Batch(subgroup, pods=self._first_waiting(tally, status_of, subgroup.name, most))
        members, turns = {one.name: one for one in subgroup.children}, tally.offers[subgroup.name][:most]
        parts = tuple([self._next(members[name], tally, status_of) for *_, name in turns])
        return Batch(subgroup, parts=parts)

    # --- what goes next --------------------------------------------------------------------------

    @cached_property
    def units_at_first(self) -> tuple[Unit, ...]:
        """The eviction units of the gang in the snapshot."""
        return self.units(as_read)

    def units(self, status_of: StatusOf) -> tuple[Unit, ...]:
        """All eviction units, in the order in which they go (5.4)."""
        top, found = self.top, []
        active = {
            name: [pod for pod in pods if status_of(pod) in ACTIVE_ALLOCATED]
            for name, pods in self.by_leaf.items()
        }
        if top.leaf:
            return tuple(units_of_pod_set(active[top.name], top.minimum))
        met = self.tally(status_of).met
        short = sum(met[leaf.name] < leaf.minimum for leaf in self.top.leaves())
        over = sum(met[leaf.name] > leaf.minimum for leaf in self.top.leaves())
        stood = satisfied(top, met)
        for pods in chain(_surplus(top, met, active), iter(partial(_all_of, top, active), ())):
            state = 0 if short else 2 if over else 1
            # The last pod of each pod set, or all of them.
            for pod in pods:
                leaf = (line := self.lines[pod.subgroup or "default"])[0]
                over -= met[leaf.name] == leaf.minimum + 1
                short += met[leaf.name] == leaf.minimum
                active[leaf.name].pop()
                for one in line:
                    met[one.name] -= 1
                    if met[one.name] != one.minimum - 1:
                        break
            whole, stood = not stood, satisfied(top, met)
            found.append(Unit(pods, state, whole or not stood))
        return tuple(found)


def only_pod_set(root: Subgroup) -> Subgroup | None:
    """The pod set that represents a whole group: a root over a single set adds nothing to it."""
    return root.children[0] if root.minimum == 1 == len(root.children) and root.children[0].leaf else None


def units_of_pod_set(active: Sequence[Pod], minimum: int) -> Iterator[Unit]:
    """The units of a group that is one pod set: surplus pods, the last one first, then all that is left."""
    yield from (Unit((pod,), 2, False) for pod in reversed(active[max(minimum, 0) :]))
    if rest := tuple(active[: max(minimum, 0)]):
        yield Unit(rest, 1 if len(rest) == minimum else 0, True)


def counted_apart(group: PodGroup, lost: Sequence[Pod]) -> Iterator[tuple[Pod, ...]]:
    """Pods that leave together, as reclaim counts them (4.4): of each pod set those beyond its minimum one by
    one, the others together. Of a torn gang a unit may contain both."""
    left, core = {leaf.name: leaf.minimum for leaf in group.root.leaves()}, list[Pod]()
    for pod in sorted(lost, key=attrgetter("sort_key")):
        name = pod.subgroup or "default"
        left[name] -= 1
        if left[name] < 0:
            yield (pod,)
        else:
            core.append(pod)
    if core:
        yield tuple(core)


def _all_of(subgroup: Subgroup, by_leaf: Mapping[str, Sequence[Pod]]) -> tuple[Pod, ...]:
    return tuple(pod for leaf in subgroup.leaves() for pod in by_leaf[leaf.name])


def _surplus(subgroup: Subgroup, met: Met, active: Mapping[str, Sequence[Pod]]) -> Iterator[tuple[Pod, ...]]:
    """The surplus pods and subgroups in the order in which they go; each leaves before the next is asked for.
    As nothing comes back, what has no surplus gets none, and only what gave the last one changes its turn."""
    if subgroup.leaf:
        while len(pods := active[subgroup.name]) > max(subgroup.minimum, 0):
            yield (pods[-1],)
        return

    def turn(child: Subgroup) -> _Turn:
        return _turn(child, met[child.name])

    ranked = sorted(subgroup.children, key=turn)
    below = {child.name: _surplus(child, met, active) for child in ranked}
    while ranked and met[subgroup.name]:
        child = ranked.pop()
        if pods := next(below[child.name], ()):
            yield pods
            insort(ranked, child, key=turn)
    whole = sorted((child for child in subgroup.children if satisfied(child, met)), key=turn)
    while whole and met[subgroup.name] > subgroup.minimum:
        if pods := _all_of(whole.pop(), active):
            yield pods


def giving(subgroup: Subgroup, met: Met) -> Iterator[Subgroup]:
    """The pod sets that give up surplus pods; below a set without a satisfied member none does (5.4)."""
    if subgroup.leaf:
        yield subgroup
    elif any(satisfied(child, met) for child in subgroup.children):
        for child in subgroup.children:
            yield from giving(child, met)


def satisfied(subgroup: Subgroup, met: Met) -> bool:
    """Whether a subgroup is counted to meet its minimum (5.1)."""
    return met[subgroup.name] >= subgroup.minimum


def _turn(subgroup: Subgroup, count: int) -> _Turn:
    """The turn of a subgroup that is counted to meet its minimum so far."""
    if count < subgroup.minimum:
        return (0, 0, 0.0, subgroup.name)
    return (1, subgroup.minimum <= 0, count / max(subgroup.minimum, 1), subgroup.name)


def stands(
    member: Subgroup, counts: StatusCounts, offers: Mapping[str, Sequence[_Turn]]
) -> tuple[bool, bool, _Turn | None]:
    """Whether a member of a set is satisfied; whether it could be if all that wait ran; its turn, if it could
    and can be given something."""
    able = counts.active + counts.pending >= member.minimum
    gives = able and (counts.pending > 0 if member.leaf else bool(offers[member.name]))
    turn = _turn(member, counts.active) if gives else None
    return counts.active >= member.minimum, able, turn


class Gangs(dict[GroupKey, Gang]):
    """The gangs of a snapshot's pod groups; each is built when it is first asked for, as most groups just
    run. A gang with the records of the cycle before is the same object, with all that is known of it."""

    def __init__(self, snapshot: Snapshot) -> None:
        columns, (before, last) = snapshot.columns, snapshot.derived.gangs
        self._snapshot, self._known = snapshot, last.copy()
        if before is not None and before is not columns:
            origin = columns.unchanged(before)
            changed = np.ones(len(before.groups), dtype=bool)
            changed[origin[origin >= 0]] = False
            for group in compress(before.groups, changed.tolist()):
                self._known.pop(group.key, None)
        snapshot.derived.gangs = columns, self._known
        self._alike: dict[tuple[int, int, PodStatus, str], Gang] = {}
        """The first gang whose pods are of one pod set and have one status, for each tree (by its record, of
        which there are few) and number."""
        super().__init__(self._known)

    def __missing__(self, key: GroupKey) -> Gang:
        group, members = self._snapshot.group_by_key[key], self._snapshot.members[key]
        first = members[0] if members else None
        if first is None or any(
            p.status is not first.status or p.subgroup != first.subgroup for p in members
        ):
            gang = Gang(group, members)
        elif like := self._alike.get(kind := (id(group.root), len(members), first.status, first.subgroup)):
            gang = like.of_alike(group, members)
        else:
            gang = self._alike[kind] = Gang(group, members)
        self[key] = self._known[key] = gang
        return gang
