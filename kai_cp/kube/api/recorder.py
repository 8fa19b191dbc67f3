"""Events: each is written once, and not repeated while nothing changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects, resources
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.event_quota import MOST_EVENTS, WINDOW_SECONDS, EventQuota
from kai_cp.kube.api.memory import Memory
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.api.transport import Transport

REMEMBERED: Final = 500_000
"""Events; more than a large cluster has pods (350,000), as each cycle asks for all that wait, in turn."""

LEFT_OUT: Final = (
    "warnings about this and further objects of the namespace come later: it has "
    f"{MOST_EVENTS} in {WINDOW_SECONDS:g} s at most"
)


class Recorder:
    """Writes events about objects for one component.

    A hash of the last event about an object is kept by reason family, so repeating it costs nothing, and
    long messages take no memory. After a restart the equal name makes the server refuse the repetition. What
    the writer dropped is forgotten, and so said again. With a ``quota`` so are the warnings beyond it, when
    their caller meets the fault again.
    """

    def __init__(
        self,
        transport: Transport,
        writer: BackgroundWriter,
        component: str,
        *,
        clock: Callable[[], float] = time.time,
        quota: EventQuota | None = None,
    ) -> None:
        self._quota = quota
        self._transport = transport
        self._writer = writer
        self._component = component
        self._clock = clock
        self._said: Memory[tuple[str, str], int] = Memory(REMEMBERED)
        self._lock = threading.Lock()

    def say(
        self,
        about: Mapping[str, Any],
        resource: Resource,
        kind: str,
        reason: str,
        message: str,
        *,
        topic: str = "",
        again: bool = False,
        urgent: bool = False,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Write an event, unless it equals the last one about the object's ``topic`` (default: the reason).

        ``again``: it happened another time, although it reads the same as before. ``urgent``: see
        :class:`BackgroundWriter`.
        """
        key = _key(about, topic or reason)
        with self._lock:
            if not again and self._said.get(key) == hash((reason, message)):
                return
            quota = self._quota if kind == "Warning" else None
            late = quota is not None and quota.admit(about, resource) is not None
            left_out = list(quota.left_out()) if quota is not None and late else []
            changed = key in self._said
            if not late:
                self._said.put(key, hash((reason, message)))
        for first in left_out:
            self.say(first.about, first.resource, "Normal", "EventsLeftOut", LEFT_OUT)
        if late:
            return
        body = api_objects.event(
            about,
            resource,
            kind=kind,
            reason=reason,
            message=message,
            component=self._component,
            now=self._clock(),
            annotations=annotations,
        )
        self._writer.submit(
            ("event", *key),
            lambda: self._write(body, refresh=changed or again),
            namespace=body["metadata"]["namespace"],
            urgent=urgent,
            dropped=lambda: self._forget(key),
        )

    def has_said(self, about: Mapping[str, Any], topic: str, reason: str, message: str) -> bool:
        """Whether this is the last event about the object's topic that was written, or waits to be."""
        with self._lock:
            return self._said.get(_key(about, topic)) == hash((reason, message))

    def _forget(self, key: tuple[str, str]) -> None:
        with self._lock:
            self._said.pop(key, None)

    def _write(self, body: Object, *, refresh: bool) -> None:
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            self._transport.create(resources.EVENTS, namespace, body)
        except ApiError as error:
            if error.not_found or error.reason == "NamespaceTerminating":
                return
            if error.status != 409:
                raise
            if refresh:
                later = {"lastTimestamp": body["lastTimestamp"]}
                self._transport.patch(resources.EVENTS, namespace, name, later)


def _key(about: Mapping[str, Any], topic: str) -> tuple[str, str]:
    return about["metadata"].get("uid") or about["metadata"]["name"], topic
