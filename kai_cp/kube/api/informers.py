"""One store and one watch for each kind: what a process knows of the cluster, and how that stays current."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from kai_cp.json_types import Object
from kai_cp.kube.api import transforms as t
from kai_cp.kube.api.outline import OUTLINES, set_aside
from kai_cp.kube.api.reflector import Reflector
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.api.store import Relevant, Store
from kai_cp.kube.api.transport import Transport

LOG = logging.getLogger(__name__)
PATIENCE_SECONDS: Final = 15.0
"""Time between log lines about the kinds that are waited for."""
STALE_SECONDS: Final = 400.0
"""A process is not ready when it heard nothing about a kind for this long; watches are opened again more
often.
"""


class Followed(NamedTuple):
    """How a kind is followed."""

    resource: Resource
    metadata_only: bool = False
    fields: str = ""
    selector: str = ""


class Informers:
    """Follows kinds for a whole process, also kinds that are added while it runs."""

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
        relevant: Relevant | None = None,
        changed: Callable[[], None] | None = None,
        selector: str = "",
        fields: str = "",
        metadata_only: bool = False,
        optional: bool = False,
    ) -> Store:
        """The store of a kind, followed from now on (or from the start of the process).

        The first caller says how objects are kept and which changes count; the arguments are those of
        :class:`Store` and :class:`Reflector`.
        """
        followed = Followed(resource, metadata_only, fields, selector)
        with self._lock:
            found = self._stores.get(followed)
            if found is not None:
                return found
            store = self._stores[followed] = Store(
                transform=transform,
                outline=OUTLINES.get(resource, set_aside),
                relevant=relevant,
                changed=changed,
            )
            reflector = self._reflectors[followed] = Reflector(
                self._transport,
                resource,
                store,
                selector=selector,
                fields=fields,
                metadata_only=metadata_only,
                optional=optional,
            )
            if not self._started:
                self._required.add(followed)
            elif not self._stopped:
                reflector.start()
            return store

    def start(self) -> None:
        """Begin to follow the kinds added so far; returns at once."""
        with self._lock:
            self._started = True
            for reflector in self._reflectors.values():
                reflector.start()

    def stop(self) -> None:
        """End every watch."""
        with self._lock:
            self._stopped = True
            for reflector in self._reflectors.values():
                reflector.stop()

    def listed(self, resource: Resource) -> bool:
        """Whether the objects of the kind are listed, in every way in which the kind is followed."""
        with self._lock:
            following = [x for x in self._reflectors.values() if x.resource == resource]
        return all(reflector.synced.is_set() and reflector.served for reflector in following)

    def served(self, resource: Resource) -> bool:
        """False while the server does not know the kind at all."""
        with self._lock:
            return all(x.served for x in self._reflectors.values() if x.resource == resource)

    def missing(self) -> list[str]:
        """Kinds followed from the start that are not listed yet."""
        return self._without(lambda reflector: not reflector.synced.is_set())

    def silent(self) -> list[str]:
        """Kinds that are not listed yet, or about which the server has sent nothing for long."""
        since = time.monotonic() - STALE_SECONDS
        return self._without(
            lambda reflector: (
                not reflector.synced.is_set() or (reflector.served and reflector.last_contact < since)
            )
        )

    def wait(self, seconds: float, over: threading.Event | None = None) -> bool:
        """Wait until everything is listed; returns whether it is. ``over`` ends the wait."""
        end = time.monotonic() + seconds
        said = time.monotonic()
        pause = over or threading.Event()
        while missing := self.missing():
            if time.monotonic() > end or pause.wait(0.05):
                return False
            if time.monotonic() - said > PATIENCE_SECONDS:
                LOG.warning(
                    "the first lists are waited for: see whether the API server answers and the role may "
                    "list and watch these kinds",
                    extra={"kinds": missing},
                )
                said = time.monotonic()
        return True

    def _without(self, lacking: Callable[[Reflector], bool]) -> list[str]:
        with self._lock:
            return sorted(
                {
                    followed.resource.plural
                    for followed, reflector in self._reflectors.items()
                    if followed in self._required and lacking(reflector)
                }
            )
