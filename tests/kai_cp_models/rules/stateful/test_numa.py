"""NUMA zones: policies, scopes, predictions, and what leaving pods give back."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp_models.pods import GpuRequest, Pod
from kai_cp_models.rules.stateful import numa
from kai_cp_models.snapshot import Snapshot
from tests.kai_cp_models.rules.stateful.build import placed, pod, snapshot, spec
from tests.support import tiny
from tests.support.devices import aligned, resource_topology
from tests.support.plans import placed as placed_pods
from tests.support.plans import solved

PLUGINS = frozenset({"numa"})


def nrt(node: str, *zones: dict[str, str], **more: str) -> dict[str, Any]:
    """The node's zones, with "gpu" for the resource name."""
    named = ({key.replace("gpu", "nvidia.com/gpu"): value for key, value in zone.items()} for zone in zones)
    return resource_topology(node, *named, **more)


def want(name: str, cpu: int, gpu: int = 0, *, guaranteed: bool = True, node: str | None = None,
         zones: Any = (), containers: Any = ()) -> Pod:  # fmt: skip
    wants = spec(
        (cpu * 1000, 2**30, gpu * 1000, 1),
        gpu=GpuRequest(devices=gpu),
        guaranteed=guaranteed,
        container_requests=tuple((c * 1000, 0, 0, 0) for c in containers),
    )
    return pod(
        name, node, wants=wants, numa_zones=tuple((zone, tuple(amounts.items())) for zone, amounts in zones)
    )


def cluster(pods: list[Pod], *topologies: dict[str, Any], **policy: Any) -> Snapshot:
    names = [t["metadata"]["name"] for t in topologies]
    return snapshot(
        pods, [*names, "plain"], raw={"nodeResourceTopologies": list(topologies)}, plugins=PLUGINS, **policy
    )


def accepted(found: Snapshot, which: Pod, *, now: bool = True) -> bool:
    """Whether the first node accepts the pod."""
    mask = numa.open(found).mask(which, now=now)
    assert mask is None or mask[-1]
    return mask is None or bool(mask[0])


FOUR = ({"cpu": "4"}, {"cpu": "4"})


@pytest.mark.parametrize(
    ("x", "topology", "expected"),
    [
        (want("x", 3), nrt("n0", *FOUR), True),
        (want("x", 6), nrt("n0", *FOUR), False),
        (want("x", 6, guaranteed=False), nrt("n0", *FOUR), True),
        (want("x", 6), nrt("n0", *FOUR, policy="best-effort"), True),
        (want("x", 6), nrt("n0", *FOUR, policy="none"), True),
        # Restricted: an empty node would need two zones, so two are allowed.
        (want("x", 6), nrt("n0", *FOUR, policy="restricted"), True),
        (want("x", 9), nrt("n0", *FOUR, policy="restricted"), False),
        # Container scope: 3 and 3 fit in one zone each, 6 together do not.
        (want("x", 6, containers=(3, 3)), nrt("n0", *FOUR, scope="container"), True),
        (want("x", 6, containers=(3, 3)), nrt("n0", *FOUR), False),
        (want("x", 9, containers=(3, 3, 3)), nrt("n0", *FOUR, scope="container"), False),
        # Devices are aligned for any pod, CPUs only for a Guaranteed one.
        (want("x", 6, 2, guaranteed=False), nrt("n0", *({"cpu": "4", "gpu": "2"},) * 2), True),
        (want("x", 1, 3, guaranteed=False), nrt("n0", *({"cpu": "4", "gpu": "2"},) * 2), False),
    ],
)
def test_policies(x: Pod, topology: dict[str, Any], expected: bool) -> None:
    assert accepted(cluster([x], topology), x) is expected


def test_restricted_needs_the_width_of_an_empty_node() -> None:
    """3 CPUs fit in one zone of an empty node; 2 and 2 that are left in two zones are not enough."""
    held = [want(f"r{i}", 2, node="n0", zones=[(f"zone-{i}", {"cpu": 2000})]) for i in (0, 1)]
    x = want("x", 3)
    assert not accepted(cluster([*held, x], nrt("n0", *FOUR, policy="restricted")), x)
    assert accepted(cluster([*held, x], nrt("n0", *FOUR, policy="best-effort")), x)


def test_ignore_list() -> None:
    x = want("x", 6, 2)
    zones = ({"cpu": "4", "gpu": "2"},) * 2
    assert not accepted(cluster([x], nrt("n0", *zones)), x)
    assert accepted(cluster([x], nrt("n0", *zones), numa_ignore=frozenset({"cpu"})), x)


def test_in_cycle_accounting_and_prediction() -> None:
    pods = [want(name, 3) for name in ("high", "mid", "low")]
    state = numa.open(cluster(pods, nrt("n0", *FOUR)))
    assert placed(state, pods[0], 0, pipelined=False) == {
        "numaZones": [{"zone": "zone-0", "amount": {"cpu": "3"}}]
    }
    assert placed(state, pods[1], 0, pipelined=False) == {
        "numaZones": [{"zone": "zone-1", "amount": {"cpu": "3"}}]
    }
    mask = state.mask(pods[2], now=True)
    assert mask is not None
    assert list(mask) == [False, True]
    state.remove(pods[0], 0)
    mask = state.mask(pods[2], now=True)
    assert mask is not None
    assert list(mask) == [True, True]


