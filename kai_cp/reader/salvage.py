"""Reads JSON in which single objects may be bad: nested too deep, or with text or numbers that parsers
refuse.

The API server keeps free-form parts of an object as they were sent, so it can serve JSON that cannot be
parsed or written again. The right to create one object must not break the whole list: a stand-in with name
and reason replaces a bad object, and the rest is read normally.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

SET_ASIDE: Final = "setAside"
"""The key in an object that replaces a bad one; its value says why that one cannot be used."""
TOO_DEEP: Final = "it is nested deeper than 250 levels"
"""The limit is that of the JSON writer, less the levels around an object."""

_BRACKET: Final = re.compile(
    rb'[^{}\[\]"]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^{}\[\]"]*+)*+([{}\[\]])', re.DOTALL
)
"""Finds the next bracket outside of strings. It never goes back, so a text without brackets is read once."""
_OPENING: Final = frozenset(b"{[")
_METADATA: Final = re.compile(rb'"metadata"\s*:\s*$')
_KEPT: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def loads(text: bytes | bytearray | memoryview, level: int) -> Any:
    """The JSON value of ``text``; stand-ins replace bad values that begin below ``level`` brackets.

    Level 0 is the value itself, level 2 an entry of ``{"items": [...]}``. Raises ``orjson.JSONDecodeError``
    if anything else is bad.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        better = mended(bytes(text), level)
        if better is None:
            raise
        return orjson.loads(better)


def loads_item(text: memoryview) -> Any:
    """The JSON value of an item of a list; a stand-in if it is bad."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return stand_in(_metadata_of(bytes(text)), _why(error))


def stand_in(item: Any, reason: str) -> dict[str, Any]:
    """The stand-in of a bad object: its name, and why it is set aside."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    found: dict[str, Any] = {SET_ASIDE: reason}
    if isinstance(metadata, dict):
        found["metadata"] = {
            key: metadata[key] for key in _KEPT if key in metadata and isinstance(metadata[key], str)
        }
    return found


def as_text(item: Any) -> tuple[bytes, str]:
    """The JSON text of a parsed object inside three brackets, and why it has none; "" if it has one."""
    try:
        return orjson.dumps([[[item]]]), ""
    except (TypeError, RecursionError) as error:
        return b"", TOO_DEEP if "ecursion" in str(error) else f"it is not JSON: {error}"


def _brackets(text: bytes) -> Iterator[int]:
    """The positions of brackets outside of strings."""
    at = 0
    while (found := _BRACKET.match(text, at)) is not None:
        yield found.start(1)
        at = found.end()


def mended(text: bytes, level: int) -> bytes | None:
    """The text with a stand-in for every bad value at ``level``; None if there is none."""
    pieces: list[bytes] = []
    done, depth, begin = 0, 0, 0
    for at in _brackets(text):
        if text[at] in _OPENING:
            if depth == level:
                begin = at
            depth += 1
            continue
        depth -= 1
        if depth == level:
            value = text[begin : at + 1]
            reason = _problem(value)
            if reason:
                pieces += [text[done:begin], orjson.dumps(stand_in(_metadata_of(value), reason))]
                done = at + 1
    return b"".join([*pieces, text[done:]]) if pieces else None


def _problem(value: bytes) -> str:
    try:
        return as_text(orjson.loads(value))[1]
    except orjson.JSONDecodeError as error:
        return _why(error)


def _why(error: orjson.JSONDecodeError) -> str:
    problem = str(error).partition(":")[0]
    return TOO_DEEP if "depth" in problem or "ecursion" in problem else f"it is not JSON: {problem}"


def _metadata_of(value: bytes) -> dict[str, Any]:
    """The object reduced to the readable part of its metadata."""
    depth, begin = 0, -1
    for at in _brackets(value):
        if value[at] in _OPENING:
            if depth == 1 and _METADATA.search(value, max(0, at - 40), at):
                begin = at
            depth += 1
            continue
        depth -= 1
        if depth == 1 and begin >= 0:
            try:
                return {"metadata": orjson.loads(value[begin : at + 1])}
            except orjson.JSONDecodeError:
                return {}
    return {}
