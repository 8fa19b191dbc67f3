"""Volumes (2.7): placed pods reach their volumes, new volumes can be made on their nodes, and attach limits
hold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress, count
from operator import attrgetter

import numpy as np

from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.check.selectors import ByLabel, Label, ObjectLabels, had, needed, reaches, selects
from kai_cp_models.pods import LabelSelector, Pod, PodKey, PodStatus
from kai_cp_models.records.storage import (
    STATIC_ONLY,
    STORAGE,
    StorageCapacity,
    StorageObjects,
    Volume,
    VolumeClaim,
)


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Placed pods without a usable volume; capacities and attach limits that are exceeded."""
    if not world.snapshot.policy.plugin("predicates"):
        return
    if not any(spec.volume_claims for spec in world.placed_specs):
        return
    objects = world.snapshot.extras[STORAGE]
    volumes = _Volumes(world, objects)
    for key in sorted(world.placed):
        pod, node = world.pod(key), world.placed[key].node
        for claim in _claims(objects, pod):
            fault = _fault(volumes, claim, node)
            if fault:
                yield Violation("volumes", f"pod {key} on node {node}: {fault}", pods=(key,))
    yield from _given(volumes)
    for now in (True, False):
        yield from _capacities(volumes, now=now)
        yield from _alone(world, objects, now=now)
        yield from _attached(world, objects, now=now)


def _claims(objects: StorageObjects, pod: Pod) -> list[VolumeClaim]:
    keys = dict.fromkeys(PodKey(pod.key.namespace, name) for name in pod.spec.volume_claims)
    return [objects.claims[key] for key in keys if key in objects.claims]


def _placed(world: PlannedCluster, objects: StorageObjects, claims: Collection[PodKey]) -> tuple[PodKey, ...]:
    """Placed pods with one of the claims."""
    owned = ((key, _claims(objects, world.pod(key))) for key in world.placed)
    return tuple(key for key, own in owned if any(claim.key in claims for claim in own))


def _fault(volumes: _Volumes, claim: VolumeClaim, node: str) -> str:
    world, objects = volumes.world, volumes.objects
    if claim.volume:
        if claim.volume not in objects.volumes:
            return f"volume {claim.volume} of claim {claim.key} does not exist"
        if not reaches(objects.volumes[claim.volume].affinity, world.node(node)):
            return f"volume {claim.volume} of claim {claim.key} is not within reach"
        return ""
    storage_class = objects.classes.get(claim.storage_class)
    if storage_class is None or not storage_class.waits:
        return f"claim {claim.key} is not bound and does not wait for its first consumer"
    if claim.selected_node not in (None, node):
        return f"claim {claim.key} is being made for node {claim.selected_node}"
    return "" if any(volumes.standing(claim, {node})) else _not_made(world, objects, claim, node)


@dataclass(frozen=True, eq=False)
class _Suiting:
    """Names of the volumes that suit, from one place of a list on; no copy, for claims may ask for thousands
    of sizes."""

    names: Sequence[str]
    first: int
    suits: memoryview
    """Of each from there on, whether it does; the last does."""

    def __bool__(self) -> bool:
        return len(self.suits) > 0

    def __iter__(self) -> Iterator[str]:
        return map(self.names.__getitem__, compress(count(self.first), self.suits))


class _Alike:
    """Volumes that no claim has and that differ in size and labels alone."""

    def __init__(self, volumes: Iterable[Volume]) -> None:
        self.one, *_ = self._by_size = sorted(volumes, key=attrgetter("bytes"))
        self._names = [volume.name for volume in self._by_size]
        self._selected: dict[LabelSelector | None, _Suiting] = {}
        self._suiting: dict[tuple[int, LabelSelector | None], _Suiting] = {}
        """Those that are large enough and selected; claims that ask for the same share them."""

    @cached_property
    def _labels(self) -> ObjectLabels:
        return ObjectLabels([volume.labels for volume in self._by_size])

    def suiting(self, claim: VolumeClaim) -> _Suiting:
        if (asks := (claim.bytes, claim.selector)) not in self._suiting:
            some = self._of(claim.selector)
            large = bisect_left(self._by_size, claim.bytes, key=attrgetter("bytes"))
            first = max(some.first, large)
            self._suiting[asks] = _Suiting(self._names, first, some.suits[first - some.first :])
        return self._suiting[asks]

    def _of(self, selector: LabelSelector | None) -> _Suiting:
        if selector not in self._selected:
            selected = self._labels.selected(selector or LabelSelector(()))
            at = np.flatnonzero(selected)
            first, end = (int(at[0]), int(at[-1]) + 1) if at.size else (0, 0)
            suits = memoryview(selected[first:end].tobytes())
            self._selected[selector] = _Suiting(self._names, first, suits)
        return self._selected[selector]


