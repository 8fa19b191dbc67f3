"""The checkers of the stateful rules: a legal plan passes, and every altered plan is refused by the
right rule.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kai_cp_models.check import dra as check_dra
from kai_cp_models.check import numa as check_numa
from kai_cp_models.check import references as check_references
from kai_cp_models.check.planned_cluster import PlannedCluster
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import Pod, PodKey
from kai_cp_models.rules.stateful import dra, numa
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import Snapshot
from tests.kai_cp_models.rules.stateful.build import pod, snapshot, spec
from tests.kai_cp_models.rules.stateful.test_dra import (
    DRIVER,
    TWO,
    claim,
    cluster,
    device,
    exact,
    held,
    klass,
    mask,
    slice_of,
    user,
)
from tests.kai_cp_models.rules.stateful.test_numa import FOUR, nrt, want
from tests.kai_cp_models.rules.stateful.test_numa import cluster as numa_cluster
from tests.kai_cp_models.rules.stateful.test_references import pvc
from tests.support import tiny
from tests.support.devices import device_class

Subject = Callable[[PlannedCluster], Any]


def faults(subject: Subject, found: Snapshot, *decisions: Decision) -> list[str]:
    options = OptionalRules(topology_spread=False, pod_disruption_budgets=False)
    return [str(fault) for fault in subject(PlannedCluster(found, Plan(decisions), options))]


def decide(which: Pod, node: str, details: Any, kind: Any = "Bind") -> Decision:
    return Decision(kind, which.key, which.group, node, "allocate", details=details)


def placed(rule: Any, found: Snapshot, *places: tuple[Pod, int]) -> list[Decision]:
    """Decisions as the rule's state makes them."""
    state = rule.open(found)
    made = []
    for which, node in places:
        state.place(which, node, pipelined=False)
        made.append(decide(which, found.nodes[node].name, state.details(which, node)))
    return made


def altered(decision: Decision, change: Callable[[Any], None]) -> Decision:
    details = copy.deepcopy(dict(decision.details))
    change(details)
    return replace(decision, details=details)


def allocation(details: Any) -> Any:
    return details["resourceClaimAllocations"][0]["allocation"]


def results(details: Any) -> Any:
    return allocation(details)["devices"]["results"]


def test_claims_a_legal_plan_passes() -> None:
    runs, x, y = user("runs", "e", node="n0"), user("x", "c"), user("y", "c")
    found = cluster([runs, x, y], TWO, [claim("c", exact()), claim("e", exact(), allocation=held("n0", "a"))])
    assert faults(check_dra.broken, found, *placed(dra, found, (x, 0), (y, 0))) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.clear(), "gets no allocation"),
        (lambda d: results(d)[0].update(device="a"), "is given to ns/c, ns/e now"),
        (lambda d: results(d)[0].update(device="z"), "does not exist"),
        (lambda d: results(d)[0].update(pool="n1", device="a"), "not within reach of node n0"),
        (lambda d: results(d).clear(), "is served 0 times"),
        (lambda d: results(d)[0].update(request="other"), "is served 0 times"),
        (lambda d: results(d).append({**results(d)[0], "request": "s"}), "which it does not make"),
        (lambda d: results(d)[0].update(adminAccess=True), "another access"),
        (lambda d: allocation(d).update(nodeSelector={"nodeSelectorTerms": []}), "not for node n0"),
        (lambda d: allocation(d).pop("nodeSelector"), "allocation is for all nodes"),
        (lambda d: results(d).append(results(d)[0]), "gets a device twice"),
        (lambda d: results(d)[0].update(shareID="1"), "nothing else one"),
    ],
)  # fmt: skip
def test_claims_wrong_devices(change: Callable[[Any], None], words: str) -> None:
    runs, x = user("runs", "e", node="n0"), user("x", "c")
    found = cluster([runs, x], TWO, [claim("c", exact()), claim("e", exact(), allocation=held("n0", "a"))])
    (decision,) = placed(dra, found, (x, 0))
    assert results(decision.details)[0]["device"] == "b"
    assert any(words in fault for fault in faults(check_dra.broken, found, altered(decision, change)))


