"""What searches of rules may take: a namespace pays for its searches that do not find their answer at once.

Going through the options of a node once is part of every question. What a search takes beyond that comes
from the purse of the namespace that asks. When it is empty, the searches of that namespace give up instead of
going back, and those of others go on.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Purse:
    """Steps that the searches of one namespace may take back in a cycle. Copies of a rule's state share it.

    A search whose answer was found before takes as long again, so ``left`` may fall below 0.
    """

    left: int

    def spend(self, once: int, steps: int) -> None:
        """Count what a search took that would take ``once`` without going back."""
        self.left -= max(steps - once, 0)

    @property
    def empty(self) -> bool:
        """Whether searches no longer go back."""
        return self.left <= 0
