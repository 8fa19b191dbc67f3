"""What every joint placement model has in common: classes of pods, asks, eviction units, topology scopes.

Sets: classes c (pods with equal specs and equal topology scope), cells n (a node, or a block of nodes
that no class can tell apart), asks a, eviction units o. Variables: ``x[c,n]`` pods of class c new in n;
``admitted[a]``; ``lost[o]``; ``moved[p]``; ``chosen[a,s,d]`` the domain of a constrained subgroup.

There is no variable per pod and node: pods of a class are counted, and cells that cannot take a class have no
variable. The two encodings, ``exact`` and ``level``, state a cell's capacity in rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.joint.problem import Answer, Ask, EvictionUnit
from kai_cp_models.joint.search import Linear
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, Pod, PodKey, PodSpec
from kai_cp_models.rules.static.table import accepting
from kai_cp_models.snapshot import Subgroup
from kai_cp_models.solver import cp_model


class ModelTooLarge(Exception):
    """The model would need more variables than a cycle can solve, or does not fit the encoding."""


@dataclass
class PodClass:
    """Pods that the model counts together; ``example`` stands for all of them."""

    example: Pod
    mask: Mask
    terms: list[tuple[int, cp_model.IntVar]] = field(default_factory=list)
    """(count, literal): how many pods each admitted ask or moved pod adds."""
    x: dict[int, cp_model.IntVar] = field(default_factory=dict)
    """Count of the class by cell."""
    pods: list[tuple[Pod, int | None]] = field(default_factory=list)
    """Pods in placement order with the ask they belong to (None: a moved pod)."""

    @property
    def most(self) -> int:
        """Pods of the class if everything is admitted and moved."""
        return sum(count for count, _ in self.terms)


class JointModel(ABC):
    """See the module's docstring; callers add rows and objectives of their own to ``cp``."""

    def __init__(
        self,
        ledger: Ledger,
        asks: Sequence[Ask],
        units: Sequence[EvictionUnit] = (),
        *,
        may_lose: bool = True,
        max_variables: int = 60_000,
    ) -> None:
        self.ledger = ledger
        self._may_lose = may_lose
        self._rooms: dict[PodSpec, Mask] = {}
        self.asks = tuple(asks)
        self.units = tuple(units)
        self.cp = cp_model.CpModel()
        cp = self.cp
        self.admitted = [cp.new_bool_var(f"admitted[{ask.group.key}]") for ask in asks]
        self.lost = [
            cp.new_bool_var(f"lost[{unit.group.key},{unit.chain}]") if may_lose else cp.new_constant(0)
            for unit in units
        ]
        self.moved: dict[PodKey, cp_model.IntVar] = {}
        self.gone: dict[PodKey, Linear] = {}
        self._free = ledger.idle + ledger.releasing
        self._leaver: dict[PodKey, Pod] = {}
        self._leaving: dict[int, list[Pod]] = {}
        self._members: dict[tuple[int, str], list[Pod]] = {}
        """Shared devices with pods that may leave, and those pods."""
        self._classes: dict[Hashable, PodClass] = {}
        self._scope_domains: dict[tuple[GroupKey, str], dict[int, cp_model.IntVar]] = {}
        self._collect_leavers()
        self._collect_asks()
        self._collect_moves()
        self._counts(max_variables)
        self._scopes()
        self._capacity()

    @abstractmethod
    def _cut_cells(self) -> None:
        """Divide the nodes into cells."""

    @abstractmethod
    def _room_for(self, item: PodClass) -> tuple[Ints, Ints] | None:
        """The cells that take pods of the class, and how many at most; None: they are not counted by cell."""

    @abstractmethod
    def _capacity(self) -> None:
        """Rows that keep every cell within its capacity."""

    @abstractmethod
    def _node_of(self, cell: int) -> int:
        """A node of the cell; all nodes of a cell are in the same topology domains."""

    @abstractmethod
    def _places(
        self,
        going: Mapping[Hashable, Sequence[Pod]],
        counts: Mapping[Hashable, Mapping[int, int]],
        solver: cp_model.CpSolver,
        gone: frozenset[PodKey],
    ) -> dict[PodKey, tuple[int, tuple[str, ...]]]:
        """Node and device names of every pod that goes somewhere; see ``Answer.nodes_of``."""

    def _may_move(self, pod: Pod) -> bool:
        """Whether a move of the pod is considered.

        Where pods may be lost, a pod moves only if another node has free capacity for it now: moving it into
        a lost pod's place would cause two restarts instead of one.
        """
        if not self._may_lose:
            return True
        mask = self._rooms.get(pod.spec)
        if mask is None:
            mask = self._rooms[pod.spec] = self.ledger.fits(pod, now=False)
        place = self.ledger.place_of(pod)
        here = place is not None and bool(mask[place[0]])
        return int(mask.sum()) - here > 0

    # --- classes ---------------------------------------------------------------------------------

    def _collect_leavers(self) -> None:
        for lost, unit in zip(self.lost, self.units, strict=True):
            for pod in unit.pods:
                place = self.ledger.place_of(pod)
                if place is None:
                    continue
                self._leaver[pod.key] = pod
                self._leaving.setdefault(place[0], []).append(pod)
                for name in place[1] if pod.spec.gpu.shares else ():
                    self._members.setdefault((place[0], name), []).append(pod)
                if unit.movable and self._may_move(pod):
                    moved = self.cp.new_bool_var(f"moved[{pod.key}]")
                    self.cp.add_at_most_one(lost, moved)
                    self.gone[pod.key] = lost + moved
                else:
                    moved = self.cp.new_constant(0)
                    self.gone[pod.key] = lost
                self.moved[pod.key] = moved

    def _collect_asks(self) -> None:
        for a, ask in enumerate(self.asks):
            for scopes, leaf in ask.batch.leaves:
                for pod in leaf.pods:
                    key: Hashable = (a, leaf.subgroup.name, pod.spec) if scopes else ("free", pod.spec)
                    found = self._classes.get(key)
                    if found is None:
                        mask = accepting(self.ledger.fixed.table, pod).copy()
                        for scope in scopes:
                            mask &= self._in_topology(scope)
                        found = self._classes[key] = PodClass(pod, mask)
                    found.terms.append((1, self.admitted[a]))
                    found.pods.append((pod, a))

    def _collect_moves(self) -> None:
        for unit in self.units:
            gang = self.ledger.fixed.gangs[unit.group.key]
            for pod in unit.pods:
                place = self.ledger.place_of(pod)
                if place is None or not (unit.movable and self._may_move(pod)):
                    continue
                mask = self._move_mask(gang.group.root, pod, place[0])
                # A pod pinned by a constraint moves inside its present domain.
                key: Hashable = ("free", pod.spec) if mask is None else ("pinned", mask.tobytes(), pod.spec)
                found = self._classes.get(key)
                if found is None:
                    allowed = accepting(self.ledger.fixed.table, pod)
                    found = self._classes[key] = PodClass(pod, allowed if mask is None else allowed & mask)
                found.terms.append((1, self.moved[pod.key]))
                found.pods.append((pod, None))

    def _move_mask(self, subgroup: Subgroup, pod: Pod, node: int) -> Mask | None:
        mask: Mask | None = None
        here: Subgroup | None = subgroup
        while here is not None:
            if here.constraint is not None and not here.constraint.error:
                inside = self._in_topology(here)
                if here.constraint.required:
                    domain = self._domain_of(here)
                    inside = inside & (domain == domain[node])
                mask = inside if mask is None else mask & inside
            here = next(
                (
                    child
                    for child in here.children
                    if any(leaf.name == (pod.subgroup or "default") for leaf in child.leaves())
                ),
                None,
            )
        return mask

    def _in_topology(self, subgroup: Subgroup) -> Mask:
        constraint = subgroup.constraint
        if constraint is None or not self.ledger.snapshot.policy.plugin("topology"):
            return np.ones(len(self._free), dtype=bool)
        if constraint.error:
            return np.zeros(len(self._free), dtype=bool)
        return self.ledger.fixed.table.trees[constraint.topology].member

    def _domain_of(self, subgroup: Subgroup) -> NDArray[np.int64]:
        constraint = subgroup.constraint
        assert constraint is not None
        tree = self.ledger.fixed.table.trees[constraint.topology]
        return tree.domain_at(constraint.required)

    # --- counts ----------------------------------------------------------------------------------

    def _counts(self, max_variables: int) -> None:
        """Create ``x`` of every class and tie it to the asks and moves that need it."""
        self._cut_cells()
        # Counted before any variable is made, which takes longer.
        variables, counted = 0, list[tuple[int, PodClass, tuple[Ints, Ints]]]()
        for number, item in enumerate(self._classes.values()):
            if (room := self._room_for(item)) is not None:
                counted.append((number, item, room))
                variables += len(room[0])
                if variables > max_variables:
                    raise ModelTooLarge("too many classes and kinds of nodes")
        for number, item, (cells, most) in counted:
            for cell, count in zip(cells.tolist(), most.tolist(), strict=True):
                item.x[cell] = self.cp.new_int_var(0, count, f"x[{number},{cell}]")
            self.cp.add(sum(item.x.values()) == sum(count * literal for count, literal in item.terms))

    def _stays(self, device: tuple[int, str]) -> Linear:
        """1 while some pod stays on a shared device; 0 once all have left. It counts as a whole one then, and
        no pod joins it.
        """
        known, members = self.ledger.devices[device], self._members.get(device, ())
        if known.active + known.pipelined > len(members):
            return 1
        some = self.cp.new_bool_var(f"stays[{device}]")
        stays: list[Linear] = [1 - self.gone[pod.key] for pod in members]
        self.cp.add(sum(stays) >= some)
        for stay in stays:
            self.cp.add(some >= stay)
        return some

    # --- topology --------------------------------------------------------------------------------

    def _scopes(self) -> None:
        if not self.ledger.snapshot.policy.plugin("topology"):
            return
        for a, ask in enumerate(self.asks):
            for scopes, leaf in ask.batch.leaves:
                for scope in scopes:
                    if scope.constraint is None or not scope.constraint.required:
                        continue
                    if scope.constraint.error:
                        self.cp.add(self.admitted[a] == 0)
                        continue
                    chosen = self._chosen(a, ask, scope)
                    domain = self._domain_of(scope)
                    for spec in {pod.spec for pod in leaf.pods}:
                        item = self._classes[(a, leaf.subgroup.name, spec)]
                        inside: dict[int, list[cp_model.IntVar]] = {}
                        for cell, var in item.x.items():
                            inside.setdefault(int(domain[self._node_of(cell)]), []).append(var)
                        for name, variables in inside.items():
                            if name in chosen:
                                self.cp.add(sum(variables) <= item.most * chosen[name])
                            else:
                                self.cp.add(sum(variables) == 0)

    def _chosen(self, a: int, ask: Ask, scope: Subgroup) -> dict[int, cp_model.IntVar]:
        """The domain of a constrained subgroup; all batches of the group that use it agree on it."""
        key = (ask.group.key, scope.name)
        chosen = self._scope_domains.get(key)
        if chosen is None:
            domain = self._domain_of(scope)
            allowed = {int(name) for name in np.unique(domain[domain >= 0])}
            started = {
                int(domain[place[0]])
                for pod in ask.gang.pods_below(scope)
                if self.ledger.status(pod) in ACTIVE_ALLOCATED
                and (place := self.ledger.place_of(pod)) is not None
            }
            if started:
                allowed &= started
            chosen = {
                name: self.cp.new_bool_var(f"chosen[{ask.group.key},{scope.name},{name}]")
                for name in sorted(allowed)
            }
            self.cp.add_at_most_one(chosen.values())
            self._scope_domains[key] = chosen
        self.cp.add(sum(chosen.values()) >= self.admitted[a])
        return chosen

    # --- answers ---------------------------------------------------------------------------------

    def answer(self, solver: cp_model.CpSolver) -> Answer:
        """The solution pod by pod; pods of a class take its cells in placement order."""
        admitted = tuple(bool(solver.value(var)) for var in self.admitted)
        lost = tuple(bool(solver.value(var)) for var in self.lost)
        moved = frozenset(key for key, var in self.moved.items() if solver.value(var))
        gone = moved | {
            pod.key for is_lost, unit in zip(lost, self.units, strict=True) if is_lost for pod in unit.pods
        }
        going = {
            key: [pod for pod, ask in item.pods if (admitted[ask] if ask is not None else pod.key in moved)]
            for key, item in self._classes.items()
        }
        counts = {
            key: {cell: int(solver.value(var)) for cell, var in sorted(item.x.items())}
            for key, item in self._classes.items()
        }
        return Answer(self._places(going, counts, solver, gone), admitted, lost, moved)
