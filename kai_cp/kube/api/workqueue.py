"""Keys that wait for reconciliation: namespaces take turns, each key waits once, and longer after each
failure.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from kai_cp.kube.api.fair_queue import FairQueue
from kai_cp.kube.api.store import ObjectKey

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0
"""Pauses after failures, as KAI's: doubled from the first to the longest, with jitter."""
RATE: Final = 10.0
"""Keys a second of a namespace that are tried again though their own objects are at fault."""
CROWDED_SECONDS: Final = 300.0
"""The longest pause of such a key, however many they are: it may be mended without a change that is seen."""

HUNG_SECONDS: Final = 600.0
"""Work that takes longer than this will not end: its requests are answered or given up before."""


class WorkQueue:
    """A queue of keys for several threads.

    Namespaces take turns, and one of which nothing is being reconciled comes first: keys that take long keep
    no more threads from others than they have. A key that waits is not added twice. A key added while it is
    being reconciled is reconciled again afterwards.
    """

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settle = 0.0
        self._monotonic = monotonic
        self._ready: FairQueue[ObjectKey] = FairQueue()
        self._due: dict[ObjectKey, float] = {}
        self._later: list[tuple[float, ObjectKey]] = []
        self._working: dict[ObjectKey, float] = {}
        """Since when."""
        self._again: set[ObjectKey] = set()
        self._failures: dict[ObjectKey, int] = {}
        self._failing: Counter[str] = Counter()
        """Keys that failed last, by namespace."""
        self._stopped = False
        self._condition = threading.Condition()

    def settle(self, seconds: float) -> None:
        """From now on, wait this long for further changes of a key before it is handed out."""
        self._settle = seconds

    def add(self, keys: Iterable[ObjectKey], after: float = 0.0) -> None:
        """Have keys reconciled soon, or after as many seconds."""
        with self._condition:
            for key in keys:
                if key in self._working:
                    self._again.add(key)
                elif after or self._settle:
                    self._schedule(key, after or self._settle)
                else:
                    self._append(key)

    def get(self) -> tuple[ObjectKey, int] | None:
        """The next key and its failures in a row; waits for a key. None when the queue has ended."""
        with self._condition:
            while not self._stopped:
                pause = self._promote()
                key = self._ready.take({namespace for namespace, _ in self._working}) or self._ready.take()
                if key is not None:
                    self._working[key] = self._monotonic()
                    return key, self._failures.get(key, 0)
                self._condition.wait(pause)
        return None

    def done(self, key: ObjectKey, after: float | None = None) -> None:
        """The key is reconciled; it is looked at again after ``after`` seconds, if given."""
        with self._condition:
            if self._failures.pop(key, 0):
                self._failing[key[0]] -= 1
                if not self._failing[key[0]]:
                    del self._failing[key[0]]
            self._finish(key, after)

    def failed(self, key: ObjectKey, *, own: bool = False) -> None:
        """Reconciliation of the key failed; it is tried again after a pause, or at once if it was added
        meanwhile: what changed may be what was missing.

        ``own``: its own objects are at fault. Thousands of such keys of one namespace wait longer, as each
        may cost requests.
        """
        with self._condition:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
            self._failing[key[0]] += not failures
            step = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(failures, 16))
            if own:
                step = max(step, min(CROWDED_SECONDS, self._failing[key[0]] / RATE))
            self._finish(key, step * random.uniform(0.75, 1.0))

    def stop(self) -> None:
        """End the queue: all waiting threads get None."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def __len__(self) -> int:
        """Number of keys that are ready now."""
        return len(self._ready)

    @property
    def idle(self) -> bool:
        """Whether nothing waits, is due or is being worked on."""
        with self._condition:
            return not (self._ready or self._working or self._due)

    def hung(self) -> str:
        """What is wrong: a key that has been worked on for too long; "" if there is none."""
        with self._condition:
            key, since = min(self._working.items(), key=lambda entry: entry[1], default=(("", ""), None))
        late = since is not None and self._monotonic() - since > HUNG_SECONDS
        return f"the work on {'/'.join(filter(None, key))} does not end" if late else ""

    def _finish(self, key: ObjectKey, after: float | None) -> None:
        self._working.pop(key, None)
        if key in self._again:
            self._again.discard(key)
            if self._settle:
                self._schedule(key, self._settle)
            else:
                self._append(key)
        elif after is not None:
            self._schedule(key, after)

    def _append(self, key: ObjectKey) -> None:
        self._due.pop(key, None)
        self._ready.put(key[0], key, key)
        self._condition.notify()

    def _schedule(self, key: ObjectKey, seconds: float) -> None:
        """Of several times for a key the earliest counts."""
        due = self._monotonic() + seconds
        if self._ready.has(key[0], key) or self._due.get(key, due + 1.0) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._later, (due, key))
        self._condition.notify()

    def _promote(self) -> float | None:
        """Move what is due to the ready ones; seconds until the next is due."""
        now = self._monotonic()
        while self._later:
            due, key = self._later[0]
            if self._due.get(key) != due:
                heapq.heappop(self._later)
            elif due <= now:
                heapq.heappop(self._later)
                self._append(key)
            else:
                return due - now
        return None
