"""Which devices selectors match, and what their evaluation costs the authors' namespaces.

Devices that an expression cannot tell apart are one kind and are evaluated once. The steps of a cycle are
limited for each namespace and for all namespaces together. Steps of an earlier cycle are not charged again,
so every claim that waits is evaluated in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Mask
from kai_cp_models.records.devices import DeviceView
from kai_cp_models.records.judging import Paid
from kai_cp_models.rules.stateful.dra import cel
from kai_cp_models.settings import Limits

DEVICES_PER_STEP: Final = 4
"""Devices that can be sorted by kind, or read once, in the time of one step of an expression."""


class TooCostly(Exception):
    """A claim whose selectors are not evaluated to the end; ``later``: a later cycle may do so."""

    def __init__(self, reason: str, *, later: bool = False) -> None:
        super().__init__(reason)
        self.later = later


class Account:
    """What one claim may spend. Its own limit counts all steps, the limits of the cycle only new ones."""

    def __init__(self, judge: Judge, namespace: str) -> None:
        self._judge = judge
        self._namespace = namespace
        self._spent = 0

    def charge(self, steps: int, key: int) -> None:
        """Count ``steps``; raises :class:`TooCostly`."""
        limits, judge = self._judge.limits, self._judge
        self._spent += steps
        most = limits.cel_steps_per_namespace
        if self._spent > most:
            raise TooCostly(f"its selectors take more than {most} steps (limits.cel_steps_per_namespace)")
        if key in judge.paid.known:
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
        judge.paid.add(key)


class Judge:
    """Evaluates selectors over the devices of one catalog."""

    def __init__(self, views: Sequence[DeviceView], limits: Limits, paid: Paid) -> None:
        self._views = views
        self._names = frozenset(
            name[1] for view in set(views) for name, _ in (*view.attributes, *view.capacity)
        )
        self._kinds: dict[frozenset[str] | None, tuple[NDArray[np.int64], list[DeviceView]]] = {}
        self.limits = limits
        self.paid = paid
        self.spent: Counter[str] = Counter()
        """New steps of this cycle by namespace."""

    def holding(
        self, expressions: Sequence[str], account: Account | None = None, *, among: Mask | None = None
    ) -> Mask:
        """[device] devices (of those ``among``) that satisfy all expressions.

        The author of the expressions pays from ``account``.
        """
        found = np.ones(len(self._views), dtype=np.bool_) if among is None else among.copy()
        for expression in expressions:
            if account is not None:
                account.charge(
                    len(expression) + len(self._views) // DEVICES_PER_STEP,
                    hash((expression, len(self._views))),
                )
            inverse, kinds = self._by_kind(expression)
            holds = np.zeros(len(kinds), dtype=np.bool_)
            for kind in np.unique(inverse[found]):
                holds[kind] = self._holds(expression, kinds[kind], account)
            found &= holds[inverse]
        return found

    def _holds(self, expression: str, kind: DeviceView, account: Account | None) -> bool:
        if account is None:
            return cel.judge(expression, kind).holds
        most = self.limits.cel_steps_per_device
        verdict = cel.judge(expression, kind, most)
        if verdict.over:
            account.charge(most, hash((expression, kind)))
            raise TooCostly(
                f"a selector takes more than {most} steps for one device (limits.cel_steps_per_device)"
            )
        account.charge(verdict.steps, hash((expression, kind)))
        return verdict.holds

    def _by_kind(self, expression: str) -> tuple[NDArray[np.int64], list[DeviceView]]:
        """Kind of every device, and the kinds as the expression sees them."""
        read = cel.names(expression)
        names = None if read is None else read & self._names
        if names not in self._kinds:
            numbers: dict[DeviceView, int] = {}
            inverse = np.fromiter(
                (numbers.setdefault(cel.visible(view, names), len(numbers)) for view in self._views),
                dtype=np.int64,
                count=len(self._views),
            )
            self._kinds[names] = (inverse, list(numbers))
        return self._kinds[names]
