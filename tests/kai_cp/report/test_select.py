"""A part of an answer: what concerns the names that were asked for, and nothing that misleads."""

from __future__ import annotations

from typing import Any

from kai_cp.report.select import Selection


def decision(kind: str, pod: str, group: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "namespace": "ns", "pod": pod, "podGroup": group, "queue": f"q-{group}", **more}


ANSWER: dict[str, Any] = {
    "decisions": [
        decision("Nominate", "x-0", "x"),
        decision("Evict", "v-0", "v", **{"for": ["ns/x"]}),
        decision("Nominate", "v-0", "v"),
        decision("Evict", "w-0", "w", **{"for": ["ns/y"]}),
        decision("Nominate", "v-1", "v"),
    ],
    "unscheduled": [],
    "queues": {"q-x": {"parent": None}, "q-v": {"parent": None}},
}


def pods(selection: Selection) -> list[tuple[str, str]]:
    return [(one["kind"], one["pod"]) for one in selection.of(ANSWER)["decisions"]]


def test_a_pod_that_is_moved_for_a_group_keeps_its_new_place_in_the_part() -> None:
    """Without it the pod would be counted as lost. What else is decided for its group is no part."""
    wanted = [("Nominate", "x-0"), ("Evict", "v-0"), ("Nominate", "v-0")]
    assert pods(Selection(groups=("x",))) == pods(Selection(queues=("q-x",))) == wanted


def test_the_group_that_loses_a_pod_has_its_eviction_too() -> None:
    assert pods(Selection(groups=("ns/w",))) == [("Evict", "w-0")]
    assert len(pods(Selection())) == 5


def test_the_nearest_names_follow_a_group_and_a_namespace_of_which_the_answer_has_nothing() -> None:
    selection = Selection(groups=("ns/xx", "v"), namespaces=("sn",))
    assert selection.unused(ANSWER, "s", lambda: {"ns/xx", "ns/x"}) == (
        [
            "--namespace sn: s has nothing of that name; the nearest: ns",
            "--group ns/xx: s has nothing of that name that waits or changes; the nearest: ns/x, ns/v, ns/w",
        ],
        False,
    )
    for known, told, missing in (
        ({"ns/x"}, "nothing of that name", True),
        ({"ns/xx"}, "nothing of that name that waits or changes", False),
        ((), "nothing of that name that waits or changes", False),
    ):
        said = [f"--group xx: s has {told}; the nearest: x"]
        assert Selection(groups=("xx",)).unused(ANSWER, "s", lambda known=known: known) == (said, missing)


def test_queues_are_part_of_an_answer_where_something_of_the_part_concerns_them() -> None:
    assert list(Selection(groups=("v",)).of(ANSWER)["queues"]) == ["q-v"]
    assert list(Selection(groups=("nobody",)).of(ANSWER)["queues"]) == []
    assert list(Selection(queues=("q-x",)).of(ANSWER)["queues"]) == ["q-x"]
    assert list(Selection().of(ANSWER)["queues"]) == ["q-x", "q-v"]
