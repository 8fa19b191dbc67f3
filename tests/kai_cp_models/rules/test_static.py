"""Each static rule in one table that must hold for ``mask`` and for ``broken`` alike."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models import selectors
from kai_cp_models.check import selectors as check_selectors
from kai_cp_models.extras import CLAIM_MILLI_GPUS, extra
from kai_cp_models.pods import GpuKind, GpuRequest, Pod, PodSpec, PodStatus, Requirement, Toleration
from kai_cp_models.rules.static import STATIC_RULES, conditions, gpu_kind, selector, size, taints, workers
from kai_cp_models.rules.static.table import NodeTable, refusals
from kai_cp_models.snapshot import Node, Snapshot, Taint
from tests.kai_cp_models.rules.build import ALL, node, pod, snapshot


def verdict(rule: ModuleType, world: Snapshot, item: Pod, index: int = 0) -> tuple[bool, str | None]:
    """(accepted, reason) for one node, after checking that both statements of the rule agree."""
    allowed = rule.mask(NodeTable(world), item)
    reason = rule.broken(world, item, world.nodes[index])
    accepted = allowed is None or bool(allowed[index])
    assert accepted == (reason is None), f"mask says {accepted}, broken says {reason}"
    return accepted, reason


def req(key: str, operator: str, *values: str, field: bool = False) -> Requirement:
    return Requirement(key, operator, values, field)


NO_GPU_SHARE = "GPUs of the node are served by DRA, which cannot be shared by fraction"
GPU_TAINT = Taint("gpu", "yes", "NoSchedule")
HALF = GpuRequest(GpuKind.FRACTION, 1, 500)
MIG = GpuRequest(GpuKind.MIG)


def memory(mib: int) -> GpuRequest:
    return GpuRequest(GpuKind.MEMORY, 1, 0, mib)


CASES: list[tuple[str, ModuleType, Node, dict[str, Any], str | None]] = [
    ("a ready node", conditions, node(), {}, None),
    ("a cordoned node", conditions, node(not_ready="unschedulable"), {}, "node takes no pods: unschedulable"),
    ("no taint", taints, node(), {}, None),
    ("a soft taint", taints, node(taints=(Taint("gpu", "", "PreferNoSchedule"),)), {}, None),
    ("a taint", taints, node(taints=(GPU_TAINT,)), {}, "taint gpu=yes:NoSchedule not tolerated"),
    (
        "equal",
        taints,
        node(taints=(GPU_TAINT,)),
        {"tolerations": (Toleration("gpu", "Equal", "yes", ""),)},
        None,
    ),
    (
        "no operator",
        taints,
        node(taints=(GPU_TAINT,)),
        {"tolerations": (Toleration("gpu", "", "yes", ""),)},
        None,
    ),
    (
        "another value",
        taints,
        node(taints=(GPU_TAINT,)),
        {"tolerations": (Toleration("gpu", "Equal", "no", ""),)},
        "taint gpu=yes:NoSchedule not tolerated",
    ),
    (
        "exists",
        taints,
        node(taints=(GPU_TAINT,)),
        {"tolerations": (Toleration("gpu", "Exists", "", ""),)},
        None,
    ),
    (
        "any key",
        taints,
        node(taints=(GPU_TAINT,)),
        {"tolerations": (Toleration("", "Exists", "", ""),)},
        None,
    ),
    (
        "another effect",
        taints,
        node(taints=(GPU_TAINT,)),
        {"tolerations": (Toleration("gpu", "Exists", "", "NoExecute"),)},
        "taint gpu=yes:NoSchedule not tolerated",
    ),
    (
        "one of two taints tolerated",
        taints,
        node(taints=(GPU_TAINT, Taint("spot", "", "NoExecute"))),
        {"tolerations": (Toleration("gpu", "Exists", "", ""),)},
        "taint spot:NoExecute not tolerated",
    ),
    ("selector met", selector, node(labels={"zone": "a"}), {"node_selector": (("zone", "a"),)}, None),
    (
        "selector not met",
        selector,
        node(labels={"zone": "b"}),
        {"node_selector": (("zone", "a"),)},
        "node selector zone=a not met",
    ),
    (
        "selector without the label",
        selector,
        node(),
        {"node_selector": (("zone", "a"),)},
        "node selector zone=a not met",
    ),
    (
        "a whole GPU on a fractional-free MIG node",
        gpu_kind,
        node(mig_enabled=True, mig_strategy="single"),
        {"gpus": 1},
        None,
    ),
    (
        "a fraction under strategy single",
        gpu_kind,
        node(mig_enabled=True, mig_strategy="single"),
        {"gpu": HALF},
        "MIG strategy single takes whole GPUs only",
    ),
    ("the label alone does not make a MIG node", gpu_kind, node(mig_strategy="single"), {"gpu": HALF}, None),
    (
        "an instance under strategy single",
        gpu_kind,
        node(mig_enabled=True, mig_strategy="single"),
        {"gpu": MIG},
        "MIG strategy single takes whole GPUs only",
    ),
    ("an instance under mixed", gpu_kind, node(mig_enabled=True, mig_strategy="mixed"), {"gpu": MIG}, None),
    (
        "a whole GPU under mixed",
        gpu_kind,
        node(mig_enabled=True, mig_strategy="mixed"),
        {"gpus": 1},
        "MIG strategy mixed takes MIG instances only",
    ),
    ("CPU-only under mixed", gpu_kind, node(mig_enabled=True, mig_strategy="mixed"), {}, None),
    (
        "an instance without MIG",
        gpu_kind,
        node(),
        {"gpu": MIG},
        "MIG instance asked for, node is not MIG-enabled",
    ),
    (
        "legacy MIG",
        gpu_kind,
        node(mig_enabled=True),
        {"legacy_mig": True},
        "legacy MIG annotation is not supported",
    ),
    ("a share beside DRA", gpu_kind, node(dra_gpus=8), {"gpu": HALF}, NO_GPU_SHARE),
    ("whole GPUs beside DRA", gpu_kind, node(dra_gpus=8), {"gpus": 1}, None),
    (
        "memory on an unknown GPU",
        gpu_kind,
        node(gpu_memory_mib=100, gpu_memory_synced=False),
        {"gpu": memory(50)},
        "GPU memory of the node is unknown",
    ),
    (
        "memory that fits",
        gpu_kind,
        node(),
        {"gpu": memory(40000)},
        None,
    ),
    (
        "memory of one and a half devices",
        gpu_kind,
        node(),
        {"gpu": memory(60000)},
        "asks for 60000 MiB of one GPU, which has 40000 MiB",
    ),
    (
        "memory of exactly two devices",
        gpu_kind,
        node(),
        {"gpu": memory(80000)},
        None,
    ),
    (
        # 79601 / 40000 is 1.990025, which rounds up to 2.00 in hundredths.
        "memory that rounds up to two devices",
        gpu_kind,
        node(),
        {"gpu": memory(79601)},
        None,
    ),
    (
        "memory that rounds up to 1.99 devices",
        gpu_kind,
        node(),
        {"gpu": memory(79600)},
        "asks for 79600 MiB of one GPU, which has 40000 MiB",
    ),
    ("eight GPUs", size, node(gpus=8), {"gpus": 8}, None),
    ("nine GPUs", size, node(gpus=8), {"gpus": 9}, "asks for 9 GPUs, the largest node has 8"),
    ("65 CPUs", size, node(), {"cpus": 65}, "asks for 65 CPUs, the largest node has 64"),
]


@pytest.mark.parametrize(
    ("rule", "where", "asks", "reason"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_rule(rule: ModuleType, where: Node, asks: dict[str, Any], reason: str | None) -> None:
    assert verdict(rule, snapshot(where), pod(**asks))[1] == reason


AFFINITY = [
    (req("zone", "In", "a", "b"), True),
    (req("zone", "In", "c"), False),
    (req("absent", "In", "a"), False),
    (req("zone", "NotIn", "a"), False),
    (req("zone", "NotIn", "c"), True),
    (req("absent", "NotIn", "a"), True),
    (req("zone", "Exists"), True),
    (req("absent", "Exists"), False),
    (req("zone", "DoesNotExist"), False),
    (req("absent", "DoesNotExist"), True),
    (req("mem", "Gt", "79"), True),
    (req("mem", "Gt", "80"), False),
    (req("mem", "Lt", "81"), True),
    (req("mem", "Lt", "80"), False),
    (req("absent", "Gt", "0"), False),
    (req("zone", "Gt", "0"), False),
    (req("mem", "Gt", "lots"), False),
    (req("mem", "Gt"), False),
    (req("mem", "Gt", "--5"), False),
    (req("mem", "Gt", "-5"), True),
    (req("mem", "Gt", "+5"), True),
    (req("mem", "Gt", "7_9"), False),
    (req("mem", "Gt", " 79"), False),
    (req("mem", "Gt", "79", "78"), False),
    (req("zone", "In"), False),
    (req("zone", "Exists", "a"), False),
    (req("zone", "Near", "a"), False),
    (req("metadata.name", "In", "n0", field=True), True),
    (req("metadata.name", "In", "n1", field=True), False),
    (req("metadata.name", "NotIn", "n0", field=True), False),
    (req("metadata.name", "In", "n0", "n1", field=True), False),
    (req("spec.unschedulable", "In", "n0", field=True), False),
]


@pytest.mark.parametrize(("requirement", "holds"), AFFINITY, ids=str)
def test_affinity_operator(requirement: Requirement, holds: bool) -> None:
    world = snapshot(node(labels={"zone": "a", "mem": "80"}))
    assert verdict(selector, world, pod(node_affinity=((requirement,),)))[0] is holds
    if requirement.operator in ("In", "NotIn", "Gt", "Lt") and not requirement.field:
        assert check_selectors.reaches(((requirement,),), world.nodes[0]) is holds
        assert selectors.reaches(((requirement,),), "n0", world.nodes[0].labels) is holds


@pytest.mark.parametrize(
    ("terms", "holds"),
    [
        ((), False),
        (((),), False),
        (((req("zone", "In", "a"), req("mem", "Exists")),), True),
        (((req("zone", "In", "a"), req("disk", "Exists")),), False),
        (((req("disk", "Exists"),), (req("zone", "In", "a"),)), True),
    ],
    ids=["no term", "empty term", "both hold", "one fails", "second term holds"],
)
def test_affinity_terms(terms: tuple[tuple[Requirement, ...], ...], holds: bool) -> None:
    world = snapshot(node(labels={"zone": "a", "mem": "80"}))
    assert verdict(selector, world, pod(node_affinity=terms))[0] is holds


@pytest.mark.parametrize(
    ("labels", "gpus", "accepted"),
    [
        ({"node-role.kubernetes.io/gpu-worker": ""}, 1, True),
        ({"node-role.kubernetes.io/gpu-worker": "false"}, 1, True),
        ({"node-role.kubernetes.io/gpu-worker": ""}, 0, False),
        ({"node-role.kubernetes.io/cpu-worker": ""}, 0, True),
        ({"node-role.kubernetes.io/cpu-worker": ""}, 1, False),
    ],
)
def test_restricted_nodes(labels: dict[str, str], gpus: int, accepted: bool) -> None:
    restricted = snapshot(node(labels=labels), restrict_node_scheduling=True)
    assert verdict(workers, restricted, pod(gpus=gpus))[0] is accepted
    assert verdict(workers, snapshot(node(labels=labels)), pod(gpus=gpus))[0]


def test_a_claimed_gpu_makes_a_gpu_pod() -> None:
    world = snapshot(node(labels={"node-role.kubernetes.io/gpu-worker": ""}), restrict_node_scheduling=True)
    item = pod()
    assert not verdict(workers, world, item)[0]
    assert verdict(workers, replace(world, extras=extra(CLAIM_MILLI_GPUS, {item.key: 1000})), item)[0]


def test_a_legacy_mig_pod_keeps_instances_away_while_it_is_there() -> None:
    where = node(mig_enabled=True, mig_strategy="mixed")
    for status, accepted in ((PodStatus.RUNNING, False), (PodStatus.SUCCEEDED, True)):
        legacy = pod("old", legacy_mig=True, status=status, on="n0")
        assert verdict(gpu_kind, snapshot(where, pods=(legacy,)), pod(gpu=MIG))[0] is accepted


def test_without_the_predicates_plugin_only_the_node_models_own_rule_is_left() -> None:
    where = node(not_ready="cordoned", taints=(GPU_TAINT,), mig_enabled=True, mig_strategy="mixed")
    item = pod(gpus=9, node_selector=(("zone", "a"),))
    world = snapshot(where, restrict_node_scheduling=True, plugins=ALL - {"predicates"})
    broken = [rule.NAME for rule in STATIC_RULES if not verdict(rule, world, item)[0]]  # type: ignore[arg-type]
    assert broken == ["gpu_kind"]


MEM_OVER_9 = Requirement("mem", "Gt", ("9",))


def test_refusals_count_each_node_once_by_its_first_reason() -> None:
    world = snapshot(
        node("a", not_ready="cordoned", taints=(GPU_TAINT,)),
        node("b", taints=(GPU_TAINT,)),
        node("c", taints=(GPU_TAINT,)),
        node("d"),
    )
    assert refusals(NodeTable(world), pod()) == {
        "node takes no pods: cordoned": 1,
        "taint gpu=yes:NoSchedule not tolerated": 2,
    }
    assert refusals(NodeTable(world), pod(gpus=9)) == {"asks for 9 GPUs, the largest node has 8": 4}


def test_a_rule_that_refuses_all_nodes_is_told_alone() -> None:
    world = snapshot(node("a", not_ready="cordoned"), node("b", taints=(GPU_TAINT,)), node("c"))
    item = pod(node_selector=(("zone", "a"),))
    assert refusals(NodeTable(world), item) == {"node selector zone=a not met": 3}


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (
            ((Requirement("zone", "In", ("a", "b")), Requirement("disk", "Exists", ())), (MEM_OVER_9,)),
            "zone In [a, b] and disk Exists or mem Gt [9]",
        ),
        (((Requirement("zone", "In", tuple("abcde")),),), "zone In [a, b, c, d, …]"),
        (((MEM_OVER_9,),) * 5, " or ".join(["mem Gt [9]"] * 4 + ["…"])),
        (((),), "an empty term"),
        ((), "no term"),
    ],
)
def test_an_affinity_that_is_not_met_is_named(terms: tuple[tuple[Requirement, ...], ...], words: str) -> None:
    world = snapshot(node("a"))
    expected = {f"required node affinity not met: {words}": 1}
    assert refusals(NodeTable(world), pod(node_affinity=terms)) == expected


def test_no_nodes() -> None:
    world = snapshot()
    assert NodeTable(world).accepting(pod()).shape == (0,)
    assert refusals(NodeTable(world), pod()) == {}


KEYS = st.sampled_from(["zone", "mem", "disk"])
VALUES = st.sampled_from(["a", "1", "20", "-3", "+7", "1_0", ""])
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "?"])
TAINTS = st.builds(Taint, KEYS, VALUES, st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]))
TOLERATIONS = st.builds(
    Toleration,
    st.sampled_from(["", "zone", "mem"]),
    st.sampled_from(["", "Equal", "Exists", "?"]),
    VALUES,
    st.sampled_from(["", "NoSchedule", "NoExecute"]),
)
REQUIREMENTS = st.builds(
    lambda key, operator, values, field: Requirement(
        "metadata.name" if field else key,
        operator,
        ("n0", *values)[: len(values)] if field else values,
        field,
    ),
    KEYS,
    OPERATORS,
    st.lists(VALUES, max_size=2).map(tuple),
    st.booleans(),
)
WORKERS = st.sets(
    st.sampled_from(["node-role.kubernetes.io/gpu-worker", "node-role.kubernetes.io/cpu-worker"])
)
NODES = st.builds(
    lambda labels, workers, **fields: node(labels=labels | dict.fromkeys(workers, ""), **fields),
    st.dictionaries(KEYS, VALUES),
    WORKERS,
    gpus=st.integers(0, 2),
    taints=st.lists(TAINTS, max_size=2).map(tuple),
    not_ready=st.sampled_from(["", "", "cordoned"]),
    mig_enabled=st.booleans(),
    mig_strategy=st.sampled_from(["", "single", "mixed"]),
    gpu_memory_mib=st.sampled_from([100, 300]),
    gpu_memory_synced=st.booleans(),
    dra_gpus=st.sampled_from([0, 0, 1]),
)
GPUS = st.one_of(
    st.builds(GpuRequest, devices=st.integers(0, 3)),
    st.builds(GpuRequest, st.just(GpuKind.FRACTION), st.integers(1, 2), st.sampled_from([10, 500, 1000])),
    st.builds(GpuRequest, st.just(GpuKind.MEMORY), st.integers(1, 2), st.just(0), st.integers(1, 700)),
    st.just(MIG),
)
SPECS = st.builds(
    lambda gpu, **fields: PodSpec(
        (1000, 1, 1000 * gpu.devices if gpu.kind is GpuKind.REGULAR else 0, 1), gpu, **fields
    ),
    GPUS,
    node_selector=st.dictionaries(KEYS, VALUES, max_size=1).map(lambda d: tuple(d.items())),
    node_affinity=st.none() | st.lists(st.lists(REQUIREMENTS, max_size=2).map(tuple), max_size=2).map(tuple),
    tolerations=st.lists(TOLERATIONS, max_size=2).map(tuple),
    legacy_mig=st.sampled_from([False, False, False, True]),
)


@given(
    st.lists(NODES, min_size=1, max_size=4),
    st.lists(SPECS, min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_mask_and_broken_agree(
    nodes: list[Node], specs: list[PodSpec], restricted: bool, predicates: bool, legacy: bool
) -> None:
    named = [replace(item, name=f"n{i}") for i, item in enumerate(nodes)]
    running = (pod("old", legacy_mig=True, status=PodStatus.RUNNING, on="n0"),) if legacy else ()
    world = snapshot(
        *named,
        pods=running,
        plugins=ALL if predicates else ALL - {"predicates"},
        restrict_node_scheduling=restricted,
    )
    table = NodeTable(world)
    for spec in specs:
        item = replace(pod(), spec=spec)
        expected = [
            all(rule.broken(world, item, where) is None for rule in STATIC_RULES) for where in world.nodes
        ]
        assert table.accepting(item).tolist() == expected
        assert sum(refusals(table, item).values()) == expected.count(False)
