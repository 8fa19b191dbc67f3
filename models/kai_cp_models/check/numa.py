"""NUMA zones: a node whose Topology Manager refuses unaligned pods gets only aligned pods (6).

The plan states in ``numaZones`` in which zones it expects each pod. These amounts must add up to the pod's
request, lie in few enough zones, and fit there, in what they take, beside the other pods whose zones are
known. A pod that runs takes no more in all its zones than it asks for, whatever its annotation says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import combinations
from typing import Any

from kai_cp_models.check.planned_cluster import UNREADABLE, PlannedCluster, Resident, Violation, text_of
from kai_cp_models.pods import MILLI, Pod, PodKey
from kai_cp_models.quantity import exact
from kai_cp_models.records.zones import RESTRICTED, SINGLE, TOPOLOGIES, NumaTopology, dimension, in_milli

ZoneAmounts = dict[str, int]
ByZone = Mapping[str, Mapping[str, int]]


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Placed pods that are not aligned, and zones that are promised beyond their capacity."""
    if not world.snapshot.policy.plugin("numa"):
        return
    for found in world.snapshot.extras[TOPOLOGIES]:
        name = found.node
        if found.policy in (SINGLE, RESTRICTED) and world.arriving(name):
            yield from _node(world, name, found)


def _node(world: PlannedCluster, name: str, found: NumaTopology) -> Iterator[Violation]:
    empty = tuple(tuple(amounts.items()) for amounts in found.allocatable)
    listed = {dim for amounts in found.allocatable for dim in amounts}
    ignored = {dimension(n) for n in world.snapshot.policy.numa_ignore}
    predicted = dict[PodKey, ByZone]()
    for resident in world.arriving(name):
        pod = resident.pod
        try:
            given = predicted[pod.key] = _predicted(world.placed[pod.key].details)
        except UNREADABLE as problem:
            given = predicted[pod.key] = {}
            yield Violation(
                "zones",
                f"pod {pod.key} on node {name}: its numaZones cannot be read: {problem!r}",
                pods=(pod.key,),
            )
        for zone in sorted(given.keys() - set(found.zones)):
            yield Violation(
                "zones", f"pod {pod.key} on node {name}: the node has no zone {zone!r}", pods=(pod.key,)
            )
        wants = {
            dim: amount
            for dim, amount in _requests(world, pod).items()
            if dim in listed and dim not in ignored and (pod.spec.guaranteed or dim == "gpu" or "/" in dim)
        }
        if not wants:
            continue
        sums = {dim: sum(amounts.get(dim, 0) for amounts in given.values()) for dim in wants}
        if sums != wants:
            yield Violation(
                "zones",
                f"pod {pod.key} on node {name} wants {wants}, its zones {sorted(given)} give {sums}",
                pods=(pod.key,),
            )
        elif not found.by_container or len(pod.spec.container_requests) < 2:
            widest = 1 if found.policy == SINGLE or len(given) < 2 else _fewest(empty, tuple(wants.items()))
            if len(given) > widest:
                fault = f"spans {len(given)} zones, {found.policy} allows {widest}"
                yield Violation("zones", f"pod {pod.key} on node {name} {fault}", pods=(pod.key,))
    for when, residents in (("now", world.now(name)), ("in the end", world.end(name))):
        if when == "now" and name not in world.bound_nodes:
            continue
        zones = [(r, predicted[r.pod.key] if r.placed else _known(world, r.pod)) for r in residents]
        yield from _sums(world, name, when, zones, found)


def _sums(
    world: PlannedCluster, name: str, when: str, there: list[tuple[Resident, ByZone]], found: NumaTopology
) -> Iterator[Violation]:
    used: dict[str, ZoneAmounts] = {zone: {} for zone in found.zones}
    touched: set[tuple[str, str]] = set()
    for resident, zones in there:
        if resident.placed:
            touched |= {(zone, dim) for zone, given in zones.items() for dim, n in given.items() if n}
        _add(used, zones)
    room: dict[str, Mapping[str, int]] = dict(zip(found.zones, found.allocatable, strict=True))
    if not world.snapshot.policy.numa_reconstruct:
        # The amounts reported as available exclude what the pods there already use.
        reported = {zone: dict(amounts) for zone, amounts in zip(found.zones, found.available, strict=True)}
        for resident in world.before(name):
            _add(reported, _known(world, resident.pod))
        room = dict(reported)
    for zone, dim in sorted(touched):
        have = max(room.get(zone, {}).get(dim, 0), 0)
        if dim in room.get(zone, {}) and (amount := used[zone][dim]) > have:
            yield Violation(
                "zones", f"node {name} zone {zone} {when}: {dim} {amount} used of {have}", node=name
            )


def _add(into: dict[str, ZoneAmounts], zones: ByZone) -> None:
    for zone, amounts in zones.items():
        for dim, amount in amounts.items() if zone in into else ():
            into[zone][dim] = into[zone].get(dim, 0) + amount


@lru_cache(maxsize=4096)
def _fewest(empty: tuple[tuple[tuple[str, int], ...], ...], wants: tuple[tuple[str, int], ...]) -> int:
    """Zones that an empty node would need."""
    zones = [dict(amounts) for amounts in empty]
    for size in range(1, len(zones) + 1):
        for chosen in combinations(zones, size):
            if all(sum(zone.get(dim, 0) for zone in chosen) >= need for dim, need in wants):
                return size
    return 0


def _requests(world: PlannedCluster, pod: Pod) -> ZoneAmounts:
    return {dim: n for dim, n in zip(world.snapshot.dimensions, pod.spec.requests, strict=True) if n}


def _known(world: PlannedCluster, pod: Pod) -> ByZone:
    left, found = _requests(world, pod), dict[str, ZoneAmounts]()
    for zone, amounts in pod.numa_zones:
        for dim, amount in amounts:
            taken = found.setdefault(zone, {})[dim] = max(min(amount, left.get(dim, 0)), 0)
            left[dim] = left.get(dim, 0) - taken
    return found


def _predicted(details: Mapping[str, Any]) -> ByZone:
    """Zones in the decision; a moved pod's old zones are its old resident's. Raises one of ``UNREADABLE``."""
    entries = details.get("numaZones") or ()
    found = {text_of(entry["zone"]): _parsed(entry.get("amount") or {}) for entry in entries}
    if len(found) < len(entries):
        raise ValueError("a zone is named twice")
    return found


def _parsed(amounts: Mapping[str, Any]) -> ZoneAmounts:
    found: ZoneAmounts = {}
    for name, value in amounts.items():
        dim = dimension(name)
        found[dim] = found.get(dim, 0) + int(exact(str(value)) * (MILLI if in_milli(dim) else 1))
    if any(amount < 0 for amount in found.values()):
        raise ValueError("a negative amount")
    return found
