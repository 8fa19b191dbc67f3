"""Copies of what remembers, as trials take them."""

from __future__ import annotations

import copy
from typing import Self


class Forked:
    """What a trial copies. Subclasses say in ``detach`` what they change."""

    def copy(self) -> Self:
        """An independent copy for a trial; constants are shared."""
        twin = copy.copy(self)
        twin.detach()
        return twin

    def detach(self) -> None:
        """Own what changes, after a shallow copy."""
