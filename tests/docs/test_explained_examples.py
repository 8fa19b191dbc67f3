"""The examples on the pages about explain and what-if are what the program prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kai_cp.decisions import from_rfc3339, rfc3339
from kai_cp.explain.command_line import operation
from kai_cp.explain.cycle import Cycles
from kai_cp.explain.document import Explainer
from kai_cp.explain.draft import Draft
from kai_cp.explain.text import as_of, lines
from kai_cp.explain.whatif import whatif
from kai_cp.explain.whatif_text import lines as whatif_lines
from kai_cp_models.pods import GroupKey
from kai_cp_models.settings import Settings
from tests.docs.test_lists import ROOT
from tests.support.plans import UNHURRIED


def shown(page: str) -> list[str]:
    """The lines of the first block of text on a page."""
    found = re.search(r"```text\n(.*?)\n```", (ROOT / "docs" / page).read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1].split("\n")


def renamed(shared: Path, case: str, names: dict[str, str], spaces: dict[str, str]) -> Draft:
    """A recorded case under names that a reader knows; ``spaces``: namespaces by the beginning of an
    object's name.
    """
    found = json.loads((shared / "explain" / "cases" / f"{case}.json").read_text())

    def under(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: under(value) for key, value in item.items()}
        if isinstance(item, list):
            return [under(one) for one in item]
        return names.get(item, item) if isinstance(item, str) else item

    raw = under(found["snapshot"])
    for item in (*raw["rawObjects"]["podGroups"], *raw["rawObjects"]["pods"]):
        name = item["metadata"]["name"]
        item["metadata"]["namespace"] = next(
            space for start, space in spaces.items() if name.startswith(start)
        )
    return Draft(raw, from_rfc3339(found["now"]))


def test_the_explanation_that_one_sends_to_a_user(shared: Path) -> None:
    names = {"x": "llm-7b", "x-0": "llm-7b-0", "a": "team-a"}
    draft = renamed(shared, "EX-18", names, {"": "team-a"})
    entry = Explainer(draft, UNHURRIED, budget=300.0).explain(GroupKey("team-a", "llm-7b"))
    told = as_of(rfc3339(draft.now), "snapshot", None)
    assert [*lines(entry), *told] == shown("my-job-is-pending.md")


def test_the_answer_of_what_if(shared: Path) -> None:
    draft = renamed(shared, "WI-07", {"a": "team-a", "b": "team-b"}, {"rb": "team-b", "": "team-a"})
    ops = operation("--set-queue", "team-a.gpu.quota=8", draft.now)
    found, _ = whatif(Cycles(Settings()), draft, ops)
    assert whatif_lines(found, "snapshot") == shown("explain-and-what-if.md")
