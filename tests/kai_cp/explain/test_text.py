"""The text of an explanation where nothing was tried, and for a gang of one pod."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.explain import document
from kai_cp.explain.document import Explainer
from kai_cp.explain.draft import Draft
from kai_cp.explain.rule_names import RULES
from kai_cp.explain.text import _fixes, _proof, describe, fix_lines, lines, remedies
from kai_cp_models.explain.families import ORDER
from kai_cp_models.pods import GroupKey
from kai_cp_models.settings import Settings
from tests.kai_cp.explain.clusters import NOW, cluster
from tests.support.objects import Object
from tests.support.tiny import node, pod, queue


def words(kinds: tuple[str, ...]) -> str:
    """The text for x, which is larger than the only node, with fixes of these kinds."""
    world = cluster([node("n0", gpus=1)], [pod("x", gpus=2)])
    entry = Explainer(Draft(world, NOW), Settings(), kinds=kinds).explain(GroupKey("default", "x"))
    return "\n".join(lines(entry))


def test_fixes_that_were_not_looked_for_are_not_called_useless() -> None:
    assert "none was tried" in words(())
    assert "none that was tried helps" in words(("add-nodes",))


def test_a_cluster_without_nodes_is_told_in_words() -> None:
    entry = Explainer(Draft(cluster([], [pod("x")]), NOW), Settings(), kinds=()).explain(
        GroupKey("default", "x")
    )
    said = [" ".join(line.split()) for line in lines(entry)]
    assert "Reason NoNodeAccepts: there is no node" in said
    assert "Proof no plan is possible while there are no nodes" in said
    assert "Start waiting for other jobs does not help against: the lack of nodes" in said


def test_a_job_without_gpus_needs_cpus() -> None:
    world = cluster([node("n0")], [pod("x", requests={"cpu": "9", "memory": "1Gi"})])
    entry = Explainer(Draft(world, NOW), Settings(), kinds=()).explain(GroupKey("default", "x"))
    assert "needs 1 pod with 9 CPUs" in lines(entry)[0]


@pytest.mark.parametrize(
    ("more", "words"),
    [({}, "set its minMember to 1"), ({"subGroup": "d"}, "set the minMember of its subgroup d to 1")],
)
def test_a_smaller_minimum_names_its_subgroup(more: Object, words: str) -> None:
    assert describe({"ops": [{"op": "set-min-member", "podGroup": "default/x", "value": 1, **more}]}) == words


def test_a_moved_pod_is_not_called_evicted() -> None:
    """One of two pods of one GPU moves for x, which needs both GPUs of a node."""
    running = [pod("r0", "n0", gpus=1), pod("r1", "n1", gpus=1)]
    world = cluster(
        [node("n0", gpus=2), node("n1", gpus=2)],
        [*running, pod("x", gpus=2)],
        actions="allocate, consolidation",
    )
    explainer = Explainer(Draft(world, NOW), Settings(), kinds=())
    moved = [entry for entry in explainer.explain_all(explainer.waiting()) if entry["state"] == "moved"]
    (text,) = ("\n".join(lines(entry)) for entry in moved)
    assert "Moved    1 pod by consolidation for default/x" in text
    assert "Evicted" not in text


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (("reclaim: lost GPUs by rank", 2_472_309, True), "no permitted plan loses fewer GPUs, weighted"),
        (
            ("preempt: lost work [GPU-milliseconds]", 7_200_000, True),
            "lost work by preempt in all: 2 GPU-hours",
        ),
        (
            ("preempt: lost GPUs [milli-GPUs]", 8_000, False),
            "by preempt in all: 8; at least 4 in any",
        ),
        (
            ("reclaim: 1 lost_work + 2 moved_pods [1/3600000]", 10_800_000, True),
            "1 lost_work + 2 moved_pods by preempt in all: 3; no permitted plan has less",
        ),
    ],
)
def test_costs_of_a_plan_have_the_units_of_the_reader(stage: tuple[str, int, bool], words: str) -> None:
    world = cluster([node("n0", gpus=1)], [pod("x", gpus=2)])
    entry = Explainer(Draft(world, NOW), Settings(), kinds=()).explain(GroupKey("default", "x"))
    name, value, proved = stage
    one = {"name": name, "value": value, "bound": value / 2, "proved": proved}
    by = {"pods": ["default/r"], "for": [], "action": "preempt", "rule": "priority", "because": "so"}
    text = " ".join(
        " ".join(lines({**entry, "state": "evicted", "evictedBy": {**by, "alternatives": [one]}})).split()
    )
    assert words in text


HARDWARE = [
    # Two nodes of two GPUs: no node has three, whatever stops.
    ([node("n0", gpus=2), node("n1", gpus=2)], [pod("x", gpus=3)], {}, "the largest node has 2"),
    # Three pods of one GPU in one rack, and the racks have two and one.
    (
        [node("n0", gpus=2, labels={"rack": "a"}), node("n1", gpus=1, labels={"rack": "b"})],
        [pod(f"x{i}", gpus=1, group="x") for i in range(3)],
        {"minMember": 3, "topologyConstraint": {"topology": "dc", "requiredTopologyLevel": "rack"}},
        "all in one rack; 3 are free, at most 2 on one node; the largest rack has 2",
    ),
    ([node("n0", gpus=2), node("n1", gpus=2)], [pod(f"x{i}", gpus=1, group="x") for i in range(5)],
     {"minMember": 5}, "all nodes together have 4"),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "pods", "group", "words"), HARDWARE)
def test_an_impossible_request_is_compared_with_the_hardware(
    nodes: list[Object], pods: list[Object], group: Object, words: str
) -> None:
    dc = {"metadata": {"name": "dc", "uid": "dc"}, "spec": {"levels": [{"nodeLabel": "rack"}]}}
    world = cluster(nodes, pods, groups={"x": group}, topologies=[dc])
    entry = Explainer(Draft(world, NOW), Settings(), kinds=()).explain(GroupKey("default", "x"))
    assert words in entry["message"]
    assert entry["message"].endswith("impossible on this hardware, whatever ends or is stopped")


def test_a_refusal_without_victims_does_not_speak_of_evictions() -> None:
    """Two pods with anti-affinity, one node, and reclaim found no victims in the other queue."""
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"job": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    ]}}  # fmt: skip
    world = cluster(
        [node("n0", gpus=2)],
        [pod("r", "n0", gpus=2, queue="o"),
         *(pod(f"x{i}", gpus=1, group="x", labels={"job": "x"}, affinity=apart) for i in range(2))],
        groups={"x": {"minMember": 2}},
        queues=[queue("q", quota={"gpu": 2}), queue("o", quota={"gpu": 0})],
    )  # fmt: skip
    entry = Explainer(Draft(world, NOW), Settings(), kinds=()).explain(GroupKey("default", "x"))
    assert entry["blocking"] == [["affinity"]]
    assert "evict" not in entry["message"]
    assert entry["message"].endswith("impossible on these nodes, whatever ends or is stopped")


def test_a_taint_is_not_called_hardware() -> None:
    """Four GPUs, on a node with a taint: tolerating it would help."""
    taint = {"key": "reserved", "value": "vip", "effect": "NoSchedule"}
    world = cluster([node("n0"), node("n1", gpus=4, taints=[taint])], [pod("x", gpus=4)])
    entry = Explainer(Draft(world, NOW), Settings(), kinds=()).explain(GroupKey("default", "x"))
    assert entry["message"] == (
        "1 of 2 nodes: taint reserved=vip:NoSchedule not tolerated; "
        "needs 4 GPUs; 0 are free on nodes that accept it; these nodes together have 0; "
        "impossible on these nodes, whatever ends or is stopped"
    )


def test_a_limit_is_told_by_its_numbers_also_in_a_full_cluster() -> None:
    world = cluster(
        [node("n0", gpus=4)],
        [pod("x", gpus=4), pod("r", "n0", gpus=4)],
        queues=[queue("q", limit={"gpu": 4})],
        groups={"r": {"preemptibility": "non-preemptible"}},
    )
    entry = Explainer(Draft(world, NOW), Settings(), kinds=()).explain(GroupKey("default", "x"))
    assert ["non-preemptible", "room:gpu"] in [sorted(one) for one in entry["blocking"]]
    assert (entry["reason"], entry["message"]) == ("OverLimit", "queue q: limit 4 GPUs, used 4, needs 4")


def test_a_share_of_a_gpu_is_asked_for_in_words() -> None:
    op = {"op": "set-request", "podGroup": "default/x", "resource": "gpu-fraction", "value": 0.4}
    assert describe({"ops": [op]}) == "ask for a gpu-fraction of 0.4 per pod"
    assert describe({"ops": [{**op, "resource": "nvidia.com/gpu", "value": 4}]}) == ("ask for 4 GPUs per pod")


def test_all_that_would_lose_are_counted() -> None:
    """Six others would lose by a change: the text names four of them and says that there are two more."""
    world = cluster([node("n0", gpus=1)], [pod("x", gpus=2)])
    entry = Explainer(Draft(world, NOW), Settings(), kinds=("reduce-request",)).explain(
        GroupKey("default", "x")
    )
    (fix,) = entry["fixes"]
    names = [f"default/r{i}" for i in range(6)]
    (line,) = fix_lines({**entry, "fixes": [{**fix, "lose": names}]})
    assert line.endswith("; default/r0, default/r1, default/r2, default/r3 and 2 more would lose")


def test_all_ahead_are_counted_and_the_next_before_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five jobs come before x. Two are named: the first one, and the one directly before x."""
    monkeypatch.setattr(document, "MOST_AHEAD", 2)
    world = cluster([node("n0", gpus=1)], [pod(name, gpus=2) for name in ("a", "b", "c", "d", "e", "x")])
    entry = Explainer(Draft(world, NOW), Settings(), kinds=()).explain(GroupKey("default", "x"))
    assert [one["podGroup"] for one in entry["position"]["ahead"]] == ["default/a", "default/e"]
    assert "Ahead    10 GPUs of 5 pod groups; next before it default/e (older)" in lines(entry)


