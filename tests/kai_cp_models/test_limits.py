"""Limits of searches: each has a unit and a reason, and the engine has no other bare numbers."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import kai_cp_models.joint
from kai_cp_models.limits import LIMITS

ROOT = Path(kai_cp_models.joint.__file__ or "").parents[1]
MEASURED = {"search", "goals"}
"""Modules that also state properties of the solver or of units: measured work, roundings, conversions."""


def test_every_limit_has_a_unit_and_a_reason() -> None:
    for one in fields(LIMITS):
        assert one.metadata["unit"], one.name
        assert len(one.metadata["why"].split()) > 2, one.name


def test_every_limit_is_asked_for() -> None:
    text = "".join(path.read_text("utf-8") for path in ROOT.rglob("*.py"))
    assert not [one.name for one in fields(LIMITS) if f"LIMITS.{one.name}" not in text]


def test_actions_and_models_name_no_numbers_of_their_own() -> None:
    found = [
        f"{path.name}: {target.id}"
        for folder in ("actions", "joint")
        for path in (ROOT / folder).glob("*.py")
        if path.stem not in MEASURED
        for line in ast.parse(path.read_text("utf-8")).body
        if isinstance(line, (ast.Assign, ast.AnnAssign)) and isinstance(line.value, ast.Constant)
        for target in (line.targets if isinstance(line, ast.Assign) else [line.target])
        if isinstance(target, ast.Name) and isinstance(line.value.value, (int, float))
    ]
    assert found == []
