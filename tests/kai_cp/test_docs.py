"""The docs keep up with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md")))


def tokens() -> set[str]:
    """Reason tokens that the engine gives."""
    found: set[str] = set()
    for path in (ROOT / "models" / "kai_cp_models").rglob("*.py"):
        text = path.read_text("utf-8")
        found |= set(re.findall(r'(?:Waiting|Refused)\(\s*"([A-Z]\w+)"', text))
    return found


def test_every_reason_has_its_section_and_no_other_has_one() -> None:
    sections = set(re.findall(r"^## (\w+)$", (ROOT / "docs" / "reasons.md").read_text("utf-8"), re.MULTILINE))
    assert len(tokens()) > 5
    assert tokens() <= sections
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "models" / "kai_cp_models").rglob("*.py"))
    assert not [token for token in sections if f'"{token}"' not in sources]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text("utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target
