"""The part of a Service: connections go to replicas that report that they are ready."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from tests.e2e.world import PATIENCE_SECONDS

Replica = tuple[int, int]
"""Port of the webhooks, and of ``/readyz``."""


class Balancer:
    """Listens on a port and passes connections on, byte by byte."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.replicas = list(replicas)
        self._turn = itertools.count()
        self._ready: set[Replica] = set()
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._opener = build_opener(ProxyHandler({}))

    def __enter__(self) -> Self:
        for work in (self._probe, self._accept):
            threading.Thread(target=work, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._listener.close()

    @property
    def ready(self) -> int:
        """How many replicas are ready."""
        return len(self._ready)

    def _probe(self) -> None:
        while not self._over.wait(0.1):
            self._ready &= set(self.replicas)
            for replica in list(self.replicas):
                try:
                    with self._opener.open(
                        f"http://127.0.0.1:{replica[1]}/readyz", timeout=PATIENCE_SECONDS
                    ) as answer:
                        answer.read()
                    self._ready.add(replica)
                except (URLError, OSError):
                    self._ready.discard(replica)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            ready = sorted(self._ready.copy())
            if not ready:
                client.close()
                continue
            replica = ready[next(self._turn) % len(ready)]
            try:
                server = socket.create_connection(("127.0.0.1", replica[0]), timeout=PATIENCE_SECONDS)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=_copy, args=(one, other), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    for sock in (source, target):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            sock.close()
