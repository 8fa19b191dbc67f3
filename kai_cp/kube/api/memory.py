"""What a process remembers for as long as it runs: a number of entries, whatever happens in the cluster."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Memory(OrderedDict[Key, Value]):
    """Entries by key, the one that was put last at the end; of more than ``most`` the first is forgotten.

    Not a plain dict, which walks over everything that left its beginning to find its first entry.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def put(self, key: Key, value: Value) -> None:
        """Remember a value from now on."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)
