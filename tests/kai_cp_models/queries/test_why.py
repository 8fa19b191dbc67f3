"""What other packages may ask about a decided cycle: where pods could go instead."""

from __future__ import annotations

from itertools import product

import pytest

from kai_cp_models.engine import decide
from kai_cp_models.queries.why import Situation, moves_fit, new_places
from tests.support.plans import UNHURRIED
from tests.support.tiny import node, pod, world


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("b", "a"), ("a", "b", "c")])
def test_new_places_are_those_that_fit_when_tried_one_by_one(names: tuple[str, ...]) -> None:
    """n0 and n1 have 3 GPUs, n2 has 2. a needs 2, b and c need 1, and d keeps one GPU of n2."""
    running = [pod("a", "n0", gpus=2), pod("b", "n0", gpus=1), pod("c", "n1", gpus=1), pod("d", "n2", gpus=1)]
    snapshot = world([node("n0", gpus=3), node("n1", gpus=3), node("n2", gpus=2)], running)
    situation = Situation(snapshot, UNHURRIED, decide(snapshot, UNHURRIED))
    pods = [next(one for one in snapshot.pods if one.key.name == name) for name in names]
    every = product(range(3), repeat=len(pods))
    other = [
        nodes
        for nodes in every
        if all(snapshot.nodes[n].name != one.node for n, one in zip(nodes, pods, strict=True))
        and moves_fit(situation, pods, nodes)
    ]
    looks: list[None] = []
    assert list(new_places(situation, pods, lambda: looks.append(None))) == other
    assert other
    assert looks
