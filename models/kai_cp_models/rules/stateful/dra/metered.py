"""CEL programs whose work is counted: steps of evaluation and sizes of values, never seconds.

The library walks a tree from which levels with one child are removed (:mod:`.language`), so that a step is an
operation. A step costs 1 plus the size of its result, so that a
chain of operations cannot make a large value without being charged for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from functools import reduce
from typing import Any, Final

import lark
import re2  # type: ignore[import-untyped]
from celpy import InterpretedRunner
from celpy.celtypes import (
    BoolType,
    IntType,
    ListType,
    MapType,
    StringType,
    Value,
    logical_and,
    logical_or,
)
from celpy.evaluation import CELEvalError, Context, Evaluator, eval_error

from kai_cp_models.rules.stateful.dra.values import Maybe, entry

CHARACTERS_PER_STEP: Final = 32
"""Characters of a text that one step handles."""
ITERATION_STEPS: Final = 10
"""Steps for the names that every round of a macro defines."""


class OverBudget(Exception):
    """The evaluation needs more steps than it has."""


class Meter:
    """The steps left of a budget, and the steps spent."""

    __slots__ = ("left", "spent")

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.spent = 0

    def spend(self, steps: int) -> None:
        """Count steps before they are done; raises :class:`OverBudget` when fewer are left."""
        self.spent += steps
        self.left -= steps
        if self.left < 0:
            raise OverBudget


_METER: Final[ContextVar[Meter]] = ContextVar("meter")


def spend(steps: int) -> None:
    """Count steps of the present evaluation; for functions, which do not know their evaluator."""
    _METER.get().spend(steps)


def spend_text(*lengths: int) -> None:
    """Count the steps that handling texts of these lengths costs."""
    spend(1 + sum(lengths) // CHARACTERS_PER_STEP)


def matches(text: str, pattern: str) -> Any:
    """CEL's ``matches``."""
    return BoolType(next(found_by(text, pattern), None) is not None)


def found_by(text: str, pattern: str) -> Iterator[str]:
    """What a pattern finds in a text; charged as it is found. RE2 takes at most the product of both lengths.

    Raises ValueError if the pattern is invalid.
    """
    options = re2.Options()
    options.max_mem = 1 << 20
    options.log_errors = False
    spend_text(64 * len(pattern), _search(len(text), pattern))
    try:
        found = re2.compile(str(pattern), options).finditer(str(text))
    except re2.error as error:
        raise ValueError("match error") from error
    for each in found:
        yield each.group()
        spend_text(_search(len(text) - each.end(), pattern))


