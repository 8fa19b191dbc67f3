"""Host ports: two pods of a node never listen on the same address, protocol and port (7.1, NodePorts)."""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp_models.check.world import Resident, World

_ANY = ("", "0.0.0.0")


def broken(world: World) -> Iterator[str]:
    """Pods placed on a node where their port is taken, now (binds) or in the end."""
    if not world.snapshot.policy.plugin("predicates"):
        return
    for when, nodes, residents in (
        ("now", world.bound_nodes, world.now),
        ("in the end", world.target_nodes, world.end),
    ):
        for name in nodes:
            yield from _clashes([r for r in residents(name) if r.pod.spec.host_ports], f"{name} {when}")


def _clashes(residents: list[Resident], where: str) -> Iterator[str]:
    listening: dict[tuple[str, int], list[tuple[str, Resident]]] = {}
    for resident in residents:
        for address, protocol, port in resident.pod.spec.host_ports:
            before = listening.setdefault((protocol, port), [])
            for other_address, other in before:
                same = address == other_address or address in _ANY or other_address in _ANY
                if same and other is not resident and (resident.placed or other.placed):
                    pods = f"{other.pod.key} and {resident.pod.key}"
                    yield f"ports: pods {pods} share host port {port} on node {where}"
            before.append((address, resident))
