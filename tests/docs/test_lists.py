"""The docs keep up with the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from kai_cp_models.check.audit import SUBJECTS
from kai_cp_models.joint.goals import GOALS
from kai_cp_models.rules.stateful import RULES
from kai_cp_models.rules.static import STATIC_RULES
from kai_cp_models.settings import ObjectiveSettings

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for folder in (".", "*")
    for path in ROOT.glob(f"{folder}/*.md")
    if path.is_file()
)


MAKERS = ("Refusal", "Unscheduled", "replace")
"""Classes that carry a reason."""


def tokens() -> set[str]:
    """Reason tokens that the engine gives."""
    found: set[str] = set()
    for path in (ROOT / "models" / "kai_cp_models").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(call, ast.Call) or ast.unparse(call.func).rpartition(".")[2] not in MAKERS:
                continue
            given = [*call.args[:2], *(one.value for one in call.keywords if one.arg == "reason")]
            texts = [one.value for part in given for one in ast.walk(part) if isinstance(one, ast.Constant)]
            found |= {one for one in texts if isinstance(one, str) and re.fullmatch(r"[A-Z]\w+", one)}
    return found


def test_every_reason_has_its_section_and_no_other_has_one() -> None:
    sections = set(re.findall(r"^## (\w+)$", (ROOT / "docs" / "reasons.md").read_text("utf-8"), re.MULTILINE))
    assert len(tokens()) > 5
    assert tokens() <= sections
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "models" / "kai_cp_models").rglob("*.py"))
    assert not [token for token in sections if f'"{token}"' not in sources]


def test_every_reason_says_what_to_do_first() -> None:
    page = (ROOT / "docs" / "reasons.md").read_text("utf-8")
    rows = re.findall(r"^\| ([A-Z][A-Za-z, ]+) \| (.+) \|$", page, re.MULTILINE)
    listed = [token for names, _ in rows for token in names.split(", ")]
    assert sorted(listed) == sorted(re.findall(r"^## (\w+)$", page, re.MULTILINE))
    assert [names for names, first in rows if len(first) < 20] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text("utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_the_formulation_names_every_rule_and_goal() -> None:
    page = (ROOT / "models" / "README.md").read_text("utf-8")
    names = {rule.NAME for rule in (*STATIC_RULES, *RULES)}
    assert not [name for name in (*names, *GOALS) if f"`{name}" not in page]


def test_the_page_of_goals_says_what_each_is() -> None:
    page = (ROOT / "docs" / "goals.md").read_text("utf-8")
    assert not [name for name, goal in GOALS.items() if f"| `{name}` | {goal.unit} |" not in page]


def test_the_formulation_lists_the_default_goals_in_order() -> None:
    page = (ROOT / "docs" / "formulation.md").read_text("utf-8")
    section = page.partition("### 1.4 ")[2].partition("\n### ")[0]
    listed = re.findall(r"^(\d+)\. `(\w+)`: ", section, re.MULTILINE)
    assert listed == [(str(number), name) for number, name in enumerate(ObjectiveSettings().goals, 1)]


def test_every_subject_of_the_checker_is_in_the_formulation() -> None:
    page = (ROOT / "models" / "README.md").read_text("utf-8")
    assert not [name for name in SUBJECTS.keys() - {"nodes"} if f"`{name}`" not in page]


def test_every_rule_has_its_tests() -> None:
    page = (ROOT / "tests" / "README.md").read_text("utf-8")
    names = {rule.NAME for rule in (*STATIC_RULES, *RULES)}
    assert not [name for name in names | SUBJECTS.keys() if f"`{name}`" not in page]


@pytest.mark.parametrize("name_of_page", ["docs/coming-from-kai.md", "tests/README.md"])
def test_shown_tests_exist(name_of_page: str) -> None:
    """The pages name tests, folders of tests or recorded cases, and all of them exist."""
    page = (ROOT / name_of_page).read_text("utf-8")
    shown = re.findall(r"`(tests/[\w/.]+?)(?:::(\w+))?`", page)
    assert len(shown) > 10
    for path, name in shown:
        assert (ROOT / path).exists(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text("utf-8"), name


def test_unsorted_bullets_of_the_changelog_are_few() -> None:
    """New bullets stand above the parts until they are sorted; hundreds are what a merge brought back."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    unsorted = text.split("## [Unreleased]", 1)[1].split("\n#", 1)[0]
    assert unsorted.count("\n- ") < 100
