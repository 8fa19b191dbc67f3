"""Proved refusals, asked again: the audit behind ``tests/properties/test_proofs.py``.

A refusal is proved only if no permitted plan serves the group beside all groups that are served, nor beside
those of them that come before it in the fair order. Four questions test that.

- *Alone*: with all other refused groups made impossible, the engine decides anew, because a proof must not
  rest on groups that are refused themselves.
- *Beside its betters*: the served groups that come after it are made impossible, too.
- *With another search*: the engine decides with hardly any work, and by other goals. Every such plan is a
  permitted one, and must not refute a proof of another.
- *Tried out*: on tiny clusters with one waiting group, sets of evictions, moves and places go to the
  independent checker, and none may pass.

``python -m tests.properties.reasking --first 0 --count 500`` does this for many fresh clusters and prints
what it finds as it goes; exit status 1 when a proof is refuted or a plan was refused. A finding is
reproduced with ``random_cluster(seed)``. ``--together`` asks again in clusters in which the stateful rules,
kinds of GPUs, rollouts and reservations are drawn as well (``everything(seed)``), ``--policies`` under other
policies (``other_policy(cluster, seed)``): plugins and actions left out, limits of depth, other orders.
``--rest`` asks in clusters whose plans were carried out until there was nothing left to do: they are full,
and what is refused there is refused beside nothing that got a place.
``--options`` draws all of that, GPUs by claim, closed places, heroes, maximum run times, users and
defragmentation, and the settings, too (``with_options(seed)``). ``--stateful`` draws clusters that are dense
in claims, volumes, terms between pods and ports (``stateful(seed)``). With ``--promised`` about half of the
groups that wait are nominated (``promised(cluster, seed)``), whatever else is drawn.
"""

from __future__ import annotations

import argparse
import copy
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations, islice, product

from kai_cp.bench.follow import following
from kai_cp.reader import parse
from kai_cp_models.actions.asking import at_first, line_of
from kai_cp_models.check import SnapshotFacts, violations
from kai_cp_models.engine import decide
from kai_cp_models.ledger import Ledger
from kai_cp_models.plan import Decision, Plan, Unscheduled
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.reasons import UNCONDITIONAL
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from tests.properties.oracle import Placement
from tests.support import objects as raw
from tests.support.clusters import FEATURES, random_cluster
from tests.support.extras import TOGETHER, everything, other_policy, promised
from tests.support.options import with_options
from tests.support.stateful import stateful

SETTINGS = Settings.model_validate({"solver": {"budget_seconds": 20, "patience": 50}})
NOWHERE = {"example.org/nowhere": "x"}
MOST_ASKED_AGAIN = 6
"""The most refusals of one cluster that are asked again."""
PLAIN = FEATURES - {"fractions", "memory", "actions", "stale", "stuck", "orphans", "partial"}
"""Features of clusters that are tried out: places are nodes, and no other mechanism acts."""
MOST_CYCLES = 8
"""The most cycles after which a cluster is taken for one at rest."""
MOST_NODES = 4
"""The most nodes of a cluster that is tried out."""
MOST_PLANS = 4_000
"""The most plans that are tried out for one group, those that disturb the fewest pods first."""
OTHER_SEARCHES: dict[str, dict[str, object]] = {
    "hardly any work": {"solver": {"budget_seconds": 0.01}},
    "other goals": {"objective": {"goals": ["lost_gpus", "moved_pods", "newest_first"]}},
}
"""Settings that change how plans are looked for, and not which are permitted."""
HOUR_SECONDS = 3_600


def read(cluster: raw.Object, settings: Settings = SETTINGS) -> Snapshot:
    """The cluster as the engine sees it."""
    return parse(cluster, now=raw.NOW.timestamp(), user_label=settings.users.label)


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


def rested(cluster: raw.Object, settings: Settings = SETTINGS) -> raw.Object:
    """The cluster once the plans of its cycles have been carried out."""
    for _ in range(MOST_CYCLES):
        plan = decided(read(cluster, settings), settings)
        if not plan.decisions:
            break
        cluster = following(cluster, plan, (), raw.NOW.timestamp())
    return cluster


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


def decided(snapshot: Snapshot, settings: Settings) -> Plan:
    """The plan; only the budget's work ends a search, not the clock."""
    return decide(snapshot, settings, deadline=time.monotonic() + HOUR_SECONDS)


def searching(settings: Settings, more: dict[str, object]) -> Settings:
    """The settings with other ones of the solver or of the goals."""
    given = settings.model_dump()
    for part, values in more.items():
        given[part] |= values
    return Settings.model_validate(given)


