"""Proved refusals, asked again: the audit behind ``tests/properties/test_proofs.py``.

A refusal is proved only if no permitted plan serves the group beside all groups that are served. Two
questions test that. *Asked again*: with all other refused groups made impossible, the engine decides anew,
because a proof must not rest on groups that are refused themselves. *Tried out*: on tiny clusters with one
waiting group, every set of evictions, every move and every place goes to the independent checker, and none
may pass.

``python -m tests.support.reasking --first 0 --count 500`` does this for many fresh clusters and prints what
it finds as it goes; exit status 1 when a proof is refuted or a plan was refused. A finding is reproduced with
``random_cluster(seed)``. ``--together`` asks again in clusters in which the stateful rules, kinds of GPUs,
rollouts and reservations are drawn as well (``everything(seed)``).
"""

from __future__ import annotations

import argparse
import copy
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations, product

from kai_cp.reader import parse
from kai_cp_models.check import violations
from kai_cp_models.engine import decide
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from tests.support import objects as raw
from tests.support.clusters import FEATURES, random_cluster
from tests.support.extras import TOGETHER, everything

SETTINGS = Settings.model_validate({"solver": {"budget_seconds": 20, "patience": 50}})
NOWHERE = {"example.org/nowhere": "x"}
MOST_ASKED_AGAIN = 6
"""The most refusals of one cluster that are asked again."""
PLAIN = FEATURES - {"fractions", "memory", "mig", "actions", "stale", "stuck", "orphans", "partial"}
"""Features of clusters that are tried out: places are nodes, and no other mechanism acts."""
MOST_TRIED = 4
"""The most pods that may be disturbed together, and the most nodes, in a cluster that is tried out."""


def read(cluster: raw.Object) -> Snapshot:
    """The cluster as the engine sees it."""
    return parse(cluster, now=raw.NOW.timestamp())


def gained(plan: Plan) -> set[PodKey]:
    """Waiting pods that get a place."""
    evicted = {d.pod for d in plan.decisions if d.kind == "Evict"}
    return {d.pod for d in plan.decisions if d.kind != "Evict"} - evicted


def waiting(snapshot: Snapshot, group: GroupKey) -> set[PodKey]:
    """The waiting pods of a group."""
    return {pod.key for pod in snapshot.members[group] if pod.status is PodStatus.PENDING}


def without(cluster: raw.Object, pods: set[PodKey]) -> raw.Object:
    """The cluster, in which no node accepts these pods."""
    changed = copy.deepcopy(cluster)
    for pod in changed["rawObjects"]["pods"]:
        if PodKey(pod["metadata"].get("namespace", "default"), pod["metadata"]["name"]) in pods:
            pod["spec"]["nodeSelector"] = {**(pod["spec"].get("nodeSelector") or {}), **NOWHERE}
    return changed


