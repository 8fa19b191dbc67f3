"""The audit says what is wrong with any plan, and never raises."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import Any, Final

import pytest

from kai_cp_models.blame import breaking
from kai_cp_models.check import PlannedCluster, SnapshotFacts, audit, capacity, gangs, violations
from kai_cp_models.check.audit import UNJUDGED
from kai_cp_models.engine import decide
from kai_cp_models.plan import Decision, Plan, Reservation
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.policy import DECISION_ORDER
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import Snapshot
from tests.properties.reasking import read
from tests.support.options import with_options
from tests.support.worlds import (
    PLUGINS,
    bind,
    cluster,
    evict,
    group,
    judged,
    named,
    node,
    nominate,
    pod,
    queue,
)

SEEDS: Final = (9_400_003, 9_400_007, 9_400_010, 9_400_018, 9_400_076, 9_400_078, 9_400_103)
"""Their plans bind, move and evict by several actions, give out devices and zones, and promise starts."""
CHANGES: Final = 150
"""Wrong plans for each of them."""
CLAIMED: Final = "resourceClaimAllocations"
GIVEN: Final = {"name": "x", "allocation": {}}
NOBODY: Final = GroupKey("no", "such")
JUNK: Final = (None, "", "x", 7, -1, 1.5, float("nan"), True, [], ["x"], {}, {"x": 1})


@cache
def _decided(seed: int) -> tuple[Snapshot, Plan, OptionalRules, SnapshotFacts]:
    cluster, settings = with_options(seed)
    snapshot = read(cluster, settings)
    seen = prepare(snapshot, settings)[0]
    return seen, decide(snapshot, settings), settings.rules, SnapshotFacts.of(seen)


def _spoilt(rng: Random, value: Any) -> Any:
    """The value with one thing in it left out, twice there, or another."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(sorted(value))
        rest = {key: one for key, one in value.items() if key != name}
        return rest if rng.random() < 0.3 else {**rest, name: _spoilt(rng, value[name])}
    if isinstance(value, list | tuple) and value and rng.random() < 0.9:
        i = rng.randrange(len(value))
        return [*value[:i], *rng.choice(([], [value[i]] * 2, [_spoilt(rng, value[i])])), *value[i + 1 :]]
    return rng.choice(JUNK)


