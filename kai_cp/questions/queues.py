"""Lists for each queue: quota, fair share, GPUs in use, GPUs borrowed, and what the plan leaves owed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.text import Text

from kai_cp.json_types import Document
from kai_cp.questions.question import SnapshotDetails, SnapshotQuestion
from kai_cp.report.kinds import by_kind
from kai_cp.report.section import Section
from kai_cp.report.terminal import amount, gpus
from kai_cp_models.shown import plural


def borrowed(used: float, quota: float) -> float:
    """GPUs above the quota; 0 if the quota is unlimited."""
    return 0.0 if quota < 0 else max(0.0, used - quota)


def path_of(queues: Mapping[str, Document], name: str | None) -> list[str]:
    """A queue and its ancestors, the lowest first."""
    path: list[str] = []
    while name is not None and name in queues and name not in path:
        path.append(name)
        name = queues[name].get("parent")
    return path


def ask(facts: SnapshotDetails) -> dict[str, Any]:
    """``queues/1``: the tree, parents first, in GPUs; -1 is unlimited."""
    found = []
    owed = facts.owed.by_queue()
    for queue in facts.inspection["queues"]:
        of = queue["gpu"]
        found.append(
            {
                "queue": queue["name"],
                "parent": queue.get("parent"),
                "depth": queue["depth"],
                "quota": of["quota"],
                "fairShare": of["fairShare"],
                "limit": of["limit"],
                "used": of["allocated"],
                "borrowed": borrowed(of["allocated"], of["quota"]),
                "waitingPodGroups": queue["waitingPodGroups"],
                "owedPodGroups": len(owed.get(queue["name"], ())),
                **({"gpuKinds": queue["gpuKinds"]} if "gpuKinds" in queue else {}),
            }
        )
    return {"schema": "queues/1", "now": facts.decisions["now"], "queues": found}


def headline(document: Document) -> str:
    """The headline of the answer."""
    queues = document["queues"]
    owed = sum(queue["owedPodGroups"] for queue in queues)
    lent = sum(queue["borrowed"] for queue in queues if queue["depth"] == 0)
    said = f"{plural(len(queues), 'queue')}; now {gpus(lent)} borrowed between top-level queues"
    left = f"{plural(owed, 'pod group')} {'is' if owed == 1 else 'are'} owed and not served"
    return f"{said}; after the plan {left}."


def sections(document: Document) -> list[Section]:
    """The answer as tables."""
    rows = [
        (
            "  " * queue["depth"] + queue["queue"],
            amount(queue["used"]),
            amount(queue["quota"]),
            amount(queue["fairShare"]),
            amount(queue["limit"]),
            Text(amount(queue["borrowed"]) if queue["borrowed"] else "", style="yellow"),
            str(queue["waitingPodGroups"] or ""),
            Text(str(queue["owedPodGroups"] or ""), style="red"),
        )
        for queue in document["queues"]
    ]
    numbers = ("Used", "Quota", "Fair share", "Limit", "Borrowed", "Waiting", "Owed after")
    drop = ("Limit", "Waiting")
    tree = Section("Queues, in GPUs", ("Queue", *numbers), rows, right=numbers, fixed=("Queue",), drop=drop)
    return [tree, by_kind([{**queue, "name": queue["queue"]} for queue in document["queues"]])]


_COLUMNS: Final = (
    *("queue", "parent", "depth", "quota", "fairShare"),
    *("limit", "used", "borrowed", "waitingPodGroups", "owedPodGroups"),
)
QUEUES = SnapshotQuestion("queues", "queue/{queue}", _COLUMNS, ask, headline, sections)
