"""The snapshot of the next cycle, after a plan was carried out and some pods ended."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any

from kai_cp.explain.draft import Draft
from kai_cp.explain.places import carry_out, end_pods
from kai_cp_models.plan import Plan
from kai_cp_models.pods import PodKey


def following(raw: Mapping[str, Any], plan: Plan, gone: Collection[PodKey], now: float) -> dict[str, Any]:
    """The raw snapshot after ``plan``, carried out at ``now``: bound pods run, evicted pods wait again, and
    ``gone`` pods have ended. Changed objects have a new version, as on the API server."""
    draft, known = Draft(raw, now), {id(item) for item in _objects(raw)}
    carry_out(draft, plan)
    end_pods(draft, {str(key) for key in gone})
    for item in _objects(draft.raw):
        if id(item) not in known:
            item["metadata"].setdefault("resourceVersion", str(now))
    return draft.raw


def _objects(raw: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    return chain.from_iterable(filter(None, raw["rawObjects"].values()))
