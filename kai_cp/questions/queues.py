"""Who has what: quota, fair share, use, what is borrowed and what is owed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from kai_cp.questions.question import Document, Facts, Question
from kai_cp.report.section import Section
from kai_cp.report.terminal import amount, plural

NOT_FOR_SHARES: Final = frozenset(
    {
        *("NotReady", "SchedulingBackoff", "QueueDoesNotExist", "QueueNotLeaf", "DependencyMissing"),
        *("NoNodeAccepts", "ExceedsHardware", "OverLimit", "NonPreemptibleOverQuota"),
    }
)
"""Reasons of pod groups that no other distribution of the GPUs would help."""


def borrowed(used: float, quota: float) -> float:
    """GPUs above the quota; nothing where the quota is unlimited."""
    return 0.0 if quota < 0 else max(0.0, used - quota)


def ask(facts: Facts) -> dict[str, Any]:
    """``queues/1``: the tree, parents first, in GPUs; -1 is unlimited."""
    owed = waiting_and_owed(facts)
    found = []
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
            }
        )
    return {"schema": "queues/1", "now": facts.decisions["now"], "queues": found}


def waiting_and_owed(facts: Facts) -> dict[str, list[Document]]:
    """By leaf queue: pod groups that stay pending although what they need is within the fair share.

    Within that of the queue and of every queue above it, in GPUs, after what was decided.
    """
    queues = {queue["name"]: queue for queue in facts.inspection["queues"]}
    after = facts.decisions["queues"]
    found: dict[str, list[Document]] = {}
    for entry in facts.decisions["unscheduled"]:
        name = entry.get("queue") or ""
        path = path_of(queues, name)
        if entry["reason"] not in NOT_FOR_SHARES and path and fits(after, path, entry):
            found.setdefault(name, []).append(entry)
    return found


def fits(after: Mapping[str, Document], path: Sequence[str], entry: Document) -> bool:
    """Whether what a pod group needs is within the fair share of all these queues."""
    return all(_fits(after.get(name), entry.get("gpus") or 0) for name in path)


def path_of(queues: Mapping[str, Document], name: str | None) -> list[str]:
    """A queue and those above it, the lowest first."""
    path: list[str] = []
    while name is not None and name in queues and name not in path:
        path.append(name)
        name = queues[name].get("parent")
    return path


def _fits(queue: Document | None, gpus: float) -> bool:
    if queue is None:
        return False
    share = queue["fairShare"]["gpu"]
    return share is None or share < 0 or queue["allocatedAfter"]["gpu"] + gpus <= share + 1e-9


def headline(document: Document) -> str:
    """The line that answers."""
    queues = document["queues"]
    owed = sum(queue["owedPodGroups"] for queue in queues)
    lent = sum(queue["borrowed"] for queue in queues if queue["depth"] == 0)
    said = f"{plural(len(queues), 'queue')}; {amount(lent)} GPUs borrowed between the top ones"
    return f"{said}; {plural(owed, 'pod group')} owed and not served." if owed else f"{said}."


def sections(document: Document) -> list[Section]:
    """As tables."""
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
    numbers = ("Used", "Quota", "Fair share", "Limit", "Borrowed", "Waiting", "Owed")
    drop = ("Limit", "Waiting")
    return [Section("Queues, in GPUs", ("Queue", *numbers), rows, right=numbers, fixed=("Queue",), drop=drop)]


QUEUES = Question("queues", "queue/{queue}", ask, headline, sections)
