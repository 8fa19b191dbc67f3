"""Finds the API resource that serves a kind."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kai_cp.kube.api.errors import KubeError
from kai_cp.kube.api.memory import Memory
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.controllers.base import NotYet

LOOK_SECONDS: Final = 5.0
"""A kind that is not served, or an API that did not answer, is looked for again after this time at the
earliest.
"""
REMEMBERED: Final = 1_000
"""API versions; a cluster serves some hundred, and owner references may name any others."""
_VERSION: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


class _Look(NamedTuple):
    """When a version was looked at, what it serves, and why no more is known ("" if it answered)."""

    at: float
    kinds: Mapping[str, Resource]
    problem: str = ""


class Served:
    """Kinds by API version, from the server's discovery. ``raw`` fetches a discovery document.

    Nothing waits for the document of another version, and each is asked for once in a while, also if it is
    not answered: the API of a kind may be a server of its own, and any pod may name it as its owner's.
    """

    def __init__(self, raw: Callable[[str], Any], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._raw = raw
        self._monotonic = monotonic
        self._looks: Memory[str, _Look] = Memory(REMEMBERED)
        self._lock = threading.Lock()

    def resource(self, api_version: str, kind: str) -> Resource | None:
        """The resource of a kind; None while the API server does not serve it. Raises ``NotYet`` while the
        API does not answer.
        """
        if not _VERSION.fullmatch(api_version):
            return None
        with self._lock:
            known = self._looks.get(api_version)
            asks = known is None or (kind not in known.kinds and self._is_old(known))
            if known is not None and asks:
                # The others go by what was known until this one has its answer.
                self._looks.put(api_version, known._replace(at=self._monotonic()))
        found = self._look(api_version, known) if known is None or asks else known
        if found.problem and kind not in found.kinds:
            raise NotYet(found.problem)
        return found.kinds.get(kind)

    def forget(self, api_version: str) -> None:
        """Read the discovery of a version again, unless that was just done."""
        with self._lock:
            known = self._looks.get(api_version)
            if known is not None and self._is_old(known):
                del self._looks[api_version]

    def _is_old(self, look: _Look) -> bool:
        return self._monotonic() - look.at >= LOOK_SECONDS

    def _look(self, api_version: str, before: _Look | None) -> _Look:
        kinds, problem = before.kinds if before is not None else {}, ""
        try:
            kinds = self._read(api_version)
        except KubeError as error:
            problem = str(error)
        found = _Look(self._monotonic(), kinds, problem)
        with self._lock:
            self._looks.put(api_version, found)
        return found

    def _read(self, api_version: str) -> dict[str, Resource]:
        group, _, version = api_version.rpartition("/")
        document = self._raw(f"/apis/{api_version}" if group else f"/api/{version}")
        entries = document.get("resources") if isinstance(document, dict) else None
        return {
            entry["kind"]: Resource(group, version, entry["name"], entry["kind"], bool(entry["namespaced"]))
            for entry in entries or ()
            if "/" not in entry["name"]
        }
