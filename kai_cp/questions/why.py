"""Why a queue has what it has: its shares and those of its peers, at each level from the top down to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from kai_cp.json_types import Document
from kai_cp.questions import queues as listed
from kai_cp.questions.question import SnapshotDetails, SnapshotQuestion
from kai_cp.report.section import Section
from kai_cp.report.terminal import amount

_LEAST: Final = 0.001
"""Shares that differ by less than a thousandth of a GPU count as equal."""
_KEYS: Final = (
    *("queue", "parent", "quota", "limit", "priority"),
    *("overQuotaWeight", "fairShare", "used", "asked", "borrowed"),
)
"""The columns of a queue, in this order."""


def why(name: str) -> SnapshotQuestion:
    """The question about one queue, which the snapshot must have."""
    return SnapshotQuestion(
        "queues", "queue/{queue}", (*_KEYS, "because"), partial(_ask, name), _headline, _sections
    )


def _ask(name: str, facts: SnapshotDetails) -> dict[str, Any]:
    """``queue-why/1``, in GPUs; -1 is unlimited. On each level the queue on the path stands first."""
    queues = {queue["name"]: queue for queue in facts.inspection["queues"]}
    asked = _asked(facts.inspection, queues)
    lines = {}
    for row in listed.ask(facts)["queues"]:
        queue = queues[row["queue"]]
        more = {"priority": queue["priority"], "overQuotaWeight": queue["gpu"]["overQuotaWeight"]}
        whole = row | more | {"asked": asked[row["queue"]]}
        lines[row["queue"]] = {key: whole[key] for key in _KEYS}
    found = []
    for own in reversed(listed.path_of(queues, name)):
        mine = lines[own]
        found.append(mine | {"because": "this queue" if own == name else "above this queue"})
        others = (line for line in lines.values() if line["parent"] == mine["parent"] and line is not mine)
        found += [peer | {"because": because(mine, peer)} for peer in sorted(others, key=_largest_first)]
    return {"schema": "queue-why/1", "now": facts.decisions["now"], "queue": name, "queues": found}


def _largest_first(line: Document) -> tuple[bool, float, str]:
    """Order of peers: unlimited shares, then larger ones, then by name."""
    return line["fairShare"] >= 0, -line["fairShare"], line["queue"]


def _asked(inspection: Document, queues: Mapping[str, Document]) -> dict[str, float]:
    """What each queue holds, plus what waits below it."""
    found = {name: queue["gpu"]["allocated"] for name, queue in queues.items()}
    for entry in inspection["waiting"]:
        for name in listed.path_of(queues, entry["queue"]):
            found[name] += entry["gpus"]
    return found


def _within_quota(line: Document) -> float:
    """The part of its quota that a queue asks for. It belongs to the queue before anything is divided
    (3.2)."""
    asked: float = line["asked"]
    return asked if line["quota"] < 0 else min(line["quota"], asked)


def because(mine: Document, peer: Document) -> str:
    """Why a peer is due more than a queue, and what it holds beyond what it is due."""
    said = []
    if peer["fairShare"] > mine["fairShare"] + _LEAST:
        said.append(_larger_share(mine, peer))
    above = peer["used"] - peer["fairShare"]
    if peer["fairShare"] >= 0 and above > _LEAST:
        said.append(f"holds {amount(round(above, 3))} above its fair share, which can be reclaimed")
    return "; ".join(said) or "no larger fair share"


def _larger_share(mine: Document, peer: Document) -> str:
    """The first rule that makes a peer's fair share larger (3.2 to 3.4)."""
    own, theirs = _within_quota(mine), _within_quota(peer)
    if theirs > own + _LEAST:
        return f"{amount(theirs)} of what it asks for is within its quota, {amount(own)} here"
    if mine["limit"] >= 0 and mine["fairShare"] >= mine["limit"] - _LEAST:
        return f"{mine['queue']} is due all that its limit of {amount(mine['limit'])} allows"
    if mine["fairShare"] >= mine["asked"] - _LEAST:
        return f"{mine['queue']} is due all that it asks for"
    for key, words in (("priority", "queue priority"), ("overQuotaWeight", "over-quota weight")):
        if peer[key] > mine[key]:
            return f"its {words} is {amount(peer[key])}, {amount(mine[key])} here"
    return "what it has used before counts less (--usage), or what is left is not whole for both"


def _headline(document: Document) -> str:
    """The headline of the answer."""
    own = next(line for line in document["queues"] if line["queue"] == document["queue"])
    share, used, asked = own["fairShare"], own["used"], own["asked"]
    said = f"queue {own['queue']} holds {amount(used)} GPUs of a fair share of {amount(share)}"
    if 0 <= share < used - _LEAST:
        return f"{said}: other queues may reclaim {amount(round(used - share, 3))}."
    if asked > used + _LEAST:
        return f"{said}, and waits for {amount(round(asked - used, 3))} more."
    return f"{said}, and waits for nothing."


def _sections(document: Document) -> Sequence[Section]:
    """A table for each level: the queue itself first, then its peers, the largest share first."""
    columns = ("Queue", "Used", "Quota", "Fair share", "Limit", "Asks", "Priority", "Weight", "Because")
    levels: dict[str | None, list[Document]] = {}
    for line in document["queues"]:
        levels.setdefault(line["parent"], []).append(line)
    return [
        Section(
            f"{'Top level' if parent is None else f'Below {parent}'}, in GPUs",
            columns,
            [_row(line) for line in lines],
            right=columns[1:-1],
            fixed=("Queue",),
            note="Because",
            drop=("Weight", "Priority", "Limit"),
        )
        for parent, lines in levels.items()
    ]


def _row(line: Document) -> tuple[str, ...]:
    keys = ("used", "quota", "fairShare", "limit", "asked", "priority", "overQuotaWeight")
    return (line["queue"], *(amount(line[key]) for key in keys), line["because"])
