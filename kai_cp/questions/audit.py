"""Shows whether the cluster is fair after a plan: queues that are owed, queues above their fair share, and
possible transfers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any, Final

from kai_cp.json_types import Document
from kai_cp.questions.question import SnapshotDetails, SnapshotQuestion
from kai_cp.report.section import Section
from kai_cp.report.terminal import amount, gpus
from kai_cp_models.shown import plural


def ask(facts: SnapshotDetails) -> dict[str, Any]:
    """``audit/1``, in GPUs, after the plan.

    ``pairs``: a queue that is owed and one above its fair share that could give. ``gpus``: what the smallest
    next batch of an owed pod group needs. ``idleQuota``: quota that its queue neither uses nor waits to use.
    """
    after = facts.decisions["queues"]
    leaves = {
        queue["name"]: queue
        for queue in facts.inspection["queues"]
        if queue["name"] in after and not _has_children(facts, queue["name"])
    }
    return {
        "schema": "audit/1",
        "now": facts.decisions["now"],
        "pairs": list(_pairs(facts, leaves, after)),
        "idleQuota": list(_idle(leaves, after, {one.get("queue") for one in facts.decisions["unscheduled"]})),
    }


def _has_children(facts: SnapshotDetails, name: str) -> bool:
    return any(queue.get("parent") == name for queue in facts.inspection["queues"])


def _excess(queue: Document) -> float:
    """GPUs above the fair share."""
    share = queue["fairShare"]["gpu"]
    return 0.0 if share is None or share < 0 else max(0.0, queue["allocatedAfter"]["gpu"] - share)


def _pairs(
    facts: SnapshotDetails, leaves: Mapping[str, Document], after: Mapping[str, Document]
) -> Iterator[Document]:
    """Pairs of queues. Fair shares are compared below the lowest common ancestor, which divides what it
    has."""
    entries = {entry["podGroup"]: entry for entry in facts.decisions["unscheduled"]}
    needs = {str(key): need.gpu for key, (_, need) in facts.owed.needs.items()}
    found = []
    for lender in leaves:
        excess = _excess(after[lender])
        for name, keys in facts.owed.by_queue(lender).items() if excess > 0 else ():
            least = min((str(key) for key in keys), key=lambda key: (needs[key], key))
            pair = {
                "owed": name,
                "podGroup": least,
                "gpus": needs[least],
                "borrows": lender,
                "aboveFairShare": excess,
                "enough": excess >= needs[least],
                "reason": entries[least]["reason"],
            }
            found.append(((name, -excess, lender), pair))
    return (pair for _, pair in sorted(found, key=lambda one: one[0]))


def _idle(
    leaves: Mapping[str, Document], after: Mapping[str, Document], waiting: Set[str | None]
) -> Iterator[Document]:
    for name, queue in sorted(leaves.items()):
        quota, used = queue["gpu"]["quota"], after[name]["allocatedAfter"]["gpu"]
        if quota > used and name not in waiting:
            yield {"queue": name, "quota": quota, "used": used, "idle": quota - used}


def headline(document: Document) -> str:
    """The headline of the answer."""
    owed = len({pair["owed"] for pair in document["pairs"]})
    idle = sum(entry["idle"] for entry in document["idleQuota"])
    queues = f"{plural(owed, 'queue')} are" if owed > 1 else f"{'1' if owed else 'no'} queue is"
    return (
        f"after the plan {queues} owed while others are above their fair share; {gpus(idle)} of quota idle."
    )


def sections(document: Document) -> list[Section]:
    """The answer as tables."""
    pairs = [
        (
            pair["owed"],
            pair["podGroup"],
            amount(pair["gpus"]),
            pair["borrows"],
            amount(pair["aboveFairShare"]),
            "enough" if pair["enough"] else "not enough alone",
            pair["reason"],
        )
        for pair in document["pairs"]
    ]
    idle = [
        (entry["queue"], amount(entry["quota"]), amount(entry["used"]), amount(entry["idle"]))
        for entry in document["idleQuota"]
    ]
    return [
        Section(
            "Owed, and queues above their fair share, after the plan",
            ("Owed", "Smallest pod group", "GPUs", "Other queue", "Above fair share", "Would be", "Reason"),
            pairs,
            right=("GPUs", "Above fair share"),
            fixed=("Owed", "Smallest pod group", "Other queue"),
            drop=("Would be", "Reason"),
        ),
        Section(
            "Idle quota, after the plan",
            ("Queue", "Quota", "Used", "Idle"),
            idle,
            right=("Quota", "Used", "Idle"),
            fixed=("Queue",),
        ),
    ]


_COLUMNS: Final = ("owed", "podGroup", "gpus", "borrows", "aboveFairShare", "enough", "reason")
AUDIT = SnapshotQuestion("pairs", "queue/{owed}", _COLUMNS, ask, headline, sections)
