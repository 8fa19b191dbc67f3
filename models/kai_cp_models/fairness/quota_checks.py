"""Checks of queue limits, and of quotas for non-preemptible pods (3.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from kai_cp_models.fairness.amounts import NOTHING, Amounts
from kai_cp_models.fairness.book import QueueBook, Rows
from kai_cp_models.pods import MILLI, UNLIMITED

QuotaBound = Literal["limit", "quota", "fair share"]

_NONE: Final[Mapping[str, Amounts]] = {}

RESOURCE_NAMES: Final = ("CPU", "memory", "GPU")


@dataclass(frozen=True, slots=True)
class OverQuota:
    """The bound of a queue that is exceeded. Numbers are in the units of ``Amounts``."""

    queue: str
    resource: int
    """Index in ``Amounts``."""
    limit: int
    """The bound's value."""
    used: int
    requested: int
    bound: QuotaBound = "limit"

    @property
    def message(self) -> str:
        """One sentence with numbers and units: "queue team-a: limit 8 GPUs, used 8, needs 2"."""
        bound, used, needs = in_words(self.resource, self.limit, self.used, self.requested)
        held = "used by non-preemptible pods" if self.bound == "quota" else "used"
        return f"queue {self.queue}: {self.bound} {bound}, {held} {used}, needs {needs}"


def over_limit(book: QueueBook, queue: str, amounts: Amounts) -> OverQuota | None:
    """The first limit, leaf to root, that ``amounts`` more would exceed."""
    return first_over(book, queue, amounts, book.held, book.limit, bound="limit")


def non_preemptible_over_quota(
    book: QueueBook, queue: str, amounts: Amounts, lent: Mapping[str, Amounts] = _NONE
) -> OverQuota | None:
    """The first quota, leaf to root, that ``amounts`` more of non-preemptible pods would exceed.

    ``lent``: by queue, the amount that its quota does not count (3.8).
    """
    return first_over(book, queue, amounts, book.firm, book.firm_quota, bound="quota", lent=lent)


def first_over(
    book: QueueBook,
    queue: str,
    amounts: Amounts,
    used: Rows | Mapping[int, Amounts],
    bounds: Rows,
    *,
    bound: QuotaBound,
    lent: Mapping[str, Amounts] = _NONE,
) -> OverQuota | None:
    """The first bound on the queue's path that ``used`` plus ``amounts`` exceeds in a requested resource."""
    for i in book.line(queue):
        held, most = used[i], bounds[i]
        free = lent.get(book.name(i), NOTHING) if lent else NOTHING
        for resource in range(3):
            requested, counted = amounts[resource], held[resource] - free[resource]
            if requested != 0 and most[resource] != UNLIMITED and counted + requested > most[resource]:
                return OverQuota(book.name(i), resource, most[resource], counted, requested, bound)
    return None


def in_words(resource: int, bound: int, used: int, requested: int) -> tuple[str, str, str]:
    """The bound with its unit, and the other two numbers without it."""
    if resource == 1:
        return f"{_gib(bound)} GiB memory", _gib(used), _gib(requested)
    unit = ("CPUs", "", "GPUs")[resource] if bound != MILLI else ("CPU", "", "GPU")[resource]
    return f"{_thousandths(bound)} {unit}", _thousandths(used), _thousandths(requested)


def _gib(amount: int) -> str:
    return f"{round(amount / 2**30, 2):g}"


def _thousandths(amount: int) -> str:
    return f"{round(amount / MILLI, 3):.10g}"
