"""What an explanation costs after the cycle is decided: blocking sets of the first pod groups that wait.

    python -m benchmarks.explanations --shape contended --nodes 10000 --seed 1 --groups 3

Printed are processor seconds of each group alone, from nothing but the snapshot and the plan.
"""

from __future__ import annotations

import argparse
import time

from kai_cp.bench.generate import NOW, SHAPES
from kai_cp.reader import parse
from kai_cp_models.engine import decide
from kai_cp_models.queries.why import Situation, blocking_of
from kai_cp_models.settings import Settings


def main() -> None:
    """Decide a generated cluster and explain some of the waiting groups."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="contended")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of the cycle")
    args = parser.parse_args()
    settings = Settings.model_validate({"solver": {"budget_seconds": args.budget}})
    snapshot = parse(SHAPES[args.shape](args.nodes, args.seed), now=NOW.timestamp())
    plan = decide(snapshot, settings)
    decided = Situation(snapshot, settings, plan)
    waiting = [g for g in snapshot.waiting_groups if decided.state(g.key) == "pending"]
    print(f"{len(waiting)} of {len(snapshot.waiting_groups)} pod groups wait")
    for group in waiting[: args.groups]:
        began = time.process_time()
        found = blocking_of(Situation(snapshot, settings, plan), group)
        seconds = time.process_time() - began
        sets = [sorted(families) for families in found.sets]
        print(f"{group.key}: {seconds:.2f} s, proved {found.proved}, complete {found.complete}, {sets}")


if __name__ == "__main__":
    main()
