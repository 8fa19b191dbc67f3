"""Trials: operations are applied to the snapshot and the whole cycle is solved again; does that admit the
group?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import orjson

from kai_cp.decisions import cut_during
from kai_cp.explain.cycle import READ_WORK, Cycles, DecidedCycle
from kai_cp.explain.draft import BadOperation, Draft
from kai_cp.explain.operations import applied
from kai_cp.json_types import Object
from kai_cp_models.pods import GroupKey
from kai_cp_models.queries.why import Blocking, Situation, shut_out
from kai_cp_models.snapshot import PodGroup, Snapshot

MOST_BELOW: Final = 32
"""If at most this many smaller amounts are left, all are tried, which proves that none of them helps."""


@dataclass(frozen=True)
class FixCandidate:
    """Operations that may help, and what they amount to in the unit of their kind."""

    ops: tuple[Object, ...]
    amount: float


@dataclass(frozen=True)
class Fix:
    """Operations that were applied, solved, and admit the group. ``least``: no smaller amount does."""

    kind: str
    amount: float
    unit: str
    ops: tuple[Object, ...]
    proved: bool
    decided: DecidedCycle
    amounts: dict[str, float] = field(default_factory=dict)
    """By kind, of a combined fix."""


class Spent(Exception):
    """No work, or no time, is left for trials."""


def smallest(helps: Callable[[int], bool], most: int) -> tuple[int, bool]:
    """The smallest number from 1 to ``most`` that helps, and whether every smaller one was shown not to help.

    ``most`` is known to help. As a rule more helps whenever less does, so the range is halved; if few are
    left below, all are tried. ``helps`` may raise ``Spent``; the answer is then what was found so far.
    """
    useless: set[int] = set()
    low, high = 0, most
    middle = most - 1  # Often nothing less helps.
    try:
        while high - low > 1:
            if helps(middle):
                high = middle
            else:
                useless.add(middle)
                low = middle
            middle = (low + high) // 2
        rest = [k for k in range(high - 1, 0, -1) if k not in useless]
        for k in rest if len(rest) <= MOST_BELOW else ():
            if helps(k):
                high = k
            else:
                useless.add(k)
    except Spent:
        pass
    return high, useless.issuperset(range(1, high))


class Trials:
    """Tries operations for one pod group; nothing is solved twice."""

    def __init__(
        self,
        cycles: Cycles,
        base: DecidedCycle,
        key: GroupKey,
        blocking: Blocking,
        before: Sequence[Object] = (),
        *,
        beside: Collection[GroupKey] = (),
        helps: Callable[[DecidedCycle], bool] | None = None,
    ) -> None:
        """``before``: operations that come before every candidate (a combined fix). ``beside``: further pod
        groups that the question names, with ``helps``: what else a cycle must do than admit the pod group."""
        self.cycles = cycles
        self.base = base
        self.key = key
        self.blocking = blocking
        self.before = tuple(before)
        self.asked = frozenset((key, *beside))
        self.helps = helps or (lambda decided: decided.admits(key))
        self._known: dict[bytes, DecidedCycle | None] = {}
        self._after: dict[bytes, Situation] = {}

    @property
    def situation(self) -> Situation:
        """The cycle that is explained."""
        return self.base.situation

    @cached_property
    def _shut_out(self) -> bool:
        return shut_out(self.snapshot, self.cycles.settings, self.key)

    def _shuts_out(self, draft: Draft) -> bool:
        """Whether no node of a draft takes what the group needs next, which shows without a cycle."""
        self.cycles.work.left -= READ_WORK
        snapshot = self.cycles.parse(draft)
        return self.key in snapshot.group_by_key and shut_out(snapshot, self.cycles.settings, self.key)

    @property
    def here(self) -> Situation:
        """The cycle after the preceding operations; they may have added nodes."""
        if not self.before:
            return self.situation
        text = orjson.dumps(self.before)
        if text not in self._after:
            self._after[text] = self.cycles.decide(self.changed(self.before)).situation
        return self._after[text]

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that is explained."""
        return self.base.snapshot

    @property
    def raw(self) -> Any:
        """The raw snapshot that is explained."""
        return self.base.draft.raw

    @property
    def group(self) -> PodGroup:
        """The pod group."""
        return self.snapshot.group_by_key[self.key]

    def after(self, ops: Sequence[Object]) -> Trials:
        """Trials in which ``ops`` come first."""
        found = Trials(
            self.cycles,
            self.base,
            self.key,
            self.blocking,
            (*self.before, *ops),
            beside=self.asked,
            helps=self.helps,
        )
        found._known, found._after = self._known, self._after
        return found

    def changed(self, ops: Sequence[Object]) -> Draft:
        """The snapshot that is explained after these operations; raises ``BadOperation``."""
        return applied(self.raw, ops, self.base.draft.now, at_once=True)

    def admits(self, ops: Sequence[Object]) -> DecidedCycle | None:
        """The cycle after the operations, if it helps; raises ``Spent``."""
        every = [*self.before, *ops]
        text = orjson.dumps(every)
        if text not in self._known:
            if over := self.cycles.over():
                raise Spent(over)
            try:
                draft = self.changed(every)
                if self._shut_out and self._shuts_out(draft):
                    self._known[text] = None
                    return None
                decided = self.cycles.decide(draft)
                helps = self.helps(decided)
                if not helps and cut_during(decided.situation.plan.stages) is not None:
                    raise Spent("the deadline cut a cycle off")  # It shows nothing.
                self._known[text] = decided if helps else None
            except BadOperation:
                self._known[text] = None
        return self._known[text]

    def first(
        self, kind: str, unit: str, candidates: Iterable[FixCandidate], *, complete: bool = True
    ) -> Fix | None:
        """The first candidate that helps; candidates come with growing amounts.

        ``complete``: below the first that helps, this kind has no candidates but those that came before it.
        """
        for candidate in candidates:
            decided = self.admits(candidate.ops)
            if decided is not None:
                return Fix(kind, candidate.amount, unit, candidate.ops, complete, decided)
        return None


class Listing(Trials):
    """Lists what would be tried and solves nothing."""

    def __init__(self, of: Trials) -> None:
        super().__init__(of.cycles, of.base, of.key, of.blocking, of.before, beside=of.asked, helps=of.helps)
        self.listed: list[Sequence[Object]] = []

    def admits(self, ops: Sequence[Object]) -> DecidedCycle | None:
        """Nothing helps, so that all candidates are listed."""
        self.listed.append(ops)
        return None
