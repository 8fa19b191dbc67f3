"""The JSON text of a snapshot, whose lists of objects are parsed item by item.

A list takes little more than its text, because the values of an item are freed before the next one is parsed.
A bad item affects only itself: a stand-in takes its place (:mod:`kai_cp.reader.salvage`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson
from msgspec import Raw

from kai_cp.json_types import Object
from kai_cp.reader import salvage

OBJECTS: Final = "rawObjects"
"""The part of a snapshot that has the lists."""
_ITEM_LEVEL: Final = 3
"""Brackets around an item: those of the snapshot, of ``rawObjects`` and of its list."""
_PARTS: Final = msgspec.json.Decoder(dict[str, Raw])
_ITEMS: Final = msgspec.json.Decoder(list[Raw])
_BYTE: Final = re.compile(r" \(byte (\d+)\)$")

_CUT: Final = "Input data was truncated"

ItemRefusal = Callable[[memoryview], str]
"""Why an item may not be parsed; "" if it may."""


class _Page(msgspec.Struct):
    items: list[Raw] | None = None
    metadata: dict[str, Any] | None = None


_PAGE: Final = msgspec.json.Decoder(_Page)
_PAGE_LEVEL: Final = 2
"""Brackets around an item: those of the page and of its list."""


class BadJson(ValueError):
    """The text is not JSON. ``at``: the byte at which that shows; None if it is not known."""

    def __init__(self, problem: str, at: int | None = None) -> None:
        super().__init__(problem)
        self.at = at


class Items(Sequence[Any]):
    """The items of a JSON list; items that are texts are parsed again each time they are asked for."""

    def __init__(self, texts: list[Any]) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: Any) -> Any:
        return parsed(self.texts[index])

    def __iter__(self) -> Iterator[Any]:
        return map(parsed, self.texts)


def parsed(item: Any) -> Any:
    """The value of an item of ``Items.texts``, which stays as it is if it is not text."""
    return salvage.loads_item(memoryview(item)) if type(item) is Raw else item


def page(text: bytes) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The items of a page of an API server's list, parsed when they are asked for, and its metadata.

    Raises ``ValueError`` if anything but an item is bad.
    """
    try:
        found = _PAGE.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        whole = salvage.loads(text, _PAGE_LEVEL)
        return whole.get("items") or [], whole.get("metadata") or {}
    return Items(list(found.items or ())), found.metadata or {}


def read(text: bytes | bytearray, refusal: ItemRefusal) -> Object | None:
    """The parts of a snapshot, with ``Items`` for the lists in ``rawObjects``; None if it is no JSON object.

    Raises ``BadJson`` if anything but items is bad.
    """
    try:
        parts = _parts(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        mended = salvage.mended(bytes(text), _ITEM_LEVEL)
        if mended is None:
            raise _told(problem, text) from None
        return read(mended, refusal)
    return None if parts is None else {name: _part(name, part, refusal) for name, part in parts.items()}


def value(text: bytes | bytearray) -> Any:
    """The value of a text in which nothing may be bad. Raises ``BadJson``."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise _told(problem, text) from None


def whole(document: Mapping[str, Any]) -> Object:
    """The document with plain lists of parsed items."""
    lists = {
        name: list(value) if isinstance(value, Items) else value for name, value in document[OBJECTS].items()
    }
    return {**document, OBJECTS: lists}


def _parts(text: bytes | bytearray | Raw) -> dict[str, Raw] | None:
    try:
        return _PARTS.decode(text)
    except msgspec.ValidationError:
        return None


def _part(name: str, part: Raw, refusal: ItemRefusal) -> Any:
    try:
        lists = _parts(part) if name == OBJECTS else None
        if lists is not None:
            return {name: _list(value, refusal) for name, value in lists.items()}
        return salvage.loads(memoryview(part), _ITEM_LEVEL - 1)
    except (UnicodeDecodeError, orjson.JSONDecodeError) as problem:
        raise BadJson(f"{name}: {str(problem).partition(':')[0]}") from None


def _list(value: Raw, refusal: ItemRefusal) -> Any:
    try:
        texts: list[Any] = _ITEMS.decode(value)
    except msgspec.ValidationError:
        return salvage.loads(memoryview(value), _ITEM_LEVEL - 2)
    for i, text in enumerate(texts):
        reason = refusal(memoryview(text))
        if reason:
            texts[i] = salvage.stand_in(None, reason)
    return Items(texts)


def _told(problem: Exception, text: bytes | bytearray) -> BadJson:
    if isinstance(problem, RecursionError):
        return BadJson("it is nested too deep")
    if str(problem) == _CUT:
        return BadJson("it ends in the middle", len(text))
    said = str(problem).removeprefix("JSON is malformed: ")
    at = _BYTE.search(said)
    # Bytes after the end are reported once the first of them has been read.
    return BadJson(_BYTE.sub("", said), int(at[1]) - said.startswith("trailing") if at else None)
