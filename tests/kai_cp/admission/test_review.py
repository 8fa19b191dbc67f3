"""Queues, pod groups and topologies at admission."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.admission.request import AdmissionRequest, AdmissionSettings, Verdict
from kai_cp.admission.review import review
from tests.kai_cp.admission.build import created, pod_group, queue, updated

QUOTAS = AdmissionSettings(quota_validation=True)


def by_name(*queues: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Queues as a request sees them."""
    return {q["metadata"]["name"]: q for q in queues}


@pytest.mark.parametrize(
    ("child", "parent", "warnings"),
    [
        (
            {"cpu": 5},
            {"cpu": 4},
            ["child queue CPU quota (5) exceeds", "total children CPU quota (5) exceeds"],
        ),
        (
            {"gpu": 2.5},
            {"gpu": 2},
            ["child queue GPU quota (2.50) exceeds", "total children GPU quota (2.50)"],
        ),
        ({"memory": 4}, {"memory": 4}, []),
        ({"cpu": 5, "gpu": 1}, {"cpu": -1, "gpu": -1}, []),
        (
            {"cpu": -1},
            {"cpu": 4},
            ["child queue CPU quota (unlimited)", "total children CPU quota (unlimited)"],
        ),
    ],
)
def test_a_child_above_its_parent_is_a_warning(
    child: dict[str, float], parent: dict[str, float], warnings: list[str]
) -> None:
    verdict = created(queue("c", "p", **child), QUOTAS, queues=by_name(queue("p", **parent)))
    assert verdict.allowed
    assert len(verdict.warnings) == len(warnings)
    assert all(got.startswith(want) for got, want in zip(verdict.warnings, warnings, strict=True))


def test_siblings_add_up_on_both_sides() -> None:
    others = by_name(
        queue("p", children=("a", "b"), gpu=0.3), queue("a", "p", gpu=0.2), queue("b", "p", gpu=0.1)
    )
    assert created(queue("b", "p", gpu=0.1), QUOTAS, queues=others).warnings == ()
    (warning,) = created(queue("b", "p", gpu=0.2), QUOTAS, queues=others).warnings
    assert warning == "total children GPU quota (0.40) exceeds parent queue p GPU quota (0.30)"
    smaller = queue("p", children=("a", "b"), gpu=0.15)
    assert updated(smaller, others["p"], QUOTAS, queues=others).warnings == (
        "child queue a GPU quota (0.20) exceeds parent GPU quota (0.15)",
        "total children GPU quota (0.30) exceeds parent GPU quota (0.15)",
    )


def test_a_parent_must_be_there_when_quotas_are_checked() -> None:
    verdict = created(queue("c", "p"), QUOTAS)
    assert not verdict.allowed
    assert "spec.parentQueue is p: there is no such queue; create it before its children" in verdict.message
    assert "spec.parentQueue is c: a queue is not its own parent" in created(queue("c", "c"), QUOTAS).message
    assert created(queue("c", "p"), AdmissionSettings()).allowed


def test_a_parent_is_not_deleted_whichever_side_knows_its_children() -> None:
    def deleted(thing: dict[str, Any], *others: dict[str, Any]) -> Verdict:
        return review(AdmissionRequest(AdmissionSettings(), "DELETE", thing, queues=by_name(*others)))

    assert deleted(queue("p")).allowed
    assert deleted(queue("p"), queue("x", "other")).allowed
    assert "[c1 c2]" in deleted(queue("p", children=("c1",)), queue("c2", "p")).message


def test_the_deletion_of_a_queue_that_is_used_is_warned_of() -> None:
    thing = queue("q")
    thing["status"] = {"requested": {"nvidia.com/gpu": "3", "cpu": "2"}}
    verdict = review(AdmissionRequest(AdmissionSettings(), "DELETE", thing))
    assert verdict.allowed
    (warning,) = verdict.warnings
    assert warning.startswith("pod groups of queue q ask for cpu 2, nvidia.com/gpu 3")


