"""Records that never change, and of which a snapshot has very many."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from dataclasses import dataclass

    def record(*, frozen: bool, slots: bool, eq: bool = True):
        """A frozen dataclass for mypy, which refuses every change of it. When the program runs it is not
        frozen, because to make a frozen one of many fields takes four times as long."""
        return dataclass(slots=slots, eq=eq, unsafe_hash=frozen and eq)
