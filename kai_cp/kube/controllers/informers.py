"""Watches shared by the controllers of a process, also those that begin while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from kai_cp.kube import transforms as t
from kai_cp.kube.reflector import Reflector
from kai_cp.kube.resources import Resource
from kai_cp.kube.store import Object, Store
from kai_cp.kube.transport import Transport


class Followed(NamedTuple):
    """How a kind is followed."""

    resource: Resource
    metadata_only: bool = False
    fields: str = ""


class Informers:
    """One store and one watch a kind."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._stores: dict[Followed, Store] = {}
        self._reflectors: dict[Followed, Reflector] = {}
        self._lock = threading.Lock()
        self._required: set[Followed] = set()
        self._started = False
        self._stopped = False

    def store(
        self,
        resource: Resource,
        *,
        transform: Callable[[Object], Object] = t.plain,
        metadata_only: bool = False,
        fields: str = "",
        optional: bool = False,
    ) -> Store:
        """The store of a kind, followed from now on (or from the start of the process)."""
        followed = Followed(resource, metadata_only, fields)
        with self._lock:
            found = self._stores.get(followed)
            if found is not None:
                return found
            store = self._stores[followed] = Store(transform=transform)
            reflector = self._reflectors[followed] = Reflector(
                self._transport,
                resource,
                store,
                fields=fields,
                metadata_only=metadata_only,
                optional=optional,
            )
            if self._started and not self._stopped:
                reflector.start()
            return store

    def start(self) -> None:
        """Begin to follow what is known so far."""
        with self._lock:
            self._started = True
            self._required = set(self._reflectors)
            for reflector in self._reflectors.values():
                reflector.start()

    def stop(self) -> None:
        """End every watch."""
        with self._lock:
            self._stopped = True
            for reflector in self._reflectors.values():
                reflector.stop()

    def missing(self) -> list[str]:
        """Kinds followed from the start that are not listed yet."""
        with self._lock:
            return sorted(
                followed.resource.plural
                for followed, reflector in self._reflectors.items()
                if followed in self._required and not reflector.synced.is_set()
            )

    def wait(self, seconds: float, over: threading.Event) -> bool:
        """Wait until everything is listed; whether it is."""
        end = time.monotonic() + seconds
        while self.missing():
            if time.monotonic() > end or over.wait(0.05):
                return False
        return True
