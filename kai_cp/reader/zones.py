"""NodeResourceTopology objects (``topology.node.k8s.io``): zones and policy of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kai_cp.json_types import Json
from kai_cp.reader.fields import Malformed, name_at, objects_at, shown, text_at, texts_at
from kai_cp.reader.quantity import exact_quantity
from kai_cp_models.pods import MILLI
from kai_cp_models.records.zones import (
    BEST_EFFORT,
    NONE,
    RESTRICTED,
    SINGLE,
    NumaTopology,
    dimension,
    in_milli,
)

_MOST: Final = 2**60
"""Largest amount that is read."""
_OLD_POLICIES: Final = {"SingleNUMANode": SINGLE, "Restricted": RESTRICTED, "BestEffort": BEST_EFFORT}
"""First words of the deprecated ``topologyPolicies``; the rest says the scope."""


def read_topology(obj: Json, node: str) -> NumaTopology:
    """The NUMA topology of a node; raises ``Malformed``."""
    zones = [
        (f"zones[{i}]", zone)
        for i, zone in enumerate(objects_at(obj, "zones"))
        if zone.get("type", "Node") == "Node"
    ]
    if not zones:
        raise Malformed("zones", "it has no zones")
    policy, by_container = _policy(obj)
    resources: dict[str, str] = {}
    for where, zone in zones:
        for inner, entry in _resources(zone, where):
            name = name_at(entry, "name", inner)
            resources.setdefault(dimension(name), name)
    return NumaTopology(
        node=node,
        policy=policy,
        by_container=by_container,
        zones=tuple(name_at(zone, "name", where) for where, zone in zones),
        allocatable=tuple(_amounts(zone, "allocatable", where) for where, zone in zones),
        available=tuple(_amounts(zone, "available", where) for where, zone in zones),
        resources=resources,
    )


def _resources(zone: Json, where: str) -> Sequence[tuple[str, Json]]:
    entries = objects_at(zone, "resources", where)
    return [(f"{where}.resources[{i}]", entry) for i, entry in enumerate(entries)]


def _policy(obj: Json) -> tuple[str, bool]:
    attributes = {
        text_at(row, "name", f"attributes[{i}]"): text_at(row, "value", f"attributes[{i}]")
        for i, row in enumerate(objects_at(obj, "attributes"))
    }
    if attributes.get("topologyManagerPolicy"):
        return attributes["topologyManagerPolicy"], attributes.get("topologyManagerScope") == "container"
    for old in texts_at(obj, "topologyPolicies"):
        for start, policy in _OLD_POLICIES.items():
            if old.startswith(start):
                # Without a level in the name the kubelet's default scope applies.
                return policy, not old.endswith("PodLevel")
    return NONE, False


def _amounts(zone: Json, key: str, where: str) -> dict[str, int]:
    """Amounts by dimension; an amount that is not stated as available is the allocatable one."""
    found: dict[str, int] = {}
    for inner, entry in _resources(zone, where):
        name = dimension(name_at(entry, "name", inner))
        value = entry.get(key, entry.get("allocatable", "0"))
        amount = int(exact_quantity(value, f"{inner}.{key}") * (MILLI if in_milli(name) else 1))
        if abs(amount) > _MOST:
            raise Malformed(f"{inner}.{key}", f"{shown(value)} is too large")
        found[name] = found.get(name, 0) + amount
    return found
