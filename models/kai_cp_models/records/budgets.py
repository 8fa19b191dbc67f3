"""PodDisruptionBudgets as records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kai_cp_models.extras import Key
from kai_cp_models.pods import LabelSelector, Pod
from kai_cp_models.selectors import selects


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget. ``allowed``: evictions by its status; None: to be counted from its pods."""

    namespace: str
    name: str
    pods: LabelSelector | None
    allowed: int | None
    minimum: str | int | None
    maximum: str | int | None

    def selects(self, pod: Pod) -> bool:
        """Whether the budget protects the pod; one without a selector protects none."""
        same = pod.key.namespace == self.namespace
        return same and selects(self.pods, pod.labels)


BUDGETS: Final[Key[tuple[DisruptionBudget, ...]]] = Key("budgets", ())
"""The budgets by namespace and name."""
