"""CEL programs whose work is counted: steps of evaluation and sizes of values, never seconds.

The library walks the grammar's tree, in which every expression has a dozen levels with one child each. These
levels are removed once, so that a step is an operation. A step costs 1 plus the size of its result, so that a
chain of operations cannot make a large value without being charged for it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

import lark
import re2  # type: ignore[import-untyped]
from celpy import InterpretedRunner
from celpy.celtypes import BoolType, ListType, MapType, Value
from celpy.evaluation import CELEvalError, Context, Evaluator

CHARACTERS_PER_STEP: Final = 32
"""Characters of a text that one step handles."""
ITERATION_STEPS: Final = 10
"""Steps for the names that every round of a macro defines."""
_CHAIN: Final = frozenset(
    ["expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary", "member"]
)


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
    """CEL's ``matches``: RE2 takes at most the product of both lengths, and that is charged."""
    spend_text(len(text) * (1 + len(pattern) // CHARACTERS_PER_STEP), 64 * len(pattern))
    options = re2.Options()
    options.max_mem = 1 << 20
    options.log_errors = False
    try:
        return BoolType(re2.compile(str(pattern), options).search(str(text)) is not None)
    except re2.error as error:
        return CELEvalError("match error", error.__class__, error.args)


class MeteredRunner(InterpretedRunner):
    """A program that is evaluated with a meter."""

    def __init__(self, environment: Any, ast: lark.Tree[Any], functions: Any = None) -> None:
        super().__init__(environment, _collapsed(ast), functions)
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
        weight = _weight(found)
        if weight:
            self._meter.spend(weight)
        return found


def _weight(value: Any) -> int:
    """Steps charged for the size of a value; the size of a list or map counts everything inside."""
    if isinstance(value, str | bytes):
        return len(value) // CHARACTERS_PER_STEP
    if isinstance(value, list | dict):
        known: int | None = getattr(value, "steps", None)
        if known is None:
            inside = value.values() if isinstance(value, dict) else value
            known = len(value) + sum(map(_weight, inside))
            if isinstance(value, ListType | MapType):
                value.steps = known  # type: ignore[union-attr]
        return known
    return 0


def _collapsed(tree: lark.Tree[Any]) -> lark.Tree[Any]:
    """The tree without levels that have a single child and do nothing else."""
    root = lark.Tree("root", [tree])
    waiting = [root]
    while waiting:
        node = waiting.pop()
        for i, child in enumerate(node.children):
            while isinstance(child, lark.Tree) and child.data in _CHAIN and len(child.children) == 1:
                child = child.children[0]
            node.children[i] = child
            if isinstance(child, lark.Tree):
                waiting.append(child)
    found: lark.Tree[Any] = root.children[0]
    return found
