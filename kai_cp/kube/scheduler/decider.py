"""From a raw snapshot to a plan, within a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kai_cp_models.snapshot import Plan, Snapshot


@dataclass(frozen=True, slots=True)
class Decided:
    """A snapshot as it was read, the plan for it, and the seconds from raw snapshot to plan.

    ``problem``: set when the engine failed; the plan is then the last checked one. ``unfinished``: whether
    objects wait for a later cycle because others took what this one could spend on them. ``again_at``: when
    what gave way to others is looked at; ``dear``: the namespaces that give way when others are new.
    """

    snapshot: Snapshot
    plan: Plan
    seconds: float = 0.0
    problem: str = ""
    unfinished: bool = False
    again_at: float | None = None
    dear: frozenset[str] = frozenset()


class Decider(Protocol):
    """Whatever turns a snapshot into a plan."""

    def __call__(self, raw: Mapping[str, Any], now: float, usage: Mapping[str, Any] | None) -> Decided:
        """Plan for ``raw`` at the instant ``now``."""
        ...
