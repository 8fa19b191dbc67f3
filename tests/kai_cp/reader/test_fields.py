"""What a form names is read at once; what is wrong with it is told as for a single field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kai_cp.reader.fields import Malformed, typed


class Inner(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    labels: dict[str, str] | None = None
    gates: list[Any] | None = None
    paused: bool | None = None


class Outer(msgspec.Struct, rename="camel"):
    spec: Inner | None = None
    containers: list[Inner] | None = None


def test_fields_without_a_type_stay_the_same_objects_and_others_are_left_out() -> None:
    gate = {"name": "g"}
    found = typed({"spec": {"gates": [gate], "labels": None, "more": 1}, "more": 2}, Outer)
    assert found == Outer(Inner(gates=[gate]))
    assert found.spec is not None
    assert found.spec.gates is not None
    assert found.spec.gates[0] is gate


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"spec": 3}, "spec: 3 is not an object"),
        ({"spec": {"nodeName": []}}, "spec.nodeName: [] is not a string"),
        ({"spec": {"labels": []}}, "spec.labels: [] is not an object"),
        ({"spec": {"labels": {"a.b/c": "x", "a`d": None}}}, "spec.labels[a`d]: null is not a string"),
        ({"spec": {"gates": {}}}, "spec.gates: {} is not a list"),
        ({"spec": {"paused": "true"}}, 'spec.paused: "true" is neither true nor false'),
        ({"spec": {"labels": {1: "x"}}}, "spec.labels: a key is not a string"),
        ({"spec": {1: "x"}}, "spec: a key is not a string"),
        ({"containers": [{}, 3]}, "containers[1]: 3 is not an object"),
        ({"containers": [{}, {"labels": {"x": True}}]}, "containers[1].labels[x]: true is not a string"),
    ],
)
def test_another_type_is_named_with_its_place(raw: Any, problem: str) -> None:
    with pytest.raises(Malformed) as told:
        typed(raw, Outer)
    assert str(told.value) == problem
    with pytest.raises(Malformed) as told:
        typed(raw, Outer, "pod")
    assert str(told.value) == f"pod.{problem}"
