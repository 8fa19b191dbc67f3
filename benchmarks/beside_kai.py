"""Random clusters decided by this engine and by a real KAI, side by side.

    python -m benchmarks.beside_kai --kai COMMAND --clusters 200 --budget 20

COMMAND is called with the path of a KAI snapshot (plain JSON) and prints, as its last line, one JSON object
with ``decisions`` (kind, namespace, pod, node, action, gpuGroups; of an eviction also ``for``, the pod group
that it serves) and, if it likes, ``seconds``. A program of that kind runs KAI's actions in process, as its
``cmd/snapshot-tool`` does, and collects the state of the pods. KAI reads the clock, so all times of a
snapshot are moved to the present before it is written.

Every second cluster is one of the shapes of ``kai-cp bench --suite scale`` with 5 to 60 nodes; the others mix
the features of ``tests/support/clusters.py`` by chance, on up to 60 nodes. With ``--second-cycle`` they are
decided as they are after our plan for them was carried out and one pod in ten has finished (in
``kai-cp bench --second-cycle``, one in a hundred).

The first difference decides which plan is better, in the stated order: action by action, who is admitted in
the fair order (the first pod group of which one serves a batch and the other does not; each further pod of an
elastic group is a batch), then the goals of the settings, then who gets what evictions leave over. Decisions
name the last action that placed a pod, so our plan is made again as if the cycle ended after each action; a
group of KAI's plan for which a later action evicts nothing may have its place from allocate. Where two plans
are equal so far and go on differently, the same is asked of the whole cycle, then pods beyond each minimum.
The independent checker audits both answers. Where KAI's plan is better and breaks a rule, it is
counted apart. The first pod group that only KAI admits is asked again, with all others that we refused made
impossible: if it is served then, beside all that we served, we missed it; if not, a rule explains why.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import shlex
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from kai_cp.bench import fair
from kai_cp.bench.follow import following
from kai_cp.bench.generate import NOW, SHAPES
from kai_cp.bench.outcome import outcome
from kai_cp.raw_objects import stamp
from kai_cp.reader import parse
from kai_cp_models.check import waste
from kai_cp_models.engine import decide
from kai_cp_models.plan import FAILED, REJECTED, Decision, Plan
from kai_cp_models.pods import GroupKey, PodKey, PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.queries.cluster import faults as broken_rules
from kai_cp_models.queries.goals import goal_values
from kai_cp_models.queries.shares import fair_line
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from tests.properties import comparing
from tests.properties.reasking import waiting, without
from tests.support.clusters import FEATURES, random_cluster

DRAWN: Final = ("backlog", "contended", "fill", "fragmented", "mixed", "racks")
_INSTANT: Final = re.compile(rb'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z"')
_EQUAL: Final = "equal"


def drawn(seed: int, without: Sequence[str], dropped: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Name and snapshot of a cluster. ``dropped``: fields of pod groups that are left out."""
    rng = random.Random(f"beside-{seed}")
    if seed % 2:
        shape, nodes = rng.choice(DRAWN), rng.randint(5, 60)
        name, raw = f"{shape}-{nodes}-s{seed}", SHAPES[shape](nodes, seed)
    else:
        share = rng.choice((0.15, 0.4, 0.8))
        features = frozenset(f for f in sorted(FEATURES) if rng.random() < share) - set(without)
        name, raw = f"random-s{seed}", random_cluster(seed, features, rng.choice((1, 2, 3, 5)))
    for group in raw["rawObjects"]["podGroups"]:
        for spec in (group["spec"], *group["spec"].get("subGroups", ())):
            for field in dropped:
                spec.pop(field, None)
    return name, raw


