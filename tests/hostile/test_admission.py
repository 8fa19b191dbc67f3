"""Nonsense in any field that admission judges: a verdict that names the field, never a crash."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp.admission.request import AdmissionRequest, AdmissionSettings
from kai_cp.admission.review import review
from tests.hostile.test_workloads import places, values

Object = dict[str, Any]
SETTINGS = AdmissionSettings(
    gpu_sharing=True, hami_core=True, block_nvidia_visible_devices=True, quota_validation=True
)
BOUNDS = {"quota": 1, "limit": 2, "overQuotaWeight": 1}
RESOURCES = {"gpu": BOUNDS, "cpu": BOUNDS, "memory": BOUNDS}
PARENT: Object = {"kind": "Queue", "metadata": {"name": "top"}, "spec": {"resources": RESOURCES}}
SAMPLES: dict[str, Object] = {
    "Pod": {
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "annotations": {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2", "mps": "true"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}],
        },
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [
                {
                    "name": "main",
                    "image": "a",
                    "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
                    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
                }
            ],
            "initContainers": [{"name": "warm", "image": "a"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    },
    "Queue": {
        "kind": "Queue",
        "metadata": {"name": "q"},
        "spec": {"parentQueue": "top", "resources": RESOURCES},
        "status": {"childQueues": ["top"]},
    },
    "PodGroup": {
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "ns"},
        "spec": {
            "queue": "q",
            "minSubGroup": 1,
            "subGroups": [
                {"name": "a", "minSubGroup": 1},
                {"name": "b", "parent": "a", "minMember": 1},
            ],
        },
    },
    "Topology": {
        "kind": "Topology",
        "metadata": {"name": "t"},
        "spec": {"levels": [{"nodeLabel": "rack", "alias": "r"}, {"nodeLabel": "host"}]},
    },
}


def judged(operation: Any, thing: Object, old: Object | None = None) -> Any:
    return review(
        AdmissionRequest(SETTINGS, operation, thing, "ns", old, {"top": PARENT}, frozenset({"nvidia"}))
    )


@pytest.mark.parametrize("kind", SAMPLES)
def test_the_samples_are_sound(kind: str) -> None:
    assert judged("CREATE", deepcopy(SAMPLES[kind])).allowed


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_nonsense_gets_a_verdict_with_its_field(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(SAMPLES)))
    thing = deepcopy(SAMPLES[kind])
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([found for found in places(thing) if found != ("kind",)]))
        holder: Any = thing
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = data.draw(values)
    for operation in ("CREATE", "UPDATE", "DELETE"):
        for old in (None, SAMPLES[kind]):
            verdict = judged(operation, thing, old)
            assert verdict.allowed or len(verdict.message) > len("x: y")
            assert "Traceback" not in verdict.message


@pytest.mark.parametrize(
    ("kind", "path", "value", "field"),
    [
        ("Pod", ("spec", "containers"), {"name": "x"}, "spec.containers"),
        ("Pod", ("metadata", "annotations"), ["x"], "metadata.annotations"),
        ("Queue", ("spec", "resources", "gpu", "quota"), "much", "quota"),
        ("PodGroup", ("spec", "subGroups"), "x", "spec.subGroups"),
        ("PodGroup", ("spec", "subGroups", 1, "parent"), [], "parent [] of b was not found"),
        ("Topology", ("spec", "levels"), 5, "spec.levels"),
    ],
)
def test_unreadable_values_are_named(kind: str, path: tuple[Any, ...], value: Any, field: str) -> None:
    thing = deepcopy(SAMPLES[kind])
    holder: Any = thing
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    verdict = judged("CREATE", thing)
    told = verdict.message + " ".join(verdict.warnings)
    assert field in told


def test_a_long_chain_of_subgroups_takes_a_step_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """An author may write tens of thousands; looking through the whole path at each would take minutes."""
    compared = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    count = 3_000
    below = [{"name": Name(f"s{i}"), "parent": Name(f"s{i + 1}")} for i in range(count)]
    groups = [*below, {"name": Name(f"s{count}"), "parent": Name("s0")}]
    verdict = judged("CREATE", {"kind": "PodGroup", "metadata": {"name": "x"}, "spec": {"subGroups": groups}})
    assert "cycle detected" in verdict.message
    assert compared < 20 * count


def test_a_message_about_megabytes_is_short() -> None:
    thing = deepcopy(SAMPLES["Pod"])
    thing["metadata"]["annotations"] = {"gpu-fraction": "9" * 1_000_000}
    verdict = judged("CREATE", thing)
    assert not verdict.allowed
    assert len(verdict.message) < 3_000
