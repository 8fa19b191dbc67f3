"""Which devices of one node satisfy the open requests of a pod: depth-first, first fit, complete.

Devices are tried in the order of the slices, so the first free ones are taken where all are alike.
Alternatives of ``firstAvailable`` are tried in their order. Two free devices that no request, no
constraint and no counter can tell apart are tried once. The search gives up when the purse of its namespace
is empty, and then reports that the pod does not fit; the problem remembers that this proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf
from typing import Final, NamedTuple

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.quantity import Version
from kai_cp_models.records.devices import ALL, Constraint, Counter, Device, Wanted
from kai_cp_models.rules.stateful.dra.catalog import Catalog, capacity_of
from kai_cp_models.rules.stateful.purse import Purse

PICKS: Final = 50_000
"""Picks that the searches of a namespace may take in a cycle, beyond one for each device of a node. They take
about a tenth of a second."""
MAX_DEVICES: Final = 32
"""The most devices that one claim can be allocated (AllocationResultsMaxSize)."""


class Open(NamedTuple):
    """A request to be satisfied, and the claim (position) it belongs to."""

    claim: int
    alternatives: tuple[Wanted, ...]


class Pick(NamedTuple):
    """One device for a request; ``amounts``: what it takes of a shareable device, else None."""

    claim: int
    request: str
    device: int
    admin: bool
    amounts: tuple[tuple[tuple[str, str], Fraction], ...] | None


@dataclass
class FreeDevices:
    """The free devices of one node, what shareable devices hold, and the use of counters."""

    held: frozenset[int]
    shared: dict[int, dict[tuple[str, str], Fraction]]
    counters: dict[Counter, Fraction]


class _GaveUp(Exception):
    """The search took too many steps."""


class DeviceProblem:
    """The open requests of a pod and what is constant about them; the searches on all nodes share it."""

    def __init__(
        self,
        catalog: Catalog,
        requests: Sequence[Open],
        constraints: Sequence[tuple[int, Constraint]],
        purse: Purse,
    ) -> None:
        self.catalog = catalog
        self.purse = purse
        self.requests = tuple(requests)
        self._told: dict[tuple[int, str], Sequence[Constraint]] = {}
        self._constraints = tuple(constraints)
        self.options = tuple(
            tuple((w, catalog.satisfying(w)) for w in request.alternatives if catalog.usable(w))
            for request in requests
        )
        self._spoiling = {
            wanted: catalog.spoiling(wanted)
            for options in self.options
            for wanted, _ in options
            if wanted.mode == ALL
        }
        self.gave_up = False
        """Whether a search for this problem gave up."""
        self._kinds: dict[int, object] = {}
        self._attributes: dict[int, Mapping[tuple[str, str], object]] = {}
        self._solved: dict[tuple[object, ...], int | None] = {}
        """The answers by the devices of a node: how many picks the answer took; None: there is no answer."""
        shareable = np.array([device.view.shareable for device in catalog.devices], dtype=np.bool_)
        self._unshared = not any(
            wanted.admin or (fits & shareable).any() for options in self.options for wanted, fits in options
        )
        single = len(self.options) == 1 and len(self.options[0]) == 1
        self.plain = self._unshared and not catalog.counters
        """Whether a device is either free or not: no shares, no counters, no admin access."""
        self.counting = self.plain and single and not constraints
        """Whether counting free devices is enough: there is one plain request."""
        self.counting &= all(
            wanted.mode != ALL and wanted.count <= MAX_DEVICES
            for options in self.options
            for wanted, _ in options
        )

    def enough(self, free: Mask) -> Mask:
        """Nodes with enough free devices for each request alone; necessary, and often sufficient."""
        enough = np.ones(len(self.catalog.snapshot.nodes), dtype=np.bool_)
        for options in self.options:
            some = np.zeros_like(enough)
            for wanted, fits in options:
                usable = fits & free if self._unshared else fits
                some |= self.catalog.per_node(usable) >= (1 if wanted.mode == ALL else wanted.count)
            enough &= some
        return enough

    def short(self, candidates: Sequence[int], room: FreeDevices) -> bool:
        """Whether counting alone shows that a node's devices are too few for all requests together."""
        chosen = np.array(candidates, dtype=np.int64)
        free = np.array([device not in room.held for device in candidates], dtype=np.bool_)
        asked = []
        for options in self.options:
            if len(options) == 1 and not options[0][0].admin and options[0][0].mode != ALL and self._unshared:
                asked.append((options[0][0].count, options[0][1][chosen] & free))
        sets = {mask.tobytes(): mask for _, mask in asked}
        sets[b""] = np.logical_or.reduce([mask for _, mask in asked]) if asked else free
        return any(
            sum(count for count, mask in asked if not (mask & ~devices).any()) > np.count_nonzero(devices)
            for devices in sets.values()
        )

    def solvable(self, candidates: Sequence[int], room: FreeDevices) -> bool:
        """Whether the devices of a node satisfy all requests; equal nodes are solved once."""
        # For ``All`` a held device matters as well.
        look = tuple((self.kind(i), i in room.held) for i in candidates) if self.plain else None
        if look is None or look not in self._solved:
            search, steps = DeviceSearch(self, candidates, room), None
            if not self.short(candidates, room) and search.run() is not None:
                steps = search.steps
            if look is None:
                return steps is not None
            self._solved[look] = steps
        steps = self._solved[look]
        if steps is not None and steps > len(candidates) and self.purse.empty:
            # Choosing the devices again takes as long as the search did.
            self.gave_up, steps = True, None
        return steps is not None

    def spoilt(self, wanted: Wanted, candidates: Sequence[int]) -> bool:
        """Whether a request for all devices includes a device that it cannot have."""
        spoiling = self._spoiling.get(wanted)
        return spoiling is not None and bool(spoiling[list(candidates)].any())

    def constraints(self, claim: int, request: str) -> Sequence[Constraint]:
        """Those that apply to a request (``name`` or ``name/alternative``) of a claim."""
        found = self._told.get((claim, request))
        if found is None:
            mine = (one for c, one in self._constraints if c == claim)
            found = self._told[claim, request] = [one for one in mine if _covers(one, request)]
        return found

    def attributes(self, device: int) -> Mapping[tuple[str, str], object]:
        """The attributes of a device by name, for constraints; versions are compared as they are written."""
        found = self._attributes.get(device)
        if found is None:
            found = self._attributes[device] = {
                name: (kind, value.written if isinstance(value, Version) else value)
                for name, (kind, value) in self.catalog.devices[device].view.attributes
            }
        return found

    def kind(self, device: int) -> object:
        """A key that is equal for unshareable devices that are interchangeable when free."""
        if device not in self._kinds:
            found = self.catalog.devices[device]
            attributes = self.attributes(device)
            suits = tuple(bool(fits[device]) for options in self.options for _, fits in options)
            suits += tuple(bool(spoiling[device]) for spoiling in self._spoiling.values())
            told = tuple(attributes.get(constraint.attribute) for _, constraint in self._constraints)
            self._kinds[device] = device if found.view.shareable else (suits, told, found.consumes)
        return self._kinds[device]


