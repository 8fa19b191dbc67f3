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
    for i, left in enumerate(residents):
        for right in residents[i + 1 :]:
            if not (left.placed or right.placed):
                continue
            for port in left.pod.spec.host_ports:
                if any(_same(port, other) for other in right.pod.spec.host_ports):
                    pods = f"{left.pod.key} and {right.pod.key}"
                    yield f"ports: pods {pods} share host port {port[2]} on node {where}"


def _same(left: tuple[str, str, int], right: tuple[str, str, int]) -> bool:
    same_address = left[0] == right[0] or left[0] in _ANY or right[0] in _ANY
    return same_address and left[1:] == right[1:]
