"""Gangs of which one pod needs a node that another pod would take: volumes and spread decide which."""

from __future__ import annotations

import pytest

from tests.support.devices import (
    STATIC,
    capacity,
    csi_driver,
    on_nodes,
    storage_class,
    volume,
    volume_claim,
    volumes,
)
from tests.support.objects import Object
from tests.support.plans import ALL_RULES, bound, placed, solved
from tests.support.tiny import node, pod, world

PAIR = {"g": {"minMember": 2}}


def zonal(zone: str) -> dict[str, list[Object]]:
    """The volume of claim c is in a zone."""
    return {
        "persistentVolumes": [volume("v", claim="c", nodes=on_nodes("zone", zone))],
        "persistentVolumeClaims": [volume_claim("c", volume="v")],
        "storageClasses": [storage_class("local", STATIC)],
    }


def zones(*gpus: int) -> list[Object]:
    """A node in each zone: a, b, c, d."""
    return [node(f"n{i}", gpus=n, labels={"zone": "abcd"[i]}) for i, n in enumerate(gpus)]


def members(*, second: dict[str, object], **first: object) -> list[Object]:
    """The two pods of gang g."""
    return [pod(f"g-{i}", gpus=1, group="g", **more) for i, more in enumerate((first, second))]  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", ["a", "b", "c"])
def test_a_gang_leaves_the_node_that_a_volume_reaches_to_the_pod_that_has_it(zone: str) -> None:
    gang = members(second={"volumes": volumes("c")})
    plan = solved(world(zones(1, 1, 1), gang, groups=PAIR, **zonal(zone)))
    assert bound(plan)["g-1"] == f"n{'abc'.index(zone)}"


@pytest.mark.parametrize("zone", ["a", "b", "c"])
def test_victims_leave_the_node_that_a_volume_reaches(zone: str) -> None:
    """Of the nodes, only one takes the pod with the volume, and two must be cleared."""
    low = [pod(f"low-{i}", f"n{i}", gpus=1, priority="low") for i in range(3)]
    gang = members(second={"volumes": volumes("c")})
    plan = solved(world(zones(1, 1, 1), low + gang, groups=PAIR, actions="allocate, preempt", **zonal(zone)))
    assert placed(plan) == {"g-0", "g-1"}


@pytest.mark.parametrize("actions", ["allocate, preempt", "allocate, consolidation"])
def test_a_running_pod_whose_volume_is_gone_stops_no_action(actions: str) -> None:
    """It may leave for the gang, but could be nowhere else. Where nothing is lost, the gang has no place."""
    low = [pod(f"low-{i}", f"n{i}", gpus=1, priority="low", volumes=volumes("x")) for i in range(3)]
    lists = zonal("a")
    lists["persistentVolumeClaims"] += [volume_claim("x", volume="gone")]
    gang = members(second={"volumes": volumes("c")})
    plan = solved(
        world([*zones(1, 1, 1), node("n3", gpus=1)], low + gang, groups=PAIR, actions=actions, **lists)
    )
    assert placed(plan) == ({"g-0", "g-1"} if "preempt" in actions else set())


@pytest.mark.parametrize("gpus", [(1, 1, 2), (1, 2, 2), (1, 1, 1, 2)])
def test_a_gang_that_shares_a_new_volume_goes_where_all_of_it_fits(gpus: tuple[int, ...]) -> None:
    claims = {"volumes": volumes("c")}
    made = {"persistentVolumeClaims": [volume_claim("c", storage_class="net")]}
    classes = {"storageClasses": [storage_class("net")]}
    gang = members(second=claims, **claims)
    plan = solved(world(zones(*gpus), gang, groups=PAIR, **made, **classes))
    found = bound(plan)
    assert found.keys() == {"g-0", "g-1"}
    assert len(set(found.values())) == 1


