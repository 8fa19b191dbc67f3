"""Pods and pod groups as columns: there are many of them, and most questions are sums over some of them.

Records never change. So a record that was in the snapshot before keeps its row, and only new records are
read. Rows hold codes, which stay the same from snapshot to snapshot; positions are computed from the codes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress, count, repeat
from operator import attrgetter
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints, Kept, Mask, numbered
from kai_cp_models.pods import GroupKey, Pod, PodSpec, PodStatus
from kai_cp_models.snapshot import PodGroup, Snapshot

Item = TypeVar("Item", Pod, PodGroup)
Codes: TypeAlias = dict[Any, int]
"""A number for each of some values, from 0 on."""
Rows: TypeAlias = NDArray[Any]
Listed: TypeAlias = Iterator[tuple[str, Sequence[Any] | Ints]]
"""Fields of rows, and what they are in each row."""

_CODED: Final = ("specs", "nodes", "groups", "gpu_groups", "subgroups", "queues", "roots")
_STATUS: Final[Codes] = {status: code for code, status in enumerate(PodStatus)}
_POD: Final = np.dtype(
    [(name, np.int32) for name in ("specs", "nodes", "groups", "gpu_groups", "subgroups")]
    + [("statuses", np.int8)]
    + [(name, np.bool_) for name in ("ours", "reservation", "scaling", "nominated")]
)
_GROUP: Final = np.dtype(
    [(name, np.int32) for name in ("groups", "queues", "roots")]
    + [("priorities", np.int64), ("preemptible", np.bool_)]
)
_SPARE: Final = 10_000
"""So many codes may be unused before all codes are made again."""


class Records(Generic[Item]):
    """The records of a snapshot with a row for each."""

    def __init__(self, kept: Kept[Item], rows: Rows) -> None:
        self.kept: Kept[Item] = kept
        self.rows = rows

    @cached_property
    def by_key(self) -> dict[Any, Item]:
        """Every record by its key."""
        return {item.key: item for item in self.kept.items}

    def follow(self, items: Sequence[Item], listed: Callable[[Sequence[Item]], Listed]) -> Records[Item]:
        """The records that come after these. ``listed``: what is in the rows of new ones."""
        kept, origin, left = self.kept.follow(items)
        new = origin < 0
        came = list(compress(items, new.tolist()))
        rows = self.rows[origin] if len(self.rows) else np.zeros(len(origin), self.rows.dtype)
        for name, values in listed(came):
            rows[name][new] = values
        rows.flags.writeable = False
        found = Records(kept, rows)
        # What nothing has asked for yet is made when something does.
        if "by_key" in vars(self):
            found.by_key = self.by_key.copy() if came or len(left) else self.by_key
            for i in left.tolist():
                found.by_key.pop(self.kept.items[i].key, None)
            found.by_key.update((item.key, item) for item in came)
        return found


class Columns:
    """The pods and pod groups of a snapshot as columns, in their order; all are read-only.

    ``before``: those of another snapshot; the more records both have, the less is to do. It stays as it is.
    ``codes``: by what they mean.
    """

    of_pods: Records[Pod]
    of_groups: Records[PodGroup]

    def __init__(self, snapshot: Snapshot, before: Columns | None = None) -> None:
        # Not the snapshot, which has these columns: nothing is to wait for the garbage collector.
        self.pods, self.groups = snapshot.pods, snapshot.groups
        self.nodes, self.queues = snapshot.nodes, snapshot.queues
        self._node_index = snapshot.node_index
        if before is None or before.wasteful:
            self.codes: dict[str, Codes] = {name: {None: 0} for name in _CODED}
            pods: Records[Pod] = Records(Kept(), np.zeros(0, _POD))
            groups: Records[PodGroup] = Records(Kept(), np.zeros(0, _GROUP))
        else:
            self.codes, pods, groups = before.codes.copy(), before.of_pods, before.of_groups
        self.of_groups = groups.follow(self.groups, self._of_groups)
        self.of_pods = pods.follow(self.pods, self._of_pods)

    def shows(self, snapshot: Snapshot) -> bool:
        """Whether these are the columns of the snapshot's records."""
        same = self.pods is snapshot.pods and self.groups is snapshot.groups
        return same and self.nodes is snapshot.nodes and self.queues is snapshot.queues

    # --- pods ------------------------------------------------------------------------------------

    @cached_property
    def node(self) -> Ints:
        """[P] position of the node where the pod is, -1 where it is on none of the snapshot."""
        # Codes are in the order of their numbers.
        names, index = self.codes["nodes"], self._node_index
        at = np.fromiter(map(index.get, names, repeat(-1)), np.int64, len(names))
        found: Ints = at[self.of_pods.rows["nodes"]]
        return found

    @cached_property
    def group(self) -> Ints:
        """[P] position of the pod group, -1 where the pod is in none of the snapshot."""
        found: Ints = self._positions("groups", self.of_groups.rows["groups"])[self.of_pods.rows["groups"]]
        return found

    @cached_property
    def specs(self) -> tuple[PodSpec, ...]:
        """Every spec that pods have, once, in the order of the pods."""
        return tuple(self.pods[first].spec for first in self._first_by_spec[0].tolist())

    @cached_property
    def spec(self) -> Ints:
        """[P] position of the spec in ``specs``."""
        return self._first_by_spec[1]

    def of_spec(self, holds: Callable[[PodSpec], bool]) -> Mask:
        """[P] whether the spec of the pod ``holds``; it is called once for each spec."""
        found: Mask = np.fromiter(map(holds, self.specs), bool, len(self.specs))[self.spec]
        return found

    @property
    def gpu_groups(self) -> Ints:
        """[P] a number that pods with equal ``gpu_groups`` share."""
        return self.of_pods.rows["gpu_groups"]

    def having(self, statuses: Collection[PodStatus]) -> Mask:
        """[P] whether the pod has one of the statuses."""
        wanted = np.fromiter((status in statuses for status in PodStatus), bool, len(_STATUS))
        found: Mask = wanted[self.of_pods.rows["statuses"]]
        return found

    @property
    def nominated(self) -> Mask:
        """[P] whether the pod names a node that it waits for."""
        return self.of_pods.rows["nominated"]

    @property
    def reservation(self) -> Mask:
        """[P] as ``Pod.reservation``."""
        return self.of_pods.rows["reservation"]

    @property
    def foreign(self) -> Mask:
        """[P] pods of other schedulers that are neither reservations nor scaling pods of KAI."""
        found: Mask = ~(
            self.of_pods.rows["ours"] | self.of_pods.rows["reservation"] | self.of_pods.rows["scaling"]
        )
        return found

    @cached_property
    def by_group(self) -> tuple[Ints, Ints]:
        """[P] positions of the pods, group by group, those of no group first; [G + 1] where each group begins
        there."""
        order = np.argsort(self.group, kind="stable")
        return order, np.searchsorted(self.group, np.arange(len(self.groups) + 1), sorter=order)

    # --- pod groups ------------------------------------------------------------------------------

    @cached_property
    def waiting(self) -> Ints:
        """[W] positions of the pod groups with a Pending pod."""
        found = np.unique(self.group[self.having((PodStatus.PENDING,))])
        return found[found >= 0]

    @cached_property
    def alike(self) -> Ints:
        """[G] a number that pod groups share which nothing tells apart but names, times and which nodes are
        promised: all their pods are Pending, of one spec and one pod set, and all or none name a node
        (``Pod.nominated_node``). Every other group has its own."""
        at, found = self.waiting, -1 - np.arange(len(self.groups))
        if not len(at):
            return found
        order, begins = self.by_group
        pods = self.of_pods.rows[order]
        bounds = np.column_stack((begins[at], begins[at + 1])).ravel()
        told_apart = [pods[name] for name in ("specs", "subgroups", "statuses", "nominated")]
        kinds = np.append(numbered(*told_apart), 0)
        least, most = (each.reduceat(kinds, bounds)[::2] for each in (np.minimum, np.maximum))
        first = pods[begins[at]]
        same = (least == most) & (first["statuses"] == _STATUS[PodStatus.PENDING])
        at, rows = at[same], self.of_groups.rows[at[same]]
        named = [rows[name] for name in ("queues", "roots", "priorities", "preemptible")]
        found[at] = numbered(least[same], begins[at + 1] - begins[at], *named)
        return found

    @cached_property
    def queue(self) -> Ints:
        """[G] position of the queue of the pod group, -1 where it does not exist."""
        codes = self._code("queues", [queue.name for queue in self.queues])
        found: Ints = self._positions("queues", codes)[self.of_groups.rows["queues"]]
        return found

    @property
    def preemptible(self) -> Mask:
        """[G] as ``PodGroup.preemptible``."""
        return self.of_groups.rows["preemptible"]

    @cached_property
    def position(self) -> Mapping[GroupKey, int]:
        """Position of each pod group."""
        return {group.key: at for at, group in enumerate(self.groups)}

    def unchanged(self, before: Columns) -> Ints:
        """[G] where the pod group was in other columns, if its record and those of all its pods are the same;
        else -1."""
        pods, gone = before.of_pods.kept.origin(self.of_pods.kept)
        groups, _ = before.of_groups.kept.origin(self.of_groups.kept)
        # The last entries are for pods without a group.
        came, left = (np.zeros(len(one.groups) + 1, dtype=bool) for one in (self, before))
        came[self.group[pods < 0]], left[before.group[gone]] = True, True
        found: Ints = np.where(came[:-1] | left[groups], -1, groups)
        return found

    # --- making ----------------------------------------------------------------------------------

    @property
    def wasteful(self) -> bool:
        """Whether most codes are unused."""
        most = 2 * (len(self.of_pods.rows) + len(self.of_groups.rows) + len(self.nodes)) + _SPARE
        return any(len(codes) > most for codes in self.codes.values())

    @cached_property
    def _first_by_spec(self) -> tuple[Ints, Ints]:
        """The first pod of each spec, in the order of the pods, and [P] which of these specs a pod has."""
        codes, pods = self.of_pods.rows["specs"], len(self.of_pods.rows)
        first = np.full(len(self.codes["specs"]), pods)
        # Of several values for one entry, the last one stays.
        first[codes[::-1]] = np.arange(pods)[::-1]
        used = np.flatnonzero(first < pods)
        used = used[np.argsort(first[used])]
        return first[used], self._positions("specs", used)[codes]

    def _positions(self, name: str, codes: Ints) -> Ints:
        """By code, where it is among ``codes``."""
        found = np.full(len(self.codes[name]), -1)
        found[codes] = np.arange(len(codes))
        return found

    def _code(self, name: str, values: Sequence[Hashable]) -> Ints:
        """[V] the codes of values; new ones get the next numbers."""
        codes = self.codes[name]
        found = np.fromiter(map(codes.get, values, repeat(-1)), np.int64, len(values))
        new = dict.fromkeys(compress(values, (found < 0).tolist()))
        if new:
            codes = self.codes[name] = {**codes, **dict(zip(new, count(len(codes)), strict=False))}
            found = np.fromiter(map(codes.__getitem__, values), np.int64, len(values))
        return found

    def _of_pods(self, pods: Sequence[Pod]) -> Listed:
        for name in ("spec", "node", "group", "subgroup"):
            yield f"{name}s", self._code(f"{name}s", list(map(attrgetter(name), pods)))
        yield "gpu_groups", self._code("gpu_groups", [pod.gpu_groups for pod in pods])
        yield "statuses", [_STATUS[pod.status] for pod in pods]
        for name in ("ours", "reservation", "scaling"):
            yield name, list(map(attrgetter(name), pods))
        yield "nominated", [pod.nominated_node is not None for pod in pods]

    def _of_groups(self, groups: Sequence[PodGroup]) -> Listed:
        yield "groups", self._code("groups", [group.key for group in groups])
        yield "queues", self._code("queues", [group.queue for group in groups])
        # Nearly all share few trees, and to compare these is to compare all that is in them.
        roots = {id(group.root): group.root for group in groups}
        codes = dict(zip(roots, self._code("roots", list(roots.values())).tolist(), strict=True))
        yield "roots", [codes[id(group.root)] for group in groups]
        yield "priorities", [group.priority for group in groups]
        yield "preemptible", [group.preemptible for group in groups]


class PodsByGroup(Mapping[GroupKey, tuple[Pod, ...]]):
    """Pods of every group in task order (3.6), put together when a group is first asked for."""

    def __init__(self, snapshot: Snapshot) -> None:
        columns = self._columns = snapshot.columns
        self._found: dict[GroupKey, tuple[Pod, ...]] = {}
        # Lists: a few numbers at a time are taken out of them.
        order, begins = columns.by_group
        self._rows: list[int] = order.tolist()
        self._first: list[int] = begins.tolist()

    def __len__(self) -> int:
        return len(self._columns.groups)

    def __iter__(self) -> Iterator[GroupKey]:
        return (group.key for group in self._columns.groups)

    def __getitem__(self, key: GroupKey) -> tuple[Pod, ...]:
        found = self._found.get(key)
        if found is None:
            at, listed = self._columns.position[key], self._columns.pods
            pods = [listed[row] for row in self._rows[self._first[at] : self._first[at + 1]]]
            if len(pods) > 1:
                pods.sort(key=lambda pod: pod.sort_key)
            found = self._found[key] = tuple(pods)
        return found
