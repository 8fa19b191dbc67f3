"""Memory between readings of one cluster: an object that did not change is not read again."""

from __future__ import annotations

from typing import Generic, TypeVar

from kai_cp.reader.fields import Json

Value = TypeVar("Value")


class Remembered(Generic[Value]):
    """What objects of one kind said, by uid and resourceVersion, as long as they are met again.

    ``context`` is what the values rely on besides the objects: another context forgets everything.
    Objects without uid or resourceVersion are never remembered.
    """

    def __init__(self) -> None:
        self._context: object = None
        self._known: dict[tuple[str, str], Value] = {}
        self._met: dict[tuple[str, str], Value] = {}

    def start(self, context: object) -> bool:
        """Begin a reading; what was not met in the last one is forgotten. False: all was."""
        same = bool(context == self._context)
        self._known, self._met = (self._met if same else {}), {}
        self._context = context
        return same

    def find(self, metadata: Json) -> Value | None:
        """What the object said when it was last read."""
        return self._known.get(_version(metadata))

    def keep(self, metadata: Json, value: Value) -> None:
        """Remember what the object says."""
        version = _version(metadata)
        if version[0] and version[1]:
            self._met[version] = value


def _version(metadata: Json) -> tuple[str, str]:
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    return (uid, version) if isinstance(uid, str) and isinstance(version, str) else ("", "")
