"""The values of a plan's stages are what the plan loses and moves.

A stage counts what its action disturbed, as far as the finished plan still does; an eviction that a later
action takes over stays with the action that decided it. So the stages of a goal add up to exactly what the
whole plan has, proved or not, wherever every action that disturbs anything tells the goal.
``KAI_CP_STAGE_WORLDS`` asks in that many worlds.
"""

from __future__ import annotations

import os
import time
from random import Random
from typing import Any, Final

from kai_cp_models.engine import decide
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.plan import Plan
from kai_cp_models.pods import Pod
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from tests.properties.reasking import HOUR_SECONDS, read
from tests.support import objects as raw
from tests.support.clusters import random_cluster
from tests.support.options import BLENDS, GOALS
from tests.support.tiny import cluster, node, pod, queue

COUNT: Final = int(os.environ.get("KAI_CP_STAGE_WORLDS", "100"))
FIRST: Final = int(os.environ.get("KAI_CP_STAGE_FIRST", "0"))
ACTIONS: Final = ("consolidation", "reclaim", "preempt")
ELASTIC: Final = ("limits", "partial", "priorities", "quotas", "subgroups")


def _goals(random: Random) -> list[str]:
    """Some goals in any order, those of which a value is known among them; now and then all by default."""
    plain = random.sample(GOALS, random.randint(0, 3))
    found = list(dict.fromkeys(["moved_pods", "lost_gpus", *plain]))
    return [random.choice(BLENDS)] if random.random() < 0.1 else random.sample(found, len(found))


def _elastic(random: Random) -> raw.Object:
    """Groups with more pods than they need, in several queues."""
    more = {name for name in ELASTIC if random.random() < 0.6}
    return random_cluster(random.randrange(2**32), frozenset({"elastic", *more}))


def _small(random: Random) -> raw.Object:
    """Two to four nodes, one or two queues, groups that run with surplus pods, and groups that wait."""
    gpus = [random.choice((2, 3, 4, 4)) for _ in range(random.randint(2, 4))]
    nodes = [node(f"n{i}", gpus=count, offers={"cpu": "64"}) for i, count in enumerate(gpus)]
    pods, minimum = list[raw.Object](), dict[str, raw.Object]()
    for g in range(random.randint(3, 9)):
        name, size, least = f"g{g}", random.choice((1, 1, 2, 3)), random.choice((1, 1, 2))
        more: dict[str, Any] = {"queue": random.choice("qqr"), "group": name, "gpus": size}
        runs = g < 6 and random.random() < 0.7
        more["priority"] = random.choice(
            ("low", "train") if runs else ("train", "build-preemptible", "build")
        )
        places = [i for i, free in enumerate(gpus) for _ in range(free // size)]
        random.shuffle(places)
        count = least + random.choice((0, 0, 1, 2))
        if runs and len(places) < least:
            continue
        for i, at in enumerate(places[:count] if runs else [-1] * count):
            pods.append(pod(f"{name}-{i}", f"n{at}" if runs else "", **more))
            if runs:
                gpus[at] -= size
        minimum[name] = {"minMember": least}
    actions = ["consolidation", "reclaim", "preempt"]
    chosen = ", ".join(["allocate", *random.sample(actions, random.randint(1, 3))])
    queues = [queue(name, quota={"gpu": random.randint(0, 6)}) for name in "qr"]
    return cluster(nodes, pods, actions=chosen, groups=minimum, queues=queues)


def _drawn(random: Random) -> raw.Object:
    """Mostly a small cluster: the others take ten times as long."""
    draw = random.choices((_small, _elastic, lambda one: random_cluster(one.randrange(2**32))), (8, 1, 1))[0]
    return draw(random)


def _disturbed(snapshot: Snapshot, plan: Plan) -> dict[str, tuple[list[Pod], list[Pod]]]:
    """Pods that end without a place, and pods that move, by the action that evicts them."""
    placed = {one.pod for one in plan.decisions if one.kind != "Evict"}
    found: dict[str, tuple[list[Pod], list[Pod]]] = {}
    for one in plan.decisions:
        if one.kind == "Evict" and one.action in ACTIONS:
            found.setdefault(one.action, ([], []))[one.pod in placed].append(snapshot.pod_by_key[one.pod])
    return found


def _values(lost: list[Pod], moved: list[Pod]) -> dict[str, float]:
    return {
        "lost GPUs [milli-GPUs]": sum(map(milli_gpus, lost)),
        "moved pods": len(moved),
        "moved pod groups": len({one.group for one in moved}),
    }


def _settings(random: Random) -> Settings:
    solver = {"budget_seconds": 20, "patience": 50}
    return Settings.model_validate({"solver": solver, "objective": {"goals": _goals(random)}})


def test_the_stages_add_up_to_what_the_plan_loses_and_moves() -> None:
    compared = 0
    for seed in range(FIRST, FIRST + COUNT):
        random = Random(seed)
        settings = _settings(random)
        snapshot = read(_drawn(random), settings)
        plan = decide(snapshot, settings, deadline=time.monotonic() + HOUR_SECONDS)
        disturbed = _disturbed(snapshot, plan)
        for goal in _values([], []):
            stages = {one.action: one.objective for one in plan.stages if one.goal == goal}
            # An action without a stage for the goal did not pursue it.
            if disturbed.keys() <= stages.keys():
                has = sum(_values(*pods)[goal] for pods in disturbed.values())
                assert sum(stages.values()) == has, (seed, goal)
                compared += bool(has)
    assert compared > COUNT / 10
