"""What an expression can see of a device: the names that it reads, or the whole device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import lark
from celpy.evaluation import celstr

_DEVICE, _AMOUNTS, _DOMAIN = range(3)
"""Parts of a device: itself, its attributes or capacities, and those of one domain."""
_SELECTING: Final = ("member_dot", "member_opt_dot")


class _Whole(Exception):
    """The expression reads names that are not written out in it."""


def names_read(tree: lark.Tree[Any]) -> frozenset[str] | None:
    """Names of the attributes and capacities that an expression reads; None: it may read any.

    Which domains a device has is always seen.
    """
    reader = _Reader()
    try:
        reader.value(tree, {"device": _DEVICE})
    except (_Whole, RecursionError):
        return None
    return frozenset(reader.names)


class _Reader:
    def __init__(self) -> None:
        self.names: set[str] = set()

    def value(self, tree: Any, bound: Mapping[str, int | None]) -> None:
        """Walk a sub-expression in which any name may matter."""
        if isinstance(tree, lark.Tree) and self._part(tree, bound) is not None:
            raise _Whole

    def _part(self, tree: Any, bound: Mapping[str, int | None]) -> int | None:
        """Which part of the device a sub-expression is; None: something else. ``bound``: variables."""
        inner = tree.children[0] if tree.data == "primary" else tree
        name, children = inner.data, inner.children
        if name == "ident":
            return bound.get(str(children[0]))
        if name == "paren_expr":
            return self._part(children[0], bound)
        if name in _SELECTING:
            return self._entry(self._part(children[0], bound), str(children[1]))
        if name in ("member_index", "member_opt_index"):
            part = self._part(children[0], bound)
            self.value(children[1], bound)
            return self._entry(part, _literal(children[1]))
        if name == "bind":
            return self._part(children[3], {**bound, children[1]: self._part(children[2], bound)})
        if name == "relation" and children[0].data == "relation_in":
            part = self._part(children[1], bound)
            self.value(children[0].children[0], bound)
            if part != _AMOUNTS:
                self._entry(part, _literal(children[0].children[0]))
            return None
        for child in children:
            self.value(child, bound)
        return None

    def _entry(self, part: int | None, name: str | None) -> int | None:
        """The part of the device that an entry of a part is; ``name``: None if it is computed."""
        if part == _AMOUNTS:
            return _DOMAIN
        if part is not None and name is None:
            raise _Whole
        if part == _DOMAIN and name is not None:
            self.names.add(name)
        return _AMOUNTS if part == _DEVICE and name in ("attributes", "capacity") else None


def _literal(tree: Any) -> str | None:
    """The text of a literal; None: the expression is not a literal."""
    inner = tree.children[0] if tree.data == "primary" else tree
    token: Any = inner.children[0] if inner.data == "literal" else None
    known = token is not None and token.type in ("STRING_LIT", "MLSTRING_LIT")
    return str(celstr(token)) if known else None
