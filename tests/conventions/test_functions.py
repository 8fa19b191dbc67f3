"""No function is long: without signature and docstring it has at most 60 lines (CONTRIBUTING)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_LINES = 60


def long_functions(path: Path) -> Iterator[str]:
    """Functions above the limit. A command's signature is the list of its options, and its docstring
    the help page.
    """
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
        lines = (node.end_lineno or 0) - body[0].lineno + 1
        if lines > MOST_LINES:
            yield f"{path.name}: {node.name} has {lines} lines"


def test_functions_are_short() -> None:
    paths = [
        path for top in ("kai_cp", "models", "topology", "benchmarks") for path in (ROOT / top).rglob("*.py")
    ]
    assert len(paths) > 100
    assert [found for path in paths for found in long_functions(path)] == []


def test_a_long_function_is_found(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    for lines, found in ((MOST_LINES, 0), (MOST_LINES + 1, 1)):
        path.write_text('def f():\n    """Words."""\n' + "    print()\n" * lines)
        assert len(list(long_functions(path))) == found
