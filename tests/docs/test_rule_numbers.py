"""Every rule number in code or tests is a heading of docs/semantics.md or docs/formulation.md."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("kai_cp", "models", "topology", "tests", "benchmarks", "deploy")
# "(4.4)", "(2.3, 2.6)", "(formulation 1.4, stage 2)": a parenthesis that begins with a number.
REFERENCE = re.compile(r"\((formulation )?(\d{1,2}\.\d{1,2})((?:(?:, | and |–)\d{1,2}\.\d{1,2})*)(?=[),;:])")
NUMBER = re.compile(r"\d{1,2}\.\d{1,2}")
HEADING = re.compile(r"^#{2,3} (\d{1,2}\.\d{1,2}) ", re.M)
FOREIGN = re.compile(
    r"\bS?§ ?\d|\b(?:user-needs|time-axis|kai-semantics|array-engine|architecture-review)\b"
    r"|\b(?:defect \d+|AS-\d\d)\b"
)


def headings(page: str) -> set[str]:
    return set(HEADING.findall((ROOT / "docs" / page).read_text(encoding="utf-8")))


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Comments and docstrings of a module with their first lines."""
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield node.body[0].lineno, text


def unresolved(text: str, rules: set[str], formulation: set[str]) -> list[str]:
    """The references in ``text`` without a heading."""
    found = [
        number
        for match in REFERENCE.finditer(text)
        for number in NUMBER.findall(match.group(2) + match.group(3))
        if number not in (formulation if match.group(1) else rules)
    ]
    return found + FOREIGN.findall(text)


def modules() -> list[Path]:
    return sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py") if p != Path(__file__))


def test_every_number_of_a_rule_resolves() -> None:
    rules, formulation = headings("semantics.md"), headings("formulation.md")
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {number}"
        for path in modules()
        for line, text in prose(path)
        for number in unresolved(text, rules, formulation)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("Reclaim (4.4) within quota (3.7, 4.3).", []),
        ("As the next cycle would (formulation 1.4, stage 2).", []),
        ("It took (0.5 s) on 2 nodes, (1.5 + 2) GPUs.", []),
        ("A rule that is not there (4.77).", ["4.77"]),
        ("One of two is missing (4.4, 99.1).", ["99.1"]),
        ("Section of another page (formulation 4.4).", ["4.4"]),
        ("Another document (S§1.7).", ["S§1"]),
        ("A number of a list that is not here (14.1, defect 8).", ["14.1", "defect 8"]),
    ],
)
def test_references_are_told_from_other_numbers(text: str, wrong: list[str]) -> None:
    assert unresolved(text, {"3.7", "4.3", "4.4"}, {"1.4"}) == wrong


def test_rules_stand_in_order_and_once() -> None:
    for page in ("semantics.md", "formulation.md"):
        numbers = [
            tuple(map(int, n.split(".")))
            for n in HEADING.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
        ]
        assert numbers == sorted(set(numbers))
