"""Rows of ``feasibility`` about topology (8.3), limits, quotas (3.7), reclaim bounds (4.4), moves (4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from kai_cp_models.arrays import Ints
from kai_cp_models.explain.variables import Variables
from kai_cp_models.fairness import amounts
from kai_cp_models.joint.search import Linear
from kai_cp_models.pods import ACTIVE_ALLOCATED, UNLIMITED, GroupKey, Pod
from kai_cp_models.snapshot import Subgroup
from kai_cp_models.solver import cp_model

_PARTS: Final = 5_040
"""Parts in which pod groups that move in part are counted: any number up to ten divides it."""


class PolicyRows:
    """Adds the rows to a model. ``chosen[s,k]``: the domain k of a constrained subgroup s."""

    def __init__(self, model: Variables) -> None:
        self.m = model

    def add(self) -> None:
        """All rows of this subject."""
        if self.m.cells.extent != "sum":
            self._topology()
        self._queues()
        self._reclaim_bounds()
        self._consolidation()

    def _topology(self) -> None:
        chosen: dict[str, dict[int, cp_model.IntVar]] = {}
        for c, item in enumerate(self.m.classes):
            for scope in item.scopes:
                inside, domain = self.m.ledger.fixed.table.domains_of(scope)
                if not inside.all():
                    self.m.refuse(c, ~inside, "topology")
                if domain is None:
                    continue
                if scope.name not in chosen:
                    chosen[scope.name] = self._chosen(scope, domain)
                for n, nodes in enumerate(self.m.cells.nodes):
                    literal = chosen[scope.name].get(int(domain[nodes[0]]))
                    for var in self.m.of_class(c, n):
                        row = self.m.cp.add(var == 0)
                        self.m.under(row, "topology", also=() if literal is None else (~literal,))

    def _chosen(self, scope: Subgroup, domain: Ints) -> dict[int, cp_model.IntVar]:
        """A constrained subgroup has one domain: that of its running pods, if any run (8.3)."""
        gang = self.m.situation.gang(self.m.group.key)
        allowed = {int(k) for k in np.unique(domain[domain >= 0])}
        started = {
            int(domain[place[0]])
            for pod in gang.pods_below(scope)
            if self.m.ledger.status(pod) in ACTIVE_ALLOCATED
            and (place := self.m.ledger.place_of(pod)) is not None
        }
        allowed &= started or allowed
        found = {k: self.m.cp.new_bool_var(f"chosen[{scope.name},{k}]") for k in sorted(allowed)}
        self.m.cp.add_at_most_one(found.values())
        return found

    def _queues(self) -> None:
        """Limits, and quotas for pods that cannot be preempted, on the queue's path (3.7)."""
        book, snapshot = self.m.ledger.book, self.m.ledger.snapshot
        if self.m.group.queue not in snapshot.queue_by_name:
            return
        pods = (
            self.m.batch.all_pods if self.m.batch is not None else [item.example for item in self.m.classes]
        )
        size = amounts.optimistic_batch(snapshot, pods)
        for i in book.line(self.m.group.queue):
            below = [j for j, leaver in enumerate(self.m.cells.leavers) if book.name(i) in leaver.below]
            for r in range(3):
                limit, held = book.limit[i][r], book.held[i][r]
                if size[r] and limit != UNLIMITED and held + size[r] > limit:
                    gives = [self.m.cells.leavers[j].holds[r] * self.m.lost[j] for j in below]
                    row = self.m.cp.add(held + size[r] - sum(gives) <= limit)
                    self.m.under(row, f"limit:{book.name(i)}")
        if not self.m.group.preemptible:
            self._quotas(pods, size)

    def _quotas(self, pods: Sequence[Pod], size: amounts.Amounts) -> None:
        """Quotas (3.7); they lend to a rollout only where nothing is disturbed for it (3.8)."""
        book = self.m.ledger.book
        lent = self.m.ledger.lent(pods, size)
        for i in book.line(self.m.group.queue):
            below = [j for j, leaver in enumerate(self.m.cells.leavers) if book.name(i) in leaver.below]
            free = amounts.NOTHING if lent is None else lent.by_queue.get(book.name(i), amounts.NOTHING)
            for r in range(3):
                quota, wanted = book.firm_quota[i][r], book.firm[i][r] + size[r]
                if not size[r] or quota == UNLIMITED or wanted <= quota:
                    continue
                gives = [
                    self.m.cells.leavers[j].holds[r] * self.m.lost[j]
                    for j in below
                    if not self.m.holders[self.m.cells.leavers[j].holders[0]].group.preemptible
                ]
                row = self.m.cp.add(wanted - free[r] - sum(gives) <= quota)
                self.m.under(row, f"quota:{book.name(i)}")
                if free[r]:
                    row = self.m.cp.add(wanted - sum(gives) <= quota)
                    self.m.under(row, f"quota:{book.name(i)}", also=(self._disturbed,))

    @cached_property
    def _disturbed(self) -> cp_model.IntVar:
        """Whether any running pod is lost or moves."""
        found = self.m.cp.new_bool_var("disturbed")
        for leaver, lost, moved in zip(self.m.cells.leavers, self.m.lost, self.m.moved, strict=True):
            for some in (lost, moved) if not leaver.placed_now else ():
                if some is not None:
                    self.m.cp.add(some <= leaver.count * found)
        return found

    def _reclaim_bounds(self) -> None:
        """Units leave a queue one by one while it holds more than its due in some resource (4.4).

        All lost units but the last fit between what the queue holds and its due, whichever unit is the last.
        """
        book = self.m.ledger.book
        for level, bounds in self.m.who.reclaim_bounds.items():
            mine = [j for j, leaver in enumerate(self.m.cells.leavers) if leaver.level == level]
            if not mine:
                continue
            i = book.index(level)
            ways: list[cp_model.IntVar] = []
            for r, bound in enumerate(bounds):
                held = book.held[i][r]
                if bound is None or held <= bound:
                    continue
                way = self.m.cp.new_bool_var(f"due[{level},{r}]")
                largest = max(
                    self.m.holders[u].holds[r] for j in mine for u in self.m.cells.leavers[j].holders
                )
                gives = [self.m.cells.leavers[j].holds[r] * self.m.lost[j] for j in mine]
                self.m.cp.add(sum(gives) <= held - bound - 1 + largest).only_enforce_if(way)
                ways.append(way)
            if ways:
                self.m.under(self.m.cp.add_bool_or(ways), "fair-share")

    def _consolidation(self) -> None:
        """Consolidation moves no more pod groups than its limit (4.5)."""
        most = self.m.ledger.snapshot.policy.max_consolidation_preemptees
        groups: dict[GroupKey, list[int]] = {}
        for j, (leaver, moved) in enumerate(zip(self.m.cells.leavers, self.m.moved, strict=True)):
            if moved is None or leaver.placed_now:
                continue
            for u in leaver.holders:
                groups.setdefault(self.m.holders[u].group.key, []).append(j)
        if most <= 0 or len(groups) <= most:
            return
        if self.m.cells.exact:
            some = []
            for k, members in groups.items():
                moves = self.m.cp.new_bool_var(f"moves[{k}]")
                for j in members:
                    self.m.cp.add(
                        self.m.consolidated(j) <= moves + self.m.permit(self.m.cells.leavers[j].kept)
                    )
                some.append(moves)
            self.m.under(self.m.cp.add(sum(some) <= most), "consolidation")
            return
        # If a group has m pods, each pod that moves counts as the m-th part of a group, so the sum never
        # exceeds the number of groups that move.
        shares: list[Linear] = []
        for j, (leaver, moved) in enumerate(zip(self.m.cells.leavers, self.m.moved, strict=True)):
            if moved is None or leaver.placed_now:
                continue
            pods = max(len(groups[self.m.holders[u].group.key]) for u in leaver.holders)
            mine = self.m.consolidated(j)
            if leaver.level is not None:
                # Pods that may be evicted move without that limit.
                counted = self.m.cp.new_int_var(0, leaver.count, f"consolidated[{j}]")
                self.m.cp.add(mine <= counted + leaver.count * self.m.permit(leaver.kept))
                mine = counted
            shares.append(_PARTS // pods * mine)
        self.m.under(self.m.cp.add(sum(shares) <= _PARTS * most), "consolidation")