@pytest.mark.parametrize(
    ("mode", "starts"), [("ReadWriteOnce", False), ("ReadWriteMany", True), ("ReadOnlyMany", True)]
)
def test_a_new_volume_for_many_serves_several_nodes(mode: str, starts: bool) -> None:
    """Each node has one GPU. The driver of a volume for one node may make it out of reach of the other."""
    claims = {"volumes": volumes("c")}
    made = {"persistentVolumeClaims": [volume_claim("c", storage_class="net", modes=(mode,))]}
    gang = members(second=claims, **claims)
    plan = solved(world(zones(1, 1), gang, groups=PAIR, **made, storageClasses=[storage_class("net")]))
    assert bound(plan) == ({"g-0": "n0", "g-1": "n1"} if starts else {})


@pytest.mark.parametrize(("gpus", "where"), [((1, 1), None), ((1, 2), "n1")])
def test_a_new_volume_for_many_stays_in_the_capacity_that_it_is_made_from(
    gpus: tuple[int, ...], where: str | None
) -> None:
    """Each zone has capacity for it; only where one zone has both GPUs do all pods reach it."""
    claims = {"volumes": volumes("c")}
    made = {
        "persistentVolumeClaims": [volume_claim("c", storage_class="net", modes=("ReadWriteMany",))],
        "storageClasses": [storage_class("net")],
        "csiDrivers": [csi_driver()],
        "csiStorageCapacities": [capacity(zone, "9Gi", "zone", zone) for zone in "ab"],
    }
    plan = solved(world(zones(*gpus), members(second=claims, **claims), groups=PAIR, **made))
    assert bound(plan) == ({"g-0": where, "g-1": where} if where else {})


@pytest.mark.parametrize("where", [0, 1, 29])
def test_a_gang_leaves_the_node_with_storage_to_the_pod_that_needs_it(where: int) -> None:
    """Of thirty nodes with a GPU, the driver has capacity for one."""
    nodes = [node(f"n{i}", gpus=1, labels={"zone": str(i)}) for i in range(30)]
    made = {
        "persistentVolumeClaims": [volume_claim("c", storage_class="net")],
        "storageClasses": [storage_class("net")],
        "csiDrivers": [csi_driver()],
        "csiStorageCapacities": [capacity("one", "9Gi", "zone", str(where))],
    }
    gang = members(second={"volumes": volumes("c")})
    assert bound(solved(world(nodes, gang, groups=PAIR, **made)))["g-1"] == f"n{where}"


@pytest.mark.parametrize("most", range(4))
def test_a_gang_has_other_places_where_an_answer_of_the_model_has_no_storage(most: int) -> None:
    """Models do not add up what a shared claim and another one take; one zone has capacity for both."""
    zone = "abcd"[most]
    made = {
        "persistentVolumeClaims": [volume_claim(name, "5Gi", storage_class="net") for name in "cd"],
        "storageClasses": [storage_class("net")],
        "csiDrivers": [csi_driver()],
        "csiStorageCapacities": [capacity(z, "12Gi" if z == zone else "6Gi", "zone", z) for z in "abcd"],
    }
    gang = members(second={"volumes": volumes("c", "d")}, volumes=volumes("c"))
    plan = solved(world(zones(2, 2, 2, 2), gang, groups=PAIR, **made))
    assert bound(plan) == {"g-0": f"n{most}", "g-1": f"n{most}"}


def test_a_gang_enters_a_domain_in_the_order_that_keeps_the_skew() -> None:
    """Zone a has a pod. The pod with the volume may join it only after the other one entered zone b."""
    even: dict[str, object] = {
        "labels": {"app": "x"},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "x"}},
            }
        ],
    }
    there = pod("x", "n0", labels={"app": "x"})
    gang = members(second=even, volumes=volumes("c"), **even)
    plan = solved(world(zones(1, 1), [there, *gang], groups=PAIR, **zonal("a")), ALL_RULES)
    assert bound(plan) == {"g-0": "n0", "g-1": "n1"}
