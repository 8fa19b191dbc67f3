"""CEL selectors as the DRA documentation writes them."""

from __future__ import annotations

import pytest

from kai_cp_models.quantity import exact, version
from kai_cp_models.records.devices import DeviceView
from kai_cp_models.rules.stateful.dra import cel

GPU = DeviceView(
    "gpu.example.com",
    (
        (("gpu.example.com", "driverVersion"), ("version", version("550.54.15"))),
        (("gpu.example.com", "index"), ("int", 3)),
        (("gpu.example.com", "mig"), ("bool", False)),
        (("gpu.example.com", "model"), ("string", "H100-SXM5")),
    ),
    ((("gpu.example.com", "memory"), exact("80Gi")),),
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "gpu.example.com"', True),
        ('device.driver == "other"', False),
        ('device.attributes["gpu.example.com"].model == "H100-SXM5"', True),
        ("device.attributes['gpu.example.com'].model.lowerAscii().matches('^h100')", True),
        ('device.attributes["gpu.example.com"].index in [1, 3]', True),
        ('!device.attributes["gpu.example.com"].mig', True),
        ('device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0', True),
        ('device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("80Gi"))', False),
        ('device.capacity["gpu.example.com"].memory == quantity("81920Mi")', True),
        ('device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("550.9.0"))', True),
        ('device.attributes["gpu.example.com"].driverVersion.compareTo(semver("551.0.0")) < 0', True),
        ('device.attributes["gpu.example.com"].driverVersion.major() == 550', True),
        # A domain that the device lacks is empty; a missing attribute is an error, so the device does not
        # match.
        ('"model" in device.attributes["other.com"]', False),
        ('device.attributes["other.com"].model == "x"', False),
        (
            'has(device.attributes["gpu.example.com"].nope) && device.attributes["gpu.example.com"].nope',
            False,
        ),
        ('cel.bind(d, device.attributes["gpu.example.com"], d.index == 3 && !d.mig)', True),
        ('device.attributes["gpu.example.com"].?mig.orValue(true)', False),
        ('device.attributes["gpu.example.com"].?nope.orValue(true)', True),
        ('device.attributes["gpu.example.com"].exists(name, name == "model")', True),
        ("device.allowMultipleAllocations", False),
        ("1 + 1", False),
    ],
)
def test_selectors(expression: str, expected: bool) -> None:
    assert cel.matches(expression, GPU) is expected


@pytest.mark.parametrize(
    "expression", ["device.driver ==", "cel.bind(a, b)", "device.attributes[", "cel.bind("]
)
def test_unparsable(expression: str) -> None:
    with pytest.raises(cel.SelectorError, match="cannot parse CEL"):
        cel.check(expression)


def test_versions_order_as_semver_does() -> None:
    written = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0", "1.0.1", "1.10.0"]
    assert sorted(map(version, reversed(written))) == list(map(version, written))


@pytest.mark.parametrize(
    ("written", "value"), [("1Ki", 1024), ("1.5k", 1500), ("500m", 0.5), ("1e3", 1000), ("4", 4)]
)
def test_quantities(written: str, value: float) -> None:
    assert exact(written) == value


def rounds(depth: int, body: str = "true", items: str = "[1,2,3,4,5,6,7,8,9,10]") -> str:
    """Nested macros: every level has ten times as many rounds."""
    for level in range(depth):
        body = f"{items}.all(x{level}, {body})"
    return body


def doubled(times: int, start: str, value: str = "{0} + {0}") -> str:
    body = f"x{times} == x{times}"
    for level in range(times, 0, -1):
        body = f"cel.bind(x{level}, {value.format(f'x{level - 1}')}, {body})"
    return f"cel.bind(x0, {start}, {body})"


@pytest.mark.parametrize(
    "expression",
    [
        rounds(5),
        doubled(40, '"a"'),
        doubled(40, "[1]"),
        doubled(40, "[1]", "[{0}, {0}]"),
        doubled(12, '"' + "a" * 100 + '"', '{0}.replace("a", "' + "a" * 100 + '")'),
        doubled(12, '["' + "a" * 100 + '"]', '{0}.join("").split("").map(y, {0}.join(""))'),
        rounds(2, '"' + "a" * 2000 + '".matches("' + "(a?){50}" * 20 + '")'),
        "1 in " + rounds(1, "true").replace(".all(x0, true)", "") * 1 + " || " + rounds(4, "7 in [7, 8]"),
    ],
)
def test_a_long_expression_ends_at_its_budget(expression: str) -> None:
    verdict = cel.judge(expression, GPU, 5_000)
    assert verdict == cel.CelVerdict(holds=False, steps=5_000, over=True)


def test_steps_are_counted_the_same_way_every_time() -> None:
    few, many = cel.judge(rounds(1), GPU), cel.judge(rounds(3), GPU)
    assert few.holds
    assert 100 < few.steps < 500
    assert 50 * few.steps < many.steps < 200 * few.steps
    # A selector that ran out of a small budget is tried again with a larger one, but not with a smaller one.
    assert cel.judge(rounds(2), GPU, 100).over
    assert cel.judge(rounds(2), GPU, 50).steps == 100
    assert cel.judge(rounds(2), GPU).holds


def test_regular_expressions_are_of_the_kind_that_ends() -> None:
    assert not cel.matches('"' + "a" * 1000 + '!".matches("^(a+)+$")', GPU)
    assert not cel.matches('"a".matches("(")', GPU)


def test_an_expression_that_the_server_would_not_take() -> None:
    with pytest.raises(cel.SelectorError, match="longer than 10240 characters"):
        cel.check("true || " * 2000 + "true")