def _search(characters: int, pattern: str) -> int:
    return characters * (1 + len(pattern) // CHARACTERS_PER_STEP)


class MeteredRunner(InterpretedRunner):
    """A program that is evaluated with a meter."""

    def __init__(self, environment: Any, ast: lark.Tree[Any], functions: Any = None) -> None:
        super().__init__(environment, ast, functions)
        self._base = self.new_activation()

    def metered(self, context: Context, meter: Meter) -> Value:
        """The value; raises what the library raises, and :class:`OverBudget`."""
        before = _METER.set(meter)
        try:
            return _Metered(self.ast, self._base, meter).evaluate(context)
        finally:
            _METER.reset(before)


class _Metered(Evaluator):
    def __init__(self, ast: lark.Tree[Any], activation: Any, meter: Meter) -> None:
        super().__init__(ast, activation)
        self._meter = meter

    def sub_evaluator(self, ast: lark.Tree[Any]) -> Evaluator:
        return _Metered(ast, self.activation, self._meter)

    def set_activation(self, values: Context) -> Evaluator:
        self._meter.spend(ITERATION_STEPS)
        return super().set_activation(values)

    def _visit_tree(self, tree: lark.Tree[Any]) -> Any:
        self._meter.spend(1)
        found = getattr(self, tree.data)(tree)
        steps = weight(found)
        if steps:
            self._meter.spend(steps)
        return found

    # --- what the library lacks (:mod:`.language`) ---------------------------------------------------

    def member_dot(self, tree: Any) -> Any:
        """``a.b``; what an optional value selects is optional."""
        member = self.visit(tree.children[0])
        return _entry(member, StringType(tree.children[1]), optional=isinstance(member, Maybe))

    def member_opt_dot(self, tree: Any) -> Any:
        """``a.?b``."""
        return _entry(self.visit(tree.children[0]), StringType(tree.children[1]), optional=True)

    def member_opt_index(self, tree: Any) -> Any:
        """``a[?b]``."""
        member, key = self.visit_children(tree)
        return _entry(member, key, optional=True)

    def macro_has_eval(self, exprlist: Any) -> Any:
        """``has(a.b)``."""
        (selected,) = exprlist.children
        member, name = selected.children
        found = _entry(self.visit(member), StringType(name), optional=True)
        return found if isinstance(found, CELEvalError) else BoolType(bool(found))

    def bind(self, tree: Any) -> Any:
        """``cel.bind(name, value, body)``."""
        _, name, value, body = tree.children
        return self._within({name: self.visit(value)}, body)

    def opt_map(self, tree: Any) -> Any:
        """``a.optMap(name, body)`` and ``a.optFlatMap(name, body)``."""
        macro, owner, name, body = tree.children
        found = _optional(self.visit(owner))
        if isinstance(found, CELEvalError) or not found:
            return found
        result = self._within({name: found[0]}, body)
        return result if macro == "optFlatMap" or isinstance(result, CELEvalError) else Maybe([result])

    def or_value(self, tree: Any) -> Any:
        """``a.orValue(b)`` and ``a.or(b)``."""
        macro, owner, other = tree.children
        found = _optional(self.visit(owner))
        if isinstance(found, CELEvalError):
            return found
        return (found[0] if macro == "orValue" else found) if found else self.visit(other)

    def pairs(self, tree: Any) -> Any:
        """Macros with two variables: key and value of a map, or position and value of a list."""
        macro, owner, first, second, *filters, body = tree.children
        over = self.visit(owner)
        if isinstance(over, CELEvalError):
            return over
        entries = over.items() if isinstance(over, MapType) else ((IntType(i), v) for i, v in enumerate(over))
        rows = [{first: key, second: value} for key, value in entries]
        if filters:
            rows = [row for row in rows if _certain(self._within(row, filters[0]))]
        found = ((row[first], self._within(row, body)) for row in rows)
        if macro == "all":
            return reduce(_logical(logical_and), (value for _, value in found), BoolType(True))
        if macro == "exists":
            return reduce(_logical(logical_or), (value for _, value in found), BoolType(False))
        certain = [(key, _certain(value)) for key, value in found]
        if macro == "exists_one":
            return BoolType(sum(bool(value) for _, value in certain) == 1)
        return MapType(certain) if macro == "transformMap" else ListType(value for _, value in certain)

    def _within(self, variables: dict[str, Any], body: Any) -> Any:
        """The value of ``body`` with more variables."""
        wrong = (value for value in variables.values() if isinstance(value, CELEvalError))
        try:
            return next(wrong, None) or self.sub_evaluator(body).evaluate(variables)
        except CELEvalError as error:
            return error


def _logical(function: Any) -> Any:
    return eval_error("no such overload", TypeError)(function)


def _certain(value: Any) -> Any:
    if isinstance(value, CELEvalError):
        raise value
    return value


def _optional(value: Any) -> Any:
    known = isinstance(value, Maybe | CELEvalError)
    return value if known else CELEvalError(f"no such overload: {type(value)} is not optional")


def _entry(member: Any, key: Any, *, optional: bool) -> Any:
    for value in (member, key):
        if isinstance(value, CELEvalError):
            return value
    try:
        found = entry(member, key)
    except TypeError as error:
        return CELEvalError("no such overload", type(error), error.args)
    if optional:
        return found
    return found[0] if found else CELEvalError(f"no such key: {key}")


def weight(value: Any) -> int:
    """Steps charged for the size of a value; the size of a list or map counts everything inside."""
    if isinstance(value, str | bytes):
        return len(value) // CHARACTERS_PER_STEP
    if isinstance(value, list | dict):
        known: int | None = getattr(value, "steps", None)
        if known is None:
            inside = value.values() if isinstance(value, dict) else value
            known = len(value) + sum(map(weight, inside))
            if isinstance(value, ListType | MapType):
                value.steps = known  # type: ignore[union-attr]
        return known
    return 0
