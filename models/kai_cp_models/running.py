"""What runs, as columns: the units that pod groups could give up in the snapshot, one row each (5.4).

There are many such units, and most questions about them are sums over some of them. So this module makes no
object for a single unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.fairness.runtime import began
from kai_cp_models.loading import Homes
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, Pod
from kai_cp_models.snapshot import PodGroup, Snapshot
from kai_cp_models.units import Gangs, Unit, only_pod_set, units_of_pod_set

_WHOLE = ("group", "queue", "priority", "aged", "chain", "state", "pods", "first", "weight", "work", "owed")
UNIT: Final = np.dtype(
    [(name, np.int64) for name in _WHOLE]
    + [(name, np.float64) for name in ("started", "created", "since")]
    + [(name, np.bool_) for name in ("whole", "new", "movable", "plain")]
    + [("gives", np.int64, 3)]
)
"""A unit. ``group``: its position in a list of groups; ``queue``: among the snapshot's queues, -1 where there
is none. ``started`` protects the group: NaN where it is unknown, no later than its pods say. ``since`` orders
it: the last start as noted, or else the creation. ``chain``, ``whole``, ``movable``, ``weight``, ``work``: as
in ``EvictionUnit``. ``new``: none of the pods runs. ``state``: the elastic state. ``first``: where its
``pods`` begin in a list of pods. ``gives``: what the queue is charged for them. ``plain``: the group is one
pod set that has its minimum. ``owed``: where that is in a list, 0 for nothing."""
UnitRows: TypeAlias = NDArray[Any]
"""[U] rows of ``UNIT``."""
GroupUnits = tuple[PodGroup, Sequence[Unit], bool, bool]
"""A pod group with its units in their order, whether it is satisfied, and whether it is so as one pod set."""


def gpu_weight(pod: Pod) -> int:
    """Milli-GPUs of a pod, plus one: its weight when it is lost or moved."""
    return milli_gpus(pod) + 1


def unit_rows(snapshot: Snapshot, given: Sequence[GroupUnits], charges: Ints) -> UnitRows:
    """[U] the units of all groups, one after the other. ``charges``: [P, 3] those of their pods."""
    units = [unit for _, some, *_ in given for unit in some]
    rows, counts = np.zeros(len(units), UNIT), np.array([len(some) for _, some, *_ in given], np.int64)
    by_group = [
        (
            snapshot.queue_index.get(group.queue, -1),
            group.priority,
            group.aged_at_start,
            np.nan if start is None else start,
            group.created,
            group.created if group.last_start is None else group.last_start,
            satisfied,
            plain,
        )
        for group, _, satisfied, plain in given
        for start in (began(snapshot, group),)
    ]
    names = ("queue", "priority", "aged", "started", "created", "since", "movable", "plain")
    for name, values in zip(names, zip(*by_group, strict=True), strict=False):
        rows[name] = np.repeat(np.array(values, UNIT[name]), counts)
    rows["group"] = np.repeat(np.arange(len(given)), counts)
    rows["chain"] = np.arange(len(units)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows["state"] = [unit.elastic_state for unit in units]
    rows["whole"] = [unit.whole for unit in units]
    rows["pods"] = [len(unit.pods) for unit in units]
    rows["first"] = np.cumsum(rows["pods"]) - rows["pods"]
    weights = np.array([gpu_weight(pod) for unit in units for pod in unit.pods], dtype=np.int64)
    if units:
        rows["weight"] = np.add.reduceat(weights, rows["first"])
        rows["gives"] = np.add.reduceat(charges, rows["first"])
    return rows


class Running:
    """The preemptible pod groups that run in a snapshot.

    ``units``: [U] what they could give up, group by group. ``pods``: those of all units, unit by unit.
    ``homes``: [P] their rows in ``Homes``; -1 is the row of those without a place. ``before``: the same of
    another snapshot; groups that are as they were there have the same units.
    """

    def __init__(self, snapshot: Snapshot, gangs: Gangs, homes: Homes, before: Running | None) -> None:
        self.columns = columns = snapshot.columns
        here = np.unique(columns.group[homes.rows])
        here = here[here >= 0]
        here = here[columns.preemptible[here]]
        self.groups = [snapshot.groups[i] for i in here.tolist()]
        self.index: Ints = np.full(len(snapshot.groups) + 1, -1)
        """Where each group of the snapshot is in ``groups``, or -1; the last entry is for no group."""
        self.index[here] = np.arange(len(here))
        source, last = np.full(len(here), -1), np.zeros(0, UNIT)
        pods: Sequence[Pod] = ()
        if before is not None:
            source = before.index[columns.unchanged(before.columns)[here]]
            last, pods = before.units, before.pods
        new, known = source < 0, 0 if before is None else len(before.groups)
        of_group = [_at_first(one, snapshot.members[one.key], gangs) for one in compress(self.groups, new)]
        made = [pod for _, units, *_ in of_group for unit in units for pod in unit.pods]
        rows = unit_rows(snapshot, of_group, np.zeros((len(made), 3), np.int64))
        rows["group"] += known
        rows["first"] += len(pods)
        rows, pods = np.concatenate((last, rows)), [*pods, *made]
        source[new] = known + np.arange(len(of_group))
        begins, ends = (np.searchsorted(rows["group"], source, side=side) for side in ("left", "right"))
        self.units: UnitRows = rows[_joined(begins, ends - begins)]
        self.pods: Sequence[Pod] = [
            pods[i] for i in _joined(self.units["first"], self.units["pods"]).tolist()
        ]
        # What may differ although the records are the same: positions, and what a node or a claim says.
        self.units["group"] = np.repeat(np.arange(len(here)), ends - begins)
        self.units["queue"] = columns.queue[here][self.units["group"]]
        self.units["first"] = np.cumsum(self.units["pods"]) - self.units["pods"]
        home = np.full(len(snapshot.pods) + 1, -1)
        home[homes.rows] = np.arange(len(homes.rows))
        self.homes: Ints = home[columns.of_pods.kept.follow(self.pods)[1]]
        if self.pods:
            self.units["gives"] = np.add.reduceat(homes.charges[self.homes], self.units["first"])

    @cached_property
    def _by_queue(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.units["queue"], kind="stable")
        return order, self.units["queue"][order]

    def of_queues(self, queues: Ints) -> UnitRows:
        """[U] the units of some queues."""
        order, queue = self._by_queue
        begins, ends = (np.searchsorted(queue, queues, side=side) for side in ("left", "right"))
        return self.units[np.sort(order[_joined(begins, ends - begins)])]

    @cached_property
    def position(self) -> Mapping[GroupKey | None, int]:
        """Where each group is in ``groups``."""
        return {group.key: g for g, group in enumerate(self.groups)}

    @cached_property
    def plain(self) -> Mapping[GroupKey | None, int]:
        """How many pods run of each group that is one pod set and has its minimum."""
        mine = self.units[self.units["plain"]]
        here, at = np.unique(mine["group"], return_inverse=True)
        counts = np.bincount(at, mine["pods"]).astype(int)
        return dict(zip([self.groups[g].key for g in here.tolist()], counts.tolist(), strict=True))

    def positions(self, keys: Iterable[GroupKey | None]) -> list[int]:
        """Positions of those of the groups that run."""
        return [g for key in keys if (g := self.position.get(key)) is not None]


def _joined(begins: Ints, counts: Ints) -> Ints:
    """Positions of rows: from each beginning on as many as its count, one range after the other."""
    ends = np.cumsum(counts)
    found: Ints = np.repeat(begins - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)
    return found


def _at_first(group: PodGroup, members: Sequence[Pod], gangs: Gangs) -> GroupUnits:
    """What a group could give up in the snapshot; most are one pod set, and need no tree."""
    leaf = only_pod_set(group.root)
    if leaf is None or any((pod.subgroup or "default") != leaf.name for pod in members):
        gang = gangs[group.key]
        enough = gang.at_first.satisfied
        return group, gang.units_at_first, enough, enough and gang.top.leaf and not gang.unknown_subgroup_pods
    active = [pod for pod in members if pod.status in ACTIVE_ALLOCATED]
    enough = len(active) >= leaf.minimum
    return group, tuple(units_of_pod_set(active, leaf.minimum)), enough, enough
