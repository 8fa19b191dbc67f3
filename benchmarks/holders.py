"""What planning starts costs: five gangs that hold room on a cluster full of jobs with ends (time axis, 4.4).

    python -m benchmarks.holders --nodes 1000 --seeds 5 [--topology]

Jobs of whole nodes with exponential sizes, one for two nodes, a tenth of them without an end. The gangs (12
to 83 nodes; with ``--topology`` one in a rack of 16, two in a block of 128) ask for a reservation. Printed
are processor seconds of the whole cycle.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import replace
from typing import Final

from kai_cp_models.engine import decide
from kai_cp_models.pods import PodKey
from kai_cp_models.snapshot import Snapshot, Topology, TopologyConstraint
from tests.support.times import at, settings, waits, world
from tests.support.worlds import cluster, group, node, pods, spec

GANGS: Final = (12, 16, 24, 48, 83)
LEVELS: Final = {0: "rack", 1: "block", 3: "block"}
FREE: Final = 6
"""Nodes without a job."""
UNKNOWN: Final = 0.1


def filled(nodes: int, seed: int, *, topology: bool) -> Snapshot:
    """A cluster on which all but a few nodes are busy."""
    rng = random.Random(seed)
    members = []
    taken = 0
    while taken < nodes - FREE:
        size = max(1, min(int(rng.expovariate(0.5)), nodes - FREE - taken, 64))
        minutes = rng.choice((60, 120, 240, 480, 960)) * rng.random()
        notes = (("kai-cp/expected-runtime", f"{max(60, round(60 * minutes))}s"),)
        name = f"r{len(members)}"
        job = group(
            name,
            size,
            last_start=at(0),
            notes=() if rng.random() < UNKNOWN else notes,
            preemptible=False,
            priority=100,
        )
        running = []
        for k in range(size):
            one = pods(name, 1, f"n{taken:05}", spec=spec(8), started=at(0))[0]
            running.append(replace(one, key=PodKey("ns", f"{name}-{k}")))
            taken += 1
        members.append((job, tuple(running)))
    for k, size in enumerate(GANGS):
        where = {"constraint": TopologyConstraint("T", LEVELS[k])} if topology and k in LEVELS else {}
        members.append(waits(f"gang{k}", size, 8, lasts="4h", reserve=True, waited=200 - k, **where))
    labelled = [
        node(f"n{i:05}", labels={"rack": f"r{i // 16}", "block": f"b{i // 128}"}) for i in range(nodes)
    ]
    trees = (Topology("T", ("block", "rack")),)
    return cluster(nodes=tuple(labelled), topologies=trees, **world(*members))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--topology", action="store_true")
    options = parser.parse_args()
    chosen = settings(reservations={"most": len(GANGS)}, solver={"budget_seconds": 60})
    decide(filled(64, 0, topology=False), chosen)  # The solver is loaded once.
    for seed in range(1, options.seeds + 1):
        snapshot = filled(options.nodes, seed, topology=options.topology)
        begin = time.process_time()
        plan = decide(snapshot, chosen)
        whole = time.process_time() - begin
        held = sum(entry.state == "made" for entry in plan.reservations or ())
        print(f"{options.nodes} nodes, seed {seed}: cycle {whole:.2f} s, {held} hold")


if __name__ == "__main__":
    main()
