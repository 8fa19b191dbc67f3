"""Kinds that a Karta describes: instances, filters and faults, as compared with KAI's own pod grouper."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kai_cp.workloads.batch import group_documents
from kai_cp.workloads.karta import program
from kai_cp.workloads.settings import GroupingSettings
from tests.support.workloads import KARTA, karta, made, pod

Object = dict[str, Any]
CREWS = [{"name": "a", "replicas": 2, "min": 1}, {"name": "b", "replicas": 3}]
FLEET: Object = {"boss": {"replicas": 1}, "crew": {"replicas": 4, "min": 2}, "crews": CREWS}
DEFAULT = "pg-f-"


def described(*, crew: Object | None = None, boss: Object | None = None, **gang: Any) -> Object:
    """The Karta of fleets with changed components and another division into groups."""
    found = karta()
    spec = found["spec"] = deepcopy(KARTA)
    for change, component in zip((boss, crew), spec["structureDefinition"]["childComponents"], strict=True):
        component |= change or {}
    if gang:
        spec["optimizationInstructions"]["gangScheduling"] = gang
    return found


def answer(description: Object, role: str = "crew", instance: str = "a", **spec: Any) -> Object:
    fleet = made("example.com/v1", "Fleet", "f", spec=deepcopy(FLEET) | spec)
    member = pod("x", fleet, labels={"fleet/role": role, "inst": instance})
    settings = {"kind": "GroupingSettings", "spec": {"kartaInstalled": True}}
    return group_documents([settings, fleet, description, member], GroupingSettings())


def group(found: Object) -> Object:
    assert found["errors"] == []
    (only,) = found["podGroups"]
    shown: Object = only
    return shown


def selector(**more: Any) -> Object:
    return {"componentTypeSelector": {"keyPath": '.metadata.labels["fleet/role"]', "value": "crew"}, **more}


PATHS = {"replicasPath": ".spec.crews[].replicas", "minReplicasPath": ".spec.crews[].min"}
INSTANCES: Object = {
    "instanceIdPath": ".spec.crews[].name",
    "podSelector": selector(componentInstanceSelector={"idPath": '.metadata.labels["inst"]'}),
    "scaleDefinition": PATHS,
}
DIVIDED: list[Object] = [
    {"name": "g", "members": [{"componentName": "crew", "groupByKeyPaths": ['.metadata.labels["inst"]']}]}
]


def divided(**member: Any) -> list[Object]:
    return [{"name": "g", "members": [{"componentName": "crew", **member}]}]


@pytest.mark.parametrize(("instance", "least"), [("a", 1), ("b", 3)])
def test_an_instance_has_its_own_group_and_scale(instance: str, least: int) -> None:
    found = group(answer(described(crew=INSTANCES, podGroups=DIVIDED), instance=instance))
    assert found["metadata"]["name"].endswith(f"-{instance}")
    assert found["spec"]["minMember"] == least


def test_instances_are_counted_where_nothing_has_a_scale() -> None:
    without = described(crew=INSTANCES, podGroup={"name": "all", "subGroups": [{"componentName": "crew"}]})
    for component in without["spec"]["structureDefinition"]["childComponents"]:
        component.pop("scaleDefinition", None)
    (crew,) = group(answer(without))["spec"]["subGroups"]
    assert crew["minMember"] == len(CREWS)


def test_a_whole_number_may_be_written_with_a_point() -> None:
    found = group(answer(described(), crew={"replicas": 4.0, "min": None}))
    assert [one["minMember"] for one in found["spec"]["subGroups"]] == [1, 4]


@pytest.mark.parametrize(
    ("description", "fleet", "problem"),
    [
        (described(crew={"scaleDefinition": PATHS}), {}, "component crew: 2 scales for 1 instances"),
        (described(crew={"scaleDefinition": {}}), {}, "component crew: 0 scales for 1 instances"),
        (described(), {"crew": {"replicas": "4"}}, ".spec.crew.replicas: "),
        (described(), {"crew": {"replicas": 2**31}}, ".spec.crew.replicas: "),
        (described(crew=INSTANCES, podGroups=DIVIDED), {"crews": CREWS[1:]}, '"a" is not an instance of it'),
        (described(crew=INSTANCES, podGroups=DIVIDED), {"crews": [{"name": None}]}, "is not a name"),
        (described(podGroups=divided(groupByKeyPaths=[".metadata.labels.none"])), {}, "names 1 values"),
        (described(podGroups=divided(groupByKeyPaths=[".spec.containers[].ports"])), {}, "names 1 values"),
        (described(podGroups=divided(filters=["null"])), {}, "null: names 1 values"),
        (described(podGroups=divided(filters=["false"])), {}, "no member of a pod group takes the pod"),
        (described(podGroups=[{"name": "g", "members": []}]), {}, "no member of a pod group takes the pod"),
        (described(podGroup={"name": "all", "topology": {}}), {}, "needs a name and a level"),
        (
            described(podGroup={"name": "all", "subGroups": [{"componentName": "none"}]}),
            {},
            '"none" is not a component',
        ),
    ],
)
def test_a_fault_in_a_usable_karta_is_an_error_of_the_pod(
    description: Object, fleet: Object, problem: str
) -> None:
    found = answer(description, **fleet)
    assert found["podGroups"] == []
    (error,) = found["errors"]
    assert problem in error["message"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kind", {"group": "example.com", "version": "v2", "kind": "Fleet"}),
        ("kind", {"group": "", "version": "v1", "kind": "Fleet"}),
        ("statusDefinition", None),
        ("ownerRef", "boss"),
        ("specDefinition", {"podSpecPath": ".a", "podTemplateSpecPath": ".b"}),
    ],
)
def test_a_karta_that_is_not_usable_leaves_the_default(key: str, value: Any) -> None:
    broken = described()
    broken["spec"]["structureDefinition"]["rootComponent"][key] = value
    assert group(answer(broken))["metadata"]["name"].startswith(DEFAULT)


@pytest.mark.parametrize(
    "text",
    [
        ".spec.range.limit",
        ".spec.containers[0].env | length",
        '.metadata.labels["app/input"]',
        '.metadata.labels["a=b"] == "def"',
        "first(.a[]?)",
        "[limit(1; .a[]?)] | length >= 1",
        r'"\(.metadata.name)-x"',
    ],
)
def test_fields_and_texts_may_have_any_name(text: str) -> None:
    program(text)


@pytest.mark.parametrize(
    "text",
    [
        "[range(9)]",
        r'"\(range(9))"',
        r'"a\(1)" | range(9) | "b"',
        '# "\nrange(9) # "',
        "..",
        "[paths]",
        "del(.a)",
        ".a = 1",
        ".a |= 1",
        "env",
        "$ENV.HOME",
        "def f: f; f",
    ],
)
def test_a_path_only_reads_and_has_an_end(text: str) -> None:
    with pytest.raises(ValueError, match="is not allowed"):
        program(text)
