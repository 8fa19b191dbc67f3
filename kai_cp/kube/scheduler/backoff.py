"""Holds back pods whose bind keeps failing, so that they do not starve others.

A held pod is gated in the snapshot. A gang that cannot be complete without it is then not ready, and its
places go to others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api.memory import Memory
from kai_cp.reader.salvage import SET_ASIDE

FIRST_SECONDS: Final = 2.0
LONGEST_SECONDS: Final = 300.0
REMEMBERED: Final = 20_000


class BindBackoff:
    """Failures by pod uid, and until when each pod is held. Times are in seconds since the epoch."""

    def __init__(
        self,
        first: float = FIRST_SECONDS,
        longest: float = LONGEST_SECONDS,
        *,
        retried: Callable[[], object] = lambda: None,
    ) -> None:
        self._retried = retried
        self._first = first
        self._longest = longest
        self._failures: Memory[str, tuple[int, float]] = Memory(REMEMBERED)
        self._lock = threading.Lock()

    def failed(self, uid: str, now: float) -> float:
        """Record a failed bind; returns until when the pod is held.

        The first failure holds nothing back: KAI's binder sometimes fails when several pods share a GPU that
        is not reserved yet, and the next attempt finds the reservation.
        """
        with self._lock:
            count = self._failures.get(uid, (0, 0.0))[0] + 1
            pause = self._first * 2.0 ** min(count - 2, 30) if count > 1 else 0.0
            until = now + min(self._longest, pause)
            self._failures.put(uid, (count, until))
            return until

    def ordered(self, uid: str) -> None:
        """Record a request to bind the pod; calls ``retried`` if an earlier one failed."""
        with self._lock:
            again = uid in self._failures
        if again:
            self._retried()

    def succeeded(self, uid: str) -> None:
        """Forget a pod that is bound or deleted."""
        with self._lock:
            self._failures.pop(uid, None)

    def failures(self, uid: str) -> int:
        """How often in a row a bind of the pod failed."""
        return self._failures.get(uid, (0, 0.0))[0]

    def held(self, uid: str, now: float) -> bool:
        """Whether the pod is held now."""
        entry = self._failures.get(uid)
        return entry is not None and self._holds(entry[1], now)

    def _holds(self, until: float, now: float) -> bool:
        """Whether a hold lasts; one that would last too long was made before the clock was set back."""
        return now < until <= now + self._longest

    def next_release(self, now: float) -> float | None:
        """When the next held pod is released; None if none is held."""
        with self._lock:
            return min(
                (until for _, until in self._failures.values() if self._holds(until, now)), default=None
            )

    def mask(self, raw: Mapping[str, Any], now: float) -> Mapping[str, Any]:
        """The snapshot with held pods gated; the same object if none is held."""
        if not self._failures:
            return raw
        pods = raw["rawObjects"]["pods"]
        shown = [gated(pod) if self.held(pod["metadata"].get("uid", ""), now) else pod for pod in pods]
        if all(a is b for a, b in zip(pods, shown, strict=True)):
            return raw
        return {**raw, "rawObjects": {**raw["rawObjects"], "pods": shown}}


def gated(pod: Object) -> Object:
    """The pod, with our scheduling gate if it waits for a place; one that is set aside waits for none."""
    if SET_ASIDE in pod or pod["spec"].get("nodeName"):
        return pod
    gates = [*(pod["spec"].get("schedulingGates") or ()), {"name": keys.HELD_GATE}]
    # Readers cache objects by version, so the changed pod needs another one.
    meta = {**pod["metadata"], "resourceVersion": f"{pod['metadata'].get('resourceVersion', '')}-held"}
    return {**pod, "metadata": meta, "spec": {**pod["spec"], "schedulingGates": gates}}
