"""The HTTP server of a process: health and metrics for all, data for users of the same machine (11.3).

One client cannot keep others from a port: an idle or slow connection is closed for a new one
(``AddressServer``), and few answers are made at once. A loopback port answers only to loopback host names, so
a page in a browser cannot read it through DNS rebinding.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import orjson

from kai_cp.kube.serving.address import AddressServer, endpoint

LOG = logging.getLogger(__name__)
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
MOST_ANSWERS: Final = 8
"""Answers that are made at once; a snapshot of a large cluster takes a second of a core."""
READ_SECONDS: Final = 30.0
"""Longest silence of a client; its connection may be closed sooner for another."""
ANSWER_SECONDS: Final = 5.0
"""Longest wait for others' answers."""
LOOPBACK: Final = frozenset(["localhost", "127.0.0.1", "::1"])


@dataclass(frozen=True, slots=True)
class Response:
    """The answer of a path. A ``body`` that is a stream is sent in chunks."""

    body: bytes | Iterable[bytes]
    content: str = TEXT
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[str], Response | None]
"""Called with the rest of the path; None: no such thing."""


@dataclass(frozen=True, slots=True)
class Query:
    """A path that takes parameters, or a JSON body of at most ``most_bytes`` bytes."""

    asked: Callable[[Mapping[str, str]], Response] | None = None
    posted: Callable[[bytes], Response] | None = None
    most_bytes: int = 1_000_000

    def __call__(self, rest: str) -> Response | None:
        """Nothing lies below it."""
        return None


def as_json(value: Any, status: int = 200) -> Response:
    """A JSON answer."""
    return Response(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE), JSON, status)


class _Server(AddressServer):
    """A server of ``routes`` with limited connections. On loopback it answers to local names only."""

    def __init__(self, address: str, routes: Mapping[str, Route]) -> None:
        super().__init__(address, _Handler)
        self.loopback = endpoint(address)[0] in LOOPBACK
        self._routes = sorted(routes.items(), key=lambda item: len(item[0]), reverse=True)
        self.answering = threading.BoundedSemaphore(MOST_ANSWERS)

    def route(self, path: str) -> tuple[Route, str] | None:
        """The route with the longest prefix of ``path``, and the rest of the path."""
        for prefix, route in self._routes:
            if path == prefix or path.startswith(prefix.rstrip("/") + "/"):
                return route, path[len(prefix) :].strip("/")
        return None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""
        LOG.debug("connection ended", extra={"client": str(client_address)}, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """One connection and its requests."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    timeout = READ_SECONDS
    server: _Server

    def do_GET(self) -> None:
        """Answer once it is this request's turn."""
        if self.server.loopback and _named(self.headers.get("Host") or "") not in LOOPBACK:
            self._send(Response(b"this port answers to localhost only\n", status=421))
        elif self.server.answering.acquire(timeout=ANSWER_SECONDS):
            try:
                with self.server.busy(self.client_address):
                    answer = self._answer()
                if not isinstance(answer.body, bytes):
                    self._send(answer)  # The body is made while it is sent.
            finally:
                self.server.answering.release()
            if isinstance(answer.body, bytes):
                self._send(answer)
        else:
            self._send(Response(b"too many requests at once\n", status=503))

    def do_POST(self) -> None:
        """Answer as GET does; the path decides what it takes."""
        self.do_GET()

    def _answer(self) -> Response:
        path = urlsplit(self.path).path
        found = self.server.route(path)
        answer: Response | None = None
        try:
            if found is not None:
                answer = self._answered(*found)
        except Exception:
            LOG.exception(
                "a request to this process failed: report this defect with its trace", extra={"path": path}
            )
            answer = Response(b"internal error\n", status=500)
        return answer or Response(b"not found\n", status=404)

    def _answered(self, route: Route, rest: str) -> Response | None:
        if isinstance(route, Query):
            return self._asked(route) if not rest else None
        if self.command == "GET":
            return route(rest)
        return Response(b"this path takes GET\n", status=405)

    def _asked(self, query: Query) -> Response:
        """The answer of a path with parameters or a body. A body is read completely or not at all."""
        length = self.headers.get("Content-Length") or "0"
        size = int(length) if length.isdecimal() and len(length) < len(str(2**63)) else -1
        if size or "Transfer-Encoding" in self.headers:
            # An unread body must not be taken for the next request.
            self.close_connection = True
        if self.command == "GET":
            if query.asked is None:
                return Response(b"this path takes POST with a JSON body\n", status=405)
            return query.asked(dict(parse_qsl(urlsplit(self.path).query, max_num_fields=16)))
        if query.posted is None:
            return Response(b"this path takes GET\n", status=405)
        if self.headers.get_content_type() != JSON:
            return Response(b"the body must be application/json\n", status=415)
        if not 0 < size <= query.most_bytes:
            most = f"the body must have a Content-Length of 1 to {query.most_bytes} bytes\n"
            return Response(most.encode(), status=413)
        return query.posted(self.rfile.read(size))

    def _send(self, answer: Response) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if isinstance(answer.body, bytes):
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in answer.body:
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Write to our log at debug level."""
        LOG.debug("http", extra={"request": format % args})


class HttpServer:
    """Serves routes by longest prefix. ``address`` is ``host:port``; an empty host means every interface."""

    def __init__(self, address: str, routes: Mapping[str, Route]) -> None:
        self._server = _Server(address, routes)
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return self._server.port

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()


def _named(host: str) -> str:
    """The host name in a Host header, without the port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).strip("[]").lower()
