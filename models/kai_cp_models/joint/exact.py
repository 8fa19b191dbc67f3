"""The exact placement model: how many pods of every class go to every node, and which pods leave.

Sets: classes c (pods with equal specs and equal topology scope), nodes n, asks a, offers o.
Variables: ``x[c,n]`` count of class c newly on node n; ``admitted[a]``; ``lost[o]``; ``moved[p]``;
``chosen[a,s,d]`` the domain of a constrained subgroup; for shares ``w[c,n,j]`` on device j.

Rows, for every node and dimension: what enters minus what leaves fits what is free in the end. A node
that is already over its capacity may stay as it is, but nothing enters it. Never pod x node: pods of
a class are counted, and nodes that cannot take a class have no variable.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from ortools.sat.python import cp_model

from kai_cp_models.joint.problem import Answer, Ask, Offer, leaves_with_scopes
from kai_cp_models.joint.search import Linear
from kai_cp_models.ledger import Ledger, Mask
from kai_cp_models.rules.table import accepting
from kai_cp_models.snapshot import (
    ACTIVE_ALLOCATED,
    GPU,
    MILLI,
    PODS,
    GpuKind,
    Pod,
    PodKey,
    Subgroup,
)


class TooLarge(Exception):
    """The exact model would need more variables than can be solved in a cycle."""


@dataclass
class _Class:
    """Pods that the model counts together; ``example`` stands for all of them."""

    example: Pod
    mask: Mask
    terms: list[tuple[int, Linear]] = field(default_factory=list)
    """(count, literal): how many pods each admitted ask or moved pod adds."""
    x: dict[int, cp_model.IntVar] = field(default_factory=dict)
    pods: list[tuple[Pod, int | None]] = field(default_factory=list)
    """Pods in placement order with the ask they belong to (None: a moved pod)."""

    @property
    def most(self) -> int:
        return sum(count for count, _ in self.terms)


@dataclass
class _DeviceVar:
    """A shared device of a node in the model: its name and the counts of each class on it."""

    name: str
    counts: dict[Hashable, cp_model.IntVar] = field(default_factory=dict)


class ExactModel:
    """Builds the rows of the module's docstring; callers add rows and objectives of their own."""

    def __init__(
        self,
        ledger: Ledger,
        asks: Sequence[Ask],
        offers: Sequence[Offer] = (),
        *,
        may_lose: bool = True,
        max_variables: int = 60_000,
    ) -> None:
        self.ledger = ledger
        self.asks = tuple(asks)
        self.offers = tuple(offers)
        self.cp = cp_model.CpModel()
        cp = self.cp
        self.admitted = [cp.new_bool_var(f"admitted[{ask.group.key}]") for ask in asks]
        self.lost = [
            cp.new_bool_var(f"lost[{offer.group.key},{offer.chain}]") if may_lose else cp.new_constant(0)
            for offer in offers
        ]
        self.moved: dict[PodKey, cp_model.IntVar] = {}
        self.gone: dict[PodKey, Linear] = {}
        self._pod: dict[PodKey, Pod] = {}
        self._classes: dict[Hashable, _Class] = {}
        self._devices: dict[int, list[_DeviceVar]] = {}
        self._scope_domains: dict[tuple[int, str], dict[int, cp_model.IntVar]] = {}
        for lost, offer in zip(self.lost, offers, strict=True):
            for pod in offer.pods:
                moved = cp.new_bool_var(f"moved[{pod.key}]")
                self._pod[pod.key] = pod
                self.moved[pod.key] = moved
                self.gone[pod.key] = lost + moved
                cp.add_at_most_one(lost, moved)
        self._free = ledger.idle + ledger.releasing
        self._collect_asks()
        self._collect_moves()
        self._counts(max_variables)
        self._scopes()
        self._nodes()
        self._shares()
        self._device_rules()

    # --- classes ---------------------------------------------------------------------------------

    def _collect_asks(self) -> None:
        for a, ask in enumerate(self.asks):
            for scopes, leaf in leaves_with_scopes(ask.batch):
                for pod in leaf.pods:
                    key: Hashable = (a, leaf.subgroup.name, pod.spec) if scopes else ("free", pod.spec)
                    found = self._classes.get(key)
                    if found is None:
                        mask = accepting(self.ledger.fixed.table, pod).copy()
                        for scope in scopes:
                            mask &= self._in_topology(scope)
                        found = self._classes[key] = _Class(pod, mask)
                    found.terms.append((1, self.admitted[a]))
                    found.pods.append((pod, a))

    def _collect_moves(self) -> None:
        for offer in self.offers:
            gang = self.ledger.fixed.gangs[offer.group.key]
            for pod in offer.pods:
                place = self.ledger.place_of(pod)
                if place is None:
                    continue
                mask = self._move_mask(gang.group.root, pod, place[0])
                # A pod pinned by a constraint moves inside its present domain.
                key: Hashable = ("free", pod.spec) if mask is None else ("pinned", mask.tobytes(), pod.spec)
                found = self._classes.get(key)
                if found is None:
                    allowed = accepting(self.ledger.fixed.table, pod)
                    found = self._classes[key] = _Class(pod, allowed if mask is None else allowed & mask)
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

    def _domain_of(self, subgroup: Subgroup) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        constraint = subgroup.constraint
        assert constraint is not None
        tree = self.ledger.fixed.table.trees[constraint.topology]
        return tree.domain_at(constraint.required)

    def _counts(self, max_variables: int) -> None:
        most_free = self._free.copy()
        for pod in self._pod.values():
            place = self.ledger.place_of(pod)
            if place is not None:
                most_free[place[0]] += np.array(pod.spec.requests, dtype=np.int64)
                if pod.spec.gpu.shares:
                    most_free[place[0], GPU] += MILLI * pod.spec.gpu.devices
        variables = 0
        for number, item in enumerate(self._classes.values()):
            request = np.array(item.example.spec.requests, dtype=np.int64)
            if item.example.spec.gpu.shares:
                request[GPU] = 0
            asked = request > 0
            room = (most_free[:, asked] // request[asked]).min(axis=1)
            room = np.where(item.mask & (most_free >= 0).all(axis=1), np.minimum(room, item.most), 0)
            nodes = np.flatnonzero(room > 0)
            variables += len(nodes)
            if variables > max_variables:
                raise TooLarge
            for node in nodes.tolist():
                item.x[node] = self.cp.new_int_var(0, int(room[node]), f"x[{number},{node}]")
            self.cp.add(sum(item.x.values()) == sum(count * literal for count, literal in item.terms))

    # --- topology --------------------------------------------------------------------------------

    def _scopes(self) -> None:
        if not self.ledger.snapshot.policy.plugin("topology"):
            return
        for a, ask in enumerate(self.asks):
            for scopes, leaf in leaves_with_scopes(ask.batch):
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
                        for node, var in item.x.items():
                            inside.setdefault(int(domain[node]), []).append(var)
                        for name, variables in inside.items():
                            if name in chosen:
                                self.cp.add(sum(variables) <= item.most * chosen[name])
                            else:
                                self.cp.add(sum(variables) == 0)

    def _chosen(self, a: int, ask: Ask, scope: Subgroup) -> dict[int, cp_model.IntVar]:
        found = self._scope_domains.get((a, scope.name))
        if found is not None:
            return found
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
        chosen = {name: self.cp.new_bool_var(f"chosen[{a},{scope.name},{name}]") for name in sorted(allowed)}
        self.cp.add(sum(chosen.values()) == self.admitted[a])
        self._scope_domains[a, scope.name] = chosen
        return chosen

    # --- nodes -----------------------------------------------------------------------------------

    def _nodes(self) -> None:
        entering: dict[int, list[tuple[_Class, cp_model.IntVar]]] = {}
        for item in self._classes.values():
            for node, var in item.x.items():
                entering.setdefault(node, []).append((item, var))
        leaving: dict[int, list[Pod]] = {}
        for pod in self._pod.values():
            place = self.ledger.place_of(pod)
            if place is not None:
                leaving.setdefault(place[0], []).append(pod)
        self._entering = entering
        self._leaving = leaving
        self._gpu_extra: dict[int, list[Linear]] = {}
        self._slot_extra: dict[int, list[Linear]] = {}
        share_nodes = {
            node for node, items in entering.items() if any(item.example.spec.gpu.shares for item, _ in items)
        }
        share_nodes |= {node for node, pods in leaving.items() if any(pod.spec.gpu.shares for pod in pods)}
        self._share_nodes = sorted(share_nodes)

    def _node_rows(self) -> None:
        for node, items in self._entering.items():
            advertised = self.ledger.fixed.advertised[node]
            for d in range(self._free.shape[1]):
                free = int(self._free[node, d])
                if not advertised[d] and free >= 0:
                    continue
                terms: list[Linear] = [self._request(item.example)[d] * var for item, var in items]
                terms += self._gpu_extra.get(node, []) if d == GPU else []
                terms += self._slot_extra.get(node, []) if d == PODS else []
                gives = [self._request(pod)[d] * self.gone[pod.key] for pod in self._leaving.get(node, ())]
                if free < 0:
                    entered = self.cp.new_bool_var(f"entered[{node}]")
                    self.cp.add(sum(var for _, var in items) == 0).only_enforce_if(~entered)
                    self.cp.add(sum(terms) - sum(gives) <= free).only_enforce_if(entered)
                elif any(self._request(item.example)[d] for item, _ in items) or d in (GPU, PODS):
                    self.cp.add(sum(terms) - sum(gives) <= free)

    def _request(self, pod: Pod) -> tuple[int, ...]:
        requests = pod.spec.requests
        return (*requests[:GPU], 0, *requests[GPU + 1 :]) if pod.spec.gpu.shares else requests

    # --- shared devices --------------------------------------------------------------------------

    def _shares(self) -> None:
        for node in self._share_nodes:
            self._share_node(node)
        self._node_rows()

    def _share_node(self, node: int) -> None:
        cp, ledger = self.cp, self.ledger
        total = int(ledger.fixed.gpu_memory_mib[node])
        items = [
            (key, item, item.x[node])
            for key, item in self._classes.items()
            if item.example.spec.gpu.shares and node in item.x
        ]
        members: dict[str, list[Pod]] = {}
        for pod in self._leaving.get(node, ()):
            place = ledger.place_of(pod)
            if pod.spec.gpu.shares and place is not None:
                for name in place[1]:
                    members.setdefault(name, []).append(pod)
        whole: list[Linear] = []
        devices: list[_DeviceVar] = []
        rows: dict[Hashable, list[cp_model.IntVar]] = {key: [] for key, _, _ in items}
        for name in ledger.groups_on.get(node, ()):
            device = ledger.devices[node, name]
            if not (device.active or device.pipelined):
                continue
            candidates = members.get(name, [])
            stays: list[Linear] = [1 - self.gone[pod.key] for pod in candidates]
            some: Linear = 1
            if device.active + device.pipelined <= len(candidates):
                some_var = cp.new_bool_var(f"stays[{node},{name}]")
                cp.add(sum(stays) >= some_var)
                for stay in stays:
                    cp.add(some_var >= stay)
                whole.append(MILLI * (some_var - 1))
                some = some_var
            var = _DeviceVar(name)
            load: list[Linear] = []
            for key, item, x in items:
                need = ledger.share_mib_on(item.example, node)
                most = min(item.most, total // need if need else item.most)
                if most <= 0:
                    continue
                count = cp.new_int_var(0, most, f"w[{node},{name}]")
                cp.add(count <= x)
                cp.add(count <= most * some)
                var.counts[key] = count
                rows[key].append(count)
                load.append(need * count)
            if load:
                freed = [ledger.share_mib_on(pod, node) * self.gone[pod.key] for pod in candidates]
                cp.add(sum(load) - sum(freed) <= total - device.active_mib - device.pipelined_mib)
            devices.append(var)
        demand = sum(item.most * item.example.spec.gpu.devices for _, item, _ in items)
        gpus = int(ledger.fixed.table.allocatable[node, GPU]) // MILLI
        previous: cp_model.IntVar | None = None
        for k in range(min(gpus, demand)):
            used = cp.new_bool_var(f"new[{node},{k}]")
            if previous is not None:
                cp.add_implication(used, previous)
            previous = used
            var = _DeviceVar(f"new-{k}")
            load = []
            for key, item, x in items:
                need = ledger.share_mib_on(item.example, node)
                most = min(item.most, total // need if need else item.most)
                count = cp.new_int_var(0, max(most, 0), f"w[{node},new{k}]")
                cp.add(count <= x)
                cp.add(count <= most * used)
                var.counts[key] = count
                rows[key].append(count)
                load.append(need * count)
            cp.add(sum(load) <= total * used)
            whole.append(MILLI * used)
            self._slot_extra.setdefault(node, []).append(used)
            devices.append(var)
        for key, item, x in items:
            cp.add(sum(rows[key]) == item.example.spec.gpu.devices * x)
        if whole:
            self._gpu_extra[node] = whole
        self._devices[node] = devices

    # --- rules that bring their own rows ---------------------------------------------------------

    def _device_rules(self) -> None:
        classes = list(self._classes.values())
        nodes = sorted(self._entering)
        for rule in self.ledger.rules:
            concerned = [item for item in classes if rule.concerns(item.example)]
            if not concerned:
                continue
            sizes = [item.most for item in concerned]
            for row in rule.rows([item.example for item in concerned], sizes, nodes):
                terms: list[Linear] = [
                    coefficient * concerned[c].x[node]
                    for (c, node), coefficient in row.entering.items()
                    if node in concerned[c].x
                ]
                gives = [
                    coefficient * self.gone[key]
                    for key, coefficient in row.leaving.items()
                    if key in self.gone
                ]
                self.cp.add(sum(terms) - sum(gives) <= row.bound)

    # --- answers ---------------------------------------------------------------------------------

    def hint(self, ledger: Ledger) -> None:
        """Hint the placement that a greedy pass found for the asks in ``ledger``."""
        for item in self._classes.values():
            counts: dict[int, int] = {}
            for pod, ask in item.pods:
                held = ledger.held.get(pod.key)
                if ask is not None and held is not None:
                    counts[held.node] = counts.get(held.node, 0) + 1
            for node, var in item.x.items():
                self.cp.add_hint(var, counts.get(node, 0))

    def answer(self, solver: cp_model.CpSolver) -> Answer:
        """The solution pod by pod; pods of a class take its nodes in placement order."""
        admitted = tuple(bool(solver.value(var)) for var in self.admitted)
        lost = tuple(bool(solver.value(var)) for var in self.lost)
        moved = frozenset(key for key, var in self.moved.items() if solver.value(var))
        nodes_of: dict[PodKey, tuple[int, tuple[str, ...]]] = {}
        room = {
            (node, device.name, key): solver.value(count)
            for node, devices in self._devices.items()
            for device in devices
            for key, count in device.counts.items()
        }
        for key, item in self._classes.items():
            slots = [node for node, var in sorted(item.x.items()) for _ in range(solver.value(var))]
            going = [
                pod for pod, ask in item.pods if (admitted[ask] if ask is not None else pod.key in moved)
            ]
            for pod, node in zip(going, slots, strict=True):
                names: tuple[str, ...] = ()
                if item.example.spec.gpu.shares:
                    options = [
                        (room[node, device.name, key], device.name)
                        for device in self._devices[node]
                        if key in device.counts
                    ]
                    options.sort(key=lambda option: (-option[0], option[1]))
                    names = tuple(name for _, name in options[: pod.spec.gpu.devices])
                    for name in names:
                        room[node, name, key] -= 1
                nodes_of[pod.key] = (node, names)
        return Answer(nodes_of, admitted, lost, moved)

    @property
    def uses_memory_shares(self) -> bool:
        """Whether some class is charged by node (gpu-memory), so that queue rows are optimistic."""
        return any(item.example.spec.gpu.kind is GpuKind.MEMORY for item in self._classes.values())
