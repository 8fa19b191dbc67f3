"""Which devices selectors match, and what their evaluation costs the authors' namespaces.

Devices that an expression cannot tell apart are one kind and are evaluated once. The steps of a cycle are
limited for each namespace and for all namespaces together. What an earlier cycle found is remembered and not
charged again, so every claim that waits is evaluated in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Mask
from kai_cp_models.records.devices import DeviceView
from kai_cp_models.records.judging import Paid
from kai_cp_models.rules.stateful.dra import cel
from kai_cp_models.settings import Limits

DEVICES_PER_STEP: Final = 4
"""Devices that can be sorted by kind, or read once, in the time of one step of an expression."""


_MOST_SORTED: Final = 16
"""Sets of names by which the devices are kept sorted."""
_ENTRY_BYTES: Final = 400
"""Of an answer without its texts."""


class TooCostly(Exception):
    """A claim whose selectors are not evaluated to the end; ``later``: a later cycle may evaluate them.

    ``always``: this holds for every claim with the selector at which the evaluation ended.
    """

    def __init__(self, reason: str, *, later: bool = False, always: bool = False) -> None:
        super().__init__(reason)
        self.later = later
        self.always = always


class Account:
    """What one claim may spend. Its own limit counts all steps, the limits of the cycle only new ones."""

    def __init__(self, judge: Judge, namespace: str) -> None:
        self._judge = judge
        self._namespace = namespace
        self.spent = 0

    def charge(self, steps: int, *, new: bool) -> None:
        """Count ``steps``; raises :class:`TooCostly`. ``new``: steps that still have to be done, not
        remembered ones."""
        limits, judge = self._judge.limits, self._judge
        self.spent += steps
        most = limits.cel_steps_per_namespace
        if self.spent > most:
            raise TooCostly(f"its selectors take more than {most} steps (limits.cel_steps_per_namespace)")
        if not new:
            return
        if judge.spent[self._namespace] + steps > most:
            raise TooCostly(
                f"the claims of its namespace take more than {most} steps in one cycle "
                "(limits.cel_steps_per_namespace); it is looked at in a later one",
                later=True,
            )
        if judge.spent.total() + steps > limits.cel_steps_per_cycle:
            raise TooCostly(
                f"claims take more than {limits.cel_steps_per_cycle} steps in one cycle "
                "(limits.cel_steps_per_cycle); it is looked at in a later one",
                later=True,
            )
        judge.spent[self._namespace] += steps


@dataclass(frozen=True, eq=False)
class _Read:
    """What is known of an expression. It replaces the expression's text as the key of answers about
    devices."""

    names: frozenset[str] | None
    problem: str


class _Held(NamedTuple):
    """Packed bits of the devices that satisfy the expressions, or why a claim has none; and what finding them
    cost."""

    found: NDArray[np.uint8] | None
    steps: int
    problem: str


class Judge:
    """Evaluates selectors over the devices of one catalog."""

    def __init__(self, views: Sequence[DeviceView], limits: Limits, paid: Paid) -> None:
        self._views = views
        self._names = frozenset(
            name[1] for view in set(views) for name, _ in (*view.attributes, *view.capacity)
        )
        self._kinds: dict[frozenset[str] | None, tuple[NDArray[np.int64], list[DeviceView]]] = {}
        self._paid = paid
        self._era = paid.about((tuple(views), limits))
        self.limits = limits
        self.spent: Counter[str] = Counter()
        """New steps of this cycle by namespace."""

    def problem(self, expressions: Sequence[str], account: Account | None = None) -> str:
        """Why kai-cp cannot evaluate one of the expressions; "" if it can."""
        return next(filter(None, (self._read(each, account).problem for each in expressions)), "")

    def holding(
        self, expressions: Sequence[str], account: Account | None = None, *, among: Mask | None = None
    ) -> Mask:
        """[device] devices (of those ``among``) that satisfy all expressions.

        The author of the expressions pays from ``account``; raises :class:`TooCostly`.
        """
        within = np.ones(len(self._views), dtype=np.bool_) if among is None else among
        key = (self._era, tuple(expressions), np.packbits(within).tobytes())
        known: _Held | None = self._paid.answers.get(key)
        if known is not None and account is not None:
            account.charge(known.steps, new=False)
        if known is not None and known.problem:
            raise TooCostly(known.problem)
        if known is not None and known.found is not None:
            return np.unpackbits(known.found, count=len(self._views)).astype(np.bool_)
        before = account.spent if account is not None else 0

        def remember(found: NDArray[np.uint8] | None, problem: str = "") -> None:
            steps = account.spent - before if account is not None else 0
            self._paid.answers.put(
                key, _Held(found, steps, problem), _ENTRY_BYTES + 2 * len(key[2]) + 8 * len(key[1])
            )

        try:
            found = self._holding(expressions, within.copy(), account)
        except TooCostly as problem:
            if not problem.later:
                remember(None, str(problem) if problem.always else "")
            raise
        remember(np.packbits(found))
        return found

    def matches(self, expression: str, device: DeviceView) -> bool:
        """Whether a device of the catalog satisfies an expression that was judged before."""
        read = self._read(expression, None)
        return self._holds(expression, read, cel.visible(device, read.names), None)

    def _holding(self, expressions: Sequence[str], found: Mask, account: Account | None) -> Mask:
        for expression in expressions:
            read = self._read(expression, account)
            inverse, kinds = self._by_kind(read, account)
            holds = np.zeros(len(kinds), dtype=np.bool_)
            asked = np.unique(inverse[found])
            if account is not None:
                new = any((read, kinds[kind]) not in self._paid.verdicts for kind in asked)
                account.charge(cel.parsing(expression), new=new)
            for kind in asked:
                holds[kind] = self._holds(expression, read, kinds[kind], account)
            found &= holds[inverse]
        return found

    def _read(self, expression: str, account: Account | None) -> _Read:
        known: _Read | None = self._paid.answers.get(expression)
        if account is not None:
            account.charge(cel.parsing(expression), new=known is None)
        if known is None:
            compiled = cel.compiled(expression)
            known = _Read(compiled.names, compiled.problem)
            self._paid.answers.put(expression, known, _ENTRY_BYTES + len(expression))
        return known

    def _holds(self, expression: str, read: _Read, kind: DeviceView, account: Account | None) -> bool:
        most = cel.MOST_STEPS if account is None else self.limits.cel_steps_per_device
        verdict: cel.CelVerdict | None = self._paid.verdicts.get((read, kind))
        new = verdict is None or (verdict.over and verdict.steps < most)
        if verdict is None or new:
            verdict = cel.judge(expression, kind, most)
            size = _ENTRY_BYTES * (1 + len(kind.attributes) + len(kind.capacity))
            self._paid.verdicts.put((read, kind), verdict, size)
        if account is not None:
            account.charge(verdict.steps, new=new)
        if verdict.over and account is not None:
            raise TooCostly(
                f"a selector takes more than {most} steps for one device (limits.cel_steps_per_device)",
                always=True,
            )
        return verdict.holds

    def _by_kind(self, read: _Read, account: Account | None) -> tuple[NDArray[np.int64], list[DeviceView]]:
        """Kind of every device, and the kinds as the expression sees them."""
        names = None if read.names is None else read.names & self._names
        if account is not None:
            account.charge(1 + len(self._views) // DEVICES_PER_STEP, new=names not in self._kinds)
        if names not in self._kinds:
            numbers: dict[DeviceView, int] = {}
            inverse = np.fromiter(
                (numbers.setdefault(cel.visible(view, names), len(numbers)) for view in self._views),
                dtype=np.int64,
                count=len(self._views),
            )
            if len(self._kinds) >= _MOST_SORTED:
                self._kinds.pop(next(iter(self._kinds)))
            self._kinds[names] = (inverse, list(numbers))
        return self._kinds[names]
