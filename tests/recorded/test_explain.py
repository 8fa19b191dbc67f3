"""The recorded cases: one reason in all outputs, documents as published, text at 80 columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kai_cp.decisions import from_rfc3339
from kai_cp.documents import problems
from kai_cp.explain.document import Explainer, document
from kai_cp.explain.draft import Draft
from kai_cp.explain.text import WIDTH, lines
from kai_cp.inspection import inspection
from kai_cp_models.pods import GroupKey
from kai_cp_models.settings import Settings

SOLVER = Settings().solver.model_copy(update={"budget_seconds": 20.0, "patience": 20.0})
SETTINGS = Settings(solver=SOLVER)


def explained(path: Path) -> tuple[dict[str, Any], Explainer] | None:
    """The document for the pod group of a case, without fixes; None where the case asks for something
    else.
    """
    case = json.loads(path.read_text())
    if "question" in case and "ops" in case["question"]:
        return None
    explainer = Explainer(Draft(case["snapshot"], from_rfc3339(case["now"])), SETTINGS, kinds=())
    key = GroupKey("default", "x")
    if key not in explainer.decided.snapshot.group_by_key:
        return None
    return document(explainer, [explainer.explain(key)], ""), explainer


def test_one_word_everywhere(shared: Path) -> None:
    seen = 0
    for path in sorted((shared / "explain" / "cases").glob("*.json")):
        found = explained(path)
        if found is None:
            continue
        seen += 1
        text, explainer = found
        entry = text["explanations"][0]
        assert problems("explanation/1", text) == [], path.name
        assert all(len(line) <= WIDTH for line in lines(entry)), (path.name, lines(entry))
        situation = explainer.decided.situation
        key = GroupKey("default", "x")
        solved = situation.reasons.get(key)
        assert entry["reason"] == ("" if solved is None else solved.reason), path.name
        line = {one["podGroup"]: one["position"] for one in inspection(situation.snapshot)["waiting"]}
        if entry["state"] == "pending":
            assert entry["position"]["at"] == line.get(str(key)), path.name
            assert solved is not None
            assert key in situation.plan.turns or entry["position"]["at"] is None, path.name
    assert seen > 50
