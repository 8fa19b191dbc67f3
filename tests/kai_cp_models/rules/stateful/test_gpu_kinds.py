"""Limits and quotas of queues for kinds of GPUs: the worlds of docs/gpu-kinds.md, argued by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kai_cp.inspection import inspection
from kai_cp.report.kinds import by_kind
from kai_cp.report.section import Section
from kai_cp_models.check import violations
from kai_cp_models.explain.blocking import blocking_of
from kai_cp_models.explain.situation import Situation
from kai_cp_models.plan import Plan
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from tests.support.brute import named
from tests.support.objects import Object
from tests.support.plans import SETTINGS, bound, evicted, nominated, placed, reasons, solved
from tests.support.tiny import NOTHING, node, pod, queue, world

ON = Settings.model_validate({"solver": SETTINGS.solver, "rules": {"gpu_kinds": True}})
FIRM = {"preemptibility": "non-preemptible"}


def bounded(made: Object, text: str | None = None, **kinds: Mapping[str, float]) -> Object:
    """A queue with bounds, a kind as ``H100={"limit": 2}``; ``text``: the annotation as it is written."""
    made["metadata"]["annotations"] = {"kai-cp/gpu-kinds": json.dumps(kinds) if text is None else text}
    return made


def of(kind: str, name: str, gpus: int = 4) -> Object:
    return node(name, gpus=gpus, labels={"nvidia.com/gpu.product": kind} if kind else {})


NODES = (of("A100", "a"), of("H100", "h"))
ONLY_H = {"nodeSelector": {"nvidia.com/gpu.product": "H100"}}


def four(queues: list[Object], **more: Any) -> Snapshot:
    """Four pods of one GPU that accept only an H100."""
    return world(NODES, [pod(f"x{i}", gpus=1, **ONLY_H, **more) for i in range(4)], queues=queues)


def test_a_limit_holds_for_its_kind_only() -> None:
    found = world(
        NODES, [pod(f"x{i}", gpus=1) for i in range(6)], queues=[bounded(queue("q"), H100={"limit": 2})]
    )
    plan = solved(found, ON)
    assert sorted(bound(plan).values()) == ["a", "a", "a", "a", "h", "h"]


def test_off_means_off() -> None:
    assert len(bound(solved(four([bounded(queue("q"), H100={"limit": 2})])))) == 4


def test_a_waiting_pod_says_which_bound_holds_it() -> None:
    plan = solved(four([bounded(queue("q"), H100={"limit": 2})]), ON)
    assert bound(plan) == {"x0": "h", "x1": "h"}
    assert reasons(plan) == {"x2": "OverGpuKind", "x3": "OverGpuKind"}
    assert plan.unscheduled[0].message == "queue q: limit 2 GPUs of H100, used 2, needs 1"


def test_a_kind_that_the_pod_does_not_take_is_not_named() -> None:
    """x asks for more than any node has, so the bound on H100 is not the reason."""
    queues = [bounded(queue("q"), H100={"limit": 2})]
    plan = solved(world(NODES, [pod("x", gpus=9)], queues=queues), ON)
    assert (plan.unscheduled[0].reason, "H100" in plan.unscheduled[0].message) == ("NoNodeAccepts", False)


def test_a_limit_of_a_department_holds_for_all_below() -> None:
    top = bounded(queue("dept"), H100={"limit": 3})
    pods = [pod(f"{q}{i}", gpus=1, queue=q, **ONLY_H) for i in range(2) for q in ("q", "r")]
    plan = solved(world(NODES, pods, queues=[top, queue("q", "dept"), queue("r", "dept")]), ON)
    assert len(bound(plan)) == 3
    assert set(reasons(plan).values()) == {"OverGpuKind"}


def test_a_quota_bounds_what_cannot_be_preempted() -> None:
    queues = [bounded(queue("q"), H100={"quota": 1})]
    groups = {name: FIRM for name in ("x0", "x1")}
    pods = [pod(f"x{i}", gpus=1, **ONLY_H) for i in range(3)]
    plan = solved(world(NODES, pods, groups=groups, queues=queues), ON)
    assert set(bound(plan)) == {"x0", "x2"}
    assert plan.unscheduled[0].message == (
        "queue q: quota 1 GPUs of H100, used by non-preemptible pods 1, needs 1"
    )


def test_a_gang_over_the_bound_waits_whole() -> None:
    pods = [pod(f"g{i}", gpus=1, group="g", **ONLY_H) for i in range(3)]
    found = world(
        NODES, pods, groups={"g": {"minMember": 3}}, queues=[bounded(queue("q"), H100={"limit": 2})]
    )
    plan = solved(found, ON)
    assert plan.decisions == ()
    assert plan.unscheduled[0].message == "queue q: limit 2 GPUs of H100, used 0, needs 3"


def test_a_gang_takes_both_kinds_where_it_may() -> None:
    pods = [pod(f"g{i}", gpus=1, group="g") for i in range(5)]
    found = world(
        NODES, pods, groups={"g": {"minMember": 5}}, queues=[bounded(queue("q"), H100={"limit": 1})]
    )
    assert sorted(bound(solved(found, ON)).values()) == ["a", "a", "a", "a", "h"]


def test_shares_count_in_parts() -> None:
    pods = [pod(f"x{i}", notes={"gpu-fraction": "0.5"}, **ONLY_H) for i in range(4)]
    plan = solved(world(NODES, pods, queues=[bounded(queue("q"), H100={"limit": 1.5})]), ON)
    assert len(bound(plan)) == 3


def test_memory_counts_by_its_node() -> None:
    """10,000 of 40,000 MiB are a quarter: with a limit of half a GPU two of three fit."""
    pods = [pod(f"x{i}", notes={"gpu-memory": "10000"}, **ONLY_H) for i in range(3)]
    plan = solved(world(NODES, pods, queues=[bounded(queue("q"), H100={"limit": 0.5})]), ON)
    assert len(bound(plan)) == 2


def test_unknown_is_a_kind() -> None:
    queues = [bounded(queue("q"), unknown={"limit": 1})]
    plan = solved(world([of("", "n")], [pod(f"x{i}", gpus=1) for i in range(2)], queues=queues), ON)
    assert set(bound(plan)) == {"x0"}


def test_preempt_frees_the_kind() -> None:
    """A pod of lower priority uses the limit of one H100. x takes it, and v runs on elsewhere."""
    pods = [
        pod("v", "h", gpus=1, priority="low"),
        pod("w", "a", gpus=1, priority="low"),
        pod("x", gpus=1, **ONLY_H),
    ]
    queues = [bounded(queue("q"), H100={"limit": 1})]
    plan = solved(world(NODES, pods, actions="allocate, preempt", queues=queues), ON)
    assert (placed(plan), evicted(plan), nominated(plan)) == ({"x"}, {"v"}, {"x": "h", "v": "a"})


def test_reclaim_takes_no_more_of_the_kind_than_the_limit() -> None:
    nodes = [of("H100", "h", 2)]
    pods = [
        *(pod(f"v{i}", "h", gpus=1, queue="poor") for i in range(2)),
        *(pod(f"x{i}", gpus=1) for i in range(2)),
    ]
    queues = [bounded(queue("q"), H100={"limit": 1}), queue("poor", quota=NOTHING)]
    plan = solved(world(nodes, pods, actions="allocate, reclaim", queues=queues), ON)
    assert len(placed(plan)) == len(evicted(plan)) == 1
    assert list(reasons(plan).values()).count("OverGpuKind") == 1


def test_consolidation_moves_no_pod_to_a_kind_that_is_full() -> None:
    """x needs all four GPUs of a. v could only go to h, where its queue may hold none."""
    pods = [
        pod("v", "a", gpus=1, queue="r"),
        pod("x", gpus=4, nodeSelector={"nvidia.com/gpu.product": "A100"}),
    ]
    free, full = queue("r"), bounded(queue("r"), H100={"limit": 0})
    actions = "allocate, consolidation"
    assert placed(solved(world(NODES, pods, actions=actions, queues=[queue("q"), free]), ON)) == {"x"}
    assert solved(world(NODES, pods, actions=actions, queues=[queue("q"), full]), ON).decisions == ()


def test_no_pod_moves_whose_queue_is_over_its_bound() -> None:
    """Two pods run; the limit was lowered after that. No pod is evicted for that, but one that moves has to
    start anew, which the limit would not allow. The checker refuses the move, too.
    """
    nodes = [of("H100", "h", 2), of("H100", "i", 2)]
    pods = [
        pod("v", "h", gpus=1, queue="r"),
        pod("w", "i", gpus=1, queue="r"),
        pod("x", gpus=2),
    ]

    def limited(limit: int) -> Snapshot:
        queues = [queue("q"), bounded(queue("r"), H100={"limit": limit})]
        return world(nodes, pods, actions="allocate, consolidation", queues=queues)

    moving = solved(limited(2), ON)
    assert (placed(moving), len(evicted(moving))) == ({"x"}, 1)
    assert solved(limited(1), ON).decisions == solved(limited(0), ON).decisions == ()
    assert violations(limited(2), moving, ON.rules) == []
    assert [fault.split(":")[0] for fault in violations(limited(1), moving, ON.rules)] == ["gpu_kinds"]


TWO = [bounded(queue("q"), H100={"limit": 1, "quota": 1})]


@pytest.mark.parametrize(
    ("names", "groups", "legal"),
    [
        (("x0",), {}, True),
        (("x0", "x1"), {}, False),
        (("x0", "x1"), {"x0": FIRM}, False),
        (("x0",), {"x0": FIRM}, True),
    ],
)
@pytest.mark.parametrize("kind", ["Bind", "Nominate"])
def test_the_checker_names_plans_beyond_a_bound(
    names: tuple[str, ...], groups: Mapping[str, Object], legal: bool, kind: str
) -> None:
    pods = [pod(f"x{i}", gpus=1) for i in range(2)]
    found = world(NODES, pods, groups=groups, queues=TWO)
    plan = Plan(tuple(named(found, kind, name, "h") for name in names))
    faults = violations(found, plan, ON.rules)
    assert (not faults) is legal
    assert all(fault.startswith("gpu_kinds: queue q would hold 2 of 1 GPUs of H100") for fault in faults)
    assert violations(found, Plan(tuple(named(found, kind, name, "a") for name in names)), ON.rules) == []
    assert violations(found, plan) == []


def test_a_bind_waits_until_the_victim_is_gone() -> None:
    pods = [pod("v", "h", gpus=1, priority="low"), pod("x", gpus=1)]
    found = world(NODES, pods, actions="allocate, preempt", queues=TWO)
    gone = named(found, "Evict", "v", "h", action="preempt", triggers=(found.pods[1].group,))
    at_once = Plan((gone, named(found, "Bind", "x", "h", action="preempt")))
    assert any(f.startswith("gpu_kinds:") and f.endswith("now") for f in violations(found, at_once, ON.rules))
    later = Plan((gone, named(found, "Nominate", "x", "h", action="preempt")))
    assert violations(found, later, ON.rules) == []


def test_a_pod_that_is_being_deleted_holds_its_kind_until_it_is_gone() -> None:
    """As with ordinary limits (3.7), x is only nominated while v leaves, and waits while v is stuck."""
    for state, places, waits in (("Releasing", {"x": "h"}, {}), ("Stuck", {}, {"x": "OverGpuKind"})):
        pods = [pod("v", "h", gpus=1, state=state), pod("x", gpus=1, **ONLY_H)]
        found = world(NODES, pods, queues=[bounded(queue("q"), H100={"limit": 1})])
        plan = solved(found, ON)
        assert (bound(plan), nominated(plan), reasons(plan)) == ({}, places, waits)
        assert violations(found, Plan((named(found, "Bind", "x", "h"),)), ON.rules) == [
            "gpu_kinds: queue q would hold 2 of 1 GPUs of H100 (limit) now"
        ]


ABSENT = "; treated as absent"
NO_AMOUNT = " is not a number of GPUs; -1 is any number" + ABSENT


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("{", "", "is not JSON" + ABSENT),
        ("[]", "", "is not an object of kinds" + ABSENT),
        ('{"H100": 2}', ".H100", "2 is not an object with limit or quota" + ABSENT),
        ('{"H100": {"limt": 2}}', ".H100", 'there is no "limt", only limit and quota' + ABSENT),
        ('{"H100": {"limit": "2"}}', ".H100.limit", '"2"' + NO_AMOUNT),
        ('{"H100": {"quota": -2}}', ".H100.quota", "-2" + NO_AMOUNT),
        ('{"H100": {"limit": NaN}}', ".H100.limit", "NaN" + NO_AMOUNT),
        ('{"H200": {"limit": 1}}', ".H200", "no node has such GPUs; there are A100, H100"),
    ],
)
def test_an_unreadable_annotation_is_reported_and_stops_no_group(text: str, where: str, words: str) -> None:
    plan = solved(four([bounded(queue("q"), text)]), ON)
    assert len(bound(plan)) == 4
    assert [(one.item, one.reason) for one in plan.set_aside] == [
        ("Queue q", f"metadata.annotations[kai-cp/gpu-kinds]{where}: {words}")
    ]


def test_inspect_and_queues_show_them() -> None:
    groups = {"v": FIRM}
    queues = [bounded(queue("q"), '{"H100": {"limit": 2, "quota": 1}, "A100": 3}')]
    found = world(NODES, [pod("v", "h", gpus=1), pod("w", "h", gpus=1)], groups=groups, queues=queues)
    document = inspection(found, settings=ON)
    kinds = {"H100": {"quota": 1, "limit": 2, "allocated": 2, "nonPreemptible": 1}}
    assert [row.get("gpuKinds") for row in document["queues"]] == [None, kinds]
    assert "is not an object with limit or quota" in document["setAside"][-1]["reason"]
    assert [row for section in (by_kind(document["queues"]),) for row in plain(section)] == [
        ["q", "H100", "2", "2", "1", "1"]
    ]
    assert "gpuKinds" not in inspection(found)["queues"][1]


def plain(section: Section) -> list[list[str]]:
    return [[str(cell) for cell in row] for row in section.rows]


def test_explain_names_the_rule() -> None:
    found = four([bounded(queue("q"), H100={"limit": 2})])
    situation = Situation(found, ON, solved(found, ON))
    waiting = next(group for group in found.groups if group.key.name == "x3")
    assert blocking_of(situation, waiting).sets == (frozenset({"kind-limit", "selector", "order"}),)


def test_a_bad_entry_affects_itself_only() -> None:
    plan = solved(four([bounded(queue("q"), '{"H100": {"limit": 1}, "A100": 3}')]), ON)
    assert len(bound(plan)) == 1
