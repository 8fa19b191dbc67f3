"""Memory between readings of one cluster: only what changed is read again.

The identity of an object is enough to know it: an object with a resourceVersion never changes in place,
because a watch replaces it. The memory holds every object that it knows, so that no other object can have its
``id``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Set
from operator import itemgetter
from typing import Final, Generic, TypeVar

from kai_cp.json_types import Json

Key = TypeVar("Key", bound="str | tuple[str, str]")
Source = TypeVar("Source")
Value = TypeVar("Value")

_FEW: Final = 10
"""Sorting a tenth of all keys takes as long as looking at all of them."""


def versioned(obj: Json) -> bool:
    """Whether an object has a resourceVersion; an object without one may be a draft, which changes in
    place."""
    metadata = obj.get("metadata")
    return isinstance(metadata, dict) and bool(metadata.get("resourceVersion"))


class Memo(Generic[Key, Source, Value]):
    """One step of reading: the value that it made of each source.

    A value is made again if its source is another object than in the last reading, if the step could not call
    it final, or if the caller asks for it. ``kept``: whether there will be another reading. ``telling``: the
    field in which most different values differ, because comparing records of many fields takes long.
    """

    def __init__(self, *, kept: bool = True, telling: Callable[[Value], object] = lambda _: None) -> None:
        self._kept = kept
        self._telling = telling
        self._context: object = None
        self._sources: dict[Key, Source] = {}
        self._open: set[Key] = set()
        self._values: dict[Key, Value] = {}
        self.changed: set[Key] = set()
        """Keys whose values differ from the last reading, including keys that came or went."""

    @property
    def values(self) -> Mapping[Key, Value]:
        """The values of the last reading, sorted by key."""
        return self._values

    @property
    def left(self) -> set[Key]:
        """Keys that had a value in the last reading and have none in this one."""
        return {key for key in self.changed if key not in self._values}

    def read(
        self,
        sources: MutableMapping[Key, Source],
        context: object,
        step: Callable[[Key, Source], tuple[Value | None, bool]],
        *,
        changed: Set[Key] | None,
        again: Iterable[Key] = (),
    ) -> dict[Key, Value]:
        """The values by key, sorted; the next reading changes them.

        ``context``: what values depend on besides their sources. ``step``: the value of a source, None for
        none, and whether it is final, that is, the same in every reading with this source and context.
        ``changed``: keys that came, went or have another source since the last reading; None: not known.
        ``again``: keys of final values that must be made again nevertheless. Without memory, ``sources`` is
        used up, so that a source that was read is freed. After an error it must not be used again.
        """
        if not self._kept:
            once: dict[Key, Value] = {}
            for key in sorted(sources):
                value, _ = step(key, sources.pop(key))
                if value is not None:
                    once[key] = value
            return once
        same = context == self._context
        gone, made = self._differing(sources, changed if same else None)
        stale = {*made, *(key for key in self._open.union(again) if key in sources)}
        self._context, self.changed = context, set()
        for key in gone:
            del self._sources[key]
            self._open.discard(key)
            if self._values.pop(key, None) is not None:
                self.changed.add(key)
        unsorted, known, values, still_open = False, self._sources, self._values, self._open
        differ, telling = self.changed.add, self._telling
        for key in self._in_order(stale) if same else sorted(sources):
            source = known[key] = sources[key]
            value, final = step(key, source)
            if not final:
                still_open.add(key)
            elif still_open:
                still_open.discard(key)
            last = values.get(key)
            alike = last is not None and value is not None and telling(last) == telling(value)
            if last is value or (alike and last == value):
                # An equal value stays the same object, and so does everything that later steps make of it.
                continue
            differ(key)
            if value is None:
                del values[key]
            else:
                unsorted = unsorted or last is None
                values[key] = value
        if unsorted:
            self._values = dict(sorted(self._values.items(), key=itemgetter(0)))
        return self._values

    def _in_order(self, keys: set[Key]) -> list[Key]:
        """The keys, sorted. If there are many, most of them had values before, which are sorted already."""
        if len(keys) < len(self._values) // _FEW:
            return sorted(keys)
        found = [*filter(keys.__contains__, self._values)]
        return found if len(found) == len(keys) else sorted([*found, *keys.difference(found)])

    def _differing(
        self, sources: Mapping[Key, Source], changed: Set[Key] | None
    ) -> tuple[Iterable[Key], Iterable[Key]]:
        """Keys that went, and keys that came or have another source."""
        last = self._sources
        if changed is not None:
            # A difference from a dict, unlike an intersection, does not hash again.
            either = set(changed)
            missing, came = either.difference(sources), either.difference(last)
            if len(sources) + len(missing) == len(last) + len(came):
                return missing - came, either - missing
            # Otherwise keys that the last reading left out are back, unchanged.
        gone = [key for key in last if key not in sources]
        return gone, [key for key, source in sources.items() if last.get(key) is not source]
