"""Writes that no caller waits for: events and conditions, newest state per object, by a few threads."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from kai_cp.kube.api.errors import KubeError, LeaseLost
from kai_cp.kube.api.fair_queue import FairQueue

LOG = logging.getLogger(__name__)
Write = Callable[[], None]
MOST_WRITES: Final = 20_000
"""The most writes that wait; a cluster of 10,000 pods has no more reasons to report at once."""
LOOK_SECONDS: Final = 0.1
PAUSE_SECONDS: Final = 0.1


class _Waiting(NamedTuple):
    write: Write
    dropped: Write


class BackgroundWriter:
    """Carries writes out. Namespaces take turns, and the writes of each come in the order of their first
    submission, so thousands of events in one namespace do not delay those of another. A write submitted under
    a key that still waits replaces the older one. If more than ``limit`` writes wait, the oldest of the
    namespace that has most is dropped. Its callback learns that, and the caller submits it again while it is
    still true. While ``busy`` says that pods are being decided or bound, only one thread writes: a few
    reports still arrive soon, and thousands take only a small part of the server's time. While ``hurried``
    says that new pods wait to be decided, that thread pauses after each write. Urgent writes never pause.
    """

    def __init__(
        self, workers: int, *, limit: int = MOST_WRITES, busy: Callable[[], bool] = lambda: False
    ) -> None:
        self._urgent: OrderedDict[Hashable, _Waiting] = OrderedDict()
        self._waiting: FairQueue[_Waiting] = FairQueue()
        self.busy = busy
        self.hurried: Callable[[], bool] = lambda: False
        self._began = -math.inf
        """When the last write began."""
        self._limit = limit
        self._writing = 0
        self._stopping = False
        self._condition = threading.Condition()
        self.dropped = 0
        self._threads = [
            threading.Thread(target=self._run, name=f"report-{i}", daemon=True)
            for i in range(max(1, workers))
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self,
        key: Hashable,
        write: Write,
        *,
        namespace: str = "",
        urgent: bool = False,
        dropped: Write = lambda: None,
    ) -> None:
        """Call ``write`` soon; errors are logged, not raised. ``namespace``: that of the object concerned.

        ``dropped`` is called instead, by the thread of a later submission, if too much waits.
        """
        item = _Waiting(write, dropped)
        victim: _Waiting | None = None
        with self._condition:
            if self._stopping:
                return
            if urgent or key in self._urgent:
                self._waiting.discard(namespace, key)
                self._urgent[key] = item
            else:
                self._waiting.put(namespace, key, item)
            if self.waiting() > self._limit:
                victim = self._drop()
            self._condition.notify()
        if victim is not None:
            victim.dropped()

    def _drop(self) -> _Waiting:
        self.dropped += 1
        return self._waiting.drop() if self._waiting else self._urgent.popitem(last=False)[1]

    def _next(self) -> _Waiting | None:
        return self._urgent.popitem(last=False)[1] if self._urgent else self._waiting.take()

    def waiting(self) -> int:
        """Number of waiting writes."""
        return len(self._urgent) + len(self._waiting)

    def drain(self, seconds: float) -> bool:
        """Wait until no write waits; returns whether that happened in time."""
        with self._condition:
            return self._condition.wait_for(lambda: not self.waiting() and not self._writing, seconds)

    def stop(self) -> None:
        """Drop all waiting writes and end the threads."""
        with self._condition:
            self._stopping = True
            self._waiting.clear()
            self._urgent.clear()
            self._condition.notify_all()

    def _stands_back(self) -> bool:
        """Whether the next write waits for what is being decided or bound."""
        if self._urgent or not self.busy():
            return False
        return bool(self._writing) or (self.hurried() and time.monotonic() < self._began + PAUSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self.waiting() or self._stopping)
                if self._stopping:
                    return
                if self._stands_back():
                    self._condition.wait(LOOK_SECONDS)
                    continue
                item = self._next()
                assert item is not None, "something waits"
                self._writing += 1
                self._began = time.monotonic()
            try:
                item.write()
            except LeaseLost:
                LOG.info("report not written: the lease is gone")
            except KubeError as error:
                LOG.warning("a report was refused, and is given up", extra={"error": str(error)})
            except Exception:
                LOG.exception("a report was not written: report this defect with its trace")
            finally:
                with self._condition:
                    self._writing -= 1
                    self._condition.notify_all()
