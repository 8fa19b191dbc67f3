"""Rows of ``feasibility`` for stateful rules: devices, ports, neighbours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from kai_cp_models.explain.families import Family
from kai_cp_models.explain.variables import Variables, choices
from kai_cp_models.joint.search import Linear
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import Pod, PodKey
from kai_cp_models.rules.stateful.protocol import Row, RuleState
from kai_cp_models.solver import cp_model

_MASKED: Final = frozenset(("numa", "dra", "volumes"))
"""Rules whose rows allow more than the rule, and that never refuse because a pod left."""
_COUNTED: Final = frozenset(("kind-limit",))
"""Rules whose rows count what each leaving pod frees, whenever it was placed, and what each moved pod
takes."""
_NEIGHBOURS: Final = frozenset(("affinity",))
"""Rules by which a pod may need others beside it."""


class DeviceRows:
    """Adds the rows to a model."""

    def __init__(self, model: Variables) -> None:
        self.m = model

    def add(self) -> None:
        """Rows and masks of the stateful rules.

        They are computed twice: with the places of this cycle, which bind while no pod gives up such a place,
        and without them.
        """
        now = [j for j, leaver in enumerate(self.m.cells.leavers) if leaver.placed_now]
        states: list[tuple[Ledger, list[cp_model.IntVar]]] = [(self.m.situation.emptied, [])]
        if now and self.m.rules:
            still = self.m.cp.new_bool_var("places of this cycle stay")
            for j in now:
                self.m.cp.add(self.m.gone[j] == 0).only_enforce_if(still)
            states.append((self.m.ledger, [still]))
        for family, position in self.m.rules:
            for ledger, also in [(self.m.ledger, [])] if family in _COUNTED else states:
                self._rows_of(family, ledger, position, also)
            if family in _MASKED:
                self._masks_of(family, position)

    def _rows_of(
        self, family: Family, ledger: Ledger, position: int, also: Sequence[cp_model.IntVar]
    ) -> None:
        rule = ledger.rules[position]
        asked = [
            c for c, item in enumerate(self.m.classes) if rule.concerns(item.example) and not item.missing
        ]
        if not asked and family != "pdb":
            return
        entering: list[Sequence[Linear]] = [self.m.x[c] for c in asked]
        examples = [self.m.classes[c].example for c in asked]
        sizes = [self.m.classes[c].count for c in asked]
        beside = family in _NEIGHBOURS
        for to, pod, count in self._neighbours(rule, ledger) if beside else self._counted(family, rule):
            entering.append(to)
            examples.append(pod)
            sizes.append(count)
        nodes = [nodes[0] for nodes in self.m.cells.nodes]
        index = self.m.cells.leaver_of
        choices = defaultdict[Hashable, cp_model.IntVar](lambda: self.m.cp.new_bool_var("choice"))
        for row in rule.rows(examples, sizes, nodes):
            terms = [
                coefficient * entering[c][int(self.m.cells.of[node])]
                for (c, node), coefficient in row.entering.items()
                if c < len(asked) or coefficient < 0 or not beside
            ]
            terms += [coefficient * choices[name] for name, coefficient in row.chosen.items()]
            gives = self._gives(row, index)
            self.m.under(self.m.cp.add(sum(terms) - sum(gives) <= row.bound), family, also=also)

    def _neighbours(self, rule: RuleState, ledger: Ledger) -> Iterator[tuple[list[Linear], Pod, int]]:
        """How many equal pods are in each cell beside those that the rule knows, an example pod, and their
        total number: pods that move there, and pods that keep the places that this cycle gave them. Other
        pods may need these; their own needs are left out, which allows more than the rule does."""
        cells = range(len(self.m.cells.nodes))
        moving: dict[tuple[int, Hashable], list[Pod]] = {}
        for j, leaver in enumerate(self.m.cells.leavers):
            if not rule.concerns(leaver.pods[0]):
                continue
            kinds = {rule.identity(pod): pod for pod in leaver.pods}
            if leaver.placed_now and ledger is not self.m.ledger:
                kept = leaver.count - self.m.gone[j]
                for pod in kinds.values():
                    yield [kept if n == leaver.cell else 0 for n in cells], _needless(pod), leaver.count
            if leaver.mover is not None and leaver.mover in self.m.to:
                for kind, pod in kinds.items():
                    moving.setdefault((leaver.mover, kind), []).extend([pod] * leaver.count)
        for (mover, _), pods in moving.items():
            to = self.m.to[mover]
            yield [to.get(n, 0) for n in cells], _needless(pods[0]), len(pods)

    def _counted(self, family: Family, rule: RuleState) -> Iterator[tuple[list[Linear], Pod, int]]:
        """How many equal pods may move to each cell, an example pod, and their total number."""
        pods: dict[int, list[Pod]] = {}
        for leaver in self.m.cells.leavers if family in _COUNTED else ():
            if leaver.mover is not None and leaver.mover in self.m.to:
                pods.setdefault(leaver.mover, []).extend(leaver.pods)
        for mover, mine in pods.items():
            if rule.concerns(mine[0]) and len({rule.identity(pod) for pod in mine}) == 1:
                to = self.m.to[mover]
                yield [to.get(n, 0) for n in range(len(self.m.cells.nodes))], mine[0], len(mine)

    def _gives(self, row: Row, index: dict[PodKey, int]) -> list[Linear]:
        """What leaves in a row; for equal pods that are counted, the row assumes the most favourable ones."""
        by_leaver: dict[int, list[int]] = {}
        for key, coefficient in row.leaving.items():
            if key in index:
                by_leaver.setdefault(index[key], []).append(coefficient)
        found: list[Linear] = []
        for j, coefficients in by_leaver.items():
            whole = len(coefficients) == self.m.cells.leavers[j].count
            best = max(coefficients) if whole else max(0, max(coefficients))
            found.append(best * self.m.gone[j])
        return found

    def _masks_of(self, family: Family, position: int) -> None:
        """If a rule refuses a node although some kinds of leavers are gone, other pods have to leave as
        well."""
        leavers = self.m.cells.leavers
        concerned = self.m.situation.after.rules[position]
        movable = [j for j, leaver in enumerate(leavers) if concerned.concerns(leaver.pods[0])]
        for gone in choices(self.m.kind(j) for j in movable):
            ledger = self.m.situation.after.copy()
            rule = ledger.rules[position]
            for j in movable:
                if self.m.kind(j) in gone:
                    for pod in leavers[j].pods:
                        if pod.key in ledger.held:
                            rule.remove(pod, ledger.held[pod.key].node)
                        else:
                            rule.evict(pod)
            others = [self.m.gone[j] for j in movable if self.m.kind(j) not in gone]
            for c, item in enumerate(self.m.classes):
                if item.missing or not rule.concerns(item.example):
                    continue
                allowed = rule.mask(item.example, now=False)
                if allowed is None:
                    continue
                for n, nodes in enumerate(self.m.cells.nodes):
                    if not allowed[nodes[0]]:
                        row = self.m.cp.add(self.m.x[c][n] <= item.count * sum(others))
                        self.m.under(row, family)


def _needless(pod: Pod) -> Pod:
    """The pod without its own rules about neighbours."""
    return replace(pod, spec=replace(pod.spec, pod_affinity=(), pod_anti_affinity=()))
