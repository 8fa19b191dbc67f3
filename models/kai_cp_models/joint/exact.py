"""The exact encoding: every node is a cell, every dimension a row, every shared device modelled.

For every node and dimension, what enters minus what leaves is at most what will be free. A node that is
already over its capacity may stay so, but nothing enters it. For shares ``w[c,n,j]`` counts class c on device
j of node n. The encoding is exact for any mix of requests, and serves clusters of up to a few hundred nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from kai_cp_models.arrays import Ints
from kai_cp_models.joint.model import JointModel, PodClass
from kai_cp_models.joint.search import Linear
from kai_cp_models.pods import GPU, MILLI, PODS, Pod, PodKey
from kai_cp_models.solver import cp_model


class ExactModel(JointModel):
    """See the module's docstring."""

    def _node_of(self, cell: int) -> int:
        return cell

    def _cut_cells(self) -> None:
        self._most_free = self._free.copy()
        for node, pods in self._leaving.items():
            for pod in pods:
                self._most_free[node] += np.array(pod.spec.requests, dtype=np.int64)
                if pod.spec.gpu.shares:
                    self._most_free[node, GPU] += MILLI * pod.spec.gpu.devices

    def _room_for(self, item: PodClass) -> tuple[Ints, Ints]:
        request = np.array(self._request(item.example), dtype=np.int64)
        asked = request > 0
        room = (self._most_free[:, asked] // request[asked]).min(axis=1)
        room = np.where(item.mask & (self._most_free >= 0).all(axis=1), np.minimum(room, item.most), 0)
        nodes = np.flatnonzero(room > 0)
        return nodes, room[nodes]

    def _capacity(self) -> None:
        self._entering: dict[int, list[tuple[PodClass, cp_model.IntVar]]] = {}
        for item in self._classes.values():
            for node, var in item.x.items():
                self._entering.setdefault(node, []).append((item, var))
        self._counts_on: dict[int, dict[str, dict[Hashable, cp_model.IntVar]]] = {}
        """Counts of each class on the shared devices of a node, by the name of the device."""
        self._gpu_extra: dict[int, list[Linear]] = {}
        """Whole GPUs that shared devices of a node take, or give back where negative."""
        self._slot_extra: dict[int, list[Linear]] = {}
        sharing = {
            n for n, items in self._entering.items() for item, _ in items if item.example.spec.gpu.shares
        }
        for node in sorted(sharing | {node for node, _ in self._members}):
            self._share_node(node)
        self._node_rows()
        self._device_rules()

    # --- nodes -----------------------------------------------------------------------------------

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

    def _share_node(self, node: int) -> None:
        """Counts per device for the shares of one node: first its shared devices, then new ones."""
        self._counts_on[node] = {}
        self._gpu_extra[node] = []
        items = {
            key: item
            for key, item in self._classes.items()
            if item.example.spec.gpu.shares and node in item.x
        }
        self._share_devices(node, items)
        self._share_new_ones(node, items)
        for key, item in items.items():
            counts = [counts[key] for counts in self._counts_on[node].values() if key in counts]
            self.cp.add(sum(counts) == item.example.spec.gpu.devices * item.x[node])

    def _share_devices(self, node: int, items: Mapping[Hashable, PodClass]) -> None:
        """The rows of shared devices that have members: their free memory, and a whole GPU when all members
        leave.
        """
        ledger = self.ledger
        for name in ledger.groups_on.get(node, ()):
            device = ledger.devices[node, name]
            if not (device.active or device.pipelined):
                continue
            stays = self._stays((node, name))
            self._gpu_extra[node].append(MILLI * (stays - 1))
            load = self._loaded(node, name, items, stays)
            if load:
                leaving = self._members.get((node, name), ())
                freed = [ledger.share_mib_on(pod, node) * self.gone[pod.key] for pod in leaving]
                free = self._mib(node) - device.active_mib - device.pipelined_mib
                self.cp.add(sum(load) - sum(freed) <= free)

    def _share_new_ones(self, node: int, items: Mapping[Hashable, PodClass]) -> None:
        """The rows of devices that are not shared yet, in order; each takes a whole GPU and a pod slot."""
        cp = self.cp
        demand = sum(item.most * item.example.spec.gpu.devices for item in items.values())
        gpus = int(self.ledger.fixed.table.allocatable[node, GPU]) // MILLI
        previous: cp_model.IntVar | None = None
        for k in range(min(gpus, demand)):
            used = cp.new_bool_var(f"new[{node},{k}]")
            if previous is not None:
                cp.add_implication(used, previous)
            previous = used
            cp.add(sum(self._loaded(node, f"new-{k}", items, used)) <= self._mib(node) * used)
            self._gpu_extra[node].append(MILLI * used)
            self._slot_extra.setdefault(node, []).append(used)

    def _loaded(
        self, node: int, name: str, items: Mapping[Hashable, PodClass], there: Linear
    ) -> list[Linear]:
        """Counts of each class on the device while ``there`` holds, and the MiB that they take."""
        load: list[Linear] = []
        counts = self._counts_on[node][name] = {}
        for key, item in items.items():
            need = self.ledger.share_mib_on(item.example, node)
            most = min(item.most, self._mib(node) // need if need else item.most)
            if most <= 0:
                continue
            count = counts[key] = self.cp.new_int_var(0, most, f"w[{node},{name}]")
            self.cp.add(count <= item.x[node])
            self.cp.add(count <= most * there)
            load.append(need * count)
        return load

    def _mib(self, node: int) -> int:
        return int(self.ledger.fixed.gpu_memory_mib[node])

    # --- rules that bring their own rows ---------------------------------------------------------

    def _device_rules(self) -> None:
        classes = list(self._classes.values())
        nodes = sorted(self._entering)
        for rule in self.ledger.rules:
            concerned = [item for item in classes if rule.concerns(item.example)]
            if not concerned and not any(rule.concerns(pod) for pod in self._leaver.values()):
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

    def _places(
        self,
        going: Mapping[Hashable, Sequence[Pod]],
        counts: Mapping[Hashable, Mapping[int, int]],
        solver: cp_model.CpSolver,
        gone: frozenset[PodKey],
    ) -> dict[PodKey, tuple[int, tuple[str, ...]]]:
        room = {
            (node, name, key): solver.value(count)
            for node, devices in self._counts_on.items()
            for name, counted in devices.items()
            for key, count in counted.items()
        }
        found: dict[PodKey, tuple[int, tuple[str, ...]]] = {}
        for key, pods in going.items():
            slots = [node for node, count in counts[key].items() for _ in range(count)]
            for pod, node in zip(pods, slots, strict=True):
                names: tuple[str, ...] = ()
                if pod.spec.gpu.shares:
                    options = [name for name, counted in self._counts_on[node].items() if key in counted]
                    options.sort(key=lambda name: (-room[node, name, key], name))
                    names = tuple(options[: pod.spec.gpu.devices])
                    for name in names:
                        room[node, name, key] -= 1
                found[pod.key] = (node, names)
        return found
