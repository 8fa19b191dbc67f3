"""What runs, as columns: the units that pod groups could give up in the snapshot, one row each (5.4).

There are many such units, and most questions about them are sums over some. So nothing here is made for a
single unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.loading import Homes
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, Pod
from kai_cp_models.snapshot import PodGroup, Snapshot
from kai_cp_models.units import Gangs, Unit, only_pod_set, units_of_pod_set

_WHOLE = ("group", "queue", "priority", "aged", "chain", "state", "pods", "first", "weight", "work", "owed")
UNIT: Final = np.dtype(
    [(name, np.int64) for name in _WHOLE]
    + [(name, np.float64) for name in ("started", "created", "since")]
    + [(name, np.bool_) for name in ("whole", "new", "movable")]
    + [("gives", np.int64, 3)]
)
"""A unit. ``group``: its position in a list of groups; ``queue``: among the snapshot's queues, -1 where there
is none. What orders and protects the group: ``started`` is NaN where it is unknown, ``since`` is the start or
else the creation. ``chain``, ``whole``, ``new``, ``movable``: as in ``EvictionUnit``. ``state``: the elastic
state. ``first``: where its ``pods`` begin in a list of pods. ``gives``: what the queue is charged for them.
``weight``, ``work``: as in ``VictimCandidate``. ``owed``: where that is in a list, 0 for nothing."""
UnitRows: TypeAlias = NDArray[Any]
"""[U] rows of ``UNIT``."""
GroupUnits = tuple[PodGroup, Sequence[Unit], bool]
"""A pod group with its units in their order, and whether it is satisfied."""


def gpu_weight(pod: Pod) -> int:
    """Milli-GPUs of a pod, plus one: its weight when it is lost or moved."""
    return milli_gpus(pod) + 1


def unit_rows(snapshot: Snapshot, given: Sequence[GroupUnits], charges: Ints) -> UnitRows:
    """[U] the units of all groups, one after the other. ``charges``: [P, 3] those of their pods."""
    index = {queue.name: i for i, queue in enumerate(snapshot.queues)}
    units = [unit for _, some, _ in given for unit in some]
    rows, counts = np.zeros(len(units), UNIT), np.array([len(some) for _, some, _ in given], np.int64)
    by_group = [
        (
            index.get(group.queue, -1),
            group.priority,
            group.aged_at_start,
            np.nan if group.last_start is None else group.last_start,
            group.created,
            group.created if group.last_start is None else group.last_start,
            satisfied,
        )
        for group, _, satisfied in given
    ]
    names = ("queue", "priority", "aged", "started", "created", "since", "movable")
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
    ``homes``: [P] their rows in ``Homes``; -1 is the row of those without a place.
    """

    def __init__(self, snapshot: Snapshot, gangs: Gangs, homes: Homes) -> None:
        there = (one for one in snapshot.groups if one.preemptible and one.key in homes.groups)
        found = [_at_first(group, snapshot.members[group.key], gangs) for group in there]
        self.groups = [group for group, _, _ in found]
        self.pods = [pod for _, units, _ in found for unit in units for pod in unit.pods]
        position = homes.position
        self.homes: Ints = np.array([position.get(pod.key, -1) for pod in self.pods], dtype=np.int64)
        self.units = unit_rows(snapshot, found, homes.charges[self.homes])

    @cached_property
    def position(self) -> Mapping[GroupKey | None, int]:
        """Where each group is in ``groups``."""
        return {group.key: g for g, group in enumerate(self.groups)}

    def positions(self, keys: Iterable[GroupKey | None]) -> list[int]:
        """Where those of the groups are that run."""
        return [g for key in keys if (g := self.position.get(key)) is not None]


def _at_first(group: PodGroup, members: Sequence[Pod], gangs: Gangs) -> GroupUnits:
    """What a group could give up in the snapshot; most are one pod set, and need no tree."""
    leaf = only_pod_set(group.root)
    if leaf is None or any((pod.subgroup or "default") != leaf.name for pod in members):
        gang = gangs[group.key]
        return group, gang.units_at_first, gang.at_first.satisfied
    active = [pod for pod in members if pod.status in ACTIVE_ALLOCATED]
    return group, tuple(units_of_pod_set(active, leaf.minimum)), len(active) >= leaf.minimum
