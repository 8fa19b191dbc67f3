"""Checks of queue limits, and of quotas for non-preemptible pods (3.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from kai_cp_models.fairness.amounts import NOTHING, UNBOUNDED, Amounts
from kai_cp_models.fairness.book import QueueBook, Rows
from kai_cp_models.pods import MILLI, UNLIMITED

QuotaBound = Literal["limit", "quota", "fair share"]

Held: TypeAlias = Rows | Mapping[int, Amounts]
"""What queues hold, by their position in the book."""

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
    def reason(self) -> str:
        """The token of a pod group that is refused for it."""
        return "OverLimit" if self.bound == "limit" else "NonPreemptibleOverQuota"

    @property
    def message(self) -> str:
        """One sentence with numbers and units: "queue team-a: limit 8 GPUs, used 8, needs 2"."""
        bound, used, needs = in_words(self.resource, self.limit, self.used, self.requested)
        held = "used by non-preemptible pods" if self.bound == "quota" else "used"
        return f"queue {self.queue}: {self.bound} {bound}, {held} {used}, needs {needs}"


def over_limit(
    book: QueueBook, queue: str, amounts: Amounts, *, among: Mapping[int, int] | None = None
) -> OverQuota | None:
    """The first limit, leaf to root, that ``amounts`` more would exceed.

    ``among``: the rows of queues that are looked at are not 0 here; None: all.
    """
    held = book.bound_by(book.line(queue))
    return _first_over(book, queue, amounts, held, book.limit, bound="limit", among=among)


def over_bounds(
    book: QueueBook,
    queue: str,
    amounts: Amounts,
    *,
    preemptible: bool,
    held: Held | None = None,
    firm: Held | None = None,
    lent: Mapping[str, Amounts] = _NONE,
) -> OverQuota | None:
    """The first limit, leaf to root, that ``amounts`` more would exceed; of pods that cannot be preempted
    also the first quota.

    ``held``, ``firm``: what queues hold, in all and of such pods; None: what the book says. ``lent``: by
    queue, the amount that its quota does not count (3.8).
    """
    held, firm = book.held if held is None else held, book.firm if firm is None else firm
    over = _first_over(book, queue, amounts, held, book.limit, bound="limit")
    if over is not None or preemptible:
        return over
    return _first_over(book, queue, amounts, firm, book.firm_quota, bound="quota", lent=lent)


def _first_over(
    book: QueueBook,
    queue: str,
    amounts: Amounts,
    used: Held,
    bounds: Rows,
    *,
    bound: QuotaBound,
    lent: Mapping[str, Amounts] = _NONE,
    among: Mapping[int, int] | None = None,
) -> OverQuota | None:
    """The first bound on the queue's path that ``used`` plus ``amounts`` exceeds in a requested resource."""
    for i in book.line(queue):
        most = bounds[i]
        if most == UNBOUNDED or (among is not None and not among.get(i)):
            continue
        held, free = used[i], lent.get(book.name(i), NOTHING) if lent else NOTHING
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
