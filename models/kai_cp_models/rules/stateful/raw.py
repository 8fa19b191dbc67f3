"""Fields of raw API objects, typed: what has the wrong type is named, never guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from kai_cp_models.extras import Key
from kai_cp_models.snapshot import SetAside, Snapshot

Raw = Mapping[str, Any]
T = TypeVar("T")

RAW: Final[Key[Mapping[str, Any]]] = Key("raw", {})
"""Objects as the API server wrote them, by list."""
_LONGEST: Final = 60


class Malformed(ValueError):
    """A field that has the wrong type or is missing."""


def _wrong(field: str, value: object, wanted: str) -> Malformed:
    if value is None:
        return Malformed(f"{field} is missing")
    shown = repr(value)
    return Malformed(
        f"{field}: {shown if len(shown) <= _LONGEST else shown[:_LONGEST] + '…'} is not {wanted}"
    )


def mapping(raw: Raw, field: str) -> Raw:
    """An object field; {} when absent."""
    value = raw.get(field)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong(field, value, "an object")
    return value


def strings(raw: Raw, field: str) -> Mapping[str, str]:
    """An object field whose values are strings."""
    found = mapping(raw, field)
    for name, value in found.items():
        if not isinstance(value, str):
            raise _wrong(f"{field}.{name}", value, "a string")
    return found


def objects(raw: Raw, field: str) -> tuple[Raw, ...]:
    """A list of objects; empty when absent."""
    values = _list(raw, field)
    for value in values:
        if not isinstance(value, Mapping):
            raise _wrong(field, value, "an object")
    return tuple(values)


def names(raw: Raw, field: str) -> tuple[str, ...]:
    """A list of strings; empty when absent."""
    values = _list(raw, field)
    for value in values:
        if not isinstance(value, str):
            raise _wrong(field, value, "a string")
    return tuple(values)


def _list(raw: Raw, field: str) -> list[Any]:
    value = raw.get(field)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise _wrong(field, value, "a list")
    return list(value)


def word(raw: Raw, field: str, default: str | None = None) -> str:
    """A string; ``default`` when it is absent or empty, an error when there is no default."""
    value = raw.get(field)
    if value is None or value == "":
        if default is None:
            raise Malformed(f"{field} is missing")
        return default
    if not isinstance(value, str):
        raise _wrong(field, value, "a string")
    return value


def whole(raw: Raw, field: str, default: int) -> int:
    """A whole number; ``default`` when absent."""
    value = raw.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(field, value, "a whole number")
    return value


def flag(raw: Raw, field: str) -> bool:
    """A boolean; false when absent."""
    value = raw.get(field)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _wrong(field, value, "true or false")
    return value


def selector(raw: Raw, field: str) -> Raw | None:
    """A core/v1 NodeSelector or metav1.LabelSelector, checked; None when absent."""
    if raw.get(field) is None:
        return None
    value = mapping(raw, field)
    for term in (value, *objects(value, "nodeSelectorTerms")):
        strings(term, "matchLabels")
        for kind in ("matchExpressions", "matchFields"):
            for need in objects(term, kind):
                word(need, "key")
                word(need, "operator")
                names(need, "values")
    return value


def collect(
    snapshot: Snapshot, list_name: str, kind: str, parse: Callable[[Raw], T], problems: list[SetAside]
) -> list[T]:
    """Parse a raw list in the order of names; what cannot be parsed is added to ``problems``.

    An object without a name cannot come from an API server and nothing can refer to it: it is skipped.
    """
    return [found for _, found in collect_named(snapshot, list_name, kind, parse, problems)]


def collect_named(
    snapshot: Snapshot, list_name: str, kind: str, parse: Callable[[Raw], T], problems: list[SetAside]
) -> Iterator[tuple[tuple[str, str], T]]:
    """Like :func:`collect`, with namespace and name of each."""
    for key, item in sorted(_named(snapshot, list_name), key=lambda entry: entry[0]):
        try:
            found = parse(item)
        except ValueError as error:
            problems.append(SetAside(f"{kind} {'/'.join(part for part in key if part)}", str(error)))
        else:
            yield key, found


def _named(snapshot: Snapshot, list_name: str) -> Iterator[tuple[tuple[str, str], Raw]]:
    for item in snapshot.extras[RAW].get(list_name) or ():
        meta = item.get("metadata") if isinstance(item, Mapping) else None
        name = meta.get("name") if isinstance(meta, Mapping) else None
        namespace = (meta.get("namespace") or "") if isinstance(meta, Mapping) else ""
        if isinstance(name, str) and name and isinstance(namespace, str):
            yield (namespace, name), item
