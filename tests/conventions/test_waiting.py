"""Tests wait for conditions, not for guessed times, and none asserts how long something took.

Where nothing may happen, an end-to-end test looks again and again (``World.stays``): real processes cannot
be given a clock.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = [path for path in sorted(ROOT.rglob("*.py")) if "time." in path.read_text("utf-8")]
FOR_EVER = 60
"""A job that sleeps for so long stands for one that never ends."""
CLOCKS = ("monotonic", "perf_counter", "time")


def called(node: ast.AST, *names: str) -> bool:
    """Whether the node calls one of these functions of ``time``."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "time"
        and node.func.attr in names
    )


def naps(node: ast.AST) -> Iterator[int]:
    """Lines that sleep once for a short, written time; a loop that sleeps waits for its condition."""
    for child in ast.iter_child_nodes(node):
        if called(child, "sleep"):
            assert isinstance(child, ast.Call)
            seconds = child.args[0]
            if isinstance(seconds, ast.Constant) and float(str(seconds.value)) < FOR_EVER:
                yield child.lineno
        if not isinstance(child, ast.While):
            yield from naps(child)


def stopwatches(node: ast.AST) -> Iterator[int]:
    """Lines that assert on the difference of two times."""
    for child in ast.walk(node):
        if isinstance(child, ast.Assert):
            differences = (part for part in ast.walk(child.test) if isinstance(part, ast.BinOp))
            if any(called(part.left, *CLOCKS) and isinstance(part.op, ast.Sub) for part in differences):
                yield child.lineno


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_time_is_guessed_or_measured(module: Path) -> None:
    tree = ast.parse(module.read_text("utf-8"))
    assert [*naps(tree), *stopwatches(tree)] == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("time.sleep(0.3)", [1]),
        ("faults = lambda: time.sleep(1)", [1]),
        ("while not met():\n    time.sleep(0.1)", []),
        ("time.sleep(600)", []),
        ("assert time.monotonic() - began < 60", [1]),
        ("while not met():\n    assert time.monotonic() < end", []),
    ],
)
def test_fixed_naps_and_stopwatches_are_found(source: str, found: list[int]) -> None:
    tree = ast.parse(source)
    assert [*naps(tree), *stopwatches(tree)] == found
