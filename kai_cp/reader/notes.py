"""What the reader could not use: objects left out with a reason, and counts of unknown fields."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import orjson

from kai_cp.json_types import Json
from kai_cp.printable import one_line
from kai_cp.reader.fields import Malformed, shown
from kai_cp.reader.salvage import SET_ASIDE
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


def raw_list(raw_objects: Json, name: str, notes: Notes) -> list[Any]:
    """The list ``name`` of ``rawObjects``. Null and missing are empty; another type is reported."""
    value = raw_objects.get(name)
    if value is None:
        return []
    if isinstance(value, list):
        return value
    notes.aside("snapshot", f"rawObjects.{name}: {shown(value)} is not a list")
    return []


def identify(obj: Json, *, namespaced: bool) -> Identity:
    """Namespace and name of an object. Raises ``Malformed`` if it has none."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        raise Malformed("metadata", f"{shown(metadata)} is not an object")
    name = metadata.get("name")
    if not isinstance(name, str) or not name or not name.isprintable():
        raise Malformed("metadata.name", f"{shown(name)} is not a name")
    if not namespaced:
        return "", name
    namespace = metadata.get("namespace")
    if namespace is None or namespace == "":
        return "default", name
    if not isinstance(namespace, str) or not namespace.isprintable():
        raise Malformed("metadata.namespace", f"{shown(namespace)} is not a name")
    return namespace, name


def unique(
    objects: Iterable[Any],
    kind: str,
    list_name: str,
    notes: Notes,
    *,
    namespaced: bool,
    prefer: Callable[[Json], bool] = lambda obj: True,
) -> dict[Identity, Json]:
    """Objects by identity. Of several with one name, the first by ``prefer`` and then by text is kept."""
    found: dict[Identity, Json] = {}
    twice: dict[Identity, list[Json]] = {}
    for i, obj in enumerate(objects):
        if not isinstance(obj, dict):
            notes.aside(f"{kind} {list_name}[{i}]", f"{shown(obj)} is not an object")
            continue
        refused = obj.get(SET_ASIDE)
        try:
            identity = identify(obj, namespaced=namespaced)
        except Malformed as problem:
            notes.aside(f"{kind} {list_name}[{i}]", refused or problem)
            continue
        if refused:
            notes.aside(title(kind, identity), refused)
            continue
        other = found.setdefault(identity, obj)
        if other is not obj:
            twice.setdefault(identity, [other]).append(obj)
    for identity, copies in twice.items():
        found[identity] = min(copies, key=lambda obj: (not prefer(obj), canonical(obj)))
        notes.aside(
            title(kind, identity), f"metadata.name: {len(copies)} objects have this name; one of them is read"
        )
    return found


def canonical(value: Any) -> bytes:
    """A canonical text of a JSON value, equal for equal values."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError):
        # Nested too deep for any writer; two such objects with one name are not told apart.
        return b""
