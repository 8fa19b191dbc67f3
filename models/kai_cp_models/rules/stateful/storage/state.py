"""The storage rule's state: where volumes can be used or made, and the capacity left to make them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.pods import Pod, PodKey, PodStatus
from kai_cp_models.records.storage import (
    STATIC_ONLY,
    STORAGE,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeClaim,
    different,
)
from kai_cp_models.rules.stateful.nodes import labelled
from kai_cp_models.rules.stateful.protocol import LeavingState, Row
from kai_cp_models.rules.stateful.purse import Purse
from kai_cp_models.rules.stateful.storage.attached import Attached
from kai_cp_models.rules.stateful.storage.exclusive import Exclusive
from kai_cp_models.rules.stateful.storage.standing import StandingVolumes
from kai_cp_models.rules.stateful.tally import holding
from kai_cp_models.shown import amount, plural
from kai_cp_models.snapshot import Snapshot

NAME: Final = "storage"
SPENT: Final = "the search for volumes has used up what its namespace may take in a cycle"
STORAGE_NAME: Final = "storage"
_BINDER: Final = PodKey("", "the binder")
"""Stands for the pods that it is about to bind, whatever the cycle does with them."""
CHOICES: Final = 5_000
"""Choices of volumes that the searches of a namespace may take in a cycle, beyond one for each claim of a pod
on a node. They take about a tenth of a second."""


@dataclass(frozen=True)
class VolumeSource:
    """Where a waiting claim gets its volume in this cycle, and the pods that rely on it.

    ``nodes``: nodes that can use the volume then. ``volume``: an existing one; ``capacity``: position of the
    capacity that a new one is made from. If both are None, capacity is not tracked.
    """

    nodes: Mask
    users: frozenset[PodKey]
    volume: str | None = None
    capacity: int | None = None


class _Options(NamedTuple):
    """What a claim may choose from.

    ``volumes``: by node, the best of those that can be used there, as many as the pod has claims. ``made``:
    nodes for which a volume can be made; ``capacities``: None: capacity is not tracked.
    """

    volumes: Mapping[int, Sequence[Volume]]
    made: Mask
    capacities: Sequence[int] | None


_Beside = tuple[dict[str, Mask], dict[int, Ints]]
"""What a pod's other claims take: existing volumes by node, and bytes of each capacity on its nodes."""
_Source = tuple[Volume | None, int | None]
"""An existing volume, or the position of the capacity that a new one is made from. If both are None, capacity
is not tracked."""


