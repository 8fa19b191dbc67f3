"""What proofs are made of, against brute force: what may leave, what fits beside a plan, who comes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from random import Random
from typing import Any, Final

import numpy as np
import pytest

from kai_cp_models import engine, proof
from kai_cp_models.cycle import Cycle
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.proof import any_plan
from kai_cp_models.proof.any_plan import AnyPlan, fits_beside
from kai_cp_models.proof.departures import Departures
from kai_cp_models.proof.served import ServedBatches
from kai_cp_models.snapshot import PodGroup, Snapshot
from tests.properties.reasking import SETTINGS, Audit, gained, read
from tests.support.clusters import random_cluster
from tests.support.worlds import NOW, cluster, group, leaf, pod, queue, tree

# --- what may leave --------------------------------------------------------------------------------

MINIMUM_SECONDS = 100.0


def _running(rng: Random, name: str) -> tuple[PodGroup, list[Pod]]:
    """A running group of one to three pod sets, some of whose pods wait or end."""
    leaves = [(f"s{i}", rng.randint(0, 2)) for i in range(rng.randint(1, 3))]
    more: dict[str, Any] = {"priority": rng.choice((50, 75)), "preemptible": rng.random() < 0.8}
    more["last_start"] = rng.choice((None, NOW - 10, NOW - 1_000))
    root = tree(rng.randint(1, len(leaves)), *(leaf(*one) for one in leaves))
    states = rng.choices((PodStatus.RUNNING, PodStatus.PENDING, PodStatus.RELEASING), (9, 1, 1), k=9)
    pods = [
        pod(
            f"{name}-{part}-{i}",
            None if (state := states.pop()) is PodStatus.PENDING else "n1",
            name,
            subgroup=part,
            status=state,
        )
        for part, _ in leaves
        for i in range(rng.randint(0, 3))
    ]
    return group(name, queue="v", root=root, **more), pods


def _satisfied(one: PodGroup, pods: Sequence[Pod]) -> bool:
    """Whether so many pod sets as the group needs have their minimum."""
    count = Counter(p.subgroup for p in pods)
    return sum(count[part.name] >= part.minimum for part in one.root.children) >= one.root.minimum


@pytest.mark.parametrize("seed", range(60))
def test_protected_group_gives_what_its_gang_does_not_need(seed: int) -> None:
    """A group that has not run its minimum gives nothing where the gang needs each of its pods. Which pods go
    where it has more, and what those that wait count for, depends on the plan; those that are leaving count
    for nothing. Any other group may lose all its pods.
    """
    rng = Random(seed)
    drawn = [_running(rng, name) for name in ("a", "b")]
    members = [one for _, pods in drawn for one in pods]
    snapshot = cluster(members, [one for one, _ in drawn], queues=[queue("v")])
    taking = [(rng.choice((0.0, MINIMUM_SECONDS)), rng.choice((60.0, inf))) for _ in range(rng.randint(1, 2))]
    departures = Departures(Ledger.of(snapshot), ())
    index = departures.base.book.tree.index
    size = len(index) + 1
    masks = []
    for least, below in taking:
        seconds = np.full(size, np.nan)
        seconds[index["v"]] = least
        masks.append(departures.old_enough(seconds, np.full(size, below)))
    taken = {one.key for one in departures.pods(np.logical_or.reduce(masks))}
    for one, pods in drawn:
        active = [p for p in pods if p.status in ACTIVE_ALLOCATED]
        gone = [p for p in active if p.key in taken]
        seconds = [least for least, below in taking if one.priority < below]
        if not one.preemptible or not seconds:
            assert gone == []
        elif (
            one.last_start is None
            or one.last_start + min(seconds) <= NOW
            or any(p.status is PodStatus.PENDING for p in pods)
            or any(_satisfied(one, [p for p in active if p is not more]) for more in active)
        ):
            assert gone == active
        else:
            assert gone == []


# --- what fits beside a plan -----------------------------------------------------------------------

_FEATURES: Final = "cpu deep elastic limits multi nonpreemptible priorities quotas slots topology"
FITTING: Final = frozenset(_FEATURES.split())
LEVELS = ("topology/block", "topology/rack")
MOST_UNSEEN = 5
"""A test that saw no more cases of one kind than this would show nothing."""


def _offers(snapshot: Snapshot, beside: AnyPlan) -> Mapping[str, list[int]]:
    """What every node has left when all that may leave has left and what got a place in the plan came."""
    emptied, held = beside.emptied, beside.known.cycle.ledger.held
    gone = {one.key for one in beside.known.departures.pods(emptied.gone)}
    free = {node.name: list(node.allocatable) for node in snapshot.nodes}
    for one in snapshot.pods:
        got = one.key in held and one.status is PodStatus.PENDING
        at = snapshot.nodes[held[one.key].node].name if got else one.node
        if at is not None and one.key not in gone and (got or one.status in ACTIVE_ALLOCATED):
            free[at] = [have - asked for have, asked in zip(free[at], one.spec.requests, strict=True)]
    return free


def _fit(asks: Sequence[Sequence[int]], nodes: Sequence[list[int]]) -> bool:
    """Whether all find a node, tried one after the other."""
    if not asks:
        return True
    for node in nodes:
        if all(have >= asked for have, asked in zip(node, asks[0], strict=True)):
            before = list(node)
            node[:] = [have - asked for have, asked in zip(node, asks[0], strict=True)]
            if _fit(asks[1:], nodes):
                return True
            node[:] = before
    return False


def _domains(objects: Any, key: GroupKey, names: Sequence[str]) -> Iterator[list[str]]:
    """The nodes that the group may use together."""
    spec = next(g["spec"] for g in objects["podGroups"] if _key(g["metadata"]) == key)
    constraint = spec.get("topologyConstraint")
    labels = {n["metadata"]["name"]: n["metadata"]["labels"] for n in objects["nodes"]}
    if constraint is None:
        yield list(names)
        return
    names = [name for name in names if all(level in labels[name] for level in LEVELS)]
    level = {"rack": LEVELS[1]}.get(required := constraint.get("requiredTopologyLevel"), required)
    shown = LEVELS[: LEVELS.index(level) + 1] if level else ()
    found: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        found.setdefault(tuple(labels[name][x] for x in shown), []).append(name)
    yield from found.values()


def _key(meta: Any) -> tuple[str, str]:
    return GroupKey(meta["namespace"], meta["name"])


@pytest.mark.parametrize("first", [9_300_000, 9_300_010])
def test_batch_that_is_said_to_fit_beside_the_plan_does(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And without a topology, one that fits is said to."""
    seen = Counter(one for seed in range(first, first + 10) for one in _compared(seed, monkeypatch))
    assert seen[True] > MOST_UNSEEN < seen[False]


