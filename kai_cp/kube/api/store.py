"""Objects of one kind as this process knows them.

Answers to our own writes are stored at once, so a decision is visible before its watch event arrives and is
never made twice. Resource versions order the changes: one that is older than the stored object is dropped.
Objects are never changed in place, so a reader may keep them.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kai_cp.json_types import Object
from kai_cp.kube.api.memory import Memory
from kai_cp.kube.api.outline import set_aside
from kai_cp.reader.salvage import SET_ASIDE, as_text, stand_in
from kai_cp.workloads.validity import LARGEST

LOG = logging.getLogger(__name__)

ObjectKey = tuple[str, str]
"""Namespace ("" for cluster-wide kinds) and name."""
Relevant = Callable[[Object, Object], bool]
"""Whether the change from one state to another matters to the scheduler."""

REMEMBERED = 10_000
"""The most deleted objects that are remembered, so that late changes do not bring them back."""


def key_of(item: Mapping[str, Any]) -> ObjectKey:
    """Key of an object."""
    meta = item["metadata"]
    return (meta.get("namespace") or "", meta["name"])


def version_of(item: Mapping[str, Any]) -> int:
    """Resource version as a number; servers since 1.35 promise that it is one."""
    text = item["metadata"].get("resourceVersion") or "0"
    return int(text) if text.isdigit() else 0


class _Index:
    """Objects of a store by what ``names_of`` says of each. Its owner has a lock."""

    def __init__(self, names_of: Callable[[Object], Iterable[str]]) -> None:
        self._names_of = names_of
        self._found: dict[str, dict[ObjectKey, Object]] = {}

    def change(self, key: ObjectKey, old: Object | None, new: Object | None) -> None:
        """Take an object's new state for its old one."""
        if old is not None:
            for name in self._names(old):
                self._found[name].pop(key, None)
                if not self._found[name]:
                    del self._found[name]
        if new is not None:
            for name in self._names(new):
                self._found.setdefault(name, {})[key] = new

    def find(self, name: str) -> list[Object]:
        """Objects of that name, in no order that means anything."""
        return list(self._found.get(name, {}).values())

    def _names(self, item: Object) -> frozenset[str]:
        try:
            return frozenset(() if SET_ASIDE in item else self._names_of(item))
        except Exception:
            LOG.exception(
                "this object is not found by its index: report this defect with its trace",
                extra={"object": name_of(item)},
            )
            return frozenset()


class _News(NamedTuple):
    """A change that listeners have not heard of."""

    old: Object | None
    new: Object | None
    ours: bool


