"""The address of a server: how it is written, how it is listened on, and why it cannot be had; and who may
hold how many of its connections.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import typer

from kai_cp.errors import Unavailable


def endpoint(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``; an empty host or ``::`` means every interface, port 0 any free port.

    Raises ``ValueError`` for anything else.
    """
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdecimal() and len(port) <= 5 and int(port) < 1 << 16):
        raise ValueError(f"{address!r} is not an address such as :8080 or 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def listening(address: str, backlog: int) -> socket.socket:
    """The socket that listens on ``address``; one that means every interface takes IPv6 and IPv4 alike.

    Without IPv6 on the machine an empty host is every interface of IPv4. Raises ``OSError``.
    """
    host, port = endpoint(address)
    if host in ("", "::") and socket.has_dualstack_ipv6():
        return socket.create_server(
            ("::", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True
        )
    family, _, _, _, known = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0]
    # Of an IPv6 address that is local to a link, only the whole tuple names the interface.
    return socket.create_server(known, family=family, backlog=backlog)


class AddressServer(ThreadingHTTPServer):
    """An HTTP server on ``host:port``, with one thread per connection. Raises ``OSError``.

    One client cannot keep others out: of ``most_connections``, one without a whole request is closed for a
    new one, first the oldest of the client that has most.
    """

    daemon_threads = True
    request_queue_size = 128
    most_connections = 64

    def __init__(self, address: str, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("", 0), handler, bind_and_activate=False)
        self.socket.close()  # Its family is fixed before the address is known.
        self.socket = listening(address, self.request_queue_size)
        self.server_address = self.socket.getsockname()
        self._waiting: dict[Any, socket.socket] = {}
        """Connections without a whole request by the address of the client, oldest first."""
        self._busy: dict[Any, socket.socket] = {}
        """The others."""
        self._counting = threading.Lock()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Close a connection for the new one if needed; False if all are busy."""
        with self._counting:
            if len(self._waiting) + len(self._busy) >= self.most_connections:
                if not self._waiting:
                    return False
                clients = Counter(address[0] for address in self._waiting)
                most = max(clients.values())
                given_up = next(address for address in self._waiting if clients[address[0]] == most)
                with suppress(OSError):
                    self._waiting.pop(given_up).shutdown(socket.SHUT_RDWR)
            self._waiting[client_address] = request
        return True

    def speaks_through(self, client_address: Any, connection: socket.socket) -> None:
        """The connection of this client is another object now, as of TLS."""
        with self._counting:
            if client_address in self._waiting:
                self._waiting[client_address] = connection

    @contextmanager
    def busy(self, client_address: Any) -> Iterator[None]:
        """Protect a connection from being closed for another while its answer is made."""
        with self._counting:
            connection = self._waiting.pop(client_address, None)
            if connection is not None:
                self._busy[client_address] = connection
        try:
            yield
        finally:
            with self._counting:
                if (connection := self._busy.pop(client_address, None)) is not None:
                    self._waiting[client_address] = connection

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the connection."""
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._forget(client_address)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection in its own thread, and forget it."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(client_address)

    def _forget(self, client_address: Any) -> None:
        with self._counting:
            self._waiting.pop(client_address, None)
            self._busy.pop(client_address, None)

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return int(self.server_address[1])


def Address(help: str) -> Any:
    """An option that takes an address, or nothing."""
    return typer.Option(help=help, parser=_checked, metavar="HOST:PORT")


def _checked(text: str) -> str:
    try:
        if text:
            endpoint(text)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
    return text


@contextmanager
def opening(option: str, address: str) -> Iterator[None]:
    """Raise ``Unavailable`` with ``option`` and ``address`` if the server made inside cannot listen."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{option} {address}: {_why(error)}") from None


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another process has this port; name one that is free"
    if error.errno == errno.EACCES:
        return "this port needs more rights; name one from 1024 on"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address"
    return os.strerror(error.errno) if error.errno else str(error)