def _changed(rng: Random, snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan with one thing in it changed, or a whole eviction that nothing allows."""
    decisions, starts = list(plan.decisions), list(plan.reservations or ())
    groups = [NOBODY, *(one.key for one in snapshot.groups)]
    names, action = ["nowhere", *snapshot.node_index], rng.choice(DECISION_ORDER)
    asking = rng.choice([one.key for one in snapshot.waiting_groups] or groups)
    leaving, name, key = rng.choice(snapshot.pods), rng.choice(names), rng.choice(groups)

    def one_more() -> Decision:
        decision = rng.choice(decisions or [evict("no-such", action)])
        fields: dict[str, Callable[[], object]] = {
            "kind": lambda: rng.choice(("Bind", "Nominate", "Evict")),
            "pod": lambda: rng.choice((leaving.key, PodKey("no", "such"))),
            "group": lambda: rng.choice((key, None)),
            "node": lambda: name,
            "action": lambda: action,
            "gpu_groups": lambda: rng.choice(
                ((), ("a",), ("a", "a"), *(p.gpu_groups for p in snapshot.pods))
            ),
            "triggers": lambda: tuple(rng.choices(groups, k=rng.randrange(3))),
        }
        field = rng.choice(sorted(fields))
        return replace(decision, **{field: fields[field]()})

    def evicted() -> list[Decision]:
        gone = rng.choices(snapshot.pods, k=rng.randrange(1, 5))
        return [Decision("Evict", p.key, p.group, p.node or name, action, triggers=(asking,)) for p in gone]

    def another_start() -> Reservation:
        entry = rng.choice([*starts, Reservation(key, "q", "kept", snapshot.now, nodes={name: 1.0})])
        nodes = {name: rng.choice((-8.0, float("nan"), float("inf"), 1e300))}
        changes: dict[str, Any] = {
            "group": key,
            "nodes": nodes,
            "state": rng.choice(("made", "started", "draining")),
            "start": rng.choice((None, 0.0, float("nan"), float("inf"))),
            "victims": (key,),
        }
        field = rng.choice(sorted(changes))
        return replace(entry, **{field: changes[field]})

    def told() -> Decision:
        decision = rng.choice([one for one in decisions if one.details] or [bind("no-such")])
        details = _spoilt(rng, dict(decision.details))
        return replace(decision, details=details if isinstance(details, dict) else {})

    at = rng.randrange(len(decisions) + 1)
    taken = [Decision("Nominate", p.key, asking, name, action) for p in snapshot.members.get(asking, ())]
    ways: list[Callable[[], Plan]] = [
        lambda: replace(plan, decisions=(*decisions[:at], *decisions[at + 1 :])),
        lambda: replace(plan, decisions=(*decisions[:at], one_more(), *decisions[at + rng.randrange(2) :])),
        lambda: replace(plan, decisions=tuple(rng.sample(decisions, len(decisions)))),
        lambda: replace(plan, decisions=(*decisions, told())),
        lambda: replace(plan, decisions=(*decisions, *evicted(), *taken)),
        lambda: replace(plan, reservations=(*starts[rng.randrange(2) :], another_start())),
    ]
    return rng.choice(ways)()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_plan_gets_an_answer(seed: int) -> None:
    """Whatever is wrong with it, the faults are texts, and the pod groups to blame can be found."""
    snapshot, plan, rules, start = _decided(seed)

    def lawful(wrong: Plan, without: Collection[GroupKey]) -> bool:
        other = PlannedCluster(snapshot, wrong).plan_without(without)
        return not audit(snapshot, other, rules, start=start)

    assert violations(snapshot, plan, rules, start=start) == []
    rng = Random(seed)
    for _ in range(CHANGES):
        wrong = _changed(rng, snapshot, plan)
        if rng.random() < 0.3:
            wrong = _changed(rng, snapshot, wrong)
        faults = audit(snapshot, wrong, rules, start=start)
        assert violations(snapshot, wrong, rules, start=start) == [str(fault) for fault in faults]
        assert not [fault for fault in faults if UNJUDGED in fault.words]
        breaking(faults, snapshot, wrong, plan, partial(lawful, wrong))


@pytest.mark.parametrize("seed", SEEDS)
def test_shared_facts_and_sums_hide_no_fault(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node by node and gang by gang, without what other audits have found, the same is wrong."""
    snapshot, plan, rules, start = _decided(seed)
    rng = Random(seed + 1)
    wrong = [_changed(rng, snapshot, _changed(rng, snapshot, plan)) for _ in range(CHANGES // 4)]
    found = [violations(snapshot, one, rules, start=start) for one in wrong]
    assert any("capacity" in fault for faults in found for fault in faults)
    monkeypatch.setattr(capacity, "_suspects", lambda _: snapshot.node_index.keys())
    monkeypatch.setattr(gangs, "_plainly_whole", lambda *_: False)
    for one, faults in zip(wrong, found, strict=True):
        assert violations(snapshot, one, rules, start=SnapshotFacts(snapshot, start.fair_shares)) == faults


@pytest.mark.parametrize(
    ("decisions", "words"),
    [
        ([evict("r-0", "maxruntime")], ["starts", "Evict", "ns/r-0", "which no setting switches on"]),
        ([evict("r-0", "reservation", "a"), nominate("a-0", action="reservation")], ["ns/r-0", "no setting"]),
        ([bind("a-0", action="reservation")], ["starts", "Bind", "ns/a-0", "no setting"]),
        ([bind("a-0", action="stalegangeviction")], ["stalegangeviction places no pods"]),
        ([bind("a-0", action="defrag")], ["defrag places only pods that it moves"]),
        ([nominate("a-0", action="defrag"), bind("b-0")], ["b-0", "after a later action"]),
        ([evict("d-0", "reclaim", "a"), nominate("a-0", action="reclaim")], ["d-0", "does not run"]),
        ([evict("lost-0", "reclaim", "a"), nominate("a-0", action="reclaim")], ["is not a leaf queue"]),
        ([bind("a-0", details={CLAIMED: [{"name": 5}]})], ["claims", "ns/a-0", "5 is not text"]),
        ([bind("a-0", details={CLAIMED: [GIVEN, GIVEN]})], ["claims", "ns/a-0", "one claim has two"]),
        ([bind("a-0", details={CLAIMED: [GIVEN]})], ["claims", "ns/a-0", "no claim 'x'"]),
        ([bind("a-0", details={"extendedResourceClaimAllocation": 5})], ["ns/a-0", "cannot be read"]),
    ],
)
def test_faults_of_wrong_plans_are_named(decisions: list[Decision], words: list[str]) -> None:
    spare = [node(), node("n2")]
    waiting = (pod("a-0"), pod("b-0"), pod("d-0"))
    snapshot = cluster(
        [*waiting, pod("r-0", "n1"), pod("lost-0", "n2")],
        [group("lost", queue="nowhere")],
        spare,
        queues=[queue(), queue("other")],
        plugins=PLUGINS | {"dynamicresources"},
    )
    assert named(judged(snapshot, *decisions), *words)
