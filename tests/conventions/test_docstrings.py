"""What a public docstring must state: the shapes of arrays, and the errors that the function raises."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ARRAYS = re.compile(r"\b(ndarray|NDArray|Mask|Ints|Floats|Places)\b")
"""numpy's own names of arrays, and our aliases for them (``arrays.py``, ``scales.py``)."""
SHAPE = re.compile(r"\[[A-Za-z][A-Za-z_ ,]*\]|\bshape\b|\b(per|each|every) [a-z]+")
"""Axes by name (``[node, resource]``), or in words: *per node*, *for each device*."""
UNSAID = {"Exit", "NotImplementedError"}
"""A command's help page says how it ends; an error for a missing override never reaches a caller."""

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Public(NamedTuple):
    """A public function or method of a module."""

    path: str
    owner: ast.ClassDef | None
    node: FunctionNode

    @property
    def label(self) -> str:
        """Module, class and name, for the message of a failure."""
        owner = f"{self.owner.name}." if self.owner else ""
        return f"{self.path}:{self.node.lineno} {owner}{self.node.name}"


def modules() -> dict[str, ast.Module]:
    paths = sorted(path for top in ("kai_cp", "models", "topology") for path in (ROOT / top).rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in paths}


def public(path: str, tree: ast.Module) -> Iterator[Public]:
    """Public functions of the module, and public methods of its public classes."""
    for node in tree.body:
        if isinstance(node, FunctionNode) and not node.name.startswith("_"):
            yield Public(path, None, node)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for method in node.body:
                if isinstance(method, FunctionNode) and not method.name.startswith("_"):
                    yield Public(path, node, method)


def has_arrays(node: FunctionNode) -> bool:
    """Whether an annotation of the signature names an array."""
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    annotations = [node.returns, *(one.annotation for one in arguments)]
    return any(ARRAYS.search(ast.unparse(one)) for one in annotations if one is not None)


def raised(node: ast.AST) -> set[str]:
    """Names of the classes that the body itself raises; inner functions raise for themselves."""
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FunctionNode | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(child, ast.Raise) and child.exc is not None:
            error = child.exc.func if isinstance(child.exc, ast.Call) else child.exc
            name = ast.unparse(error).split(".")[-1]
            found |= {name} if name[0].isupper() else set()
        found |= raised(child)
    return found - UNSAID


def said(one: Public, classes: Mapping[str, ast.ClassDef]) -> str:
    """The docstring; for a method without one, that of a base class."""
    text = ast.get_docstring(one.node)
    if text or one.owner is None:
        return text or ""
    for base in one.owner.bases:
        parent = classes.get(ast.unparse(base).split("[")[0].split(".")[-1])
        if parent is None:
            continue
        for method in parent.body:
            if isinstance(method, FunctionNode) and method.name == one.node.name:
                return said(Public(one.path, parent, method), classes)
        inherited = said(Public(one.path, parent, one.node), classes) if parent.bases else ""
        if inherited:
            return inherited
    return ""


def findings(trees: Mapping[str, ast.Module]) -> tuple[list[str], list[str]]:
    """Functions whose docstring states no shape, and functions that do not name an error."""
    classes = {
        node.name: node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)
    }
    every = [one for path, tree in trees.items() for one in public(path, tree)]
    shapes = [one.label for one in every if has_arrays(one.node) and not SHAPE.search(said(one, classes))]
    errors = [
        f"{one.label}: {', '.join(sorted(unsaid))}"
        for one in every
        if (unsaid := {name for name in raised(one.node) if name not in said(one, classes)})
    ]
    return shapes, errors


def test_docstrings_state_shapes_and_errors() -> None:
    trees = modules()
    assert sum(has_arrays(one.node) for path, tree in trees.items() for one in public(path, tree)) > 100
    assert findings(trees) == ([], [])


def test_a_missing_statement_is_found() -> None:
    text = '''
class Base:
    def free(self) -> Ints:
        """Free GPUs ``[node]``."""
class Child(Base):
    def free(self) -> Ints:
        return 1
    def held(self) -> Mask:
        """Nodes that are held."""
def first(x: NDArray[np.int64]) -> None:
    """The values per node."""
def second() -> None:
    """Raises ValueError."""
    def inner() -> None:
        raise KeyError
    raise ValueError("x")
def third() -> None:
    """Nothing."""
    raise errors.Unreadable("y") from None
'''
    shapes, errors = findings({"m": ast.parse(text)})
    assert [line.split()[1] for line in shapes] == ["Child.held"]
    assert errors == ["m:17 third: Unreadable"]