def leaf(name: str, parent: str | None = None, minimum: int | None = 1) -> dict[str, Any]:
    """A subgroup."""
    found: dict[str, Any] = {"name": name}
    if parent is not None:
        found["parent"] = parent
    return found if minimum is None else {**found, "minMember": minimum}


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (pod_group(minMember=1, minSubGroup=1), "minMember (1) and minSubGroup are mutually exclusive"),
        (pod_group(leaf("a"), leaf("a")), "duplicate subgroup name a"),
        (pod_group(leaf("a", "A")), "parent A of a was not found"),
        (
            pod_group(leaf("a", "c"), leaf("b", "a"), leaf("c", "b")),
            "cycle detected in subgroups: a -> c -> b -> a",
        ),
        (
            pod_group({"name": "a", "minMember": 1, "minSubGroup": 1}),
            'subgroup "a": minMember and minSubGroup are',
        ),
        (pod_group(leaf("a", minimum=None)), "subgroup a: minMember is required"),
        (pod_group({"name": "a", "minSubGroup": 1}), 'subgroup "a": minSubGroup cannot be set on a leaf'),
        (pod_group(leaf("p"), leaf("c", "p")), 'subgroup "p": minMember cannot be set on a mid-level'),
        (pod_group({"name": 1}), "PodGroup cannot be read: spec.subGroups.name"),
        (pod_group(minMember="x"), "PodGroup cannot be read: spec.minMember"),
        (
            pod_group(stalenessGracePeriod="forever"),
            'spec.stalenessGracePeriod: "forever" is not a duration such as',
        ),
        (pod_group(preemptionDelay="1d"), 'spec.preemptionDelay: "1d" is not a duration such as'),
        (pod_group(leaf("a", 1)), "parent 1 of a was not found"),  # type: ignore[arg-type]
    ],
)
def test_pod_groups_that_are_no_tree_are_refused(group: dict[str, Any], message: str) -> None:
    verdict = created(group)
    assert not verdict.allowed
    assert verdict.message.startswith(message)


@pytest.mark.parametrize(
    "group",
    [
        pod_group(),
        pod_group(minMember=0),
        pod_group(minMember=1, stalenessGracePeriod="-1s", preemptionDelay="1m30s"),
        pod_group(leaf("a", minimum=0), minMember=7),
        pod_group({"name": "p", "minSubGroup": 1}, leaf("c", "p"), leaf("d", "p"), minSubGroup=1),
        pod_group({"name": "p"}, {"name": "q", "parent": "p"}, leaf("c", "q")),
    ],
)
def test_trees_pass_without_a_word(group: dict[str, Any]) -> None:
    assert created(group) == Verdict(allowed=True)


def test_a_parent_with_members_is_refused_when_new_and_a_warning_later() -> None:
    group = pod_group(leaf("p"), leaf("c", "p"))
    assert not created(group).allowed
    assert len(updated(group, pod_group()).warnings) == 1


def test_a_bad_group_that_is_stored_can_still_be_labelled() -> None:
    bad = pod_group(leaf("a", minimum=None))
    assert not updated(bad, pod_group()).allowed
    verdict = updated(bad, bad)
    assert verdict.allowed
    assert verdict.warnings == ("subgroup a: minMember is required",)


@pytest.mark.parametrize(
    ("levels", "allowed"),
    [
        ([{"nodeLabel": "a", "alias": "x"}, {"nodeLabel": "b"}], True),
        ([{"nodeLabel": "a", "alias": "x"}, {"nodeLabel": "b", "alias": "x"}], False),
        ([{"nodeLabel": "a", "alias": "b"}, {"nodeLabel": "b"}], False),
        ([{"nodeLabel": "a", "alias": ""}, {"nodeLabel": "b", "alias": ""}], True),
        ([{"nodeLabel": 1}], False),
    ],
)
def test_an_alias_means_one_level(levels: list[dict[str, Any]], allowed: bool) -> None:
    thing = {"kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": levels}}
    assert created(thing).allowed is allowed


def test_other_kinds_pass() -> None:
    assert created({"kind": "ConfigMap", "metadata": {}}).allowed
