"""Addresses of servers: how they are written, and what is said about one that cannot be had."""

from __future__ import annotations

import contextlib
import socket
from contextlib import ExitStack

import pytest
from typer.testing import CliRunner

from kai_cp.cli.streams import guarded
from kai_cp.errors import Unavailable
from kai_cp.kube import cli
from kai_cp.kube.admission.server import TlsServer
from kai_cp.kube.demo.controlplane import free_port
from kai_cp.kube.serving.address import endpoint, listening, opening
from kai_cp.kube.serving.http import HttpServer
from kai_cp.kube.serving.process import listen
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (":8080", ("", 8080)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::]:8080", ("::", 8080)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_address_is_host_and_port(text: str, parts: tuple[str, int]) -> None:
    assert endpoint(text) == parts


@pytest.mark.parametrize("text", ["8080", "localhost", ":", ":http", ":-1", ":65536", ":999999999999"])
def test_anything_else_is_wrong_usage_that_shows_an_address(text: str) -> None:
    done = CliRunner().invoke(cli.app, ["binder", "--listen-address", text])
    assert done.exit_code == 2
    assert "127.0.0.1:8080" in done.output


V4, V6 = "127.0.0.1", "::1"
WITH_IPV6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")


def reached(port: int) -> set[str]:
    """The loopback addresses on which the port takes connections."""
    found = set()
    for host in (V4, V6):
        with contextlib.suppress(OSError), socket.create_connection((host, port), PATIENCE_SECONDS):
            found.add(host)
    return found


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("127.0.0.1:0", {V4}),
        ("0.0.0.0:0", {V4}),
        pytest.param(":0", {V4, V6}, marks=WITH_IPV6),
        pytest.param("[::]:0", {V4, V6}, marks=WITH_IPV6),
        pytest.param("[::1]:0", {V6}, marks=WITH_IPV6),
    ],
)
@pytest.mark.parametrize("kind", ["metrics", "webhooks"])
def test_a_server_is_reached_in_the_family_of_its_host(kind: str, address: str, hosts: set[str]) -> None:
    server = HttpServer(address, {}) if kind == "metrics" else TlsServer(address, lambda _path, _body: None)
    server.start()
    assert reached(server.port) == hosts
    server.stop()


def test_a_machine_without_ipv6_serves_every_interface_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listening(":0", 5) as server:
        assert server.family == socket.AF_INET
        assert reached(server.getsockname()[1]) == {V4}


def test_a_port_that_is_taken_is_said_with_the_option_that_names_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ExitStack() as parts:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        assert guarded(lambda: listen(parts, "--plugin-server-address", taken, {})) == 3
    assert capsys.readouterr().err == (
        f"kai-cp: --plugin-server-address {taken}: another process has this port; name one that is free\n"
    )


@pytest.mark.parametrize(
    ("host", "said"),
    [("203.0.113.1", "this machine has no such address"), ("no.invalid", "this machine has no such address")],
)
def test_an_address_of_another_machine_is_said_to_be_one(host: str, said: str) -> None:
    with pytest.raises(Unavailable, match=f"--listen-address {host}:0: {said}"):
        listen(ExitStack(), "--listen-address", f"{host}:0", {})


def test_a_port_of_the_system_is_said_to_need_rights() -> None:
    with (
        pytest.raises(Unavailable, match="--webhook-addr 443: this port needs more rights"),
        opening("--webhook-addr", "443"),
    ):
        raise PermissionError(13, "Permission denied")


def test_a_free_port_is_kept_for_a_server_that_names_it() -> None:
    """A port that the system could still give to another process lets any socket bind it."""
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)) as server:
        assert server.getsockname()[1] == port
