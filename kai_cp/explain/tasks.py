"""The tasks of the worker that explains, and the reasons to refuse one. Nothing here loads the solver.

Every question is bounded: in size before it is read, in operations and nodes before it is applied, in time
and memory by the worker that answers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import orjson

from kai_cp.explain.draft import BadOperation, nearest
from kai_cp.json_types import Object
from kai_cp.worker import Channel
from kai_cp_models.settings import Settings

MOST_CYCLES: Final = 100
_FIELDS: Final = ("ops", "untilSettled", "most", "least", "bound")


@dataclass(frozen=True, slots=True)
class ExplainTask:
    """Explain pod groups of a raw snapshot (JSON text) as of ``now``. ``cheapest``: with one fix at most.

    ``budget``: counted work, about seconds of an idle core. ``deadline``: value of ``time.monotonic()`` after
    which no further cycle begins, on a busy machine.
    """

    raw: bytes
    now: float
    settings: Settings
    groups: tuple[str, ...]
    usage: Mapping[str, Any] | None = None
    kinds: tuple[str, ...] | None = None
    budget: float = 10.0
    cheapest: bool = False
    deadline: float = inf


@dataclass(frozen=True, slots=True)
class WhatIfTask:
    """Answer what-if on a raw snapshot (JSON text) as of ``now``; ``question``: the body as JSON;
    ``budget`` and ``deadline`` as above."""

    raw: bytes
    now: float
    settings: Settings
    question: Object
    usage: Mapping[str, Any] | None = None
    budget: float = 30.0
    deadline: float = inf


@dataclass(frozen=True, slots=True)
class RefusedQuestion:
    """A sentence that says why there is no document."""

    sentence: str


def job(task: ExplainTask | WhatIfTask, channel: Channel) -> None:
    """The worker's side; it alone loads the solver."""
    from kai_cp.explain.service import answer

    channel.answer(answer(task))


def question_of(body: bytes) -> Object:
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
