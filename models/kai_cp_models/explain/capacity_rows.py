"""Rows of ``feasibility`` about capacity: of nodes, whole pods on equal nodes, and shared devices (2.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kai_cp_models.explain.cells import request_of
from kai_cp_models.explain.device_patterns import DevicePatterns, kinds_of
from kai_cp_models.explain.families import Family
from kai_cp_models.explain.variables import Variables, choices
from kai_cp_models.joint.search import Linear
from kai_cp_models.pods import GPU, MILLI, Pod
from kai_cp_models.solver import cp_model

Share = tuple[int, int, cp_model.IntVar]
"""Equal pods on parts of devices: milli-GPUs of each device, devices of each pod, and the number of pods."""


class CapacityRows:
    """Adds the rows to a model."""

    def __init__(self, model: Variables) -> None:
        self.m = model
        asking = any(item.example.spec.gpu.shares for item in model.classes)
        self._bins = model.cells.exact or asking
        """Whether every new shared device has variables of its own; else those of a cell are counted
        together."""

    def add(self) -> None:
        """All rows of this subject."""
        self._here: dict[int, list[int]] = {}
        for i, leaver in enumerate(self.m.cells.leavers):
            self._here.setdefault(leaver.cell, []).append(i)
        if self.m.cells.summed:
            for n, nodes in enumerate(self.m.cells.nodes):
                for d in range(self.m.free.shape[1]):
                    self._sum_row(n, nodes, d)
            self._add_patterns()
            return
        self._share_members()
        told = set() if self.m.cells.exact else self._add_patterns()
        for n, nodes in enumerate(self.m.cells.nodes):
            for d in range(self.m.free.shape[1]):
                self._room_row(n, nodes, d)
            if len(nodes) > 1:
                self._whole_pods(n, nodes)
            elif n not in told and self._sharing(n):
                self._shares(n, nodes[0])

    def _add_patterns(self) -> set[int]:
        """Add the rows of shared devices of a kind; returns the cells that have them."""
        kinds = kinds_of(self.m)
        found = set()
        for n in range(len(self.m.cells.nodes)):
            if n in kinds or self._sharing(n):
                devices = DevicePatterns(self.m, n, kinds.get(n, Counter()))
                if devices.known:
                    devices.add()
                    found.add(n)
        return found

    def _sum_row(self, n: int, nodes: Sequence[int], d: int) -> None:
        """Over nodes that differ, the sum that enters is at most the sum that is free plus the sum that
        leaves.
        """
        shares = self._shares_moving(n, nodes) if d == GPU else []
        entering = [y[d][n] for y in self.m.y if d in y] + self._entering_whole(n, d)
        if entering or shares:
            parts = sum(part * count * pods for part, count, pods in shares)
            row = self.m.cp.add(
                sum(entering) + parts - sum(self._gives(n, d)) <= int(self.m.cells.room[n, d])
            )
            self.m.under(row, self.m.room(d))

    def _entering_whole(self, n: int, d: int) -> list[Linear]:
        """What moves to a cell, without shares of GPUs."""
        return [
            request_of(self.m.cells.movers[m].example)[d] * to[n]
            for m, to in self.m.to.items()
            if n in to and request_of(self.m.cells.movers[m].example)[d]
        ]

    def _gives(self, n: int, d: int) -> list[Linear]:
        """What leaves a cell."""
        leavers = self.m.cells.leavers
        return [
            leavers[i].request[d] * self.m.gone[i] for i in self._here.get(n, ()) if leavers[i].request[d]
        ]

    def _room_row(self, n: int, nodes: Sequence[int], d: int) -> None:
        """What enters minus what leaves fits into what is free; for pieces, parts of shared GPUs count
        too."""
        free = int(self.m.free[nodes[0], d])
        pieces = [y[d][n] for y in self.m.y if d in y]
        moving = self._entering_whole(n, d)
        shares = self._shares_moving(n, nodes) if d == GPU else []
        if not pieces and not moving and not shares and free >= 0:
            return
        gives = self._gives(n, d)
        bound = len(nodes) * free
        entering = sum(pieces) + sum(moving)
        parts_of_movers = sum(part * count * pods for part, count, pods in shares)
        if d != GPU or not self._members.get(n):
            self._room_of(n, d, entering + parts_of_movers - sum(gives), bound, (self.m.room(d),))
            if len(nodes) > 1 and shares:
                fresh = MILLI * self._fresh_among(n, shares)
                families = (self.m.room(d), "fragmentation")
                self._room_of(n, d, entering + fresh - sum(gives), bound, families)
            return
        whole = [MILLI * freed for freed in self._freed[n].values()]
        # ``_shares`` puts a share on its device; whole GPUs are idle, or devices whose pods all leave.
        plain = [
            y[d][n]
            for y, item in zip(self.m.y, self.m.classes, strict=True)
            if d in y and not item.example.spec.gpu.shares
        ]
        used = sum(plain) + sum(moving) - sum(gives) - sum(whole)
        self._room_of(n, d, used, bound, (self.m.room(d), "fragmentation"))
        parts, spare = self._parts(n, nodes[0])
        used = entering + parts_of_movers - sum(gives) - sum(parts)
        self._room_of(n, d, used, bound + spare, (self.m.room(d),))

    def _shares_moving(self, n: int, nodes: Sequence[int]) -> list[Share]:
        """Shares that move to a cell, each with the least part that it takes of a device of these nodes."""
        found = []
        memory = self.m.ledger.fixed.table.gpu_memory_mib
        for m, to in self.m.to.items():
            pod = self.m.cells.movers[m].example
            if n in to and pod.spec.gpu.shares:
                parts = (
                    MILLI * self.m.ledger.share_mib_on(pod, node) // max(1, int(memory[node]))
                    for node in nodes
                )
                found.append((min(MILLI, *parts), pod.spec.gpu.devices, to[n]))
        return found

    def _fresh_among(self, n: int, shares: Sequence[Share]) -> cp_model.IntVar:
        """New shared devices of a cell: as many as the shares there need (2.6), counted together."""
        devices = sum(count for _, count, _ in shares)
        most = devices * sum(leaver.count for leaver in self.m.cells.leavers)
        fresh = self.m.cp.new_int_var(0, most, f"fresh[{n}]")
        self.m.cp.add(MILLI * fresh >= sum(part * count * pods for part, count, pods in shares))
        large = [count * pods for part, count, pods in shares if 2 * part > MILLI]
        if large:
            self.m.cp.add(fresh >= sum(large))
        return fresh

    def _room_of(self, n: int, d: int, used: Linear, bound: int, families: Sequence[Family]) -> None:
        row = self.m.cp.add(used <= bound)
        if bound >= 0:
            self.m.under(row, *families)
            return
        # A node that is overcommitted already may stay so while nothing enters.
        entered = self.m.cp.new_bool_var(f"entered[{n},{d}]")
        for c in range(len(self.m.classes)):
            for var in self.m.of_class(c, n):
                self.m.cp.add(var == 0).only_enforce_if(~entered)
        for to in self.m.to.values():
            if n in to:
                self.m.cp.add(to[n] == 0).only_enforce_if(~entered)
        self.m.under(row, *families, also=(entered,))

    def _whole_pods(self, n: int, nodes: Sequence[int]) -> None:
        """A pod lies on one node: the number of pods that each of the equal nodes takes once some kinds of
        leavers are gone."""
        for c, item in enumerate(self.m.classes):
            for d, asked in self.m.asked(item):
                self._floors(n, nodes, d, asked, self.m.x[c][n], families=(self.m.room(d), "fragmentation"))
        for m, to in self.m.to.items():
            if n in to:
                for d, asked in enumerate(request_of(self.m.cells.movers[m].example)):
                    if asked:
                        self._floors(n, nodes, d, asked, to[n], families=(self.m.room(d),))

    def _floors(
        self,
        n: int,
        nodes: Sequence[int],
        d: int,
        asked: int,
        entering: cp_model.IntVar,
        *,
        families: Sequence[Family],
    ) -> None:
        leavers = [i for i in self._here.get(n, ()) if self.m.cells.leavers[i].request[d]]
        free = max(0, int(self.m.free[nodes[0], d]))
        for gone in choices(self.m.kind(i) for i in leavers):
            left = free + sum(
                self.m.cells.leavers[i].request[d] * self.m.cells.leavers[i].count // len(nodes)
                for i in leavers
                if self.m.kind(i) in gone
            )
            if left % asked == 0:
                continue  # Whole pods leave no remainder, so the row of the capacity says the same.
            others: list[Linear] = [
                self.m.cells.leavers[i].request[d] * self.m.gone[i]
                for i in leavers
                if self.m.kind(i) not in gone
            ]
            each = left // asked
            extra = entering - len(nodes) * each
            self.m.under(self.m.cp.add((asked * (each + 1) - left) * extra <= sum(others)), *families)

    def _share_members(self) -> None:
        """Which pods are on which shared device, and whether a device becomes free once all of them are
        gone."""
        self._members: dict[int, dict[str, list[int]]] = {}
        self._freed: dict[int, dict[str, cp_model.IntVar]] = {}
        index = self.m.cells.leaver_of
        for node, there in self.m.ledger.devices.items():
            n = int(self.m.cells.of[node])
            if n < 0:
                continue
            for name, device in there.items():
                if device.active or device.pipelined:
                    self._members.setdefault(n, {})[name] = []
        for leaver in self.m.cells.leavers:
            for pod in leaver.pods:
                place = self.m.ledger.place_of(pod)
                if pod.spec.gpu.shares and place is not None:
                    for name in place[1]:
                        if name in self._members.get(leaver.cell, {}):
                            self._members[leaver.cell][name].append(index[pod.key])
        for n, devices in self._members.items():
            node = self.m.cells.nodes[n][0]
            for name, members in devices.items():
                device = self.m.ledger.devices[node][name]
                freed = self.m.cp.new_bool_var(f"freed[{n},{name}]")
                self._freed.setdefault(n, {})[name] = freed
                if device.active + device.pipelined > len(members):
                    self.m.cp.add(freed == 0)
                for i in members:
                    self.m.cp.add(self.m.gone[i] >= freed)

    def _parts(self, n: int, node: int) -> tuple[list[Linear], int]:
        """Parts of shared devices in milli-GPUs: parts that members give back, and free parts."""
        total = int(self.m.ledger.fixed.table.gpu_memory_mib[node])
        given: list[Linear] = []
        spare = 0
        for name, members in self._members[n].items():
            free = self.m.ledger.devices[node][name].free_mib(total, now=False)
            spare += -(-MILLI * max(free, 0) // total)
            for i in members:
                need = self.m.ledger.share_mib_on(self.m.cells.leavers[i].pods[0], node)
                given.append(-(-MILLI * need // total) * self.m.gone[i])
        return given, spare

    def _sharing(self, n: int) -> bool:
        movers = (self.m.cells.movers[m].example for m, to in self.m.to.items() if n in to)
        return any(item.example.spec.gpu.shares for item in self.m.classes) or any(
            pod.spec.gpu.shares for pod in movers
        )

    def _shares(self, n: int, node: int) -> None:
        """A share lies on one device: members of each device fit its memory (2.6)."""
        entering: list[tuple[Pod, cp_model.IntVar]] = [
            (item.example, self.m.x[c][n])
            for c, item in enumerate(self.m.classes)
            if item.example.spec.gpu.shares
        ]
        for m, to in self.m.to.items():
            if n in to and self.m.cells.movers[m].example.spec.gpu.shares:
                entering.append((self.m.cells.movers[m].example, to[n]))
        total = int(self.m.ledger.fixed.table.gpu_memory_mib[node])
        families = (self.m.room(GPU), "fragmentation")
        counts: list[list[cp_model.IntVar]] = [[] for _ in entering]
        most = sum(item.count for item in self.m.classes) + sum(
            leaver.count for leaver in self.m.cells.leavers
        )

        def on_device(name: str, closed: cp_model.LiteralT) -> Linear:
            """Memory of the shares that enter one device, in MiB; none while the device is closed to them."""
            load: list[Linear] = []
            for e, (pod, x) in enumerate(entering):
                count = self.m.cp.new_int_var(0, most, f"on[{n},{name},{e}]")
                self.m.cp.add(count <= x)
                self.m.cp.add(count == 0).only_enforce_if(closed)
                counts[e].append(count)
                load.append(self.m.ledger.share_mib_on(pod, node) * count)
            return sum(load)

        total = self.m.ledger.fixed.mib_on[node]
        for name, members in self._members.get(n, {}).items():
            load = on_device(name, self._freed[n][name])
            freed = [
                self.m.ledger.share_mib_on(self.m.cells.leavers[i].pods[0], node) * self.m.gone[i]
                for i in members
            ]
            free = max(self.m.ledger.devices[node][name].free_mib(total, now=False), 0)
            self.m.under(self.m.cp.add(load - sum(freed) <= free), *families)
        fresh: list[cp_model.IntVar] = []
        if self._bins:
            gpus = int(self.m.ledger.fixed.table.allocatable[node, GPU]) // MILLI
            for k in range(gpus):
                used = self.m.cp.new_bool_var(f"fresh[{n},{k}]")
                self.m.under(self.m.cp.add(on_device(f"new-{k}", ~used) <= total), *families)
                fresh.append(used)
        else:
            shares = []
            for e, (pod, _) in enumerate(entering):
                count = self.m.cp.new_int_var(0, most, f"on[{n},new,{e}]")
                counts[e].append(count)
                part = min(MILLI, MILLI * self.m.ledger.share_mib_on(pod, node) // total)
                shares.append((part, 1, count))
            fresh.append(self._fresh_among(n, shares))
        for e, (pod, x) in enumerate(entering):
            self.m.under(self.m.cp.add(sum(counts[e]) == pod.spec.gpu.devices * x), *families)
        self._fresh_devices(n, node, fresh)

    def _fresh_devices(self, n: int, node: int, fresh: Sequence[cp_model.IntVar]) -> None:
        """A new shared device takes a whole GPU and one pod slot (2.6)."""
        whole = [
            self._asked_of(c, GPU) * self.m.x[c][n]
            for c, item in enumerate(self.m.classes)
            if not item.example.spec.gpu.shares
        ]
        for m, to in self.m.to.items():
            if n in to:
                whole.append(request_of(self.m.cells.movers[m].example)[GPU] * to[n])
        gives = self._gives(n, GPU)
        freed = [MILLI * var for var in self._freed.get(n, {}).values()]
        free = max(0, int(self.m.free[node, GPU]))
        row = self.m.cp.add(MILLI * sum(fresh) + sum(whole) - sum(gives) - sum(freed) <= free)
        self.m.under(row, self.m.room(GPU), "fragmentation")

    def _asked_of(self, c: int, d: int) -> int:
        return dict(self.m.asked(self.m.classes[c])).get(d, 0)