def _carried_out(raw: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The snapshot after our plan for it was carried out and one pod in ten has finished; the clock ends no
    search, as an answer is kept for this snapshot and no other."""
    snapshot = parse(raw, now=NOW.timestamp())
    ended = {pod.key for pod in snapshot.pods[::10]}
    return following(raw, decide(snapshot, settings, deadline=math.inf), ended, snapshot.now)


def moved_to(now: float, raw: dict[str, Any]) -> bytes:
    """The snapshot as a document whose times are ``now`` instead of ``NOW``."""
    by = timedelta(seconds=now - NOW.timestamp())

    def shifted(found: re.Match[bytes]) -> bytes:
        return f'"{stamp(datetime.fromisoformat(found[1].decode()) + by)}"'.encode()

    return _INSTANT.sub(shifted, orjson.dumps(raw))


def asked(kai: str, document: bytes) -> dict[str, Any]:
    """KAI's answer to a snapshot; ``wall``: seconds of the whole process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "snapshot.json")
        path.write_bytes(document)
        begin = time.monotonic()
        done = subprocess.run([*shlex.split(kai), str(path)], capture_output=True, check=False, timeout=600)
        wall = time.monotonic() - begin
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"failed": f"status {done.returncode}", "decisions": [], "wall": wall}
    return {**orjson.loads(lines[-1]), "wall": wall}


def plan_of(snapshot: Snapshot, rows: Sequence[dict[str, Any]]) -> Plan:
    """KAI's decisions as a plan, in the order of its actions, evictions first.

    An eviction that does not say for which pod group it is, is for all that its action admits.
    """
    evicted = {_key(row) for row in rows if row["kind"] == "Evict"}
    served: dict[str, dict[GroupKey, None]] = {}
    for row in rows:
        group = snapshot.pod_by_key[_key(row)].group
        if row["kind"] != "Evict" and _key(row) not in evicted and group is not None:
            served.setdefault(row["action"], {})[group] = None

    def decision(row: dict[str, Any]) -> Decision:
        key, action = _key(row), row["action"]
        group = snapshot.pod_by_key[key].group
        if row["kind"] != "Evict":
            groups = tuple(row.get("gpuGroups") or ())
            return Decision(row["kind"], key, group, row["node"], action, gpu_groups=groups)
        named = (GroupKey(*row["for"].split("/", 1)),) if row.get("for") else tuple(served.get(action, ()))
        return Decision("Evict", key, group, row["node"], action, triggers=named)

    actions = snapshot.policy.actions
    found = map(decision, rows)
    return Plan(decisions=tuple(sorted(found, key=lambda d: (actions.index(d.action), d.kind != "Evict"))))


def _key(row: dict[str, Any]) -> PodKey:
    return PodKey(row["namespace"], row["pod"])


def admitted(snapshot: Snapshot, plan: Plan) -> Counter[GroupKey]:
    """How many more pods of each pod group run or get a place; a group that loses as many gains none."""
    placed = {decision.pod for decision in plan.decisions if decision.kind != "Evict"}
    lost = {decision.pod for decision in plan.decisions if decision.kind == "Evict"} - placed
    found: Counter[GroupKey] = Counter()
    for key in placed | lost:
        pod = snapshot.pod_by_key[key]
        if pod.group is not None:
            found[pod.group] += (pod.status is PodStatus.PENDING) - (key in lost)
    return +found


def first_difference(snapshot: Snapshot, settings: Settings, ours: Plan, theirs: Plan) -> tuple[str, str]:
    """Which plan is better (``ours``, ``KAI`` or ``equal``), and by what."""

    @cache
    def after(action: ActionName) -> Plan:
        actions = snapshot.policy.actions
        until = replace(snapshot.policy, actions=actions[: actions.index(action) + 1])
        return ours if until == snapshot.policy else decide(replace(snapshot, policy=until), settings)

    by, sign = comparing.first_difference(snapshot, ours, theirs, settings, after)
    if sign:
        return ("ours" if sign < 0 else "KAI"), by
    here, there = admitted(snapshot, ours), admitted(snapshot, theirs)
    found = fair.first_difference(snapshot, settings, here.keys(), there.keys())
    if found is not None:
        return ("ours" if found.here else "KAI"), f"fair order: {found.group}"
    for key in sorted(here.keys() | there.keys()):
        if here[key] != there[key]:
            return ("ours" if here[key] > there[key] else "KAI"), f"pods of {key}"
    values = [goal_values(snapshot, settings, plan, after=ours) for plan in (ours, theirs)]
    for mine, other in zip(*values, strict=True):
        if mine.value != other.value:
            return ("ours" if mine.value < other.value else "KAI"), mine.goal
    return _EQUAL, ""


