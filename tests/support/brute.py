"""Brute force over complete assignments of tiny worlds; a test states in a few lines what is allowed.

Nothing here or in those statements is shared with the engine or the checker. An assignment says on which node
each pod ends that holds a place at the end; running pods are in it under their node.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, Final

from hypothesis import settings

from kai_cp_models.check import violations
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import PodKey
from kai_cp_models.snapshot import Snapshot
from tests.support.plans import ALL_RULES, evicted, placed, solved

Places = Mapping[str, str]
"""Node by name of every pod that holds a place."""
Legal = Callable[[Places], bool]

_EXAMPLES: Final = int(os.environ.get("KAI_CP_RULE_WORLDS", "0"))


def worlds(count: int) -> settings:
    """That many random worlds, always the same; ``KAI_CP_RULE_WORLDS`` draws as many others."""
    return settings(max_examples=_EXAMPLES or count, derandomize=not _EXAMPLES, deadline=None)


def assignments(pods: Sequence[str], nodes: Sequence[str], fixed: Places) -> Iterator[Places]:
    """Every node for every pod, beside the pods that stay where they are."""
    for chosen in product(nodes, repeat=len(pods)):
        yield {**fixed, **dict(zip(pods, chosen, strict=True))}


def fair(
    plan: Plan, waiting: Sequence[str], nodes: Sequence[str], running: Places, legal: Legal, *, sure: bool
) -> None:
    """In the fair order, each pod gets a place exactly if it has one together with all pods admitted before
    it.

    Refused pods are offered what is left once more, beside all admitted pods. Without ``sure`` a pod that has
    a place may be refused, as long as the refusal is not called proved.
    """
    proved = {refused.group.name: refused.proved for refused in plan.unscheduled}
    taken: list[str] = []
    again = list(waiting)
    for _ in range(2):
        asked, again = again, []
        for name in asked:
            possible = any(legal(places) for places in assignments([*taken, name], nodes, running))
            if name in placed(plan) and possible:
                taken.append(name)
            else:
                assert name in placed(plan) or not possible or not (sure or proved[name]), name
                again.append(name)
    assert not [name for name in again if name in placed(plan)], again


def named(snapshot: Snapshot, kind: Any, name: str, node: str, **more: Any) -> Decision:
    """A decision on a pod of namespace ``default``."""
    one = snapshot.pod_by_key[PodKey("default", name)]
    return Decision(kind, one.key, one.group, node, **{"action": "allocate", **more})


def agrees(
    snapshot: Snapshot,
    waiting: Sequence[str],
    running: Places,
    legal: Legal,
    *,
    sure: bool = True,
    check: bool = True,
    somehow: Legal | None = None,
) -> None:
    """Allocate admits what brute force admits, and the checker allows the legal assignments.

    ``sure``: see ``fair``. ``check``: False where a placement is more than a node. ``somehow``: what pods in
    some other order may do, for rules in which the order matters; the checker then refuses only what this
    forbids.
    """
    nodes = [node.name for node in snapshot.nodes]
    fair(solved(snapshot, ALL_RULES), waiting, nodes, running, legal, sure=sure)
    for size in range(1, len(waiting) + 1) if check else ():
        for chosen in combinations(waiting, size):
            for places in assignments(chosen, nodes, running):
                decisions = tuple(named(snapshot, "Nominate", name, places[name]) for name in chosen)
                faults = violations(snapshot, Plan(decisions), ALL_RULES.rules)
                assert not faults or not legal(places), (places, faults)
                assert faults or (somehow or legal)(places), places


def gives_way(snapshot: Snapshot, trigger: str, running: Places, legal: Legal) -> None:
    """The one waiting pod gets a place exactly if it has one once some set of running pods is gone.

    If it fits as it is, or never, no pod is disturbed.
    """
    nodes = [node.name for node in snapshot.nodes]
    plan = solved(snapshot, ALL_RULES)
    possible = [
        gone
        for size in range(len(running) + 1)
        for gone in combinations(running, size)
        for places in assignments([trigger], nodes, {n: at for n, at in running.items() if n not in gone})
        if legal(places)
    ]
    assert placed(plan) == ({trigger} if possible else set())
    if not possible or () in possible:
        assert evicted(plan) == set()
