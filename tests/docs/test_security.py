"""The limits that SECURITY.md names are those of the code."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "SECURITY.md").read_text("utf-8")
ROWS: list[tuple[str, str]] = re.findall(r"(?m)^\| `([\w.]+\.[A-Z_]+)` \| (\d+) \|", PAGE)


@pytest.mark.parametrize(("name", "value"), ROWS)
def test_a_limit_is_what_the_page_says(name: str, value: str) -> None:
    module, _, constant = name.rpartition(".")
    assert getattr(import_module(module), constant) == int(value)


def test_there_are_rows() -> None:
    assert len(ROWS) > 10
