"""The public modules of ``kai_cp_models`` are listed once, and no other module is imported from outside."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import kai_cp_models

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models" / "kai_cp_models"
PUBLIC = frozenset(kai_cp_models.PUBLIC)
OUTSIDE = ("kai_cp", "benchmarks", "tests/support")
FOR_BENCHMARKS = {("benchmarks/device_rules.py", "rules")}
"""It measures a cycle without the stateful rules, so it has to take them out."""


def imported(source: str) -> Iterator[str]:
    """Modules of ``kai_cp_models`` that a source imports, by the name below the package."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (
            parts[1] for name in names if (parts := name.split("."))[0] == "kai_cp_models" and parts[1:]
        )


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from kai_cp_models.ledger import Ledger", "ledger"),
        ("from kai_cp_models import ledger", "ledger"),
        ("import kai_cp_models.joint.model", "joint"),
        ("def f():\n    from kai_cp_models.rules.static import size", "rules"),
    ],
)
def test_imports_are_found(source: str, found: str) -> None:
    assert list(imported(source)) == [found]


@pytest.mark.parametrize("folder", OUTSIDE)
def test_nothing_outside_imports_an_internal(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in paths
        for name in imported(path.read_text("utf-8"))
        if name not in PUBLIC
    }
    assert found - FOR_BENCHMARKS == set()


def test_every_module_is_public_or_forbidden() -> None:
    """The contract of import-linter is the complement of the list, so a new module is internal at first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["name"].startswith("Other packages use the public"))
    modules = {
        path.stem for path in MODELS.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    forbidden = {f"kai_cp_models.{name}" for name in modules - PUBLIC - {"__init__"}}
    assert modules >= PUBLIC
    assert set(contract["forbidden_modules"]) == forbidden
