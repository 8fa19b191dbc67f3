"""The JSON documents that commands write: what each key means. JSON Schemas are made from these types.

Within a number (``decisions/1``) a key is never removed and never changes meaning, unit or type; keys may be
added, so readers ignore what they do not know. A key that is not *required* may be absent. Anything else gets
the next number, and the old one is written on request for one minor version.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from kai_cp.documents import cycle, explained, objects, page, questions, space, starts

DOCUMENTS: Final[dict[str, Any]] = {
    "decisions/1": cycle.Decisions,
    "inspection/1": cycle.Inspection,
    "pending/1": questions.Pending,
    "queues/1": questions.Queues,
    "queue-why/1": questions.QueueWhy,
    "evictions/1": questions.Evictions,
    "audit/1": questions.Audit,
    "check/1": questions.CheckResult,
    "decision-diff/1": questions.DecisionDiff,
    "snapshot-diff/1": questions.SnapshotDiff,
    "explanation/1": explained.Explanation,
    "whatif/1": explained.WhatIf,
    "reservations/1": starts.Reservations,
    "defrag/1": space.Defrag,
    "topology/1": space.Topology,
    "migration/1": objects.Migration,
    "admission-verdict/1": objects.Verdict,
    "grouping/1": objects.Grouping,
    "view/1": page.View,
}
"""By name: the value of ``schema`` in each."""
BENCH: Final = "bench-result/1"
NAMES: Final = (*DOCUMENTS, BENCH)


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a document; ``bench-result/1``: one line of ``kai-cp bench --out``."""
    if name == BENCH:
        from kai_cp.bench.records import LINE

        made = LINE.json_schema()
    else:
        made = TypeAdapter(DOCUMENTS[name]).json_schema()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"kai-cp:{name}"}
    return {**head, **_lenient(made)}


def _lenient(part: Any) -> Any:
    """Without the ban on further keys, as keys may be added; our own tests keep it."""
    if isinstance(part, dict):
        return {k: _lenient(v) for k, v in part.items() if not (k == "additionalProperties" and v is False)}
    return [_lenient(entry) for entry in part] if isinstance(part, list) else part


def problems(name: str, document: Any) -> list[str]:
    """What of a document is not as its type says: path and sentence."""
    try:
        TypeAdapter(DOCUMENTS[name]).validate_python(document)
    except ValidationError as error:
        return [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)]
    return []
