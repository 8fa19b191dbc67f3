"""From a raw snapshot to a plan, within a budget."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kai_cp.reader import ParseMemo, parse
from kai_cp_models.engine import decide
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Plan, Snapshot


@dataclass(frozen=True, slots=True)
class Decided:
    """A snapshot as it was read, the plan for it, and the seconds from raw snapshot to plan.

    ``problem``: set when the engine failed; the plan is then the last checked one.
    """

    snapshot: Snapshot
    plan: Plan
    seconds: float = 0.0
    problem: str = ""


class Decider(Protocol):
    """Whatever turns a snapshot into a plan."""

    def __call__(self, raw: Mapping[str, Any], now: float, usage: Mapping[str, Any] | None) -> Decided:
        """Plan for ``raw`` at the instant ``now``."""
        ...


@dataclass
class EngineDecider:
    """The engine in this process; what unchanged objects said is remembered from cycle to cycle."""

    settings: Settings
    memo: ParseMemo = field(default_factory=ParseMemo)

    def __call__(self, raw: Mapping[str, Any], now: float, usage: Mapping[str, Any] | None) -> Decided:
        """Plan for ``raw``; a failing engine leaves the last plan it had checked, at worst an empty one."""
        started = time.monotonic()
        snapshot = parse(raw, now=now, usage=usage, memo=self.memo)
        read = time.monotonic()
        best = [Plan()]
        problem = ""
        try:
            deadline = read + self.settings.solver.budget_seconds
            best.append(decide(snapshot, self.settings, deadline=deadline, emit=best.append))
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        return Decided(snapshot, best[-1], time.monotonic() - started, problem)
