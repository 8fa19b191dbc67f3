"""Addresses of servers: how they are written, and what is said about one that cannot be had."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest
from typer.testing import CliRunner

from kai_cp.cli.streams import guarded
from kai_cp.errors import Unavailable
from kai_cp.kube import cli
from kai_cp.kube.demo.controlplane import free_port
from kai_cp.kube.serving.address import endpoint, opening
from kai_cp.kube.serving.process import listen


@pytest.mark.parametrize(
    ("text", "parts"),
    [(":8080", ("", 8080)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:65535", ("::1", 65535))],
)
def test_an_address_is_host_and_port(text: str, parts: tuple[str, int]) -> None:
    assert endpoint(text) == parts


@pytest.mark.parametrize("text", ["8080", "localhost", ":", ":http", ":-1", ":65536", ":999999999999"])
def test_anything_else_is_wrong_usage_that_shows_an_address(text: str) -> None:
    done = CliRunner().invoke(cli.app, ["binder", "--listen-address", text])
    assert done.exit_code == 2
    assert "127.0.0.1:8080" in done.output


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
