"""The objects of one list of a snapshot, by identity."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final

import orjson

from kai_cp.json_types import Json
from kai_cp.reader.document import Items, parsed
from kai_cp.reader.fields import Malformed, shown
from kai_cp.reader.memo import versioned
from kai_cp.reader.notes import Identity, Notes, title
from kai_cp.reader.salvage import SET_ASIDE

if TYPE_CHECKING:  # arrays are needed only for lists that are followed
    from kai_cp_models.arrays import FollowedItems


class ListedObjects(Mapping[Identity, Json]):
    """Objects by identity; those of a document are parsed again each time they are asked for."""

    def __init__(self, items: dict[Identity, Any]) -> None:
        self._items = items
        self.changed: Set[Identity] | None = None
        """Identities that came, went or changed since the last reading; None: not known."""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Identity]:
        return iter(self._items)

    def keys(self) -> KeysView[Identity]:
        """Those of a dict: set operations on the keys of a mapping in Python visit them one by one."""
        return self._items.keys()

    def __getitem__(self, identity: Identity) -> Json:
        found: Json = parsed(self._items[identity])
        return found

    @property
    def unparsed(self) -> dict[Identity, Any]:
        """The objects as the document has them, for :func:`kai_cp.reader.document.parsed`."""
        return self._items

    def sorted(self) -> ListedObjects:
        """The same objects in the order of their identities."""
        return ListedObjects(dict(sorted(self._items.items(), key=lambda entry: entry[0])))

    def where(self, wanted: Callable[[Identity, Json], bool]) -> ListedObjects:
        """The objects that are wanted."""
        return ListedObjects({key: item for key, item in self._items.items() if wanted(key, parsed(item))})


NAMELESS: Final[Identity] = ("", "")
"""The identity of no object."""

NOTHING_LISTED: Final = ListedObjects({})
"""A list that a snapshot does not have."""


class ListMemo:
    """The objects of one list in the last reading."""

    def __init__(self) -> None:
        self.found: ListedObjects | None = None
        self._items: FollowedItems[Any, Identity] | None = None

    def follow(self, items: Sequence[Any], name: Callable[[Any], Identity]) -> bool:
        """Bring ``found`` up to date; False if it must be made again.

        ``name``: the identity of an item; ``NAMELESS`` if it has none, may change in place or is set aside.
        """
        if self.found is None or self._items is None:
            return False
        came, left = self._items.follow(items, name)
        objects = self.found.unparsed
        for gone in left:
            del objects[gone]
        for identity, item in came:
            if identity == NAMELESS or identity in objects:
                return False
            objects[identity] = item
        self.found.changed = {*left, *(identity for identity, _ in came)}
        return True

    def keep(self, found: ListedObjects, *, final: bool) -> None:
        """Remember a list. ``final``: nothing in it is wrong, and no object changes in place."""
        from kai_cp_models.arrays import FollowedItems

        self.found, self._items = (found, FollowedItems()) if final else (None, None)
        if self._items is not None:
            names = iter(found.unparsed)
            self._items.follow(list(found.unparsed.values()), lambda _: next(names))


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
    memo: ListMemo | None = None,
) -> ListedObjects:
    """Objects by identity. Of several with one name, the first by ``prefer`` and then by text is kept."""
    items = objects.texts if isinstance(objects, Items) else objects

    def name(item: Any) -> Identity:
        obj = parsed(item)
        if not isinstance(obj, dict) or SET_ASIDE in obj or not versioned(obj):
            return NAMELESS
        try:
            return identify(obj, namespaced=namespaced)
        except Malformed:
            return NAMELESS

    if memo is not None and memo.follow(items, name) and memo.found is not None:
        return memo.found
    before = len(notes)
    found: dict[Identity, Any] = {}
    twice: dict[Identity, list[Any]] = {}
    final = True
    for i, item in enumerate(items):
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
        final = final and versioned(obj)
        other = found.setdefault(identity, item)
        if other is not item:
            twice.setdefault(identity, [other]).append(item)
    for identity, copies in twice.items():
        found[identity] = min(copies, key=lambda item: _rank(parsed(item), prefer))
        notes.aside(
            title(kind, identity), f"metadata.name: {len(copies)} objects have this name; one of them is read"
        )
    listed = ListedObjects(found)
    if memo is not None:
        memo.keep(listed, final=final and len(notes) == before)
    return listed


def _rank(obj: Json, prefer: Callable[[Json], bool]) -> tuple[bool, bytes]:
    return not prefer(obj), canonical(obj)


def canonical(value: Any) -> bytes:
    """A canonical text of a JSON value, equal for equal values."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError):
        # Nested too deep for any writer; two such objects with one name are not told apart.
        return b""
