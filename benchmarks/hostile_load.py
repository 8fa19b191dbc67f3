"""How long a gang waits beside a hostile tenant, on a real API server: seconds and cycles by attack.

``python -m benchmarks.hostile_load [--gangs 5]`` prints one JSON object: for the undisturbed cluster and for
every attack of tests/e2e/hostile.py, with a cluster of its own each, the median of so many gangs of 4 pods:
seconds from the first request that makes it until its pods are ordered to be bound, the cycles that took,
and the peak of memory. The API server and all processes share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from kai_cp.kube.demo.controlplane import ControlPlane
from tests.e2e.conftest import USERS
from tests.e2e.cycles import cycles_until_bound
from tests.e2e.hostile import ATTACKS, Attack, Attacker, devices
from tests.e2e.world import Program, World, prepare
from tests.kubetest.build import build

NODES, GPUS = 8, 16


def measure(attack: Attack | None, gangs: int) -> dict[str, Any]:
    """One attack (None: none), on a cluster of its own."""
    with ControlPlane(build(), users={user: [] for user in USERS}) as plane:
        prepare(plane)
        world = World(plane, "hostile")
        world.add_nodes(NODES, gpus=GPUS)
        devices(world)
        attacker, queue = Attacker(world), world.add_queue()
        scheduler = world.scheduler()
        world.binder()
        cycles_until_bound(world, scheduler, "first", queue)
        if attack is not None:
            told = attack(attacker)
            world.until(lambda: attacker.told(*told), "the attacker is told why")
        waited = list(_waits(world, scheduler, queue, gangs))
        result = {
            "seconds": round(median(seconds for seconds, _ in waited), 2),
            "most_seconds": round(max(seconds for seconds, _ in waited), 2),
            "cycles": [cycles for _, cycles in waited],
            "memory_mib": scheduler.memory_bytes() >> 20,
        }
        for process in world.processes:
            process.kill()
        return result


def _waits(world: World, scheduler: Program, queue: str, gangs: int) -> Iterator[tuple[float, int]]:
    """Seconds and cycles that one gang after the other waits."""
    for i in range(gangs):
        began = time.monotonic()
        cycles = cycles_until_bound(world, scheduler, f"gang-{i}", queue)
        yield time.monotonic() - began, cycles


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gangs", type=int, default=5)
    parser.add_argument("--attack", action="append", help="only this one (again: and this one)")
    arguments = parser.parse_args()
    wanted = [a for a in ATTACKS if not arguments.attack or a.__name__ in arguments.attack]
    found = {"undisturbed": measure(None, arguments.gangs)}
    found |= {attack.__name__: measure(attack, arguments.gangs) for attack in wanted}
    print(json.dumps({"load_average": os.getloadavg(), **found}, indent=2))


if __name__ == "__main__":
    main()
