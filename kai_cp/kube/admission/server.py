"""HTTPS for webhooks: replaces certificates while it runs, and limits what a caller may cost."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from kai_cp.kube.serving.address import AddressServer
from kai_cp.reader.fields import Malformed

LOG = logging.getLogger(__name__)
MOST_BYTES: Final = 8 * 1024 * 1024
"""Largest request: the API server takes objects of 3 MiB, and a change brings the old one along."""
HANDSHAKE_SECONDS: Final = 5.0
READ_SECONDS: Final = 5.0
"""Longest wait for a piece of the head, for the whole body, and for others: API servers wait no longer."""
SMALL_BYTES: Final = 128 * 1024
"""Requests up to here, as almost all are, never wait for larger ones."""
MOST_SMALL: Final = 8
"""Small requests that are judged at once. As values a request takes up to 36 times its bytes."""
MOST_LARGE: Final = 4
"""Large requests that are held at once; one at a time is judged."""
IDLE_SECONDS: Final = 120.0
"""A connection that asks nothing for so long is closed; API servers keep theirs for 90 s."""

_COUNT: Final = re.compile("[0-9]{1,18}")

JudgeCall = Callable[[str, Any], Any]
"""From path and document to the answer; Malformed and LookupError are the caller's fault."""


class TlsServer(AddressServer):
    """A server of webhooks. :meth:`use` sets the certificate for later connections."""

    most_connections = 256

    def __init__(self, address: str, judge: JudgeCall) -> None:
        super().__init__(address, _Handler)
        self.judge = judge
        self.draining = False
        self.small = threading.BoundedSemaphore(MOST_SMALL)
        self.large, self.largest = threading.BoundedSemaphore(MOST_LARGE), threading.BoundedSemaphore(1)
        self._context: ssl.SSLContext | None = None
        self._thread = threading.Thread(target=self.serve_forever, name="webhooks", daemon=True)

    @property
    def serving(self) -> bool:
        """Whether the server accepts connections."""
        return self._thread.is_alive()

    @property
    def ready(self) -> bool:
        """Whether callers may call: the server has a certificate, accepts connections, and is not
        stopping.
        """
        return self._context is not None and self.serving and not self.draining

    def use(self, context: ssl.SSLContext) -> None:
        """Use the certificate of ``context`` from the next connection on."""
        self._context = context

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting connections."""
        if self.serving:
            self.shutdown()
        self.server_close()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is a certificate, and a connection for the client."""
        return self._context is not None and super().verify_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Speak TLS, then HTTP. A client that cannot is disconnected at no cost to the others."""
        assert self._context is not None
        request.settimeout(HANDSHAKE_SECONDS)
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with self._context.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as tls:
                self.speaks_through(client_address, tls)
                tls.do_handshake()
                self.RequestHandlerClass(tls, client_address, self)  # type: ignore[arg-type]
        except OSError as error:
            LOG.debug("connection ended", extra={"error": str(error)})

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the failure of one connection."""
        LOG.exception(
            "a connection failed: report this defect with its trace", extra={"client": str(client_address)}
        )


class _NoTurn(Exception):
    """Others were judged for too long."""


@contextmanager
def _turn(turns: threading.BoundedSemaphore, deadline: float) -> Iterator[None]:
    if not turns.acquire(timeout=max(0.0, deadline - time.monotonic())):
        raise _NoTurn
    try:
        yield
    finally:
        turns.release()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: TlsServer

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(IDLE_SECONDS)

    def parse_request(self) -> bool:
        """Read the head of a request, which must arrive in time once it has begun."""
        self.connection.settimeout(READ_SECONDS)
        return super().parse_request()

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not _COUNT.fullmatch(length) or "chunked" in self.headers.get("Transfer-Encoding", ""):
            self._refuse(411, "the request needs a Content-Length")
            return
        if int(length) > MOST_BYTES:
            self._refuse(413, f"more than {MOST_BYTES} bytes")
            return
        deadline = time.monotonic() + READ_SECONDS
        server, large = self.server, int(length) > SMALL_BYTES
        try:
            with _turn(server.large, deadline) if large else nullcontext():
                body = self._read(int(length), deadline)
                if body is None:
                    return
                with _turn(server.largest if large else server.small, deadline):
                    answer = self._answer(body)
                del body  # The answer may be as long, and its reader slow.
                self._send(*answer)
        except _NoTurn:
            self._refuse(503, "too many requests at once")

    def _answer(self, body: bytearray) -> tuple[int, bytes, str]:
        """The status, content and type of the answer."""
        path = urlsplit(self.path).path
        try:
            with self.server.busy(self.client_address):
                return 200, orjson.dumps(self.server.judge(path, orjson.loads(body))), "application/json"
        except LookupError:
            return 404, b"not found\n", "text/plain"
        except (Malformed, ValueError, RecursionError) as problem:
            return 400, f"{problem}\n".encode(), "text/plain; charset=utf-8"
        except Exception:
            LOG.exception("a request was not judged: report this defect with its trace", extra={"path": path})
            return 500, b"internal error\n", "text/plain"

    def _read(self, length: int, deadline: float) -> bytearray | None:
        """The body; None if all of it does not arrive in time, however many small pieces do."""
        body, arrived = bytearray(length), 0
        try:
            while arrived < length:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self.connection.settimeout(left)
                piece = self.rfile.readinto1(memoryview(body)[arrived:])
                if not piece:
                    self.close_connection = True
                    return None
                arrived += piece
        except TimeoutError:
            self._refuse(408, f"the body did not arrive within {READ_SECONDS:g} s")
            return None
        self.connection.settimeout(READ_SECONDS)
        return body

    def _refuse(self, status: int, text: str) -> None:
        self.close_connection = True
        self._send(status, f"{text}\n".encode(), "text/plain; charset=utf-8")

    def _send(self, status: int, body: bytes, content: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content)
        self.send_header("Content-Length", str(len(body)))
        if self.server.draining:
            self.close_connection = True
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
        self.connection.settimeout(IDLE_SECONDS)

    def log_message(self, format: str, *args: Any) -> None:
        LOG.debug("http", extra={"request": format % args})
