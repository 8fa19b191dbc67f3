"""Objects as the grouper reads them, and the one error for unreadable fields."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from kai_cp.json_types import Json
from kai_cp.reader.fields import EMPTY, Malformed, objects_at, shown, strings_at, text_at

INT32: Final = range(-(2**31), 2**31)
T = TypeVar("T")
_DIGITS: Final = 100
"""A number with more digits is refused unread: Python does not read thousands of them."""


class GroupingError(Exception):
    """Why a pod cannot be grouped: ``str()`` names the object, its field and the problem."""

    def __init__(self, what: str, field: str, problem: str) -> None:
        super().__init__(f"{what}: {field}: {problem}" if field else f"{what}: {problem}")
        self.what = what
        self.field = field
        self.problem = problem


class Answers:
    """What functions made of one value, also their ``GroupingError``: by function the last answer."""

    def __init__(self) -> None:
        self._last: dict[Callable[..., Any], tuple[tuple[Hashable, ...], Any]] = {}

    def of(self, make: Callable[..., T], value: Any, *said: Hashable) -> T:
        """``make(value, *said)``, made again only for another ``said``. Raises its ``GroupingError``."""
        known = self._last.get(make)
        if known is None or known[0] != said:
            try:
                known = said, make(value, *said)
            except GroupingError as problem:
                known = said, problem
            self._last[make] = known
        answer = known[1]
        if isinstance(answer, GroupingError):
            raise GroupingError(answer.what, answer.field, answer.problem)  # a raised one grows
        found: T = answer
        return found


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference from an object to its owner."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def group(self) -> str:
        """API group, "" for core."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """API version without the group."""
        return self.api_version.rpartition("/")[2]

    def json(self) -> dict[str, str]:
        """The entry of ``ownerReferences``, without ``controller`` and ``blockOwnerDeletion`` (10.2)."""
        return {"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid}


@dataclass(frozen=True, slots=True)
class Item:
    """One object. ``raw`` is everything that was read of it, which may be only its metadata."""

    reference: Reference
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owners: tuple[Reference, ...] = ()
    raw: Json = field(default_factory=dict, repr=False)
    answers: Answers = field(default_factory=Answers, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The name."""
        return self.reference.name

    @property
    def uid(self) -> str:
        """The uid."""
        return self.reference.uid

    @property
    def what(self) -> str:
        """The object in words, for messages: ``Job team-a/train``."""
        return f"{self.reference.kind} {self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def deleted(self) -> bool:
        """Whether the object is being deleted."""
        return bool((self.raw.get("metadata") or EMPTY).get("deletionTimestamp"))

    def once(self, make: Callable[..., T], *said: Hashable) -> T:
        """``make(self, *said)``, made for the first pod that asks. It reads only ``raw`` of the object, since
        copies with other labels and annotations share what was made.
        """
        return self.answers.of(make, self, *said)

    def bad(self, field: str, problem: str) -> GroupingError:
        """The error about one field of the object."""
        return GroupingError(self.what, field, problem)

    def inheriting(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Item:
        """A copy with the given labels and annotations where the object has none of its own."""
        return replace(
            self, labels={**labels, **self.labels}, annotations={**annotations, **self.annotations}
        )


def item_of(raw: Json, api_version: str = "", kind: str = "") -> Item:
    """The object in ``raw``; ``version`` and ``kind`` are used where lists and metadata leave them out.

    Raises ``GroupingError`` if a field cannot be read.
    """
    meta = raw.get("metadata")
    meta = meta if isinstance(meta, dict) else EMPTY
    name = meta.get("name")
    where = meta.get("namespace")
    said = [raw.get("apiVersion"), raw.get("kind")] if not kind else [api_version, kind]
    what = f"{said[1] or 'object'} {where or ''}/{name or '?'}"
    try:
        reference = Reference(
            said[0] if isinstance(said[0], str) else "",
            said[1] if isinstance(said[1], str) else "",
            text_at(meta, "name", "metadata"),
            text_at(meta, "uid", "metadata"),
        )
        return Item(
            reference,
            text_at(meta, "namespace", "metadata"),
            strings_at(meta, "labels", "metadata"),
            strings_at(meta, "annotations", "metadata"),
            tuple(
                _reference(entry, f"metadata.ownerReferences[{i}]")
                for i, entry in enumerate(objects_at(meta, "ownerReferences", "metadata"))
            ),
            raw,
        )
    except Malformed as problem:
        raise GroupingError(what, problem.field, problem.problem) from None


def _reference(raw: Json, where: str) -> Reference:
    return Reference(
        text_at(raw, "apiVersion", where),
        text_at(raw, "kind", where),
        text_at(raw, "name", where),
        text_at(raw, "uid", where),
    )


@dataclass(frozen=True, slots=True)
class Path:
    """A field of an object: keys joined by dots; keys that contain dots are in brackets.

    ``spec.worker.replicas``, ``metadata.annotations[kai.scheduler/segment-size]``.
    """

    keys: tuple[str, ...]

    def __str__(self) -> str:
        text = ""
        for key in self.keys:
            if "." in key or "/" in key:
                text += f"[{key}]"
            else:
                text += f".{key}" if text else key
        return text

    def below(self, *keys: str) -> Path:
        """A field below this one."""
        return Path(self.keys + keys)


def path(text: str) -> Path:
    """Parse a path. Raises ``ValueError`` if it is invalid."""
    keys: list[str] = []
    rest = text
    while rest:
        if rest[0] == "[":
            key, closed, rest = rest[1:].partition("]")
            if not closed:
                raise ValueError(f"{shown(text)} lacks a closing bracket")
        else:
            ends = [i for i in (rest.find("."), rest.find("[")) if i >= 0]
            end = min(ends, default=len(rest))
            key, rest = rest[:end], rest[end:]
        if not key:
            raise ValueError(f"{shown(text)} has an empty key")
        keys.append(key)
        if rest.startswith("."):
            rest = rest[1:]
            if not rest:
                raise ValueError(f"{shown(text)} ends with a dot")
    if not keys:
        raise ValueError("an empty path")
    return Path(tuple(keys))


def value_at(item: Item, where: Path) -> Any:
    """The value at the path, or None. Raises ``GroupingError`` if something on the way is not an object.

    Labels and annotations include those inherited from an owner above.
    """
    if where.keys[0] == "metadata" and len(where.keys) == 3 and where.keys[1] in ("labels", "annotations"):
        return (item.labels if where.keys[1] == "labels" else item.annotations).get(where.keys[2])
    value: Any = item.raw
    for depth, key in enumerate(where.keys):
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise item.bad(str(Path(where.keys[:depth])), f"{shown(value)} is not an object")
        value = value.get(key)
    return value


def object_in(item: Item, where: Path) -> Json | None:
    """The object at the path, or None."""
    return checked_object(item, str(where), value_at(item, where))


def checked_object(item: Item, where: str, value: Any) -> Json | None:
    """A value as an object, or None if absent."""
    if value is None or isinstance(value, Mapping):
        return value
    raise item.bad(where, f"{shown(value)} is not an object")


def objects_in(item: Item, where: Path) -> Sequence[Json]:
    """The list of objects at the path; empty if absent."""
    value = value_at(item, where)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise item.bad(str(where), f"{shown(value)} is not a list")
    for i, entry in enumerate(value):
        if not isinstance(entry, Mapping):
            raise item.bad(f"{where}[{i}]", f"{shown(entry)} is not an object")
    return value


def text_in(item: Item, where: Path) -> str | None:
    """The string at the path, or None."""
    value = value_at(item, where)
    if value is None or isinstance(value, str):
        return value
    raise item.bad(str(where), f"{shown(value)} is not a string")


def integer_in(item: Item, where: Path) -> int | None:
    """The 32-bit integer at the path, or None."""
    return checked_integer(item, str(where), value_at(item, where))


def checked_integer(item: Item, where: str, value: Any) -> int | None:
    """A value as a 32-bit integer, or None if absent."""
    if value is None:
        return None
    if type(value) is not int or value not in INT32:
        raise item.bad(where, f"{shown(value)} is not a whole number of 32 bits")
    return value


def spelled_integer(item: Item, where: str, text: str) -> int:
    """An integer written as text, as in labels and annotations (Go's ``Atoi``)."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if not (body.isascii() and body.isdigit() and len(body) <= _DIGITS) or int(text) not in INT32:
        raise item.bad(where, f"{shown(text)} is not a whole number")
    return int(text)


def annotation(name: str) -> str:
    """The path of an annotation, for messages."""
    return f"metadata.annotations[{name}]"


def label(name: str) -> str:
    """The path of a label, for messages."""
    return f"metadata.labels[{name}]"
