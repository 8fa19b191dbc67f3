"""The simulation of an eviction plan: what the fair order makes of an answer of the joint model."""

from __future__ import annotations

from kai_cp.bench.generate import NOW, SHAPES
from kai_cp.reader import parse
from tests.support.plans import UNHURRIED, lost, nominated, solved


def test_unit_whose_new_places_go_to_others_leaves_whole() -> None:
    """A model of reclaim moves three of four pods of a gang to places that allocate gave to another gang of
    this cycle. That gang comes first in the fair order and takes other nodes, the new places among them, so
    the running gang is stopped: all of it, not the three pods.
    """
    plan = solved(parse(SHAPES["racks"](34, 5), now=NOW.timestamp()), UNHURRIED)
    assert {f"job-000039-{i}" for i in range(8)} < nominated(plan).keys()
    assert lost(plan) == {f"job-000013-{i}" for i in range(4)}
