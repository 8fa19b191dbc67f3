"""Limits of searches: each has a unit and a reason, and what decides has no other bare numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import kai_cp_models.joint
from kai_cp_models.limits import LIMITS

ROOT = Path(kai_cp_models.joint.__file__ or "").parents[1]
PLACES = ("actions", "joint", "proof", "reservations", "defrag")
"""Folders of what decides; the modules beside them are those below."""
MODULES = ("engine", "cycle", "ledger", "placement", "fitting", "units", "blame")
PLAIN = {0, 1, 2, 60, 3_600, 1e-6}
"""Counting, halves, a minute, an hour, and what rounding of floats may change."""
UNITS = {
    "HOUR",
    "SECONDS_PER_HOUR",
    "TOLERANCE",
    "_DAY",
    "_FINEST_WEIGHT",
    "_HOUR",
    "_LOST_TICKS",
    "_PERCENT",
    "TICKS_PER_SECOND",
    "_TICKS",
    "_WEEK",
}
"""Constants that say in which unit or how finely something is counted."""
APART = {"windows.py": {3, 5, 7, 1e6}, "fitting.py": {3}}
"""Parts of a date; how many arrays are made."""


def numbers(text: str) -> Iterator[tuple[int, float]]:
    """Numbers of a module with their lines, apart from plain ones, units, and positions in a row."""
    tree, apart = ast.parse(text), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            apart.add(id(node.slice))
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
            apart.update(map(id, node.iter.elts))
    for line in tree.body:
        target = line.target if isinstance(line, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id in UNITS:
            apart.update(map(id, ast.walk(line)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float) and id(node) not in apart:
            assert isinstance(node.value, (int, float))
            if node.value not in PLAIN:
                yield node.lineno, node.value


def test_every_limit_has_a_unit_and_a_reason() -> None:
    for one in fields(LIMITS):
        assert one.metadata["unit"], one.name
        assert len(one.metadata["why"].split()) > 2, one.name


def test_every_limit_is_asked_for() -> None:
    text = "".join(path.read_text("utf-8") for path in ROOT.rglob("*.py"))
    assert not [one.name for one in fields(LIMITS) if f"LIMITS.{one.name}" not in text]


def test_modules_that_decide_name_no_numbers_of_their_own() -> None:
    """Neither as constants nor in bodies of functions."""
    paths = [path for folder in PLACES for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {number:g}"
        for path in (*paths, *(ROOT / f"{name}.py" for name in MODULES))
        for line, number in numbers(path.read_text("utf-8"))
        if number not in APART.get(path.name, ())
    ]
    assert found == []


def test_a_number_in_a_body_is_found() -> None:
    text = "HOUR: Final = 3_601\n_MANY: Final = 48\ndef one(x):\n    return x[3] + x[:5] + -1 + 0.35 / 2\n"
    assert sorted(numbers(text)) == [(2, 48), (4, 0.35), (4, 5)]
