"""Nonsense in any field of any kind of workload: one error that names object and field, never a crash."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp.workloads.batch import group_documents
from kai_cp.workloads.settings import GroupingSettings
from tests.support.workloads import made, pod, samples

SAMPLES = samples()
INSTALLED = {"kind": "GroupingSettings", "spec": {"kartaInstalled": True}}
ANNOTATIONS = (
    "kai.scheduler/batch-min-member",
    "kai.scheduler/segment-size",
    "kai.scheduler/preemption-delay",
    "kai.scheduler/staleness-grace-period",
    "kai.scheduler/topology-required-placement",
    "kai.scheduler/topology",
    "leaderworkerset.sigs.k8s.io/size",
)
LABELS = (
    "kai.scheduler/queue",
    "priorityClassName",
    "kai.scheduler/preemptibility",
    "ray.io/group",
    "project",
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from([2**31, -(2**31) - 1, 2**70, 0.5, "", "0", "-1", "3", "x", "99999999999", "é", "A b"]),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("name"), inner), max_leaves=3
)


def grouped(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return group_documents([INSTALLED, *documents], GroupingSettings())


@pytest.mark.parametrize("kind", SAMPLES)
def test_the_samples_are_sound(kind: str) -> None:
    answer = grouped(deepcopy(SAMPLES[kind]))
    assert answer["errors"] == []
    assert answer["podGroups"]
    assert all("pod-group-name" in found["annotations"] for found in answer["pods"])


def places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything below ``value``."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, child in inner for found in ((*above, key), *places(child, (*above, key)))]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_nonsense_affects_its_own_workload_only(data: st.DataObject) -> None:
    documents = deepcopy(SAMPLES[data.draw(st.sampled_from(sorted(SAMPLES)))])
    for _ in range(data.draw(st.integers(1, 3))):
        target = data.draw(st.sampled_from(documents))
        choices = [
            path
            for path in places(target)
            if path[:2] not in (("metadata", "name"), ("metadata", "namespace"))
        ]
        choices = [
            path for path in choices if path[0] not in ("apiVersion", "kind") and path != ("metadata",)
        ]
        path = data.draw(st.sampled_from(choices))
        holder: Any = target
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = data.draw(values)
    for target in documents:
        meta = target["metadata"]
        for field, names in (("annotations", ANNOTATIONS), ("labels", LABELS)):
            if isinstance(meta.get(field, {}), dict) and data.draw(st.booleans()):
                said = meta.setdefault(field, {})
                said[data.draw(st.sampled_from(names))] = data.draw(
                    st.sampled_from(["", "0", "-1", "2", "x", "1m30s", "1e9", "default", "é"])
                )
    bystander = pod("bystander")
    answer = grouped([*documents, bystander])
    for error in answer["errors"]:
        assert error["pod"] != "team-a/bystander"
        assert ": " in error["message"]
        assert "Traceback" not in error["message"]
    names = [found["metadata"]["name"] for found in answer["podGroups"]]
    assert f"pg-bystander-{bystander['metadata']['uid']}" in names


@pytest.mark.parametrize("replicas", [(10**9,), (6_000, 6_000)])
def test_a_job_set_beyond_all_clusters_is_refused_before_its_subgroups_are_made(
    replicas: tuple[int, ...],
) -> None:
    """10^9 replicas took the grouper's memory, and with it the groups of all other namespaces."""
    jobs = [{"name": f"r{i}", "replicas": count} for i, count in enumerate(replicas)]
    owner = made("jobset.x-k8s.io/v1alpha2", "JobSet", "j", spec={"replicatedJobs": jobs})
    found = group_documents([owner, pod("a", owner)], GroupingSettings())
    assert found["podGroups"] == []
    (error,) = found["errors"]
    assert (
        f"spec.replicatedJobs[{len(jobs) - 1}].replicas: {replicas[-1]} give more than 10000"
        in error["message"]
    )


def test_texts_that_each_of_thousands_of_subgroups_would_repeat_are_short() -> None:
    """A topology of 200 KB in 9,990 subgroups was a PodGroup of 2 GB, made before it was refused."""
    said = {"kai.scheduler/topology": "t" * 1_000, "kai.scheduler/topology-required-placement": "rack"}
    job = {"name": "w", "replicas": 3, "template": {"metadata": {"annotations": said}}}
    for changed, field in (({}, "subGroups[1].topologyConstraint.topology"), ({"name": "w" * 1_000}, "name")):
        owner = made("jobset.x-k8s.io/v1alpha2", "JobSet", "j", spec={"replicatedJobs": [job | changed]})
        labels = {"jobset.sigs.k8s.io/replicatedjob-name": "w", "jobset.sigs.k8s.io/job-index": "0"}
        (error,) = group_documents([owner, pod("a", owner, labels=labels)], GroupingSettings())["errors"]
        assert f".{field}: " in error["message"]
        assert len(error["message"]) < 500


@pytest.mark.parametrize("name", ["2026-02-30", "2026-13-45", "null"])
def test_a_name_that_looks_like_another_value_is_a_name(name: str) -> None:
    found = grouped([pod(name)])
    assert found["errors"] == []
    assert (
        f'name: "{name}"'
        in found["podGroups"][0]["metadata"]["annotations"]["kai.scheduler/top-owner-metadata"]
    )


def test_a_number_of_thousands_of_digits_is_no_number() -> None:
    job = made("batch/v1", "Job", "train", annotations={"kai.scheduler/batch-min-member": "9" * 5_000})
    documents = [job, pod("bad", job)]
    answer = grouped([*documents, pod("well")])
    assert answer["errors"]
    assert all("is not a whole number" in problem["message"] for problem in answer["errors"])
    assert next(one for one in answer["pods"] if one["name"] == "well")["annotations"]


@pytest.mark.parametrize(
    "spec", [{"spec": 5}, {"metadata": {"labels": {"a": 5}}}, {"metadata": {"ownerReferences": {}}}]
)
def test_a_stored_group_that_cannot_be_read_is_named(spec: dict[str, Any]) -> None:
    made_of = grouped([pod("a")])["podGroups"][0]
    meta = {**made_of["metadata"], **spec.get("metadata", {})}
    stored = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        **made_of,
        **spec,
        "metadata": meta,
    }
    errors = grouped([stored, pod("a"), pod("b")])["errors"]
    assert [problem["pod"] for problem in errors] == ["team-a/a"]
    assert errors[0]["message"].startswith(f"PodGroup team-a/{made_of['metadata']['name']}: ")
