"""The places that docs/follow-a-pod.md names exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `([^`]+\.py)` `([^`]+)` \|", re.M)
PLACES = ROW.findall((ROOT / "docs" / "follow-a-pod.md").read_text(encoding="utf-8"))


def defined(path: Path) -> set[str]:
    """Functions, classes and methods of a module, methods as ``Class.method``."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{n.name}" for n in node.body if isinstance(n, ast.FunctionDef)}
    return found


def test_the_page_names_the_whole_way() -> None:
    assert len(PLACES) > 15


@pytest.mark.parametrize(("file", "name"), PLACES, ids=[f"{file}:{name}" for file, name in PLACES])
def test_the_place_is_there(file: str, name: str) -> None:
    assert name in defined(ROOT / file)
