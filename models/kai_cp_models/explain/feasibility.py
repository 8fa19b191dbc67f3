"""Feasible(A): can the batch be placed when only the families in A are enforced? A CP-SAT model, no goal.

One literal per family; a row that belongs to families is enforced only when all of their literals hold.
Everything else is hard. The rows are those of the engine: masks of the static rules, rows and masks of
the stateful rules, limits, quotas, reclaim bounds, chains. Where a row allows more than its rule the model is
a relaxation, so *infeasible* is always a proof.
"""

from __future__ import annotations

from kai_cp_models.explain.capacity_rows import CapacityRows
from kai_cp_models.explain.device_rows import DeviceRows
from kai_cp_models.explain.families import Families
from kai_cp_models.explain.policy_rows import PolicyRows
from kai_cp_models.explain.situation import Situation
from kai_cp_models.explain.variables import Variables
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.solver import cp_model
from kai_cp_models.units import Batch


class Feasibility(Variables):
    """The model of one waiting pod group; see the module's docstring."""

    def __init__(
        self,
        situation: Situation,
        group: PodGroup,
        batch: Batch | None,
        given: Families,
        *,
        most_cells: int | None = None,
    ) -> None:
        """``given``: families of ``TAKEN_AS_GIVEN`` that the group breaks.

        ``most_cells``: see ``partition``.
        """
        super().__init__(situation, group, batch, given, most_cells=most_cells)
        CapacityRows(self).add()
        PolicyRows(self).add()
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