def test_claims_unsatisfying_device_and_count() -> None:
    slices = [
        slice_of(
            "n0", device("a"), device("b", taints=[{"key": "sick", "effect": "NoSchedule"}]), device("c")
        )
    ]
    x = user("x", "c")
    found = cluster([x], slices, [claim("c", exact(2))])
    (decision,) = placed(dra, found, (x, 0))
    sick = altered(decision, lambda d: results(d)[0].update(device="b"))
    assert any("do not satisfy" in fault for fault in faults(check_dra.broken, found, sick))
    twice = altered(decision, lambda d: results(d)[0].update(device="c"))
    assert any("gets 1 devices, wants 2" in fault for fault in faults(check_dra.broken, found, twice))


@pytest.mark.parametrize(("count", "words"), [(32, []), (33, ["it gets 33 devices, at most 32 are allowed"])])
def test_a_claim_has_at_most_32_devices(count: int, words: list[str]) -> None:
    names, x = [f"d{i}" for i in range(count)], user("x", "c")
    found = cluster([x], [slice_of("n0", *map(device, names))], [claim("c", exact(allocationMode="All"))])
    details = {"resourceClaimAllocations": [{"name": "c0", "allocation": held("n0", *names)}]}
    told = faults(check_dra.broken, found, decide(x, "n0", details))
    assert [word in fault for fault, word in zip(told, words, strict=True)] == [True for _ in words]


def test_versions_that_differ_in_text_are_not_the_same() -> None:
    """Kubernetes compares them as they are written, build and all."""
    devices = [device(name, attributes={"v": {"version": f"1.0.0+{name}"}}) for name in "ab"]
    for word, count in (("matchAttribute", 1), ("distinctAttribute", 0)):
        x = user("x", "c")
        constraint = {word: f"{DRIVER}/v"}
        found = cluster([x], [slice_of("n0", *devices)], [claim("c", exact(2), constraints=[constraint])])
        details = {"resourceClaimAllocations": [{"name": "c0", "allocation": held("n0", "a", "b")}]}
        told = faults(check_dra.broken, found, decide(x, "n0", details))
        assert ["do not keep the constraint" in fault for fault in told] == [True] * count
        assert mask(found, x) == [not count, False]


def test_claims_pinned_owner_queue_and_users() -> None:
    runs, x = user("runs", "c", node="n0"), user("x", "c")
    found = cluster([runs, x], TWO, [claim("c", exact(), allocation=held("n0", "a"))])
    wrong = decide(x, "n1", {"resourceClaimAllocations": [{"name": "c0", "allocation": held("n0", "a")}]})
    assert any("not for node n1" in fault for fault in faults(check_dra.broken, found, wrong))
    for made, words in (
        (claim("c", exact(), queue="other"), "shared GPU claim of queue other"),
        (claim("c", exact(), reservedFor=[{"uid": f"u{i}"} for i in range(256)]), "257 users"),
    ):
        found = cluster([x], TWO, [made])
        details = {"resourceClaimAllocations": [{"name": "c0", "allocation": held("n0", "a")}]}
        assert any(words in fault for fault in faults(check_dra.broken, found, decide(x, "n0", details)))


def test_all_users_of_a_claim_get_the_devices_that_it_has() -> None:
    runs, x, y, z = user("runs", "c", node="n0"), user("x", "c"), user("y", "d"), user("z", "d")
    found = cluster(
        [runs, x, y, z], TWO, [claim("c", exact(), allocation=held("n0", "a")), claim("d", exact())]
    )

    def given(which: Pod, node: str, device: str) -> Decision:
        details = {"resourceClaimAllocations": [{"name": "c0", "allocation": held(node, device)}]}
        return decide(which, node, details)

    assert (
        faults(check_dra.broken, found, given(x, "n0", "a"), given(y, "n0", "b"), given(z, "n0", "b")) == []
    )
    for wrong in ([given(x, "n0", "b")], [given(x, "n1", "a")], [given(y, "n0", "b"), given(z, "n1", "b")]):
        assert any(
            "is allocated in two ways now" in fault for fault in faults(check_dra.broken, found, *wrong)
        )


def test_claims_allocated_in_two_ways_are_told_by_name() -> None:
    names = [f"c{i}" for i in range(8)]
    users = [user(f"{name}-{i}", name) for name in names for i in range(2)]
    found = cluster(users, TWO, [claim(name, exact()) for name in names])
    made = [
        decide(x, "n0", {"resourceClaimAllocations": [{"name": "c0", "allocation": held("n0", "ab"[i % 2])}]})
        for i, x in enumerate(users)
    ]
    told = [fault for fault in faults(check_dra.broken, found, *made) if "in two ways now" in fault]
    assert [name for fault in told for name in names if f"ns/{name} is" in fault] == names


