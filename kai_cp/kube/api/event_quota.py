"""Limits the events of a namespace in a time window, so that many objects do not cause a flood of events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kai_cp.kube.api.resources import Resource

MOST_EVENTS: Final = 200
"""Of a namespace in a window: as many as a person reads, and a small part of what an API server stores."""
WINDOW_SECONDS: Final = 10.0


class LeftOut(NamedTuple):
    """The objects of a namespace without their event; ``about`` is the first."""

    objects: int
    about: Mapping[str, Any]
    resource: Resource


@dataclass
class _Window:
    began: float
    told: int = 0
    said: bool = False
    left_out: LeftOut | None = None

    def lasts(self, now: float) -> bool:
        """Whether the window is that of now; it is over if the clock was set back."""
        return 0 <= now - self.began < WINDOW_SECONDS


class EventQuota:
    """Counts events by namespace. Objects beyond the limit get their event in a later window."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    def admit(self, about: Mapping[str, Any], resource: Resource) -> float | None:
        """None if an event may be written about the object now, else the time at which to ask again."""
        now = self._clock()
        namespace = str(about["metadata"].get("namespace") or "")
        window = self._windows.get(namespace)
        if window is None or not window.lasts(now):
            window = self._windows[namespace] = _Window(now)
        if window.told < MOST_EVENTS:
            window.told += 1
            return None
        before = window.left_out or LeftOut(0, about, resource)
        window.left_out = before._replace(objects=before.objects + 1)
        return window.began + WINDOW_SECONDS

    def left_out(self) -> Iterator[LeftOut]:
        """The objects left out since the last call, by namespace; each window is reported once."""
        now = self._clock()
        self._windows = {
            namespace: window for namespace, window in self._windows.items() if window.lasts(now)
        }
        for window in self._windows.values():
            if window.left_out is not None and not window.said:
                window.said = True
                yield window.left_out
            window.left_out = None
