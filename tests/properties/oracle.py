"""The brute-force oracle for tiny clusters: which pods can allocate admit at all?

It walks the fair order as formulation 1.1 says: the next batch is admitted if and only if it can be placed
together with everything admitted before it, whose places may change. It finds this out by trying all nodes
for all pods, and the checker says whether a try is allowed. The order is the naive one of the tests; fair
shares and batches are the engine's own. It is meant for up to about eight pods and three nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kai_cp_models.check import (
    PlannedCluster,
    affinity,
    capacity,
    gangs,
    nodes,
    ports,
    queues,
    sharing,
    topology,
)
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.order import Entry
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.snapshot import Node, Snapshot
from kai_cp_models.units import Gang, Gangs
from tests.kai_cp_models.fairness.naive_order import Naive


class Placement(NamedTuple):
    """Where a pod goes: node name and, for a share, one GPU group id for each device."""

    node: str
    gpu_groups: tuple[str, ...] = ()


Places = dict[PodKey, Placement]
_ALWAYS = (capacity.broken, sharing.broken, nodes.broken, ports.broken, queues.broken)
"""Rules that a part of a placement may not break either."""
_AT_LAST = (affinity.broken, gangs.broken, topology.broken)


@dataclass
class Admitted:
    """What the oracle admits: batches of pods in order, and one placement of all of them."""

    batches: list[tuple[GroupKey, tuple[PodKey, ...]]] = field(default_factory=list)
    places: Places = field(default_factory=dict)

    @property
    def pods(self) -> frozenset[PodKey]:
        """All admitted pods."""
        return frozenset(self.places)


def best_allocate(snapshot: Snapshot) -> Admitted:
    """The admitted batches of allocate, in fair order."""
    search = _Search(snapshot)
    return search.run()


class _Search:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.gangs = Gangs(snapshot)
        self.found = Admitted()
        self.book = QueueBook.of(snapshot)

    def run(self) -> Admitted:
        waiting = {
            key: batch for key in self.snapshot.group_by_key if (batch := self._batch(self.gangs[key]))
        }
        while (key := self._first(waiting)) is not None:
            batch = waiting.pop(key)
            admitted = [self.snapshot.pod_by_key[k] for k in self.found.places]
            places = self._place([*admitted, *batch])
            if places is None:
                continue
            group = self.snapshot.group_by_key[key]
            for pod in batch:
                node = self._node(places[pod.key].node)
                self.book.charge(group.queue, amounts.accepted(self.snapshot, pod, node), group.preemptible)
            self.found.places = places
            self.found.batches.append((key, tuple(pod.key for pod in batch)))
            again = self._batch(self.gangs[key])
            if again:
                waiting[key] = again
        return self.found

    def _status(self, pod: Pod) -> PodStatus:
        return PodStatus.PIPELINED if pod.key in self.found.places else pod.status

    def _batch(self, gang: Gang) -> tuple[Pod, ...]:
        if gang.group.backed_off:
            return ()
        batch = gang.state(self._status).batch
        return batch.all_pods if batch is not None else ()

    def _first(self, waiting: Mapping[GroupKey, tuple[Pod, ...]]) -> GroupKey | None:
        entries = {key: self._entry(key, batch) for key, batch in waiting.items()}
        return Naive(self.snapshot, self.book, entries).first()

    def _entry(self, key: GroupKey, batch: tuple[Pod, ...]) -> Entry:
        """By priority, then below the minimum, at it or above it, then by age and name (3.6). No pod here is
        nominated, so none is promised its places."""
        group, gang = self.snapshot.group_by_key[key], self.gangs[key]
        state = gang.state(self._status).elastic_state
        turn = True, -group.priority, state, group.created, key.name, key.namespace
        return turn, amounts.pessimistic_batch(self.snapshot, batch)

    def _node(self, name: str) -> Node:
        return self.snapshot.nodes[self.snapshot.node_index[name]]

    # --- all placements --------------------------------------------------------------------------

    def _place(self, pods: list[Pod]) -> Places | None:
        """A placement of all the pods at the end of the cycle; None when there is none."""
        # Equal pods stand side by side, so that they are placed on nodes in ascending order only.
        pods = sorted(pods, key=lambda p: (repr(self._kind(p)), p.key))
        return self._extend(pods, {})

    def _kind(self, pod: Pod) -> tuple[object, ...]:
        return (pod.group, pod.subgroup, pod.spec, tuple(sorted(pod.labels.items())))

    def _extend(self, pods: list[Pod], places: Places) -> Places | None:
        if len(places) == len(pods):
            return dict(places) if not self._broken(pods, places, whole=True) else None
        pod = pods[len(places)]
        last = pods[len(places) - 1] if places else None
        least = places[last.key].node if last is not None and self._kind(last) == self._kind(pod) else ""
        for place in self._candidates(pod, places):
            if place.node < least:
                continue
            places[pod.key] = place
            if not self._broken(pods, places, whole=False):
                found = self._extend(pods, places)
                if found is not None:
                    return found
            del places[pod.key]
        return None

    def _candidates(self, pod: Pod, places: Places) -> Iterator[Placement]:
        """Every node, and on it every choice of shared and new devices."""
        world = PlannedCluster(self.snapshot, Plan())
        for node in self.snapshot.nodes:
            if not pod.spec.gpu.shares:
                yield Placement(node.name)
                continue
            shared = {group for r in world.staying(node.name) for group in r.gpu_groups}
            shared |= {g for place in places.values() if place.node == node.name for g in place.gpu_groups}
            fresh = [f"{pod.key}/{i}" for i in range(pod.spec.gpu.devices)]
            for chosen in _subsets(sorted(shared), pod.spec.gpu.devices):
                yield Placement(node.name, (*chosen, *fresh[len(chosen) :]))

    def _broken(self, pods: list[Pod], places: Places, *, whole: bool) -> bool:
        decisions = tuple(
            Decision("Nominate", p.key, p.group, at.node, "allocate", gpu_groups=at.gpu_groups)
            for p in pods
            if (at := places.get(p.key)) is not None
        )
        world = PlannedCluster(self.snapshot, Plan(decisions=decisions))
        rules = (*_ALWAYS, *_AT_LAST) if whole else _ALWAYS
        return any(True for rule in rules for _ in rule(world))


def _subsets(names: list[str], most: int) -> Iterator[tuple[str, ...]]:
    """All subsets of at most ``most`` names, larger ones first."""
    if not names or not most:
        yield ()
        return
    for rest in _subsets(names[1:], most - 1):
        yield (names[0], *rest)
    yield from _subsets(names[1:], most)
