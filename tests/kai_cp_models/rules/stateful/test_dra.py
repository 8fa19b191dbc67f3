"""DRA: what the devices of a node can serve, table by table and against a brute-force oracle."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp.decisions import rfc3339
from kai_cp_models.check import dra as check
from kai_cp_models.check.planned_cluster import PlannedCluster
from kai_cp_models.extras import CLAIM_MILLI_GPUS
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import (
    BASE_DIMENSIONS,
    EXTENDED_RESOURCES,
    ClaimRef,
    GpuKind,
    GpuRequest,
    Pod,
    PodStatus,
)
from kai_cp_models.records import judging
from kai_cp_models.records.judging import JUDGING, Judging, Paid
from kai_cp_models.rules.stateful import dra, enriched
from kai_cp_models.rules.stateful.dra import cel
from kai_cp_models.rules.stateful.dra.catalog import CATALOG
from kai_cp_models.rules.stateful.dra.state import DraState
from kai_cp_models.rules.stateful.protocol import Row
from kai_cp_models.settings import Limits, OptionalRules
from kai_cp_models.snapshot import Node, Snapshot
from tests.kai_cp_models.rules.stateful.build import placed, pod, snapshot, spec
from tests.support import devices, tiny
from tests.support.objects import NOW
from tests.support.plans import solved
from tests.support.rule_objects import promised

DRIVER = "gpu.example.com"
Raw = dict[str, Any]


def device(name: str, **fields: Any) -> Raw:
    return {"name": name, **fields}


def attributes(**values: Any) -> Raw:
    kinds = {bool: "bool", int: "int", str: "string"}
    return {name: {kinds[type(value)]: value} for name, value in values.items()}


def slice_of(node: str, *devices: Raw, driver: str = DRIVER, **fields: Any) -> Raw:
    place = {} if "allNodes" in fields or "nodeSelector" in fields else {"nodeName": node}
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": pool, "devices": list(devices), **place, **fields}
    return {"metadata": {"name": f"slice-{node}-{driver}"}, "spec": spec}


def klass(name: str = "gpu", *selectors: str, **fields: Any) -> Raw:
    return {
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": s}} for s in selectors], **fields},
    }


def exact(count: int = 1, name: str = "r", device_class: str = "gpu", **fields: Any) -> Raw:
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count, **fields}}


def claim(
    name: str, *requests: Raw, owner: str = "", queue: str = "q", constraints: Any = (), **status: Any
) -> Raw:
    owners = [{"kind": "Pod", "name": owner, "uid": f"uid-{owner}", "controller": True}] if owner else []
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "ownerReferences": owners,
                     "labels": {"kai.scheduler/queue": queue}},
        "spec": {"devices": {"requests": list(requests), "constraints": list(constraints)}},
        "status": status,
    }  # fmt: skip


def held(node: str, *names: str) -> Raw:
    results = [{"request": "r", "driver": DRIVER, "pool": node, "device": name} for name in names]
    only = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": only}]},
    }


def user(name: str, *claims: str, node: str | None = None, **fields: Any) -> Pod:
    refs = tuple(ClaimRef(f"c{i}", c) for i, c in enumerate(claims))
    return pod(name, node, wants=spec(claims=refs), **fields)


def cluster(pods: list[Pod], slices: list[Raw], claims: list[Raw], *, classes: list[Raw] | None = None,
            nodes: tuple[str, ...] = ("n0", "n1"), gone: tuple[str, ...] = ()) -> Snapshot:  # fmt: skip
    raw = {"resourceSlices": slices, "resourceClaims": claims, "deviceClasses": classes or [klass()]}
    return snapshot(pods, nodes, raw=raw, gone=gone)


def mask(found: Snapshot, which: Pod, *, now: bool = True) -> list[bool]:
    result = dra.open(found).mask(which, now=now)
    assert result is not None
    return [bool(x) for x in result]


TWO = [slice_of("n0", device("a"), device("b")), slice_of("n1", device("a"))]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (exact(1), [True, True]),
        (exact(2), [True, False]),
        (exact(3), [False, False]),
        (exact(allocationMode="All"), [True, True]),
        (exact(selectors=[{"cel": {"expression": "device.driver == 'x'"}}]), [False, False]),
        # v1beta1: the fields stand beside the name.
        ({"name": "r", "deviceClassName": "gpu", "count": 2}, [True, False]),
        ({"name": "r", "firstAvailable": [{"name": "two", "deviceClassName": "gpu", "count": 2},
                                          {"name": "one", "deviceClassName": "gpu"}]}, [True, True]),
    ],
)  # fmt: skip
def test_counts(request_: Raw, expected: list[bool]) -> None:
    x = user("x", "c")
    assert mask(cluster([x], TWO, [claim("c", request_)]), x) == expected


def test_first_available_prefers_the_first_that_fits() -> None:
    x = user("x", "c")
    alternatives = [
        {"name": "two", "deviceClassName": "gpu", "count": 2},
        {"name": "one", "deviceClassName": "gpu"},
    ]
    found = cluster([x], TWO, [claim("c", {"name": "r", "firstAvailable": alternatives})])
    for node, names in ((0, ["r/two", "r/two"]), (1, ["r/one"])):
        details = placed(dra.open(found), x, node, pipelined=False)
        results = details["resourceClaimAllocations"][0]["allocation"]["devices"]["results"]
        assert [result["request"] for result in results] == names


def test_decision_names_the_devices_for_the_binder() -> None:
    x = user("x", "c")
    found = cluster([x], TWO, [claim("c", exact(2))])
    assert placed(dra.open(found), x, 0, pipelined=False) == {
        "resourceClaimAllocations": [
            {
                "name": "c0",
                "allocation": {
                    "devices": {
                        "results": [
                            {"request": "r", "driver": DRIVER, "pool": "n0", "device": "a"},
                            {"request": "r", "driver": DRIVER, "pool": "n0", "device": "b"},
                        ]
                    },
                    "nodeSelector": {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
                        ]
                    },
                },
            }
        ]
    }


def test_allocated_claim_pins_the_pod_and_is_shared() -> None:
    runs, x, y = user("runs", "c", node="n0"), user("x", "c"), user("y", "d")
    claims = [
        claim("c", exact(2), allocation=held("n0", "a", "b"), reservedFor=[{"uid": "uid-runs"}]),
        claim("d", exact()),
    ]
    found = cluster([runs, x, y], TWO, claims)
    assert mask(found, x) == [True, False]
    assert mask(found, y) == [False, True]


def test_devices_of_a_leaving_pod_are_promised_not_free() -> None:
    runs, x = user("runs", "c", node="n0"), user("x", "d")
    found = cluster(
        [runs, x], TWO, [claim("c", exact(2), allocation=held("n0", "a", "b")), claim("d", exact(2))]
    )
    state = dra.open(found)
    before = state.copy()
    state.evict(runs)
    now, later = state.mask(x, now=True), state.mask(x, now=False)
    assert now is not None
    assert later is not None
    assert (now.tolist(), later.tolist()) == ([False, False], [True, False])
    details = placed(state, x, 0, pipelined=True)
    assert len(details["resourceClaimAllocations"][0]["allocation"]["devices"]["results"]) == 2
    # The evicted pod's own claim may be allocated anew, but not with the promised devices.
    assert mask_of(state, runs) == [False, False]
    state.remove(x, 0)
    assert mask_of(state, runs) == [True, False]
    state.place(runs, 0, pipelined=True)
    assert mask_of(state, x) == [False, False]
    state.remove(runs, 0)
    state.unevict(runs)
    assert mask_of(state, x) == mask_of(before, x) == [False, False]


@pytest.mark.parametrize(
    ("users", "later"),
    [(["v"], [True, True]), (["v", "w"], [False, True]), (["w"], [False, True]), ([], [False, True])],
)
def test_devices_of_a_pod_that_is_gone_are_promised_not_free(users: list[str], later: list[bool]) -> None:
    """The claim outlives the pod v for a moment; w is a pod that the snapshot does not have."""
    x = user("x", "d")
    names = [{"resource": "pods", "name": name, "uid": f"uid-{name}"} for name in users]
    claims = [claim("c", exact(2), allocation=held("n0", "a", "b"), reservedFor=names), claim("d", exact())]
    found = cluster([x], TWO, claims, gone=("uid-v",))
    assert mask(found, x, now=True) == [False, True]
    assert mask(found, x, now=False) == later


def test_a_claim_whose_user_is_gone_is_shared_as_it_is_or_allocated_anew() -> None:
    x, names = user("x", "c"), [{"resource": "pods", "name": "v", "uid": "uid-v"}]
    shared = claim("c", exact(), allocation=held("n0", "b"), reservedFor=names)
    found = cluster([x], TWO, [shared], gone=("uid-v",))
    assert (mask(found, x, now=True), mask(found, x, now=False)) == ([True, False], [True, True])
    for node, pipelined, device_ in ((0, False, "b"), (0, True, "b"), (1, True, "a")):
        given = placed(dra.open(found), x, node, pipelined=pipelined)["resourceClaimAllocations"][0]
        assert given["allocation"]["devices"]["results"][0]["device"] == device_


@pytest.mark.parametrize("users", [("v1",), ()])
def test_the_trigger_waits_for_the_devices_of_its_victim(users: tuple[str, ...]) -> None:
    """v1 was evicted for t, which n1 is promised to; until its claim is gone, no second pod is evicted."""
    c1 = devices.claim("c1", devices.exact(), users=users, held=devices.allocation("n1", "d"))
    if not users:
        c1["metadata"]["deletionTimestamp"] = rfc3339(NOW.timestamp())
    c2 = devices.claim("c2", devices.exact(), users=("v2",), held=devices.allocation("n2", "d"))
    t = tiny.pod("t", priority="build", status={"nominatedNodeName": "n1"},
                 resourceClaims=devices.claims("ct"))  # fmt: skip
    found = tiny.world(
        [tiny.node("n1"), tiny.node("n2")],
        [tiny.pod("v2", "n2", resourceClaims=devices.claims("c2")), t],
        actions="allocate, reclaim, preempt",
        plugins=["dynamicresources"],
        resourceClaims=[c1, c2, devices.claim("ct", devices.exact())],
        resourceSlices=[devices.slice_of(n, devices.device("d")) for n in ("n1", "n2")],
        deviceClasses=[devices.device_class()],
    )
    made = solved(found).decisions
    assert [(one.kind, one.pod.name, one.node) for one in made] == [("Nominate", "t", "n1")]


def test_a_victim_returns_to_its_node_only_with_its_devices() -> None:
    """Its eviction is then taken back, so it cannot change to another device of the node; what came there in
    this cycle can."""
    runs, x, y = user("runs", "c", node="n0"), user("x", "d"), user("y", "e")
    claims = [claim("c", exact(), allocation=held("n0", "a")), claim("d", exact()), claim("e", exact())]
    state = dra.open(cluster([runs, x, y], TWO, claims))

    def given(which: Pod) -> str:
        allocation = state.details(which, 0)["resourceClaimAllocations"][0]["allocation"]
        name: str = allocation["devices"]["results"][0]["device"]
        return name

    state.evict(runs)
    state.place(x, 0, pipelined=True)
    assert (given(x), mask_of(state, runs)) == ("a", [True, True])
    state.place(y, 0, pipelined=True)
    assert (given(y), mask_of(state, runs)) == ("b", [False, True])
    state.remove(y, 0)
    state.unevict(runs)
    assert (given(x), mask_of(state, y)) == ("b", [False, True])


def test_two_queues_stop_one_pod_whose_devices_are_enough_for_both() -> None:
    """Each trigger has a right to a pod of its own queue only. w leaves two devices, so v comes home."""
    claims = [
        devices.claim("cv", devices.exact(), users=("v",), held=devices.allocation("n", "a")),
        devices.claim("cw", devices.exact(2), users=("w",), held=devices.allocation("n", "b", "c")),
        devices.claim("c1", devices.exact()),
        devices.claim("c2", devices.exact()),
    ]
    pods = [
        tiny.pod("v", "n", queue="A", resourceClaims=devices.claims("cv")),
        tiny.pod("w", "n", queue="B", resourceClaims=devices.claims("cw")),
        tiny.pod("t1", queue="A", priority="build-preemptible", resourceClaims=devices.claims("c1")),
        tiny.pod("t2", queue="B", priority="build-preemptible", resourceClaims=devices.claims("c2")),
    ]
    found = tiny.world(
        [tiny.node("n")],
        pods,
        queues=[tiny.queue("A"), tiny.queue("B")],
        actions="allocate, reclaim, preempt",
        plugins=["dynamicresources"],
        resourceClaims=claims,
        resourceSlices=[devices.slice_of("n", *map(devices.device, "abc"))],
        deviceClasses=[devices.device_class()],
    )
    made = solved(found).decisions
    assert [(one.kind, one.pod.name) for one in made] == [
        ("Evict", "w"),
        ("Nominate", "t1"),
        ("Nominate", "t2"),
    ]


def test_a_victim_whose_claim_is_gone_returns_to_its_node_alone() -> None:
    """No list says which devices it holds; it takes none that others could get."""
    runs = user("runs", "gone", node="n0")
    state = dra.open(cluster([runs], TWO, [claim("other", exact())]))
    state.evict(runs)
    assert mask_of(state, runs) == [True, False]
    assert placed(state, runs, 0, pipelined=True) == {}


def test_a_class_that_is_gone_has_no_device_free() -> None:
    """It would take two devices of the other class, which no node has; the words name the first."""
    alternatives = [
        {"name": "fast", "deviceClassName": "gone"},
        {"name": "slow", "deviceClassName": "gpu", "count": 2},
    ]
    x, y = user("x", "c"), user("y", "d", node="n0")
    claims = [claim("c", {"name": "r", "firstAvailable": alternatives})]
    claims += [claim("d", exact(), allocation=held("n0", "a"))]
    words = "2 nodes cannot allocate all claims: claim c needs 1 of class gone; no node has one free"
    assert dra.open(cluster([x, y], TWO, claims)).refusals(x) == words


def test_requests_that_are_too_many_together_are_told_by_their_sum() -> None:
    """A node has two devices, and three requests ask for one each; two that must be alike have no choice."""
    lacking = "2 nodes cannot allocate all claims: "
    three = claim("c", *(exact(name=name) for name in "abc"))
    state = dra.open(cluster([user("x", "c")], TWO, [three]))
    words = "claim c needs 3 of class gpu; no node has more than 2 free"
    assert state.refusals(user("x", "c")) == lacking + words
    alike = {"requests": ["a", "b"], "matchAttribute": "gpu.example.com/nothing"}
    two = claim("c", *(exact(name=name) for name in "ab"), constraints=[alike])
    state = dra.open(cluster([user("x", "c")], TWO, [two]))
    words = "no choice of devices satisfies all that its claims ask for"
    assert state.refusals(user("x", "c")) == lacking + words


def mask_of(state: Any, which: Pod) -> list[bool]:
    return [bool(x) for x in state.mask(which, now=False)]


def test_shared_open_claim_is_allocated_once() -> None:
    x, y = user("x", "c"), user("y", "c")
    state = dra.open(cluster([x, y], TWO, [claim("c", exact())]))
    state.place(x, 1, pipelined=False)
    assert mask_of(state, y) == [False, True]
    state.place(y, 1, pipelined=False)
    state.remove(x, 1)
    assert mask_of(state, x) == [False, True]
    state.remove(y, 1)
    assert mask_of(state, x) == [True, True]


def test_sharers_of_a_claim_move_together() -> None:
    """Once one of them has a place elsewhere with the claim, the others cannot stay."""
    x, y = user("x", "c", node="n0"), user("y", "c", node="n0")
    state = dra.open(cluster([x, y], TWO, [claim("c", exact(), allocation=held("n0", "a"))]))
    state.evict(x)
    assert mask_of(state, x) == [True, False]
    state.evict(y)
    assert mask_of(state, x) == [True, True]
    state.place(x, 1, pipelined=True)
    assert mask_of(state, y) == [False, True]
    state.remove(x, 1)
    state.place(x, 0, pipelined=True)
    assert mask_of(state, y) == [True, False]


def ways(*requests: Raw) -> Raw:
    return {"name": "w", "firstAvailable": [{"name": r["name"], **r["exactly"]} for r in requests]}


@pytest.mark.parametrize(
    ("requests", "fits"),
    [
        ([exact(allocationMode="All")], [False, True]),
        ([exact(20), exact(12, "s")], [True, True]),
        ([exact(20), exact(13, "s")], [False, False]),
        ([ways(exact(allocationMode="All"), exact(1, "s"))], [True, True]),
        ([exact(1), exact(name="s", allocationMode="All", adminAccess=True)], [False, False]),
    ],
)
def test_a_claim_has_at_most_32_devices(requests: list[Raw], fits: list[bool]) -> None:
    """One node has 33 devices, the other has 32."""
    slices = [slice_of(node, *(device(f"d{i}") for i in range(n))) for node, n in (("n0", 33), ("n1", 32))]
    x = user("x", "c")
    assert mask(cluster([x], slices, [claim("c", *requests)]), x) == fits


def test_a_claim_of_too_many_devices_is_told_so() -> None:
    slices, x = [slice_of("n0", *(device(f"d{i}") for i in range(40)))], user("x", "c")
    every = dra.open(cluster([x], slices, [claim("c", exact(allocationMode="All"))], nodes=("n0",)))
    words = "1 node cannot allocate all claims: claim c needs 40 devices on 1 node, at most 32 are allowed"
    assert every.refusals(x) == words
    more = dra.open(cluster([x], slices, [claim("c", exact(20), exact(13, "s"))], nodes=("n0",)))
    assert more.dead_end(x) == "ResourceClaim ns/c: it asks for 33 devices, at most 32 are allowed"


@pytest.mark.parametrize("gone", [(), ("u0",)])
@pytest.mark.parametrize(("reserved", "fits"), [(255, True), (256, False)])
def test_a_claim_has_at_most_256_users(reserved: int, fits: bool, gone: tuple[str, ...]) -> None:
    """One that is gone counts until it is struck off the list."""
    x = user("x", "c")
    users = [{"resource": "pods", "name": f"u{i}", "uid": f"u{i}"} for i in range(reserved)]
    found = cluster([x], TWO, [claim("c", exact(), reservedFor=users)], gone=gone)
    assert [any(mask(found, x, now=now)) for now in (True, False)] == [fits, fits]


@pytest.mark.parametrize(
    ("made", "ref", "words"),
    [
        (None, ClaimRef("c0", "c"), "ResourceClaim ns/c does not exist"),
        (None, ClaimRef("c0", "", "t"), "claim of template t is not created yet"),
        (claim("c", exact(), queue="other"), ClaimRef("c0", "c"), "wrong queue label (expected queue: q"),
        (claim("c", exact(), owner="y"), ClaimRef("c0", "c", "t"), "not made for pod ns/x"),
        (claim("c", exact(device_class="none")), ClaimRef("c0", "c"), "device class none does not exist"),
        (claim("c", exact(3)), ClaimRef("c0", "c"), "no node has 3 devices of class gpu"),
    ],
)
def test_dead_ends(made: Raw | None, ref: ClaimRef, words: str) -> None:
    x = pod("x", wants=spec(claims=(ref,)))
    found = cluster([x], TWO, [made] if made else [])
    assert words in dra.open(found).dead_end(x)
    assert not any(mask(found, x))


def test_queue_label_concerns_shared_gpu_claims_only() -> None:
    x, y = user("x", "c"), pod("y", wants=spec(claims=(ClaimRef("c0", "d", "t"),)))
    claims = [
        claim("c", exact(device_class="nic"), queue="other"),
        claim("d", exact(), owner="y", queue="other"),
    ]
    found = cluster([x, y], TWO, claims, classes=[klass(), klass("nic")])
    assert mask(found, x) == mask(found, y) == [True, True]


def test_bad_objects_are_named_and_the_rest_is_used() -> None:
    x, y = user("x", "bad"), user("y", "good")
    slices = [*TWO, slice_of("gone", device("a")), slice_of("n1", device("z"), driver="half")]
    slices[-1]["spec"]["pool"]["resourceSliceCount"] = 2
    classes = [klass(), klass("broken", "device.driver ==")]
    claims = [
        claim("bad", exact(device_class="broken")),
        claim("good", exact()),
        claim("lost", exact(device_class="none")),
    ]
    found = cluster([x, y], slices, claims, classes=classes)
    assert mask(found, y) == [True, True]
    assert not any(mask(found, x))
    named = {item.item: item.reason for item in enriched(found).set_aside}
    assert set(named) == {
        "DeviceClass broken", "ResourceClaim ns/bad", "ResourceClaim ns/lost",
        "ResourceSlice slice-gone-gpu.example.com", "ResourcePool half/n1",
    }  # fmt: skip
    assert "cannot parse CEL" in named["DeviceClass broken"]


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ({"matchAttribute": f"{DRIVER}/numa"}, [True, False]),
        ({"distinctAttribute": f"{DRIVER}/numa"}, [True, True]),
    ],
)
def test_constraints(constraint: Raw, expected: list[bool]) -> None:
    slices = [
        slice_of("n0", *(device(f"d{i}", attributes=attributes(numa=i // 2)) for i in range(4))),
        slice_of("n1", *(device(f"d{i}", attributes=attributes(numa=i)) for i in range(2))),
    ]
    x = user("x", "c")
    assert mask(cluster([x], slices, [claim("c", exact(2), constraints=[constraint])]), x) == expected


def test_admin_access_uses_held_devices() -> None:
    runs, x = user("runs", "c", node="n1"), user("x", "d")
    claims = [
        claim("c", exact(), allocation=held("n1", "a")),
        claim("d", exact(1, adminAccess=True, allocationMode="All")),
    ]
    found = cluster([runs, x], TWO, claims)
    assert mask(found, x) == [True, True]
    state = dra.open(found)
    state.place(x, 0, pipelined=False)
    assert mask_of(state, replace(x, key=x.key._replace(name="other"))) == [True, False]


def test_device_taints_need_a_toleration() -> None:
    slices = [
        slice_of("n0", device("a", taints=[{"key": "sick", "effect": "NoSchedule"}])),
        slice_of("n1", device("a")),
    ]
    x, y = user("x", "c"), user("y", "d")
    tolerant = exact(tolerations=[{"key": "sick", "operator": "Exists"}])
    found = cluster([x, y], slices, [claim("c", exact()), claim("d", tolerant)])
    assert mask(found, x) == [False, True]
    assert mask(found, y) == [True, True]


def test_consumable_capacity() -> None:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    nic = device(
        "nic", allowMultipleAllocations=True, capacity={"mem": {"value": "4Gi", "requestPolicy": policy}}
    )
    pods = [user(f"x{i}", f"c{i}") for i in range(3)]
    ask = exact(capacity={"requests": {"mem": "1500Mi"}})
    state = dra.open(cluster(pods, [slice_of("n0", nic)], [claim(f"c{i}", ask) for i in range(3)]))
    for which in pods[:2]:
        details = placed(state, which, 0, pipelined=False)
        (result,) = details["resourceClaimAllocations"][0]["allocation"]["devices"]["results"]
        assert result["consumedCapacity"] == {"mem": "2Gi"}
        assert result["shareID"]
    assert mask_of(state, pods[2]) == [False, False]


def test_shared_counters_of_partitions() -> None:
    counters = [{"name": "gpu0", "counters": {"mem": {"value": "80Gi"}}}]

    def part(name: str, size: str) -> Raw:
        draws = [{"counterSet": "gpu0", "counters": {"mem": {"value": size}}}]
        return device(name, consumesCounters=draws, attributes=attributes(profile=size))

    parts = [part("whole", "80Gi"), part("half0", "40Gi"), part("half1", "40Gi")]
    pick = {
        size: [{"cel": {"expression": f'device.attributes["{DRIVER}"].profile == "{size}"'}}]
        for size in ("80Gi", "40Gi")
    }
    pods = [user("h0", "c0"), user("h1", "c1"), user("w", "c2")]
    claims = [claim("c0", exact(selectors=pick["40Gi"])), claim("c1", exact(selectors=pick["40Gi"])),
              claim("c2", exact(selectors=pick["80Gi"]))]  # fmt: skip
    state = dra.open(cluster(pods, [slice_of("n0", *parts, sharedCounters=counters)], claims))
    assert mask_of(state, pods[2]) == [True, False]
    state.place(pods[0], 0, pipelined=False)
    assert mask_of(state, pods[1]) == [True, False]
    assert mask_of(state, pods[2]) == [False, False]


def test_devices_of_several_nodes() -> None:
    selector = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    }
    slices = [
        slice_of("far", device("a"), nodeSelector=selector),
        slice_of("all", device("b"), driver="x", allNodes=True),
    ]
    pods = [user("x", "c"), user("y", "d"), user("z", "e")]
    only = exact(selectors=[{"cel": {"expression": f"device.driver == '{DRIVER}'"}}])
    state = dra.open(cluster(pods, slices, [claim("c", only), claim("d", exact()), claim("e", exact())]))
    assert mask_of(state, pods[0]) == [False, True]
    assert mask_of(state, pods[1]) == [True, True]
    details = placed(state, pods[1], 0, pipelined=False)
    assert "nodeSelector" not in details["resourceClaimAllocations"][0]["allocation"]
    assert mask_of(state, pods[2]) == [False, True]


def test_extended_resource_is_served_by_its_class() -> None:
    x = pod("x", wants=spec((1000, 0, 0, 1, 2000)))
    nodes = [
        Node("n0", (64_000, 2**40, 0, 110, 0)),
        Node("n1", (64_000, 2**40, 0, 110, 4000)),
        Node("n2", (64_000, 2**40, 0, 110, 0)),
    ]
    raw = {"resourceSlices": TWO[:1], "deviceClasses": [klass("acc", extendedResourceName="example.com/acc")]}
    found = snapshot([x], nodes, raw=raw, dimensions=(*BASE_DIMENSIONS, "example.com/acc"))
    assert [node.allocatable[4] for node in enriched(found).nodes] == [2000, 4000, 0]
    found = enriched(found)
    # n1 has a device plugin, n0 two devices, n2 nothing.
    assert mask(found, x) == [True, True, False]
    details = placed(dra.open(found), x, 0, pipelined=False)["extendedResourceClaimAllocation"]
    assert len(details["allocation"]["devices"]["results"]) == 2
    assert details["containerMappings"] == [{"resourceName": "example.com/acc", "requestName": "request-0"}]
    assert placed(dra.open(found), x, 1, pipelined=False) == {}


@pytest.mark.parametrize(("count", "fits"), [(32, True), (33, False)])
def test_an_extended_resource_is_at_most_32_devices(count: int, fits: bool) -> None:
    x, slices = (
        pod("x", wants=spec((1000, 0, 0, 1, count * 1000))),
        slice_of("n0", *map(device, map(str, range(40)))),
    )
    raw = {
        "resourceSlices": [slices],
        "deviceClasses": [klass("acc", extendedResourceName="example.com/acc")],
    }
    node = Node("n0", (64_000, 2**40, 0, 110, 0))
    found = enriched(snapshot([x], [node], raw=raw, dimensions=(*BASE_DIMENSIONS, "example.com/acc")))
    assert mask(found, x) == [fits]


def test_promised_extended_resources_are_in_use() -> None:
    wants = spec((1000, 0, 0, 1, 1000))
    promise = promised(**{EXTENDED_RESOURCES: held("n0", "a")})
    binding = pod("binding", "n0", wants=wants, status=PodStatus.BINDING, claim_allocations=promise)
    x = pod("x", wants=spec((1000, 0, 0, 1, 2000)))
    node = Node("n0", (64_000, 2**40, 0, 110, 0))
    raw = {"resourceSlices": TWO[:1], "deviceClasses": [klass("acc", extendedResourceName="example.com/acc")]}
    found = enriched(
        snapshot([binding, x], [node], raw=raw, dimensions=(*BASE_DIMENSIONS, "example.com/acc"))
    )
    state = dra.open(found)
    assert mask_of(state, x) == [False]
    assert [dict(row.leaving) for row in state.rows([x], [1], [0])] == [{binding.key: 1}]
    state.evict(binding)
    assert mask_of(state, x) == [True]


def test_whole_gpus_do_not_take_dra_devices() -> None:
    x = pod("x", wants=spec(gpu=GpuRequest(GpuKind.REGULAR, 1)))
    nodes = [Node("n0", (64_000, 2**40, 2000, 110), dra_gpus=2), Node("n1", (64_000, 2**40, 1000, 110))]
    found = snapshot([x], nodes, raw={"resourceSlices": TWO[:1], "deviceClasses": [klass()]})
    assert mask(found, x) == [False, True]


def test_whole_gpus_share_what_a_device_plugin_serves_beside_devices() -> None:
    """Of three GPUs two are devices; y has the third on n0, and leaves n2."""
    one = GpuRequest(GpuKind.REGULAR, 1)
    x = pod("x", wants=spec((1000, 0, 1000, 1), gpu=one))
    y, z = (
        pod("y", "n0", wants=spec((1000, 0, 1000, 1), gpu=one)),
        pod("z", "n2", wants=spec((1000, 0, 1000, 1), gpu=one)),
    )
    nodes = [Node(f"n{i}", (64_000, 2**40, 3000, 110), dra_gpus=2) for i in range(3)]
    found = snapshot([x, y, z], nodes, raw={"resourceSlices": TWO[:1], "deviceClasses": [klass()]})
    state = dra.open(found)
    state.evict(z)
    assert mask_of(state, x) == [False, True, True]
    gone = Decision("Evict", z.key, z.group, "n2", "preempt")
    for node, accepted in zip(nodes, (False, True, True), strict=True):
        at = Decision("Nominate", x.key, x.group, node.name, "preempt")
        faults = list(check.broken(PlannedCluster(found, Plan((gone, at)))))
        assert [one.pods for one in faults] == ([] if accepted else [(x.key,)])


def test_claims_count_as_gpus_by_class_name() -> None:
    pods = [user("a", "two"), user("b", "all"), user("c", "nic"), user("d", "first"), user("e", "two", "all")]
    claims = [
        claim("two", exact(2)), claim("all", exact(allocationMode="All")),
        claim("nic", exact(3, device_class="nic")),
        claim("first", {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]}),
    ]  # fmt: skip
    counted = enriched(cluster(pods, TWO, claims)).extras[CLAIM_MILLI_GPUS]
    assert {key.name: value for key, value in counted.items()} == {"a": 2000, "b": 1000, "e": 3000}


def test_pods_with_claims_of_their_own_are_one_class() -> None:
    pods = [pod(f"p{i}", wants=spec(claims=(ClaimRef("c0", f"c{i}", "t"),))) for i in range(3)]
    pods += [user("x", "shared"), user("y", "shared")]
    claims = [claim(f"c{i}", exact(1 + i // 2), owner=f"p{i}") for i in range(3)] + [claim("shared", exact())]
    found = enriched(cluster(pods, TWO, claims))
    specs = [which.spec for which in found.pods]
    assert specs[0] is specs[1]
    assert specs[3] is specs[4]
    assert len({id(each) for each in specs}) == 3
    state = dra.open(found)
    for which, place in zip(found.pods, (0, 0), strict=False):
        (written,) = placed(state, which, place, pipelined=False)["resourceClaimAllocations"]
        assert written["name"] == "c0"
    assert mask_of(state, found.pods[2]) == [False, False]


def test_bind_request_promises_its_devices() -> None:
    binding = user(
        "binding", "c", node="n1", status=PodStatus.BINDING, claim_allocations=promised(c0=held("n1", "a"))
    )
    x = user("x", "d")
    assert mask(cluster([binding, x], TWO, [claim("c", exact()), claim("d", exact())]), x) == [True, False]


def test_inactive_without_objects() -> None:
    plain = snapshot([pod("x")])
    assert not dra.active(plain, OptionalRules(topology_spread=False, pod_disruption_budgets=False))


KINDS = st.lists(st.sampled_from("ab"), min_size=0, max_size=4)
ASKS = st.lists(st.tuples(st.sampled_from(["a", "b", "any"]), st.integers(1, 2)), min_size=1, max_size=3)


@settings(max_examples=80, deadline=None)
@given(KINDS, KINDS, ASKS, st.booleans())
def test_search_agrees_with_brute_force(
    first: list[str], second: list[str], asks: list[tuple[str, int]], same: bool
) -> None:
    """A node serves the requests exactly if an assignment of distinct devices does."""
    slices = [
        slice_of(
            f"n{n}", *(device(f"d{i}", attributes=attributes(kind=kind)) for i, kind in enumerate(kinds))
        )
        for n, kinds in enumerate((first, second))
    ]
    expression = {k: f'device.attributes["{DRIVER}"].kind == "{k}"' for k in "ab"} | {"any": "true"}
    requests = [
        exact(n, f"r{i}", selectors=[{"cel": {"expression": expression[k]}}]) for i, (k, n) in enumerate(asks)
    ]
    constraints = [{"matchAttribute": f"{DRIVER}/kind"}] if same else []
    x = user("x", "c")
    found = cluster([x], slices, [claim("c", *requests, constraints=constraints)])
    wanted = [k for k, n in asks for _ in range(n)]

    def possible(kinds: list[str]) -> bool:
        return any(
            all(w in ("any", k) for w, k in zip(wanted, chosen, strict=True))
            and (not same or len(set(chosen)) == 1)
            for chosen in permutations(kinds, len(wanted))
        )

    assert mask(found, x) == [possible(first), possible(second)]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "any"]), st.integers(1, 2)), min_size=1, max_size=3),
    KINDS,
    KINDS,
)
def test_every_realised_placement_satisfies_the_rows(
    asks: list[tuple[str, int]], first: list[str], second: list[str]
) -> None:
    slices = [
        slice_of(
            f"n{n}", *(device(f"d{i}", attributes=attributes(kind=kind)) for i, kind in enumerate(kinds))
        )
        for n, kinds in enumerate((first, second))
    ]
    expression = {"a": f'device.attributes["{DRIVER}"].kind == "a"', "any": "true"}
    claims = [
        claim(f"c{i}", exact(n, selectors=[{"cel": {"expression": expression[k]}}]))
        for i, (k, n) in enumerate(asks)
    ]
    pods = [user(f"x{i}", f"c{i}") for i in range(len(asks))]
    state = dra.open(cluster(pods, slices, claims))
    assert isinstance(state, DraState)
    rows = list(state.rows(pods, [1] * len(pods), [0, 1]))
    for places in product([None, 0, 1], repeat=len(pods)):
        trial = state.copy()
        for which, place in zip(pods, places, strict=True):
            if place is not None:
                if not mask_of(trial, which)[place]:
                    break
                trial.place(which, place, pipelined=False)
        else:
            for row in rows:
                assert (
                    sum(row.entering.get((c, p), 0) for c, p in enumerate(places) if p is not None)
                    <= row.bound
                )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.booleans(), min_size=2, max_size=3),
    st.lists(st.integers(0, 2), min_size=2, max_size=2),
    st.sampled_from([[], [{}], [{"bindsToNode": True}]]),
    st.integers(1, 2),
    st.booleans(),
)
def test_users_of_a_shared_claim_satisfy_the_rows_wherever_they_can_be(
    also: list[bool], local: list[int], wide: list[Raw], count: int, running: bool
) -> None:
    """Some pods have a claim of their own, too. A running pod may use the shared one on n0, and leave."""
    slices = [slice_of(f"n{n}", *(device(f"d{i}") for i in range(k))) for n, k in enumerate(local)]
    for fields in wide:
        slices.append(slice_of("far", *(device(name, **fields) for name in ("f0", "f1")), allNodes=True))
    pods = [user(f"x{i}", "s", *([f"c{i}"] if own else [])) for i, own in enumerate(also)]
    olds = [user("old", "s", node="n0")] if running and local[0] else []
    users = [{"resource": "pods", "name": p.key.name, "uid": p.uid} for p in olds]
    given_ = {"allocation": held("n0", "d0"), "reservedFor": users} if olds else {}
    claims = [claim("s", exact(count), **given_), *(claim(f"c{i}", exact()) for i in range(len(also)))]
    state = dra.open(cluster([*olds, *pods], slices, claims))
    rows = list(state.rows(pods, [1] * len(pods), [0, 1]))
    names = {name for row in rows for name in row.chosen}

    def satisfied(row: Row, places: tuple[int | None, ...], gone: bool, choice: object) -> bool:
        entering = sum(row.entering.get((c, p), 0) for c, p in enumerate(places) if p is not None)
        leaving = sum(row.leaving.values()) if gone else 0
        return entering + row.chosen.get(choice, 0) - leaving <= row.bound

    for gone, places in product([False, True] if olds else [False], product([None, 0, 1], repeat=len(pods))):
        trial = state.copy()
        for old in olds if gone else ():
            trial.evict(old)
        for which, place in zip(pods, places, strict=True):
            if place is not None:
                if not mask_of(trial, which)[place]:
                    break
                trial.place(which, place, pipelined=True)
        else:
            assert any(all(satisfied(row, places, gone, one) for row in rows) for one in [None, *names])


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("counted", [False, True])
def test_devices_given_in_this_cycle_change_for_a_later_pod(counted: bool, waits: bool) -> None:
    """x takes the first device. y can use only that one, so x gets the other one in the end; also where
    devices draw on counters that they share."""
    x, y = user("x", "any"), user("y", "first")
    only = exact(selectors=[{"cel": {"expression": f"device.attributes['{DRIVER}'].rank == 1"}}])
    draws = [{"counterSet": "all", "counters": {"cores": {"value": "1"}}}]
    more: Raw = {"consumesCounters": draws} if counted else {}
    shared: Raw = (
        {"sharedCounters": [{"name": "all", "counters": {"cores": {"value": "2"}}}]} if counted else {}
    )
    devices = [device(name, attributes=attributes(rank=i), **more) for i, name in enumerate("ab", 1)]
    pool = slice_of("n0", *devices, **shared)
    found = cluster([x, y], [pool], [claim("any", exact()), claim("first", only)])
    state = dra.open(found)

    def given(which: Pod) -> str:
        details = state.details(which, 0)
        assert details is not None
        name: str = details["resourceClaimAllocations"][0]["allocation"]["devices"]["results"][0]["device"]
        return name

    state.place(x, 0, pipelined=False)
    assert given(x) == "a"
    for now in (True, False):
        mask = state.mask(y, now=now)
        assert mask is not None
        assert list(mask) == [True, False]
    state.place(y, 0, pipelined=waits)
    assert (given(x), given(y)) == ("b", "a")
    state.remove(x, 0)
    assert given(y) == "a"


@pytest.mark.parametrize(("promised", "expected"), [(False, False), (True, True)])
def test_a_pod_that_binds_now_gets_no_device_that_is_leaving(promised: bool, expected: bool) -> None:
    """A pod that is leaving holds device b. x may change to it only if x itself waits for it."""
    old, x, y = (
        user("old", "held", node="n0", status=PodStatus.RELEASING),
        user("x", "any"),
        user("y", "first"),
    )
    only = exact(selectors=[{"cel": {"expression": f"device.attributes['{DRIVER}'].rank == 1"}}])
    devices = [device(name, attributes=attributes(rank=i)) for i, name in enumerate("ab", 1)]
    users = [{"resource": "pods", "name": "old", "uid": "uid-old"}]
    holding = claim("held", exact(), allocation=held("n0", "b"), reservedFor=users)
    claims = [holding, claim("any", exact()), claim("first", only)]
    state = dra.open(cluster([old, x, y], [slice_of("n0", *devices)], claims))
    state.place(x, 0, pipelined=promised)
    mask = state.mask(y, now=False)
    assert mask is not None
    # A nominated x takes the device of the leaving pod at once only if it has to.
    assert bool(mask[0]) is expected


def test_a_pod_that_waits_gives_free_devices_for_one_that_is_leaving() -> None:
    """A pod that is leaving holds c, which looks like a and b. x waits, and has a. y starts now with a and b,
    if x takes c."""
    old, x, y = user("old", "held", node="n0", status=PodStatus.RELEASING), user("x", "one"), user("y", "two")
    users = [{"resource": "pods", "name": "old", "uid": "uid-old"}]
    holding = claim("held", exact(), allocation=held("n0", "c"), reservedFor=users)
    claims = [holding, claim("one", exact()), claim("two", exact(2))]
    state = dra.open(cluster([old, x, y], [slice_of("n0", *map(device, "abc"))], claims))
    state.place(x, 0, pipelined=True)
    fits = state.mask(y, now=True)
    assert fits is not None
    assert fits.tolist() == [True, False]
    state.place(y, 0, pipelined=False)
    details = [state.details(which, 0)["resourceClaimAllocations"][0]["allocation"] for which in (x, y)]
    given_ = [[result["device"] for result in one["devices"]["results"]] for one in details]
    assert given_ == [["c"], ["a", "b"]]


def test_no_more_users_than_a_claim_may_have() -> None:
    """254 pods use the shared claim: two of three more may join it, unless one of the old pods leaves."""
    olds = [user(f"o{i}", "shared", node="n0") for i in range(254)]
    news = [user(f"x{i}", "shared") for i in range(3)]
    users = [{"resource": "pods", "name": p.key.name, "uid": p.uid} for p in olds]
    shared = claim("shared", exact(), allocation=held("n0", "a"), reservedFor=users)
    state = dra.open(cluster([*olds, *news], TWO, [shared]))
    (row,) = [row for row in state.rows(news[:1], [3], range(2)) if len(row.leaving) == 254]
    assert (row.bound, set(row.entering.values())) == (2, {1})


@pytest.mark.parametrize(
    ("product", "taken", "count", "expected"),
    [
        # Bridged pairs 0-1, 2-3, 4-5 and 6-7: 0 is taken, so 2 and 3 are the first whole pair.
        ("NVIDIA H100 NVL", [0], 2, [2, 3]),
        # One GPU completes the broken pair.
        ("NVIDIA H100 NVL", [0], 1, [1]),
        ("NVIDIA H100 NVL", [2], 1, [3]),
        # No pair holds three: a whole pair and the first GPU of another one.
        ("NVIDIA H100 NVL", [0], 3, [2, 3, 4]),
        ("NVIDIA H200 NVL", [0, 1], 3, [4, 5, 6]),
        # All GPUs are joined, or none is: the first GPUs of the slice.
        ("NVIDIA H100 80GB HBM3", [0], 2, [6, 7]),
        ("Some card", [0], 2, [6, 7]),
    ],
)
def test_gpus_of_one_island_are_taken_first(
    product: str, taken: list[int], count: int, expected: list[int]
) -> None:
    """The slice lists the GPUs in another order than that of their index."""
    devices = [
        device(f"gpu-{i}", attributes=attributes(index=i, productName=product, type="gpu"))
        for i in (7, 6, 5, 4, 3, 2, 1, 0)
    ]
    old, x = user("old", "held", node="n0"), user("x", "c")
    users = [{"resource": "pods", "name": "old", "uid": "uid-old"}]
    holding = claim(
        "held", exact(len(taken)), allocation=held("n0", *(f"gpu-{i}" for i in taken)), reservedFor=users
    )
    found = cluster([old, x], [slice_of("n0", *devices)], [holding, claim("c", exact(count))])
    details = placed(dra.open(found), x, 0, pipelined=False)
    results = details["resourceClaimAllocations"][0]["allocation"]["devices"]["results"]
    assert sorted(int(result["device"].removeprefix("gpu-")) for result in results) == expected


def demanding(name: str, namespace: str, levels: int) -> Raw:
    """A claim whose selector takes some 25 steps, and ten times as many with every level."""
    body = "true"
    for level in range(levels):
        body = f"[1,2,3,4,5,6,7,8,9,10].all(x{level}, {body})"
    found = claim(name, exact(selectors=[{"cel": {"expression": f'{body} && "{name}" != ""'}}]))
    found["metadata"]["namespace"] = namespace
    return found


def judged(claims: list[Raw], memory: Paid | None = None, **limits: int) -> dict[str, str]:
    found = cluster([pod("p")], TWO, claims)
    extras = found.extras.having(JUDGING, Judging(Limits(**limits), memory))
    found = enriched(replace(found, extras=extras))
    return {item.item.removeprefix("ResourceClaim "): item.reason for item in found.set_aside}


def test_a_claim_that_takes_too_long_is_set_aside_alone() -> None:
    reasons = judged([demanding("a", "bad", 4), demanding("b", "bad", 0), demanding("c", "good", 1)])
    assert reasons == {
        "bad/a": "a selector takes more than 10000 steps for one device (limits.cel_steps_per_device)"
    }


def test_a_namespace_pays_for_its_claims_and_others_do_not_wait_for_it() -> None:
    claims = [demanding(f"c{i}", "bad", 2) for i in range(6)] + [demanding("good", "good", 1)]
    memory, waiting = Paid(), []
    for _ in range(4):
        reasons = judged(claims, memory, cel_steps_per_namespace=6500, cel_steps_per_cycle=7500)
        assert all("it is looked at in a later one" in reason for reason in reasons.values())
        waiting.append(sorted(reasons))
    # Two in a cycle, in their order; each one gets its turn.
    assert waiting == [["bad/c2", "bad/c3", "bad/c4", "bad/c5"], ["bad/c4", "bad/c5"], [], []]
    assert judged(claims, memory, cel_steps_per_namespace=1000)["bad/c0"] == (
        "its selectors take more than 1000 steps (limits.cel_steps_per_namespace)"
    )


@pytest.mark.parametrize(("kept", "again"), [(None, [0, 0]), (1, [2, 2])])
def test_selectors_that_were_forgotten_are_paid_for_again(
    monkeypatch: pytest.MonkeyPatch, kept: int | None, again: list[int]
) -> None:
    """More claims than were remembered cost each cycle what they had cost once, and no namespace was charged
    for it: 4,300 small ones took 14 s of a cycle."""
    if kept is not None:
        monkeypatch.setattr(judging, "MOST_BYTES", kept)
    compiled: list[str] = []
    compile_one = cel.compiled
    monkeypatch.setattr(cel, "compiled", lambda each: compiled.append(each) or compile_one(each))
    claims, memory = [demanding(f"c{i}", "bad", 0) for i in range(40)], Paid()
    assert not judged(claims, memory)
    compiled.clear()
    waiting = len(judged(claims, memory, cel_steps_per_namespace=400))
    assert [len(set(compiled)), 40 - waiting] == (again if kept else [0, 40])


def test_devices_that_look_alike_are_evaluated_once() -> None:
    many = [device(f"gpu-{i}", attributes=attributes(uuid=f"U{i}", model="A")) for i in range(500)]
    claims = [
        claim("c", exact(selectors=[{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "A"'}}]))
    ]
    found = enriched(cluster([pod("p")], [slice_of("n0", *many)], claims))
    spent = found.extras[CATALOG].judge.spent
    # One evaluation of some 30 steps, twice the ten tokens of the selector, and 500 devices at four a step.
    assert 200 < sum(spent.values()) < 500


def test_where_nothing_is_decided_nothing_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cluster([pod("p")], TWO, [demanding("a", "bad", 4)])
    monkeypatch.setattr(cel, "judge", None)
    monkeypatch.setattr(cel, "compiled", None)
    assert (
        enriched(replace(found, extras=found.extras.having(JUDGING, Judging(judged=False)))).set_aside == ()
    )
