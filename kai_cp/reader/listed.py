"""Objects of one list of a snapshot, by what identifies them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from kai_cp.json_types import Json
from kai_cp.reader.document import Items, parsed
from kai_cp.reader.fields import Malformed, shown
from kai_cp.reader.notes import Identity, Notes, title
from kai_cp.reader.salvage import SET_ASIDE


class ListedObjects(Mapping[Identity, Json]):
    """Objects by identity; those of a document are parsed anew whenever they are asked for."""

    def __init__(self, items: dict[Identity, Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Identity]:
        return iter(self._items)

    def __getitem__(self, identity: Identity) -> Json:
        found: Json = parsed(self._items[identity])
        return found

    def pop(self, identity: Identity) -> Json:
        """The object, which is forgotten."""
        found: Json = parsed(self._items.pop(identity))
        return found

    def sorted(self) -> ListedObjects:
        """The same objects in the order of their identities."""
        return ListedObjects(dict(sorted(self._items.items(), key=lambda entry: entry[0])))

    def where(self, wanted: Callable[[Identity, Json], bool]) -> ListedObjects:
        """The objects that are wanted."""
        return ListedObjects({key: item for key, item in self._items.items() if wanted(key, parsed(item))})


def raw_list(raw_objects: Json, name: str, notes: Notes) -> Sequence[Any]:
    """The list ``name`` of ``rawObjects``. Null and missing are empty; another type is reported."""
    value = raw_objects.get(name)
    if value is None:
        return []
    if isinstance(value, list | Items):
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
    return sys.intern(namespace), name


def unique(
    objects: Sequence[Any],
    kind: str,
    list_name: str,
    notes: Notes,
    *,
    namespaced: bool,
    prefer: Callable[[Json], bool] = lambda obj: True,
) -> ListedObjects:
    """Objects by identity. Of several with one name, the first by ``prefer`` and then by text is kept."""
    found: dict[Identity, Any] = {}
    twice: dict[Identity, list[Any]] = {}
    for i, item in enumerate(objects.texts if isinstance(objects, Items) else objects):
        obj = parsed(item)
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
        other = found.setdefault(identity, item)
        if other is not item:
            twice.setdefault(identity, [other]).append(item)
    for identity, copies in twice.items():
        found[identity] = min(copies, key=lambda item: _rank(parsed(item), prefer))
        notes.aside(
            title(kind, identity), f"metadata.name: {len(copies)} objects have this name; one of them is read"
        )
    return ListedObjects(found)


def _rank(obj: Json, prefer: Callable[[Json], bool]) -> tuple[bool, bytes]:
    return not prefer(obj), canonical(obj)


def canonical(value: Any) -> bytes:
    """A canonical text of a JSON value, equal for equal values."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError):
        # Nested too deep for any writer; two such objects with one name are not told apart.
        return b""