@dataclass
class DeviceSearch:
    """One search; ``candidates`` are the devices that the node reaches, in order.

    ``barred``: devices that some claims, by their position, must not take.
    """

    problem: DeviceProblem
    candidates: Sequence[int]
    room: FreeDevices
    barred: Mapping[int, frozenset[int]] = field(default_factory=dict)
    _picks: list[Pick] = field(default_factory=list)
    _taken: set[int] = field(default_factory=set)
    steps: int = 0
    """Picks that were tried."""
    _most: float = inf

    @property
    def catalog(self) -> Catalog:
        """The devices of the cluster."""
        return self.problem.catalog

    def run(self, *, found: bool = False) -> tuple[Pick, ...] | None:
        """Picks for all requests, or None. ``found``: the same search had an answer before."""
        once, purse = len(self.candidates), self.problem.purse
        self._most = inf if found else once + max(purse.left, 0)
        try:
            return tuple(self._picks) if self._request(0) else None
        except _GaveUp:
            self.problem.gave_up = True
            return None
        finally:
            purse.spend(once, self.steps)

    def _request(self, i: int) -> bool:
        if i == len(self.problem.requests):
            return True
        claim = self.problem.requests[i].claim
        for wanted, fits in self.problem.options[i]:
            found = [device for device in self.candidates if fits[device]]
            count = len(found) if wanted.mode == ALL else wanted.count
            if self.problem.spoilt(wanted, self.candidates):
                continue
            given = sum(pick.claim == claim for pick in self._picks)
            most = min(len(found), MAX_DEVICES - given)
            if 0 < count <= most and self._devices(i, claim, wanted, found, 0, count=count):
                return True
        return False

    def _devices(
        self, i: int, claim: int, wanted: Wanted, found: Sequence[int], start: int, *, count: int
    ) -> bool:
        """Pick ``count`` more devices from ``found[start:]``, then go on with the next request."""
        if not count:
            return self._request(i + 1)
        failed = set()
        for j in range(start, len(found) - count + 1):
            device = found[j]
            free = device not in self.room.held and device not in self._taken
            takers = tuple(device in some for some in self.barred.values())
            kind = (self.problem.kind(device), takers) if free else device
            if kind in failed:
                continue
            pick = None
            if free or wanted.admin or self.catalog.devices[device].view.shareable:
                self.steps += 1
                if self.steps > self._most:
                    raise _GaveUp
                pick = self._pick(claim, wanted, device)
            if pick is not None:
                self._take(pick, 1)
                if self._devices(i, claim, wanted, found, j + 1, count=count - 1):
                    return True
                self._take(pick, -1)
                failed.add(kind)
            if wanted.mode == ALL:
                return False
        return False

    def _pick(self, claim: int, wanted: Wanted, device: int) -> Pick | None:
        """The device for the request, if it is free and the constraints hold."""
        if device in self.barred.get(claim, ()):
            return None
        found = self.catalog.devices[device]
        amounts = None
        if not wanted.admin:
            if found.view.shareable:
                amounts = shares(found, wanted)
                if amounts is None or not self._has_room(device, amounts):
                    return None
            elif device in self.room.held or device in self._taken:
                return None
            if not self._counters_allow(device):
                return None
        holds = all(self._holds(device, claim, each) for each in self.problem.constraints(claim, wanted.name))
        return Pick(claim, wanted.name, device, wanted.admin, amounts) if holds else None

    def _has_room(self, device: int, amounts: tuple[tuple[tuple[str, str], Fraction], ...]) -> bool:
        total, used = dict(self.catalog.devices[device].view.capacity), self.room.shared.get(device, {})
        return all(used.get(name, Fraction(0)) + amount <= total[name] for name, amount in amounts)

    def _counters_allow(self, device: int) -> bool:
        if device in self.room.held or device in self._taken:
            return True
        return all(
            self.room.counters.get(counter, Fraction(0)) + amount
            <= self.catalog.counters.get(counter, Fraction(0))
            for counter, amount in self.catalog.devices[device].consumes
        )

    def _holds(self, device: int, claim: int, constraint: Constraint) -> bool:
        name, told = constraint.attribute, self.problem.attributes
        value = told(device).get(name)
        others = [
            told(other.device).get(name)
            for other in self._picks
            if other.claim == claim and constraint in self.problem.constraints(claim, other.request)
        ]
        if value is None:
            return False
        return value not in others if constraint.distinct else all(value == other for other in others)

    def _take(self, pick: Pick, sign: int) -> None:
        """Account a pick (1) or take it back (-1)."""
        if sign > 0:
            self._picks.append(pick)
        else:
            self._picks.pop()
        if pick.admin:
            return
        for name, amount in pick.amounts or ():
            used = self.room.shared.setdefault(pick.device, {})
            used[name] = used.get(name, Fraction(0)) + sign * amount
        before = pick.device in self.room.held or any(
            other.device == pick.device and not other.admin
            for other in (self._picks[:-1] if sign > 0 else self._picks)
        )
        if before:
            return
        (self._taken.add if sign > 0 else self._taken.discard)(pick.device)
        for counter, amount in self.catalog.devices[pick.device].consumes:
            self.room.counters[counter] = self.room.counters.get(counter, Fraction(0)) + sign * amount


