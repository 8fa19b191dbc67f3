"""Copies of mutable state for trials."""

from __future__ import annotations

import copy
from typing import Self


class Forked:
    """State that a trial copies. Subclasses copy in ``detach`` what they change."""

    def copy(self) -> Self:
        """An independent copy for a trial; constants are shared."""
        twin = copy.copy(self)
        twin.detach()
        return twin

    def detach(self) -> None:
        """After a shallow copy, copy what changes."""
