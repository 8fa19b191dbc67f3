"""What a workload declares about its run time reaches its pod group; what other programs write there
stays.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kai_cp.workloads.batch import group_documents
from kai_cp.workloads.settings import GroupingSettings
from tests.support.workloads import samples


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


def test_words_of_the_scheduler_are_not_taken_over() -> None:
    own = {"kai-cp/reservation": "{}", "kai-cp/ended": "now", "kai-cp/reserve": "true"}
    found = notes(None, **own)
    assert found.keys() & own.keys() == {"kai-cp/reserve"}
