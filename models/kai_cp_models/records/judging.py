"""How much evaluating the selectors of claims may cost a cycle, and what earlier cycles have evaluated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kai_cp_models.extras import Key
from kai_cp_models.settings import Limits

_MOST_PAID: Final = 500_000


@dataclass
class Paid:
    """Evaluations done in earlier cycles, by hash of the expression and of its input."""

    known: set[int] = field(default_factory=set)

    def add(self, key: int) -> None:
        """Remember one."""
        if len(self.known) >= _MOST_PAID:
            self.known.clear()
        self.known.add(key)


@dataclass(frozen=True)
class Judging:
    """How a cycle evaluates selectors.

    ``paid`` lives from cycle to cycle; None: nothing was paid for before. ``judged``: whether anything is to
    be decided; otherwise no expression is evaluated.
    """

    limits: Limits = Limits()
    paid: Paid | None = None
    judged: bool = True


JUDGING: Final = Key("judging", Judging())
