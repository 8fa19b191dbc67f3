"""The simulation of an eviction plan: what the fair order makes of an answer of the joint model."""

from __future__ import annotations

from kai_cp.bench.generate import NOW, SHAPES
from kai_cp.reader import parse
from tests.support.plans import UNHURRIED, lost, nominated, solved
from tests.support.worlds import cluster, gpu_bound, group, node, pod, queue, spec


def test_unit_whose_new_places_go_to_others_leaves_whole() -> None:
    """A model of reclaim moves three of four pods of a gang to places that allocate gave to another gang of
    this cycle. That gang comes first in the fair order and takes other nodes, the new places among them, so
    the running gang is stopped: all of it, not the three pods.
    """
    plan = solved(parse(SHAPES["racks"](34, 5), now=NOW.timestamp()), UNHURRIED)
    assert {f"job-000039-{i}" for i in range(8)} < nominated(plan).keys()
    assert lost(plan) == {f"job-000013-{i}" for i in range(4)}


def test_gang_below_its_minimum_does_not_return_before_the_trigger() -> None:
    """g runs below its minimum, and its other pod waits, so it asks for nothing that could be served: in
    the fair order it has no turn before that of t.
    """
    queues = [queue(name, quota=gpu_bound(2)) for name in "ab"]
    g, t = group("g", 2, queue="a", priority=100), group("t", queue="b")
    pods = [pod("g-0", "n1", spec=spec(4)), pod("g-1"), pod("t-0", spec=spec(2))]
    plan = solved(cluster(pods, [g, t], [node(gpus=4)], queues))
    assert (lost(plan), set(nominated(plan))) == ({"g-0"}, {"t-0"})