def test_shares_are_told_of_what_the_victims_queue_holds_too_much_of() -> None:
    """Two jobs of one CPU of q, whose fair share is one of two CPUs; x of the other queue takes one."""
    world = cluster(
        [node("n0", {"cpu": "2"})],
        [pod("r0", "n0"), pod("r1", "n0"), pod("x", queue="o")],
        queues=[queue(name, quota={"cpu": 1000}) for name in ("q", "o")],
    )
    explainer = Explainer(Draft(world, NOW), Settings(), kinds=())
    entries = explainer.explain_all(explainer.waiting())
    (gone,) = [entry["evictedBy"] for entry in entries if entry["state"] == "evicted"]
    shares = "queue q holds 2 CPUs, its fair share is 1; queue o holds 0 CPUs, its fair share is 1"
    assert gone["because"] == shares


def test_a_share_of_memory_needs_a_part_of_a_gpu() -> None:
    """x asks for 4,000 of 40,000 MiB."""
    world = cluster([node("n0", gpus=1)], [pod("r", "n0", gpus=1), pod("x", notes={"gpu-memory": "4000"})])
    entry = Explainer(Draft(world, NOW), Settings(), kinds=()).explain(GroupKey("default", "x"))
    assert "needs 1 pod with 0.1 of a GPU" in "\n".join(lines(entry))
    assert entry["message"].startswith("needs 4000 MiB of a GPU; no GPU has that much free")


