"""Feasible(A): can the batch be placed when only the families in A are enforced? A CP-SAT model, no goal.

One literal per family; a row that belongs to families is enforced only when all of their literals hold.
Everything else is hard. The rows are those of the engine: masks of the static rules, rows and masks of
the device rules, limits, quotas, dues, chains. Where a row allows more than its rule the model is a
relaxation, so *infeasible* is always a proof.

Sets: classes c of the batch, cells n, leavers l, dimensions d. Variables: ``x[c,n]`` whole pods;
``y[c,n,d]`` pieces, equal to ``request * x`` when ``fragmentation`` is enforced; ``lost[l]`` and
``moved[l]`` pods that go; ``to[m,n]`` where movers go; ``chosen[s,k]`` the domain of a constrained subgroup.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations, pairwise
from typing import Final

import numpy as np

from kai_cp_models.devices.protocol import Row
from kai_cp_models.explain.ask import PodClass, classes_of, device_families, domains_of
from kai_cp_models.explain.cells import Cells, Leaver, partition, request_of
from kai_cp_models.explain.families import TAKEN_AS_GIVEN, Families, Family
from kai_cp_models.explain.holders import Holder, Holders, groups_of
from kai_cp_models.explain.situation import Situation
from kai_cp_models.fairness import amounts
from kai_cp_models.joint.search import Linear
from kai_cp_models.ledger import Ledger, Mask, Vector
from kai_cp_models.snapshot import (
    ACTIVE_ALLOCATED,
    GPU,
    MILLI,
    UNLIMITED,
    Pod,
    PodGroup,
    PodKey,
    Subgroup,
)
from kai_cp_models.solver import cp_model
from kai_cp_models.units import Batch

_MOST_KINDS: Final = 4
"""Kinds of leavers up to which every choice of kinds that go has a row of its own."""
_SERVED: Final[Families] = frozenset(("order",))
"""What keeps the places of those who were served before."""
_MASKED: Final = frozenset(("numa", "dra", "volumes"))
"""Device rules whose rows allow more than the rule, and that never refuse because somebody left."""


class Feasibility:
    """The model of one waiting pod group; see the module's docstring."""

    def __init__(
        self,
        situation: Situation,
        group: PodGroup,
        batch: Batch | None,
        given: Families,
        *,
        one_action: bool = False,
    ) -> None:
        """``given``: families of ``TAKEN_AS_GIVEN`` that the group breaks.

        ``one_action``: whoever is disturbed is disturbed by one action, as in a cycle (0.2): consolidation
        only moves, reclaim takes from other queues, preempt from the group's own.
        """
        self.situation = situation
        self.group = group
        self.ledger: Ledger = situation.after
        self.cp = cp_model.CpModel()
        self.literals: dict[Family, cp_model.IntVar] = {}
        self._batch = batch
        self.classes: list[PodClass] = classes_of(self.ledger, situation.gang(group.key), batch)
        self._free = self.ledger.idle + self.ledger.releasing
        self._who = Holders(situation, group, batch)
        self.holders: list[Holder] = self._who.all()
        self._rules = device_families(self.ledger, self.classes)
        shares = any(item.example.spec.gpu.shares for item in self.classes)
        self.cells: Cells = partition(
            self.ledger,
            self.classes,
            self.holders,
            queue=group.queue,
            bounded=self._bounded(),
            apart=bool(self._rules) or shares,
        )
        for family in sorted(given & TAKEN_AS_GIVEN):
            self.cp.add_bool_or([~self.literal(family)])
        names = ("consolidation", "reclaim", "preempt") if one_action else ()
        self._acting = {name: self.cp.new_bool_var(f"acts: {name}") for name in names}
        self.cp.add_at_most_one(self._acting.values())
        self._acts: dict[tuple[int, Families], cp_model.IntVar] = {}
        self._leave()
        self._enter()
        self._move()
        self._rooms()
        self._topology()
        self._queues()
        self._dues()
        self._consolidation()
        self._device_rules()

    # --- literals --------------------------------------------------------------------------------

    def literal(self, family: Family) -> cp_model.IntVar:
        """Whether a family is enforced."""
        found = self.literals.get(family)
        if found is None:
            found = self.literals[family] = self.cp.new_bool_var(family)
        return found

    def _under(
        self, row: cp_model.Constraint, *families: Family, also: Sequence[cp_model.LiteralT] = ()
    ) -> None:
        row.only_enforce_if([*(self.literal(family) for family in families), *also])

    def _permit(self, families: Families) -> cp_model.IntVar:
        """A literal that may hold only when none of the families is enforced."""
        found = self._permits.get(families)
        if found is None:
            found = self.cp.new_bool_var(f"none of {', '.join(sorted(families))}")
            for family in sorted(families):
                self.cp.add_implication(found, ~self.literal(family))
            self._permits[families] = found
        return found

    def _room(self, dimension: int) -> Family:
        return f"room:{self.ledger.snapshot.dimensions[dimension]}"

    # --- what may go -----------------------------------------------------------------------------

    def _leave(self) -> None:
        cp = self.cp
        self._permits: dict[Families, cp_model.IntVar] = {}
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
        """What is disturbed is disturbed by the one action that acts; places of this cycle may change."""
        if not self._acting or (leaver.placed_now and leaver.kept == _SERVED):
            return
        taking = self._acting["preempt" if leaver.own else "reclaim"]
        self.cp.add(self.lost[i] <= leaver.count * taking)
        moved = self.moved[i]
        if moved is None or leaver.placed_now:
            return
        assert leaver.fixed is not None
        taken = self._both(taking, leaver.kept)
        self.cp.add(moved <= leaver.count * (taken + self._both(self._acting["consolidation"], leaver.fixed)))

    def _both(self, acting: cp_model.IntVar, families: Families) -> cp_model.IntVar:
        """A literal that may hold only when the action acts and none of the families is enforced."""
        key = acting.index, families
        found = self._acts.get(key)
        if found is None:
            found = self._acts[key] = self.cp.new_bool_var("")
            self.cp.add_implication(found, acting)
            self.cp.add_implication(found, self._permit(families))
        return found

    def _units(self) -> None:
        """Whole eviction units, each after the one before it in its group (5.4)."""
        for u, holder in enumerate(self.holders):
            lost = self.cp.new_bool_var(f"lost[{holder.group.key},{holder.chain}]")
            self._lose(u, lost)
            self.unit_lost.append(lost)
        for members in groups_of(self.holders).values():
            for first, then in pairwise(members):
                self.cp.add_implication(self.unit_lost[then], self.unit_lost[first])

    def _lose(self, u: int, lost: cp_model.IntVar) -> None:
        """A unit goes only when no family keeps it."""
        self.cp.add_implication(lost, self._permit(self.holders[u].kept))

    def _lose_some(self, i: int, leaver: Leaver, lost: cp_model.IntVar) -> None:
        """Alike pods go only when no family keeps them."""
        self.cp.add(lost <= leaver.count * self._permit(leaver.kept))

    def _may_move(self, i: int, leaver: Leaver, lost: cp_model.IntVar) -> cp_model.IntVar | None:
        """What may be evicted may be moved as well, so that it is not lost to its queue (4.4)."""
        if leaver.fixed is None:
            return None
        moved = self.cp.new_int_var(0, leaver.count, f"moved[{i}]")
        may = self._permit(leaver.fixed)
        if leaver.level:
            may_lose = self._permit(leaver.kept)
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

    # --- what enters -----------------------------------------------------------------------------

    def _enter(self) -> None:
        self.x: list[list[cp_model.IntVar]] = []
        self.y: list[dict[int, list[cp_model.IntVar]]] = []
        for c, item in enumerate(self.classes):
            cells = range(len(self.cells.nodes))
            x = [self.cp.new_int_var(0, item.count, f"x[{c},{n}]") for n in cells]
            self.cp.add(sum(x) == item.count)
            self.x.append(x)
            y: dict[int, list[cp_model.IntVar]] = {}
            for d, asked in self._asked(item):
                y[d] = [self.cp.new_int_var(0, asked * item.count, f"y[{c},{d},{n}]") for n in cells]
                for n in cells:
                    self._under(self.cp.add(y[d][n] == asked * x[n]), "fragmentation")
                self.cp.add(sum(y[d]) == asked * item.count)
            self.y.append(y)
            for family, refused in item.refused.items():
                self._refuse(c, refused, family)

    def _asked(self, item: PodClass) -> list[tuple[int, int]]:
        """(dimension, amount) of one pod, GPUs in parts."""
        found = []
        for d, asked in enumerate(item.example.spec.requests):
            amount = item.milli_gpus(self.ledger) if d == GPU else asked
            if amount:
                found.append((d, amount))
        return found

    def _refuse(self, c: int, refused: Mask, *families: Family) -> None:
        """Neither pods nor pieces of a class on these nodes while the families hold."""
        for n, nodes in enumerate(self.cells.nodes):
            if refused[nodes[0]]:
                for var in self._of_class(c, n):
                    self._under(self.cp.add(var == 0), *families)

    def _of_class(self, c: int, n: int) -> list[cp_model.IntVar]:
        return [self.x[c][n], *(y[n] for y in self.y[c].values())]

    def _move(self) -> None:
        """Whatever moves has another place; whole, and under all rules of its own."""
        terms: dict[int, list[cp_model.IntVar]] = {}
        most: dict[int, int] = {}
        for leaver, moved in zip(self.cells.leavers, self.moved, strict=True):
            if moved is not None:
                terms.setdefault(leaver.mover, []).append(moved)
                most[leaver.mover] = most.get(leaver.mover, 0) + leaver.count
        self.to: dict[int, dict[int, cp_model.IntVar]] = {}
        for m, mine in terms.items():
            mask = self.cells.movers[m].mask
            cells = [n for n, nodes in enumerate(self.cells.nodes) if mask[nodes[0]]]
            self.to[m] = {n: self.cp.new_int_var(0, most[m], f"to[{m},{n}]") for n in cells}
            self.cp.add(sum(self.to[m].values()) == sum(mine))

    # --- room ------------------------------------------------------------------------------------

    def _rooms(self) -> None:
        self._here: dict[int, list[int]] = {}
        for i, leaver in enumerate(self.cells.leavers):
            self._here.setdefault(leaver.cell, []).append(i)
        self._share_members()
        for n, nodes in enumerate(self.cells.nodes):
            for d in range(self._free.shape[1]):
                self._room_row(n, nodes, d)
            if len(nodes) > 1:
                self._whole_pods(n, nodes)
            elif self._sharing(n):
                self._shares(n, nodes[0])

    def _room_row(self, n: int, nodes: Sequence[int], d: int) -> None:
        """What enters less what leaves fits what is free; in pieces the parts of shared GPUs count too."""
        free = int(self._free[nodes[0], d])
        pieces = [y[d][n] for y in self.y if d in y]
        moving = [
            request_of(self.cells.movers[m].example)[d] * to[n]
            for m, to in self.to.items()
            if n in to and request_of(self.cells.movers[m].example)[d]
        ]
        if not pieces and not moving and free >= 0:
            return
        gives: list[Linear] = [
            self.cells.leavers[i].request[d] * self.gone[i]
            for i in self._here.get(n, ())
            if self.cells.leavers[i].request[d]
        ]
        bound = len(nodes) * free
        entering = sum(pieces) + sum(moving)
        if d != GPU or not self._members.get(n):
            self._room_of(n, d, entering - sum(gives), bound, (self._room(d),))
            return
        whole = [MILLI * freed for freed in self._freed[n].values()]
        # A share lies on its device, see ``_shares``; whole GPUs are idle, or devices that all leave.
        plain = [
            y[d][n]
            for y, item in zip(self.y, self.classes, strict=True)
            if d in y and not item.example.spec.gpu.shares
        ]
        used = sum(plain) + sum(moving) - sum(gives) - sum(whole)
        self._room_of(n, d, used, bound, (self._room(d), "fragmentation"))
        parts, spare = self._parts(n, nodes[0])
        self._room_of(n, d, entering - sum(gives) - sum(parts), bound + spare, (self._room(d),))

    def _room_of(self, n: int, d: int, used: Linear, bound: int, families: Sequence[Family]) -> None:
        row = self.cp.add(used <= bound)
        if bound >= 0:
            self._under(row, *families)
            return
        # Inherited trouble stays as it is while nothing enters.
        entered = self.cp.new_bool_var(f"entered[{n},{d}]")
        for c in range(len(self.classes)):
            for var in self._of_class(c, n):
                self.cp.add(var == 0).only_enforce_if(~entered)
        for to in self.to.values():
            if n in to:
                self.cp.add(to[n] == 0).only_enforce_if(~entered)
        self._under(row, *families, also=(entered,))

    def _whole_pods(self, n: int, nodes: Sequence[int]) -> None:
        """A pod lies on one node: what each of the equal nodes takes when some kinds of leavers are gone."""
        for c, item in enumerate(self.classes):
            for d, asked in self._asked(item):
                self._floors(n, nodes, d, asked, self.x[c][n], (self._room(d), "fragmentation"))
        for m, to in self.to.items():
            if n in to:
                for d, asked in enumerate(request_of(self.cells.movers[m].example)):
                    if asked:
                        self._floors(n, nodes, d, asked, to[n], (self._room(d),))

    def _floors(
        self,
        n: int,
        nodes: Sequence[int],
        d: int,
        asked: int,
        entering: cp_model.IntVar,
        families: Sequence[Family],
    ) -> None:
        leavers = [i for i in self._here.get(n, ()) if self.cells.leavers[i].request[d]]
        kinds = sorted({self._kind(i) for i in leavers}, key=str)
        free = max(0, int(self._free[nodes[0], d]))
        sizes = range(len(kinds) + 1) if len(kinds) <= _MOST_KINDS else (0, len(kinds))
        for size in sizes:
            for gone in combinations(kinds, size):
                left = free + sum(
                    self.cells.leavers[i].request[d] * self.cells.leavers[i].count // len(nodes)
                    for i in leavers
                    if self._kind(i) in gone
                )
                others: list[Linear] = [
                    self.cells.leavers[i].request[d] * self.gone[i]
                    for i in leavers
                    if self._kind(i) not in gone
                ]
                each = left // asked
                extra = entering - len(nodes) * each
                self._under(self.cp.add((asked * (each + 1) - left) * extra <= sum(others)), *families)

    def _kind(self, i: int) -> tuple[Families, Families | None, str]:
        leaver = self.cells.leavers[i]
        return leaver.kept, leaver.fixed, leaver.level

    # --- shared devices --------------------------------------------------------------------------

    def _share_members(self) -> None:
        """Who is on which shared device, and whether a device is free when all of them are gone."""
        self._members: dict[int, dict[str, list[int]]] = {}
        self._freed: dict[int, dict[str, cp_model.IntVar]] = {}
        index = self.cells.leaver_of
        for node, names in self.ledger.groups_on.items():
            n = int(self.cells.of[node])
            for name in names:
                device = self.ledger.devices[node, name]
                if device.active or device.pipelined:
                    self._members.setdefault(n, {})[name] = []
        for leaver in self.cells.leavers:
            for pod in leaver.pods:
                place = self.ledger.place_of(pod)
                if pod.spec.gpu.shares and place is not None:
                    for name in place[1]:
                        if name in self._members.get(leaver.cell, {}):
                            self._members[leaver.cell][name].append(index[pod.key])
        for n, devices in self._members.items():
            node = self.cells.nodes[n][0]
            for name, members in devices.items():
                device = self.ledger.devices[node, name]
                freed = self.cp.new_bool_var(f"freed[{n},{name}]")
                self._freed.setdefault(n, {})[name] = freed
                if device.active + device.pipelined > len(members):
                    self.cp.add(freed == 0)
                for i in members:
                    self.cp.add(self.gone[i] >= freed)

    def _parts(self, n: int, node: int) -> tuple[list[Linear], int]:
        """Parts of shared devices in milli-GPUs: those that members give back, and those that are free."""
        total = int(self.ledger.fixed.gpu_memory_mib[node])
        given: list[Linear] = []
        spare = 0
        for name, members in self._members[n].items():
            free = self.ledger.device_free_mib(node, name, now=False)
            spare += -(-MILLI * max(free, 0) // total)
            for i in members:
                need = self.ledger.share_mib_on(self.cells.leavers[i].pods[0], node)
                given.append(-(-MILLI * need // total) * self.gone[i])
        return given, spare

    def _sharing(self, n: int) -> bool:
        movers = (self.cells.movers[m].example for m, to in self.to.items() if n in to)
        return any(item.example.spec.gpu.shares for item in self.classes) or any(
            pod.spec.gpu.shares for pod in movers
        )

    def _shares(self, n: int, node: int) -> None:
        """A share lies on one device: members of each device fit its memory (2.6)."""
        entering: list[tuple[Pod, cp_model.IntVar]] = [
            (item.example, self.x[c][n])
            for c, item in enumerate(self.classes)
            if item.example.spec.gpu.shares
        ]
        for m, to in self.to.items():
            if n in to and self.cells.movers[m].example.spec.gpu.shares:
                entering.append((self.cells.movers[m].example, to[n]))
        total = int(self.ledger.fixed.gpu_memory_mib[node])
        families = (self._room(GPU), "fragmentation")
        counts: list[list[cp_model.IntVar]] = [[] for _ in entering]
        most = sum(item.count for item in self.classes) + sum(leaver.count for leaver in self.cells.leavers)
        for name, members in self._members.get(n, {}).items():
            load: list[Linear] = []
            for e, (pod, x) in enumerate(entering):
                count = self.cp.new_int_var(0, most, f"on[{n},{name},{e}]")
                self.cp.add(count <= x)
                self.cp.add(count == 0).only_enforce_if(self._freed[n][name])
                counts[e].append(count)
                load.append(self.ledger.share_mib_on(pod, node) * count)
            freed = [
                self.ledger.share_mib_on(self.cells.leavers[i].pods[0], node) * self.gone[i] for i in members
            ]
            free = max(self.ledger.device_free_mib(node, name, now=False), 0)
            self._under(self.cp.add(sum(load) - sum(freed) <= free), *families)
        fresh: list[cp_model.IntVar] = []
        gpus = int(self.ledger.fixed.table.allocatable[node, GPU]) // MILLI
        for k in range(gpus):
            used = self.cp.new_bool_var(f"fresh[{n},{k}]")
            load = []
            for e, (pod, x) in enumerate(entering):
                count = self.cp.new_int_var(0, most, f"on[{n},new-{k},{e}]")
                self.cp.add(count <= x)
                self.cp.add(count == 0).only_enforce_if(~used)
                counts[e].append(count)
                load.append(self.ledger.share_mib_on(pod, node) * count)
            self._under(self.cp.add(sum(load) <= total), *families)
            fresh.append(used)
        for e, (pod, x) in enumerate(entering):
            self._under(self.cp.add(sum(counts[e]) == pod.spec.gpu.devices * x), *families)
        self._fresh_devices(n, node, fresh)

    def _fresh_devices(self, n: int, node: int, fresh: Sequence[cp_model.IntVar]) -> None:
        """A new shared device takes a whole GPU and one pod slot (2.6)."""
        whole = [
            self._asked_of(c, GPU) * self.x[c][n]
            for c, item in enumerate(self.classes)
            if not item.example.spec.gpu.shares
        ]
        for m, to in self.to.items():
            if n in to:
                whole.append(request_of(self.cells.movers[m].example)[GPU] * to[n])
        gives = [
            self.cells.leavers[i].request[GPU] * self.gone[i]
            for i in self._here.get(n, ())
            if self.cells.leavers[i].request[GPU]
        ]
        freed = [MILLI * var for var in self._freed.get(n, {}).values()]
        free = max(0, int(self._free[node, GPU]))
        row = self.cp.add(MILLI * sum(fresh) + sum(whole) - sum(gives) - sum(freed) <= free)
        self._under(row, self._room(GPU), "fragmentation")

    def _asked_of(self, c: int, d: int) -> int:
        return dict(self._asked(self.classes[c])).get(d, 0)

    # --- topology --------------------------------------------------------------------------------

    def _topology(self) -> None:
        chosen: dict[str, dict[int, cp_model.IntVar]] = {}
        for c, item in enumerate(self.classes):
            for scope in item.scopes:
                inside, domain = domains_of(self.ledger, scope)
                if not inside.all():
                    self._refuse(c, ~inside, "topology")
                if domain is None:
                    continue
                if scope.name not in chosen:
                    chosen[scope.name] = self._chosen(scope, domain)
                for n, nodes in enumerate(self.cells.nodes):
                    literal = chosen[scope.name].get(int(domain[nodes[0]]))
                    for var in self._of_class(c, n):
                        row = self.cp.add(var == 0)
                        self._under(row, "topology", also=() if literal is None else (~literal,))

    def _chosen(self, scope: Subgroup, domain: Vector) -> dict[int, cp_model.IntVar]:
        """The domain of a constrained subgroup: one, and that of its running pods (8.3)."""
        gang = self.situation.gang(self.group.key)
        allowed = {int(k) for k in np.unique(domain[domain >= 0])}
        started = {
            int(domain[place[0]])
            for pod in gang.pods_below(scope)
            if self.ledger.status(pod) in ACTIVE_ALLOCATED
            and (place := self.ledger.place_of(pod)) is not None
        }
        allowed &= started or allowed
        found = {k: self.cp.new_bool_var(f"chosen[{scope.name},{k}]") for k in sorted(allowed)}
        self.cp.add_at_most_one(found.values())
        return found

    # --- queues ----------------------------------------------------------------------------------

    def _bounded(self) -> list[str]:
        """Queues on the group's path with a limit, or a quota that counts for it."""
        book = self.ledger.book
        if self.group.queue not in self.ledger.snapshot.queue_by_name:
            return []
        found = []
        for i in book.line(self.group.queue):
            limited = any(limit != UNLIMITED for limit in book.limit[i])
            if limited or (not self.group.preemptible and any(q != UNLIMITED for q in book.quota[i])):
                found.append(book.name(i))
        return found

    def _queues(self) -> None:
        """Limits, and for what cannot be preempted quotas, on the queue's path (3.7)."""
        book, snapshot = self.ledger.book, self.ledger.snapshot
        if self.group.queue not in snapshot.queue_by_name:
            return
        pods = self._batch.all_pods if self._batch is not None else [item.example for item in self.classes]
        size = amounts.optimistic_batch(snapshot, pods)
        for i in book.line(self.group.queue):
            below = [j for j, leaver in enumerate(self.cells.leavers) if book.name(i) in leaver.below]
            for r in range(3):
                limit, held = book.limit[i][r], book.held[i][r]
                if size[r] and limit != UNLIMITED and held + size[r] > limit:
                    gives = [self.cells.leavers[j].holds[r] * self.lost[j] for j in below]
                    row = self.cp.add(held + size[r] - sum(gives) <= limit)
                    self._under(row, f"limit:{book.name(i)}")
                quota, firm = book.quota[i][r], book.firm[i][r]
                if self.group.preemptible or not size[r] or quota == UNLIMITED or firm + size[r] <= quota:
                    continue
                gives = [
                    self.cells.leavers[j].holds[r] * self.lost[j]
                    for j in below
                    if not self.holders[self.cells.leavers[j].holders[0]].group.preemptible
                ]
                self._under(self.cp.add(firm + size[r] - sum(gives) <= quota), f"quota:{book.name(i)}")

    def _dues(self) -> None:
        """Units leave a queue one by one while it holds more than its due in some resource (4.4).

        All but the last one lost fit between what the queue holds and its due, whichever is the last.
        """
        book = self.ledger.book
        for level, bounds in self._who.dues.items():
            mine = [j for j, leaver in enumerate(self.cells.leavers) if leaver.level == level]
            if not mine:
                continue
            i = book.index(level)
            ways: list[cp_model.IntVar] = []
            for r, bound in enumerate(bounds):
                held = book.held[i][r]
                if bound is None or held <= bound:
                    continue
                way = self.cp.new_bool_var(f"due[{level},{r}]")
                largest = max(self.holders[u].holds[r] for j in mine for u in self.cells.leavers[j].holders)
                gives = [self.cells.leavers[j].holds[r] * self.lost[j] for j in mine]
                self.cp.add(sum(gives) <= held - bound - 1 + largest).only_enforce_if(way)
                ways.append(way)
            if ways:
                self._under(self.cp.add_bool_or(ways), "fair-share")

    def _consolidation(self) -> None:
        """Consolidation moves at most so many pod groups (4.5)."""
        most = self.ledger.snapshot.policy.max_consolidation_preemptees
        groups: dict[int, list[int]] = {}
        numbers: dict[object, int] = {}
        pods = 0
        sizes: dict[object, int] = {}
        for j, (leaver, moved) in enumerate(zip(self.cells.leavers, self.moved, strict=True)):
            if moved is None or leaver.placed_now:
                continue
            for u in leaver.holders:
                key = self.holders[u].group.key
                sizes[key] = sizes.get(key, 0) + 1
                groups.setdefault(numbers.setdefault(key, len(numbers)), []).append(j)
            pods += leaver.count
        if most <= 0 or len(numbers) <= most:
            return
        if self.cells.exact:
            some = []
            for k, members in groups.items():
                moves = self.cp.new_bool_var(f"moves[{k}]")
                for j in members:
                    self.cp.add(self._consolidated(j) <= moves + self._permit(self.cells.leavers[j].kept))
                some.append(moves)
            self._under(self.cp.add(sum(some) <= most), "consolidation")
            return
        largest = sum(sorted(sizes.values(), reverse=True)[:most])
        mine = [
            self._consolidated(j)
            for j, leaver in enumerate(self.cells.leavers)
            if self.moved[j] is not None and not leaver.placed_now and not leaver.level
        ]
        self._under(self.cp.add(sum(mine) <= largest), "consolidation")

    def _consolidated(self, j: int) -> Linear:
        """Pods of a leaver that the cycle itself moves."""
        moved = self.moved[j]
        return 0 if moved is None else moved

    # --- device rules ----------------------------------------------------------------------------

    def _device_rules(self) -> None:
        """Rows and masks of the rules that depend on who else is there.

        They are asked with the places of this cycle, which bind as long as nobody gives such a place up, and
        without them.
        """
        now = [j for j, leaver in enumerate(self.cells.leavers) if leaver.placed_now]
        states: list[tuple[Ledger, list[cp_model.IntVar]]] = [(self.situation.emptied, [])]
        if now and self._rules:
            still = self.cp.new_bool_var("places of this cycle stay")
            for j in now:
                self.cp.add(self.gone[j] == 0).only_enforce_if(still)
            states.append((self.ledger, [still]))
        for family, position in self._rules:
            for ledger, also in states:
                self._rows_of(family, ledger, position, also)
            if family in _MASKED:
                self._masks_of(family, position)

    def _rows_of(
        self, family: Family, ledger: Ledger, position: int, also: Sequence[cp_model.IntVar]
    ) -> None:
        rule = ledger.rules[position]
        asked = [c for c, item in enumerate(self.classes) if rule.concerns(item.example) and not item.missing]
        if not asked and family != "pdb":
            return
        examples = [self.classes[c].example for c in asked]
        sizes = [self.classes[c].count for c in asked]
        nodes = [nodes[0] for nodes in self.cells.nodes]
        index = self.cells.leaver_of
        for row in rule.rows(examples, sizes, nodes):
            terms = [
                coefficient * self.x[asked[c]][int(self.cells.of[node])]
                for (c, node), coefficient in row.entering.items()
            ]
            gives = self._gives(row, index)
            self._under(self.cp.add(sum(terms) - sum(gives) <= row.bound), family, also=also)

    def _gives(self, row: Row, index: dict[PodKey, int]) -> list[Linear]:
        """What leaves in a row; of alike pods that are counted, as many as the row names in their favour."""
        by_leaver: dict[int, list[int]] = {}
        for key, coefficient in row.leaving.items():
            if key in index:
                by_leaver.setdefault(index[key], []).append(coefficient)
        found: list[Linear] = []
        for j, coefficients in by_leaver.items():
            whole = len(coefficients) == self.cells.leavers[j].count
            best = max(coefficients) if whole else max(0, max(coefficients))
            found.append(best * self.gone[j])
        return found

    def _masks_of(self, family: Family, position: int) -> None:
        """A node that a rule refuses although some kinds of leavers are gone needs others to go as well."""
        leavers = self.cells.leavers
        concerned = self.situation.after.rules[position]
        movable = [j for j, leaver in enumerate(leavers) if concerned.concerns(leaver.pods[0])]
        kinds = sorted({self._kind(j) for j in movable}, key=str)
        sizes = range(len(kinds) + 1) if len(kinds) <= _MOST_KINDS else (0, len(kinds))
        for size in sizes:
            for gone in combinations(kinds, size):
                ledger = self.situation.after.copy()
                rule = ledger.rules[position]
                for j in movable:
                    if self._kind(j) in gone:
                        for pod in leavers[j].pods:
                            if pod.key in ledger.held:
                                rule.remove(pod, ledger.held[pod.key].node)
                            else:
                                rule.evict(pod)
                others = [self.gone[j] for j in movable if self._kind(j) not in gone]
                for c, item in enumerate(self.classes):
                    if item.missing or not rule.concerns(item.example):
                        continue
                    allowed = rule.mask(item.example, now=False)
                    if allowed is None:
                        continue
                    for n, nodes in enumerate(self.cells.nodes):
                        if not allowed[nodes[0]]:
                            row = self.cp.add(self.x[c][n] <= item.count * sum(others))
                            self._under(row, family)
