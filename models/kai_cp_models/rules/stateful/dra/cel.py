"""CEL selectors over devices: ``device.driver``, ``device.attributes``, ``device.capacity``.

The CEL library is imported when the first expression is compiled. A result depends only on the
expression and on the part of the device that the expression can see, so results are kept by both:
devices that differ in their UUID alone are evaluated once. Work is counted in steps (:mod:`.metered`).
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from kai_cp_models.records.devices import DeviceView

LONGEST: Final = 10 * 1024
"""Characters; the API server takes no longer expression."""
MOST_STEPS: Final = 1_000_000
"""Steps for expressions that no user wrote; a step takes about ten microseconds."""
_MOST_VERDICTS: Final = 65_536
_V = TypeVar("_V")

_Item = tuple[tuple[str, str], _V]
MOST_CHARACTERS: Final = 100_000
"""Of the expressions whose programs are kept. A character takes up to 1.4 KiB there, and one claim may have a
hundred thousand of them.
"""
PROGRAMS: Final[OrderedDict[str, Any]] = OrderedDict()
"""By expression; the one that was used last at the end."""
_VERDICTS: Final[dict[tuple[str, DeviceView], CelVerdict]] = {}
"""Results by expression and by what it can see of the device: a result depends on nothing else."""


class CelVerdict(NamedTuple):
    """The result of an expression for a device, and its steps; ``over``: the evaluation was stopped before
    its end.
    """

    holds: bool
    steps: int
    over: bool = False


class _Read(NamedTuple):
    names: frozenset[str] | None
    problem: str


def problem(expression: str) -> str:
    """Why kai-cp cannot evaluate the expression, which Kubernetes may; "" if it can."""
    return _read(expression).problem


def matches(expression: str, device: DeviceView) -> bool:
    """Whether the device satisfies the expression; an evaluation error means no, and so does a problem."""
    return judge(expression, visible(device, names(expression))).holds


def names(expression: str) -> frozenset[str] | None:
    """Names of the attributes and capacities that the expression reads; None: it may read any."""
    return _read(expression).names


def visible(device: DeviceView, names: frozenset[str] | None) -> DeviceView:
    """The device without the attributes and capacities of other names; None: with all. The domains stay."""
    if names is None:
        return device

    def seen(items: Iterable[_Item[_V]], hidden: _V) -> tuple[_Item[_V], ...]:
        found = (item if item[0][1] in names else ((item[0][0], ""), hidden) for item in items)
        return tuple(dict.fromkeys(found))

    return device._replace(
        attributes=seen(device.attributes, ("", "")), capacity=seen(device.capacity, Fraction(0))
    )


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
    from celpy.evaluation import CELEvalError, CELSyntaxError, CELUnsupportedError

    from kai_cp_models.rules.stateful.dra.metered import Meter, OverBudget
    from kai_cp_models.rules.stateful.dra.values import as_cel

    program = _program(expression)
    meter = Meter(most_steps)
    if program is None:
        return CelVerdict(holds=False, steps=0)
    try:
        result = program.metered({"device": as_cel(device)}, meter)
    except OverBudget:
        return CelVerdict(holds=False, steps=most_steps, over=True)
    except (
        CELEvalError,
        CELSyntaxError,
        CELUnsupportedError,
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
def _read(expression: str) -> _Read:
    from kai_cp_models.rules.stateful.dra import language, seen

    shown = expression if len(expression) <= 200 else f"{expression[:200]}…"
    try:
        if len(expression) > LONGEST:
            raise language.Unsupported(f"it is longer than {LONGEST} characters")
        tree = language.parsed(expression)
    except language.Unsupported as error:
        return _Read(frozenset(), f"kai-cp cannot evaluate the selector {shown!r}: {error}")
    _keep(expression, tree)
    return _Read(seen.names_read(tree), "")


def _program(expression: str) -> Any:
    """What evaluates the expression; None if nothing can."""
    from kai_cp_models.rules.stateful.dra import language

    if _read(expression).problem:
        return None
    if expression not in PROGRAMS:
        return _keep(expression, language.parsed(expression))
    PROGRAMS.move_to_end(expression)
    return PROGRAMS[expression]


def _keep(expression: str, tree: Any) -> Any:
    from kai_cp_models.rules.stateful.dra import language

    program = PROGRAMS[expression] = _environment().program(tree, functions=language.functions())
    while len(PROGRAMS) > 1 and sum(map(len, PROGRAMS)) > MOST_CHARACTERS:
        PROGRAMS.popitem(last=False)
    return program


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
