"""Writes that nobody waits for: events and conditions, newest state per object, by a few threads."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from kai_cp.kube.errors import KubeError, LeaseLost

LOG = logging.getLogger(__name__)
Write = Callable[[], None]
LOOK_SECONDS: Final = 0.1


class BackgroundWriter:
    """Carries writes out in the order of their first submission.

    A write submitted under a key that still waits replaces the older one. Beyond ``limit`` waiting writes the
    oldest is dropped: what it said will be said again by the next cycle that still finds it true.
    While ``busy`` says that pods are being bound, one thread alone writes: reports come soon where there are
    few, and take a small part of the server's time where there are thousands. Urgent ones never stand back.
    """

    def __init__(
        self, workers: int, *, limit: int = 20_000, busy: Callable[[], bool] = lambda: False
    ) -> None:
        self._waiting: OrderedDict[Hashable, tuple[bool, Write]] = OrderedDict()
        """Whether it is urgent, and what it does."""
        self.busy = busy
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

    def submit(self, key: Hashable, write: Write, *, urgent: bool = False) -> None:
        """Have ``write`` called soon; errors are logged, not raised."""
        with self._condition:
            if self._stopping:
                return
            urgent = urgent or (key in self._waiting and self._waiting[key][0])
            self._waiting[key] = (urgent, write)
            if urgent:
                self._waiting.move_to_end(key, last=False)
            if len(self._waiting) > self._limit:
                self._waiting.popitem(last=False)
                self.dropped += 1
            self._condition.notify()

    def waiting(self) -> int:
        """How many writes wait."""
        return len(self._waiting)

    def drain(self, seconds: float) -> bool:
        """Wait until nothing waits; whether that came true."""
        with self._condition:
            return self._condition.wait_for(lambda: not self._waiting and not self._writing, seconds)

    def stop(self) -> None:
        """Forget what waits and end the threads."""
        with self._condition:
            self._stopping = True
            self._waiting.clear()
            self._condition.notify_all()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._waiting or self._stopping)
                if self._stopping:
                    return
                urgent = next(iter(self._waiting.values()))[0]
                if self._writing and not urgent and self.busy():
                    self._condition.wait(LOOK_SECONDS)
                    continue
                _, write = self._waiting.popitem(last=False)[1]
                self._writing += 1
            try:
                write()
            except LeaseLost:
                LOG.info("report not written: the lease is gone")
            except KubeError as error:
                LOG.warning("report not written", extra={"error": str(error)})
            except Exception:
                LOG.exception("report not written")
            finally:
                with self._condition:
                    self._writing -= 1
                    self._condition.notify_all()
