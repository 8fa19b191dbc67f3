"""The devices that the cluster offers by node, and which of them satisfy a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Mask
from kai_cp_models.extras import Key
from kai_cp_models.pods import Toleration
from kai_cp_models.records.devices import (
    DEVICES,
    REFUSING,
    Claim,
    Device,
    DeviceClass,
    DeviceObjects,
    TaintRule,
    Wanted,
)
from kai_cp_models.records.judging import JUDGING, Paid
from kai_cp_models.rules.stateful.dra.judging import Account, Judge, TooCostly
from kai_cp_models.rules.stateful.nodes import selected
from kai_cp_models.snapshot import SetAside, Snapshot, Taint

IMPLICIT_RESOURCE: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that every device class has by its name."""


def catalog_of(snapshot: Snapshot) -> Catalog:
    """The snapshot's catalog: the one that it carries, if that was made from the same nodes and objects."""
    carried = snapshot.extras[CATALOG]
    if carried is not None and carried.made_of(snapshot):
        return carried
    return Catalog(snapshot)


class Catalog:
    """Parsed devices, classes and claims of a snapshot; constant through a cycle."""

    def __init__(self, snapshot: Snapshot) -> None:
        problems: list[SetAside] = []
        self.snapshot = snapshot
        objects = snapshot.extras[DEVICES] or DeviceObjects()
        self.classes = objects.classes
        judging = snapshot.extras[JUDGING]
        paid = judging.paid or Paid()
        self.judge = Judge([device.view for device in objects.devices], judging.limits, paid)
        self._bad_classes = {name: self.judge.problem(c.selectors) for name, c in self.classes.items()}
        self.devices: tuple[Device, ...] = self._ruled(objects, problems)
        self.counters = objects.counters
        self.index = {device.id: i for i, device in enumerate(self.devices)}
        where = snapshot.node_index
        self.node_of = np.array([where.get(device.node or "", -1) for device in self.devices], dtype=np.int64)
        self.local: dict[int, list[int]] = {}
        self.reach: dict[int, Mask] = {}
        for i, device in enumerate(self.devices):
            if self.node_of[i] >= 0:
                self.local.setdefault(int(self.node_of[i]), []).append(i)
            else:
                # The device's node does not exist (the slice may name nodes per device).
                anywhere = np.full(len(snapshot.nodes), device.node is None)
                chosen = selected(snapshot, device.selector)
                self.reach[i] = anywhere if chosen is None else chosen
        self.claims = objects.claims
        self._same_amounts = _alike([(d.id.driver, d.view.capacity) for d in self.devices])
        self._same_taints = _alike([d.taints for d in self.devices])
        self._refused: dict[Hashable, str] = {}
        self._problems: dict[tuple[str, ...], str] = {}
        self._judged = judging.judged
        self._suiting: dict[tuple[object, ...], Mask] = {}
        self._members: dict[str, Mask] = {}
        self._vectors: dict[Hashable, Mask] = {}
        self._taints: dict[tuple[Toleration, ...], Mask] = {}
        self.waiting = False
        """Whether claims wait for a later cycle because the selectors of other claims used all steps of this
        one."""
        self.dead = self._dead_claims()
        bad = ((f"DeviceClass {name}", reason) for name, reason in self._bad_classes.items() if reason)
        problems += [SetAside(*entry) for entry in bad]
        problems += [SetAside(f"ResourceClaim {'/'.join(key)}", reason) for key, reason in self.dead.items()]
        self.problems = tuple(problems)

    def _ruled(self, objects: DeviceObjects, problems: list[SetAside]) -> tuple[Device, ...]:
        """The devices with the taints that DeviceTaintRules add."""
        rules = []
        for rule in objects.taint_rules:
            if rule.taint.effect not in REFUSING:
                continue
            reason = self.judge.problem(rule.selectors)
            if rule.device_class and rule.device_class not in self.classes:
                reason = f"device class {rule.device_class} does not exist"
            elif rule.device_class:
                reason = reason or self._bad_classes[rule.device_class]
            if reason:
                problems.append(SetAside(f"DeviceTaintRule {rule.name}", reason))
            else:
                rules.append(rule)
        if not rules:
            return objects.devices
        chosen = [self._meant(rule, objects.devices) for rule in rules]
        return tuple(
            replace(device, taints=device.taints + added)
            if (added := tuple(rule.taint for rule, mask in zip(rules, chosen, strict=True) if mask[i]))
            else device
            for i, device in enumerate(objects.devices)
        )

    def _meant(self, rule: TaintRule, devices: Sequence[Device]) -> Mask:
        """[device] those that a rule taints."""
        wanted = (rule.driver, rule.pool, rule.device)
        named = (all(n in (None, own) for n, own in zip(wanted, d.id, strict=True)) for d in devices)
        chosen = rule.selectors + (self.classes[rule.device_class].selectors if rule.device_class else ())
        return self.judge.holding(chosen, among=np.fromiter(named, np.bool_, len(devices)))

    def made_of(self, snapshot: Snapshot) -> bool:
        """Whether the catalog was made from these nodes and objects."""
        mine, other = self.snapshot, snapshot
        return (
            mine.extras[DEVICES] is other.extras[DEVICES]
            and len(mine.nodes) == len(other.nodes)
            and all(
                a is b or (a.name == b.name and a.labels is b.labels)
                for a, b in zip(mine.nodes, other.nodes, strict=True)
            )
        )

    def _dead_claims(self) -> dict[tuple[str, str], str]:
        """Claims that cannot be allocated, and why. One of each namespace is judged at a time."""
        ranks: Counter[str] = Counter()
        order = []
        for key, found in sorted(self.claims.items()):
            ranks[key[0]] += 1
            order.append((ranks[key[0]], key, found))
        dead = {}
        for _, key, found in sorted(order, key=lambda entry: entry[:2]):
            reason = self._dead(found)
            if reason:
                dead[key] = reason
        return dead

    def _dead(self, found: Claim) -> str:
        """Why the claim cannot be allocated; "" if it can."""
        if found.allocation:
            return ""
        account = Account(self.judge, found.key[0])
        try:
            for wanted in chain.from_iterable(found.requests):
                if self._judged and wanted.selectors not in self._problems:
                    self._problems[wanted.selectors] = self.judge.problem(wanted.selectors, account)
            for alternatives in found.requests:
                reasons = [self._unusable(wanted, account) for wanted in alternatives]
                if all(reasons):
                    return reasons[0]
        except TooCostly as problem:
            self.waiting |= problem.later
            questions = map(_question, chain.from_iterable(found.requests))
            self._refused |= dict.fromkeys(questions, str(problem))
            return str(problem)
        return ""

    def _unusable(self, wanted: Wanted, account: Account | None = None) -> str:
        name = wanted.device_class
        if name not in self.classes:
            return f"device class {name} does not exist"
        if self._bad_classes[name]:
            return f"device class {name}: {self._bad_classes[name]}"
        question = _question(wanted)
        if not self._judged or question in self._vectors:
            return ""
        problem = self._problems.get(wanted.selectors, "")
        if account is None:
            # Selectors that a tenant wrote are never evaluated at the expense of others.
            return self._refused.get(question) or problem or ("not judged" if wanted.selectors else "")
        if not problem:
            self._matching(wanted, account)
        return problem

    def unknown(self, wanted: Wanted) -> bool:
        """Whether kai-cp cannot evaluate a selector of the request."""
        return bool(self._bad_classes.get(wanted.device_class) or self._problems.get(wanted.selectors))

    def usable(self, wanted: Wanted) -> bool:
        """Whether the request's class exists and all its selectors can be evaluated."""
        return not self._unusable(wanted)

    def satisfying(self, wanted: Wanted) -> Mask:
        """[device] devices that satisfy a request by class, selectors, taints and (unshared) capacity."""
        key = (wanted.device_class, wanted.selectors, wanted.tolerations, wanted.capacity)
        if key not in self._suiting:
            self._suiting[key] = self._matching(wanted) & ~self._tainted(wanted.tolerations)
        return self._suiting[key]

    def spoiling(self, wanted: Wanted) -> Mask:
        """[device] devices that a request for all devices includes but cannot have, because it does not
        tolerate a taint."""
        return self._matching(wanted) & self._tainted(wanted.tolerations)

    def _matching(self, wanted: Wanted, account: Account | None = None) -> Mask:
        question = _question(wanted)
        if question not in self._vectors:
            found = self._of_class(wanted.device_class)
            if wanted.capacity:
                first, same = self._same_amounts
                enough = [holds_capacity(self.devices[i], wanted.capacity) for i in first]
                found = found & np.array(enough, dtype=np.bool_)[same]
            self._vectors[question] = self.judge.holding(wanted.selectors, account, among=found)
        return self._vectors[question]

    def _of_class(self, name: str) -> Mask:
        """Devices that a class selects. No namespace pays for it, because no tenant writes classes."""
        if name not in self._members:
            self._members[name] = self.judge.holding(self.classes[name].selectors)
        return self._members[name]

    def _tainted(self, tolerations: tuple[Toleration, ...]) -> Mask:
        if tolerations not in self._taints:
            first, same = self._same_taints
            refused = [any(not _tolerated(t, tolerations) for t in self.devices[i].taints) for i in first]
            self._taints[tolerations] = np.array(refused, dtype=np.bool_)[same]
        return self._taints[tolerations]

    def reaches(self, device: int, node: int) -> bool:
        """Whether a node can use a device."""
        own = int(self.node_of[device])
        return own == node if own >= 0 else bool(self.reach[device][node])

    def reachable(self, node: int) -> list[int]:
        """Devices that a node can use, its own first."""
        return self.local.get(node, []) + [i for i, mask in self.reach.items() if mask[node]]

    def per_node(self, devices: Mask) -> NDArray[np.int64]:
        """How many devices of a set each node can use."""
        own = devices & (self.node_of >= 0)
        counts = np.bincount(self.node_of[own], minlength=len(self.snapshot.nodes)).astype(np.int64)
        for i, mask in self.reach.items():
            if devices[i]:
                counts += mask
        return counts

    def extended(self) -> Mapping[str, DeviceClass]:
        """Extended resources that device classes back, by resource name (2.5).

        Where two classes name the same resource the newer one counts, then the first by name.
        """
        found = {IMPLICIT_RESOURCE + name: c for name, c in sorted(self.classes.items())}
        for each in sorted(self.classes.values(), key=lambda c: c.name, reverse=True):
            name = each.extended_resource
            if name and (name not in found or found[name].created <= each.created):
                found[name] = each
        return found