def _first_refused(snapshot: Snapshot, settings: Settings, ours: Plan, theirs: Plan) -> GroupKey | None:
    """The first pod group of the fair order that only KAI admits."""
    here, there = admitted(snapshot, ours), admitted(snapshot, theirs)
    line = fair_line(snapshot, settings, here.keys() & there.keys())
    return next((key for key in line if key in there and key not in here), None)


@dataclass(frozen=True)
class Row:
    """One cluster. ``ours``, ``kai``: GPUs admitted, GPUs lost, pods moved. ``seconds``: of both; KAI's own,
    or those of its process.
    """

    name: str
    seed: int
    nodes: int
    better: str
    by: str
    superset: str
    """Who admits all that the other does and more, and stops no more GPUs."""
    missed: bool
    """Whether we serve the pod group that only KAI admits when it is asked again."""
    ours: tuple[float, float, int]
    kai: tuple[float, float, int]
    seconds: tuple[float, float]
    faults: list[str]
    kai_faults: list[str]
    kai_waste: list[str]
    kai_failed: str = ""

    def text(self) -> str:
        """The row as it is printed."""
        sizes = "  ".join(
            f"{who} {gpus:g} in, {lost:g} lost, {moved} moved"
            for who, (gpus, lost, moved) in (("ours", self.ours), ("KAI", self.kai))
        )
        verdict = self.better if self.better == _EQUAL else f"{self.better} better by {self.by}"
        if self.kai_failed:
            return f"{self.name}, {self.nodes} nodes: KAI gave no answer ({self.kai_failed})"
        audit = f"; KAI: {len(self.kai_faults)} faults, {len(self.kai_waste)} in vain"
        broken = f"; BROKEN: {self.faults[0]}" if self.faults else ""
        sole = f" (only {self.superset} more)" if self.superset else ""
        sole += " (MISSED)" if self.missed else ""
        return f"{self.name}, {self.nodes} nodes: {verdict}{sole}  {sizes}{audit}{broken}"


def compared(name: str, seed: int, raw: dict[str, Any], answer: dict[str, Any], settings: Settings) -> Row:
    """Decide a cluster and compare with KAI's answer."""
    now = answer["now"]
    raw = orjson.loads(moved_to(now, raw))
    snapshot = parse(raw, now=now)
    begin = time.monotonic()
    ours = decide(snapshot, settings)
    took = time.monotonic() - begin
    theirs = plan_of(snapshot, answer["decisions"])
    faults = broken_rules(snapshot, ours, settings)
    faults += [stage.name for stage in ours.stages if stage.kind in (REJECTED, FAILED)]
    better, by = first_difference(snapshot, settings, ours, theirs)
    key = _first_refused(snapshot, settings, ours, theirs)
    effects = [outcome(snapshot, [(d.kind, d.pod) for d in plan.decisions]) for plan in (ours, theirs)]
    return Row(
        name=name,
        seed=seed,
        nodes=len(snapshot.nodes),
        better=better,
        by=by,
        missed=better == "KAI" and key is not None and _missed(raw, snapshot, settings, ours, key),
        superset=_superset(snapshot, ours, theirs, [effect.lost_gpus for effect in effects]),
        ours=(effects[0].admitted_gpus, effects[0].lost_gpus, effects[0].moved_pods),
        kai=(effects[1].admitted_gpus, effects[1].lost_gpus, effects[1].moved_pods),
        seconds=(round(took, 3), round(answer.get("seconds", answer["wall"]), 3)),
        faults=faults,
        kai_faults=broken_rules(snapshot, theirs, settings),
        kai_waste=waste(snapshot, theirs),
        kai_failed=answer.get("failed", ""),
    )


