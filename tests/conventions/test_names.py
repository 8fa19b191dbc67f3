"""One name for one thing, and None for a missing value: no two classes or aliases of the three packages
share a name.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from kai_cp_models.policy import DECISION_ORDER, POLICY_ACTIONS, ActionName

pytestmark = pytest.mark.xdist_group("names")
"""One worker, which parses the packages once."""

ROOT = Path(__file__).parents[2]
PACKAGES = ("kai_cp", "models/kai_cp_models", "topology/kai_cp_topology")
ACTIONS = "models/kai_cp_models/policy.py"
DOCUMENTS = ROOT / "kai_cp" / "documents"
"""A document has the name of the record from which it is written, so these classes repeat names on
purpose.
"""

GLOSSARY: list[tuple[str, str]] = re.findall(
    r"(?m)^\| [^|`]+ \| `([\w/]+\.py)` `(\w+)` \|", (ROOT / "docs" / "words.md").read_text("utf-8")
)


def _alias(node: ast.stmt) -> tuple[str, str] | None:
    """Name and value of a type alias such as ``Mask = NDArray[np.bool_]``."""
    match node:
        case ast.Assign(targets=[ast.Name(name)], value=ast.Subscript() as value):
            camel = name[0].isupper() and not name.isupper()
            return (name, ast.unparse(value)) if camel else None
    return None


def defined(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    """Public classes, and public aliases with their value, of a module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, None
        elif found := _alias(node):
            yield found


def by_name(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Modules by the name that they define."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees.items():
        for name, _ in defined(tree):
            found[name].append(path)
    return found


@cache
def modules() -> Mapping[str, ast.Module]:
    """Syntax trees of the three packages, by path, parsed once for all tests."""
    paths = sorted(path for top in PACKAGES for path in (ROOT / top).rglob("*.py"))
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8"))
        for path in paths
        if DOCUMENTS not in path.parents
    }


def test_no_name_means_two_things() -> None:
    found = by_name(modules())
    assert len(found) > 500
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_two_things_of_one_name_are_found() -> None:
    trees = {"a": "class Room: ...", "b": "Room = tuple[int, ...]", "c": "class _Room: ...\nROOM = 1"}
    assert by_name({name: ast.parse(text) for name, text in trees.items()}) == {"Room": ["a", "b"]}


@pytest.mark.parametrize(("path", "name"), GLOSSARY, ids=[name for _, name in GLOSSARY])
def test_a_word_of_the_engine_is_where_the_glossary_says(path: str, name: str) -> None:
    assert name in {found for found, _ in defined(ast.parse((ROOT / path).read_text("utf-8")))}


def test_the_glossary_has_words() -> None:
    assert len(GLOSSARY) > 15


TEXTS = {
    "AskClass": "missing",
    "Candidates": "message",
    "Decision": "message",
    "GpuBound": "note",
    "Lent": "words",
    "Refusal": "message",
    "Reservation": "message",
    "Row": "name",
    "WaitBound": "why",
    "Waiter": "remark",
}
"""Values that are only printed may be an empty text."""
WRITTEN = {
    "ClaimRef": "template",
    "Node": "mig_strategy not_ready",
    "Pod": "subgroup",
    "PodGroup": "user",
    "PodSpec": "scheduling_key",
    "Policy": "node_pool_label node_pool",
    "Queue": "display_name user",
    "SetAside": "field",
    "TopologyConstraint": "required preferred error",
}
"""Records of the snapshot keep the strings of Kubernetes' objects, in which an empty string means
not set.
"""


def records(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """Data classes and named tuples of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            made = [ast.unparse(part).partition("(")[0] for part in (*node.decorator_list, *node.bases)]
            if {"dataclass", "record", "NamedTuple"} & set(made):
                yield node


def defaults(tree: ast.Module, *values: str) -> set[str]:
    """``Record.field`` of all fields whose default is one of ``values``, as the code writes them."""
    return {
        f"{record.name}.{ast.unparse(stated.target)}"
        for record in records(tree)
        for stated in record.body
        if isinstance(stated, ast.AnnAssign)
        and stated.value is not None
        and ast.unparse(stated.value) in values
    }


def test_records_hold_none_for_a_missing_value() -> None:
    """No number stands for a missing value, and in models/ no empty string does except
    Kubernetes' own.
    """
    assert not any(defaults(tree, "-1", "-1.0", "UNLIMITED") for tree in modules().values())
    strings = {
        name for path, tree in modules().items() if path.startswith("models") for name in defaults(tree, "''")
    }
    argued = [*TEXTS.items(), *WRITTEN.items()]
    assert strings == {f"{record}.{name}" for record, names in argued for name in names.split()}


def test_a_number_that_stands_for_none_is_found() -> None:
    tree = ast.parse(
        "@dataclass(frozen=True)\nclass Room:\n    left: int = -1\n    name: str = ''\n    n: int = 0"
    )
    assert defaults(tree, "-1") == {"Room.left"}
    assert defaults(tree, "''") == {"Room.name"}


def lists_of_actions(tree: ast.Module) -> int:
    """The number of collections of a module that write down every action that a policy may name."""
    written = (
        {
            part.value
            for part in ast.walk(node)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        for node in ast.walk(tree)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict))
    )
    return sum(found >= set(POLICY_ACTIONS) for found in written)


def test_actions_are_listed_in_one_module() -> None:
    assert [path for path, tree in modules().items() if lists_of_actions(tree)] == [ACTIONS]
    assert sorted(DECISION_ORDER) == sorted(get_args(ActionName))


def keyed_by_actions(tree: ast.Module) -> Iterator[tuple[str, frozenset[str]]]:
    """Dicts of a module with more than one key, all of which are actions, by their text."""
    actions = set(get_args(ActionName))
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            if len(keys) == len(node.keys) > 1 and keys <= actions:
                yield ast.unparse(node), frozenset(map(str, keys))


WHOLE = {
    frozenset(POLICY_ACTIONS) - {"allocate"},  # ``engine.ACTIONS``; allocate runs in two passes.
    frozenset(get_args(ActionName)) - {"allocate"},  # All that evict.
}
"""The sets of actions that a dict may cover; any other dict lacks an action."""


def test_dicts_keyed_by_actions_hold_all_of_them() -> None:
    found = [(path, *one) for path, tree in modules().items() for one in keyed_by_actions(tree)]
    assert found
    assert [(path, text) for path, text, keys in found if keys not in WHOLE] == []


def test_a_dict_that_lacks_an_action_is_found() -> None:
    tree = ast.parse("A = {'reclaim': 1, 'preempt': 2}; B = {'reclaim': 1, 'other': 2}")
    assert [keys for _, keys in keyed_by_actions(tree)] == [{"reclaim", "preempt"}]


def test_a_second_list_of_actions_is_found() -> None:
    assert lists_of_actions(ast.parse(f"ORDER = {POLICY_ACTIONS!r}")) == 1
    assert lists_of_actions(ast.parse(f"ORDER = {POLICY_ACTIONS[:-1]!r}")) == 0
