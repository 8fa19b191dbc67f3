"""Volumes: bound, waiting, provisioned within capacity, given back by victims, attach limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.check import storage as check
from kai_cp_models.check.planned_cluster import PlannedCluster
from kai_cp_models.check.selectors import ObjectLabels, reaches, selects
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import LabelSelector, Pod, PodKey, PodStatus, Requirement
from kai_cp_models.rules.stateful import storage
from kai_cp_models.rules.stateful.protocol import RuleState
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import Node, Snapshot
from tests.kai_cp_models.rules.stateful.build import pod, snapshot, spec

Raw = dict[str, Any]
NODES = [
    Node(f"n{i}", (64_000, 2**40, 0, 110), {"host": f"n{i}", "zone": "a" if i < 2 else "b"}) for i in range(3)
]
DRIVER = "csi.example.com"


def selector(key: str, *values: str) -> Raw:
    return {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]
    }


def pv(name: str, size: str = "10Gi", claim: str = "", nodes: Raw | None = None, klass: str = "local") -> Raw:
    body: Raw = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": klass}
    body["csi"] = {"driver": DRIVER, "volumeHandle": f"handle-{name}"}
    if nodes:
        body["nodeAffinity"] = {"required": nodes}
    if claim:
        body["claimRef"] = {"namespace": "ns", "name": claim}
    return {"metadata": {"name": name}, "spec": body, "status": {"phase": "Bound" if claim else "Available"}}


def pvc(
    name: str, volume: str = "", size: str = "10Gi", klass: str = "local", owner: str = "", **notes: str
) -> Raw:
    meta: Raw = {"name": name, "namespace": "ns"}
    if owner:
        meta["ownerReferences"] = [{"kind": "Pod", "name": owner, "uid": f"uid-{owner}"}]
    if notes:
        meta["annotations"] = {"volume.kubernetes.io/selected-node": notes["node"]}
    body = {"accessModes": ["ReadWriteOnce"], "storageClassName": klass, "volumeName": volume}
    body |= {"resources": {"requests": {"storage": size}}}
    return {"metadata": meta, "spec": body, "status": {"phase": "Bound" if volume else "Pending"}}


def klass(name: str, provisioner: str = DRIVER, mode: str = "WaitForFirstConsumer", **fields: Any) -> Raw:
    return {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, **fields}


def capacity(name: str, size: str, zone: str, klass: str = "net") -> Raw:
    topology = {"matchLabels": {"zone": zone}}
    return {"metadata": {"name": name}, "storageClassName": klass, "capacity": size, "nodeTopology": topology}


ZONE_B = {"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}
CLASSES = [
    klass("local", "kubernetes.io/no-provisioner"),
    klass("net"),
    klass("now", mode="Immediate"),
    klass("zoned", allowedTopologies=[ZONE_B]),
]
TRACKED = [{"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}}]


def user(name: str, *claims: str, node: str | None = None) -> Pod:
    return pod(name, node, wants=spec(volume_claims=claims))


def cluster(
    pods: list[Pod], claims: list[Raw], volumes: list[Raw] | None = None, *, csi: bool = False, **lists: Any
) -> Snapshot:
    raw = {
        "persistentVolumeClaims": claims,
        "persistentVolumes": volumes or [],
        "storageClasses": CLASSES,
        **lists,
    }
    return snapshot(pods, NODES, raw=raw, schedule_csi_storage=csi)


def mask(state: RuleState, which: Pod, *, now: bool = True) -> list[int]:
    found = state.mask(which, now=now)
    assert found is not None
    return [int(x) for x in found]


def agrees(found: Snapshot, which: Pod, expected: list[int]) -> None:
    """The state and the checker give the same answer for every node."""
    assert mask(storage.open(found), which) == expected
    for node, accepted in zip(NODES, expected, strict=True):
        decision = Decision("Bind", which.key, which.group, node.name, "allocate")
        options = OptionalRules(topology_spread=False, pod_disruption_budgets=False)
        faults = list(check.broken(PlannedCluster(found, Plan((decision,)), options)))
        assert (not faults) is bool(accepted), (node.name, faults)


@pytest.mark.parametrize(
    ("claim", "standing", "expected"),
    [
        (pvc("c", "v"), [pv("v", claim="c")], [1, 1, 1]),
        (pvc("c", "v"), [pv("v", claim="c", nodes=selector("host", "n1"))], [0, 1, 0]),
        (pvc("c", "gone"), [], [0, 0, 0]),
        # The claim waits for its first consumer: a free volume that fits, or one that can be provisioned.
        (pvc("c"), [pv("v", nodes=selector("host", "n1"))], [0, 1, 0]),
        (pvc("c", size="20Gi"), [pv("v", nodes=selector("host", "n1"))], [0, 0, 0]),
        (pvc("c"), [pv("v", claim="other")], [0, 0, 0]),
        (pvc("c"), [pv("v", claim="c", nodes=selector("host", "n2"))], [0, 0, 1]),
        (pvc("c", klass="net"), [], [1, 1, 1]),
        (pvc("c", klass="zoned"), [], [0, 0, 1]),
        (pvc("c", klass="net", node="n1"), [], [0, 1, 0]),
        (pvc("c", klass="now"), [], [0, 0, 0]),
        (pvc("c", klass="none"), [], [0, 0, 0]),
    ],
)
def test_where_a_volume_can_be_used(claim: Raw, standing: list[Raw], expected: list[int]) -> None:
    x = user("x", "c")
    agrees(cluster([x], [claim], standing), x, expected)


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (pvc("c", "gone"), 'persistentvolume "gone"'),
        (pvc("c", klass="now"), "unbound immediate"),
        (pvc("c", klass="none"), 'storageclass "none"'),
        (pvc("c", klass="net"), ""),
    ],
)
def test_dead_ends(claim: Raw, words: str) -> None:
    x = user("x", "c")
    reason = storage.open(cluster([x], [claim])).dead_end(x)
    assert words in reason
    assert bool(reason) is bool(words)


def test_capacity_is_promised_once() -> None:
    x, y = user("x", "c"), user("y", "d")
    claims = [pvc("c", klass="net"), pvc("d", klass="net")]
    found = cluster([x, y], claims, csiDrivers=TRACKED, csiStorageCapacities=[capacity("a", "15Gi", "a")])
    agrees(found, x, [1, 1, 0])
    state = storage.open(found)
    state.place(x, 0, pipelined=False)
    assert mask(state, y) == [0, 0, 0]
    state.remove(x, 0)
    assert mask(state, y) == [1, 1, 0]
    both = [Decision("Bind", p.key, p.group, "n0", "allocate") for p in (x, y)]
    options = OptionalRules(topology_spread=False, pod_disruption_budgets=False)
    assert "the plan needs" in str(next(check.broken(PlannedCluster(found, Plan(tuple(both)), options))))


@pytest.mark.parametrize("csi", [True, False])
def test_volumes_of_victims_are_releasable_with_csi_storage(csi: bool) -> None:
    victim, x = user("victim", "owned", node="n0"), user("x", "c")
    claims = [pvc("c", klass="net"), pvc("owned", "v", klass="net", owner="victim")]
    lists = {"csiDrivers": TRACKED, "csiStorageCapacities": [capacity("a", "5Gi", "a")]}
    state = storage.open(
        cluster([victim, x], claims, [pv("v", claim="owned", klass="net")], csi=csi, **lists)
    )
    assert mask(state, x) == [0, 0, 0]
    state.evict(victim)
    assert mask(state, x) == [0, 0, 0]
    assert mask(state, x, now=False) == ([1, 1, 0] if csi else [0, 0, 0])
    state.unevict(victim)
    assert mask(state, x, now=False) == [0, 0, 0]


def test_a_victim_returns_only_while_its_place_is_its_own() -> None:
    victim, x = user("victim", "owned", node="n0"), user("x", "c")
    claims = [pvc("c", klass="net"), pvc("owned", "v", klass="net", owner="victim")]
    lists = {"csiDrivers": TRACKED, "csiStorageCapacities": [capacity("a", "5Gi", "a")]}
    state = storage.open(
        cluster([victim, x], claims, [pv("v", claim="owned", klass="net")], csi=True, **lists)
    )
    state.evict(victim)
    back = state.copy()
    state.place(x, 1, pipelined=True)
    assert mask(state, victim, now=False)[0] == 0
    back.place(victim, 0, pipelined=True)
    assert mask(back, x, now=False) == [0, 0, 0]
    back.remove(victim, 0)
    assert mask(back, x, now=False) == [1, 1, 0]


def test_a_free_volume_is_given_once() -> None:
    x, y = user("x", "c"), user("y", "d")
    state = storage.open(cluster([x, y], [pvc("c"), pvc("d")], [pv("v", nodes=selector("host", "n1"))]))
    state.place(x, 1, pipelined=False)
    assert mask(state, y) == [0, 0, 0]


def test_equal_claims_of_which_one_is_expected_by_a_volume_get_a_volume_each() -> None:
    """Of x's claims v is kept for the first, so the second takes w, and y finds none."""
    x, y = user("x", "c", "d"), user("y", "e")
    there = selector("host", "n1")
    kept = pv("v", claim="c", nodes=there)
    state = storage.open(cluster([x, y], [pvc("c"), pvc("d"), pvc("e")], [kept, pv("w", nodes=there)]))
    assert mask(state, x) == mask(state, y) == [0, 1, 0]
    state.place(x, 1, pipelined=False)
    assert mask(state, y) == [0, 0, 0]


