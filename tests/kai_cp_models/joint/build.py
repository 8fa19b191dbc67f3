"""Small joint problems for tests: all waiting groups as asks, all running groups as offers; random worlds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.joint.model import JointModel
from kai_cp_models.joint.problem import Ask, EvictionUnit, ask_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey, Pod, PodSpec, PodStatus
from kai_cp_models.snapshot import Node, PodGroup, Snapshot, Topology, TopologyConstraint
from tests.support.worlds import cluster, fraction, group, node, pod, spec

RACK = TopologyConstraint("fabric", "rack")
FABRIC = (Topology("fabric", ("zone", "rack")),)


class NodeModel(JointModel):
    """The joint model in which every node is a cell of its own."""

    def _alike(self) -> Mask:
        return np.zeros(len(self.ledger.snapshot.nodes), dtype=bool)


def asks_of(ledger: Ledger, *names: str) -> list[Ask]:
    """The next batches of these groups."""
    found = []
    for name in names:
        gang = ledger.fixed.gangs[GroupKey("ns", name)]
        batch = ledger.state(gang).batch
        assert batch is not None
        found.append(ask_of(ledger, gang, batch))
    return found


def offers_of(ledger: Ledger, groups: Sequence[PodGroup]) -> Iterator[EvictionUnit]:
    """Every unit that the groups could give up, in chain order (5.4)."""
    for one in groups:
        gang = ledger.fixed.gangs[one.key]
        for chain, unit in enumerate(gang.units(ledger.status)):
            yield EvictionUnit(one, unit.pods, chain, whole=unit.whole)


def problem(snapshot: Snapshot) -> tuple[Ledger, list[Ask], list[EvictionUnit]]:
    """All waiting groups as asks, and all running groups that do not wait as units."""
    ledger = Ledger.of(snapshot)
    asks: list[Ask] = []
    giving: list[PodGroup] = []
    for one in snapshot.groups:
        gang = ledger.fixed.gangs[one.key]
        batch = ledger.state(gang).batch
        if batch is not None:
            asks.append(ask_of(ledger, gang, batch))
        else:
            giving.append(one)
    return ledger, asks, list(offers_of(ledger, giving))


def world(seed: int, *, loose: bool = False) -> Snapshot:
    """Up to four nodes in two racks. Running pods were placed first-fit; sizes divide each other. ``loose``:
    small pods run and few large ones wait, so that moves are enough.
    """
    rng = Random(seed)
    sizes = rng.choice(((1, 2, 4), (2, 4)) if loose else ((1, 2, 4), (1, 3), (2, 4), (1,)))
    nodes: list[Node] = []
    for i in range(rng.randint(3 if loose else 1, 4)):
        labels = {"zone": "z", "rack": rng.choice("rs")} if rng.random() < 0.85 else {}
        nodes.append(node(f"n{i}", rng.choice((4, 4, 5) if loose else (2, 4, 6)), cpus=256, labels=labels))
    kinds: list[PodSpec] = [spec(size) for size in sizes]
    if rng.random() < 0.6:
        kinds += [fraction(milli) for milli in (300, 500, 700)]
    members: list[Pod] = []
    groups: list[PodGroup] = []
    free = {one.name: one.gpu_count for one in nodes}
    devices: dict[tuple[str, str], int] = {}
    for i in range(rng.randint(2 if loose else 0, 5 if loose else 8)):
        wants = kinds[0] if loose and rng.random() < 0.7 else rng.choice(kinds)
        placed = 0
        for k in range(rng.randint(1, 2)):
            place = _first_fit(rng.sample(nodes, len(nodes)), wants, free, devices, f"d{i}{k}")
            if place is not None:
                status = PodStatus.RELEASING if rng.random() < 0.1 else PodStatus.RUNNING
                members.append(pod(f"v{i}-{k}", place[0], spec=wants, gpu_groups=place[1], status=status))
                placed += 1
        if placed:
            groups.append(group(f"v{i}", rng.randint(1, placed)))
    for i in range(1 if loose else rng.randint(1, 4)):
        wants = spec(sizes[-1]) if loose else rng.choice(kinds)
        count = rng.randint(1, 1 if loose else 2)
        rack = None
        if not wants.gpu.shares:
            rack = RACK if rng.random() < 0.4 else None
            wants = replace(wants, node_selector=rng.choice(((), (), (("rack", "r"),))))
        members += [pod(f"w{i}-{k}", spec=wants) for k in range(count)]
        if rack is not None and rng.random() < 0.3:
            # A running pod of the gang fixes the rack of the gang.
            inside = [one for one in nodes if one.labels]
            place = _first_fit(inside, spec(sizes[0]), free, devices, "")
            if place is not None:
                members.append(pod(f"w{i}-r", place[0], spec=spec(sizes[0])))
                count += 1
        groups.append(group(f"w{i}", count, constraint=rack))
    return cluster(members, groups, nodes, topologies=FABRIC)


def _first_fit(
    nodes: Sequence[Node],
    wants: PodSpec,
    free: dict[str, int],
    devices: dict[tuple[str, str], int],
    fresh: str,
) -> tuple[str, tuple[str, ...]] | None:
    for one in nodes:
        if not wants.gpu.shares:
            if free[one.name] >= wants.gpu.devices:
                free[one.name] -= wants.gpu.devices
                return one.name, ()
            continue
        for (where, name), left in devices.items():
            if where == one.name and left >= wants.gpu.milli_portion:
                devices[where, name] -= wants.gpu.milli_portion
                return one.name, (name,)
        if free[one.name] >= 1:
            free[one.name] -= 1
            devices[one.name, fresh] = 1000 - wants.gpu.milli_portion
            return one.name, (fresh,)
    return None
