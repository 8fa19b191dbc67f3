"""Rules read records: raw objects, quantities and selectors are each parsed in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kai_cp import keys

ROOT = Path(__file__).parents[2]
MODELS = sorted((ROOT / "models/kai_cp_models").rglob("*.py"))
PROGRAM = [*MODELS, *sorted((ROOT / "kai_cp").rglob("*.py"))]
RAW = frozenset(("metadata", "spec", "status", "rawObjects"))
"""Top fields of every API object."""


def raw_fields(source: str) -> Iterator[str]:
    """Top fields of API objects that code looks up by name: ``x["spec"]`` or ``x.get("spec")``."""
    for found in ast.walk(ast.parse(source)):
        key = None
        if isinstance(found, ast.Subscript):
            key = found.slice
        elif isinstance(found, ast.Call) and isinstance(found.func, ast.Attribute) and found.args:
            key = found.args[0] if found.func.attr == "get" else None
        if isinstance(key, ast.Constant) and key.value in RAW:
            yield str(key.value)


@pytest.mark.parametrize(
    "source", ['a = item["spec"]', 'a = item.get("metadata", {})', 'a = f(x)["status"].get("phase")']
)
def test_raw_fields_are_seen(source: str) -> None:
    assert list(raw_fields(source))


def test_no_rule_looks_into_a_raw_object() -> None:
    looked = {path.name: found for path in MODELS if (found := list(raw_fields(path.read_text())))}
    assert looked == {}


def holders(text: str) -> list[str]:
    """Modules that contain a text."""
    return [str(path.relative_to(ROOT)) for path in PROGRAM if text in path.read_text()]


def test_labels_and_annotations_are_written_once() -> None:
    """Seven modules had ``pod-group-name``, under four names. Generators write what users write."""
    values = {value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)}
    written = {value for value in values if "/" in value or value.startswith(("pod-", "gpu-", "runai-"))}
    assert len(written) > 30
    makers = ("keys.py", "raw_objects.py", "bench", "simulate", "kube/demo")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for path in PROGRAM
        if path not in MODELS and not str(path.relative_to(ROOT / "kai_cp")).startswith(makers)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in written
    ]
    assert found == []


def test_quantities_have_one_grammar() -> None:
    assert holders("KMGTPE") == ["models/kai_cp_models/quantity.py"]


def test_selectors_have_one_matcher_beside_the_checkers() -> None:
    """By operators: the matcher, that of the checker, that of columns of nodes, and the reader's list."""
    assert holders('"DoesNotExist"') == [
        "models/kai_cp_models/check/selectors.py",
        "models/kai_cp_models/rules/static/selector.py",
        "models/kai_cp_models/selectors.py",
        "kai_cp/reader/affinity.py",
    ]


def test_texts_of_users_have_one_reader() -> None:
    """Annotations are decoded by the reader: JSON, times and durations reach models/ as records."""
    decoders = ("json.loads", "fromisoformat")
    assert [path.name for path in MODELS if any(one in path.read_text() for one in decoders)] == []