def test_claims_that_fit_alone_are_told_by_their_sum() -> None:
    """n1 has one volume that either claim may have, and other nodes have none."""
    x = user("x", "c", "d")
    volumes = [pv(f"v{i}", nodes=selector("host", f"n{i}")) for i in range(3)]
    state = storage.open(cluster([x], [pvc("c"), pvc("d")], volumes))
    assert state.refusals(x) == "not enough free storage on 3 nodes for its 2 claims: 20 GiB"
    state = storage.open(cluster([x], [pvc("c"), pvc("d")], volumes[:1]))
    words = "not enough free storage on 2 nodes for claim ns/{}: 10 GiB of class local"
    assert state.refusals(x) == f"{words.format('c')}; {words.format('d')}"


def test_sharers_of_a_waiting_claim_stay_together() -> None:
    x, y = user("x", "c"), user("y", "c")
    state = storage.open(cluster([x, y], [pvc("c", klass="net")]))
    state.place(x, 2, pipelined=False)
    assert mask(state, y) == [0, 0, 1]
    state.remove(x, 2)
    assert mask(state, y) == [1, 1, 1]


@pytest.mark.parametrize(
    ("status", "asks", "expected"),
    [
        # The binder gives h the smaller of the two volumes on n1, and has one made there.
        pytest.param(PodStatus.BINDING, ("c", "d"), [0, 0, 0], id="one volume is left for two claims"),
        pytest.param(PodStatus.BINDING, ("c",), [0, 1, 0], id="the other volume"),
        pytest.param(PodStatus.BINDING, ("large",), [0, 1, 0], id="the larger volume"),
        pytest.param(PodStatus.BINDING, ("held",), [0, 1, 0], id="its own volume"),
        pytest.param(PodStatus.BINDING, ("made",), [0, 1, 0], id="its own new volume"),
        pytest.param(PodStatus.PENDING, ("c", "d"), [0, 1, 0], id="a waiting pod has nothing"),
        pytest.param(PodStatus.PENDING, ("made",), [1, 1, 1], id="a waiting pod shares any node"),
        # The binder binds no pod before its claims.
        pytest.param(PodStatus.RUNNING, ("c", "d"), [0, 1, 0], id="a running pod gets nothing"),
    ],
)
def test_binding_pods_have_the_volumes_that_the_binder_gives_them(
    status: PodStatus, asks: tuple[str, ...], expected: list[int]
) -> None:
    h, x = replace(user("h", "held", "made", node="n1"), status=status), user("x", *asks)
    h = replace(h, node=None) if status is PodStatus.PENDING else h
    claims = [
        *(pvc(name) for name in ("c", "d", "held")),
        pvc("large", size="20Gi"),
        pvc("made", klass="net"),
    ]
    there = selector("host", "n1")
    agrees(cluster([h, x], claims, [pv("v", nodes=there), pv("w", "20Gi", nodes=there)]), x, expected)


