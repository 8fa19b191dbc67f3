"""``kai-cp topology``: the fabric of a snapshot as text, JSON or a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import orjson

from kai_cp_models.ledger import Ledger
from kai_cp_models.snapshot import GPU, MILLI, Snapshot
from kai_cp_topology.draw import picture
from kai_cp_topology.records import NodeFacts
from kai_cp_topology.report import Report, to_json, to_text

Format = Literal["text", "json", "svg", "png"]


def topology_report(snapshot: Snapshot, fmt: Format) -> str | bytes:
    """The trees of domains with free GPUs and the largest gang that still fits per level.

    A GPU is free when nobody holds it now, not even a pod that is going away. ``text`` and ``json`` give a
    string, ``svg`` and ``png`` the bytes of a file.
    """
    levels = {topology.name: topology.levels for topology in snapshot.topologies}
    report = Report.of(tuple(_facts(snapshot)), levels)
    match fmt:
        case "text":
            return to_text(report)
        case "json":
            return orjson.dumps(to_json(report), option=orjson.OPT_INDENT_2).decode() + "\n"
        case "svg" | "png":
            return picture(report, fmt)


def _facts(snapshot: Snapshot) -> Iterator[NodeFacts]:
    idle = Ledger.of(snapshot).idle[:, GPU] // MILLI
    for node, free in zip(snapshot.nodes, idle.tolist(), strict=True):
        gpus = node.allocatable[GPU] // MILLI
        yield NodeFacts(node.name, node.labels, gpus, min(max(free, 0), gpus))
