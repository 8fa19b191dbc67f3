"""PodDisruptionBudgets as records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kai_cp_models.extras import Key
from kai_cp_models.pods import LabelSelector


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget.

    ``pods``: what it protects; None: nothing. ``allowed``: evictions by its status; None: to be counted from
    its pods.
    """

    namespace: str
    name: str
    pods: LabelSelector | None
    allowed: int | None
    minimum: str | int | None
    maximum: str | int | None


BUDGETS: Final[Key[tuple[DisruptionBudget, ...]]] = Key("budgets", ())
"""The budgets by namespace and name."""