SHARED = device(
    "s",
    allowMultipleAllocations=True,
    capacity={
        "bw": {
            "value": "8",
            "requestPolicy": {"default": "2", "validRange": {"min": "2", "step": "3", "max": "6"}},
        }
    },
)


@pytest.mark.parametrize(("asked", "right"), [("", "2"), ("1", "2"), ("3", "5"), ("5", "5"), ("6", "")])
def test_a_claim_takes_of_a_shared_device_what_its_policy_makes_of_it(asked: str, right: str) -> None:
    x = user("x", "c")
    request = exact()
    request["exactly"]["capacity"] = {"requests": {"bw": asked} if asked else {}}
    found = cluster([x], [slice_of("n0", SHARED)], [claim("c", request)])
    for amount in ("1", "2", "3", "5", "6", "8"):
        document = held("n0", "s")
        document["devices"]["results"][0].update(consumedCapacity={"bw": amount}, shareID="1")
        details = {"resourceClaimAllocations": [{"name": "c0", "allocation": document}]}
        assert (not faults(check_dra.broken, found, decide(x, "n0", details))) is (amount == right)
    mask = dra.open(found).mask(x, now=True)
    assert mask is not None
    assert mask[0] == bool(right)


def test_drivers_get_the_configuration_of_classes_and_claims() -> None:
    """The claim's second part is for a request that is not served, so that it is left out."""
    x, rate, mode, other = user("x", "c"), *({"opaque": {"driver": one}} for one in ("rate", "mode", "other"))
    made = claim("c", exact(), {"name": "s", "firstAvailable": [{"name": "t", "deviceClassName": "gpu"}]})
    parts = [mode | {"requests": ["r"]}, other | {"requests": ["s/u"]}]
    made["spec"]["devices"]["config"] = parts
    found = cluster([x], TWO, [made], classes=[klass(config=[rate])])
    (decision,) = placed(dra, found, (x, 0))
    assert faults(check_dra.broken, found, decision) == []

    def config(details: Any) -> Any:
        return allocation(details)["devices"]["config"]

    assert [row["opaque"]["driver"] for row in config(decision.details)] == ["rate", "rate", "mode"]
    for change in (
        lambda d: config(d).clear(),
        lambda d: config(d).append(config(d)[0]),
        lambda d: config(d)[2].update(requests=["s"]),
        lambda d: config(d)[2].update(source="FromClass"),
        lambda d: config(d)[0].update(other),
    ):
        told = faults(check_dra.broken, found, altered(decision, change))
        assert any("another configuration" in fault for fault in told)


@pytest.mark.parametrize(("ids", "fault"), [("12", False), ("11", True), ("1", True)])
def test_each_share_of_a_device_has_an_id(ids: str, fault: bool) -> None:
    x, requests = user("x", "c"), [exact() | {"name": name} for name in "rs"]
    found = cluster([x], [slice_of("n0", SHARED)], [claim("c", *requests)])
    document = held("n0", "s", "s")
    for row, name, share in zip(document["devices"]["results"], "rs", ids.ljust(2), strict=True):
        row.update(request=name, consumedCapacity={"bw": "2"}, shareID=share.strip() or None)
    details = {"resourceClaimAllocations": [{"name": "c0", "allocation": document}]}
    told = faults(check_dra.broken, found, decide(x, "n0", details))
    assert bool(told) is fault
    assert all("has an id of its own" in one for one in told)


