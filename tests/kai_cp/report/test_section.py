"""Tables in a window: columns of a terminal are counted, of which a Chinese character takes two."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from kai_cp.report.section import Names, Section, cut_end, cut_middle, distinct

WIDE = "訓練作業-大規模言語模型-長い名前-0123456789"


def printed(section: Section, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    console.print(section.render(), crop=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
@pytest.mark.parametrize("name", [WIDE, "x" * 253, "a/b,c 'd' \"e\"", "e\u0301\u0301tude"])
def test_no_line_is_wider_than_the_window_and_columns_are_aligned(width: int, name: str) -> None:
    rows = [("1", name, Names((name, name)), "because " + 4 * (name + " ")), ("2", "plain", "-", "short")]
    columns = ("#", "Name", "Nodes", "Because")
    lines = printed(Section("Wait", columns, rows, right=("#",), fixed=("Name",), note="Because"), width)
    assert max(map(cell_len, lines)) <= width
    head = next(line for line in lines if line.startswith("#"))
    plain = next(line for line in lines if line.startswith("2"))
    assert head.index("Name") == plain.index("plain")


@pytest.mark.parametrize("cut", [cut_end, cut_middle])
@pytest.mark.parametrize("text", [WIDE, "plain-name-of-a-pod-group-0"])
def test_a_cut_text_fits_and_shows_that_it_was_cut(cut: object, text: str) -> None:
    assert callable(cut)
    for width in range(3, 60):
        short = cut(text, width)
        assert cell_len(short) <= width
        assert short == text if cell_len(text) <= width else "…" in short


@pytest.mark.parametrize("indent", ["", "  "])
@pytest.mark.parametrize("width", [16, 24, 40])
def test_different_names_stay_different_where_they_are_cut(indent: str, width: int) -> None:
    names = [f"{indent}department-of-research-{x}-understanding-production" for x in ("language", "vision")]
    short = distinct([*names, "plain"], width)
    assert len(set(short.values())) == 3
    assert all(text.startswith(indent) and cell_len(text) <= width for text in short.values() if "…" in text)
    rows = [(name, "1") for name in names]
    shown = printed(Section("Queues", ("Queue", "GPUs"), rows, fixed=("Queue",)), width + 6)
    assert len(set(shown[-2:])) == 2
