"""How long a gang waits beside a hostile tenant, on a real API server: seconds by attack.

``python -m benchmarks.hostile_load [--gangs 9]`` prints one JSON object: for the undisturbed cluster and for
every attack of tests/e2e/hostile.py (all that a victim waits beside, and one large order), with a cluster of
its own each: the seconds that so many gangs of 4 pods waited, one after the other, from the first request
that makes the gang until its pods are ordered to be bound (median, most), and the peak of memory. The API
server and all processes share the machine; the scheduler is asked nothing meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from statistics import median
from typing import Any

from kai_cp.kube.api import resources as r
from kai_cp.kube.demo.controlplane import ControlPlane
from tests.e2e.conftest import USERS
from tests.e2e.cycles import cycles_until_bound
from tests.e2e.hostile import ATTACKS, Attack, Attacker, devices, large_order
from tests.e2e.world import PATIENCE_SECONDS, World, prepare
from tests.kubetest.build import build

MEASURED = (*ATTACKS, large_order)
NODES, GPUS = 8, 16
SIZE = 4
LOOK_SECONDS = 0.01


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
        waited = [_wait(world, f"gang-{i}", queue) for i in range(gangs)]
        result = {
            "seconds": round(median(waited), 2),
            "most_seconds": round(max(waited), 2),
            "memory_mib": scheduler.memory_bytes() >> 20,
        }
        for process in world.processes:
            process.kill()
        return result


def _wait(world: World, gang: str, queue: str) -> float:
    """Seconds until the pods of a new gang are ordered to be bound."""
    began = time.monotonic()
    world.add_gang(gang, queue, SIZE)
    names = {f"{gang}-{i}" for i in range(SIZE)}
    while names - {item["spec"]["podName"] for item in _orders(world)}:
        time.sleep(LOOK_SECONDS)
        if time.monotonic() - began > PATIENCE_SECONDS:
            raise TimeoutError(f"{gang} is not ordered to be bound")
    seconds = time.monotonic() - began
    # One gang after the other, so that the binder's work for the last one is not part of the next wait.
    world.until(lambda: len(world.running(gang)) == SIZE, f"{gang} runs")
    return seconds


def _orders(world: World) -> list[dict[str, Any]]:
    return list(world.api.raw(r.BIND_REQUESTS.path(world.namespace))["items"])


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gangs", type=int, default=9)
    parser.add_argument("--attack", action="append", help="only this one (again: and this one)")
    arguments = parser.parse_args()
    wanted = [a for a in MEASURED if not arguments.attack or a.__name__ in arguments.attack]
    found = {"undisturbed": measure(None, arguments.gangs)}
    found |= {attack.__name__: measure(attack, arguments.gangs) for attack in wanted}
    print(json.dumps({"load_average": os.getloadavg(), **found}, indent=2))


if __name__ == "__main__":
    main()