@contextmanager
def logged(told: list[str]) -> Iterator[None]:
    """Add to ``told`` what the engine logs as an error."""
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("kai_cp_models.engine")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class Audit:
    """One cluster, decided, with its refusals."""

    def __init__(self, cluster: raw.Object, settings: Settings = SETTINGS) -> None:
        self.cluster = cluster
        self.settings = settings
        self.snapshot = read(cluster)
        self.told: list[str] = []
        """What the engine logged as an error: plans that the checker refused, actions that raised."""
        with logged(self.told):
            self.plan = decide(self.snapshot, settings)
        got = gained(self.plan)
        refused = [u for u in self.plan.unscheduled if not waiting(self.snapshot, u.group) & got]
        self.refused = {u.group: u for u in refused if waiting(self.snapshot, u.group)}
        self.proved = [key for key, row in self.refused.items() if row.proved]

    def refuted(self, most: int = MOST_ASKED_AGAIN) -> Iterator[GroupKey]:
        """Proved refusals that do not hold when they are asked again; about ``most`` are asked."""
        got = gained(self.plan)
        for group in self.proved[:: max(1, len(self.proved) // most)]:
            others = {
                key for other in self.refused if other != group for key in waiting(self.snapshot, other)
            }
            if not others:
                continue
            again = gained(decide(read(without(self.cluster, others)), self.settings))
            if waiting(self.snapshot, group) <= again and got <= again:
                yield group


def tiny_cluster(seed: int) -> raw.Object | None:
    """A plain random cluster reduced to a few nodes and one waiting group; None where that is not
    possible.
    """
    cluster = random_cluster(seed, PLAIN - {sorted(PLAIN)[seed % len(PLAIN)]})
    objects = cluster["rawObjects"]
    objects["nodes"] = sorted(objects["nodes"], key=lambda node: str(node["metadata"]["name"]))[:3]
    names = {node["metadata"]["name"] for node in objects["nodes"]}
    objects["pods"] = [p for p in objects["pods"] if p["spec"].get("nodeName", next(iter(names))) in names]
    objects["bindRequests"] = []
    snapshot = read(cluster)
    asking = [group.key for group in snapshot.waiting_groups if len(waiting(snapshot, group.key)) <= 2]
    if not asking:
        return None
    kept = asking[seed % len(asking)]
    gone = {
        pod.key
        for pod in snapshot.pods
        if pod.group != kept and pod.status in (PodStatus.PENDING, PodStatus.GATED)
    }
    objects["pods"] = [
        p for p in objects["pods"] if PodKey(p["metadata"]["namespace"], p["metadata"]["name"]) not in gone
    ]
    return cluster


def tried_out(snapshot: Snapshot, group: GroupKey) -> Plan | None:
    """A plan that serves the group and that the checker accepts; None where there is none."""
    pods = [pod for pod in snapshot.members[group] if pod.status is PodStatus.PENDING]
    names = [node.name for node in snapshot.nodes]
    running = [
        pod
        for pod in snapshot.pods
        if pod.status in ACTIVE_ALLOCATED
        and pod.group is not None
        and pod.group != group
        and snapshot.group_by_key[pod.group].preemptible
    ]
    if len(running) > MOST_TRIED:
        return None
    for action in snapshot.policy.actions:
        most = 0 if action == "allocate" else len(running)
        for count in range(most + 1):
            for leaving in combinations(running, count):
                for plan in _plans(action, group, pods, leaving, names):
                    if not violations(snapshot, plan):
                        return plan
    return None


def _plans(
    action: ActionName,
    group: GroupKey,
    pods: list[Pod],
    leaving: tuple[Pod, ...],
    names: list[str],
) -> Iterator[Plan]:
    kinds = ("Bind", "Nominate") if action == "allocate" else ("Nominate",)
    evictions = tuple(
        Decision("Evict", pod.key, pod.group, pod.node or "", action, triggers=(group,)) for pod in leaving
    )
    for kind in kinds:
        for places in product(names, repeat=len(pods)):
            served = tuple(
                Decision(kind, pod.key, group, name, action)  # type: ignore[arg-type]
                for pod, name in zip(pods, places, strict=True)
            )
            for homes in product(("", *names), repeat=len(leaving)):
                moves = tuple(
                    Decision("Nominate", pod.key, pod.group, name, action)
                    for pod, name in zip(leaving, homes, strict=True)
                    if name
                )
                yield Plan((*evictions, *served, *moves))


def main() -> int:
    """The command of the module's docstring."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=500, help="clusters of each kind")
    parser.add_argument("--together", action="store_true", help="draw every feature together")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    refused = proved = 0
    refuted: list[str] = []

    def found(line: str) -> None:
        refuted.append(line)
        print(line, flush=True)

    for seed in seeds:
        audit = Audit(everything(seed), TOGETHER) if options.together else Audit(random_cluster(seed))
        refused, proved = refused + len(audit.refused), proved + len(audit.proved)
        for name in audit.told:
            found(f"seed {seed}: {name}")
        for group in audit.refuted():
            found(f"seed {seed}: {group} when asked again")
    tiny = shown = 0
    for seed in () if options.together else seeds:
        cluster = tiny_cluster(seed)
        if cluster is None:
            continue
        audit = Audit(cluster)
        tiny += len(audit.refused)
        for group in audit.proved:
            shown += 1
            if tried_out(audit.snapshot, group) is not None:
                found(f"tiny seed {seed}: {group} when tried out")
    print(f"{options.count} clusters: {refused} refused, {proved} of them proved")
    print(f"tiny clusters: {tiny} refused, {shown} of them proved")
    if not refuted:
        print("no proof is refuted")
    return 1 if refuted else 0


if __name__ == "__main__":
    sys.exit(main())
