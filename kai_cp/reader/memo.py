"""Memory between readings of one cluster: an unchanged object is not read again."""

from __future__ import annotations

from typing import Generic, TypeVar

from kai_cp.json_types import Json

Value = TypeVar("Value")
ObjectVersion = tuple[str, str]
"""uid and resourceVersion."""


class ReadingMemo(Generic[Value]):
    """What objects of one kind said, by uid and resourceVersion; objects not found in a reading are
    forgotten.

    ``context`` is what the values depend on besides the objects: a new context clears the memory. Objects
    without uid or resourceVersion are never remembered. ``kept``: whether there will be another reading.
    """

    def __init__(self, *, kept: bool = True) -> None:
        self._kept = kept
        self._context: object = None
        self._known: dict[ObjectVersion, Value] = {}
        self._met: dict[ObjectVersion, Value] = {}

    def start(self, context: object) -> bool:
        """Begin a reading; objects that the last one did not find are forgotten. False: all are."""
        same = bool(context == self._context)
        self._known, self._met = (self._met if same else {}), {}
        self._context = context
        return same

    def find(self, version: ObjectVersion | None) -> Value | None:
        """The cached value of the object in this version, or None."""
        return None if version is None else self._known.get(version)

    def keep(self, version: ObjectVersion | None, value: Value) -> None:
        """Cache the value of the object in this version."""
        if version is not None and self._kept:
            self._met[version] = value


def version_of(metadata: Json) -> ObjectVersion | None:
    """The key under which an object is remembered; None when it lacks uid or resourceVersion."""
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    return (uid, version) if uid and version and isinstance(uid, str) and isinstance(version, str) else None
