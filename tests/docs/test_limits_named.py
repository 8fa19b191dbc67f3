"""models/README.md names every limit that can cost a proof or a better plan."""

from __future__ import annotations

import re
from dataclasses import fields

from kai_cp_models.limits import LIMITS
from tests.docs.test_lists import ROOT

COST_NOTHING = {
    "changed_nodes": "which of two equal computations is faster",
    "replaced_share": "whether allocate keeps the other places or takes the model's, for the same groups",
    "kept_instants": "the size of a cache",
    "patterns": "which of two exact models is smaller",
    "stride": "the same rows, stated shorter",
    "small_variables": "how CP-SAT runs",
    "sum_of_goals": "goals are solved one by one beyond it",
    "most_beyond": "bounds a variable, far above any cluster",
    "gangs_per_node": "the same",
    "variable_work": "an estimate of work done",
    "unit_work": "the same",
    "named": "names in messages",
    "grown": "when an early answer is written",
}
"""Limits that cost neither, each with what it decides."""


def section() -> str:
    page = (ROOT / "models" / "README.md").read_text("utf-8")
    return page.partition("## Where large problems are approximated")[2].partition("\n## ")[0]


def test_every_limit_is_named_or_costs_nothing() -> None:
    named = set(re.findall(r"`(\w+)`", section()))
    names = {one.name for one in fields(LIMITS)}
    assert names - named == COST_NOTHING.keys()


def test_the_numbers_are_those_in_force() -> None:
    values = {one.name: getattr(LIMITS, one.name) for one in fields(LIMITS)}
    said = re.findall(r"`(\w+)` \(([\d.,]+)( %)?\)", section())
    found = {name: float(text.replace(",", "")) for name, text, percent in said if not percent}
    assert len(found) > 20
    assert {name: values[name] for name in found} == found