@dataclass
class _Volumes:
    """The volumes to which claims may be bound, found without a look at each of them for each claim."""

    world: PlannedCluster
    objects: StorageObjects

    def __post_init__(self) -> None:
        self._kept: dict[PodKey, list[Volume]] = {}
        free: dict[str, dict[object, list[Volume]]] = {}
        for volume in self.objects.volumes.values():
            if volume.claim is not None:
                self._kept.setdefault(volume.claim, []).append(volume)
            elif volume.usable:
                like = volume.affinity, volume.modes, volume.block
                free.setdefault(volume.storage_class, {}).setdefault(like, []).append(volume)
        self._free = {
            name: ByLabel((_near(alike.one), alike) for alike in map(_Alike, groups.values()))
            for name, groups in free.items()
        }

    def standing(self, claim: VolumeClaim, nodes: Collection[str]) -> Sequence[Iterable[str]]:
        """Those for a claim that all nodes reach, in lists that claims share; only those kept for it, if
        any."""
        kept = self._kept.get(claim.key)
        if kept is not None:
            return ([volume.name for volume in kept if volume.usable and self._reached(volume, nodes)],)
        if claim.storage_class not in self._free:
            return ()
        node = self.world.node(min(nodes))
        near = self._free[claim.storage_class].asked((*had(node.labels), *had({"metadata.name": node.name})))
        return [
            alike.suiting(claim)
            for alike in dict.fromkeys(near)
            if alike.one.modes >= claim.modes
            and alike.one.block == claim.block
            and self._reached(alike.one, nodes)
        ]

    def _reached(self, volume: Volume, nodes: Collection[str]) -> bool:
        return all(reaches(volume.affinity, self.world.node(node)) for node in nodes)


def _near(volume: Volume) -> Iterable[Label]:
    """Labels of which a node that reaches the volume has one."""
    if volume.affinity is None:
        return ((),)
    return chain.from_iterable(needed(LabelSelector(term)) for term in volume.affinity)


def _not_made(world: PlannedCluster, objects: StorageObjects, claim: VolumeClaim, node: str) -> str:
    """Why no volume can be made for the claim on the node; "" if one can."""
    storage_class = objects.classes[claim.storage_class]
    labels = world.node(node).labels
    terms = storage_class.topologies
    allowed = not terms or any(all(labels.get(key) in values for key, values in term) for term in terms)
    if storage_class.provisioner == STATIC_ONLY or claim.selector is not None or not allowed:
        return f"no volume for claim {claim.key} exists there or can be made there"
    if storage_class.provisioner in objects.tracked:
        options = _options(world, objects, claim, node)
        if not any(min(c.largest, _bytes(world, objects, c)) >= claim.bytes for c in options):
            return f"no storage capacity has {claim.bytes} bytes for claim {claim.key}"
    return ""


def _made_for(
    world: PlannedCluster, objects: StorageObjects, claim: VolumeClaim, nodes: Sequence[str]
) -> bool:
    """Whether one new volume serves all nodes: one node, or several with access modes for several, which then
    lie in one capacity where capacity is tracked."""
    if any(_not_made(world, objects, claim, node) for node in nodes):
        return False
    if len(nodes) == 1:
        return True
    tracked = objects.classes[claim.storage_class].provisioner in objects.tracked
    options = [{c.name for c in _options(world, objects, claim, node)} for node in nodes]
    shared = {"ReadWriteMany", "ReadOnlyMany"} & claim.modes
    return bool(shared) and (not tracked or bool(set.intersection(*options)))


def _given(volumes: _Volumes) -> Iterator[Violation]:
    """Volumes that two claims would need, or that not all pods of a claim reach. Pods that the binder is
    about to bind get theirs first."""
    world, objects = volumes.world, volumes.objects
    users: dict[PodKey, set[str]] = {}
    first = [(pod, pod.node) for pod in world.snapshot.pods if pod.status is PodStatus.BINDING]
    coming = [(world.pod(key), world.placed[key].node) for key in sorted(world.placed)]
    for pod, at in (*first, *coming):
        for claim in _claims(objects, pod) if at in world.snapshot.node_index else ():
            users.setdefault(claim.key, set()).add(str(at))
    options: dict[PodKey, Sequence[Iterable[str]]] = {}
    for key, nodes in users.items():
        claim = objects.claims[key]
        if not claim.volume and any(_fault(volumes, claim, node) for node in nodes):
            continue  # Said already.
        if not claim.volume and not _made_for(world, objects, claim, sorted(nodes)):
            options[key] = volumes.standing(claim, nodes)
    for key in left_out(options):
        if pods := _placed(world, objects, (key,)):
            where = ", ".join(sorted(users[key]))
            words = f"no volume is left that claim {key} can have on node {where}"
            yield Violation("volumes", words, pods=pods)


def left_out(options: Mapping[PodKey, Sequence[Iterable[str]]]) -> Iterator[PodKey]:
    """The claims that get no volume of their own, whatever the earlier ones get (a matching that is grown by
    shortest paths); ``options``: for each, lists of volumes."""
    holders, held = dict[str, PodKey](), dict[PodKey, str]()
    rest: dict[int, Iterator[str]] = {}
    """Of each list, what follows its first volumes that are held; a volume that is held stays so."""
    for key, lists in options.items():
        wanted: dict[str, PodKey] = {}
        unread = chain.from_iterable(rest.setdefault(id(some), iter(some)) for some in lists)
        free = next((name for name in unread if name not in holders), "")
        asking = deque([] if free else [key])
        while asking and not free:
            one = asking.popleft()
            for name in chain.from_iterable(options[one]):
                if name not in wanted:
                    wanted[name] = one
                    if name not in holders:
                        free = name
                        break
                    asking.append(holders[name])
        if not free:
            yield key
            continue
        while free:
            one = wanted.get(free, key)
            holders[free], held[one], free = one, free, held.get(one, "")


