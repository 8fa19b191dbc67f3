"""Which pods hold which claim, and which devices are in use: the accounting of the DRA state."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np

from kai_cp_models.records.devices import Counter
from kai_cp_models.rules.stateful.dra.catalog import Catalog
from kai_cp_models.rules.stateful.dra.results import Allocation
from kai_cp_models.rules.stateful.dra.search import FreeDevices
from kai_cp_models.rules.stateful.forked import Forked

ClaimKey = tuple[str, str]
_STAMPS: Final = itertools.count(1)
"""Every change of a node gets a number of its own, so that copies of a state may share caches."""


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """Use of one claim. Pods are named by UID.

    ``stay`` and ``leave`` use the allocation that the claim had before the cycle; ``joined`` uses the
    ``fresh`` one that this cycle gives it. Once all users of the old allocation leave or are ``gone``, the
    claim can be allocated again. Its old devices stay in use until the claim's controller removes the old
    allocation, as it does for a claim that had users and has none any more. Users that are gone count until
    they are struck off.
    """

    before: Allocation | None = None
    stay: frozenset[str] = frozenset()
    leave: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    fresh: Allocation | None = None
    joined: frozenset[str] = frozenset()

    @property
    def leaving(self) -> bool:
        """Whether the old allocation ends with the pods that are leaving or gone."""
        return self.before is not None and bool(self.leave or self.gone) and not self.stay

    def pinned(self, *, now: bool) -> Allocation | None:
        """The allocation that a further user would have to share; None: the claim is not bound to one."""
        if self.fresh is not None:
            return self.fresh
        return self.before if now or not self.leaving else None

    def users(self, *, now: bool) -> frozenset[str]:
        """UIDs of the pods that the claim is reserved for."""
        return self.stay | self.joined | self.gone | (self.leave if now else frozenset())


class Holdings(Forked):
    """Holdings of all claims and the devices in use, in the two layers *staying* and *leaving*."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._of: dict[ClaimKey, ClaimUse] = {}
        count = len(catalog.devices)
        self._held = (np.zeros(count, dtype=np.int32), np.zeros(count, dtype=np.int32))
        self._shares: dict[tuple[bool, int], tuple[tuple[tuple[tuple[str, str], Fraction], ...], ...]] = {}
        self._stamps = np.zeros(len(catalog.snapshot.nodes), dtype=np.int64)
        self._pools: dict[tuple[str, str], list[int]] = {}
        for i, device in enumerate(catalog.devices):
            if device.consumes:
                self._pools.setdefault(device.id[:2], []).append(i)

    def detach(self) -> None:
        """After a shallow copy, copy what changes."""
        self._of = dict(self._of)
        self._held = (self._held[0].copy(), self._held[1].copy())
        self._shares = dict(self._shares)
        self._stamps = self._stamps.copy()

    def of(self, key: ClaimKey) -> ClaimUse:
        """The use of a claim."""
        return self._of.get(key, ClaimUse())

    def set(self, key: ClaimKey, holding: ClaimUse) -> None:
        """Replace the use of a claim and account the difference."""
        before = self.of(key)
        self._account(before, -1)
        self._account(holding, 1)
        self._of[key] = holding

    def _account(self, holding: ClaimUse, sign: int) -> None:
        if holding.before is not None:
            self._use(holding.before, sign, leaving=holding.leaving)
        if holding.fresh is not None:
            self._use(holding.fresh, sign, leaving=False)

    def _use(self, allocation: Allocation, sign: int, *, leaving: bool) -> None:
        for share in allocation.shares:
            if share.admin:
                continue
            self._held[leaving][share.device] += sign
            if share.amounts is not None:
                shares = list(self._shares.get((leaving, share.device), ()))
                if sign > 0:
                    shares.append(share.amounts)
                else:
                    shares.remove(share.amounts)
                self._shares[leaving, share.device] = tuple(shares)
            self._touch(share.device)

    def _touch(self, device: int) -> None:
        node = int(self.catalog.node_of[device])
        if node >= 0:
            self._stamps[node] = next(_STAMPS)
        else:
            self._stamps[:] = next(_STAMPS)

    def stamp(self, node: int) -> int:
        """A number that changes with every change of what is in use on a node."""
        return int(self._stamps[node])

    def free(self, *, now: bool) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """[device] devices that no pod holds."""
        held = self._held[False] + self._held[True] if now else self._held[False]
        free: np.ndarray[tuple[int], np.dtype[np.bool_]] = held <= 0
        return free

    def room(self, candidates: Iterable[int], *, now: bool) -> FreeDevices:
        """Free devices and free counters after some devices and the counters of their pools are in use."""
        free = self.free(now=now)
        chosen = list(candidates)
        counters: dict[Counter, Fraction] = {}
        if self._pools:
            for pool in {self.catalog.devices[i].id[:2] for i in chosen}:
                for i in self._pools.get(pool, ()):
                    if not free[i]:
                        for counter, amount in self.catalog.devices[i].consumes:
                            counters[counter] = counters.get(counter, Fraction(0)) + amount
        shared: dict[int, dict[tuple[str, str], Fraction]] = {}
        for i in chosen:
            for leaving in (False, True) if now else (False,):
                for amounts in self._shares.get((leaving, i), ()):
                    used = shared.setdefault(i, {})
                    for name, amount in amounts:
                        used[name] = used.get(name, Fraction(0)) + amount
        return FreeDevices(frozenset(i for i in chosen if not free[i]), shared, counters)

    def fits_again(self, allocation: Allocation) -> bool:
        """Whether no other pod was promised what a leaving allocation uses."""
        room = self.room((share.device for share in allocation.shares if not share.admin), now=False)
        drawn = dict(room.counters)
        for share in allocation.shares:
            device = self.catalog.devices[share.device]
            if share.admin:
                continue
            if share.amounts is None and share.device in room.held:
                return False
            total, used = dict(device.view.capacity), room.shared.get(share.device, {})
            if any(
                used.get(name, Fraction(0)) + amount > total[name] for name, amount in share.amounts or ()
            ):
                return False
            if share.device not in room.held:
                for counter, amount in device.consumes:
                    drawn[counter] = drawn.get(counter, Fraction(0)) + amount
        return all(
            amount <= self.catalog.counters.get(counter, Fraction(0)) for counter, amount in drawn.items()
        )

    # --- pods come and go ------------------------------------------------------------------------

    def join(self, key: ClaimKey, uid: str, fresh: Allocation | None) -> None:
        """A placed pod uses the claim: a fresh allocation, or the one that pins it."""
        found = self.of(key)
        if fresh is not None:
            self.set(key, replace(found, fresh=fresh, joined=frozenset({uid})))
        elif found.fresh is not None:
            self.set(key, replace(found, joined=found.joined | {uid}))
        else:
            self.set(key, replace(found, stay=found.stay | {uid}))

    def part(self, key: ClaimKey, uid: str) -> None:
        """Undo ``join``."""
        found = self.of(key)
        if uid in found.joined:
            joined = found.joined - {uid}
            self.set(key, replace(found, joined=joined, fresh=found.fresh if joined else None))
        else:
            self.set(key, replace(found, stay=found.stay - {uid}))

    def leave(self, key: ClaimKey, uid: str) -> None:
        """A pod that used the claim before the cycle is leaving."""
        found = self.of(key)
        if uid in found.stay:
            self.set(key, replace(found, stay=found.stay - {uid}, leave=found.leave | {uid}))

    def come_back(self, key: ClaimKey, uid: str) -> None:
        """Undo ``leave``."""
        found = self.of(key)
        if uid in found.leave:
            self.set(key, replace(found, stay=found.stay | {uid}, leave=found.leave - {uid}))
