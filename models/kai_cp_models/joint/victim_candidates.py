"""The units that running pod groups could give up, in the order in which policy takes them (3.6, 4.3, 4.6,
5.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cache, cached_property
from itertools import takewhile
from typing import Final, NamedTuple, overload

import numpy as np

from kai_cp_models.arrays import Floats, Ints, Mask, numbered
from kai_cp_models.cycle import Cycle
from kai_cp_models.fairness.amounts import NOTHING, Amounts, total
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.rank import victim_order
from kai_cp_models.fairness.reclaim import VictimFilter
from kai_cp_models.fairness.runtime import granted
from kai_cp_models.fairness.totals import RESOURCES
from kai_cp_models.joint.policy import RECLAIM, EvictionPolicy
from kai_cp_models.joint.problem import Ask, EvictionUnit, Owed
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_USED, UNLIMITED, GroupKey, Pod
from kai_cp_models.running import GroupUnits, UnitRows, gpu_weight, unit_rows
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.units import Unit


def charged(ledger: Ledger, pods: Iterable[Pod]) -> Amounts:
    """What queues are charged for the pods at the nodes where they are; nothing for those without a place."""
    places = ((pod, ledger.place_of(pod)) for pod in pods)
    held = [NOTHING if place is None else ledger.fixed.charge(pod, place[0]) for pod, place in places]
    return held[0] if len(held) == 1 else total(held)


_BUCKET: Final = ("queue", "priority", "state")


class VictimOrder(Sequence[EvictionUnit]):
    """All units that some asks may disturb, in reverse fair order; each is made when it is first asked for.

    ``units``: [U] what they are, as columns. ``pods``: those of all units, unit by unit, then what was
    evicted for units; ``unit_of``: [P] the rank of the unit with which each leaves.
    """

    def __init__(
        self, reach: Reach, groups: Sequence[PodGroup], pods: Sequence[Pod], units: UnitRows, owed: list[Owed]
    ) -> None:
        ledger, turns = reach.ledger, _turns(groups, units)
        order = victim_order(ledger.book, units["queue"], units["group"], turns, units["gives"])
        self.units: UnitRows = units[order]
        counts, self._owed, self._groups = self.units["pods"], owed, groups
        ends = np.cumsum(counts)
        places = np.repeat(self.units["first"] - ends + counts, counts) + np.arange(ends[-1:].sum())
        self.units["first"] = ends - counts
        along = [(rank, *one) for rank, i in enumerate(self.units["owed"].tolist()) if i for one in owed[i]]
        self.pods = [pods[i] for i in places.tolist()] + [pod for *_, pod in along]
        self.unit_of: Ints = np.repeat(np.arange(len(order)), counts)
        self.unit_of = np.append(self.unit_of, np.array([rank for rank, *_ in along], np.int64))
        stopped = [(group, [Unit((pod,), 0, True)], True, False) for _, group, pod in along]
        self._owing = unit_rows(ledger.snapshot, stopped, np.zeros((len(along), RESOURCES), np.int64))
        """What was evicted for units, the last of ``pods``, as units that stop their groups."""
        self._owing["queue"][[not group.preemptible for _, group, _ in along]] = -1
        self.reach = reach
        self._queues: Ints = np.unique(np.append(self.units["queue"], self._owing["queue"]))
        """Where the queues of all these are."""
        self._made: list[EvictionUnit | None] = [None] * len(order)
        self._taken: dict[object, frozenset[int]] = {}
        """What ``takes`` found, by kind of ask, by rights and by itself."""

    def takes(self, ask: Ask) -> frozenset[int]:
        """Ranks of the units that the ask may take, with all that was evicted for them. Equal sets are one
        object, because comparing large ones takes long."""
        taken, owing, units = self._taken, self._owing, self.units
        if ask.kind not in taken:
            one = self.reach.entitled(ask)
            seconds = self.reach.undisturbed(one)
            rights = seconds[self._queues].tobytes(), one.below
            if rights not in taken:
                mask, along = (self._open(rows, seconds, one.below) for rows in (units, owing))
                if not along.all():
                    kept = self.unit_of[len(self.pods) - len(owing) :][~along]
                    # What its group would give up after it stays, too (5.4).
                    first = np.full(int(units["group"].max()) + 1, len(units))
                    np.minimum.at(first, units["group"][kept], units["chain"][kept])
                    mask &= units["chain"] < first[units["group"]]
                found = frozenset(np.flatnonzero(mask).tolist())
                taken[rights] = taken.setdefault(found, found)
            taken[ask.kind] = taken[rights]
        return taken[ask.kind]

    def _open(self, units: UnitRows, undisturbed: Floats, below: float) -> Mask:
        """[U] which units may be taken by such rights, whatever was evicted for them; a group may be stopped
        only when it has run long enough."""
        seconds, now = undisturbed[units["queue"]], self.reach.ledger.snapshot.now
        kept = np.isnan(seconds) | (units["whole"] & (now < units["started"] + seconds))
        found: Mask = ~kept & (units["priority"] + units["aged"] < below)
        return found

    def best_in_turn(self, count: int) -> bool:
        """Whether no other units that free as many GPUs are better than the first ``count`` by the default
        goals.

        That is so where units of one queue, priority and elastic state are equally large, and those of one
        age are also worth the same. Then others that reach no deeper are as many of each age, and only
        ``newest_first`` tells them apart.
        """
        bucket = numbered(*(self.units[name] for name in _BUCKET))
        units = self.units[np.isin(bucket, bucket[:count])]
        named, kinds = list[Ints](), list[int]()
        for names in _BUCKET, ("weight", "pods"), ("since", "created"), ("work", "whole", "new", "owed"):
            named += [units[name] for name in names]
            kinds.append(int(numbered(*named).max(initial=-1)))
        all_hold_gpus = bool((units["weight"] > units["pods"]).all())
        return kinds[0] == kinds[1] and kinds[2] == kinds[3] and all_hold_gpus

    @property
    def groups(self) -> Iterator[tuple[PodGroup, bool]]:
        """The pod groups that ask again when lost, and whether the first unit of each to go stops it."""
        units = self.units[self.units["movable"]]
        units = units[np.unique(units["group"], return_index=True)[1]]
        groups = map(self._groups.__getitem__, units["group"].tolist())
        return zip(groups, units["whole"].tolist(), strict=True)

    @cached_property
    def queues(self) -> Sequence[str]:
        """[U] the leaf queue of each."""
        return [self._groups[g].queue for g in self.units["group"].tolist()]

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, rank: int) -> EvictionUnit: ...
    @overload
    def __getitem__(self, rank: slice) -> list[EvictionUnit]: ...
    def __getitem__(self, rank: int | slice) -> EvictionUnit | list[EvictionUnit]:
        if isinstance(rank, slice):
            return [self[one] for one in range(*rank.indices(len(self)))]
        return self._made[rank] or self._make(rank)

    def _make(self, rank: int) -> EvictionUnit:
        g, *_, chain, state, count, first, weight, work, o, _, _, since, whole, _, movable, _, gives = (
            self.units[rank].item()
        )
        group, pods, owed = self._groups[g], tuple(self.pods[first : first + count]), self._owed[o]
        bucket, age = (group.queue, group.priority, state), (since, group.created)
        place = rank, bucket, age, tuple(gives.tolist()), weight, work
        found = self._made[rank] = EvictionUnit(group, pods, chain, whole, movable, owed, *place)
        return found


def _turns(groups: Sequence[PodGroup], units: UnitRows) -> Ints:
    """[U] the place of each unit within its leaf by priority, elastic state, age and name (3.6). The group
    that started last loses the least work; creation decides where starts are equal."""
    here = np.unique(units["group"]).tolist()
    names = np.zeros(len(groups), dtype=np.int64)
    names[sorted(here, key=lambda g: groups[g].key[::-1])] = np.arange(len(here))
    keys = names[units["group"]], units["created"], units["since"], units["state"], -units["priority"]
    turns = np.zeros(len(units), dtype=np.int64)
    turns[np.lexsort(keys)] = np.arange(len(units))
    return turns


def victim_candidates(cycle: Cycle, asks: Sequence[Ask], policy: EvictionPolicy) -> VictimOrder:
    """Every unit that some ask may disturb, in reverse fair order."""
    ledger, running = cycle.ledger, cycle.ledger.fixed.running
    closed: set[GroupKey | None] = {*cycle.left_out, *_joined(cycle, policy)}
    reach = Reach(ledger, policy)
    below = reach.below(asks)
    queues = np.flatnonzero(below > -np.inf)
    units = running.of_queues(queues)
    units = units[units["priority"] < below[units["queue"]]]
    here = [(g, running.groups[g].key) for g in np.unique(units["group"]).tolist()]
    stay = [g for g, key in here if key in closed or key in ledger.touched]
    units = units[~np.isin(units["group"], stay)]
    changed: list[PodGroup] = []
    for i in queues.tolist() if ledger.touched else ():
        mine = ledger.snapshot.preemptible_groups.get(ledger.book.name(i), ())
        again = [one for one in mine if one.key in ledger.touched and one.key not in closed]
        changed += (one for one in again if one.priority < below[i])
    groups, pods, owed = running.groups, running.pods, list[Owed](((),))
    if changed:
        more, new, owed = _units_of_changed(cycle, changed, policy)
        more["group"] += len(groups)
        more["first"] += len(pods)
        units, groups, pods = np.concatenate((units, more)), [*groups, *changed], [*pods, *new]
    units["work"] = (units["weight"] - units["work"]) * _ages(cycle, units)
    units["movable"] &= ~(_beyond_limits(ledger.book)[units["queue"]] & (units["gives"] > 0)).any(axis=1)
    return VictimOrder(reach, groups, pods, units, owed)


def _joined(cycle: Cycle, policy: EvictionPolicy) -> frozenset[GroupKey | None]:
    """The pod groups on shared GPUs of the snapshot that pods have joined in this action; no pod joins one
    that goes away (2.6), so pods that already ran there, or got their place before, stay."""
    ledger, homes, by = cycle.ledger, cycle.ledger.fixed.homes, cycle.placed_by
    if not ledger.devices:
        return frozenset()
    mine = {key for key, action in by.items() if action == policy.name} & ledger.held.keys()
    places = ((ledger.held[key].node, name) for key in mine for name in ledger.held[key].gpu_groups)
    joined = {name for node, name in places if not ledger.devices[node][name].new}
    if not joined:
        return frozenset()
    there = (homes.pods[i] for i in np.flatnonzero(homes.shares).tolist())
    stay = [pod.key for pod in there if pod.key not in ledger.held and not joined.isdisjoint(pod.gpu_groups)]
    others = ((key, one.gpu_groups) for key, one in ledger.held.items() if one.gpu_groups and key not in mine)
    stay += (key for key, names in others if not joined.isdisjoint(names))
    return frozenset(ledger.snapshot.pod_by_key[key].group for key in stay)


def _beyond_limits(book: QueueBook) -> Mask:
    """[queue, resource] where the queue, or one above it, holds more than its limit: what moves would have to
    start anew. The last row stands for queues that do not exist."""
    holds = book.bound_by(range(len(book.held)))
    pairs = (zip(holds[i], most, strict=True) for i, most in enumerate(book.limit))
    beyond = np.array([[UNLIMITED != most < held for held, most in pair] for pair in pairs], dtype=bool)
    return np.array([beyond[list(line)].any(axis=0) for line in book.tree.lines] + [[False] * len(NOTHING)])


class Entitlement(NamedTuple):
    """What asks with equal rights may disturb: which groups, and which of their units (4.3, 4.6).

    ``asked``: of the ask, under reclaim. ``below``: the priority that groups must be below, without what they
    keep for their age.
    """

    queue: str
    below: float
    asked: Amounts


class Reach:
    """At which queues entitlements may look under a policy, in the state of a ledger."""

    def __init__(self, ledger: Ledger, policy: EvictionPolicy, victims: VictimFilter | None = None) -> None:
        self.ledger, self.policy, self._tree = ledger, policy, ledger.book.tree
        self.filter = victims or (VictimFilter(ledger.book) if policy.by_share else None)
        """Under reclaim; by default of the book as it is now."""
        self._granted = cache(lambda queue: granted(ledger.snapshot, queue, policy.name, queue))
        """By queue, the seconds that its groups run undisturbed."""

    def below(self, asks: Sequence[Ask]) -> Floats:
        """[queue] the priority below which some ask may disturb its groups (4.3); the last row stands for
        queues that do not exist."""
        found = np.full(len(self._tree.queues) + 1, -np.inf if self.policy.may_lose else np.inf)
        found[-1] = -np.inf
        for one in set(map(self.entitled, {ask.kind: ask for ask in asks}.values())):
            queues, _ = self._queues(one)
            found[queues] = np.maximum(found[queues], one.below)
        return found

    def entitled(self, ask: Ask) -> Entitlement:
        """The rights of an ask."""
        below = ask.group.priority if self.policy.own_queue else np.inf
        return Entitlement(ask.group.queue, below, ask.asked if self.policy.by_share else NOTHING)

    def undisturbed(self, one: Entitlement) -> Floats:
        """[queue] seconds that its groups run undisturbed (4.6), NaN where all stay; a last row as above."""
        found = np.full(len(self._tree.queues) + 1, np.nan)
        queues, settings = self._queues(one)
        found[queues] = [self._granted(self._tree.queues[i].name) for i in settings.tolist()]
        return found

    def _queues(self, one: Entitlement) -> tuple[Ints, Ints]:
        """The queues whose groups may be disturbed, and where the seconds of each are looked for, upwards."""
        if self.filter is not None:
            levels = self.filter.victims(self._tree.index[one.queue], (one.asked,))
            leaves, levels = self._tree.leaf_rows[levels >= 0], levels[levels >= 0]
            method = self.ledger.snapshot.policy.reclaim_resolve_method
            return leaves, levels if method == "lca" else leaves
        own, every = self._tree.index[one.queue], np.arange(len(self._tree.queues))
        found = every[own : own + 1] if self.policy.own_queue else every
        return found, found


def _given(cycle: Cycle, policy: EvictionPolicy) -> tuple[Set[GroupKey | None], dict[GroupKey | None, Owed]]:
    """Pod groups whose places of this cycle stay, and what was evicted for each other trigger (formulation
    1.5)."""
    pods, evictions = cycle.snapshot.pod_by_key, cycle.evicted_by
    if any(one.action == RECLAIM.name for one in evictions.values()):
        # Reclaim counted on the places that allocate gave.
        return cycle.ledger.touched.keys(), {}
    # The others still need what was evicted for several, and moves evict nothing for good.
    stay = (one for one in evictions.values() if len(one.triggers) > 1 or not policy.may_lose)
    kept: set[GroupKey | None] = {key for one in stay for key in one.triggers}
    if not policy.may_lose:
        # Nothing moves twice.
        kept.update(pods[key].group for key in evictions)
    if not policy.own_queue:
        # A promised start that has come yields to groups that outrank it in its queue alone (12.8).
        kept.update(pods[key].group for key, by in cycle.placed_by.items() if by == "reservation")
    owed: dict[GroupKey | None, Owed] = {}
    for key, one in evictions.items():
        if (group := pods[key].group) is not None:
            left = cycle.snapshot.group_by_key[group], pods[key]
            owed |= {trigger: (*owed.get(trigger, ()), left) for trigger in one.triggers}
    return kept, owed


def _units_of_changed(
    cycle: Cycle, groups: Sequence[PodGroup], policy: EvictionPolicy
) -> tuple[UnitRows, list[Pod], list[Owed]]:
    """What these groups could give up, with the pods, and what was evicted for it."""
    ledger, (kept, owed), found = cycle.ledger, _given(cycle, policy), list[GroupUnits]()
    for gang in (ledger.fixed.gangs[group.key] for group in groups):
        units: Sequence[Unit] = gang.units(ledger.status)
        # A place that others of the cycle may rely on stays as well.
        if gang.group.key in kept or ledger.relied_on(gang.pods):
            units = [*takewhile(lambda unit: ledger.held.keys().isdisjoint(p.key for p in unit.pods), units)]
        found.append((gang.group, units, ledger.state(gang).satisfied, False))
    pods = [pod for _, some, *_ in found for unit in some for pod in unit.pods]
    rows = unit_rows(ledger.snapshot, found, np.array([charged(ledger, (pod,)) for pod in pods], np.int64))
    along: list[Owed] = [()]
    for u, (group, unit) in enumerate((group, unit) for group, some, *_ in found for unit in some):
        placed = [pod for pod in unit.pods if pod.key in ledger.held]
        new = [pod for pod in placed if pod.status not in ACTIVE_USED]
        # As much of the weight has done no work.
        rows["work"][u] = sum(map(gpu_weight, new))
        if len(new) == len(unit.pods):
            now, promised = cycle.snapshot.now, all(map(ledger.as_promised, unit.pods))
            # A promised place protects as a start does (4.2).
            rows["new"][u], rows["since"][u], rows["started"][u] = True, now, now if promised else np.nan
        # What is owed is taken with the first of the places.
        if placed and (owing := owed.pop(group.key, ())):
            rows["owed"][u] = len(along)
            along.append(owing)
    return rows, pods, along


def _ages(cycle: Cycle, units: UnitRows) -> Ints:
    """[U] seconds of work that the group of each would lose per device: those since its last start, capped
    (formulation 1.4).

    A group whose start is unknown counts with the mean of the known ones, so that publishing a start does no
    harm.
    """
    now, cap = cycle.snapshot.now, cycle.settings.objective.lost_work_cap_seconds
    known = ~np.isnan(units["started"])
    ages = np.where(known, np.minimum(np.maximum(now - units["since"], 1), cap), 0).astype(np.int64)
    some = ages[known & (units["chain"] == 0)]
    found: Ints = np.where(known, ages, int(some.sum()) // len(some) if len(some) else 1)
    return found
