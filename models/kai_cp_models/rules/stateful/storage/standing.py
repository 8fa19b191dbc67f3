"""Existing volumes: which of them suit a claim, are left in the cycle, and are within reach of a node."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import merge
from itertools import islice
from operator import attrgetter

import numpy as np

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.pods import LabelSelector, NodeTerms, Requirement
from kai_cp_models.records.storage import Volume, VolumeClaim
from kai_cp_models.rules.stateful.nodes import places
from kai_cp_models.selectors import holds
from kai_cp_models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class _Shelf:
    """Volumes that suit claims which differ in size and selector alone, the smallest first.

    ``sizes``: [V] bytes. ``numbers``: [V] positions among all volumes. ``alone``: [V] the only node that
    reaches each, -1 where there is no such node. ``here``: by node, where those are that it alone reaches.
    ``shared``: [S] where those are that several nodes reach.
    """

    volumes: Sequence[Volume]
    sizes: Ints
    numbers: Ints
    alone: Ints
    here: Mapping[int, Sequence[int]]
    shared: Ints


class _Labelled:
    """Which volumes a selector selects, by columns of values: each claim may have a selector of its own."""

    def __init__(self, volumes: Iterable[Volume]) -> None:
        self._labels = [volume.labels for volume in volumes]
        self._known: dict[Requirement, Mask] = {}

    @cached_property
    def _values(self) -> Mapping[str, Mapping[str, Sequence[int]]]:
        """By key and value, where the volumes with this label are."""
        found: dict[str, dict[str, list[int]]] = {}
        for i, labels in enumerate(self._labels):
            for key, value in labels.items():
                found.setdefault(key, {}).setdefault(value, []).append(i)
        return found

    def selected(self, selector: LabelSelector) -> Mask:
        """[volume] which ones it selects."""
        found: Mask = np.ones(len(self._labels), dtype=bool)
        for need in selector.requirements:
            found &= self._having(need)
        return found

    def _having(self, need: Requirement) -> Mask:
        if need in self._known:
            return self._known[need]
        here, without = self._values.get(need.key, {}), holds(need, None)
        found = np.full(len(self._labels), without)
        # Where values are named, a label may have one for each volume.
        named = need.operator in ("In", "NotIn")
        values = need.values if named else [value for value in here if holds(need, value) != without]
        found[[i for value in values for i in here.get(value, ())]] = not without
        if not named:
            self._known[need] = found
        return found


class StandingVolumes:
    """The volumes of a snapshot; those that claims take in the cycle are not left."""

    def __init__(self, snapshot: Snapshot, volumes: Mapping[str, Volume]) -> None:
        self._snapshot = snapshot
        self._volumes = volumes
        self._numbers = {name: i for i, name in enumerate(volumes)}
        self._left: Mask = np.ones(len(volumes), dtype=bool)
        self._places: dict[NodeTerms | None, Sequence[int]] = {None: range(len(snapshot.nodes))}
        self._masks: dict[NodeTerms | None, Mask] = {}
        """Of volumes that several nodes reach."""
        self._shelves: dict[Hashable, _Shelf] = {}
        self._labelled, self._by_selector = _Labelled(volumes.values()), dict[LabelSelector, Mask]()
        self.reserved = {v.claim: v for v in volumes.values() if v.claim is not None}
        """By claim, the volume that is reserved for it or bound to it."""

    def copy(self) -> StandingVolumes:
        """An independent copy; what was looked up is shared."""
        found = copy(self)
        vars(found).update(_left=self._left.copy())
        return found

    def take(self, name: str, *, back: bool = False) -> None:
        """A claim takes the volume, or gives it ``back``."""
        self._left[self._numbers[name]] = back

    def nodes(self, volume: Volume) -> Mask:
        """[N] the nodes that can use a volume."""
        if (found := self._masks.get(volume.affinity)) is not None:
            return found
        here = self.places(volume)
        found = np.zeros(len(self._snapshot.nodes), dtype=bool)
        found[here] = True
        if len(here) > 1:
            self._masks[volume.affinity] = found
        return found

    def suit(self, claim: VolumeClaim) -> bool:
        """Whether there is one that the claim may be bound to."""
        return bool(self._shelf(claim)[1].any())

    def left(self, claim: VolumeClaim) -> list[Volume]:
        """Those that the claim may be bound to and that are left, the smallest first."""
        shelf, suiting = self._shelf(claim)
        return [shelf.volumes[i] for i in np.flatnonzero(suiting & self._left[shelf.numbers]).tolist()]

    def reached(self, claim: VolumeClaim, *, left: bool) -> Mask:
        """[N] the nodes that reach one to which the claim may be bound; ``left``: one that is left."""
        shelf, open_ = self._shelf(claim)
        if left:
            open_ = open_ & self._left[shelf.numbers]
        found = np.zeros(len(self._snapshot.nodes) + 1, dtype=bool)
        # The last one takes what no single node reaches.
        found[shelf.alone[open_]] = True
        mask: Mask = found[:-1]
        for i in shelf.shared[open_[shelf.shared]].tolist():
            if mask.all():
                break
            mask |= self.nodes(shelf.volumes[i])
        return mask

    def best(self, claim: VolumeClaim, nodes: Iterable[int], most: int) -> dict[int, list[Volume]]:
        """By node, the smallest of those that are left for the claim and that the node reaches."""
        shelf, suiting = self._shelf(claim)
        open_ = suiting & self._left[shelf.numbers]
        several = [(i, self.nodes(shelf.volumes[i])) for i in shelf.shared[open_[shelf.shared]].tolist()]
        found = {}
        for node in nodes:
            own = (i for i in shelf.here.get(node, ()) if open_[i])
            both = merge(own, (i for i, mask in several if mask[node]))
            found[node] = [shelf.volumes[i] for i in islice(both, most)]
        return found

    def places(self, volume: Volume) -> Sequence[int]:
        """Positions of the nodes that can use a volume."""
        found = self._places.get(volume.affinity)
        if found is None:
            found = self._places[volume.affinity] = places(self._snapshot, volume.affinity or ())
        return found

    def _shelf(self, claim: VolumeClaim) -> tuple[_Shelf, Mask]:
        """The shelf for a claim, and which of its volumes suit the claim; a reserved one alone."""
        kept = self.reserved.get(claim.key)
        asks: Hashable = claim.storage_class, claim.modes, claim.block
        if kept is not None:
            asks = claim.key
        if (shelf := self._shelves.get(asks)) is None:
            suits = replace(claim, bytes=0, selector=None).fits
            free = (v for v in self._volumes.values() if v.claim is None and suits(v))
            usable = (v for v in (free if kept is None else [kept]) if v.usable)
            shelf = self._shelves[asks] = self._made(sorted(usable, key=attrgetter("bytes", "name")))
        suiting: Mask = shelf.sizes >= (0 if kept is not None else claim.bytes)
        if kept is None and claim.selector is not None:
            suiting &= self._selected(claim.selector, shelf)
        return shelf, suiting

    def _selected(self, selector: LabelSelector, shelf: _Shelf) -> Mask:
        """[V] which volumes of the shelf have the labels that the selector needs."""
        if (found := self._by_selector.get(selector)) is None:
            found = self._by_selector[selector] = self._labelled.selected(selector)
        return found[shelf.numbers]

    def _made(self, volumes: Sequence[Volume]) -> _Shelf:
        reach = [self.places(volume) for volume in volumes]
        here: dict[int, list[int]] = {}
        for i, at in enumerate(reach):
            if len(at) == 1:
                here.setdefault(at[0], []).append(i)
        return _Shelf(
            volumes,
            np.array([volume.bytes for volume in volumes], dtype=np.int64),
            np.array([self._numbers[volume.name] for volume in volumes], dtype=np.int64),
            np.array([at[0] if len(at) == 1 else -1 for at in reach], dtype=np.int64),
            here,
            np.array([i for i, at in enumerate(reach) if len(at) > 1], dtype=np.int64),
        )
