"""Explain and what-if for others than the command line: one task, one document, in a worker of its own.

Whatever is asked is bounded: in size before it is read, in operations and nodes before it is applied, in time
and memory by the worker that does it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from kai_cp.explain.cycle import Cycles
from kai_cp.explain.document import Explainer, document
from kai_cp.explain.draft import BadOperation, Draft, Json, nearest
from kai_cp.explain.fixes import ORDER
from kai_cp.explain.least import Least, targets_of
from kai_cp.explain.whatif import whatif
from kai_cp.worker import Channel
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import GroupKey

NICE: Final = 10
MOST_MEMORY_BYTES: Final = 8 * 1024**3
"""Address space of a worker; what needs more is refused."""
MOST_CYCLES: Final = 100
_FIELDS: Final = ("ops", "untilSettled", "most", "least", "bound")


@dataclass(frozen=True, slots=True)
class ExplainTask:
    """Explain pod groups of a raw snapshot (JSON text) as of ``now``."""

    raw: bytes
    now: float
    settings: Settings
    groups: tuple[str, ...]
    kinds: tuple[str, ...] = ORDER
    budget: float = 10.0


@dataclass(frozen=True, slots=True)
class WhatIfTask:
    """Answer what-if on a raw snapshot (JSON text) as of ``now``; ``question``: the body as JSON."""

    raw: bytes
    now: float
    settings: Settings
    question: Json
    budget: float = 30.0


@dataclass(frozen=True, slots=True)
class Refused:
    """A sentence why there is no document."""

    sentence: str


def job(task: ExplainTask | WhatIfTask, channel: Channel) -> None:
    """The worker's side: a document, or why there is none."""
    _restrain()
    try:
        if isinstance(task, ExplainTask):
            channel.answer(orjson.dumps(_explained(task)))
        else:
            channel.answer(orjson.dumps(_answered(task)))
    except BadOperation as problem:
        channel.answer(Refused(str(problem)))
    except MemoryError:
        channel.answer(Refused("it would need more memory than is allowed"))


def question_of(body: bytes) -> Json:
    """The question of a what-if body; raises ``BadOperation`` with a sentence."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as problem:
        raise BadOperation(f"the body is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise BadOperation("the body is not a JSON object")
    for name in found:
        if name not in _FIELDS:
            raise BadOperation(f"there is no field {name!r}{nearest(str(name), list(_FIELDS))}")
    ops = found.get("ops", [])
    if not isinstance(ops, list) or not all(isinstance(op, dict) for op in ops):
        raise BadOperation("ops is not a list of operations")
    most = found.get("most", 20)
    if not isinstance(most, int) or isinstance(most, bool) or not 0 < most <= MOST_CYCLES:
        raise BadOperation(f"most is not a whole number from 1 to {MOST_CYCLES}")
    least = found.get("least")
    if least is not None and not (isinstance(least, dict) and isinstance(least.get("kind"), str)):
        raise BadOperation('least is not an object such as {"kind": "nodes:n1", "for": "all"}')
    return found


def _restrain() -> None:
    with contextlib.suppress(OSError, ValueError):
        os.nice(max(0, NICE - os.nice(0)))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))


def _explained(task: ExplainTask) -> Json:
    explainer = Explainer(
        Draft(orjson.loads(task.raw), task.now), task.settings, budget=task.budget, kinds=task.kinds
    )
    keys = _keys(explainer, task.groups)
    return document(explainer, [explainer.explain(key) for key in keys], "")


def _keys(explainer: Explainer, names: Sequence[str]) -> list[GroupKey]:
    known: Mapping[GroupKey, Any] = explainer.decided.snapshot.group_by_key
    found = []
    for name in names:
        key = GroupKey(*name.split("/", 1)) if "/" in name else GroupKey("default", name)
        if key not in known:
            raise BadOperation(f"there is no podgroup {name}{nearest(name, list(map(str, known)))}")
        found.append(key)
    return found


def _answered(task: WhatIfTask) -> Json:
    question = task.question
    cycles = Cycles(task.settings)
    most = int(question.get("most", 20))
    found, changed, after = whatif(
        cycles,
        Draft(orjson.loads(task.raw), task.now),
        question.get("ops", []),
        settle=most if question.get("untilSettled") else None,
        bound=bool(question.get("bound")),
    )
    least = question.get("least")
    if least is not None:
        asked = Least.of(least["kind"], targets_of(str(least.get("for", "all")), after), most)
        cycles.deadline = time.monotonic() + task.budget
        found["least"] = asked.answer(cycles, changed, after)
    return found