def test_shares_of_more_gpus_than_a_node_has_are_told() -> None:
    many = pod("x", notes={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"})
    entry = Explainer(Draft(cluster([node("n0", gpus=1)], [many]), NOW), Settings(), kinds=()).explain(
        GroupKey("default", "x")
    )
    assert entry["message"].startswith("needs 0.5 of each of 2 GPUs; no node has that free")


def test_the_pods_of_a_gang_are_counted_with_what_they_ask_for() -> None:
    """A launcher without GPUs and two workers with two each; one GPU is free."""
    pods = [pod("x0", group="x"), *(pod(f"x{i}", gpus=2, group="x") for i in (1, 2))]
    world = cluster([node("n0", gpus=1)], pods, groups={"x": {"minMember": 3}})
    entry = Explainer(Draft(world, NOW), Settings(), kinds=()).explain(GroupKey("default", "x"))
    assert entry["message"].startswith("needs 4 GPUs for 3 pods; 1 is free")


def test_steps_of_a_goal_are_not_told() -> None:
    name = "reclaim: lost beyond what is admitted [steps]"
    cost = {"name": name, "value": 1, "bound": 1, "proved": True}
    world = cluster([node("n0", gpus=1)], [pod("x", gpus=2)])
    entry = Explainer(Draft(world, NOW), Settings(), kinds=()).explain(GroupKey("default", "x"))
    by = {"pods": ["default/r"], "for": [], "action": "reclaim", "rule": "fair-share", "because": "so"}
    text = lines({**entry, "state": "evicted", "evictedBy": {**by, "alternatives": [cost]}})
    assert "beyond" not in "\n".join(text)


def test_costs_of_zero_are_left_out() -> None:
    values = {"reclaim: lost work at priority 75 [GPU-milliseconds]": 0, "reclaim: pod groups stopped": 1}
    costs = [{"name": name, "value": value, "bound": 0, "proved": False} for name, value in values.items()]
    world = cluster([node("n0", gpus=1)], [pod("x", gpus=2)])
    entry = Explainer(Draft(world, NOW), Settings(), kinds=()).explain(GroupKey("default", "x"))
    by = {"pods": ["default/r"], "for": [], "action": "reclaim", "rule": "fair-share", "because": "so"}
    text = lines({**entry, "state": "evicted", "evictedBy": {**by, "alternatives": costs}})
    assert [line for line in text if "priority 75" in line] == []
    assert any("pod groups stopped by reclaim in all: 1" in line for line in text)


def test_a_group_that_no_rule_blocks_needs_no_proof() -> None:
    world = cluster([node("n0", gpus=1)], [pod("x", gpus=2)])
    entry = Explainer(Draft(world, NOW), Settings(), kinds=()).explain(GroupKey("default", "x"))
    assert "none: no rule blocks it" in "\n".join(lines({**entry, "reason": "FitsAsItIs"}))


def test_the_page_is_told_what_was_not_tried() -> None:
    late = [{"kind": "combined", "because": "not tried: the work that the budget allows is done"}]
    assert remedies({"fixes": [], "noFix": []}) == {"fixes": [], "note": "none was tried"}
    said = "none was tried; not tried within the budget: two kinds together"
    assert remedies({"fixes": [], "noFix": late}) == {"fixes": [], "note": said}


def test_kinds_that_were_not_tried_are_told_as_kinds_of_fixes() -> None:
    late = [{"kind": kind, "because": "not tried: the deadline has passed"} for kind in ("stop", "combined")]
    entry: dict[str, Any] = {"fixes": [], "noFix": late}
    said = "not tried within the budget: stop, two kinds together; a larger --budget tries more"
    assert " ".join(" ".join(_fixes(entry)).split()) == f"Fixes none was tried {said}"


def test_rules_that_leave_no_plan_are_told_in_words() -> None:
    sets = [["action:consolidation", "fragmentation", "room:gpu"], ["limit:q.gpu"]]
    entry: dict[str, Any] = {"reason": "", "proof": "proved", "blocking": sets, "minimal": True}
    assert _proof({**entry, "notInvolved": ["room:cpu"]}) == (
        "no plan is possible with: consolidation off, each pod on one node, free GPUs; "
        "nor with: the limit of q.gpu; not involved: free CPUs"
    )
    alone = {**entry, "blocking": [["taint"]], "minimal": False, "notInvolved": []}
    assert _proof(alone) == "no plan is possible with: taints (perhaps not all of them are needed)"


def test_each_rule_has_words() -> None:
    assert list(RULES) == list(ORDER)
