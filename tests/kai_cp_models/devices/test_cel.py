"""CEL selectors as the DRA documentation writes them."""

from __future__ import annotations

import pytest

from kai_cp_models.devices.dra import cel
from kai_cp_models.devices.quantity import quantity, version

GPU = cel.View(
    "gpu.example.com",
    (
        (("gpu.example.com", "driverVersion"), ("version", version("550.54.15"))),
        (("gpu.example.com", "index"), ("int", 3)),
        (("gpu.example.com", "mig"), ("bool", False)),
        (("gpu.example.com", "model"), ("string", "H100-SXM5")),
    ),
    ((("gpu.example.com", "memory"), quantity("80Gi")),),
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
        # A domain that the device lacks is empty; a missing attribute is an error, hence no match.
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
    ("written", "value"), [("1Ki", 1024), ("1.5k", 1500), ("500m", 0.5), ("1e3", 1000), (4, 4)]
)
def test_quantities(written: object, value: float) -> None:
    assert quantity(written) == value
