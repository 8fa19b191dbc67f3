"""``defrag/1``: a frontier of defragmentation as JSON."""

from __future__ import annotations

from typing import Any, Final

from kai_cp.instants import rfc3339
from kai_cp_models.queries.moves import DefragQuestion, Frontier, Point

SCHEMA: Final = "defrag/1"


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


def question_document(question: DefragQuestion) -> dict[str, Any]:
    """The question as the document has it."""
    if question.gang:
        return {"gang": {"pods": question.pods, "gpus": question.gpus, "level": question.level}}
    return {"free": question.level or "nodes"}


def in_words(question: DefragQuestion) -> str:
    """What is asked for."""
    if question.gang:
        where = f" inside one {question.level}" if question.level else ""
        return f"free capacity for gangs of {question.pods} x {question.gpus} GPUs{where}"
    return f"free domains of level {question.level}" if question.level else "free nodes"


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
