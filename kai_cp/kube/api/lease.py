"""Leader election by Lease, with request timeouts and a hard stop (11.2).

The holder may write until its lease ends by its own clock, counted from *before* the renewal was sent and
``margin`` early. The writes of a process that hangs longer are refused here, before another process leads.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kai_cp.json_types import Object
from kai_cp.kube.api import resources
from kai_cp.kube.api.errors import KubeError, LeaseLost
from kai_cp.kube.api.store import version_of
from kai_cp.kube.api.transport import Transport

LOG = logging.getLogger(__name__)
MARGIN: Final = 0.1
"""Fraction of the lease by which the holder stops early, because of requests still on their way."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long a lease lasts, when it must be renewed at the latest, and how often renewal is tried; in
    seconds, as in KAI.
    """

    duration: float = 15.0
    renew: float = 10.0
    retry: float = 5.0

    def __post_init__(self) -> None:
        if not 0 < self.retry <= self.renew < self.duration:
            raise ValueError("duration > renew deadline >= retry period > 0 is needed")

    def __str__(self) -> str:
        return f"{self.duration:g},{self.renew:g},{self.retry:g}"


class LeaderLease:
    """One lease.

    ``transport`` must be one of its own, without a fence, with few attempts and short timeouts.
    """

    def __init__(
        self,
        transport: Transport,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration = times.duration
        self._period = times.retry
        self._monotonic = monotonic
        self._until = 0.0
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0.0
        self._version = 0
        self._stopping = threading.Event()

    def fence(self) -> None:
        """Raise :class:`LeaseLost` unless this process holds the lease now; ask before every write."""
        if self._monotonic() >= self._until:
            raise LeaseLost(f"lease {self._namespace}/{self._name} is not held")

    @property
    def held(self) -> bool:
        """Whether this process may write now."""
        return self._monotonic() < self._until

    def acquire(self) -> bool:
        """Wait for the lease; False when told to stop before it is held. Raises :class:`LeaseLost` if the
        server has an older state than before.
        """
        LOG.info("waiting for the lease", extra={"lease": self._name, "identity": self._identity})
        while not self._stopping.is_set():
            if self._attempt():
                LOG.info("leader", extra={"lease": self._name, "identity": self._identity})
                return True
            self._stopping.wait(self._period)
        return False

    def keep(self, lost: Callable[[], None]) -> None:
        """Renew until told to stop; call ``lost`` once the lease cannot be held any longer."""
        while not self._stopping.wait(self._period):
            with contextlib.suppress(LeaseLost):
                self._attempt()
            if not self.held:
                lost()
                return

    def give_up(self) -> None:
        """Stop waiting for the lease and renewing it."""
        self._stopping.set()

    def release(self) -> None:
        """Give the lease back once no thread writes any more, so that another process need not wait for its
        end.
        """
        self._stopping.set()
        if self.held:
            self._until = 0.0
            try:
                lease = self._read()
                if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                    spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                    self._transport.update(
                        resources.LEASES, self._namespace, self._name, {**lease, "spec": spec}
                    )
            except KubeError as error:
                LOG.warning(
                    "the lease was not given back, so the next leader waits until it expires",
                    extra={"lease": self._name, "error": str(error)},
                )

    def _attempt(self) -> bool:
        began = self._monotonic()
        try:
            held = self._take()
        except LeaseLost:
            self._until = 0.0
            raise
        except KubeError as error:
            LOG.warning(
                "the lease was neither taken nor renewed, and is tried again: if it goes on, see whether the "
                "API server answers",
                extra={"lease": self._name, "error": str(error)},
            )
            return self.held
        if held:
            self._until = began + self._duration * (1.0 - MARGIN)
        else:
            self._until = 0.0
        return self.held

    def _take(self) -> bool:
        """Take or renew the lease; False if another process has it. Raises ``KubeError`` if that is unknown:
        a conflict shows only that the lease was written meanwhile.
        """
        lease = self._read()
        if lease is None:
            self._transport.create(resources.LEASES, self._namespace, self._fresh())
            return True
        holder = lease["spec"].get("holderIdentity") or ""
        if holder not in ("", self._identity) and not self._expired(lease):
            return False
        renewed = self._renewed(lease, taken=holder != self._identity)
        self._transport.update(resources.LEASES, self._namespace, self._name, renewed)
        return True

    def _read(self) -> Object | None:
        """The lease, with a spec, which it need not have.

        Raises :class:`LeaseLost` if it is older than before: etcd was restored from a backup, and a store
        drops all news until their versions are those that it knows.
        """
        lease = self._transport.get(resources.LEASES, self._namespace, self._name)
        if lease is None:
            return None
        if version_of(lease) < self._version:
            LOG.error(
                "the API server has an older state than before, as after a restore from a backup, so this "
                "process ends and reads everything again after its restart",
                extra={"lease": self._name},
            )
            raise LeaseLost(f"lease {self._namespace}/{self._name} is older than before")
        self._version = version_of(lease)
        return {**lease, "spec": lease.get("spec") or {}}

    def _expired(self, lease: Object) -> bool:
        """Whether the lease was not renewed for its duration, by our own clock; the holder's clock is not
        trusted.
        """
        spec = lease["spec"]
        mark = (spec.get("holderIdentity") or "", spec.get("renewTime") or "")
        if mark != self._seen:
            self._seen, self._seen_at = mark, self._monotonic()
            return False
        return self._monotonic() - self._seen_at >= float(spec.get("leaseDurationSeconds") or self._duration)

    def _fresh(self) -> Object:
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._duration)),
            "acquireTime": _micro(),
            "renewTime": _micro(),
            "leaseTransitions": 0,
        }
        meta = {"name": self._name, "namespace": self._namespace}
        lease = resources.LEASES
        return {"apiVersion": lease.api_version, "kind": lease.kind, "metadata": meta, "spec": spec}

    def _renewed(self, lease: Object, *, taken: bool) -> Object:
        spec = {**lease["spec"], "holderIdentity": self._identity, "renewTime": _micro()}
        spec["leaseDurationSeconds"] = max(1, round(self._duration))
        if taken:
            spec["acquireTime"] = _micro()
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        return {**lease, "spec": spec}


def _micro() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
