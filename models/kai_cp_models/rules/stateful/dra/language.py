"""CEL as Kubernetes has it: adds the syntax, macros, equality and functions that the library lacks.

Anything still missing raises :class:`Unsupported` before an expression is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final

import celpy
import lark
from celpy.celparser import CELParseError, CELParser
from celpy.celtypes import BoolType, DoubleType, IntType, ListType, MapType, StringType, UintType
from celpy.evaluation import CELEvalError, base_functions

from kai_cp_models.quantity import exact, version
from kai_cp_models.rules.stateful.dra.metered import found_by, matches, spend, spend_text, weight
from kai_cp_models.rules.stateful.dra.values import Maybe, entry

_OPTIONAL_SYNTAX: Final = """
member_opt_dot : member ".?" IDENT
member_opt_index : member "[" "?" expr "]"
"""
_CHAIN: Final = frozenset(
    ["expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary", "member"]
)
DEEPEST: Final = 150
"""The deepest tree of an expression, in levels: most levels take five of the thousand calls that Python
allows."""
_SCOPES: Final = ("cel", "optional", "sets")
"""First parts of the names of functions."""
_MACROS: Final = frozenset(["all", "exists", "exists_one", "filter", "map"])
_PAIR_MACROS: Final = frozenset(["all", "exists", "exists_one", "transformList", "transformMap"])
_NODES: Final = {("cel.bind", 3): "bind", ("optMap", 2): "opt_map", ("optFlatMap", 2): "opt_map"} | {
    (name, 1): "or_value" for name in ("or", "orValue")
}
"""Macros that become nodes of their own, by name and number of arguments."""


class Unsupported(ValueError):
    """What Kubernetes may evaluate and kai-cp cannot."""


@lru_cache(maxsize=1)
def _parser() -> lark.Lark:
    grammar = (Path(celpy.__file__).parent / "cel.lark").read_text(encoding="utf-8")
    grammar = grammar.replace("| member_dot_arg |", "| member_dot_arg | member_opt_dot | member_opt_index |")
    return lark.Lark(
        grammar + _OPTIONAL_SYNTAX,
        parser="lalr",
        start="expr",
        g_regex_flags=re.M,
        lexer_callbacks={"IDENT": CELParser.ambiguous_literals},
        propagate_positions=True,
        maybe_placeholders=False,
        priority="invert",
    )


def parsed(expression: str) -> lark.Tree[Any]:
    """The expression, ready for :mod:`.metered`. Raises :class:`Unsupported`."""
    # The library shares one parser; this one is a superset of its own.
    CELParser.CEL_PARSER = _parser()
    try:
        tree = _collapsed(CELParser().parse(expression))
    except (CELParseError, RecursionError) as error:
        where = getattr(error, "column", None)
        raise Unsupported("cannot parse CEL" + (f" at character {where}" if where else "")) from error
    if _levels(tree) > DEEPEST:
        raise Unsupported(f"it is nested deeper than {DEEPEST} levels")
    for node in tree.iter_subtrees():
        if node.data in ("member_object", "dot_ident", "dot_ident_arg"):
            raise Unsupported(f"its syntax ({node.data}) is not known")
        if node.data == "member_dot_arg":
            _rewrite(node)
        if node.data == "ident_arg" and str(node.children[0]) not in {"has", "dyn", *functions()}:
            raise Unsupported(f"its function {node.children[0]} is not known")
    return tree


def _levels(tree: lark.Tree[Any]) -> int:
    levels, level = 0, [tree]
    while level:
        levels += 1
        level = [child for node in level for child in node.children if isinstance(child, lark.Tree)]
    return levels


def _rewrite(call: lark.Tree[Any]) -> None:
    """A method call as Kubernetes reads it: a macro, a function of a scope, or a method."""
    owner, name, *rest = call.children
    arguments = rest[0].children if rest else []
    scope = owner.children[0].children[0] if owner.data == "primary" and owner.children[0].children else ""
    named = "exists_one" if name == "existsOne" else str(name)
    if owner.data == "primary" and owner.children[0].data == "ident" and scope in _SCOPES:
        named = f"{scope}.{name}"
    node = _NODES.get((named, len(arguments)))
    if named == "cel.bind" and node:
        call.data, call.children = node, [named, _variable(arguments[0]), *arguments[1:]]
    elif node == "opt_map":
        call.data, call.children = node, [named, owner, _variable(arguments[0]), arguments[1]]
    elif node:
        call.data, call.children = node, [named, owner, arguments[0]]
    elif named in _PAIR_MACROS and 3 <= len(arguments) <= 3 + named.startswith("transform"):
        variables = [_variable(each) for each in arguments[:2]]
        call.data, call.children = "pairs", [named, owner, *variables, *arguments[2:]]
    elif "." in named:
        call.data, call.children = "primary", [lark.Tree("ident_arg", [lark.Token("IDENT", named), *rest])]
        if named not in functions():
            raise Unsupported(f"its function {named} is not known")
    elif named in _MACROS:
        if len(arguments) != 2:
            raise Unsupported(f"its macro {named} with {len(arguments)} arguments is not known")
        _variable(arguments[0])
        call.children[1] = lark.Token("IDENT", named)
    elif named not in functions():
        raise Unsupported(f"its function {named} is not known")


def _variable(tree: Any) -> str:
    if tree.data != "primary" or tree.children[0].data != "ident":
        raise Unsupported("cannot parse CEL: a macro has no name for its variable")
    return str(tree.children[0].children[0])


def _collapsed(tree: lark.Tree[Any]) -> lark.Tree[Any]:
    """The tree without levels that only wrap a single child."""
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


# --- equality and order ---------------------------------------------------------------------------


def equal(a: Any, b: Any) -> bool:
    """Equality of CEL: numbers by value, values of different types are not equal."""
    if _number(a) and _number(b):
        return bool(_plain(a) == _plain(b))
    if isinstance(a, Maybe) is not isinstance(b, Maybe):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, MapType) and isinstance(b, MapType):
        return a.keys() == b.keys() and all(equal(value, b[key]) for key, value in a.items())
    return _of_one_type(a, b) and bool(a == b)


def _less(a: Any, b: Any) -> bool:
    if _number(a) and _number(b):
        return bool(_plain(a) < _plain(b))
    if not _of_one_type(a, b) or isinstance(a, list | MapType | Fraction):
        raise TypeError(f"{type(a)} and {type(b)} have no order")
    return bool(a < b)


def _of_one_type(a: Any, b: Any) -> bool:
    # Some operations of the library return plain Python values.
    return isinstance(a, type(b)) or isinstance(b, type(a))


def _number(value: Any) -> bool:
    return isinstance(value, IntType | UintType | DoubleType)


def _plain(value: Any) -> float:
    return float(value) if isinstance(value, DoubleType) else int(value)


def _contained(item: Any, container: Any) -> bool:
    if isinstance(container, MapType):
        return item in container
    if not isinstance(container, list):
        raise TypeError(f"{type(container)} contains nothing")
    return any(equal(item, each) for each in container)


def _relation(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def relation(a: Any, b: Any) -> Any:
        wrong = next((each for each in (a, b) if isinstance(each, CELEvalError)), None)
        return BoolType(function(a, b)) if wrong is None else wrong

    return relation


def _indexed(value: Any, key: Any) -> Any:
    if isinstance(value, Maybe):
        return entry(value, key)
    if isinstance(value, list) and not 0 <= key < len(value):
        raise IndexError(key)
    return value[key]


# --- functions ------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def functions() -> dict[str, Callable[..., Any]]:
    """Functions and methods by name."""
    return {**base_functions, **_operators(), **_amounts(), **_texts(), **_lists()}


def _operators() -> dict[str, Callable[..., Any]]:
    return {
        "_==_": _relation(equal),
        "_!=_": _relation(lambda a, b: not equal(a, b)),
        "_<_": _relation(_less),
        "_<=_": _relation(lambda a, b: not _less(b, a)),
        "_>_": _relation(lambda a, b: _less(b, a)),
        "_>=_": _relation(lambda a, b: not _less(a, b)),
        "_in_": _relation(_contained),
        "_[_]": _indexed,
        "optional.of": lambda a: Maybe([a]),
        "optional.none": lambda: Maybe(),
        "hasValue": lambda a: BoolType(bool(_maybe(a))),
        "value": lambda a: _indexed(ListType(_maybe(a)), 0),
    }


def _maybe(value: Any) -> Maybe:
    if not isinstance(value, Maybe):
        raise TypeError(f"{type(value)} is not optional")
    return value


def _amounts() -> dict[str, Callable[..., Any]]:
    """Quantities and versions."""

    def parses(parse: Callable[[str], object]) -> Callable[..., Any]:
        def test(written: str) -> Any:
            try:
                parse(str(written))
            except ValueError:
                return BoolType(False)
            return BoolType(True)

        return test

    def as_integer(amount: Fraction) -> Any:
        if amount.denominator != 1:
            raise ValueError("no integer")
        return IntType(int(amount))

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
        "asInteger": as_integer,
        "asApproximateFloat": lambda a: DoubleType(float(a)),
        "major": lambda a: IntType(a.numbers[0]),
        "minor": lambda a: IntType(a.numbers[1]),
        "patch": lambda a: IntType(a.numbers[2]),
    }


def _normal(written: str) -> str:
    """A version with the leniency of ``semver(text, true)``: a v in front, missing parts are 0."""
    core, *rest = re.split(r"(?=[-+])", written.removeprefix("v"), maxsplit=1)
    numbers = [str(int(part)) for part in core.split(".")]
    return ".".join([*numbers, "0", "0"][: max(3, len(numbers))]) + "".join(rest)


def _texts() -> dict[str, Callable[..., Any]]:
    """The functions on strings; those whose result can be longer than their input are charged for it."""

    def substring(written: str, *bounds: int) -> Any:
        first, last = bounds if len(bounds) > 1 else (bounds[0], len(written))
        if not 0 <= first <= last <= len(written):
            raise ValueError("outside of the text")
        return StringType(written[first:last])

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
        # Only ASCII letters change.
        "lowerAscii": lambda a: StringType(a.encode().lower().decode()),
        "upperAscii": lambda a: StringType(a.encode().upper().decode()),
        "trim": lambda a: StringType(a.strip()),
        "replace": replace,
        "split": split,
        "matches": matches,
        "find": lambda a, b: StringType(next(found_by(a, b), "")),
        "findAll": _find_all,
        "substring": substring,
        "charAt": lambda a, i: substring(a, i, min(i + 1, len(a))),
        "join": join,
    }


def _find_all(text: str, pattern: str, most: int = -1) -> Any:
    found = islice(found_by(text, pattern), None if most < 0 else int(most))
    return ListType([StringType(each) for each in found])


def _lists() -> dict[str, Callable[..., Any]]:
    """The functions on lists and sets. A list is charged for its size when it is made."""

    def position(found: Any, item: Any, *, last: bool = False) -> Any:
        if isinstance(found, str):
            return IntType(found.rfind(item) if last else found.find(item))
        places = [i for i, each in enumerate(found) if equal(each, item)]
        return IntType(places[-last] if places else -1)

    def contains(a: Any, b: Any) -> bool:
        spend((1 + len(a)) * (1 + weight(b)))
        return all(_contained(each, a) for each in b)

    def intersects(a: Any, b: Any) -> bool:
        spend((1 + len(a)) * (1 + weight(b)))
        return any(_contained(each, a) for each in b)

    def is_sorted(found: Any) -> Any:
        return BoolType(not any(_less(b, a) for a, b in pairwise(found)))

    return {
        "indexOf": position,
        "lastIndexOf": lambda a, b: position(a, b, last=True),
        "isSorted": is_sorted,
        "sum": lambda found: sum(found[1:], found[0]) if found else IntType(0),
        "min": min,
        "max": max,
        "sets.contains": _relation(contains),
        "sets.intersects": _relation(intersects),
        "sets.equivalent": _relation(lambda a, b: contains(a, b) and contains(b, a)),
    }
