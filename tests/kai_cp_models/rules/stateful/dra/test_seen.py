"""Only names that an expression writes out hide the others."""

from __future__ import annotations

import pytest

from kai_cp_models.rules.stateful.dra import cel

D = 'device.attributes["d"]'


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("true", set()),
        ("device.driver == 'uuid' && device.allowMultipleAllocations", set()),
        ("'d' in device.attributes", set()),
        (f"{D}.a == 1 && device.capacity['d'].b == 2", {"a", "b"}),
        (f"{D}['a'] == {D}[?'b'].orValue({D}.?c.orValue(1))", {"a", "b", "c"}),
        (f"has({D}.a) || 'b' in {D}", {"a", "b"}),
        (f"device.attributes[['d'].filter(x, x == {D}.b)[0]].a == 1", {"a", "b"}),
        ("device.attributes.d.a == 1 && device.attributes.?e.?b.hasValue()", {"a", "b"}),
        (f"cel.bind(d, {D}, d.a == 1 && cel.bind(e, d, e.b == 2))", {"a", "b"}),
        ("cel.bind(x, device, (x.attributes)['d'].a == 1)", {"a"}),
        (f"{D}['a' + 'b'] == 1", None),
        (f"{D} == {{'a': 1}}", None),
        (f"{D}.size() == 1 && {D}.a == 1", None),
        (f"{D}.all(x, x == 'a')", None),
        (f"{D}.exists(k, v, k == 'a')", None),
        (f"[{D}][0].a == 1", None),
        (f"(true ? {D} : {D}).a == 1", None),
        ("device.attributes[?'d'].orValue({}).a == 1", None),
        ("device.attributes[?'d'].optMap(d, d.a == 1).orValue(false)", None),
        (f"[1].all(x, cel.bind(d, {D}, d[string(x)] == 1))", None),
        ("device == device", None),
        ("device['attributes']['d'].a == 1", {"a"}),
        ("device['attri' + 'butes']['d'].a == 1", None),
        (f"'a' + 'b' in {D}", None),
    ],
)
def test_the_names_that_an_expression_reads(expression: str, names: set[str] | None) -> None:
    assert not cel.compiled(expression).problem
    assert cel.compiled(expression).names == names