class Audit:
    """One cluster, decided, with its refusals."""

    def __init__(self, cluster: raw.Object, settings: Settings = SETTINGS) -> None:
        self.cluster = cluster
        self.settings = settings
        self.snapshot = read(cluster, settings)
        self.told: list[str] = []
        """What the engine logged as an error: plans that the checker refused, actions that raised."""
        with logged(self.told):
            self.plan = decided(self.snapshot, settings)
        self.refused = self._refused(self.plan)
        self.proved = [key for key, row in self.refused.items() if row.proved]

    def _refused(self, plan: Plan) -> dict[GroupKey, Unscheduled]:
        """The groups with waiting pods of which none got a place."""
        got = gained(plan)
        rows = (u for u in plan.unscheduled if waiting(self.snapshot, u.group))
        return {u.group: u for u in rows if not waiting(self.snapshot, u.group) & got}

    def _serves(self, plan: Plan, group: GroupKey, beside: set[PodKey]) -> bool:
        """Whether a plan serves the group and these pods."""
        got = gained(plan)
        return bool(waiting(self.snapshot, group) & got) and beside <= got

    def refuted(self, most: int = MOST_ASKED_AGAIN) -> Iterator[str]:
        """Proved refusals that do not hold, and by which question; about ``most`` groups are asked again."""
        before = self.betters(self.plan)
        for words, more in OTHER_SEARCHES.items():
            with logged(self.told):
                other = decided(self.snapshot, searching(self.settings, more))
            for group in self.proved:
                if self._serves(other, group, before[group]):
                    yield f"{group} by a search with {words}"
            ahead = self.betters(other)
            for group, row in self._refused(other).items():
                if row.proved and self._serves(self.plan, group, ahead[group]):
                    yield f"{group}, refused by a search with {words}"
        for group in self.proved[:: max(1, len(self.proved) // most)]:
            served = gained(self.plan)
            others = {key for one in self.refused if one != group for key in waiting(self.snapshot, one)}
            if others and self._serves(self._decided_without(others), group, served):
                yield f"{group} alone"
            after = served - before[group]
            if after and self._serves(self._decided_without(others | after), group, before[group]):
                yield f"{group} beside its betters"

    def _decided_without(self, pods: set[PodKey]) -> Plan:
        return decided(read(without(self.cluster, pods), self.settings), self.settings)

    def betters(self, plan: Plan) -> dict[GroupKey, set[PodKey]]:
        """For every waiting group, the pods with a place of the groups that come before it in the fair order;
        what is served is charged at its position.
        """
        snapshot, _ = prepare(self.snapshot, self.settings)
        ledger = Ledger.of(snapshot, self.settings.rules)
        # One that is kept from asking in every plan has no turn.
        lines = (one for one in at_first(ledger).groups.values() if one.ask is not None)
        able = (one.ask for one in lines if one.refusal is None or one.refusal.reason not in UNCONDITIONAL)
        asks = {ask.group.key: ask for ask in able if ask is not None}
        book, got = ledger.book.copy(), gained(plan)
        found = dict.fromkeys((group.key for group in snapshot.waiting_groups), got)
        before: set[PodKey] = set()
        order = line_of(ledger, asks, book)
        while (key := order.pop()) is not None:
            found[key] = before
            if here := waiting(self.snapshot, key) & got:
                before = before | here
                group = self.snapshot.group_by_key[key]
                book.charge(group.queue, asks[key].asked, group.preemptible)
                order.charged(group.queue)
        return found


def tiny_cluster(seed: int) -> raw.Object | None:
    """A plain random cluster reduced to a few nodes and one waiting group; None where that is not
    possible.
    """
    cluster = random_cluster(seed, PLAIN - {sorted(PLAIN)[seed % len(PLAIN)]})
    objects = cluster["rawObjects"]
    objects["nodes"] = sorted(objects["nodes"], key=lambda node: str(node["metadata"]["name"]))[:MOST_NODES]
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


def tried_out(snapshot: Snapshot, group: GroupKey) -> tuple[Plan | None, bool]:
    """A plan that serves the group and that the checker accepts, None where there is none; and whether all
    plans were tried.
    """
    start = SnapshotFacts.of(snapshot)
    plans = _all_plans(snapshot, group)
    for plan in islice(plans, MOST_PLANS):
        if not violations(snapshot, plan, start=start):
            return plan, True
    return None, next(plans, None) is None


def _all_plans(snapshot: Snapshot, group: GroupKey) -> Iterator[Plan]:
    """Every plan for the group and one action, those that disturb the fewest pods first."""
    pods = [pod for pod in snapshot.members[group] if pod.status is PodStatus.PENDING]
    running = [
        pod
        for pod in snapshot.pods
        if pod.status in ACTIVE_ALLOCATED
        and pod.group is not None
        and pod.group != group
        and snapshot.group_by_key[pod.group].preemptible
    ]
    for count in range(len(running) + 1):
        for action in snapshot.policy.actions:
            if count and action == "allocate":
                continue
            for leaving in combinations(running, count):
                yield from _plans(snapshot, action, pods, leaving)


def _plans(
    snapshot: Snapshot, action: ActionName, pods: Sequence[Pod], leaving: Sequence[Pod]
) -> Iterator[Plan]:
    """Every choice of places for the waiting pods, and of new places for those that leave, or of none."""
    kinds = ("Bind", "Nominate") if action == "allocate" else ("Nominate",)
    groups = tuple(dict.fromkeys(pod.group for pod in pods if pod.group is not None))
    evictions = [
        Decision("Evict", pod.key, pod.group, pod.node or "", action, triggers=groups) for pod in leaving
    ]
    for kind in kinds:
        for served in product(*(tuple(places_of(snapshot, pod)) for pod in pods)):
            places = [_decision(kind, pod, at, action) for pod, at in zip(pods, served, strict=True)]
            for moved in product(*((None, *places_of(snapshot, pod)) for pod in leaving)):
                homes = [
                    _decision("Nominate", pod, at, action)
                    for pod, at in zip(leaving, moved, strict=True)
                    if at is not None
                ]
                yield Plan((*evictions, *places, *homes))


def _decision(kind: str, pod: Pod, at: Placement, action: ActionName) -> Decision:
    return Decision(kind, pod.key, pod.group, at.node, action, gpu_groups=at.gpu_groups)  # type: ignore[arg-type]


def places_of(snapshot: Snapshot, pod: Pod) -> Iterator[Placement]:
    """Every node; for shares, every choice of the node's shared GPUs and of new ones."""
    for node in snapshot.nodes:
        devices = pod.spec.gpu.devices if pod.spec.gpu.shares else 0
        shared = {name for one in snapshot.pods if one.node == node.name for name in one.gpu_groups}
        new = [f"new-{i}" for i in range(devices)]
        for names in combinations((*sorted(shared), *new), devices):
            yield Placement(node.name, names)


def _cluster(seed: int, options: argparse.Namespace) -> tuple[raw.Object, Settings]:
    """What the options of the command draw."""
    cluster, settings = _drawn(seed, options)
    return (promised(cluster, seed) if options.promised else cluster), settings


def _drawn(seed: int, options: argparse.Namespace) -> tuple[raw.Object, Settings]:
    if options.options:
        return with_options(seed)
    if options.stateful:
        return stateful(seed)
    cluster = everything(seed) if options.together else random_cluster(seed)
    if options.policies:
        cluster = other_policy(cluster, seed)
    settings = TOGETHER if options.together else SETTINGS
    return (rested(cluster, settings) if options.rest else cluster), settings


def main() -> int:
    """The command of the module's docstring."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=500, help="clusters of each kind")
    parser.add_argument("--together", action="store_true", help="draw every feature together")
    parser.add_argument("--policies", action="store_true", help="draw the policy, too")
    parser.add_argument("--rest", action="store_true", help="ask once there is nothing to do any more")
    parser.add_argument("--options", action="store_true", help="draw every feature, the policy and settings")
    parser.add_argument("--stateful", action="store_true", help="draw what stateful rules read, densely")
    parser.add_argument("--promised", action="store_true", help="nominate about half of what waits")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    refused = proved = 0
    refuted: list[str] = []

    def found(line: str) -> None:
        refuted.append(line)
        print(line, flush=True)

    for seed in seeds:
        cluster, settings = _cluster(seed, options)
        audit = Audit(cluster, settings)
        refused, proved = refused + len(audit.refused), proved + len(audit.proved)
        for words in audit.refuted():
            found(f"seed {seed}: {words}")
        # The other searches tell, too.
        for name in audit.told:
            found(f"seed {seed}: {name}")
    tiny = shown = whole = 0
    for seed in () if options.together or options.options or options.stateful else seeds:
        drawn = tiny_cluster(seed)
        if drawn is None:
            continue
        audit = Audit(drawn)
        tiny += len(audit.refused)
        for group in audit.proved:
            plan, complete = tried_out(audit.snapshot, group)
            shown, whole = shown + 1, whole + complete
            if plan is not None:
                found(f"tiny seed {seed}: {group} when tried out")
    print(f"{options.count} clusters: {refused} refused, {proved} of them proved")
    print(f"tiny clusters: {tiny} refused, {shown} of them proved, {whole} tried out in whole")
    if not refuted:
        print("no proof is refuted")
    return 1 if refuted else 0


if __name__ == "__main__":
    sys.exit(main())
