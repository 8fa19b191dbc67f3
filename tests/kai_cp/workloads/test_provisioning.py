"""ProvisioningRequests: what a gang lacks, whole or not at all, and nothing that a quota holds back."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.instants import rfc3339
from kai_cp.workloads.provisioning import (
    ATOMIC,
    CLASS,
    CONSUMES,
    MOST_SETS,
    RETRY_SECONDS,
    Request,
    Step,
    step,
    template_names,
)

NOW = 1_800_000_000.0
Object = dict[str, Any]


def group(minimum: int | None = 2, **spec: Any) -> Object:
    """A pod group."""
    if minimum is not None:
        spec["minMember"] = minimum
    return {"metadata": {"name": "pg", "namespace": "ns", "uid": "u1"}, "spec": {"queue": "q", **spec}}


def pod(name: str, state: str = "Unschedulable", *, gpus: int = 1, subgroup: str = "", **meta: Any) -> Object:
    """A pod that waits, unless ``state`` is the node on which it runs."""
    labels = {"kai.scheduler/subgroup-name": subgroup} if subgroup else {}
    amounts = {"nvidia.com/gpu": str(gpus)}
    found: Object = {
        "metadata": {"name": name, "namespace": "ns", "labels": labels, "annotations": {}, **meta},
        "spec": {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]},
        "status": {"phase": "Pending"},
    }
    if state.startswith("node"):
        found["spec"]["nodeName"] = state
    elif state:
        found["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": state}]
    return found


def run(pods: list[Object], pg: Object | None = None, *requests: Object, now: float = NOW) -> Step:
    return step(pg or group(), pods, requests, ATOMIC, now)


def counts(request: Request | None) -> list[int]:
    """The number of pods of every set."""
    return [] if request is None else [entry["count"] for entry in request.body["spec"]["podSets"]]


def stored(request: Request | None, *conditions: tuple[str, float]) -> Object:
    """The request as the server has it."""
    assert request is not None
    said = [
        {"type": kind, "status": "True", "message": f"it is {kind}", "lastTransitionTime": rfc3339(since)}
        for kind, since in conditions
    ]
    return {**request.body, "status": {"conditions": said}}


TREE = {
    "subGroups": [
        {"name": "boss", "minMember": 1},
        {"name": "crew", "minSubGroup": 1},
        {"name": "crew-0", "parent": "crew", "minMember": 2},
        {"name": "crew-1", "parent": "crew", "minMember": 2},
    ]
}
CREW = [pod(f"c{i}{k}", subgroup=f"crew-{i}") for i in range(2) for k in range(2)]


@pytest.mark.parametrize(
    ("pods", "pg", "wanted"),
    [
        ([pod("a"), pod("b")], group(2), [2]),
        ([pod("a"), pod("b", gpus=4)], group(2), [1, 1]),
        ([pod("a"), pod("b"), pod("c")], group(2), [2]),  # Pods beyond the minimum are requested separately.
        ([pod("a")], group(1), []),  # One pod: nothing has to come together.
        ([pod("a")], group(2), []),  # The other one does not exist yet.
        ([pod("a"), pod("b", "")], group(2), []),  # The scheduler has not looked at the other one yet.
        ([pod("a"), pod("b", "SchedulingGated")], group(2), []),
        # It runs; the third pod is elastic.
        ([pod("a", "node1"), pod("b", "node1"), pod("c")], group(2), []),
        ([pod("a", "node1"), pod("b"), pod("c")], group(3), [2]),
        ([pod("a", deletionTimestamp="now"), pod("b"), pod("c")], group(2), [2]),
        (
            [pod("m", gpus=4, subgroup="boss"), *CREW],
            group(None, **TREE),
            [1, 2],
        ),  # One crew of two is enough.
        (
            [pod("m", gpus=4, subgroup="boss"), *CREW[1:]],
            group(None, **TREE),
            [1, 2],
        ),  # The crew that is complete.
        ([pod("m", gpus=4, subgroup="boss"), *CREW[1:3]], group(None, **TREE), []),
        ([pod("a", annotations={"gpu-fraction": "0.5"}), pod("b")], group(2), []),  # Scaling pods request it.
        # Another program requested it.
        ([pod("a", annotations={CONSUMES: "kueue-1"}), pod("b")], group(2), []),
        ([pod(f"p{i}", gpus=i + 1) for i in range(MOST_SETS + 1)], group(MOST_SETS + 1), []),
        ([pod("a"), pod("b")], group(2, subGroups="nonsense"), []),
    ],
)
def test_a_gang_is_asked_for_as_a_whole_or_not_at_all(
    pods: list[Object], pg: Object, wanted: list[int]
) -> None:
    assert sorted(counts(run(pods, pg).make)) == wanted


@pytest.mark.parametrize(("levels", "alike"), [(200, 1), (12, 2), (40, 2)])
def test_a_tree_that_no_gang_can_have_is_asked_for_in_no_time(levels: int, alike: int) -> None:
    """The API server takes chains of any length and, where no admission runs, subgroups of one name, of which
    each level of two doubled the work.
    """
    last = levels - 1
    parents = [{"name": f"s{i}", "parent": f"s{i - 1}" if i else "", "minSubGroup": 1} for i in range(last)]
    leaf = {"name": f"s{last}", "parent": f"s{last - 1}", "minMember": 2}
    chain = [entry for entry in (*parents, leaf) for _ in range(alike)]
    waiting = [pod(f"p{i}", subgroup=f"s{last}") for i in range(3)]
    assert run(waiting, group(None, subGroups=chain)) == Step(marks={})


@pytest.mark.parametrize("reason", ["OverLimit", "NonPreemptibleOverQuota", "QueueDoesNotExist"])
def test_nothing_is_asked_for_what_a_quota_holds_back(reason: str) -> None:
    pods = [pod("a"), pod("b")]
    asked = run(pods).make
    held = {**group(), "status": {"schedulingConditions": [{"reasons": [{"reason": reason}]}]}}
    found = run(pods, held, stored(asked))
    assert found.make is None
    assert found.delete == (stored(asked)["metadata"]["name"],), "and what was asked is taken back"


def test_a_request_belongs_to_its_group_and_asks_where_its_pods_could_run() -> None:
    pods = [pod("a"), pod("b")]
    for item in pods:
        item["spec"] |= {"nodeSelector": {"gpu": "h100"}, "tolerations": [{"operator": "Exists"}]}
        item["spec"]["serviceAccountName"] = "secret"
        item["metadata"]["labels"] = {"app": "train", "index": item["metadata"]["name"]}
    made = run(pods).make
    assert made is not None
    assert made.pods == {"a", "b"}
    owner = made.body["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("PodGroup", "pg", "u1")
    assert made.body["spec"]["provisioningClassName"] == ATOMIC
    (template,) = made.templates
    assert template_names(made.body) == [template["metadata"]["name"]]
    spec = template["template"]["spec"]
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"gpu": "h100"}, [{"operator": "Exists"}])
    assert "serviceAccountName" not in spec
    assert template["template"]["metadata"]["labels"] == {"app": "train"}, "labels that all of them have"


def test_pods_are_marked_once_and_freed_when_they_are_not_covered() -> None:
    pods = [pod("a"), pod("b"), pod("c")]
    first = run(pods)
    assert first.make is not None
    assert first.marks == {name: {CONSUMES: first.make.name, CLASS: ATOMIC} for name in "ab"}
    for item in pods[:2]:
        item["metadata"]["annotations"] = dict((first.marks or {})[item["metadata"]["name"]])
    again = run(pods, None, stored(first.make))
    assert (again.make, again.delete, again.marks) == (None, (), {})
    pods[0]["spec"]["nodeName"] = pods[2]["spec"]["nodeName"] = "n1"  # The scheduler chose others.
    after = run(pods, None, stored(first.make))
    assert after.delete == (first.make.name,)
    assert after.marks == {"b": {CONSUMES: None, CLASS: None}}, "an autoscaler may look at it again"


def test_a_request_lives_while_words_change_and_ends_with_its_reason() -> None:
    pods = [pod("a"), pod("b")]
    asked = stored(run(pods).make)
    looked = [pod("a"), pod("b", "")]
    assert run(looked, None, asked) == Step()
    larger = run([*pods, pod("c")], group(3), asked)
    assert larger.make is not None
    assert larger.delete == (asked["metadata"]["name"],)
    assert run([], None, asked).delete == (asked["metadata"]["name"],)


def test_answers_of_the_autoscaler_end_a_request() -> None:
    pods = [pod("a"), pod("b")]
    made = run(pods).make
    assert run(pods, None, stored(made, ("Provisioned", NOW))).delete == ()
    gone = run(pods, None, stored(made, ("Provisioned", NOW), ("BookingExpired", NOW)))
    assert (gone.make, bool(gone.delete)) == (made, True)
    failed = stored(made, ("Failed", NOW))
    told = run(pods, None, failed, now=NOW + 10)
    assert (told.make, told.delete, told.failed) == (None, (), "it is Failed")
    assert told.after == RETRY_SECONDS - 10
    again = run(pods, None, failed, now=NOW + RETRY_SECONDS)
    assert (again.make, bool(again.delete)) == (made, True)
