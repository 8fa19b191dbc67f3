"""Reservations measured by simulation: ``python benchmarks/starts.py --seeds 3 --hours 24 --nodes 16``."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from kai_cp.simulate.starts import POLICIES, measure


def main() -> None:
    """One line of JSON per policy and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--policy", choices=sorted(POLICIES), action="append")
    chosen = parser.parse_args()
    for seed in range(1, chosen.seeds + 1):
        for policy in chosen.policy or POLICIES:
            found = measure(policy, seed, nodes=chosen.nodes, hours=chosen.hours)
            print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    main()
