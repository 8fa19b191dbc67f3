"""HTTP of a process: health and metrics for anyone, data for whoever is on the same machine (11.3)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

LOG = logging.getLogger(__name__)
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a path answers; ``body`` may be a stream, which is then sent in chunks."""

    body: bytes | Iterable[bytes]
    content: str = TEXT
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[str], Answer | None]
"""Called with the rest of the path; None: no such thing."""


def as_json(value: Any, status: int = 200) -> Answer:
    """A JSON answer."""
    return Answer(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE), JSON, status)


class HttpServer:
    """Serves routes by longest prefix. ``address`` is ``host:port``; an empty host is every interface."""

    def __init__(self, address: str, routes: Mapping[str, Route]) -> None:
        host, _, port = address.rpartition(":")
        self._server = ThreadingHTTPServer((host or "0.0.0.0", int(port)), _handler(routes))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()


def _handler(routes: Mapping[str, Route]) -> type[BaseHTTPRequestHandler]:
    ordered = sorted(routes, key=len, reverse=True)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        timeout = 60

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            answer: Answer | None = None
            try:
                for prefix in ordered:
                    if path == prefix or path.startswith(prefix.rstrip("/") + "/"):
                        answer = routes[prefix](path[len(prefix) :].strip("/"))
                        break
            except Exception:
                LOG.exception("request failed", extra={"path": path})
                answer = Answer(b"internal error\n", status=500)
            self._send(answer or Answer(b"not found\n", status=404))

        def _send(self, answer: Answer) -> None:
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
            LOG.debug("http", extra={"request": format % args})

    return Handler
