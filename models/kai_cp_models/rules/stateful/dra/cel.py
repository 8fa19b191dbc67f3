"""CEL selectors over devices: ``device.driver``, ``device.attributes``, ``device.capacity``.

The CEL library is imported when the first expression is compiled. A result depends only on the
expression and on the part of the device that the expression can see, so results are kept by both:
devices that differ in their UUID alone are evaluated once. Work is counted in steps (:mod:`.metered`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kai_cp_models.quantity import exact, version
from kai_cp_models.records.devices import DeviceView

_TOKEN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE: Final = re.compile(
    r"\b(all|exists|exists_one|existsOne|map|filter|size|dyn|string|type)\s*\(|==\s*device\b"
)
"""Uses of a map as a whole, not of named entries."""
_OPTIONAL: Final = re.compile(
    r"""(device(?:\.\w+|\[\s*(?:"[^"]*"|'[^']*')\s*\])*)\.\?(\w+)\.orValue\(([^()]*)\)"""
)
_BIND: Final = re.compile(r"\bcel\.bind\s*\(")

LONGEST: Final = 10 * 1024
"""Characters; the API server takes no longer expression."""
MOST_STEPS: Final = 1_000_000
"""Steps for expressions that no user wrote; a step takes about ten microseconds."""
_MOST_VERDICTS: Final = 65_536

_VERDICTS: Final[dict[tuple[str, DeviceView], CelVerdict]] = {}
"""Results by expression and by what it can see of the device: a result depends on nothing else."""


class SelectorError(ValueError):
    """An expression that cannot be parsed."""


class CelVerdict(NamedTuple):
    """The result of an expression for a device, and its steps; ``over``: the evaluation was stopped before
    its end.
    """

    holds: bool
    steps: int
    over: bool = False


def check(expression: str) -> None:
    """Raise SelectorError if the expression cannot be parsed."""
    _program(expression)


def matches(expression: str, device: DeviceView) -> bool:
    """Whether the device satisfies the expression; an evaluation error means no."""
    return judge(expression, visible(device, tokens(expression))).holds


def visible(device: DeviceView, names: frozenset[str] | None) -> DeviceView:
    """The device without the attributes and capacities of other names; None: with all."""
    if names is None:
        return device
    return device._replace(
        attributes=tuple(item for item in device.attributes if item[0][1] in names),
        capacity=tuple(item for item in device.capacity if item[0][1] in names),
    )


@lru_cache(maxsize=4096)
def tokens(expression: str) -> frozenset[str] | None:
    """Words of the expression; every name that it reads is one of them. None: it may read any."""
    return None if _WHOLE.search(expression) else frozenset(_TOKEN.findall(expression))


def judge(expression: str, device: DeviceView, most_steps: int = MOST_STEPS) -> CelVerdict:
    """Evaluate, within ``most_steps``. ``device`` has only what the expression can see."""
    key = (expression, device)
    known = _VERDICTS.get(key)
    if known is None or (known.over and known.steps < most_steps):
        known = _evaluate(expression, device, most_steps)
        if len(_VERDICTS) >= _MOST_VERDICTS:
            _VERDICTS.clear()
        _VERDICTS[key] = known
    return known


def _evaluate(expression: str, device: DeviceView, most_steps: int) -> CelVerdict:
    from celpy.celtypes import BoolType
    from celpy.evaluation import CELEvalError

    from kai_cp_models.rules.stateful.dra.metered import Meter, OverBudget

    program = _program(expression)
    meter = Meter(most_steps)
    try:
        result = program.metered({"device": _as_cel(device)}, meter)
    except OverBudget:
        return CelVerdict(holds=False, steps=most_steps, over=True)
    except (
        CELEvalError,
        ArithmeticError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
    ):
        return CelVerdict(holds=False, steps=meter.spent)
    return CelVerdict(isinstance(result, BoolType) and bool(result), meter.spent)


@lru_cache(maxsize=4096)
def _program(expression: str) -> Any:
    from celpy.celparser import CELParseError

    if len(expression) > LONGEST:
        raise SelectorError(f"cannot parse CEL {expression[:60]!r}…: it is longer than {LONGEST} characters")
    environment = _environment()
    try:
        return environment.program(environment.compile(_plain(expression)), functions=_functions())
    except (CELParseError, RecursionError) as error:
        detail = str(error).strip().splitlines()
        shown = expression if len(expression) <= 200 else f"{expression[:200]}…"
        raise SelectorError(f"cannot parse CEL {shown!r}: {detail[0] if detail else error}") from error


@lru_cache(maxsize=1)
def _environment() -> Any:
    from celpy import Environment

    from kai_cp_models.rules.stateful.dra.metered import MeteredRunner

    # The library changes the recursion limit of the whole program, which a selector does not need.
    limit = sys.getrecursionlimit()
    try:
        return Environment(runner_class=MeteredRunner)
    finally:
        sys.setrecursionlimit(limit)


def _plain(expression: str) -> str:
    """The expression without ``cel.bind`` and ``.?``, which the library lacks, in equivalent CEL."""
    plain = _OPTIONAL.sub(r"(has(\1.\2) ? \1.\2 : (\3))", expression)
    while (found := _BIND.search(plain)) is not None:
        parts, end = _arguments(plain, found.end())
        if len(parts) != 3:
            raise SelectorError(f"cannot parse CEL {expression!r}: cel.bind takes three arguments")
        name, value, body = parts
        plain = f"{plain[: found.start()]}[{value}].map({name.strip()}, {body})[0]{plain[end:]}"
    return plain


def _arguments(expression: str, start: int) -> tuple[list[str], int]:
    """Arguments of a call whose parenthesis opened just before ``start``, and where it ends."""
    parts, depth, quote, begin = [], 0, "", start
    for i in range(start, len(expression)):
        char = expression[i]
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}" and depth:
            depth -= 1
        elif char == "," and not depth:
            parts.append(expression[begin:i])
            begin = i + 1
        elif char == ")":
            return [*parts, expression[begin:i]], i + 1
    raise SelectorError(f"cannot parse CEL {expression!r}: parenthesis not closed")


@lru_cache(maxsize=1)
def _functions() -> dict[str, Callable[..., Any]]:
    """The Kubernetes functions on quantities, versions and strings."""
    from celpy.celtypes import BoolType, DoubleType, IntType

    def parses(parse: Callable[[str], object]) -> Callable[..., Any]:
        def test(written: str) -> Any:
            try:
                parse(str(written))
            except ValueError:
                return BoolType(False)
            return BoolType(True)

        return test

    return {
        "quantity": lambda written: exact(str(written)),
        "isQuantity": parses(exact),
        "semver": lambda written, normalize=False: version(
            _normal(str(written)) if normalize else str(written)
        ),
        "isSemver": parses(version),
        "compareTo": lambda a, b: IntType((a > b) - (a < b)),
        "isGreaterThan": lambda a, b: BoolType(a > b),
        "isLessThan": lambda a, b: BoolType(a < b),
        "add": lambda a, b: a + Fraction(b),
        "sub": lambda a, b: a - Fraction(b),
        "sign": lambda a: IntType((a > 0) - (a < 0)),
        "isInteger": lambda a: BoolType(a.denominator == 1),
        "asInteger": lambda a: IntType(int(a)),
        "asApproximateFloat": lambda a: DoubleType(float(a)),
        "major": lambda a: IntType(a.numbers[0]),
        "minor": lambda a: IntType(a.numbers[1]),
        "patch": lambda a: IntType(a.numbers[2]),
        **_string_functions(),
    }


def _string_functions() -> dict[str, Callable[..., Any]]:
    """The functions on strings; those whose result can be longer than their input are charged for it."""
    from celpy.celtypes import IntType, ListType, StringType

    from kai_cp_models.rules.stateful.dra.metered import matches as matches_charged
    from kai_cp_models.rules.stateful.dra.metered import spend, spend_text

    def substring(written: str, *bounds: int) -> Any:
        return StringType(written[slice(*bounds)] if len(bounds) > 1 else written[bounds[0] :])

    def replace(written: str, old: str, new: str, most: int = -1) -> Any:
        # The result can be as long as the product of the inputs, so it is charged before it is made.
        count = written.count(old) if most < 0 else min(int(most), written.count(old))
        spend_text(len(written), max(0, count * len(new)))
        return StringType(written.replace(old, new, int(most)))

    def split(written: str, by: str, most: int = -1) -> Any:
        spend(len(written) + 1 if not by else written.count(by) + 1)
        parts = (written.split(by) if by else list(written)) if most < 0 else written.split(by, int(most) - 1)
        return ListType([StringType(part) for part in parts])

    def join(parts: Any, by: str = "") -> Any:
        spend_text(sum(map(len, parts)), len(by) * len(parts))
        return StringType(by.join(parts))

    return {
        "lowerAscii": lambda a: StringType(a.lower()),
        "upperAscii": lambda a: StringType(a.upper()),
        "trim": lambda a: StringType(a.strip()),
        "replace": replace,
        "split": split,
        "matches": matches_charged,
        "substring": substring,
        "indexOf": lambda a, b: IntType(a.find(b)),
        "lastIndexOf": lambda a, b: IntType(a.rfind(b)),
        "charAt": lambda a, i: StringType(a[int(i) : int(i) + 1]),
        "join": join,
    }


def _normal(written: str) -> str:
    """A version with the leniency of ``semver(text, true)``: a v in front, missing parts are 0."""
    core, *rest = re.split(r"(?=[-+])", written.removeprefix("v"), maxsplit=1)
    numbers = [str(int(part)) for part in core.split(".")]
    return ".".join([*numbers, "0", "0"][: max(3, len(numbers))]) + "".join(rest)


def _as_cel(device: DeviceView) -> Any:
    from celpy.celtypes import BoolType, IntType, MapType, StringType

    class Domains(MapType):
        """Attributes by domain; a domain that the device lacks is empty, as Kubernetes has it."""

        def __getitem__(self, key: Any) -> Any:
            return super().__getitem__(key) if key in self else MapType()

    def wrapped(value: object) -> Any:
        if isinstance(value, bool):
            return BoolType(value)
        if isinstance(value, int):
            return IntType(value)
        return StringType(value) if isinstance(value, str) else value

    def by_domain(items: Mapping[tuple[str, str], object]) -> Any:
        domains: dict[Any, Any] = {}
        for (domain, name), value in items.items():
            domains.setdefault(StringType(domain), MapType())[StringType(name)] = wrapped(value)
        return Domains(domains)

    return MapType(
        {
            StringType("driver"): StringType(device.driver),
            StringType("attributes"): by_domain({name: value for name, (_, value) in device.attributes}),
            StringType("capacity"): by_domain(dict(device.capacity)),
            StringType("allowMultipleAllocations"): BoolType(device.shareable),
        }
    )
