"""``defrag/1``: a frontier of defragmentation as JSON, and questions as users write them."""

from __future__ import annotations

import re
from typing import Any, Final

from kai_cp.instants import rfc3339
from kai_cp_models.defrag.frontier import Frontier, Point
from kai_cp_models.defrag.problem import Question
from kai_cp_models.snapshot import Snapshot

SCHEMA: Final = "defrag/1"
_GANG: Final = re.compile(r"gang=(\d{1,6})x(\d{1,4})(?:@(.+))?", re.ASCII)


class BadQuestion(ValueError):
    """A question that cannot be asked; the text says why."""


def question_of(snapshot: Snapshot, free: str | None, gang: str | None) -> Question:
    """The question of ``--free`` or ``--for``; free nodes where neither is given."""
    if free is not None and gang is not None:
        raise BadQuestion("--free and --for are two questions; ask one of them")
    if gang is not None:
        match = _GANG.fullmatch(gang)
        if match is None:
            raise BadQuestion(f"--for: {gang!r} is not gang=PxG or gang=PxG@LEVEL, such as gang=8x8@rack")
        pods, gpus = int(match[1]), int(match[2])
        if not pods or not gpus:
            raise BadQuestion(f"--for: {gang!r}: a gang has at least one pod of one GPU")
        return Question(_level(snapshot, match[3], "--for") if match[3] else "", pods, gpus)
    if free is None or free == "nodes":
        return Question()
    return Question(_level(snapshot, free, "--free"))


def _level(snapshot: Snapshot, name: str, option: str) -> str:
    """The node label that a level's label or alias means."""
    known: list[str] = []
    for topology in snapshot.topologies:
        if name in topology.levels:
            return name
        aliases = dict(topology.aliases)
        if name in aliases:
            return aliases[name]
        known += [*topology.levels, *aliases]
    some = f"; there are {', '.join(sorted(set(known)))}" if known else "; the snapshot has no Topology"
    raise BadQuestion(f"{option}: {name!r} is no level of a Topology{some}")


def to_json(found: Frontier) -> dict[str, Any]:
    """The document of a frontier."""
    return {
        "schema": SCHEMA,
        "now": rfc3339(found.now),
        "question": question_document(found.question),
        "already": found.already,
        "points": [_point(point) for point in found.points],
        "most": {
            "value": found.most,
            "proof": "proved" if found.proved else "not proved",
            "because": found.because,
        },
        "excluded": [{"podGroup": str(one.group), "reason": one.reason} for one in found.excluded],
        "seconds": round(found.seconds, 3),
    }


def question_document(question: Question) -> dict[str, Any]:
    """The question as the document has it."""
    if question.gang:
        return {"gang": {"pods": question.pods, "gpus": question.gpus, "level": question.level or None}}
    return {"free": question.level or "nodes"}


def in_words(question: Question) -> str:
    """What is asked for."""
    if question.gang:
        where = f" inside one {question.level}" if question.level else ""
        return f"free capacity for gangs of {question.pods} x {question.gpus} GPUs{where}"
    return f"free {question.level}" if question.level else "free nodes"


def _point(point: Point) -> dict[str, Any]:
    return {
        "value": point.value,
        "moves": point.moves,
        "groups": point.groups,
        "lostGpuHours": round(point.lost_gpu_hours, 3),
        "status": "OPTIMAL" if point.proved else "FEASIBLE",
        "bound": point.bound,
        "frees": list(point.frees),
        "plan": [
            {
                "step": move.step,
                "podGroup": str(move.group),
                "pod": str(move.pod),
                "from": move.source,
                "to": move.target,
            }
            for move in point.plan
        ],
    }
