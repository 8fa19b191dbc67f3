"""What a workload declares about its run time reaches its pod group; what other programs write there
stays.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kai_cp.workloads.batch import BatchObjects, group_documents
from kai_cp.workloads.grouper import reconcile
from kai_cp.workloads.settings import GroupingSettings
from tests.support.workloads import NAMESPACE, made, pod, samples


def notes(deadline: Any, **own: str) -> dict[str, str]:
    """Annotations of the pod group of a Job with a deadline and annotations of its own."""
    documents = deepcopy(next(d for d in samples().values() if any(one.get("kind") == "Job" for one in d)))
    job = next(one for one in documents if one.get("kind") == "Job")
    job["spec"]["activeDeadlineSeconds"] = deadline
    job["metadata"].setdefault("annotations", {}).update(own)
    found = group_documents(documents, GroupingSettings())["podGroups"]
    return next(dict(one["metadata"]["annotations"]) for one in found)


@pytest.mark.parametrize(
    ("deadline", "expected"),
    [(5400, "5400s"), (0, None), (-1, None), ("90", None), (True, None), (None, None)],
)
def test_the_deadline_of_a_job_bounds_its_run_time(deadline: Any, expected: str | None) -> None:
    assert notes(deadline).get("kai-cp/max-runtime") == expected


def test_an_annotation_counts_before_the_deadline() -> None:
    assert notes(5400, **{"kai-cp/max-runtime": "1h"})["kai-cp/max-runtime"] == "1h"


@pytest.mark.parametrize("kind", sorted(samples()))
def test_words_of_the_scheduler_are_not_taken_over(kind: str) -> None:
    """Whatever has them: a policy refuses pod groups for which another than the scheduler says them."""
    own = {"kai-cp/reservation": "{}", "kai-cp/ended": "now", "kai-cp/reserve": "true"}
    documents = deepcopy(samples()[kind])
    for one in documents:
        if one.get("kind") != "PodGroup":
            one.setdefault("metadata", {}).setdefault("annotations", {}).update(own)
    found = group_documents(documents, GroupingSettings())["podGroups"]
    assert found
    for group in found:
        assert group["metadata"].get("annotations", {}).keys() & own.keys() <= {"kai-cp/reserve"}


def told(labels: dict[str, str], annotations: dict[str, str]) -> list[tuple[str, str]]:
    """Events of the grouper about a Job with these labels and annotations."""
    objects, job = BatchObjects(), made("batch/v1", "Job", "j", labels=labels, annotations=annotations)
    objects.apply(job)
    objects.apply(pod("j-0", job))
    (item,) = objects.pods(NAMESPACE, {})
    return [(note.reason, note.text) for note in reconcile(item, objects, GroupingSettings()).notes]


def test_values_that_a_pod_group_cannot_have_are_named_once() -> None:
    wrong = {"priorityClassName": "highest", "kai.scheduler/preemptibility": "Preemptible"}
    ((reason, text),) = told(wrong, {"kai.scheduler/preemption-delay": "soon"})
    assert reason == "ValueIgnored"
    assert text == (
        'Job team-a/j: metadata.labels[priorityClassName]: there is no PriorityClass "highest"; '
        'train counts; Job team-a/j: metadata.labels[kai.scheduler/preemptibility]: "Preemptible" is neither '
        "preemptible nor non-preemptible and does not count; "
        'Job team-a/j: metadata.annotations[kai.scheduler/preemption-delay]: "soon" is not a duration such '
        "as 1m30s and does not count"
    )


def test_values_that_count_are_not_named() -> None:
    right = {"priorityClassName": "inference", "kai.scheduler/preemptibility": "preemptible"}
    delays = {"kai.scheduler/preemption-delay": "90s", "kai.scheduler/staleness-grace-period": "-1s"}
    assert told(right, delays) == []
    ((reason, text),) = told({}, {"kai.scheduler/preemption-delay": "-1s"})
    assert (reason, '"-1s"' in text) == ("ValueIgnored", True)
