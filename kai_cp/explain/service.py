"""The worker's side of explain and what-if outside the command line: one task, one document."""

from __future__ import annotations

import contextlib
import os
from typing import Final

import orjson

from kai_cp import memory
from kai_cp.explain.cycle import Cycles
from kai_cp.explain.document import Explainer, document
from kai_cp.explain.draft import BadOperation, Draft
from kai_cp.explain.least import Least, targets_of
from kai_cp.explain.targets import asked_groups
from kai_cp.explain.tasks import ExplainTask, RefusedQuestion, WhatIfTask
from kai_cp.explain.whatif import whatif
from kai_cp.json_types import Object
from kai_cp_models.queries.why import Work

NICE: Final = 10


def answer(task: ExplainTask | WhatIfTask) -> bytes | RefusedQuestion:
    """A document as JSON text, or why there is none; takes at most ``limits.memory_bytes``."""
    memory.bound(task.settings.limits.memory_bytes)
    with contextlib.suppress(OSError):
        os.nice(max(0, NICE - os.nice(0)))
    try:
        return orjson.dumps(_explained(task) if isinstance(task, ExplainTask) else _answered(task))
    except BadOperation as problem:
        return RefusedQuestion(str(problem))
    except MemoryError:
        return RefusedQuestion("it would need more memory than is allowed")


def _explained(task: ExplainTask) -> Object:
    draft = Draft(orjson.loads(task.raw), task.now)
    explainer = Explainer(
        draft, task.settings, task.usage, task.budget, task.kinds, task.cheapest, task.deadline
    )
    keys = asked_groups(task.groups, explainer.draft.raw, explainer.decided.snapshot)
    return document(explainer, explainer.explain_all(keys), "")


def _answered(task: WhatIfTask) -> Object:
    question = task.question
    cycles = Cycles(task.settings, task.usage, task.deadline)
    most = int(question.get("most", 20))
    found, after = whatif(
        cycles,
        Draft(orjson.loads(task.raw), task.now),
        question.get("ops", []),
        settle=most if question.get("untilSettled") else None,
        bound=bool(question.get("bound")),
    )
    least = question.get("least")
    if least is not None:
        asked = Least.of(least["kind"], targets_of(str(least.get("for", "all")), after), most)
        cycles.work = Work(task.budget)
        found["least"] = asked.answer(cycles, after)
    return found
