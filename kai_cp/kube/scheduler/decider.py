"""The interface that turns a raw snapshot into a plan within a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kai_cp_models.plan import Plan
from kai_cp_models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Decided:
    """A snapshot as it was read, the plan for it, and the seconds from raw snapshot to plan.

    ``problem`` is set if the engine failed; the plan is then the last checked one. ``unfinished`` tells
    whether objects wait for a later cycle because this one had no time left for them. ``again_at`` is when
    objects that had to wait for others are read; ``dear`` has the namespaces that wait for new pods of
    others.
    """

    snapshot: Snapshot
    plan: Plan
    seconds: float = 0.0
    problem: str = ""
    unfinished: bool = False
    again_at: float | None = None
    dear: frozenset[str] = frozenset()


class Decider(Protocol):
    """Turns a snapshot into a plan."""

    def __call__(self, raw: Mapping[str, Any], now: float, usage: Mapping[str, Any] | None) -> Decided:
        """Plan for ``raw`` at the instant ``now``."""
        ...