def test_extended_resources_get_devices_of_their_class() -> None:
    sick = device("c", taints=[{"key": "ill", "effect": "NoSchedule"}])
    asking = [tiny.pod(name, requests={"cpu": "1", "example.com/nic": "1"}) for name in "xy"]
    slices = [slice_of("n0", device("a"), device("b"), sick)]
    found = tiny.world(
        [tiny.node("n0"), tiny.node("n1")], asking, resourceSlices=slices,
        deviceClasses=[device_class(extendedResourceName="example.com/nic"), device_class("other")],
    )  # fmt: skip
    x, y = (found.pod_by_key[PodKey("default", name)] for name in "xy")
    (first, second) = placed(dra, found, (x, 0), (y, 0))
    assert faults(check_dra.broken, found, first, second) == []

    def written(details: Any) -> Any:
        return details["extendedResourceClaimAllocation"]

    def rows(details: Any) -> Any:
        return written(details)["allocation"]["devices"]["results"]

    for change, words in (
        (lambda d: d.clear(), "gets no devices for example.com/nic"),
        (lambda d: written(d)["containerMappings"].clear(), "requests are for []"),
        (lambda d: written(d)["deviceRequests"].clear(), "asks for []"),
        (lambda d: written(d)["deviceRequests"].append(written(d)["deviceRequests"][0]), "asks for [("),
        (lambda d: written(d)["deviceRequests"][0].update(name="other"), "asks for [('other'"),
        (lambda d: written(d)["deviceRequests"][0].update(exactly={}), "cannot be read"),
        (lambda d: written(d)["deviceRequests"][0]["exactly"].update(count=2), "asks for [("),
        (lambda d: written(d)["deviceRequests"][0]["exactly"].update(allocationMode="All"), "cannot be read"),
        (lambda d: rows(d).clear(), "is served 0 times"),
        (lambda d: rows(d)[0].update(device="c"), "do not satisfy"),
        (lambda d: rows(d)[0].update(device="z"), "does not exist"),
        (lambda d: rows(d)[0].update(device="b"), "is given to"),
        (lambda d: rows(d).append({**rows(d)[0], "device": "b"}), "gets 2 devices, wants 1"),
    ):
        assert any(
            words in fault for fault in faults(check_dra.broken, found, altered(first, change), second)
        )


def test_claims_of_a_victim_are_free_in_the_end_only() -> None:
    runs, x = user("runs", "c", node="n1"), user("x", "d")
    found = cluster([runs, x], TWO, [claim("c", exact(), allocation=held("n1", "a")), claim("d", exact())])
    details = {"resourceClaimAllocations": [{"name": "c0", "allocation": held("n1", "a")}]}
    evict = Decision("Evict", runs.key, runs.group, "n1", "reclaim")
    assert faults(check_dra.broken, found, evict, decide(x, "n1", details, "Nominate")) == []
    assert any("now" in fault for fault in faults(check_dra.broken, found, evict, decide(x, "n1", details)))


@pytest.mark.parametrize("gone", [("uid-v",), ()])
def test_claims_of_a_pod_that_is_gone_are_free_in_the_end_only(gone: tuple[str, ...]) -> None:
    x, names = user("x", "d"), [{"resource": "pods", "name": "v", "uid": "uid-v"}]
    claims = [claim("c", exact(), allocation=held("n1", "a"), reservedFor=names), claim("d", exact())]
    found = cluster([x], TWO, claims, gone=gone)
    details = {"resourceClaimAllocations": [{"name": "c0", "allocation": held("n1", "a")}]}
    later = faults(check_dra.broken, found, decide(x, "n1", details, "Nominate"))
    assert bool(later) is not bool(gone)
    assert any("now" in fault for fault in faults(check_dra.broken, found, decide(x, "n1", details)))


def test_zones_a_legal_plan_passes_and_altered_ones_do_not() -> None:
    pods = [want("x", 3), want("y", 3)]
    held_zone = want("r", 1, node="n0", zones=[("zone-0", {"cpu": 1000})])
    found = numa_cluster([held_zone, *pods], nrt("n0", *FOUR))
    both = placed(numa, found, (pods[0], 0), (pods[1], 0))
    assert faults(check_numa.broken, found, *both) == []

    def clear(details: Any) -> None:
        details.clear()

    def crowd(details: Any) -> None:
        details["numaZones"][0]["zone"] = "zone-0"

    def repeat(details: Any) -> None:
        details["numaZones"] *= 2

    def halve(details: Any) -> None:
        details["numaZones"] = [{"zone": f"zone-{i}", "amount": {"cpu": "1500m"}} for i in (0, 1)]

    for change, words in (
        (clear, "zones [] give"),
        (repeat, "a zone is named twice"),
        (crowd, "7000 used of 4000"),
        (halve, "spans 2 zones"),
    ):
        found_faults = faults(check_numa.broken, found, both[0], altered(both[1], change))
        assert any(words in fault for fault in found_faults), (words, found_faults)


def test_existence() -> None:
    x = pod("x", wants=spec(volume_claims=("gone", "going"), config_maps=("map",)))
    found = snapshot([x], raw={"persistentVolumeClaims": [pvc("going", deletionTimestamp="now")]})
    assert len(faults(check_references.broken, found, decide(x, "n0", {}))) == 3
