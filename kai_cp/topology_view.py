"""``kai-cp topology``: the fabric of a snapshot as text, JSON or a picture."""

from __future__ import annotations

from typing import Literal

import orjson

from kai_cp.cli.output import as_yaml
from kai_cp.report.section import WHOLE, Shortening
from kai_cp_models.queries.cluster import hardware
from kai_cp_models.snapshot import Snapshot
from kai_cp_topology.draw import picture
from kai_cp_topology.report import Report, to_json, to_text

Format = Literal["table", "json", "yaml", "svg", "png"]


def topology_report(snapshot: Snapshot, fmt: Format, columns: int | None = None) -> str | bytes:
    """The trees of domains with free GPUs and the largest gang that still fits per level.

    ``table``, ``json`` and ``yaml`` give a string, ``svg`` and ``png`` the bytes of a file. ``columns``: of
    the terminal that shows the table; None: it is whole.
    """
    report = fabric(snapshot)
    match fmt:
        case "table":
            common = WHOLE if columns is None else Shortening.of((), tuple(report.nodes))
            return to_text(report, columns, common.suffix)
        case "json":
            return orjson.dumps(to_json(report), option=orjson.OPT_INDENT_2).decode() + "\n"
        case "yaml":
            return as_yaml([to_json(report)])
        case "svg" | "png":
            return picture(report, fmt)


def fabric(snapshot: Snapshot) -> Report:
    """The nodes with their GPUs, and the trees they form.

    A GPU is free when no pod holds it now, not even one that is going away; a shared one is held.
    """
    levels = {topology.name: topology.levels for topology in snapshot.topologies}
    return Report.of(tuple(hardware(snapshot)), levels)
