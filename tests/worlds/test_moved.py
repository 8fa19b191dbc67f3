"""Moved pods over several cycles: the place that a plan gives a moved pod is its pod group's, until another
pod comes for it (4.2). Consolidation may lose no pod (4.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kai_cp.json_types import Object
from kai_cp.reader import parse
from kai_cp.simulate.fake_cluster import FakeCluster
from kai_cp_models.check import violations
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.snapshot import Snapshot
from tests.support import objects as raw
from tests.support.plans import bound, evicted, nominated, solved
from tests.support.tiny import cluster, node, pod, queue

ACTIONS = "allocate, consolidation, reclaim, preempt, stalegangeviction"
NOW = raw.NOW.timestamp()
CYCLE = 20.0
TWO_AND_ONE = (node("n1", gpus=2), node("n2", gpus=1))
V, T = pod("v", "n1", gpus=1), pod("t", gpus=2)
"""v moves to n2, so that t gets n1."""


class Played:
    """A cluster with cycles of twenty seconds; pods end in thirty, and controllers make others at once."""

    def __init__(
        self, nodes: Sequence[Object], pods: Sequence[Object], late: Sequence[Object] = (), **more: Any
    ) -> None:
        given = {"recreate": True, **more.pop("twin", {})}
        made = cluster(nodes, [*pods, *late], actions=ACTIONS, **more)
        self.late = made["rawObjects"]["pods"][len(pods) :]
        del made["rawObjects"]["pods"][len(pods) :]
        self.twin = FakeCluster(made, now=NOW, bind_seconds=1.0, start_seconds=1.0, same_name=True, **given)
        self.restarts: list[str] = []

    def read(self) -> Snapshot:
        return parse(self.twin.snapshot(), now=self.twin.now)

    def cycle(self) -> Plan:
        plan = solved(self.read())
        self.restarts += sorted(evicted(plan))
        self.twin.apply(plan)
        self.twin.advance(CYCLE)
        for one in self.late:
            self.twin.add_pod(one)
        self.late = []
        return plan

    def rests(self) -> Mapping[str, str | None]:
        """Where each pod is once no cycle decides anything any more."""
        while self.cycle().decisions:
            assert self.twin.now < NOW + 30 * CYCLE
        return {one.key.name: one.node for one in self.read().pods}


def test_v_moves_in_order() -> None:
    played = Played(TWO_AND_ONE, [V, T])
    assert nominated(played.cycle()) == {"t": "n1", "v": "n2"}
    assert played.rests() == {"t": "n1", "v": "n2"}
    assert played.restarts == ["v"]


@pytest.mark.parametrize("u", [{"priority": "low"}, {}, {"queue": "b"}, {"queue": "b", "priority": "low"}])
def test_no_newcomer_takes_the_place_of_a_moved_pod(u: dict[str, Any]) -> None:
    """u comes while v ends. The place is idle, and the next pod of v's group is not there yet."""
    played = Played(TWO_AND_ONE, [V, T], [pod("u", gpus=1, **u)], queues=[queue("q"), queue("b")])
    assert played.rests() == {"t": "n1", "v": "n2", "u": None}
    assert played.restarts == ["v"]


def test_a_newcomer_with_the_right_to_the_place_gets_it() -> None:
    """As if v ran there already: u is of its queue and comes first."""
    high = "build-preemptible"
    late = [pod("u", gpus=1, priority=high)]
    played = Played(TWO_AND_ONE, [V, pod("t", gpus=2, priority=high)], late)
    assert played.rests() == {"t": "n1", "v": None, "u": "n2"}


def test_a_second_consolidation_does_not_count_on_it() -> None:
    """t2 needs a whole node, too: w could leave n3 only for the place that v is to have on n2."""
    nodes = [*TWO_AND_ONE, node("n3", gpus=2)]
    firm = pod("v", "n1", gpus=1, priority="build-preemptible")
    played = Played(nodes, [firm, pod("w", "n3", gpus=1), T], [pod("t2", gpus=2)])
    places = played.rests()
    assert (places["t2"], sorted(one for one, at in places.items() if at)) == (None, ["t", "v", "w"])
    assert len(played.restarts) == 1


def test_the_places_of_a_gang_are_held_until_each_of_its_pods_is_back() -> None:
    """Its pods end at different times, v-0 at once; what comes for v-0 starts on n2, and u waits."""
    nodes = [node("n1", gpus=4), node("n2", gpus=1), node("n3", gpus=1)]
    graces = {"v-0": 0, "v-1": 90}
    gang = [
        pod(name, "n1", gpus=1, group="v", terminationGracePeriodSeconds=seconds)
        for name, seconds in graces.items()
    ]
    late = [pod("u-0", gpus=1, group="u", priority="low"), pod("u-1", gpus=1, group="w", priority="low")]
    played = Played(nodes, [*gang, pod("t", gpus=4)], late, groups={"v": {"minMember": 2}})
    assert set(nominated(played.cycle())) == {"t", "v-0", "v-1"}
    assert set(bound(played.cycle())) == {"v-0"}
    places = played.rests()
    assert (places["t"], {places["v-0"], places["v-1"]}) == ("n1", {"n2", "n3"})
    assert (places["u-0"], places["u-1"], played.restarts) == (None, None, ["v-0", "v-1"])


@pytest.mark.parametrize(("after", "place"), [(10.0, "n2"), (20.0, None)])
def test_the_place_waits_some_seconds_for_the_next_pod(after: float, place: str | None) -> None:
    """A controller may need ten seconds; later u, which is of no lower rank, has taken it."""
    played = Played(TWO_AND_ONE, [V, T], [pod("u", gpus=1)], twin={"recreate": False})
    played.cycle()
    played.cycle()
    fresh = {key: value for key, value in pod("v", gpus=1).items() if key != "belongs"}
    fresh["metadata"]["uid"] = "again"
    assert bound(solved(played.read())) == {"t": "n1"}
    played.twin.advance(after - CYCLE / 2)
    played.cycle()
    played.twin.add_pod(fresh)
    assert played.rests()["v"] == place


def test_the_checker_knows_the_place() -> None:
    """Until the next pod of the group is there, n2 has no capacity; then it is promised to that one."""
    played = Played(TWO_AND_ONE, [V, T], [pod("u", gpus=1)])
    played.cycle()
    taken = Plan(
        decisions=(Decision("Bind", PodKey("default", "u"), GroupKey("default", "u"), "n2", "allocate"),)
    )
    found = violations(played.read(), taken)
    assert [words.split(" (")[0] for words in found] == [
        f"capacity: node n2 would hold 2 of 1 GPUs {when}" for when in ("now", "in the end")
    ]
    played.twin.advance(CYCLE)
    words = "promises: pod group default/v is promised places on n2, default/u gets them"
    assert violations(played.read(), taken) == [words]
