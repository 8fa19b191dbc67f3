"""Pods at admission: values of annotations, wiring of the container, and which changes are still allowed."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp.admission.request import AdmissionRequest, AdmissionSettings
from kai_cp.admission.review import review
from tests.kai_cp.admission.build import SHARING, container, created, pod, updated

BLOCKING = AdmissionSettings(gpu_sharing=True, block_nvidia_visible_devices=True)


@pytest.mark.parametrize("value", ["0.5", ".5", "+0.25", "1e-1", "5E-1", "0.999", "0.5e0", "0.001"])
def test_portions_that_are_decimal_numbers_between_0_and_1_pass(value: str) -> None:
    assert created(pod({"gpu-fraction": value})).allowed


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0",
        "0.0",
        "-0.5",
        "1",
        "1.0",
        "2",
        "half",
        "1e400",
        "inf",
        "-Infinity",
        "0.5 ",
        "50m",
        "½",
        "9" * 99,
        "0." + "1" * 63,
    ],
)
def test_portions_outside_are_refused_with_what_to_write(value: str) -> None:
    verdict = created(pod({"gpu-fraction": value}))
    assert not verdict.allowed
    assert verdict.message.startswith(
        "gpu-fraction annotation value must be a positive number smaller than 1.0"
    )
    assert "nvidia.com/gpu" in verdict.message


@pytest.mark.parametrize("value", ["nan", "NaN", "0x1p-2", "0X1P-2"])
def test_numbers_that_kubernetes_cannot_read_are_refused(value: str) -> None:
    verdict = created(pod({"gpu-fraction": value}))
    assert not verdict.allowed
    assert "decimal point" in verdict.message


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({"mps": "true"}, "MPS is only supported"),
        ({"gpu-fraction": "0.5", "gpu-memory": "10"}, "cannot request both GPU and GPU memory"),
        ({"gpu-fraction-num-devices": "2"}, "cannot request multiple fractional devices"),
        ({"gpu-memory": "0"}, "gpu-memory annotation value must be a positive integer"),
        ({"gpu-memory": "4Gi"}, "without a unit"),
        ({"gpu-memory": "18446744073709551616"}, "gpu-memory annotation value must be a positive integer"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "+2"}, "fraction count annotation value"),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "x"}, "name one of main in annotation"),
    ],
)
def test_refusals_name_the_annotation(annotations: dict[str, str], words: str) -> None:
    verdict = created(pod(annotations))
    assert not verdict.allowed
    assert words in verdict.message


def test_mps_that_is_not_true_is_nothing() -> None:
    assert created(pod({"mps": "yes"})).allowed


@pytest.mark.parametrize(
    ("parts", "allowed"),
    [
        ({"limits": {"nvidia.com/gpu": "1"}}, False),
        ({"limits": {"nvidia.com/gpu": "0"}}, False),
        ({"requests": {"nvidia.com/gpu": "1"}}, False),
        ({"requests": {"nvidia.com/gpu": "0"}}, True),
        ({"limits": {"nvidia.com/mig-1g.5gb": "1"}}, False),
        ({"requests": {"nvidia.com/mig-1g.5gb": "1"}}, False),
        ({"limits": {"amd.com/gpu": "1"}}, True),
        ({"limits": {"cpu": "1"}}, True),
    ],
)
@pytest.mark.parametrize("annotations", [{"gpu-fraction": "0.5"}, {"gpu-memory": "100"}])
@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_a_part_of_a_gpu_is_never_mixed_with_devices(
    parts: dict[str, Any], allowed: bool, annotations: dict[str, str], field: str
) -> None:
    thing = pod(annotations)
    thing["spec"].setdefault(field, []).append(container("side", **parts))
    assert created(thing).allowed is allowed


def test_sharing_switched_off_refuses_and_names_the_pod() -> None:
    verdict = created(pod({"gpu-memory": ""}), AdmissionSettings())
    assert not verdict.allowed
    assert "team/p" in verdict.message


def test_a_pod_of_another_scheduler_is_returned_as_it_is() -> None:
    thing = pod({"gpu-fraction": "7"}, schedulerName="default-scheduler")
    verdict = created(thing, AdmissionSettings(), namespace="elsewhere")
    assert verdict.allowed
    assert verdict.object is thing


@pytest.mark.parametrize(
    ("metadata", "base"),
    [
        ({"name": "infer"}, "infer"),
        ({"name": "", "generateName": "infer-"}, "infer"),
        ({"name": "", "generateName": ""}, "pod"),
        ({"name": "x", "ownerReferences": [{"name": "job"}, {"name": "other"}]}, "job"),
        ({"name": "a" * 32 + "-b"}, "a" * 32),
        ({"name": "a" * 40}, "a" * 33),
    ],
)
def test_config_maps_are_named_after_owner_or_pod(metadata: dict[str, Any], base: str) -> None:
    changed = created(pod({"gpu-fraction": "0.5"}, metadata=metadata))
    assert changed.object is not None
    # metadata replaces the annotations of the helper only where it names them.
    name = changed.object["metadata"]["annotations"]["runai/shared-gpu-configmap"]
    assert re.fullmatch(re.escape(base) + "-[bcdfghjklmnpqrstvwxz2456789]{7}-shared-gpu", name)
    volume = changed.object["spec"]["volumes"][0]
    assert volume["configMap"]["name"] == f"{name}-0"
    assert re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", volume["name"])


def test_the_eleventh_container_still_has_a_short_volume_name() -> None:
    thing = pod(
        {"gpu-fraction": "0.5", "gpu-fraction-container-name": "c10"},
        *(container(f"c{i}") for i in range(11)),
    )
    thing["metadata"]["name"] = "n" * 60
    verdict = created(thing)
    assert verdict.object is not None
    assert verdict.object["spec"]["volumes"][0]["name"].startswith("n" * 32 + "-")
    assert "env" in verdict.object["spec"]["containers"][10]


def test_an_empty_container_name_means_the_first_container() -> None:
    names = {"gpu-fraction": "0.5", "gpu-fraction-container-name": ""}
    verdict = created(pod(names, container("a"), container("b")))
    assert verdict.object is not None
    assert ["env" in one for one in verdict.object["spec"]["containers"]] == [True, False]


def test_admission_replaces_our_names_and_keeps_the_rest() -> None:
    main = container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "OWN", "value": "1"}])
    thing = pod({"gpu-fraction": "0.5", "runai/shared-gpu-configmap": "mine"}, main)
    thing["spec"]["volumes"] = [{"name": "mine-0-vol", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]
    verdict = created(thing, BLOCKING)
    assert verdict.object is not None
    spec = verdict.object["spec"]
    assert [v["name"] for v in spec["containers"][0]["env"]] == [
        "OWN",
        "NVIDIA_VISIBLE_DEVICES",
        "RUNAI_NUM_OF_GPUS",
        "GPU_PORTION",
    ]
    assert spec["volumes"] == [
        {"name": "data", "emptyDir": {}},
        {"name": "mine-0-vol", "configMap": {"name": "mine-0"}},
    ]
    assert thing["spec"]["volumes"][0] == {"name": "mine-0-vol", "emptyDir": {}}, "the request is not touched"


def test_only_what_changes_of_a_pod_is_copied() -> None:
    """A copy of 3 MiB of tolerations took a second, and as much memory again."""
    thing = pod({"gpu-fraction": "0.5"}, container(env=[]), tolerations=[{"operator": "Exists"}], volumes=[])
    thing["spec"]["initContainers"] = [container("first", env=[])]
    before = copy.deepcopy(thing)
    verdict = created(thing, replace(BLOCKING, hami_core=True))
    assert verdict.object is not None
    assert thing == before, "the request is not touched"
    assert verdict.object["spec"]["tolerations"] is thing["spec"]["tolerations"]
    assert verdict.object["spec"]["initContainers"] != thing["spec"]["initContainers"]


def test_devices_are_hidden_from_containers_that_ask_for_none() -> None:
    asks = [
        container("request", requests={"nvidia.com/gpu": "1"}),
        container("limit", limits={"nvidia.com/gpu": "1"}),
        container("mig", requests={"nvidia.com/mig-1g.5gb": "1"}),
    ]
    quiet = [
        container("none", limits={"nvidia.com/gpu": "0"}),
        container("from", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {}}}]),
        container("twice", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": v} for v in ("all", "0")]),
    ]
    verdict = created(pod({}, *asks, *quiet, initContainers=[container("init")]), BLOCKING)
    assert verdict.object is not None
    spec = verdict.object["spec"]
    hidden = {c["name"]: c.get("env") for c in spec["containers"] + spec["initContainers"]}
    void = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    asking = dict.fromkeys(("request", "limit", "mig"))
    assert hidden == {**asking, "none": void, "from": void, "twice": void, "init": void}


@pytest.mark.parametrize(
    ("variable", "allowed"),
    [
        ({"value": "all"}, False),
        ({"value": "none"}, True),
        ({"value": ""}, True),
        ({"valueFrom": {"fieldRef": {}}}, False),
    ],
)
def test_a_gpu_container_may_not_choose_its_devices(variable: dict[str, Any], allowed: bool) -> None:
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", **variable}]
    thing = pod({}, container(limits={"nvidia.com/gpu": "1"}, env=env))
    assert created(thing, BLOCKING).allowed is allowed
    assert created(thing, SHARING).allowed


def test_a_missing_runtime_class_is_a_warning() -> None:
    thing = pod({"gpu-fraction": "0.5"})
    assert created(thing, runtime_classes=frozenset({"nvidia"})).warnings == ()
    assert created(thing).warnings == ()
    (warning,) = created(thing, runtime_classes=frozenset()).warnings
    assert "spec.runtimeClassName" in warning
    assert "'nvidia'" in warning


def test_a_pod_that_is_stored_badly_can_still_be_labelled_and_ended() -> None:
    bad = pod({"gpu-fraction": "2"})
    labelled = copy.deepcopy(bad)
    labelled["metadata"]["labels"] = {"a": "b"}
    assert updated(labelled, bad).allowed
    worse = copy.deepcopy(bad)
    worse["metadata"]["annotations"]["gpu-fraction"] = "3"
    assert not updated(worse, bad).allowed
    assert not updated(bad, None).allowed
    worse["metadata"]["deletionTimestamp"] = "2026-11-22T06:00:00Z"
    assert updated(worse, bad).allowed


def test_a_change_is_checked_and_never_mutates() -> None:
    thing = pod({"gpu-fraction": "0.5"})
    verdict = updated(thing, None)
    assert verdict.allowed
    assert verdict.object is thing


def test_nonsense_names_the_field() -> None:
    thing = pod({"gpu-fraction": "0.5"})
    thing["metadata"]["annotations"]["gpu-fraction"] = 1
    verdict = created(thing)
    assert not verdict.allowed
    assert "metadata.annotations" in verdict.message


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda s: st.lists(s) | st.dictionaries(st.text(max_size=4), s),
)
VALUES = st.sampled_from(["0.5", "1", "", "2", "nan", "0x1p-2", "4096", "0", "main", "side", "true"])
NAMES = st.sampled_from(
    ["gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "gpu-fraction-container-name", "mps"]
)
RESOURCES = st.dictionaries(
    st.sampled_from(["cpu", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"]),
    st.sampled_from(["0", "1", "x"]),
    max_size=2,
)
CONTAINERS = st.lists(
    st.builds(
        lambda name, requests, limits, env: container(name, requests=requests, limits=limits, env=env),
        st.sampled_from(["main", "side", "third"]),
        RESOURCES,
        RESOURCES,
        st.lists(st.builds(lambda v: {"name": "NVIDIA_VISIBLE_DEVICES", "value": v}, VALUES), max_size=2),
    ),
    max_size=3,
    unique_by=lambda c: str(c["name"]),
)
SETTINGS = st.builds(
    AdmissionSettings,
    gpu_sharing=st.booleans(),
    hami_core=st.booleans(),
    block_nvidia_visible_devices=st.booleans(),
    gpu_fraction_runtime_class_name=st.sampled_from(["", "nvidia"]),
)


@given(st.dictionaries(NAMES, VALUES), CONTAINERS, CONTAINERS, SETTINGS)
def test_an_admitted_pod_is_admitted_again_unchanged(
    annotations: dict[str, str],
    containers: list[dict[str, Any]],
    init: list[dict[str, Any]],
    settings: AdmissionSettings,
) -> None:
    thing = pod(annotations)
    thing["spec"] |= {"containers": containers, "initContainers": init}
    first = created(thing, settings)
    if not first.allowed:
        assert first.message
        return
    assert first.object is not None
    again = created(dict(first.object), settings)
    assert again == replace(first, object=again.object)
    assert again.object == first.object
    assert updated(dict(first.object), None, settings).allowed


@given(st.dictionaries(st.just("gpu-fraction-container-name"), VALUES), CONTAINERS, SETTINGS)
def test_a_pod_that_shares_no_gpu_stays_as_it_is_unless_devices_are_blocked(
    annotations: dict[str, str], containers: list[dict[str, Any]], settings: AdmissionSettings
) -> None:
    """This is why the registrations do not send such pods."""
    thing = pod(annotations)
    thing["spec"]["containers"] = containers
    verdict = created(thing, replace(settings, block_nvidia_visible_devices=False))
    assert verdict.allowed
    assert not verdict.warnings
    assert verdict.object == thing


@given(ANY, ANY, ANY)
def test_nothing_that_json_can_say_raises(metadata: Any, containers: Any, annotations: Any) -> None:
    thing = {
        "kind": "Pod",
        "metadata": {"annotations": annotations} if metadata is None else metadata,
        "spec": {"schedulerName": "kai-scheduler", "containers": containers},
    }
    for operation in ("CREATE", "UPDATE", "DELETE"):
        verdict = review(AdmissionRequest(BLOCKING, operation, thing))  # type: ignore[arg-type]
        assert verdict.allowed or verdict.message
