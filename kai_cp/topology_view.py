"""``kai-cp topology``: the fabric of a snapshot as text, JSON or a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from kai_cp_models.devices.dra.amounts import is_gpu
from kai_cp_models.devices.dra.objects import slices
from kai_cp_models.ledger import Ledger
from kai_cp_models.snapshot import ACTIVE_USED, GPU, MILLI, SetAside, Snapshot
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

    A GPU is free when nobody holds it now, not even a pod that is going away; a shared one is held.
    """
    levels = {topology.name: topology.levels for topology in snapshot.topologies}
    return Report.of(tuple(_facts(snapshot)), levels)


@dataclass
class _DraGpus:
    """GPUs of one node that DRA hands out: how many are allocated, and what all of them say."""

    held: int = 0
    attributes: dict[str, str] | None = field(default=None)

    def add(self, attributes: Mapping[str, str], *, held: bool) -> None:
        """One more GPU; attributes in which GPUs differ are no attributes of the node."""
        self.held += held
        known = attributes if self.attributes is None else self.attributes
        self.attributes = {name: value for name, value in known.items() if attributes.get(name) == value}


def _facts(snapshot: Snapshot) -> Iterator[NodeFacts]:
    idle = Ledger.of(snapshot).idle[:, GPU] // MILLI
    dra = _dra_gpus(snapshot) if any(node.dra_gpus for node in snapshot.nodes) else {}
    for node, free in zip(snapshot.nodes, idle.tolist(), strict=True):
        gpus = node.allocatable[GPU] // MILLI
        found = dra.get(node.name, _DraGpus())
        left = min(max(free - found.held, 0), gpus)
        yield NodeFacts(node.name, node.labels, gpus, left, found.attributes or {})


def _dra_gpus(snapshot: Snapshot) -> dict[str, _DraGpus]:
    """By node. What cannot be read is in the snapshot's ``set_aside`` already."""
    ignored: list[SetAside] = []
    claims = snapshot.extras.get("raw", {}).get("resourceClaims", ())
    held = {
        device for found in claims for device in _allocated(_inside(_inside(found, "status"), "allocation"))
    }
    for pod in snapshot.pods:
        if pod.status in ACTIVE_USED:
            held |= {device for promised in pod.claim_allocations.values() for device in _allocated(promised)}
    nodes: dict[str, _DraGpus] = {}
    for device in slices(snapshot, ignored).devices:
        if device.node is not None and is_gpu(device.id.driver):
            attributes = {name: str(value) for (_, name), (_, value) in device.view.attributes}
            nodes.setdefault(device.node, _DraGpus()).add(attributes, held=tuple(device.id) in held)
    return nodes


def _allocated(allocation: Any) -> Iterator[tuple[str, str, str]]:
    """(driver, pool, device) of every device of an allocation."""
    results = _inside(_inside(allocation, "devices"), "results")
    for result in results if isinstance(results, list) else ():
        yield str(_inside(result, "driver")), str(_inside(result, "pool")), str(_inside(result, "device"))


def _inside(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None
