"""``/get-job-order``: the order in which pod groups would be considered, without simulation (11.3)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kai_cp_models.queries.shares import fair_line
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot


def job_order(snapshot: Snapshot) -> dict[str, Any]:
    """The waiting pod groups in KAI's format, over all queues and by queue."""
    groups = snapshot.group_by_key
    everywhere: list[dict[str, Any]] = []
    by_queue: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for key in fair_line(snapshot, Settings()):
        entry = {"id": key.name, "priority": groups[key].priority}
        everywhere.append(entry)
        by_queue[groups[key].queue].append(entry)
    return {"global_order": everywhere, "queue_order": dict(by_queue)}
