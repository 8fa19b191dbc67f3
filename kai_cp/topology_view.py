"""``kai-cp topology``: the fabric of a snapshot as text, JSON or a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import orjson

from kai_cp_models.queries import idle_gpus
from kai_cp_models.records.devices import DEVICES, DeviceId
from kai_cp_models.rules.stateful.dra.hardware import gpus_by_node, shared_attributes
from kai_cp_models.snapshot import ACTIVE_USED, GPU, MILLI, Snapshot
from kai_cp_topology.draw import picture
from kai_cp_topology.records import NodeFacts
from kai_cp_topology.report import Report, to_json, to_text

Format = Literal["text", "json", "svg", "png"]


def topology_report(snapshot: Snapshot, fmt: Format) -> str | bytes:
    """The trees of domains with free GPUs and the largest gang that still fits per level.

    ``text`` and ``json`` give a string, ``svg`` and ``png`` the bytes of a file.
    """
    report = fabric(snapshot)
    match fmt:
        case "text":
            return to_text(report)
        case "json":
            return orjson.dumps(to_json(report), option=orjson.OPT_INDENT_2).decode() + "\n"
        case "svg" | "png":
            return picture(report, fmt)


def fabric(snapshot: Snapshot) -> Report:
    """The nodes with their GPUs, and the trees they form.

    A GPU is free when no pod holds it now, not even one that is going away; a shared one is held.
    """
    levels = {topology.name: topology.levels for topology in snapshot.topologies}
    return Report.of(tuple(_facts(snapshot)), levels)


def _facts(snapshot: Snapshot) -> Iterator[NodeFacts]:
    dra = gpus_by_node(snapshot) if any(node.dra_gpus for node in snapshot.nodes) else {}
    held = _held(snapshot) if dra else frozenset()
    for node, free in zip(snapshot.nodes, idle_gpus(snapshot), strict=True):
        gpus = node.allocatable[GPU] // MILLI
        devices = dra.get(node.name, ())
        given = sum(device.id in held for device in devices)
        left = min(max(free - given, 0), gpus)
        yield NodeFacts(node.name, node.labels, gpus, left, shared_attributes(devices))


def _held(snapshot: Snapshot) -> frozenset[DeviceId]:
    """The devices that claims and running pods hold."""
    objects = snapshot.extras[DEVICES]
    allocations = [claim.allocation for claim in objects.claims.values()] if objects is not None else []
    for pod in snapshot.pods:
        if pod.status in ACTIVE_USED:
            allocations += pod.claim_allocations.values()
    return frozenset(row.device for found in allocations if found is not None for row in found.results)
