"""CEL selectors over devices: ``device.driver``, ``device.attributes``, ``device.capacity``.

The CEL library is imported when the first expression is compiled. A result depends only on the
expression and on the part of the device that the expression can see. Work is counted in steps
(:mod:`.metered`). Nothing is kept here but the last program: a character takes up to 1.4 KiB in it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from kai_cp_models.records.devices import DeviceView

LONGEST: Final = 10 * 1024
"""Characters; the API server accepts no longer expression."""
MOST_STEPS: Final = 1_000_000
"""Steps for expressions that no user wrote; a step takes about ten microseconds."""
STEPS_PER_TOKEN: Final = 10
"""To parse a token takes up to 0.1 ms."""
_TOKEN: Final = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\w+|[^\w\s]""")
_V = TypeVar("_V")

_Item = tuple[tuple[str, str], _V]


class CelVerdict(NamedTuple):
    """The result of an expression for a device, and its steps; ``over``: the evaluation was stopped before
    its end.
    """

    holds: bool
    steps: int
    over: bool = False


class Compiled(NamedTuple):
    """``names``: of the attributes and capacities that an expression reads; None: it may read any.
    ``problem``: why kai-cp cannot evaluate it, which Kubernetes may; "" if it can.
    """

    names: frozenset[str] | None
    problem: str
    program: Any = None


def parsing(expression: str) -> int:
    """Steps that compiling the expression takes."""
    return 1 + STEPS_PER_TOKEN * sum(1 for _ in _TOKEN.finditer(expression[:LONGEST]))


def visible(device: DeviceView, names: frozenset[str] | None) -> DeviceView:
    """The device with only the attributes and capacities of these names (None: all of them). All domains
    stay."""
    if names is None:
        return device

    def seen(items: Iterable[_Item[_V]], hidden: _V) -> tuple[_Item[_V], ...]:
        found = (item if item[0][1] in names else ((item[0][0], ""), hidden) for item in items)
        return tuple(dict.fromkeys(found))

    return device._replace(
        attributes=seen(device.attributes, ("", "")), capacity=seen(device.capacity, Fraction(0))
    )


def judge(expression: str, device: DeviceView, most_steps: int = MOST_STEPS) -> CelVerdict:
    """Evaluate, within ``most_steps``; an evaluation error means no, and so does a problem. ``device`` has
    only what the expression can see."""
    from celpy.celtypes import BoolType
    from celpy.evaluation import CELEvalError, CELSyntaxError, CELUnsupportedError

    from kai_cp_models.rules.stateful.dra.metered import Meter, OverBudget
    from kai_cp_models.rules.stateful.dra.values import as_cel

    program = compiled(expression).program
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


@lru_cache(maxsize=1)
def compiled(expression: str) -> Compiled:
    """The expression, as it is evaluated."""
    from kai_cp_models.rules.stateful.dra import language, seen

    shown = expression if len(expression) <= 200 else f"{expression[:200]}…"
    problem = f"it is longer than {LONGEST} characters" if len(expression) > LONGEST else ""
    try:
        tree: Any = None if problem else language.parsed(expression)
    except language.Unsupported as error:
        problem = str(error)
    if problem:
        return Compiled(frozenset(), f"kai-cp cannot evaluate the selector {shown!r}: {problem}")
    return Compiled(seen.names_read(tree), "", _environment().program(tree, functions=language.functions()))


@lru_cache(maxsize=1)
def _environment() -> Any:
    from celpy import Environment

    from kai_cp_models.rules.stateful.dra.metered import MeteredRunner

    # The library raises the recursion limit of the whole program; a selector does not need that.
    limit = sys.getrecursionlimit()
    try:
        return Environment(runner_class=MeteredRunner)
    finally:
        sys.setrecursionlimit(limit)