class Store:
    """Objects by key. ``changed`` is called (without the lock) after a relevant change from outside.

    A stand-in with name and reason (:mod:`kai_cp.reader.salvage`) replaces an object that cannot be used, so
    that the others arrive. Only snapshots show stand-ins, because the reader of snapshots reports skipped
    objects.
    """

    def __init__(
        self,
        *,
        transform: Callable[[Object], Object] | None = None,
        outline: Callable[[Object], Object] = set_aside,
        relevant: Relevant | None = None,
        changed: Callable[[], None] | None = None,
    ) -> None:
        self._items: dict[ObjectKey, Object] = {}
        self._removed: Memory[ObjectKey, int] = Memory(REMEMBERED)
        self._listed_at = 0
        """Version of the last list: an older object that was not in it is gone."""
        self._lock = threading.Lock()
        self._news: deque[_News] = deque()
        self._telling = threading.RLock()
        """Held while listeners hear the news, so that all hear it in the order of the changes."""
        self._transform = transform or (lambda item: item)
        self._outline = outline
        self._relevant = relevant or (lambda _old, _new: True)
        self._changed = changed or (lambda: None)
        self._listeners: list[Callable[[Object | None, Object | None], None]] = []
        self._indices: list[_Index] = []
        self._listed: list[Object] | None = None
        self._usable: list[Object] | None = None

    def listen(self, listener: Callable[[Object | None, Object | None], None]) -> None:
        """Call ``listener(old, new)`` after each change, in their order; it must be quick and write nothing
        here. A writer returns once its own change was heard.
        """
        self._listeners.append(listener)

    def index(self, names_of: Callable[[Object], Iterable[str]]) -> Callable[[str], list[Object]]:
        """A look-up by what ``names_of`` says of each object, always in step with the objects."""
        index = _Index(names_of)
        with self._lock:
            for key, item in self._items.items():
                index.change(key, None, item)
            self._indices.append(index)

        def find(name: str) -> list[Object]:
            with self._lock:
                return index.find(name)

        return find

    def get(self, key: ObjectKey) -> Object | None:
        """The object, or None."""
        return usable(self.find(key))

    def find(self, key: ObjectKey) -> Object | None:
        """The object or its stand-in, or None."""
        with self._lock:
            return self._items.get(key)

    def all(self) -> list[Object]:
        """Every object by namespace and name; the caller must not change the list or its objects."""
        listed = self.listed()
        with self._lock:
            if self._usable is None or listed is not self._listed:
                found = [item for item in listed if SET_ASIDE not in item]
                self._usable = listed if len(found) == len(listed) else found
            return self._usable

    def listed(self) -> list[Object]:
        """Every object and stand-in by namespace and name, for a snapshot; the caller must not change it."""
        with self._lock:
            if self._listed is None:
                self._listed = [self._items[key] for key in sorted(self._items)]
                self._usable = None
            return self._listed

    def __len__(self) -> int:
        return len(self._items)

    def replace(self, items: Iterable[Object], version: str) -> None:
        """Store a new list, as :meth:`take` does."""
        self.take(self.kept(items), version)

    def kept(self, items: Iterable[Object]) -> dict[ObjectKey, Object]:
        """What is kept of objects; those without a usable name are left out."""
        return {key_of(kept): kept for item in items if (kept := self._kept(item)) is not None}

    def take(self, fresh: dict[ObjectKey, Object], version: str) -> None:
        """Store a new list of what is kept. Our own writes made after that list stay; without a version
        nothing does.
        """
        version_listed = int(version) if version.isdigit() else 0
        listed = version_listed or sys.maxsize
        with self._lock:
            for key, removed in self._removed.items():
                if removed > listed or (key in fresh and version_of(fresh[key]) <= removed):
                    fresh.pop(key, None)
            for key, item in self._items.items():
                if version_of(item) > listed or (key in fresh and version_of(fresh[key]) == version_of(item)):
                    fresh[key] = item
            for key in sorted(self._items.keys() | fresh.keys()):
                old, new = self._items.get(key), fresh.get(key)
                if old is not new:
                    self._news.append(_News(old, new, ours=False))
                    self._reindex(key, old, new)
            self._items = fresh
            self._listed_at = version_listed
            self._removed.clear()
            self._listed = None
        self._announce()

    def put(self, item: Object, *, ours: bool = False) -> None:
        """Add or change an object. ``ours``: the answer to our own write, which wakes no reader."""
        new = self._kept(item)
        if new is None:
            return
        key, version = key_of(new), version_of(new)
        with self._lock:
            old = self._items.get(key)
            known = self._listed_at if old is None else version_of(old)
            if version and max(known, self._removed.get(key, -1)) >= version:
                return
            self._items[key] = new
            self._reindex(key, old, new)
            self._removed.pop(key, None)
            self._listed = None
            self._news.append(_News(old, new, ours))
        self._announce()

    def remove(self, item: Object, *, ours: bool = False) -> None:
        """Remove the object. Older changes of it that arrive later are dropped."""
        if "metadata" not in item:
            return
        key, version = key_of(item), version_of(item)
        with self._lock:
            old = self._items.get(key)
            if old is None:
                return
            uid = item["metadata"].get("uid")
            if uid and old["metadata"].get("uid") not in (None, uid) and version_of(old) > version:
                return
            del self._items[key]
            self._reindex(key, old, None)
            self._removed.put(key, max(version, version_of(old)))
            self._listed = None
            self._news.append(_News(old, None, ours))
        self._announce()

    def _reindex(self, key: ObjectKey, old: Object | None, new: Object | None) -> None:
        for index in self._indices:
            index.change(key, old, new)

    def _kept(self, item: Object) -> Object | None:
        """What is kept of an object; None when it has no usable name."""
        try:
            key_of(item)
        except (KeyError, TypeError, AttributeError):
            LOG.warning(
                "an object without a usable name is left out: correct its metadata",
                extra={"reason": _reason_of(item)},
            )
            return None
        if SET_ASIDE in item:
            return item
        try:
            kept = self._transform(item)
        except Exception as error:
            LOG.exception(
                "this object is skipped: report this defect with its trace",
                extra={"object": "/".join(key_of(item))},
            )
            return stand_in(item, f"it cannot be read: {type(error).__name__}: {error}")
        text, reason = as_text(kept)
        if reason:
            return stand_in(item, reason)
        # Only administrators and drivers make objects of the whole cluster.
        return self._outline(kept) if len(text) > LARGEST and key_of(kept)[0] else kept

    def _announce(self) -> None:
        """Tell the news. A thread that finds another one telling waits, and finds its own news told."""
        matters = False
        with self._telling:
            while self._news:
                before, after, ours = self._news.popleft()
                self._tell(usable(before), usable(after))
                matters = matters or (not ours and self._matters(before, after))
            if matters:
                self._changed()

    def _tell(self, old: Object | None, new: Object | None) -> None:
        if old is None and new is None:
            return
        for listener in self._listeners:
            try:
                listener(old, new)
            except Exception:
                LOG.exception(
                    "a change of this object was not heard: report this defect with its trace",
                    extra={"object": name_of(new or old)},
                )

    def _matters(self, old: Object | None, new: Object | None) -> bool:
        if old is None or new is None or SET_ASIDE in old or SET_ASIDE in new:
            return True
        try:
            return self._relevant(old, new)
        except Exception:
            LOG.exception(
                "a change of this object could not be compared: report this defect with its trace",
                extra={"object": name_of(new)},
            )
            return True


def usable(item: Object | None) -> Object | None:
    """The object itself, None for a stand-in."""
    return None if item is None or SET_ASIDE in item else item


def name_of(item: Object | None) -> str:
    return "/".join(key_of(item)) if item is not None else ""


def _reason_of(item: Any) -> str:
    return str(item.get(SET_ASIDE) or "no metadata") if isinstance(item, dict) else "no object"
