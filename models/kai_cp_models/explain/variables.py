"""The variables of ``feasibility``: what leaves, what moves where, what enters, and the literals of families.

Sets: classes c of the batch, cells n, leavers l, dimensions d. Variables: ``x[c,n]`` whole pods; ``y[c,n,d]``
pieces, equal to ``request * x`` when ``fragmentation`` is enforced; ``lost[l]`` and ``moved[l]`` pods that
leave; ``to[m,n]`` where movers go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import combinations, pairwise
from typing import Final

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.explain.ask import AskClass
from kai_cp_models.explain.cells import Cells, Leaver
from kai_cp_models.explain.families import TAKEN_AS_GIVEN, Families, Family
from kai_cp_models.explain.holders import VictimUnit, groups_of
from kai_cp_models.explain.question import Question
from kai_cp_models.joint.search import Linear
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GPU
from kai_cp_models.policy import EVICTION_ACTIONS
from kai_cp_models.solver import cp_model

_SERVED: Final[Families] = frozenset(("order",))
"""Keeps the places of groups that were served before."""
VariableKind = tuple[Families, Families | None, str | None]
"""The terms on which equal pods leave: what keeps them, what fixes them, the level that limits their loss."""
_MOST_KINDS: Final = 4
"""The most kinds of leavers for which every choice of leaving kinds has rows of its own."""


def choices(kinds: Iterable[VariableKind]) -> Iterator[frozenset[VariableKind]]:
    """Every choice of kinds that leave; if there are many kinds, only none of them and all of them."""
    known = sorted(set(kinds), key=str)
    sizes = range(len(known) + 1) if len(known) <= _MOST_KINDS else (0, len(known))
    for size in sizes:
        yield from map(frozenset, combinations(known, size))


class Variables:
    """Variables and literals of the model of one waiting pod group."""

    def __init__(self, question: Question, cells: Cells | None = None) -> None:
        """``cells``: fewer, coarser cells than all."""
        self.situation = question.situation
        self.group = question.group
        self.ledger: Ledger = question.ledger
        self.cp = cp_model.CpModel()
        self.literals: dict[Family, cp_model.IntVar] = {}
        self.batch = question.batch
        self.classes: list[AskClass] = question.classes
        self.free = self.ledger.free.copy()
        self.who = question.who
        self.holders: list[VictimUnit] = question.holders
        self.cells: Cells = question.cells if cells is None else cells
        self.rules = question.rules
        for family in sorted(question.given & TAKEN_AS_GIVEN):
            self.cp.add_bool_or([~self.literal(family)])
        self.one_action = self.cp.new_bool_var("one action")
        """One action makes all evictions and moves, as in a cycle (0.2): consolidation only moves, reclaim
        takes from other queues, preempt from the group's own."""
        self._acting = {name: self.cp.new_bool_var(f"acts: {name}") for name in EVICTION_ACTIONS}
        self.cp.add(sum(self._acting.values()) <= 1).only_enforce_if(self.one_action)
        self._acts: dict[tuple[int, Families], cp_model.IntVar] = {}
        self._permits: dict[Families, cp_model.IntVar] = {}
        self._leave()
        self._enter()
        self._move()

    def literal(self, family: Family) -> cp_model.IntVar:
        """Whether a family is enforced."""
        found = self.literals.get(family)
        if found is None:
            found = self.literals[family] = self.cp.new_bool_var(family)
        return found

    def under(
        self, row: cp_model.Constraint, *families: Family, also: Sequence[cp_model.LiteralT] = ()
    ) -> None:
        """Enforce a row only when all these families are enforced and ``also`` holds."""
        row.only_enforce_if([*(self.literal(family) for family in families), *also])

    def permit(self, families: Families) -> cp_model.IntVar:
        """A literal that may hold only when none of the families is enforced."""
        found = self._permits.get(families)
        if found is None:
            found = self.cp.new_bool_var(f"none of {', '.join(sorted(families))}")
            for family in sorted(families):
                self.cp.add_implication(found, ~self.literal(family))
            self._permits[families] = found
        return found

    def room(self, dimension: int) -> Family:
        """The family of the capacity in a dimension."""
        return f"room:{self.ledger.snapshot.dimensions[dimension]}"

    def _leave(self) -> None:
        cp = self.cp
        self.unit_lost: list[cp_model.IntVar] = []
        if self.cells.exact:
            self._units()
        self.lost: list[cp_model.IntVar] = []
        self.moved: list[cp_model.IntVar | None] = []
        for i, leaver in enumerate(self.cells.leavers):
            if self.cells.exact:
                lost = self.unit_lost[leaver.holders[0]]
            else:
                lost = cp.new_int_var(0, leaver.count, f"lost[{i}]")
                self._lose_some(i, leaver, lost)
            self.lost.append(lost)
            self.moved.append(self._may_move(i, leaver, lost))
            self._acted(i, leaver)

    def _acted(self, i: int, leaver: Leaver) -> None:
        """One action makes all evictions and moves; places of this cycle may change."""
        if leaver.placed_now and leaver.kept == _SERVED:
            return
        taking = self._acting["preempt" if leaver.own else "reclaim"]
        self.cp.add(self.lost[i] <= leaver.count * taking).only_enforce_if(self.one_action)
        moved = self.moved[i]
        if moved is None or leaver.placed_now:
            return
        assert leaver.fixed is not None
        taken = self._both(taking, leaver.kept)
        shifted = self._both(self._acting["consolidation"], leaver.fixed)
        self.cp.add(moved <= leaver.count * (taken + shifted)).only_enforce_if(self.one_action)

    def _both(self, acting: cp_model.IntVar, families: Families) -> cp_model.IntVar:
        """A literal that may hold only when the action acts and none of the families is enforced."""
        key = acting.index, families
        found = self._acts.get(key)
        if found is None:
            found = self._acts[key] = self.cp.new_bool_var("")
            self.cp.add_implication(found, acting)
            self.cp.add_implication(found, self.permit(families))
        return found

    def _units(self) -> None:
        """Whole eviction units; each leaves after the unit before it in its group (5.4)."""
        for u, holder in enumerate(self.holders):
            lost = self.cp.new_bool_var(f"lost[{holder.group.key},{holder.chain}]")
            self._lose(u, lost)
            self.unit_lost.append(lost)
        for members in groups_of(self.holders).values():
            for first, then in pairwise(members):
                self.cp.add_implication(self.unit_lost[then], self.unit_lost[first])

    def _lose(self, u: int, lost: cp_model.IntVar) -> None:
        """A unit leaves only when no enforced family keeps it."""
        self.cp.add_implication(lost, self.permit(self.holders[u].kept))

    def _lose_some(self, i: int, leaver: Leaver, lost: cp_model.IntVar) -> None:
        """Equal pods leave only when no enforced family keeps them."""
        self.cp.add(lost <= leaver.count * self.permit(leaver.kept))

    def _may_move(self, i: int, leaver: Leaver, lost: cp_model.IntVar) -> cp_model.IntVar | None:
        """A pod that may be evicted may also be moved, so that its queue does not lose it (4.4)."""
        if leaver.fixed is None:
            return None
        moved = self.cp.new_int_var(0, leaver.count, f"moved[{i}]")
        may = self.permit(leaver.fixed)
        if leaver.level is not None:
            may_lose = self.permit(leaver.kept)
            self.cp.add(moved <= leaver.count * (may + may_lose))
        else:
            self.cp.add(moved <= leaver.count * may)
        self.cp.add(lost + moved <= leaver.count)
        return moved

    @cached_property
    def gone(self) -> list[Linear]:
        """Pods of every leaver that go."""
        return [
            lost if moved is None else lost + moved for lost, moved in zip(self.lost, self.moved, strict=True)
        ]

    def _enter(self) -> None:
        self.x: list[list[cp_model.IntVar]] = []
        self.y: list[dict[int, list[cp_model.IntVar]]] = []
        for c, item in enumerate(self.classes):
            cells = range(len(self.cells.nodes))
            x = [self.cp.new_int_var(0, item.count, f"x[{c},{n}]") for n in cells]
            self.cp.add(sum(x) == item.count)
            self.x.append(x)
            y: dict[int, list[cp_model.IntVar]] = {}
            for d, asked in self.asked(item):
                y[d] = [self.cp.new_int_var(0, asked * item.count, f"y[{c},{d},{n}]") for n in cells]
                for n in cells:
                    self.under(self.cp.add(y[d][n] == asked * x[n]), "fragmentation")
                self.cp.add(sum(y[d]) == asked * item.count)
            self.y.append(y)
            for family, refused in item.refused.items():
                self.refuse(c, refused, family)

    def asked(self, item: AskClass) -> list[tuple[int, int]]:
        """(dimension, amount) of one pod, GPUs in parts."""
        found = []
        for d, asked in enumerate(item.example.spec.requests):
            amount = item.milli_gpus(self.ledger) if d == GPU else asked
            if amount:
                found.append((d, amount))
        return found

    def refuse(self, c: int, refused: Mask, *families: Family) -> None:
        """Nodes ``refused`` [N] take neither pods nor pieces of a class while the families are enforced."""
        for n, nodes in enumerate(self.cells.nodes):
            if refused[nodes[0]]:
                for var in self.of_class(c, n):
                    self.under(self.cp.add(var == 0), *families)

    def of_class(self, c: int, n: int) -> list[cp_model.IntVar]:
        """What a class has on a cell: pods, and pieces by dimension."""
        return [self.x[c][n], *(y[n] for y in self.y[c].values())]

    def _move(self) -> None:
        """Each moved pod has another place; it is placed whole, and under all its own rules."""
        terms: dict[int, list[cp_model.IntVar]] = {}
        most: dict[int, int] = {}
        for leaver, moved in zip(self.cells.leavers, self.moved, strict=True):
            if moved is not None and leaver.mover is not None:
                terms.setdefault(leaver.mover, []).append(moved)
                most[leaver.mover] = most.get(leaver.mover, 0) + leaver.count
        self.to: dict[int, dict[int, cp_model.IntVar]] = {}
        for m, mine in terms.items():
            mask = self.cells.movers[m].mask
            cells = [n for n in np.unique(self.cells.of[mask]).tolist() if n >= 0]
            self.to[m] = {n: self.cp.new_int_var(0, most[m], f"to[{m},{n}]") for n in cells}
            self.cp.add(sum(self.to[m].values()) == sum(mine))

    def consolidated(self, j: int) -> Linear:
        """Pods of a leaver that the cycle itself moves."""
        moved = self.moved[j]
        return 0 if moved is None else moved

    def kind(self, i: int) -> VariableKind:
        """The terms on which a leaver may leave."""
        leaver = self.cells.leavers[i]
        return leaver.kept, leaver.fixed, leaver.level
