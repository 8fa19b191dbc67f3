"""The only place where a request to the API server is repeated."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kai_cp.kube.api.errors import ApiError, NotReachable

LOG = logging.getLogger(__name__)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts: ``first`` seconds, doubled each time up to ``longest``, with jitter.

    ``attempts`` counts the first one too. A server's Retry-After is obeyed when it is longer than our pause,
    up to ``patience`` seconds; with a longer one the request is given up at once.
    """

    attempts: int = 5
    first: float = 0.1
    longest: float = 5.0
    patience: float = 30.0
    sleep: Callable[[float], object] = time.sleep

    def pause(self, attempt: int) -> float:
        """Seconds to wait after the given attempt (0 is the first): between half of the step and the whole
        step.
        """
        step = min(self.longest, self.first * 2.0 ** min(attempt, 30))
        return step * random.uniform(0.5, 1.0)


def retrying(call: Callable[[], Answer], backoff: Backoff, *, what: str) -> Answer:
    """The answer of ``call``, which is repeated after a failure that may pass (no answer, 408, 429, 5xx).

    The error is ``unknown`` if one of the attempts may have been carried out.
    """
    attempt = 0
    unknown = False
    while True:
        try:
            return call()
        except (NotReachable, ApiError) as error:
            error.unknown = unknown = unknown or error.unknown
            last = attempt + 1 >= backoff.attempts
            if last or (isinstance(error, ApiError) and not error.transient):
                raise
            pause = backoff.pause(attempt)
            asked = error.retry_after if isinstance(error, ApiError) else None
            if asked is not None and asked > backoff.patience:
                raise
            pause = max(pause, asked or 0.0)
            attempt += 1
            LOG.warning(
                "a request to the API server failed, and is tried again",
                extra={"request": what, "attempt": f"{attempt}/{backoff.attempts}", "error": str(error)},
            )
            backoff.sleep(pause)
