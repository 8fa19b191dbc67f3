"""Objects of one kind as this process knows them.

Answers to our own writes go in at once, so a decision is visible before its watch event arrives and is never
made twice. Resource versions order what comes in: news older than what is known is dropped. Objects are never
changed in place, so a reader may keep them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace ("" for cluster-wide kinds) and name."""
Relevant = Callable[[Object, Object], bool]
"""Whether the change from one state to another matters to the scheduler."""

REMEMBERED = 10_000
"""Objects whose end is remembered, against late news about them."""


def key_of(item: Mapping[str, Any]) -> Key:
    """Key of an object."""
    meta = item["metadata"]
    return (meta.get("namespace") or "", meta["name"])


def version_of(item: Mapping[str, Any]) -> int:
    """Resource version as a number; servers since 1.35 promise that it is one."""
    text = item["metadata"].get("resourceVersion") or "0"
    return int(text) if text.isdigit() else 0


class Store:
    """Objects by key. ``changed`` is called (without the lock) after a relevant change from outside."""

    def __init__(
        self,
        *,
        transform: Callable[[Object], Object] | None = None,
        relevant: Relevant | None = None,
        changed: Callable[[], None] | None = None,
    ) -> None:
        self._items: dict[Key, Object] = {}
        self._removed: dict[Key, int] = {}
        self._lock = threading.Lock()
        self._transform = transform or (lambda item: item)
        self._relevant = relevant or (lambda _old, _new: True)
        self._changed = changed or (lambda: None)
        self._listeners: list[Callable[[Object | None, Object | None], None]] = []
        self._listed: list[Object] | None = None

    def listen(self, listener: Callable[[Object | None, Object | None], None]) -> None:
        """Call ``listener(old, new)`` after each change; it must be quick."""
        self._listeners.append(listener)

    def get(self, key: Key) -> Object | None:
        """The object, or None."""
        with self._lock:
            return self._items.get(key)

    def all(self) -> list[Object]:
        """Every object by namespace and name; do not change the list or what is in it."""
        with self._lock:
            if self._listed is None:
                self._listed = [self._items[key] for key in sorted(self._items)]
            return self._listed

    def __len__(self) -> int:
        return len(self._items)

    def replace(self, items: Iterable[Object], version: str) -> None:
        """Take a fresh list. What we wrote after that list was made stays."""
        listed = int(version) if version.isdigit() else 0
        fresh = {key_of(item): self._transform(item) for item in items}
        changes: list[tuple[Object | None, Object | None]] = []
        with self._lock:
            for key, removed in self._removed.items():
                if removed > listed or (key in fresh and version_of(fresh[key]) <= removed):
                    fresh.pop(key, None)
            for key, item in self._items.items():
                if version_of(item) > listed or (key in fresh and version_of(fresh[key]) == version_of(item)):
                    fresh[key] = item
            for key in self._items.keys() | fresh.keys():
                old, new = self._items.get(key), fresh.get(key)
                if old is not new:
                    changes.append((old, new))
            self._items = fresh
            self._removed = {}
            self._listed = None
        self._announce(changes, ours=False)

    def put(self, item: Object, *, ours: bool = False) -> None:
        """Add or change. ``ours``: the answer to our own write, which wakes nobody."""
        key, version = key_of(item), version_of(item)
        with self._lock:
            old = self._items.get(key)
            if version and (
                (old is not None and version_of(old) >= version) or self._removed.get(key, -1) >= version
            ):
                return
            new = self._transform(item)
            self._items[key] = new
            self._removed.pop(key, None)
            self._listed = None
        self._announce([(old, new)], ours=ours)

    def remove(self, item: Object, *, ours: bool = False) -> None:
        """The object is gone. News about it from before are dropped from now on."""
        key, version = key_of(item), version_of(item)
        with self._lock:
            old = self._items.get(key)
            if old is None:
                return
            uid = item["metadata"].get("uid")
            if uid and old["metadata"].get("uid") not in (None, uid) and version_of(old) > version:
                return
            del self._items[key]
            self._removed[key] = max(version, version_of(old))
            if len(self._removed) > REMEMBERED:
                self._removed = dict(list(self._removed.items())[REMEMBERED // 2 :])
            self._listed = None
        self._announce([(old, None)], ours=ours)

    def _announce(self, changes: list[tuple[Object | None, Object | None]], *, ours: bool) -> None:
        for old, new in changes:
            for listener in self._listeners:
                listener(old, new)
        if not ours and any(old is None or new is None or self._relevant(old, new) for old, new in changes):
            self._changed()
