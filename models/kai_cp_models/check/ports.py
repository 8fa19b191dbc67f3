"""Host ports: two pods of a node never listen on the same address, protocol and port (7.1, NodePorts)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from kai_cp_models.check.planned_cluster import PlannedCluster, Resident, Violation

_ANY: Final = ""
_EVERY: Final = ("", "0.0.0.0")


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Pods placed on a node where their port is taken, now (binds) or in the end."""
    listens = any(spec.host_ports for spec in world.placed_specs)
    if not listens or not world.snapshot.policy.plugin("predicates"):
        return
    listening = {d.node for key, d in world.placed.items() if world.pod(key).spec.host_ports}
    for when, nodes, residents in (
        ("now", world.bound_nodes, world.now),
        ("in the end", world.target_nodes, world.end),
    ):
        for name in (name for name in nodes if name in listening):
            yield from _clashes([r for r in residents(name) if r.pod.spec.host_ports], f"{name} {when}")


def _clashes(residents: list[Resident], where: str) -> Iterator[Violation]:
    listening: dict[tuple[str, int], dict[str, list[Resident]]] = {}
    for resident in residents:
        places = {
            (_ANY if address in _EVERY else address, protocol, port)
            for address, protocol, port in resident.pod.spec.host_ports
        }
        for address, protocol, port in sorted(places):
            before = listening.setdefault((protocol, port), {})
            for other in _meets(before, address):
                if other is not resident and (resident.placed or other.placed):
                    pods = f"{other.pod.key} and {resident.pod.key}"
                    yield Violation(
                        "ports",
                        f"pods {pods} share host port {port} on node {where}",
                        pods=(other.pod.key, resident.pod.key),
                    )
            before.setdefault(address, []).append(resident)


def _meets(before: Mapping[str, list[Resident]], address: str) -> Iterator[Resident]:
    """The pods that already listen on an address, once for every clash; the empty address means every
    address.
    """
    if address == _ANY:
        yield from chain.from_iterable(before.values())
    else:
        yield from before.get(address, ())
        yield from before.get(_ANY, ())
