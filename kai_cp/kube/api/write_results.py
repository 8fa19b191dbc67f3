"""Results of writing what a plan decided."""

from __future__ import annotations

from typing import Literal, NamedTuple

from kai_cp_models.plan import Decision

WriteOutcome = Literal["done", "conflict", "gone", "failed"]
"""*conflict*: the cluster had changed, and the next cycle sees that; *gone*: the pod or node no longer
exists.
"""


class WriteResult(NamedTuple):
    """The result of writing one decision."""

    decision: Decision
    outcome: WriteOutcome
    message: str = ""
