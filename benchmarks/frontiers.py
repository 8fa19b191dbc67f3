"""What a frontier of defragmentation costs: processor seconds, proof and bound of every point.

    python -m benchmarks.frontiers --nodes 1000 --points 2

Nodes of 8 GPUs in racks of 16, 60 % full of pods of 1, 2, 4 and 8 GPUs, a fifth of them in gangs of two to
four pods, 5 % that may not move. Each point is asked for by itself, as ``--most`` grows by one.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import replace
from typing import Final

from kai_cp_models.pods import PodKey
from kai_cp_models.queries.moves import frontier, question_of
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot, Topology
from tests.support.times import at, world
from tests.support.worlds import cluster, group, node, pods, spec

QUESTIONS: Final = (("nodes", None), ("rack", None), (None, "gang=4x8@rack"), (None, "gang=8x8@rack"))
FULL: Final = 0.6
GANGS: Final = 0.2
FIXED: Final = 0.05


def scattered(nodes: int, seed: int) -> Snapshot:
    """A cluster whose free GPUs are spread over all nodes."""
    rng = random.Random(seed)
    free = [8] * nodes
    left = int(FULL * 8 * nodes)
    members = []
    while left > 0:
        gpus = rng.choices((1, 2, 4, 8), weights=(5, 3, 2, 0.5))[0]
        count = rng.randint(2, 4) if rng.random() < GANGS else 1
        fixed = rng.random() < FIXED
        name = f"r{len(members)}"
        more = {"preemptible": not fixed, "priority": 100 if fixed else 50}
        job = group(name, count, last_start=at(-rng.randint(30, 3000)), **more)
        running = []
        for k in range(count):
            where = next(n for n in iter(lambda: rng.randrange(nodes), None) if free[n] >= gpus)
            free[where] -= gpus
            left -= gpus
            one = pods(name, 1, f"n{where:05}", spec=spec(gpus), started=at(-30))[0]
            running.append(replace(one, key=PodKey("ns", f"{name}-{k}")))
        members.append((job, tuple(running)))
    labelled = [node(f"n{i:05}", labels={"rack": f"r{i // 16}"}) for i in range(nodes)]
    return cluster(nodes=tuple(labelled), topologies=(Topology("T", ("rack",)),), **world(*members))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--points", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0, help="processor time for one question")
    options = parser.parse_args()
    snapshot = scattered(options.nodes, options.seed)
    for free, gang in QUESTIONS:
        before = 0.0
        already = frontier(snapshot, Settings(), question_of(snapshot, free, gang), most=0).already
        for k in range(1, options.points + 1):
            begin = time.process_time()
            question = question_of(snapshot, free, gang)
            found = frontier(snapshot, Settings(), question, most=already + k, seconds=options.seconds)
            whole = time.process_time() - begin
            for point in found.points[-1:]:
                proof = "proved" if point.proved else f"bound {point.bound}"
                print(
                    f"{free or gang}: {already} already, {point.value} for {point.moves} restarts, {proof}, "
                    f"{whole - before:.2f} s",
                    flush=True,
                )
            before = whole


if __name__ == "__main__":
    main()
