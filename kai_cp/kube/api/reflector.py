"""Keep a store equal to the API server's objects of one kind: list, watch, resume, list again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from kai_cp.json_types import Object
from kai_cp.kube.api.errors import ApiError, Gone, NotGranted, NotReachable, Unauthorized
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.api.retry import Backoff
from kai_cp.kube.api.store import ObjectKey, Store
from kai_cp.kube.api.transport import WATCH_SECONDS, Transport

LOG = logging.getLogger(__name__)

STEADY_SECONDS = 5.0
"""A watch that lasts this long ends a series of tries that pause for longer each time."""

ABSENT_SECONDS = 30.0
"""Time between tries for an optional kind that is not served."""


class Reflector:
    """A thread that follows one kind. ``store`` is complete once :attr:`synced` is set.

    A watch that ends is resumed from the last version seen; 410 leads to a new list. The pause after tries
    that did not last grows, with jitter, so that a server that comes back is not overloaded, and is no
    shorter than the server asks for. No malformed object ends the thread. An ``optional`` kind counts as
    synced while it is not served.
    """

    def __init__(
        self,
        transport: Transport,
        resource: Resource,
        store: Store,
        *,
        selector: str = "",
        fields: str = "",
        metadata_only: bool = False,
        optional: bool = False,
        backoff: Backoff | None = None,
        watch_seconds: int = WATCH_SECONDS,
    ) -> None:
        self._transport = transport
        self.resource = resource
        self.store = store
        self._selector = selector
        self._fields = fields
        self._metadata_only = metadata_only
        self._optional = optional
        self._backoff = backoff or Backoff(first=0.2, longest=30.0)
        self._watch_seconds = watch_seconds
        self._stopping = threading.Event()
        self._close: Callable[[], None] | None = None
        self._version = ""
        self.synced = threading.Event()
        self.last_contact = 0.0
        """time.monotonic() of the last answer from the server."""
        self.lists = 0
        self.served = True
        """False while the server does not know the kind at all."""
        self._thread = threading.Thread(target=self._run, name=f"watch-{resource.plural}", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; the connection is closed so that it does not wait for the server."""
        self._stopping.set()
        if self._close is not None:
            self._close()

    def join(self, seconds: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(seconds)

    def _run(self) -> None:
        short = 0
        """Tries in a row that did not last."""
        while not self._stopping.is_set():
            started, asked = time.monotonic(), 0.0
            try:
                if not self._version:
                    self._list()
                self._follow()
            except Gone:
                LOG.info("watch expired, listing again", extra={"resource": self.resource.plural})
                self._version = ""
            except Unauthorized:
                return  # the transport has told the process, which ends
            except (NotReachable, ApiError) as error:
                if self._optional and isinstance(error, ApiError) and error.status == 404:
                    self._version = ""
                    self.served = False
                    self.store.replace([], "")
                    self.synced.set()
                    self._stopping.wait(ABSENT_SECONDS)
                    continue
                if isinstance(error, ApiError):
                    asked = min(error.retry_after or 0.0, self._backoff.patience)
                if not self._stopping.is_set():
                    LOG.warning(
                        "the watch of a kind failed and is opened again: if it goes on, see whether the API "
                        "server answers and the role may list and watch the kind",
                        extra={"resource": self.resource.plural, "error": str(error)},
                    )
            except NotGranted:
                LOG.exception(
                    "the watch of a kind ended for good: report this defect with its trace",
                    extra={"resource": self.resource.plural},
                )
                return
            except Exception:
                # Whatever the server sent, the thread goes on with a new list.
                LOG.exception(
                    "the watch of a kind ended, and it is listed again: report this defect with its trace",
                    extra={"resource": self.resource.plural},
                )
                self._version = ""
            # One that was opened and ended at once, without an error, is no better than one that failed.
            short = 0 if time.monotonic() - started >= STEADY_SECONDS else short + 1
            self._stopping.wait(max(asked, self._backoff.pause(max(0, short - 1))))

    def _list(self) -> None:
        kept, version = dict[ObjectKey, Object](), ""
        # Page by page, since objects as the server sends them take several times what is kept of them.
        for page, at in self._transport.pages(
            self.resource, selector=self._selector, fields=self._fields, metadata_only=self._metadata_only
        ):
            kept |= self.store.kept(page)
            version = at
        self.lists += 1
        self.served = True
        self.store.take(kept, version)
        self._version = version
        self.last_contact = time.monotonic()
        self.synced.set()

    def _opened(self, close: Callable[[], None]) -> None:
        self._close = close
        self.last_contact = time.monotonic()
        if self._stopping.is_set():
            close()

    def _follow(self) -> None:
        events = self._transport.watch(
            self.resource,
            self._version,
            selector=self._selector,
            fields=self._fields,
            metadata_only=self._metadata_only,
            seconds=self._watch_seconds,
            opened=self._opened,
        )
        for kind, item in events:
            self.last_contact = time.monotonic()
            if kind == "ERROR":
                if item.get("code") == 410:
                    raise Gone(str(item.get("message")))
                raise ApiError(
                    int(item.get("code") or 500), str(item.get("reason")), str(item.get("message"))
                )
            if kind == "DELETED":
                self.store.remove(item)
            elif kind != "BOOKMARK":
                self.store.put(item)
            self._version = (item.get("metadata") or {}).get("resourceVersion") or self._version