class StorageState(LeavingState):
    """Volumes and capacities promised in the cycle, and what leaving pods give back."""

    name = NAME
    family = "volumes"

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot
        self.objects = snapshot.extras[STORAGE]
        self.attached = Attached(snapshot, self.objects)
        self.exclusive = Exclusive(self.objects)
        self._masks: dict[Hashable, Mask] = {}
        self._volumes = StandingVolumes(snapshot, self.objects.volumes)
        capacities = self.objects.capacities
        self._room = (
            np.array([c.bytes for c in capacities], dtype=np.int64),
            np.zeros(len(capacities), dtype=np.int64),
        )
        self._sources: dict[PodKey, VolumeSource] = {}
        self._gave_up = False
        self._purses: dict[str, Purse] = {}
        self._users = Counter(claim.key for pod in snapshot.pods for claim in self._claims(pod))
        for pod, node, leaving in holding(snapshot):
            if pod.spec.volume_claims:
                self.attached.count(pod, node, 1, leaving=leaving)
                self.exclusive.count(pod, 1, leaving=leaving)
                if leaving:
                    self._give_back(pod, node, 1)
                elif pod.status is PodStatus.BINDING:
                    self._expect(pod, node)

    def _expect(self, pod: Pod, node: int) -> None:
        """Note the volumes that the binder is about to give a pod."""
        for claim in self._new(pod):
            (volume,) = self._volumes.best(claim, [node], 1)[node] or (None,)
            self._take(claim, replace(self._source(claim, node, volume, None), users=frozenset((_BINDER,))))

    def _take(self, claim: VolumeClaim, source: VolumeSource) -> None:
        """The claim gets its volume from this source."""
        self._sources[claim.key] = source
        if source.volume is not None:
            self._volumes.take(source.volume)
        if source.capacity is not None:
            self._room[0][source.capacity] -= claim.bytes

    def detach(self) -> None:
        super().detach()
        self._volumes = self._volumes.copy()
        self.attached = self.attached.copy()
        self.exclusive = self.exclusive.copy()
        self._room = (self._room[0].copy(), self._room[1].copy())
        self._sources = dict(self._sources)

    def _everywhere(self) -> Mask:
        return np.ones(len(self.snapshot.nodes), dtype=np.bool_)

    def _capacity_nodes(self, capacity: StorageCapacity) -> Mask:
        """Nodes of a capacity; without a topology it has none (storage.k8s.io)."""
        key = ("capacity", capacity.name, capacity.storage_class)
        if key not in self._masks:
            self._masks[key] = labelled(self.snapshot, capacity.nodes)
        return self._masks[key]

    def _class_nodes(self, storage_class: StorageClass) -> Mask:
        key = ("class", storage_class.name)
        if key not in self._masks:
            found = [_allowed(storage_class, node.labels) for node in self.snapshot.nodes]
            self._masks[key] = np.array(found, dtype=np.bool_)
        return self._masks[key]

    def _makeable(self, claim: VolumeClaim) -> Mask:
        """Nodes for which a driver may make the claim's volume, whatever capacity is left."""
        kind = self.objects.classes.get(claim.storage_class)
        if kind is None or kind.provisioner == STATIC_ONLY or claim.selector is not None:
            return ~self._everywhere()
        return self._class_nodes(kind)

    def _tracked(self, claim: VolumeClaim) -> bool:
        """Whether the driver that would make the claim's volume tells its capacity."""
        kind = self.objects.classes.get(claim.storage_class)
        return kind is not None and kind.provisioner in self.objects.tracked

    def _selected(self, claim: VolumeClaim) -> Mask:
        """Nodes for which the claim's volume may be made once its driver has been told one."""
        if not claim.selected_node:
            return self._everywhere()
        return np.array([node.name == claim.selected_node for node in self.snapshot.nodes], np.bool_)

    def _claims(self, pod: Pod) -> list[VolumeClaim]:
        """The pod's claims, the smallest first, which is the order in which they get volumes."""
        keys = dict.fromkeys(PodKey(pod.key.namespace, name) for name in pod.spec.volume_claims)
        found = (self.objects.claims[key] for key in keys if key in self.objects.claims)
        return sorted(found, key=lambda claim: (claim.bytes, claim.key))

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.volume_claims)

    def identity(self, pod: Pod) -> Hashable:
        return pod.key.namespace if pod.spec.volume_claims else None

    def dead_end(self, pod: Pod) -> str:
        for claim in self._claims(pod):
            if claim.volume:
                if claim.volume not in self.objects.volumes:
                    return f'persistentvolume "{claim.volume}" of claim {claim.key} not found'
                continue
            found = self.objects.classes.get(claim.storage_class)
            if found is None and claim.storage_class and claim.key not in self._volumes.reserved:
                return f'storageclass "{claim.storage_class}" of claim {claim.key} not found'
            if found is None or not found.waits:
                return f"pod has unbound immediate PersistentVolumeClaims: {claim.key}"
        return ""

    def mask(self, pod: Pod, *, now: bool) -> Mask | None:
        if not pod.spec.volume_claims:
            return None
        mask = self.attached.mask(pod, now=now)
        home = self._home(pod)
        stays = False
        if home is not None:
            # Returning there undoes the eviction, and the pod does not give up its capacity.
            self._give_back(pod, home, -1)
            room = bool((self._room[0] + self._room[1] >= 0).all())
            stays = bool(mask[home]) and room and self.exclusive.free(pod, now=False)
            self._give_back(pod, home, 1)
        if self.dead_end(pod) or not self.exclusive.free(pod, now=now):
            mask[:] = False
        else:
            self._accept(pod, mask, now=now)
        if home is not None:
            mask[home] = stays
        return mask

    def _accept(self, pod: Pod, mask: Mask, *, now: bool) -> None:
        """Take away the nodes on which the pod's claims get no volumes."""
        new, possible = self._new(pod), mask.copy()
        for claim, nodes in self._claim_nodes(pod, now=now):
            mask &= nodes
            possible &= self._new_nodes(claim, now=now) if len(new) > 1 and claim in new else nodes
        # There the claims get some, but not all of them the one that fits best.
        unsure = np.flatnonzero(possible & ~mask).tolist()
        options = self._options(new, unsure, now=now) if unsure else ()
        for node in unsure:
            mask[node] = self._chosen(new, options, node, now=now) is not None

    @property
    def gave_up(self) -> bool:
        return self._gave_up

    def _new(self, pod: Pod) -> list[VolumeClaim]:
        """The claims of the pod for which the cycle has yet to choose a volume."""
        return [one for one in self._claims(pod) if not one.volume and one.key not in self._sources]

    def _home(self, pod: Pod) -> int | None:
        """The node of a pod that was evicted in this cycle."""
        return self.snapshot.node_index[pod.node] if pod.key in self.left and pod.node is not None else None

    def _claim_nodes(self, pod: Pod, *, now: bool) -> Iterator[tuple[VolumeClaim, Mask]]:
        """Nodes on which each claim's volume can be used, or made beside the pod's other ones."""
        beside: _Beside | None = ({}, {}) if len(self._new(pod)) > 1 else None
        for claim in self._claims(pod):
            if claim.volume:
                yield claim, self._volumes.nodes(self.objects.volumes[claim.volume])
            elif claim.key in self._sources:
                yield claim, self._sources[claim.key].nodes
            else:
                yield claim, self._new_nodes(claim, beside, now=now)

    def _new_nodes(self, claim: VolumeClaim, beside: _Beside | None = None, *, now: bool) -> Mask:
        """Nodes on which the claim gets a volume; ``beside``: what the pod's other claims take, to which its
        own is added. None: it is alone."""
        given, drawn = beside or (None, dict[int, Ints]())
        standing = self._standing(claim, given)
        mask = standing | self._made(claim, ~standing, drawn, now=now)
        return mask & self._selected(claim)

    def _standing(self, claim: VolumeClaim, given: dict[str, Mask] | None) -> Mask:
        """Nodes with a free volume for the claim; ``given``: volumes that the pod's other claims take, by
        node."""
        if given is None:
            return self._volumes.reached(claim, left=True)
        every = self._everywhere()
        mask = ~every
        for volume in self._volumes.left(claim):
            # Most volumes are on one node alone.
            if len(here := self._volumes.places(volume)) == 1:
                if volume.name not in given and not mask[here[0]]:
                    given[volume.name], mask[here[0]] = every, True
                continue
            if mask.all():
                break
            free = self._volumes.nodes(volume) & ~mask
            if (taken := given.get(volume.name)) is not None:
                free &= ~taken
            given[volume.name] = free if taken is None else taken | free
            mask |= free
        return mask

    def _made(self, claim: VolumeClaim, where: Mask, drawn: dict[int, Ints], *, now: bool) -> Mask:
        """Nodes among ``where`` for which a volume can be made for the claim; ``drawn``: what the pod's
        smaller claims take of each capacity, on each of its nodes."""
        asked = self._makeable(claim) & where
        if not self._tracked(claim):
            return asked
        made = ~self._everywhere()
        for i, room in self._roomy(claim, now=now):
            nodes = np.flatnonzero(self._capacity_nodes(self.objects.capacities[i]))
            taken = drawn.get(i, np.zeros(len(nodes), dtype=np.int64))
            here = asked[nodes] & ~made[nodes] & (taken + claim.bytes <= room)
            if here.any():
                made[nodes[here]] = True
                drawn[i] = taken + here * claim.bytes
        return made

    def _roomy(self, claim: VolumeClaim, *, now: bool) -> list[tuple[int, int]]:
        """The capacities from which the claim's volume can be made, with the bytes left in each.

        The smallest comes first, so that larger claims find the others.
        """
        rooms = self._room[0] if now else self._room[0] + self._room[1]
        found = [
            (i, int(rooms[i]))
            for i, capacity in enumerate(self.objects.capacities)
            if capacity.storage_class == claim.storage_class
            and claim.bytes <= min(capacity.largest, int(rooms[i]))
        ]
        return sorted(found, key=itemgetter(1))

    def _reached(self, claim: VolumeClaim) -> Mask:
        """Nodes on which the claim's volume can be used or made, whatever leaves."""
        if claim.volume:
            volume = self.objects.volumes.get(claim.volume)
            return ~self._everywhere() if volume is None else self._volumes.nodes(volume)
        source = self._sources.get(claim.key)
        if source is not None and _BINDER in source.users:
            return source.nodes
        mask = self._makeable(claim)
        if self._tracked(claim):
            given, more = ~self._everywhere(), self.snapshot.policy.schedule_csi_storage
            for capacity in self.objects.capacities:
                most = capacity.largest if more else min(capacity.largest, capacity.bytes)
                if capacity.storage_class == claim.storage_class and claim.bytes <= most:
                    given |= self._capacity_nodes(capacity)
            mask = mask & given
        return (mask | self._volumes.reached(claim, left=False)) & self._selected(claim)

    def place(self, pod: Pod, node: int, *, pipelined: bool) -> None:
        self.attached.count(pod, node, 1, leaving=False)
        self.exclusive.count(pod, 1, leaving=False)
        if node == self._home(pod):
            self._give_back(pod, node, -1)
        new, now = self._new(pod), not pipelined
        options = self._options(new, [node], now=now)
        chosen = self._chosen(new, options, node, now=now, found=True)
        for claim, source in zip(new, chosen or (), strict=False):
            self._take(claim, source)
        for claim in self._claims(pod):
            if not claim.volume:
                source = self._sources.get(claim.key) or self._new_source(claim, node)
                self._sources[claim.key] = replace(source, users=source.users | {pod.key})

    def _new_source(self, claim: VolumeClaim, node: int, capacity: int | None = None) -> VolumeSource:
        """A new volume: its driver decides which other nodes will reach it. One for many is expected to be
        within reach of all nodes for which it could be made."""
        nodes = np.arange(len(self.snapshot.nodes)) == node
        if claim.for_many:
            made = self._makeable(claim) & self._selected(claim)
            if capacity is not None:
                made &= self._capacity_nodes(self.objects.capacities[capacity])
            nodes |= made
        return VolumeSource(nodes, frozenset(), capacity=capacity)

    def _options(
        self, claims: Sequence[VolumeClaim], nodes: Sequence[int], *, now: bool
    ) -> Sequence[_Options]:
        """For each claim, the existing volumes and the capacities that are left for it on some nodes, the
        best first."""
        alike: dict[object, _Options] = {}
        found = []
        for claim in claims:
            own = claim.key in self._volumes.reserved
            asks = claim.key if own else replace(claim, key=PodKey("", ""), owner_uid=None)
            if asks not in alike:
                alike[asks] = self._options_of(claim, nodes, len(claims), now=now)
            found.append(alike[asks])
        return found

    def _options_of(self, claim: VolumeClaim, nodes: Sequence[int], most: int, *, now: bool) -> _Options:
        # Of existing volumes the pod's other claims cannot take more.
        volumes = self._volumes.best(claim, nodes, most)
        roomy = [i for i, _ in self._roomy(claim, now=now)] if self._tracked(claim) else None
        return _Options(volumes, self._makeable(claim), roomy)

    def _chosen(
        self,
        claims: Sequence[VolumeClaim],
        options: Sequence[_Options],
        node: int,
        *,
        now: bool,
        found: bool = False,
    ) -> Sequence[VolumeSource] | None:
        """Volumes on a node for all of a pod's new claims; None: there are none.

        The first choice is the smallest volume that fits, else a new one from the capacity with the fewest
        bytes left; the smallest claim chooses first. ``found``: the node was asked before and has an answer.
        """
        if any(claim.selected_node not in (None, self.snapshot.nodes[node].name) for claim in claims):
            return None
        rooms = self._room[0] if now else self._room[0] + self._room[1]
        sources = [list(self._sources_on(node, some)) for some in options]
        standing = [[one.name for one, _ in some if one] for some in sources]
        alone = [names for names, some in zip(standing, sources, strict=True) if len(names) == len(some)]
        if different(alone) is None:
            return None
        purse = self._purses.setdefault(claims[0].key.namespace, Purse(CHOICES)) if claims else Purse(0)
        # What the first claims take, and by which choice: volumes, and bytes of capacities.
        tried = set[tuple[int, frozenset[str], frozenset[tuple[int, int]]]]()
        stack: list[tuple[tuple[_Source, ...], frozenset[str], dict[int, int]]] = [((), frozenset(), {})]
        while stack:
            chosen, volumes, drawn = stack.pop()
            at = len(chosen)
            if at == len(claims):
                return [self._source(claim, node, *one) for claim, one in zip(claims, chosen, strict=True)]
            state = at, volumes, frozenset(drawn.items())
            if state in tried:
                continue
            if len(tried) >= len(claims):
                if purse.empty and not found:
                    self._gave_up = True
                    return None
                purse.left -= 1
            tried.add(state)
            for volume, capacity in reversed(sources[at]):
                more = drawn
                if capacity is not None:
                    more = drawn | {capacity: drawn.get(capacity, 0) + claims[at].bytes}
                free = volume is None or volume.name not in volumes
                if free and (capacity is None or more[capacity] <= rooms[capacity]):
                    with_it = volumes if volume is None else volumes | {volume.name}
                    stack.append(((*chosen, (volume, capacity)), with_it, more))
        return None

    def _sources_on(self, node: int, options: _Options) -> Iterator[_Source]:
        """Where a claim may get its volume on a node."""
        for volume in options.volumes[node]:
            yield volume, None
        if options.made[node]:
            if options.capacities is None:
                yield None, None
            for i in options.capacities or ():
                if self._capacity_nodes(self.objects.capacities[i])[node]:
                    yield None, i

    def _source(
        self, claim: VolumeClaim, node: int, volume: Volume | None, capacity: int | None
    ) -> VolumeSource:
        if volume is not None:
            return VolumeSource(self._volumes.nodes(volume), frozenset(), volume=volume.name)
        return self._new_source(claim, node, capacity)

    def remove(self, pod: Pod, node: int) -> None:
        self.attached.count(pod, node, -1, leaving=False)
        self.exclusive.count(pod, -1, leaving=False)
        if node == self._home(pod):
            self._give_back(pod, node, 1)
        for claim in self._claims(pod):
            source = self._sources.get(claim.key)
            if source is None or pod.key not in source.users:
                continue
            users = source.users - {pod.key}
            if users:
                self._sources[claim.key] = replace(source, users=users)
                continue
            del self._sources[claim.key]
            if source.volume is not None:
                self._volumes.take(source.volume, back=True)
            if source.capacity is not None:
                self._room[0][source.capacity] += claim.bytes

    def _leave(self, pod: Pod, sign: int) -> None:
        if pod.node is None or pod.status is PodStatus.RELEASING:
            return
        node = self.snapshot.node_index[pod.node]
        self.attached.count(pod, node, -sign, leaving=False)
        self.attached.count(pod, node, sign, leaving=True)
        self.exclusive.count(pod, -sign, leaving=False)
        self.exclusive.count(pod, sign, leaving=True)
        self._give_back(pod, node, sign)

    def _give_back(self, pod: Pod, node: int, sign: int) -> None:
        """With ``--schedule-csi-storage``, volumes that go away with the pod make capacity for new ones."""
        if not self.snapshot.policy.schedule_csi_storage:
            return
        for claim in self._claims(pod):
            if claim.volume and claim.owner_uid == pod.uid:
                self._room[1][self._capacities_of(claim, node)] += sign * claim.bytes

    def refusals(self, pod: Pod) -> str:
        reason = self.dead_end(pod)
        if reason or not pod.spec.volume_claims:
            return reason
        reasons, new = list[str](), self._new(pod)
        for claim, nodes in self._claim_nodes(pod, now=True):
            alone = self._new_nodes(claim, now=True) if claim in new else nodes
            refused = int(np.count_nonzero(~alone))
            if refused and claim.volume:
                reasons.append(f"volume {claim.volume} is not reached from {plural(refused, 'node')}")
            elif refused:
                size = f"{amount(STORAGE_NAME, claim.bytes)} of class {claim.storage_class}"
                where = plural(refused, "node")
                reasons.append(f"not enough free storage on {where} for claim {claim.key}: {size}")
        if not reasons and len(new) > 1:
            together = self._everywhere()
            self._accept(pod, together, now=True)
            if refused := int(np.count_nonzero(~together)):
                size = amount(STORAGE_NAME, sum(claim.bytes for claim in new))
                lacks = (
                    f"not enough free storage on {plural(refused, 'node')} for its {len(new)} claims: {size}"
                )
                reasons.append(SPENT if self._gave_up else lacks)
        full = int(np.count_nonzero(~self.attached.mask(pod, now=True)))
        if full:
            reasons.append(f"no more volumes can be attached to {plural(full, 'node')}")
        if not self.exclusive.free(pod, now=True):
            reasons.append("a ReadWriteOncePod volume claim is in use by another pod")
        return "; ".join(reasons)

    def rows(self, classes: Sequence[Pod], sizes: Sequence[int], nodes: Sequence[int]) -> Iterable[Row]:
        """Exact: pods enter nodes that their volumes reach, and those that share a volume that is yet to be
        made enter one node, unless it is for many. Relaxed: attach limits and capacities, for pods that are
        alone in their class (pods of one class share their claims, hence their volumes). ``place`` chooses
        the volumes."""
        sharing: dict[PodKey, list[int]] = {}
        for c, pod in enumerate(classes):
            reached = self._everywhere()
            for claim in self._claims(pod):
                reached &= self._reached(claim)
                known = claim.volume or claim.key in self._sources or self._volumes.suit(claim)
                if not known and not claim.for_many:
                    sharing.setdefault(claim.key, []).append(c)
            if out := {(c, node): 1 for node in nodes if not reached[node]}:
                yield Row(out, 0, name=NAME)
        for key, users in sharing.items():
            if (most := sum(sizes[c] for c in users)) > 1:
                for node in nodes:
                    yield Row({(c, node): 1 for c in users}, 0, name=NAME, chosen={(key, node): -most})
                yield Row({}, 1, name=NAME, chosen=dict.fromkeys(((key, node) for node in nodes), 1))
        staying = [(pod, node) for pod, node, leaving in holding(self.snapshot) if not leaving]
        yield from self.attached.rows(classes, sizes, nodes, staying)
        yield from self.exclusive.rows(classes, nodes, staying)
        alone = [(c, pod) for c, pod in enumerate(classes) if sizes[c] == 1]
        for i, capacity in enumerate(self.objects.capacities):
            entering = {
                (c, node): need
                for c, pod in alone
                for node in nodes
                if self._capacity_nodes(capacity)[node] and (need := self._drawn(pod, i, node))
            }
            if entering:
                leaving = {
                    pod.key: given
                    for pod, node in staying
                    if pod.key not in self.left and (given := self._returned(pod, node, i))
                }
                room = int(self._room[0][i] + self._room[1][i])
                yield Row(entering, max(room, 0), leaving, NAME)

    def _drawn(self, pod: Pod, capacity: int, node: int) -> int:
        """Bytes that the pod's own claims can take only from this capacity on a node."""
        total = 0
        for claim in self._claims(pod):
            placed = claim.volume or claim.key in self._sources
            if placed or not self._tracked(claim) or self._users[claim.key] > 1:
                continue
            if self._capacities_of(claim, node) == [capacity] and not self._volumes.left(claim):
                total += claim.bytes
        return total

    def _returned(self, pod: Pod, node: int, capacity: int) -> int:
        """Bytes of a capacity that come free when the pod leaves its node."""
        if not self.snapshot.policy.schedule_csi_storage:
            return 0
        owned = (claim for claim in self._claims(pod) if claim.volume and claim.owner_uid == pod.uid)
        return sum(claim.bytes for claim in owned if capacity in self._capacities_of(claim, node))

    def _capacities_of(self, claim: VolumeClaim, node: int) -> list[int]:
        """The capacities that a volume on a node may have been made from; the API does not say which one it
        was."""
        return [
            i
            for i, capacity in enumerate(self.objects.capacities)
            if capacity.storage_class == claim.storage_class and self._capacity_nodes(capacity)[node]
        ]


def _allowed(storage_class: StorageClass, labels: Mapping[str, str]) -> bool:
    """Whether a class may make volumes for a node with these labels."""
    terms = storage_class.topologies
    return not terms or any(all(labels.get(key) in values for key, values in term) for term in terms)