def _compared(seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """What was said of each batch; asserts that brute force says the same."""
    asked: list[tuple[AnyPlan, Ask, bool]] = []

    def noted(beside: AnyPlan, ask: Ask) -> bool:
        asked.append((beside, ask, fits_beside(beside, ask)))
        return asked[-1][2]

    monkeypatch.setattr(any_plan, "fits_beside", noted)
    drawn = random_cluster(seed, FITTING)
    objects = drawn["rawObjects"]
    snapshot = read(drawn)
    engine.decide(snapshot, SETTINGS)
    selects = {PodKey(*_key(p["metadata"])): p["spec"].get("nodeSelector") or {} for p in objects["pods"]}
    labels = {n["metadata"]["name"]: n["metadata"]["labels"] for n in objects["nodes"]}
    for beside, ask, said in asked:
        free = _offers(snapshot, beside)
        wanted = selects[ask.pods[0].key].items()
        if beside.emptied.moves or any(min(have) < 0 for have in free.values()):
            continue
        names = [name for name in free if wanted <= labels[name].items()]
        found = any(
            _fit([p.spec.requests for p in ask.pods], [list(free[name]) for name in domain])
            for domain in _domains(objects, ask.group.key, names)
        )
        assert found or not said
        assert said or not found or len({p.spec for p in ask.pods}) > 1 or ask.kind.shape.scoped
        yield bool(said)


# --- what comes before -----------------------------------------------------------------------------


@pytest.mark.parametrize("first", [9_310_000, 9_310_015])
def test_batches_before_a_refused_group_are_those_of_the_groups_before_it(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each group got its first batch and no more, the batches before a refused group are those of all
    served groups that an own walk of the fair order meets before it. Elsewhere they are some of those, and
    the first batch of each of those groups is among them.
    """
    seen = Counter(one for seed in range(first, first + 15) for one in _walked(seed, monkeypatch))
    assert seen[True] > MOST_UNSEEN < seen[False]


def _walked(seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """For each refused group beside which some come: whether the walk was the short one."""
    made: list[tuple[ServedBatches, Mapping[GroupKey, Ask]]] = []

    def noted(cycle: Cycle, base: Ledger, asks: Mapping[GroupKey, Ask]) -> ServedBatches:
        made.append((ServedBatches(cycle, base, asks), asks))
        return made[-1][0]

    monkeypatch.setattr(proof, "ServedBatches", noted)
    audit = Audit(random_cluster(seed, FITTING))
    (served, asks), walked = made[-1], audit.betters(audit.plan)
    asked = {key: {one.key for one in ask.pods} for key, ask in asks.items()}
    got = gained(audit.plan)
    short = got == {key for owner in served.groups for key in asked[owner]}
    for refused in audit.refused.keys() & asked.keys():
        before = {one.key for ask in served.asks[: served.before(refused)] for one in ask.pods}
        assert before == walked[refused] if short else before <= walked[refused]
        owners = {audit.snapshot.pod_by_key[key].group for key in walked[refused]}
        assert all(asked[owner] & got <= before for owner in owners if owner in asked and asked[owner] <= got)
        if before:
            yield short
