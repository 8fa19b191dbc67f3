"""Binds that wait for an object. None of them holds a thread, so thousands delay no other bind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial

from kai_cp.json_types import Object
from kai_cp.kube.api.store import ObjectKey, Store, key_of
from kai_cp.kube.binder.steps import Awaits

Awaited = tuple[Store, ObjectKey]


class Parking:
    """Which binds wait for which objects. ``wake`` is called with the binds whose object changed."""

    def __init__(self, wake: Callable[[Iterable[ObjectKey]], None]) -> None:
        self._wake = wake
        self._binds: dict[Awaited, dict[ObjectKey, None]] = {}
        self._objects: dict[ObjectKey, list[Awaited]] = {}
        self._stores: set[Store] = set()
        self._lock = threading.Lock()

    def park(self, bind: ObjectKey, what: Awaits) -> bool:
        """Wake a bind when one of the objects changes; False if one has changed since the step looked."""
        objects = [(what.store, key) for key in what.seen]
        with self._lock:
            new = what.store not in self._stores
            self._stores.add(what.store)
            self._objects[bind] = objects
            for awaited in objects:
                self._binds.setdefault(awaited, {})[bind] = None
        if new:
            what.store.listen(partial(self._changed, what.store))
        return all(what.store.get(key) is seen for key, seen in what.seen.items())

    def leave(self, bind: ObjectKey) -> None:
        """Forget a bind that waits."""
        with self._lock:
            for awaited in self._objects.pop(bind, ()):
                binds = self._binds.get(awaited, {})
                binds.pop(bind, None)
                if not binds:
                    self._binds.pop(awaited, None)

    def __len__(self) -> int:
        """The number of binds that wait."""
        return len(self._objects)

    def _changed(self, store: Store, old: Object | None, new: Object | None) -> None:
        item = new or old
        assert item is not None, "a change has one of both"
        with self._lock:
            binds = list(self._binds.get((store, key_of(item)), ()))
        if binds:
            self._wake(binds)