def _missed(raw: dict[str, Any], snapshot: Snapshot, settings: Settings, ours: Plan, key: GroupKey) -> bool:
    served = admitted(snapshot, ours)
    others = (group.key for group in snapshot.waiting_groups if group.key not in served and group.key != key)
    refused = {pod for other in others for pod in waiting(snapshot, other)}
    asked_again = parse(without(raw, refused), now=snapshot.now)
    found = admitted(asked_again, decide(asked_again, settings))
    return key in found and served.keys() <= found.keys()


def _superset(snapshot: Snapshot, ours: Plan, theirs: Plan, lost: Sequence[float]) -> str:
    here, there = admitted(snapshot, ours), admitted(snapshot, theirs)
    if here < there and lost[1] <= lost[0]:
        return "KAI"
    return "ours" if there < here and lost[0] <= lost[1] else ""


def rows(options: argparse.Namespace, settings: Settings) -> Iterator[Row]:
    """One row per cluster; KAI's answers are kept in ``--keep`` and not asked for again."""
    for seed in options.only or range(options.first, options.first + options.clusters):
        name, raw = drawn(seed, options.without, options.drop)
        if options.second_cycle:
            name, raw = f"{name}-second", _carried_out(raw, settings)
        kept = options.keep and options.keep / f"{name}.json"
        if kept and kept.exists():
            answer = orjson.loads(kept.read_bytes())
        else:
            now = float(int(time.time()))
            answer = {"now": now, **asked(options.kai, moved_to(now, raw))}
            if kept:
                options.keep.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(orjson.dumps(answer))
        yield compared(name, seed, raw, answer, settings)


def summary(found: Sequence[Row]) -> Iterator[str]:
    """The figures of all clusters together."""
    yield f"{len(found)} clusters; ours broken: {sum(bool(row.faults) for row in found)}"
    if silent := sum(bool(row.kai_failed) for row in found):
        yield f"KAI gave no answer to {silent}, which are left out below"
    found = [row for row in found if not row.kai_failed]
    worse = [row for row in found if row.better == "KAI"]
    lawful = [row for row in worse if not row.kai_faults]
    count = Counter(row.better for row in found)
    yield (
        f"ours better {count['ours']}, equal {count[_EQUAL]}, KAI better {len(lawful)}, "
        f"and {len(worse) - len(lawful)} more with a plan that breaks rules; "
        f"missed by us {sum(row.missed for row in worse)}"
    )
    for row in [*lawful, *(row for row in worse if row.missed and row.kai_faults)]:
        yield f"  KAI better: {row.text()}"
    yield (
        f"KAI's answers: {sum(bool(row.kai_faults) for row in found)} break rules, "
        f"{sum(bool(row.kai_waste) for row in found)} evict in vain"
    )
    for who, at in (("ours", 0), ("KAI", 1)):
        seconds = sorted(row.seconds[at] for row in found)
        middle = seconds[len(seconds) // 2]
        yield f"{who}: {sum(seconds):.1f} s in all, median {middle:.3f}, most {seconds[-1]:.2f}"


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def main() -> None:
    """Draw, ask, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kai", default="", metavar="COMMAND", help="asks KAI; the path comes last")
    parser.add_argument("--clusters", type=int, default=200)
    parser.add_argument("--first", type=int, default=1, metavar="SEED", help="seed of the first cluster")
    parser.add_argument("--only", type=int, nargs="*", metavar="SEED", help="these clusters instead")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of our cycle")
    parser.add_argument(
        "--second-cycle", action="store_true", help="decide the clusters after our plan was carried out"
    )
    parser.add_argument(
        "--without", type=_names, default=[], metavar="NAME,...", help="features that this KAI lacks"
    )
    parser.add_argument(
        "--drop", type=_names, default=[], metavar="FIELD,...", help="fields of pod groups that it lacks"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep KAI's answers here; those there hold")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append one JSON object per cluster")
    options = parser.parse_args()
    settings = Settings.model_validate({"solver": {"budget_seconds": options.budget}})
    found: list[Row] = []
    for row in rows(options, settings):
        found.append(row)
        print(row.text(), flush=True)
        if options.json:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
    print(*summary(found), sep="\n")


if __name__ == "__main__":
    main()
