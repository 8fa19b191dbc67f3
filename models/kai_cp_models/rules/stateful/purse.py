"""The work that searches of rules may do: a namespace pays for searches that do not find their answer at
once.

Going through the options of a node once is part of every question. Work beyond that is taken from the purse
of the namespace that asks. When the purse is empty, searches of that namespace give up instead of
backtracking; those of other namespaces go on.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Purse:
    """Steps beyond one pass each that the searches of one namespace may take in a cycle. Copies of a rule's
    state share it.

    Finding an answer again takes as long as before, so ``left`` may fall below 0.
    """

    left: int

    def spend(self, once: int, steps: int) -> None:
        """Count the steps of a search that would take ``once`` steps without backtracking."""
        self.left -= max(steps - once, 0)

    @property
    def empty(self) -> bool:
        """Whether searches no longer backtrack."""
        return self.left <= 0