@pytest.mark.parametrize("reconstruct", [True, False])
def test_a_leaving_pod_gives_its_zone_back_later(reconstruct: bool) -> None:
    victim = want("victim", 3, node="n0", zones=[("zone-0", {"cpu": 3000})])
    other = want("other", 3, node="n0", zones=[("zone-1", {"cpu": 3000})])
    x = want("x", 3)
    topology = nrt("n0", *FOUR)
    if not reconstruct:
        for zone in topology["zones"]:
            zone["resources"][0]["available"] = "1"
    state = numa.open(cluster([victim, other, x], topology, numa_reconstruct=reconstruct))
    state.evict(victim)
    now, later = state.mask(x, now=True), state.mask(x, now=False)
    assert now is not None
    assert later is not None
    assert (bool(now[0]), bool(later[0])) == (False, True)
    assert placed(state, x, 0, pipelined=True)["numaZones"][0]["zone"] == "zone-0"


def test_a_victim_returns_to_its_node_only_with_its_zone() -> None:
    """Its eviction is then taken back: it does not restart, so it cannot change the zone."""
    victim = want("victim", 3, node="n0", zones=[("zone-0", {"cpu": 3000})])
    x = want("x", 3)
    state = numa.open(cluster([victim, x], nrt("n0", *FOUR)))
    state.evict(victim)
    before = state.copy()
    state.place(x, 0, pipelined=True)
    mask = state.mask(victim, now=False)
    assert mask is not None
    assert list(mask) == [False, True]
    before.place(victim, 0, pipelined=True)
    assert placed(before, x, 0, pipelined=True)["numaZones"][0]["zone"] == "zone-1"


def test_score_prefers_fewer_zones() -> None:
    x = want("x", 6)
    found = cluster(
        [x],
        nrt("n0", {"cpu": "8"}, {"cpu": "8"}, policy="best-effort"),
        nrt("n1", *FOUR, policy="best-effort"),
    )
    score = numa.open(found).score(x)
    assert score is not None
    assert list(score) == [100, 50, 50]


def test_even_an_empty_node_is_too_narrow() -> None:
    x = want("x", 6)
    found = snapshot([x], ["n0"], raw={"nodeResourceTopologies": [nrt("n0", *FOUR)]}, plugins=PLUGINS)
    state = numa.open(found)
    assert "NUMA" in state.dead_end(x)
    assert "1 node cannot NUMA-align" in state.refusals(x)


def test_unusable_topologies_are_named() -> None:
    x = want("x", 6)
    bad = [nrt("n0"), nrt("gone", *FOUR), nrt("n1", {"cpu": "four"})]
    found = snapshot([x], ["n0", "n1"], raw={"nodeResourceTopologies": bad}, plugins=PLUGINS)
    assert {item.item.split()[1]: item.reason for item in found.set_aside} == {
        "n0": "zones: it has no zones",
        "gone": "metadata.name: node gone does not exist",
        "n1": 'zones[0].resources[0].allocatable: "four" is not a quantity',
    }
    assert numa.open(found).mask(x, now=True) is None


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=2, max_size=2),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=3),
)
def test_masks_and_rows_agree_with_brute_force(
    zones: list[tuple[int, int]], asks: list[tuple[int, int]]
) -> None:
    """single-numa-node: each next pod fits exactly if one zone has all that it needs; the rows allow it."""
    pods = [want(f"x{i}", cpu, gpu) for i, (cpu, gpu) in enumerate(asks)]
    found = cluster(pods, nrt("n0", *({"cpu": str(c), "gpu": str(g)} for c, g in zones)))
    state = numa.open(found)
    rows = list(state.rows(pods, [1] * len(pods), [0]))
    for chosen in product([False, True], repeat=len(pods)):
        trial, left = state.copy(), [list(zone) for zone in zones]
        for which, (cpu, gpu), take in zip(pods, asks, chosen, strict=True):
            if not take:
                continue
            fits = [zone for zone in left if zone[0] >= cpu and zone[1] >= gpu]
            mask = trial.mask(which, now=False)
            assert mask is not None
            assert bool(mask[0]) is bool(fits)
            if not fits:
                break
            fits[0][0] -= cpu
            fits[0][1] -= gpu
            trial.place(which, 0, pipelined=False)
        else:
            for row in rows:
                assert sum(row.entering.get((c, 0), 0) for c, take in enumerate(chosen) if take) <= row.bound


def test_a_pod_takes_no_more_than_it_asks_for_whatever_is_written_on_it() -> None:
    held = [("zone-0", {"cpu": 3000, "gpu": 9000}), ("zone-1", {"cpu": 9000})]
    world = cluster([want("r", 4, node="n0", zones=held)], nrt("n0", {"cpu": "4"}, {"cpu": "4"}))
    # One CPU of zone-0 is left, and three of zone-1.
    assert [accepted(world, want("x", cpu)) for cpu in (3, 4)] == [True, False]


@pytest.mark.parametrize(("cpus", "served"), [(3, True), (5, False)])
def test_a_zone_that_is_over_its_gpus_takes_cpus(cpus: int, served: bool) -> None:
    """The GPU that r holds is not healthy any more."""
    notes = {"kai.scheduler/numa-placement-observed": '[{"zone": "zone-0", "amount": {"nvidia.com/gpu": 1}}]'}
    pods = [tiny.pod("r", "n0", gpus=1, notes=notes), tiny.pod("x", **aligned(cpus))]
    offers = nrt("n0", {"cpu": "4", "gpu": "0"}, {"cpu": "1", "gpu": "1"})
    world = tiny.world([tiny.node(gpus=2)], pods, plugins=("numa",), nodeResourceTopologies=[offers])
    assert placed_pods(solved(world)) == ({"x"} if served else set())
