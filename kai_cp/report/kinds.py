"""What queues hold of kinds of GPUs, as a section of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from kai_cp.report.section import Section
from kai_cp.report.terminal import amount


def by_kind(queues: Sequence[Mapping[str, Any]]) -> Section:
    """One row per queue and kind; empty if the option is off or no queue states bounds."""
    rows = []
    for queue in queues:
        for kind, of in queue.get("gpuKinds", {}).items():
            full = of["limit"] != -1 and of["allocated"] >= of["limit"]
            firm = of["quota"] != -1 and of["nonPreemptible"] >= of["quota"]
            rows.append(
                (
                    queue["name"],
                    kind,
                    Text(amount(of["allocated"]), style="yellow" if full else ""),
                    amount(of["limit"]),
                    Text(amount(of["nonPreemptible"]), style="yellow" if firm else ""),
                    amount(of["quota"]),
                )
            )
    numbers = ("Allocated", "Limit", "Non-preemptible", "Quota")
    columns = ("Queue", "Kind", *numbers)
    return Section("GPUs by kind", columns, rows, right=numbers, fixed=("Queue", "Kind"))
