"""A proxy in front of the API server that behaves like bad networks and busy servers."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import orjson

from kai_cp.kube.demo.controlplane import ControlPlane, free_port


@dataclass(frozen=True)
class Fault:
    """What happens to a request: it is answered with ``status``, delayed, or its answer is lost after
    it was carried out.
    """

    status: int = 0
    retry_after: str = ""
    delay: float = 0.0
    lose_answer: bool = False


Rule = Callable[[str, str], Fault | None]
"""From method and path to a fault, or None."""


class FaultyProxy:
    """Listens with the control plane's own certificate. ``rule`` may be replaced at any time."""

    def __init__(self, plane: ControlPlane) -> None:
        self.rule: Rule = lambda _method, _path: None
        self.seen: list[tuple[float, str, str]] = []
        self._open: set[Any] = set()
        self._lock = threading.Lock()
        self.port = free_port()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def handle_any(self) -> None:
                proxy.forward(self, plane)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: Any) -> None:
                pass  # Clients that leave are what this is for.

        self._server = Server(("127.0.0.1", self.port), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(plane.directory / "serving.crt", plane.directory / "serving.key")
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._upstream = ssl.create_default_context(cafile=str(plane.ca))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop_connections()
        self._server.shutdown()
        self._server.server_close()

    def drop_connections(self) -> None:
        """Cut every open connection, watches included."""
        with self._lock:
            sockets, self._open = self._open, set()
        for entry in sockets:
            with contextlib.suppress(OSError):
                entry.shutdown(2)

    def writes(self) -> list[tuple[float, str, str]]:
        """Every write: time, method, path; leases do not count."""
        return [s for s in self.seen if s[1] != "GET" and "/leases" not in s[2]]

    def forward(self, handler: BaseHTTPRequestHandler, plane: ControlPlane) -> None:
        """Pass one request on, with a fault where the rule says so."""
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length) if length else None
        self.seen.append((time.time(), handler.command, handler.path))
        fault = self.rule(handler.command, handler.path) or Fault()
        if fault.delay:
            time.sleep(fault.delay)
        if fault.status:
            self._refuse(handler, fault)
            return
        upstream = http.client.HTTPSConnection("127.0.0.1", plane.port, timeout=400, context=self._upstream)
        with self._lock:
            self._open.add(handler.connection)
        try:
            headers = {k: v for k, v in handler.headers.items() if k.lower() not in ("host", "connection")}
            upstream.request(handler.command, handler.path, body=body, headers=headers)
            answer = upstream.getresponse()
            if fault.lose_answer:
                answer.read()
                handler.close_connection = True
                handler.connection.shutdown(2)
                return
            self._relay(handler, answer)
        except (OSError, http.client.HTTPException):
            handler.close_connection = True
        finally:
            with self._lock:
                self._open.discard(handler.connection)
            upstream.close()

    def _relay(self, handler: BaseHTTPRequestHandler, answer: http.client.HTTPResponse) -> None:
        handler.send_response(answer.status)
        for name in ("Content-Type", "Retry-After"):
            if answer.getheader(name):
                handler.send_header(name, str(answer.getheader(name)))
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.flush()
        while piece := answer.read1(65536):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
        handler.wfile.write(b"0\r\n\r\n")
        handler.wfile.flush()

    def _refuse(self, handler: BaseHTTPRequestHandler, fault: Fault) -> None:
        status = {"kind": "Status", "code": fault.status, "reason": "Injected", "message": "injected fault"}
        text = orjson.dumps(status)
        handler.send_response(fault.status)
        if fault.retry_after:
            handler.send_header("Retry-After", fault.retry_after)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)
        handler.wfile.flush()