CATALOG: Final[Key[Catalog | None]] = Key("dra", None)
"""The catalog that was made when the snapshot was read."""


def capacity_of(device: Device, name: str) -> tuple[str, str]:
    """Domain and name of a capacity that a request names with or without the domain."""
    domain, _, plain = name.rpartition("/")
    return (domain or device.id.driver, plain)


def holds_capacity(device: Device, needs: tuple[tuple[str, Fraction], ...]) -> bool:
    """Whether the whole device has the capacities that a request asks for."""
    have = dict(device.view.capacity)
    return all(have.get(capacity_of(device, name), Fraction(-1)) >= amount for name, amount in needs)


def _question(wanted: Wanted) -> Hashable:
    """The part of a request that decides which devices satisfy it, apart from taints."""
    return (wanted.device_class, wanted.selectors, wanted.capacity)


def _alike(values: Sequence[Hashable]) -> tuple[list[int], NDArray[np.int64]]:
    """The position of the first value of every set of equal values, and for each value the number of its
    set."""
    numbers: dict[Hashable, int] = {}
    first: list[int] = []
    same = np.empty(len(values), dtype=np.int64)
    for i, value in enumerate(values):
        if value not in numbers:
            numbers[value] = len(numbers)
            first.append(i)
        same[i] = numbers[value]
    return first, same


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return any(
        (not t.effect or t.effect == taint.effect)
        and (t.key == taint.key or (not t.key and t.operator == "Exists"))
        and (t.operator == "Exists" or t.value == taint.value)
        for t in tolerations
    )
