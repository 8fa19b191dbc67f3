"""The address of a server: how it is written, and why it cannot be had."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from kai_cp.errors import Unavailable


def endpoint(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``; an empty host means every interface, port 0 any free port.

    Raises ``ValueError`` for anything else.
    """
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdecimal() and len(port) <= 5 and int(port) < 1 << 16):
        raise ValueError(f"{address!r} is no address such as :8080 or 127.0.0.1:8080")
    return host.strip("[]"), int(port)


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
