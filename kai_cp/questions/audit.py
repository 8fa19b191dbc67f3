"""Shows whether the cluster is fair now: queues that are owed, queues that borrow, and possible transfers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kai_cp.json_types import Document
from kai_cp.questions.question import SnapshotDetails, SnapshotQuestion
from kai_cp.questions.queues import path_of
from kai_cp.report.section import Section
from kai_cp.report.terminal import amount, gpus, plural
from kai_cp_models.reasons import NOT_FOR_SHARES


def ask(facts: SnapshotDetails) -> dict[str, Any]:
    """``audit/1``, in GPUs, after what was decided.

    ``pairs``: a queue that is owed (its smallest owed pod group needs ``gpus``, within its fair share) and a
    queue above its fair share that could give them. ``idleQuota``: quota that its queue neither uses nor
    waits to use.
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
        "idleQuota": list(_idle(leaves, after)),
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
    """Pairs of queues. Fair shares count below the lowest common ancestor, which divides what it has."""
    queues = {queue["name"]: queue for queue in facts.inspection["queues"]}
    waiting: dict[str, list[Document]] = {}
    for entry in facts.decisions["unscheduled"]:
        if entry["reason"] not in NOT_FOR_SHARES:
            waiting.setdefault(entry.get("queue") or "", []).append(entry)
    lenders = sorted(
        ((_excess(after[name]), name) for name in leaves if _excess(after[name]) > 0), reverse=True
    )
    for name, entries in sorted(waiting.items()):
        path = path_of(queues, name)
        for excess, lender in lenders:
            above = set(path_of(queues, lender))
            own = [at for at in path if at not in above]
            owed = [entry for entry in entries if own and _fits(after, own, entry)]
            if lender == name or not owed:
                continue
            least = min(owed, key=lambda entry: (entry.get("gpus") or 0, entry["podGroup"]))
            yield {
                "owed": name,
                "podGroup": least["podGroup"],
                "gpus": least.get("gpus") or 0,
                "borrows": lender,
                "aboveFairShare": excess,
                "enough": excess >= (least.get("gpus") or 0),
                "reason": least["reason"],
            }


def _fits(after: Mapping[str, Document], path: Sequence[str], entry: Document) -> bool:
    """Whether what a pod group needs is within the fair share of all these queues."""
    return all(_within(after.get(name), entry.get("gpus") or 0) for name in path)


def _within(queue: Document | None, gpus: float) -> bool:
    if queue is None:
        return False
    share = queue["fairShare"]["gpu"]
    return share is None or share < 0 or queue["allocatedAfter"]["gpu"] + gpus <= share + 1e-9


def _idle(leaves: Mapping[str, Document], after: Mapping[str, Document]) -> Iterator[Document]:
    for name, queue in sorted(leaves.items()):
        quota, used = queue["gpu"]["quota"], after[name]["allocatedAfter"]["gpu"]
        if quota > used and not queue["waitingPodGroups"]:
            yield {"queue": name, "quota": quota, "used": used, "idle": quota - used}


def headline(document: Document) -> str:
    """The headline of the answer."""
    owed = {pair["owed"] for pair in document["pairs"]}
    idle = sum(entry["idle"] for entry in document["idleQuota"])
    said = (
        f"{plural(len(owed), 'queue')} owed while others borrow"
        if owed
        else "no queue is owed while others borrow"
    )
    return f"{said}; {gpus(idle)} of quota idle."


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
            "Owed, and what borrows",
            ("Owed", "Smallest pod group", "GPUs", "Borrows", "Above fair share", "Would be", "Reason"),
            pairs,
            right=("GPUs", "Above fair share"),
            fixed=("Owed", "Smallest pod group", "Borrows"),
            drop=("Would be", "Reason"),
        ),
        Section(
            "Idle quota",
            ("Queue", "Quota", "Used", "Idle"),
            idle,
            right=("Quota", "Used", "Idle"),
            fixed=("Queue",),
        ),
    ]


AUDIT = SnapshotQuestion("pairs", "queue/{owed}", ask, headline, sections)
