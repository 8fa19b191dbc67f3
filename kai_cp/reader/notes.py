"""What the reader could not use: objects that were left out, with the reason, and counts of unknown
fields."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Final

from kai_cp.json_types import Json
from kai_cp.printable import one_line
from kai_cp_models.extras import Key
from kai_cp_models.snapshot import SetAside

MOST: Final = 20_000
"""The most notes that are kept; further ones are only counted."""
LONGEST: Final = 500
"""Characters of a note."""

IGNORED: Final[Key[Mapping[str, int]]] = Key("ignored_fields", {})
"""Unknown fields, and how often each occurred."""

Identity = tuple[str, str]
"""Namespace ("" for cluster-scoped kinds) and name."""


class Notes:
    """Collects while a snapshot is read."""

    def __init__(self) -> None:
        self._items: set[tuple[str, str]] = set()
        self._count = 0
        self._more = 0
        self.ignored: Counter[str] = Counter()
        """Unknown fields and list names: how often each occurred."""

    def __len__(self) -> int:
        """The number of notes so far."""
        return self._count

    def aside(self, item: str, reason: object) -> None:
        """Set an object aside. ``item``: ``Pod default/x``."""
        self._count += 1
        if len(self._items) < MOST:
            self._items.add((one_line(item)[:LONGEST], one_line(str(reason))[:LONGEST]))
        else:
            self._more += 1

    def unknown(self, holder: Json, known: frozenset[str], where: str) -> None:
        """Count the keys of ``holder`` that are not ``known``."""
        if not holder.keys() <= known:
            if len(self.ignored) < MOST:
                names = (f"{where}.{key}".lstrip(".")[:LONGEST] for key in holder.keys() - known)
                self.ignored.update(itertools.islice(names, MOST))
            self._count += 1

    def set_aside(self) -> tuple[SetAside, ...]:
        """Every object left out, sorted, so that the order of lists has no influence."""
        more = [("snapshot", f"{self._more} further objects are skipped")] if self._more else []
        return tuple(SetAside(item, reason) for item, reason in [*sorted(self._items), *more])


def title(kind: str, identity: Identity) -> str:
    """``Kind namespace/name`` or ``Kind name``."""
    namespace, name = identity
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