@pytest.mark.parametrize(("volumes", "left_out"), [(1500, 0), (1499, 1)])
def test_the_checker_gives_many_claims_a_volume_each(volumes: int, left_out: int) -> None:
    """Each may have every volume, so a search by recursion would go as deep as there are claims."""
    users = [user(f"x{i:04}", f"c{i:04}") for i in range(1500)]
    claims, standing = [pvc(f"c{i:04}") for i in range(1500)], [pv(f"v{i:04}") for i in range(volumes)]
    binds = tuple(Decision("Bind", one.key, one.group, "n0", "allocate") for one in users)
    world = PlannedCluster(cluster(users, claims, standing), Plan(binds), OptionalRules())
    faults = [str(fault) for fault in check.broken(world)]
    assert faults == ["volumes: no volume is left that claim ns/c1499 can have on node n0"] * left_out


def many_to_one_node(claims: list[Raw], standing: list[Raw]) -> list[str]:
    """What the checker says when a pod for each claim is bound to n0."""
    users = [user(f"x{claim['metadata']['name']}", claim["metadata"]["name"]) for claim in claims]
    binds = tuple(Decision("Bind", one.key, one.group, "n0", "allocate") for one in users)
    world = PlannedCluster(cluster(users, claims, standing), Plan(binds), OptionalRules())
    return [str(fault) for fault in check.broken(world)]


