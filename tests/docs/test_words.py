"""One word for each thing in everything that a user reads (docs/words.md): messages of the program, and
pages.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for top in ("kai_cp", "models", "topology") for path in (ROOT / top).rglob("*.py"))
TESTS = sorted(path for top in ("tests", "benchmarks") for path in (ROOT / top).rglob("*.py"))
PAGES = [
    *(ROOT / top / "README.md" for top in (".", "deploy", "models", "benchmarks", "tests", "tests/e2e")),
    *sorted((ROOT / "docs").glob("*.md")),
]
KEYS = {"room", "room:", "when the room is free", "`now`, `when the room is free`, or a time."}
"""Names of a rule family and values of documents: keys stay, whatever the sentences call them."""
OLD = re.compile(r"\broom\b(?!:)|\b(waits?|wait) again\b|\b(is|are|was|were) set aside\b|\bwhoever\b", re.I)
"""Free capacity, back to pending, skipped; a thing is not a *who*."""
PERSONS = re.compile(r"\b(who|whom|nobody|somebody|everybody)\b", re.I)
"""Pods and queues are things; no message of the program speaks about persons."""
SOURCE = re.compile(r"\b(whoever|whom|nobody|somebody|everybody|anybody)\b", re.I)
"""The same for code, comments and docstrings: a pod, a group or a program has a name."""


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Docstrings, those of attributes included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for line in node.body:
                if isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant):
                    yield line.value


def remarks(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings and comments, with their lines."""
    text = path.read_text("utf-8")
    for found in docstrings(ast.parse(text)):
        yield found.lineno, str(found.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Strings other than docstrings, with their lines."""
    tree = ast.parse(path.read_text("utf-8"))
    docs = {id(found) for found in docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def test_messages_use_the_words_of_the_page() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in SOURCES
        for line, text in messages(path)
        if text not in KEYS and (OLD.search(text) or PERSONS.search(text))
    ]
    assert found == []


def test_code_calls_things_by_their_names() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if SOURCE.search(line)
    ]
    assert found == []


def test_tests_and_benchmarks_do_too() -> None:
    """In docstrings and comments; other strings are data."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in TESTS
        for line, text in remarks(path)
        if SOURCE.search(text)
    ]
    assert found == []


def test_the_chart_and_the_web_page_do_too() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for top in ("deploy/chart", "kai_cp/view/assets")
        for path in (ROOT / top).rglob("*")
        if path.is_file()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if SOURCE.search(line)
    ]
    assert found == []


NAMES = re.compile(
    r"^ *def (test_(?:what|whatever|who|it|one_that)_\w*"
    r"|test_\w*_(?:who|whoever|whom|nobody|somebody|everybody|anybody|room)(?=_|\()\w*)",
    re.MULTILINE,
)
"""A test is named subject first, and its subject is a thing with a name."""


def test_names_of_tests_have_a_subject() -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in TESTS
        if (names := NAMES.findall(path.read_text("utf-8")))
    }
    assert found == {}


def test_a_name_without_a_subject_is_found() -> None:
    names = (
        "test_what_fits",
        "test_it_ends",
        "test_a_pod_who_waits",
        "test_a_pod_finds_room",
        "test_a_pod_ends",
    )
    assert NAMES.findall("".join(f"def {name}() -> None:\n" for name in names)) == list(names[:-1])


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_use_the_words_of_the_page(page: Path) -> None:
    """Only in sentences; code and output between them may contain keys."""
    text = re.sub(r"^```.*?^```|`[^`]*`", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert [match[0] for words in (OLD, SOURCE) for match in words.finditer(text)] == []


def test_a_wrong_word_is_found(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text('"""Room in a docstring."""\nprint(f"no room for {1}")\n')
    assert [text for _, text in messages(path) if OLD.search(text)] == ["no room for "]
    path.write_text('"""One."""\nx = 1\n"""Two."""\n# three\ny = "four"\n')
    assert [text for _, text in remarks(path)] == ["One.", "Two.", "# three"]