def _options(
    world: PlannedCluster, objects: StorageObjects, claim: VolumeClaim, node: str
) -> list[StorageCapacity]:
    labels = world.node(node).labels
    return [
        capacity
        for capacity in objects.capacities
        if capacity.storage_class == claim.storage_class and selects(capacity.nodes, labels)
    ]


def _capacities(volumes: _Volumes, *, now: bool) -> Iterator[Violation]:
    """New volumes compared with the capacities that can serve them, where no existing volume can."""
    world, objects = volumes.world, volumes.objects
    needed: dict[frozenset[str], list[VolumeClaim]] = {}
    seen: set[PodKey] = set()
    for key in sorted(world.binds if now else world.placed):
        node = world.placed[key].node
        for claim in _claims(objects, world.pod(key)):
            storage_class = objects.classes.get(claim.storage_class)
            if claim.volume or claim.key in seen or storage_class is None:
                continue
            if storage_class.provisioner in objects.tracked and not any(volumes.standing(claim, {node})):
                seen.add(claim.key)
                options = frozenset(option.name for option in _options(world, objects, claim, node))
                needed.setdefault(options, []).append(claim)
    by_name = {capacity.name: capacity for capacity in objects.capacities}
    for options in needed:
        claims = [claim for others, some in needed.items() if others <= options for claim in some]
        need = sum(claim.bytes for claim in claims)
        found = [by_name[name] for name in sorted(options)]
        have = sum(each.bytes if now else _bytes(world, objects, each) for each in found)
        if need > have:
            when, named = "now" if now else "in the end", ", ".join(sorted(options))
            words = f"storage capacity {named} has {have} bytes, the plan needs {need} {when}"
            yield Violation("volumes", words, pods=_placed(world, objects, {claim.key for claim in claims}))


def _bytes(world: PlannedCluster, objects: StorageObjects, capacity: StorageCapacity) -> int:
    """Bytes in the end; with ``--schedule-csi-storage`` also of volumes that go with leaving pods."""
    total = capacity.bytes
    if not world.snapshot.policy.schedule_csi_storage:
        return total
    for pod in world.snapshot.pods:
        gone = pod.status is PodStatus.RELEASING or pod.key in world.evictions
        for claim in _claims(objects, pod) if gone and pod.node in world.snapshot.node_index else ():
            if claim.volume and claim.owner_uid == pod.uid and pod.node is not None:
                total += claim.bytes * (capacity in _options(world, objects, claim, pod.node))
    return total


def _alone(world: PlannedCluster, objects: StorageObjects, *, now: bool) -> Iterator[Violation]:
    """A claim with ReadWriteOncePod has at most one user in the cluster."""
    names = [node.name for node in world.snapshot.nodes]
    users: dict[PodKey, dict[PodKey, bool]] = {}
    for _, resident in world.occupants(names, now=now):
        for claim in _claims(objects, resident.pod):
            if "ReadWriteOncePod" in claim.modes:
                found = users.setdefault(claim.key, {})
                found[resident.pod.key] = found.get(resident.pod.key, False) or resident.placed
                if claim.key in objects.away:
                    found[PodKey("", "a pod elsewhere")] = False
    for key, pods in users.items():
        if len(pods) > 1 and any(pods.values()):
            named = ", ".join(str(pod) for pod in sorted(pods))
            when = "now" if now else "in the end"
            yield Violation(
                "volumes",
                f"claim {key} is for one pod alone and used by {named} {when}",
                pods=tuple(pod for pod, placed in pods.items() if placed),
            )


def _attached(world: PlannedCluster, objects: StorageObjects, *, now: bool) -> Iterator[Violation]:
    for name in world.bound_nodes if now else world.target_nodes:
        volumes: dict[str, set[str]] = {}
        new: set[str] = set()
        for resident in world.now(name) if now else world.end(name):
            for claim in _claims(objects, resident.pod):
                volume = objects.volumes.get(claim.volume) if claim.volume else None
                storage_class = objects.classes.get(claim.storage_class)
                driver = volume.driver if volume else storage_class.provisioner if storage_class else ""
                volumes.setdefault(driver, set()).add(volume.handle if volume else str(claim.key))
                new |= {driver} if resident.placed else set()
        for driver in sorted(new):
            most = objects.limits.get(driver, {}).get(name)
            if most is not None and len(volumes[driver]) > most:
                when = "now" if now else "in the end"
                count = f"{len(volumes[driver])} volumes of {driver}, at most {most}"
                yield Violation("volumes", f"node {name} has {count} {when}", node=name)
