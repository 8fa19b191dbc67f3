"""The least changes of one kind, as the model sees them: candidates for fixes, and a proof that less does not
help.

This is the model of ``feasibility``, with some of its rules broken at a cost: eviction units that a user
stops, pods that a user moves. The model is a relaxation of what the next cycle decides, so fewer changes than
its optimum never help; the engine decides whether a candidate helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from kai_cp_models.explain.blocking import Work, solver_for
from kai_cp_models.explain.cells import Leaver
from kai_cp_models.explain.families import kind_of
from kai_cp_models.explain.feasibility import Feasibility
from kai_cp_models.explain.question import Question
from kai_cp_models.explain.situation import Situation
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.joint.search import Linear
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey, Pod
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.solver import cp_model

_PODS: Final = 1_000_000_000
"""Cost of one pod, in milli-GPUs: fewest pods first, then fewest GPUs."""
_CHANGES: Final = frozenset(("fair-share", "order"))
"""Families that change when a pod is stopped."""


@dataclass(frozen=True, slots=True)
class PodChanges:
    """Pods to stop, or pods to move with the node of each. ``bound``: no fewer pods can help."""

    pods: tuple[Pod, ...]
    nodes: tuple[int, ...]
    bound: int


class Repair(Feasibility):
    """The model with units that may be stopped, or pods that may be moved, against all rules for victims."""

    def __init__(
        self, situation: Situation, group: PodGroup, kind: Literal["stop", "move"], *, bent: bool = False
    ) -> None:
        """``bent``: fair shares and the order may change as well, as they do when a pod is stopped."""
        self._kind_of_repair = kind
        self._stopped: dict[int, cp_model.IntVar] = {}
        """Per holder if every unit is modelled by itself, else per leaver."""
        self._shifted: dict[int, cp_model.IntVar] = {}
        super().__init__(Question(situation, group))
        changed = _CHANGES if bent else frozenset[str]()
        self.enforce(frozenset(f for f in self.literals if kind_of(f) not in changed))

    def _lose(self, u: int, lost: cp_model.IntVar) -> None:
        holder = self.holders[u]
        if self._kind_of_repair == "move" and not holder.placed_now:
            self.cp.add(lost == 0)
            return
        if self._kind_of_repair != "stop" or holder.placed_now:
            super()._lose(u, lost)
            return
        stopped = self.cp.new_bool_var(f"stopped[{u}]")
        self._stopped[u] = stopped
        self.cp.add_implication(stopped, lost)
        self.cp.add_bool_or([~lost, self.permit(holder.kept), stopped])

    def _lose_some(self, i: int, leaver: Leaver, lost: cp_model.IntVar) -> None:
        if self._kind_of_repair == "move" and not leaver.placed_now:
            self.cp.add(lost == 0)
            return
        if self._kind_of_repair != "stop" or leaver.placed_now:
            super()._lose_some(i, leaver, lost)
            return
        stopped = self.cp.new_int_var(0, leaver.count, f"stopped[{i}]")
        self._stopped[i] = stopped
        self.cp.add(stopped <= lost)
        self.cp.add(lost <= leaver.count * self.permit(leaver.kept) + stopped)

    def _may_move(self, i: int, leaver: Leaver, lost: cp_model.IntVar) -> cp_model.IntVar | None:
        if self._kind_of_repair != "move" or leaver.placed_now:
            return super()._may_move(i, leaver, lost)
        # Pods that the next cycle would move in addition count too, so it moves none.
        if leaver.fixed is None or has_devices(self.ledger, leaver.pods[0]):
            return None
        self._shifted[i] = self.cp.new_int_var(0, leaver.count, f"moved[{i}]")
        return self._shifted[i]

    def consolidated(self, j: int) -> Linear:
        moved = super().consolidated(j)
        return moved - self._shifted[j] if j in self._shifted else moved

    def candidates(self, work: Work, most: int) -> Iterator[PodChanges]:
        """Candidates, the least first; none if even the most changes do not suffice, or no work is left."""
        terms = self._terms()
        self.cp.minimize(sum(cost * var for var, cost, _ in terms))
        for _ in range(most):
            if work.left <= 0:
                return
            solver = solver_for(work.left)
            status = work.run(solver, self)
            if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                return
            found = self._read(solver)
            bound = max(0, int(solver.best_objective_bound)) // _PODS
            yield PodChanges(tuple(pod for pod, _ in found), tuple(node for _, node in found), bound)
            self._exclude(solver, [var for var, _, _ in terms])

    def _terms(self) -> list[tuple[cp_model.IntVar, int, int]]:
        """(variable, cost, most) of everything that costs."""
        found = []
        if self._kind_of_repair == "move":
            for i, var in self._shifted.items():
                leaver = self.cells.leavers[i]
                found.append((var, _PODS + milli_gpus(leaver.pods[0]), leaver.count))
            return found
        for i, var in self._stopped.items():
            if self.cells.exact:
                pods = self.holders[i].pods
                found.append((var, _PODS * len(pods) + sum(map(milli_gpus, pods)), 1))
            else:
                leaver = self.cells.leavers[i]
                found.append((var, _PODS + milli_gpus(leaver.pods[0]), leaver.count))
        return found

    def _read(self, solver: cp_model.CpSolver) -> list[tuple[Pod, int]]:
        if self._kind_of_repair == "move":
            return self._moves(solver)
        found: dict[GroupKey, int] = {}
        for i, var in self._stopped.items():
            count = solver.value(var)
            if not count:
                continue
            members = [i] if self.cells.exact else self.cells.leavers[i].holders[:count]
            for u in members:
                holder = self.holders[u]
                found[holder.group.key] = max(found.get(holder.group.key, -1), holder.chain)
        # Whole units, with the units that leave before them.
        return [
            (pod, -1)
            for holder in self.holders
            if holder.chain <= found.get(holder.group.key, -1)
            for pod in holder.pods
        ]

    def _moves(self, solver: cp_model.CpSolver) -> list[tuple[Pod, int]]:
        going: dict[int, list[int]] = {}
        for m, to in self.to.items():
            for n, var in to.items():
                nodes = self.cells.nodes[n]
                going.setdefault(m, []).extend(nodes[k % len(nodes)] for k in range(solver.value(var)))
        found = []
        for i, leaver in enumerate(self.cells.leavers):
            moved = self.moved[i]
            if moved is None or leaver.mover is None:
                continue
            count = solver.value(moved)
            shifted = solver.value(self._shifted[i]) if i in self._shifted else 0
            for k in range(count):
                node = going[leaver.mover].pop(0)
                if k < shifted:
                    found.append((leaver.pods[k], node))
        return found

    def _exclude(self, solver: cp_model.CpSolver, variables: list[cp_model.IntVar]) -> None:
        """Exclude this answer; larger ones may still help."""
        differs = []
        for var in variables:
            value = solver.value(var)
            other = self.cp.new_bool_var("")
            self.cp.add(var != value).only_enforce_if(other)
            differs.append(other)
        self.cp.add_bool_or(differs)


def has_devices(ledger: Ledger, pod: Pod) -> bool:
    """Whether a pod holds more than plain capacity on its node, so that no move of it is proposed."""
    spec = pod.spec
    return bool(spec.gpu.shares or spec.claims or spec.volume_claims or pod.numa_zones) or any(
        rule.name == "dra" and rule.concerns(pod) for rule in ledger.rules
    )
