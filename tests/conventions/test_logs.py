"""What a warning or an error in the log says: what it is about, and what follows from it or is to be done."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "kai_cp" / "kube"
MODULES = [path for path in sorted(ROOT.rglob("*.py")) if "LOG = " in path.read_text("utf-8")]
LOUD = ("warning", "error", "exception", "log")


def fault(call: ast.Call, level: str) -> str:
    """What is wrong with a line of the log, or ""."""
    texts = [node for node in call.args if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    if not texts:
        return ""  # The sentence is made elsewhere.
    said = str(texts[0].value)
    if level == "exception" and "report this defect" not in said and "exc_info" not in said:
        return f"{said!r} does not ask for a report of the defect"
    return (
        "" if any(mark in said for mark in ",:;") else f"{said!r} does not say what follows or is to be done"
    )


def faults(source: str) -> list[str]:
    calls = [
        (node, node.func.attr)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "LOG"
        and node.func.attr in LOUD
    ]
    return [found for call, level in calls if (found := fault(call, level))]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_loud_lines_say_what_follows(module: Path) -> None:
    assert faults(module.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "line", ['LOG.exception("defect")', 'LOG.error("lease lost")', 'LOG.log(30, "not undone")']
)
def test_a_line_that_names_nothing_to_do_is_found(line: str) -> None:
    assert len(faults(line)) == 1