def test_the_checker_reads_no_volume_again_for_a_claim_of_another_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each claim gets the one volume of its size; the last gets none."""
    sizes, read, selected = [*range(40, 0, -1), 40], list[object](), ObjectLabels.selected
    claims = [pvc(f"c{i:02}", size=f"{size}Gi") for i, size in enumerate(sizes)]
    for claim in claims:
        claim["spec"]["selector"] = {}
    standing = [pv(f"v{size}", size=f"{size}Gi") for size in sizes[:-1]]

    def counted(labels: ObjectLabels, selector: LabelSelector) -> Any:
        read.append(selector)
        return selected(labels, selector)

    monkeypatch.setattr(ObjectLabels, "selected", counted)
    assert many_to_one_node(claims, standing) == [
        "volumes: no volume is left that claim ns/c40 can have on node n0"
    ]
    assert read == [LabelSelector(())]


@pytest.mark.parametrize("nodes", [None, selector("zone", "a")], ids=["every node", "nodes of a zone"])
def test_the_checker_asks_no_selector_and_no_node_about_each_volume(
    monkeypatch: pytest.MonkeyPatch, nodes: Raw | None
) -> None:
    """The selectors name a value, a key, or what they exclude; the last excludes all volumes."""
    claims, standing = [pvc(f"c{i}") for i in range(31)], [pv(f"v{i}", nodes=nodes) for i in range(30)]
    for i, volume in enumerate(standing):
        volume["metadata"]["labels"] = {"all": "", "a": f"{i}", f"b{i}": ""}
    for i, claim in enumerate(claims):
        by_value, by_key = {"key": "a", "operator": "In", "values": [f"{i}"]}, {"key": f"b{i}"}
        other = {"key": "a", "operator": "NotIn", "values": [f"{i}", f"x{i}"]}
        needs = [by_value, by_key | {"operator": "Exists"}, other]
        claim["spec"]["selector"] = {"matchLabels": {"all": ""}, "matchExpressions": [needs[i % 3]]}
    claims[-1]["spec"]["selector"] = {"matchExpressions": [{"key": "all", "operator": "DoesNotExist"}]}
    asked = list[object]()

    def counted(question: Callable[..., bool]) -> Callable[..., bool]:
        return lambda *about: asked.append(about) or question(*about)  # type: ignore[func-returns-value]

    for question in (selects, reaches):
        monkeypatch.setattr(check, question.__name__, counted(question))
    (fault,) = many_to_one_node(claims, standing)
    assert "claim ns/c30" in fault
    # What the volumes have in common, three times for each claim.
    assert len(asked) <= 3 * len(claims)


VALUES = st.sampled_from("xyz")
NEEDS = st.builds(
    Requirement,
    st.sampled_from("abc"),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(VALUES, max_size=2).map(tuple),
)


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), VALUES), max_size=5),
    st.lists(NEEDS, max_size=3).map(lambda needs: LabelSelector(tuple(needs))),
)
def test_labels_of_many_objects_are_selected_as_those_of_each(
    objects: list[dict[str, str]], chosen: LabelSelector
) -> None:
    assert ObjectLabels(objects).selected(chosen).tolist() == [selects(chosen, labels) for labels in objects]


@given(st.lists(st.lists(st.lists(st.sampled_from("abcdef"), unique=True), max_size=2), max_size=6))
def test_a_claim_is_left_out_where_no_choice_of_volumes_serves_it_and_all_before(
    lists: list[list[list[str]]],
) -> None:
    options = {PodKey("ns", f"c{i}"): found for i, found in enumerate(lists)}
    served: list[PodKey] = []
    for key in options:
        choices = product(*(set(chain(*options[one])) for one in [*served, key]))
        if any(len(set(choice)) == len(choice) for choice in choices):
            served.append(key)
    assert list(check.left_out(options)) == [key for key in options if key not in served]


def test_attach_limits() -> None:
    limits = [
        {"metadata": {"name": "n0"}, "spec": {"drivers": [{"name": DRIVER, "allocatable": {"count": 1}}]}}
    ]
    held, x, same = user("held", "a", node="n0"), user("x", "b"), user("same", "a")
    claims = [pvc("a", "va"), pvc("b", "vb")]
    found = cluster([held, x, same], claims, [pv("va", claim="a"), pv("vb", claim="b")], csiNodes=limits)
    agrees(found, x, [0, 1, 1])
    agrees(found, same, [1, 1, 1])
    state = storage.open(found)
    (row,) = state.rows([x], [1], [0, 1, 2])
    assert (dict(row.entering), row.bound, dict(row.leaving)) == ({(0, 0): 1}, 0, {held.key: 1})
    state.evict(held)
    assert (mask(state, x), mask(state, x, now=False)) == ([0, 1, 1], [1, 1, 1])


def test_unreadable_objects_are_named() -> None:
    broken = pv("v") | {"spec": {"capacity": {"storage": "much"}}}
    found = cluster([user("x", "c")], [pvc("c")], [broken])
    assert [(item.item, item.reason) for item in found.set_aside] == [
        ("PersistentVolume v", 'spec.capacity.storage: "much" is not a quantity')
    ]
