"""The snapshot of the next cycle, after a plan was carried out and some pods ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kai_cp.explain.draft import Draft
from kai_cp.explain.places import carry_out, end_pods
from kai_cp_models.plan import Plan
from kai_cp_models.pods import PodKey


def following(raw: Mapping[str, Any], plan: Plan, gone: Collection[PodKey], now: float) -> dict[str, Any]:
    """The raw snapshot after ``plan``, carried out at ``now``: bound pods run, evicted pods wait again, and
    ``gone`` pods have ended.
    """
    draft = Draft(raw, now)
    carry_out(draft, plan)
    end_pods(draft, {str(key) for key in gone})
    return draft.raw
