"""Finds the API resource that serves a kind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from kai_cp.kube.api.resources import Resource

LOOK_SECONDS: Final = 5.0
"""A kind that is not served is looked for again after this time at the earliest."""


class Served:
    """Kinds by API version, from the server's discovery. ``raw`` fetches a discovery document."""

    def __init__(self, raw: Callable[[str], Any], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._raw = raw
        self._monotonic = monotonic
        self._known: dict[str, dict[str, Resource]] = {}
        self._looked: dict[str, float] = {}
        self._lock = threading.Lock()

    def resource(self, api_version: str, kind: str) -> Resource | None:
        """The resource of a kind; None while the API server does not serve it."""
        with self._lock:  # A second caller waits while the document is read.
            found = self._known.get(api_version, {}).get(kind)
            now = self._monotonic()
            if found is not None or now - self._looked.get(api_version, -LOOK_SECONDS) < LOOK_SECONDS:
                return found
            known = self._known[api_version] = self._read(api_version)
            self._looked[api_version] = self._monotonic()
            return known.get(kind)

    def forget(self, api_version: str) -> None:
        """Read the discovery of a version again, unless that was just done."""
        with self._lock:
            if self._monotonic() - self._looked.get(api_version, -LOOK_SECONDS) >= LOOK_SECONDS:
                self._known.pop(api_version, None)

    def _read(self, api_version: str) -> dict[str, Resource]:
        group, _, version = api_version.rpartition("/")
        document = self._raw(f"/apis/{api_version}" if group else f"/api/{version}")
        entries = document.get("resources") if isinstance(document, dict) else None
        return {
            entry["kind"]: Resource(group, version, entry["name"], entry["kind"], bool(entry["namespaced"]))
            for entry in entries or ()
            if "/" not in entry["name"]
        }
