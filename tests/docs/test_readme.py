"""The figures of the README and of docs/sizing.md are those of docs/benchmarks.md."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.test_lists import ROOT

ROWS = {
    "1,000 nodes, free GPUs in pieces": "fragmented-1000-s1",
    "1,000 nodes, gangs that need one rack": "racks-1000-s1",
    "1,000 nodes, a mix of everything": "mixed-1000-s1",
    "500 nodes, reclaim for 4,000 one-GPU jobs": "ReclaimManySingleGPUJobsFullCycle_500Node",
    "500 nodes, every queue over quota": "contended-500-s1",
    "200 nodes, gangs that need one rack": "racks-200-s1",
}
WORDS = re.compile(r"([\d.]+) (start|are lost|s(?![a-z]))")


def cells(page: str, first: str) -> list[str]:
    """The cells of the first row that begins with these words."""
    found = [line for line in page.splitlines() if line.startswith(f"| {first} |")]
    assert found, first
    return [cell.strip() for cell in found[0].strip("|").split("|")[1:]]


def amounts(cell: str) -> list[float]:
    """The amounts ``OURS / KAI`` of a cell; one is that of both."""
    found = [float(part.replace(",", "")) for part in cell.split(" / ")]
    return found * (3 - len(found))


def seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 3 else f"{value:.1f}"


@pytest.mark.parametrize(("row", "case"), ROWS.items())
def test_a_row_has_the_figures_of_its_case(row: str, case: str) -> None:
    took, admitted, lost = map(
        amounts, cells((ROOT / "docs" / "benchmarks.md").read_text("utf-8"), case)[1:4]
    )
    kai, ours = cells((ROOT / "README.md").read_text("utf-8"), row)
    for i, cell in enumerate((ours, kai)):
        said = {word: amount for amount, word in WORDS.findall(cell.replace("*", "").replace(",", ""))}
        wanted = {"start": f"{admitted[i]:.0f}", "are lost": f"{lost[i]:.0f}", "s": seconds(took[i])}
        assert said == {word: wanted[word] for word in said}, cell
        assert "s" in said


SIZES = re.findall(r"^\| (\w+-10000) \|", (ROOT / "docs" / "sizing.md").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("case", SIZES)
def test_a_row_of_the_sizes_has_the_figures_of_its_case(case: str) -> None:
    sizes, benchmarks = ((ROOT / "docs" / page).read_text("utf-8") for page in ("sizing.md", "benchmarks.md"))
    pods, reading, first, *_, memory = cells(benchmarks, case)
    assert cells(sizes, case) == [pods, reading, first, memory]


def test_the_sizes_have_rows() -> None:
    assert len(SIZES) > 2


def test_the_readme_counts_the_packages_of_an_installation() -> None:
    """All that the dependencies without extras bring, as they are installed here."""
    found: set[str] = set()
    waiting = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    while waiting:
        wanted = Requirement(waiting.pop())
        name = canonicalize_name(wanted.name)
        if name not in found and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            found.add(name)
            waiting += requires(name) or []
    assert f"({len(found)} packages, " in (ROOT / "README.md").read_text("utf-8")
