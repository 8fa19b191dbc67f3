"""The joint placement model: asks, eviction units, topology scopes, and the capacity of nodes.

Sets: classes c (pods with equal specs and equal topology scope), cells n (a node, or a block of nodes
that no class can tell apart), asks a, eviction units o. Variables: ``x[c,n]`` pods of class c new in n;
``admitted[a]``; ``lost[o]``; ``moved[p]``; ``chosen[a,s,d]`` the domain of a constrained subgroup.

There is no variable per pod and node: pods of a class are counted, and cells that cannot take a class have
no variable. On a node that is a cell of its own, what enters minus what leaves is at most what will be free,
in every dimension; a node that is over its capacity may stay so, but nothing enters it. In all other cells
pieces of GPUs are counted (``cells``). The rows are exact for any mix of requests.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from enum import Enum, auto
from functools import cached_property
from itertools import chain, compress

import numpy as np

from kai_cp_models.arrays import Ints, Mask
from kai_cp_models.domains.capacity import quotient
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.joint.cells import POOL, NodeCells, PodClass, gpus_alone_bind
from kai_cp_models.joint.counting import Counting
from kai_cp_models.joint.problem import Answer, Ask, EvictionUnit, GivenPlace
from kai_cp_models.joint.search import Linear
from kai_cp_models.joint.shares import Device, ShareRows
from kai_cp_models.ledger import Ledger
from kai_cp_models.limits import LIMITS
from kai_cp_models.loading import taken
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, MILLI, PODS, GpuKind, GroupKey, Pod, PodKey, PodSpec
from kai_cp_models.snapshot import Subgroup
from kai_cp_models.solver import cp_model
from kai_cp_models.units import Batch


class Moves(Enum):
    """Where pods may move that are not lost."""

    INTO_IDLE = auto()
    """Into capacity that is idle now."""
    ALL = auto()
    """Into what others leave, too."""
    FREE = auto()
    """Anywhere: only the sums over all nodes bind. What this costs at least, every plan costs."""


class ModelTooLarge(Exception):
    """The model would need more variables than a cycle can solve."""


class JointModel:
    """See the module's docstring; callers add rows and objectives of their own to ``cp``."""

    def __init__(
        self,
        ledger: Ledger,
        asks: Sequence[Ask],
        units: Sequence[EvictionUnit] = (),
        *,
        may_lose: bool = True,
        moves: Moves = Moves.ALL,
        all_admitted: bool = False,
    ) -> None:
        """``all_admitted``: every ask gets its places."""
        self.ledger = ledger
        self._table = ledger.fixed.table
        self._moves = moves
        self._fits: dict[PodSpec, Mask] = {}
        """Nodes with free capacity for a spec: stateful rules look at all pods for each answer."""
        self.asks = tuple(asks)
        self.units = tuple(units)
        self.cp = cp_model.CpModel()
        cp = self.cp
        self.admitted = [
            cp.new_constant(1) if all_admitted else cp.new_bool_var(f"admitted[{ask.group.key}]")
            for ask in asks
        ]
        self.lost = [
            cp.new_bool_var(f"lost[{unit.group.key},{unit.chain}]") if may_lose else cp.new_constant(0)
            for unit in units
        ]
        self.moved: dict[PodKey, cp_model.IntVar] = {}
        self.pinned = False
        """Whether a pod moves only inside its present domain, though its gang as a whole might leave it."""
        self.gone: dict[PodKey, Linear] = {}
        self._free = ledger.free.copy()
        self._leaver: dict[PodKey, Pod] = {}
        self._leaving: dict[int, list[Pod]] = {}
        self._members: dict[Device, list[Pod]] = {}
        """Shared devices with pods that may leave, and those pods."""
        self._classes: dict[Hashable, PodClass] = {}
        self._scoped: dict[Hashable, tuple[tuple[Subgroup, ...], Batch, list[int]]] = {}
        """Leaf batches below constraints: one of those that are alike, and the asks that have them."""
        self._collect_asks()
        self._collect_units()
        if moves is Moves.FREE:
            self._sums()
            return
        self._counts()
        self._scopes()
        self._capacity()

    def _may_move(self, pod: Pod, node: int) -> bool:
        """Whether the model has a variable for the pod's move away from ``node``."""
        if self._moves is not Moves.INTO_IDLE:
            return self._moves is Moves.ALL
        if pod.spec not in self._fits:
            self._fits[pod.spec] = self.ledger.fits(pod, now=False)
        fits = self._fits[pod.spec]
        return bool(np.count_nonzero(fits) > fits[node])

    # --- classes ---------------------------------------------------------------------------------

    def _collect_asks(self) -> None:
        batches = Counter(ask.group.key for ask in self.asks if ask.kind.shape.scoped)
        for a, (ask, goes) in enumerate(zip(self.asks, self.admitted, strict=True)):
            for scopes, leaf in ask.batch.leaves:
                one: Hashable = "free"
                if scopes:
                    equal = batches[ask.group.key] == 1 and self._has_equals(ask, scopes)
                    one = ask.kind.shape if equal else (a, leaf.subgroup.name)
                    self._scoped.setdefault(one, (scopes, leaf, []))[2].append(a)
                for pod in leaf.pods:
                    key: Hashable = (one, pod.spec)
                    if key not in self._classes:
                        mask = self._table.accepting(pod).copy()
                        for scope in scopes:
                            mask &= self._table.domains_of(scope)[0]
                        self._classes[key] = PodClass(pod, mask, bool(scopes))
                    self._classes[key].pods.append((pod, goes))

    def _has_equals(self, ask: Ask, scopes: Sequence[Subgroup]) -> bool:
        """Whether asks of this shape are interchangeable with it: nothing binds them but one domain each."""
        shape = ask.kind.shape
        if ask.kind.pinned is not None or any(pod.spec.gpu.shares for pod in shape.examples):
            return False
        return sum(self._table.domains_of(scope)[1] is not None for scope in scopes) == 1

    def _collect_units(self) -> None:
        for lost, unit in zip(self.lost, self.units, strict=True):
            places = ((pod, self.ledger.place_of(pod)) for pod in unit.pods)
            for pod, (node, names) in ((pod, place) for pod, place in places if place is not None):
                self._leaver[pod.key], self.gone[pod.key] = pod, lost
                self._leaving.setdefault(node, []).append(pod)
                for name in names if pod.spec.gpu.shares else ():
                    self._members.setdefault((node, name), []).append(pod)
                if not (unit.movable and self._may_move(pod, node)):
                    self.moved[pod.key] = self.cp.new_constant(0)
                    continue
                self.moved[pod.key] = moved = self.cp.new_bool_var(f"moved[{pod.key}]")
                self.cp.add_at_most_one(lost, moved)
                self.gone[pod.key] = lost + moved
                self._collect_move(unit, pod, node, moved)

    def _collect_move(self, unit: EvictionUnit, pod: Pod, node: int, moved: cp_model.IntVar) -> None:
        scopes = unit.group.root.scopes_of(pod.subgroup or "default")
        inside = self._table.inside(scopes, node) if scopes else None
        self.pinned |= inside is not None and bool((self._table.accepting(pod) & ~inside).any())
        key: Hashable = ("free", pod.spec) if inside is None else ("pinned", inside.tobytes(), pod.spec)
        if key not in self._classes:
            mask = self._table.accepting(pod)
            self._classes[key] = PodClass(pod, mask if inside is None else mask & inside)
        self._classes[key].pods.append((pod, moved))

    def _sums(self) -> None:
        """What the asks need in all is at most what is idle in sum and what the lost pods hold."""
        counting, gives = Counting(self.ledger, (), everywhere=True), list[list[int]]()
        for unit in self.units:
            held = np.sum([pod.spec.requests for pod in unit.pods], axis=0)
            sharing = [pod for pod in unit.pods if pod.spec.gpu.shares]
            # Shares of devices are rounded up, and a reservation pod may leave with the last of each.
            held[GPU] += sum(milli_gpus(pod) + 1 for pod in sharing)
            held[PODS] += sum(pod.spec.gpu.devices for pod in sharing)
            gives.append(held.tolist())
        asked = [counting.asked(ask).tolist() for ask in self.asks]
        for d, idle in enumerate(counting.idle_room.tolist()):
            wanted = sum(row[d] * yes for row, yes in zip(asked, self.admitted, strict=True))
            self.cp.add(
                wanted <= idle + sum(row[d] * lost for row, lost in zip(gives, self.lost, strict=True))
            )

    # --- counts ----------------------------------------------------------------------------------

    def _counts(self) -> None:
        """Create ``x`` of every class and tie it to the asks and moves that need it."""
        self._leave_out_domains()
        classes = self._classes.values()
        domains = {scope.constraint: domain for _, scope, domain, _ in self._required()}
        cells = self.cells = NodeCells.of(classes, self._alike(), list(domains.values()), self.ledger)
        # Counted before any variable is made, which takes longer.
        variables, counted = 0, list[tuple[int, PodClass, dict[int, int]]]()
        new = sum(item.most * item.example.spec.gpu.devices for item in classes if item.shares)
        gpus = np.minimum(self._table.allocatable[:, GPU] // MILLI, new).tolist()
        for number, item in enumerate(classes):
            takes = item.mask & ~cells.alike if item.shares else item.mask
            most = cells.most(np.where(takes, self._room_for(item.example), 0))
            if item.shares and cells.pooled:
                most[POOL] = item.most
            counted.append((number, item, most))
            variables += len(most)
            for cell in most if item.shares else ():
                # Each device has a count of its own (``ShareRows``).
                on_node = len(self.ledger.devices.get(cell, ())) + gpus[cell]
                variables += len(self._members) if cell == POOL else on_node
            if variables > LIMITS.model_counts:
                raise ModelTooLarge("too many classes and kinds of nodes")
        for number, item, most in counted:
            for cell, count in most.items():
                item.x[cell] = self.cp.new_int_var(0, min(count, item.most), f"x[{number},{cell}]")
            self.cp.add(sum(item.x.values()) == sum(goes for _, goes in item.pods))

    def _alike(self) -> Mask:
        return gpus_alone_bind(self.ledger, self._classes.values(), self._leaving)

    @cached_property
    def _most_free(self) -> Ints:
        """[N, D] what is free when all units have left."""
        counting = Counting(self.ledger, ())
        return counting.free(counting.leaving(self._leaver.values()))

    def _room_for(self, example: Pod) -> Ints:
        """[N] how many such pods each node takes at most, whatever leaves."""
        return quotient(self._most_free, taken(example))

    # --- topology --------------------------------------------------------------------------------

    def _required(self) -> Iterator[tuple[Sequence[int], Subgroup, Ints, Sequence[tuple[PodClass, int]]]]:
        """Leaf batches of asks that are each in one domain: the asks, the subgroup that is, [N] the domains
        of all nodes, and how many pods there are of each class."""
        for one, (scopes, leaf, asks) in self._scoped.items():
            items = [(self._classes[one, spec], n) for spec, n in Counter(p.spec for p in leaf.pods).items()]
            for scope in scopes:
                if (domain := self._table.domains_of(scope)[1]) is not None:
                    yield asks, scope, domain, items

    def _leave_out_domains(self) -> None:
        """Keep pods out of domains too small for their batch alone. Where pods of their subgroup have places,
        keep them out of all domains but that one."""
        for asks, scope, domain, items in self._required():
            below = self.asks[asks[0]].gang.pods_below(scope)
            there = (pod for pod in below if self.ledger.status(pod) in ACTIVE_ALLOCATED)
            begun = list(self.ledger.nodes_of(there))
            able: Mask = np.isin(domain, domain[begun]) if begun else domain >= 0
            for item, count in items:
                room = np.where(item.mask, self._room_for(item.example), 0)
                able &= np.bincount(domain + 1, room)[domain + 1] >= count
            for item, _ in items:
                item.mask &= able

    def _scopes(self) -> None:
        """Batches of one group share a domain; of equal asks, the model counts how many choose it."""
        choices: dict[tuple[GroupKey, str], tuple[dict[int, cp_model.IntVar], list[Sequence[int]]]] = {}
        for asks, scope, domain, items in self._required():
            key = (self.asks[asks[0]].group.key, scope.name)
            chosen, sharing = choices.setdefault(key, ({}, []))
            sharing.append(asks)
            for item, count in items:
                # Pods take cells in this order, so those of one batch are in one domain.
                item.x = dict(sorted(item.x.items(), key=lambda entry: int(domain[entry[0]])))
                inside: dict[int, list[cp_model.IntVar]] = {}
                for cell, var in item.x.items():
                    inside.setdefault(int(domain[cell]), []).append(var)
                for name, variables in inside.items():
                    if name not in chosen:
                        chosen[name] = self.cp.new_int_var(0, len(asks), f"chosen[{key},{name}]")
                    self.cp.add(sum(variables) <= count * chosen[name])
        for chosen, sharing in choices.values():
            total: Linear = sum(chosen.values(), start=0)
            for some in sharing:
                served = sum(self.admitted[a] for a in some)
                self.cp.add(total >= served if len(some) == 1 else total == served)
            if len(sharing[0]) == 1:
                self.cp.add_at_most_one(chosen.values())

    # --- capacity --------------------------------------------------------------------------------

    def _capacity(self) -> None:
        """Rows that keep every cell within its capacity."""
        sharing = {key: item for key, item in self._classes.items() if item.shares}
        self._shares = ShareRows(self.cp, self.ledger, sharing, self.cells, self._members, self.gone)
        self._gains: dict[int, list[Linear]] = {
            node: [taken(pod)[GPU] // MILLI * self.gone[pod.key] for pod in pods if taken(pod)[GPU]]
            for node, pods in self._leaving.items()
        }
        """Whole GPUs that become free on a node, and of these last the devices that are no longer shared."""
        for (node, _), stays in self._shares.stays.items():
            self._gains[node].append(1 - stays)
        entering: dict[int, list[tuple[PodClass, cp_model.IntVar]]] = {}
        for item in self._classes.values():
            for cell, var in item.x.items():
                entering.setdefault(cell, []).append((item, var))
        whole = self._free[:, GPU] // MILLI
        whole[list(self._leaving)] = 0
        sizes = sorted({item.size or 1 for item in self._classes.values()}, reverse=True)
        self._stay = {size: self.cells.most(whole // size) for size in sizes}
        """By size and cell, pieces on the nodes that no pod leaves."""
        taking = entering.keys() | self._shares.new.keys()
        for cell, nodes in self.cells.nodes.items():
            if cell in taking and self.cells.alike[cell]:
                gaining = [node for node in nodes.tolist() if node in self._leaving]
                self._piece_rows(cell, gaining, entering.get(cell, ()))
            elif cell in taking:
                self._node_rows(cell, entering[cell])
        if self._moves is Moves.INTO_IDLE:
            self._moves_into_idle_room()
        self._rule_rows(sorted(entering))

    def _piece_rows(
        self, cell: int, gaining: Sequence[int], entering: Sequence[tuple[PodClass, cp_model.IntVar]]
    ) -> None:
        """For every size, pods of this size and larger are no more than the pieces of it on the nodes.
        ``gaining``: those of the cell's nodes that pods may leave."""
        for size, stay in self._stay.items():
            load: list[Linear] = [(item.size // size) * var for item, var in entering if item.size >= size]
            load += self._shares.new.get(cell, ()) if size == 1 else ()
            if load:
                pieces = [self._pieces(size, node) for node in gaining]
                self.cp.add(sum(load) <= stay.get(cell, 0) + sum(pieces))

    def _pieces(self, size: int, node: int) -> Linear:
        """How many pieces of ``size`` the node offers when some of its pods are gone."""
        room = int(self._free[node, GPU]) // MILLI + sum(self._gains[node])
        if size == 1:
            return room
        most = int(self._most_free[node, GPU]) // MILLI
        if most < size:
            return 0
        pieces = self.cp.new_int_var(0, most // size, f"g[{size},{node}]")
        self.cp.add(size * pieces <= room)
        return pieces

    def _node_rows(self, node: int, entering: Sequence[tuple[PodClass, cp_model.IntVar]]) -> None:
        """What enters the node minus what leaves it is at most what will be free, in every dimension."""
        new = self._shares.new.get(node, [])
        advertised = self.ledger.fixed.advertised[node]
        for d, free in enumerate(self._free[node].tolist()):
            if not advertised[d] and free >= 0:
                continue
            terms: list[Linear] = [taken(item.example)[d] * var for item, var in entering]
            gives: list[Linear] = [taken(pod)[d] * self.gone[pod.key] for pod in self._leaving.get(node, ())]
            if d == GPU:
                terms += [MILLI * used for used in new]
                gives = [MILLI * gain for gain in self._gains.get(node, ())]
            elif d == PODS:
                terms += new
            if free < 0:
                entered = self.cp.new_bool_var(f"entered[{node}]")
                self.cp.add(sum(var for _, var in entering) == 0).only_enforce_if(~entered)
                self.cp.add(sum(terms) - sum(gives) <= free).only_enforce_if(entered)
            elif d in (GPU, PODS) or any(taken(item.example)[d] for item, _ in entering):
                self.cp.add(sum(terms) - sum(gives) <= free)

    def _moves_into_idle_room(self) -> None:
        """Pods move into capacity that is idle before anything is lost."""
        free = np.maximum(self._free[:, GPU], 0) // MILLI
        sized = ((self._leaver[key].spec.requests[GPU] // MILLI, moves) for key, moves in self.moved.items())
        moving = [(size, moves) for size, moves in sized if size]
        for least in dict.fromkeys(size for size, _ in moving):
            load = sum(size // least * moves for size, moves in moving if size >= least)
            self.cp.add(load <= int((free // least).sum()))

    def _rule_rows(self, nodes: Sequence[int]) -> None:
        """The rows of the stateful rules; where one has a say, every cell is a node."""
        classes = list(self._classes.values())
        for rule in self.ledger.rules:
            concerned = [item for item in classes if rule.concerns(item.example)]
            if not concerned and not any(rule.concerns(pod) for pod in self._leaver.values()):
                continue
            sizes = [item.most for item in concerned]
            choices = defaultdict[Hashable, cp_model.IntVar](lambda: self.cp.new_bool_var("choice"))
            for row in rule.rows([item.example for item in concerned], sizes, nodes):
                terms: list[Linear] = [
                    coefficient * concerned[c].x[node]
                    for (c, node), coefficient in row.entering.items()
                    if node in concerned[c].x
                ]
                terms += [coefficient * choices[name] for name, coefficient in row.chosen.items()]
                gives = [
                    coefficient * self.gone[key]
                    for key, coefficient in row.leaving.items()
                    if key in self.gone
                ]
                self.cp.add(sum(terms) - sum(gives) <= row.bound)

    # --- answers ---------------------------------------------------------------------------------

    def charge_least(self) -> None:
        """Ask for the answer in which queues are charged least for shares by memory (2.3)."""
        charge = self.ledger.fixed.charge
        # Every node that takes such a share is a cell of its own.
        shares = (item for item in self._classes.values() if item.example.spec.gpu.kind is GpuKind.MEMORY)
        self.cp.minimize(sum(charge(one.example, n)[GPU] * x for one in shares for n, x in one.x.items()))

    def refuse_counts(self, solver: cp_model.CpSolver) -> None:
        """Forbid an answer without places, where all asks are admitted: a class has fewer pods somewhere."""
        fewer = list[cp_model.IntVar]()
        for count in chain.from_iterable(item.x.values() for item in self._classes.values()):
            if solver.value(count):
                fewer.append(self.cp.new_bool_var("fewer"))
                self.cp.add(count < solver.value(count)).only_enforce_if(fewer[-1])
        self.cp.add_bool_or(fewer)

    def answer(self, solver: cp_model.CpSolver) -> Answer:
        """The solution pod by pod; pods of a class take its cells in placement order, the largest first."""
        served = map(solver.value, self.admitted)
        lost = [bool(solver.value(var)) for var in self.lost]
        moved = frozenset(key for key, var in self.moved.items() if solver.value(var))
        gone = [self._leaver[key] for key, leaves in self.gone.items() if solver.value(leaves)]
        going = {
            key: [pod for pod, goes in item.pods if solver.value(goes)] for key, item in self._classes.items()
        }
        free = self._free[:, GPU] // MILLI
        for node in self._leaving:
            free[node] += sum(map(solver.value, self._gains[node]))
        found: dict[PodKey, GivenPlace] = {}
        whole = [(item, going[key]) for key, item in self._classes.items() if not item.shares]
        for item, pods in sorted(whole, key=lambda pair: -pair[0].size):
            counts = ((cell, solver.value(var)) for cell, var in item.x.items())
            nodes = (self.cells.fill(cell, free, item.size, count) for cell, count in counts if count)
            places = ((node, ()) for node in chain.from_iterable(nodes))
            found |= zip((pod.key for pod in pods), places, strict=True)
        found |= self._shares.places(going, solver, free)
        return Answer(found, list(compress(self.asks, served)), lost, moved, gone)
