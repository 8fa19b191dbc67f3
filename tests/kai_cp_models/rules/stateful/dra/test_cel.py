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


def matches(expression: str, device: DeviceView) -> bool:
    """Whether the device satisfies the expression, of which it shows what that can see."""
    return cel.judge(expression, cel.visible(device, cel.compiled(expression).names)).holds


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
        # The whole of a domain, and names that are computed.
        ("'gpu.example.com' in device.attributes", True),
        ("'other.com' in device.attributes", False),
        ("device.attributes['gpu.example.com']['mo' + 'del'] == 'H100-SXM5'", True),
        ("device.attributes['gpu.example.com'] == {'model': 'H100-SXM5'}", False),
        ("[device.attributes['gpu.example.com']].all(a, a.index == 3 && a.size() == 4)", True),
        ("device.attributes['gpu.example.com'].existsOne(name, name == 'model')", True),
        ("device.attributes['gpu.example.com'].exists(k, v, k == 'index' && v == 3)", True),
        ("[4, 5].all(i, v, v == i + 4) && [4, 5].existsOne(i, v, i == 1)", True),
        ("[4, 5].transformList(i, v, v > 4, i) == [1]", True),
        ("{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}", True),
        # Optional values.
        ("device.attributes['gpu.example.com'].?model.hasValue()", True),
        ("device.attributes['gpu.example.com'].?nope.hasValue()", False),
        ("device.attributes['gpu.example.com'][?'model'].orValue('') == 'H100-SXM5'", True),
        ("device.attributes.?other.?model.orValue('none') == 'none'", True),
        ("device.attributes['gpu.example.com'].?model == optional.of('H100-SXM5')", True),
        ("device.attributes['gpu.example.com'].?nope.or(optional.of(1)).value() == 1", True),
        ("device.attributes['gpu.example.com'].?index.optMap(i, i + 1).orValue(0) == 4", True),
        ("device.attributes['gpu.example.com'].?index.orValue(device.nope) == 3", True),
        ("!optional.none().hasValue() && [1, 2][?2] == optional.none()", True),
        # Numbers are compared by value; what has different types is not equal.
        ("device.attributes['gpu.example.com'].index < 3.5 && 3.0 == 3 && 3u in [3]", True),
        ("device.attributes['gpu.example.com'].model != 3", True),
        ("device.attributes['gpu.example.com'].model < 3", False),
        ("device.attributes['gpu.example.com'].mig == 0", False),
        ("device.capacity['gpu.example.com'].memory >= quantity('1Gi')", False),
        # Functions of Kubernetes.
        ("sets.contains(['H100-SXM5', 'B200'], [device.attributes['gpu.example.com'].model])", True),
        ("sets.intersects([1, 2], [2, 3]) && !sets.equivalent([1, 2], [2, 3])", True),
        ("sets.equivalent([1, 2], [2, 1, 1.0])", True),
        ("device.attributes['gpu.example.com'].model.find('[0-9]+') == '100'", True),
        ("'a1b2'.findAll('[0-9]') == ['1', '2'] && 'a1b2'.findAll('[0-9]', 1) == ['1']", True),
        ("['a', 'b', 'a'].indexOf('a') == 0 && ['a', 'b', 'a'].lastIndexOf('a') == 2", True),
        ("[1, 2, 3].sum() == 6 && [1, 3].max() == 3 && [1, 3].min() == 1 && [1, 3].isSorted()", True),
        ("'ÄB'.lowerAscii() == 'Äb' && 'abc'.substring(1) == 'bc' && 'abc'.charAt(3) == ''", True),
        ("'abc'.substring(-1) == 'c'", False),
        ("quantity('1500m').asInteger() == 1", False),
        # What is selected from what does not exist is an error, and no device satisfies an error.
        ("!has(device.nope.model)", False),
        ("'cel.bind(' != \"device.attributes['x'].?y\"", True),
        ("1 + 1", False),
    ],
)
def test_selectors(expression: str, expected: bool) -> None:
    assert matches(expression, GPU) is expected


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("device.driver ==", "cannot parse CEL at character"),
        ("cel.bind(a, b)", "its function cel.bind is not known"),
        ("device.attributes[", "cannot parse CEL"),
        ("cel.bind(", "cannot parse CEL"),
        ("[1].all(2, true)", "no name for its variable"),
        ("[1].map(x, x > 0, x) == [1]", "its macro map with 3 arguments is not known"),
        ("true || device.driver.reverse() == 'a'", "its function reverse is not known"),
        ("'%s'.format([device.driver]) == 'a'", "its function format is not known"),
        ("ip('10.0.0.1').family() == 4", "its function ip is not known"),
        ("sets.without([1], [1])", "its function sets.without is not known"),
        ("[?device.attributes[?'a']] == []", "cannot parse CEL"),
        ("(" * 5000 + "true" + ")" * 5000, "it is nested deeper than 150 levels"),
        (" && ".join(["true"] * 200), "it is nested deeper than 150 levels"),
    ],
)
def test_an_expression_that_kai_cp_cannot_evaluate_is_told(expression: str, why: str) -> None:
    assert why in cel.compiled(expression).problem
    assert "cannot evaluate the selector" in cel.compiled(expression).problem
    assert not matches(expression, GPU)


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
        "cel.bind(x, [" + "1," * 99 + "1], sets.contains(x, x))",
        '"' + "a" * 2000 + '".findAll("(.*z)|a") == []',
        "[1].all(i, x, " + rounds(5) + ")",
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
    assert cel.judge(rounds(2), GPU, 100).over
    assert cel.judge(rounds(2), GPU).holds


def test_regular_expressions_are_of_the_kind_that_ends() -> None:
    assert not matches('"' + "a" * 1000 + '!".matches("^(a+)+$")', GPU)
    assert not matches('"a".matches("(")', GPU)


def test_parsing_is_charged_by_what_is_parsed() -> None:
    """Each comma, number and name takes up to 0.1 ms, each character of a text next to nothing."""
    listed = f"1 in [{'1,' * 5000}1]"
    assert cel.parsing(listed) > 10 * 10_000
    assert cel.parsing("'" + "a" * 10_000 + '\' == "\\"' + "b" * 200 + '"') < 100
    assert cel.parsing("1," * 1_000_000) <= 10 * cel.LONGEST + 1, "it is not parsed"


def test_an_expression_that_the_server_would_not_take() -> None:
    assert "longer than 10240 characters" in cel.compiled("true || " * 2000 + "true").problem