def shares(device: Device, wanted: Wanted) -> tuple[tuple[tuple[str, str], Fraction], ...] | None:
    """What an allocation takes of each capacity of a shareable device; None: not allowed.

    If no amount is asked for, it is the policy's default, or the whole capacity without a default. An amount
    that is asked for is rounded up to the next one that the policy allows.
    """
    asked = {capacity_of(device, name): amount for name, amount in wanted.capacity}
    taken = []
    for name, total in device.view.capacity:
        policy = device.policies.get(name)
        amount = asked.get(name)
        if amount is None:
            amount = policy.default if policy and policy.default is not None else total
        elif policy and policy.values:
            allowed = [value for value in policy.values if value >= amount]
            if not allowed:
                return None
            amount = allowed[0]
        elif policy and policy.minimum is not None:
            amount = max(amount, policy.minimum)
            if policy.step:
                amount = policy.minimum + -(-(amount - policy.minimum) // policy.step) * policy.step
            if policy.maximum is not None and amount > policy.maximum:
                return None
        taken.append((name, amount))
    return tuple(taken)


def _covers(constraint: Constraint, request: str) -> bool:
    """Whether a constraint applies to a request (``name`` or ``name/alternative``)."""
    names = constraint.requests
    return not names or request in names or request.partition("/")[0] in names
