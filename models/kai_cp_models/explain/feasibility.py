"""Feasible(A): can the batch be placed when only the families in A are enforced? A CP-SAT model without an
objective.

Each family has one literal; a row that belongs to families is enforced only when all their literals hold. All
other rows are hard. The rows are those of the engine: masks of the static rules, rows and masks of the
stateful rules, limits, quotas, reclaim bounds, chains. Where a row allows more than its rule the model is a
relaxation, so *infeasible* is always a proof.
"""

from __future__ import annotations

from kai_cp_models.explain.capacity_rows import CapacityRows
from kai_cp_models.explain.cells import Cells
from kai_cp_models.explain.device_rows import DeviceRows
from kai_cp_models.explain.families import Families
from kai_cp_models.explain.policy_rows import PolicyRows
from kai_cp_models.explain.question import Question
from kai_cp_models.explain.variables import Variables
from kai_cp_models.solver import cp_model


class Feasibility(Variables):
    """The model of one waiting pod group; see the module's docstring."""

    def __init__(self, question: Question, cells: Cells | None = None) -> None:
        """``cells``: fewer, coarser cells than all."""
        super().__init__(question, cells)
        CapacityRows(self).add()
        PolicyRows(self).add()
        if not self.cells.summed:
            DeviceRows(self).add()

    def enforce(self, families: Families, *, one_action: bool = False) -> None:
        """Enforce these families and relax all others."""
        for family, literal in self.literals.items():
            self._fix(literal, family in families)
        self._fix(self.one_action, one_action)

    def _fix(self, literal: cp_model.IntVar, value: bool) -> None:
        domain = self.cp.proto.variables[literal.index].domain
        domain.clear()
        domain.extend([int(value), int(value)])
