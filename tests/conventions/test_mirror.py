"""A test is found by the name of what it tests: three folders mirror the packages, and a page lists the
others.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PACKAGES = {
    "kai_cp": ROOT / "kai_cp",
    "kai_cp_models": ROOT / "models" / "kai_cp_models",
    "kai_cp_topology": ROOT / "topology" / "kai_cp_topology",
}
MODULES = sorted(path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))


def folders() -> set[str]:
    """Folders of behaviour that spans modules, as the first table of tests/README.md lists them."""
    table = (TESTS / "README.md").read_text().split("\n## ")[0]
    rows = (row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))
    return {name for row in rows for name in re.findall(r"`(\w+)/`", row)}


def subject(path: Path) -> Path:
    """What a test module of a mirroring folder is named after: a module, without its suffix, or a package."""
    package, *inner = path.parts[:-1]
    return PACKAGES[package].joinpath(*inner, path.stem.removeprefix("test_"))


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_every_test_has_its_place(path: Path) -> None:
    if path.parts[0] in PACKAGES:
        named = subject(path)
        assert named.with_suffix(".py").exists() or (named / "__init__.py").exists(), (
            f"tests/{path} is named for {named.relative_to(ROOT)}, which is not there; "
            "a test of several modules lies in a folder of tests/README.md"
        )
    else:
        assert path.parts[0] in folders(), f"tests/{path}: its folder is not in tests/README.md"


def test_the_folders_of_the_page_are_there() -> None:
    there = {path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders() == there - PACKAGES.keys()


def test_snapshots_of_records_have_one_builder() -> None:
    """A default of a new field is stated once; ``dataclasses.replace`` makes the rest."""
    made = re.compile(r"(?<![\w.\"'`])(?:Snapshot|PodGroup|Pod)\((?!BaseModel)")
    building = [
        path.relative_to(TESTS).as_posix()
        for path in sorted(TESTS.rglob("*.py"))
        if any(made.search(line) for line in path.read_text().splitlines() if not line.startswith("class "))
    ]
    assert building == ["support/worlds.py"]
