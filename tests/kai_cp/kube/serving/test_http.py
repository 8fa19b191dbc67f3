"""HTTP, snapshots as files, and snapshots without names."""

from __future__ import annotations

import io
import json
import socket
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kai_cp.decisions import to_json
from kai_cp.kube.demo.controlplane import free_port
from kai_cp.kube.scheduler.anonymize import Anonymizer
from kai_cp.kube.scheduler.options import Mode
from kai_cp.kube.scheduler.routes import data_routes
from kai_cp.kube.scheduler.snapshot_file import archive, pieces
from kai_cp.kube.serving.address import AddressServer
from kai_cp.kube.serving.http import HttpServer, Response, as_json
from kai_cp.kube.telemetry.cycles import CycleLog
from kai_cp.reader import load, parse
from kai_cp_models.engine import decide
from kai_cp_models.settings import Settings
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS
from tests.kai_cp.kube.samples import group, node, pod, queue, snapshot

NOW = 1_800_000_000.0


def sample() -> dict[str, Any]:
    spread = pod("secret-c", "secret-two")
    spread["spec"]["nodeSelector"] = {"team": "secret-team"}
    spread["spec"]["tolerations"] = [
        {"key": "k", "operator": "Equal", "value": "secret-taint", "effect": "NoSchedule"}
    ]
    labelled = node("secret-n2")
    labelled["metadata"]["labels"]["team"] = "secret-team"
    labelled["spec"]["taints"] = [{"key": "k", "value": "secret-taint", "effect": "NoSchedule"}]
    return snapshot(
        pods=[pod("secret-a", "secret-one"), pod("secret-b", "secret-one"), spread],
        nodes=[node("secret-n1", gpus=2), labelled],
        queues=[queue("secret-q")],
        podGroups=[group("secret-one", 2, "secret-q"), group("secret-two", 1, "secret-q")],
        resourceClaims=None,
    )


def solve(raw: dict[str, Any]) -> dict[str, Any]:
    parsed = parse(raw, now=NOW)
    return to_json(parsed, decide(parsed, Settings(), deadline=time.monotonic() + PATIENCE_SECONDS))


def test_the_file_is_what_was_in_memory(tmp_path: Path) -> None:
    raw = sample()
    data = b"".join(archive(raw))
    path = tmp_path / "s.zip"
    path.write_bytes(data)
    loaded = load(path).raw
    assert loaded == json.loads(json.dumps(raw))


def test_decisions_ride_along() -> None:
    raw = sample()
    container = zipfile.ZipFile(io.BytesIO(b"".join(archive(raw, solve(raw)))))
    assert container.namelist() == ["snapshot.json", "decisions.json"]
    assert container.testzip() is None
    assert json.loads(container.read("decisions.json"))["schema"] == "decisions/1"


@pytest.mark.parametrize(
    "raw", [{}, {"rawObjects": {}}, {"rawObjects": {"pods": [], "nodes": None}}, sample()]
)
def test_pieces_are_json(raw: dict[str, Any]) -> None:
    assert json.loads(b"".join(pieces(raw))) == json.loads(json.dumps(raw))


def test_without_names_the_plan_is_the_same() -> None:
    raw = sample()
    renaming = Anonymizer()
    hidden = renaming.snapshot(raw)
    assert "secret" not in json.dumps(hidden)
    ours, theirs = renaming.decisions(solve(raw)), renaming_free(solve(hidden))
    assert ours["decisions"] == theirs["decisions"]
    assert [d["kind"] for d in ours["decisions"]] == ["Bind"] * 3


def renaming_free(document: dict[str, Any]) -> dict[str, Any]:
    return Anonymizer().decisions(document)


def test_without_names_recorded_cases_are_decided_alike(shared: Path) -> None:
    """The recorded cases with their many features: the same decisions, up to names."""
    paths = sorted((shared / "conformance/cases").rglob("*.json"))[::29]
    assert len(paths) > 5
    for path in paths:
        case = json.loads(path.read_text())
        raw = case.get("snapshot", case)
        renaming = Anonymizer()
        hidden = renaming.snapshot(raw)
        ours, theirs = renaming.decisions(solve(raw)), renaming_free(solve(hidden))
        kinds = [(d["kind"], d["namespace"], d["pod"], d["node"]) for d in ours["decisions"]]
        assert kinds == [(d["kind"], d["namespace"], d["pod"], d["node"]) for d in theirs["decisions"]], path


@pytest.fixture
def served() -> Iterator[str]:
    def fails(_rest: str) -> Response:
        raise RuntimeError("inside")

    routes = {
        "/text": lambda _rest: Response(b"ok\n"),
        "/items": lambda rest: as_json({"rest": rest}) if rest != "none" else None,
        "/stream": lambda _rest: Response(iter([b"a" * 10, b"", b"b" * 70_000])),
        "/fails": fails,
    }
    server = HttpServer(f"127.0.0.1:{free_port()}", routes)
    server.start()
    yield f"http://127.0.0.1:{server.port}"
    server.stop()


def fetch(url: str) -> tuple[int, bytes]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/text", 200, b"ok\n"),
        ("/items/7?x=1", 200, b'{\n  "rest": "7"\n}\n'),
        ("/items/none", 404, b"not found\n"),
        ("/textual", 404, b"not found\n"),
        ("/fails", 500, b"internal error\n"),
        ("/stream", 200, b"a" * 10 + b"b" * 70_000),
    ],
)
def test_routes(served: str, path: str, status: int, body: bytes) -> None:
    assert fetch(served + path) == (status, body)


def half_sent(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
    connection.sendall(b"GET /text HTTP/1.1\r\nHost: localhost\r\n")
    return connection


def test_requests_that_are_never_finished_keep_no_client_out(served: str) -> None:
    port = int(served.rpartition(":")[2])
    lasting = [half_sent(port) for _ in range(3 * AddressServer.most_connections)]
    for _ in range(3):
        assert fetch(served + "/text") == (200, b"ok\n")
    for connection in lasting:
        connection.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8081", 200),
        ("[::1]:8081", 200),
        ("127.0.0.1", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:80", 421),
        ("", 421),
    ],
)
def test_a_port_of_this_machine_has_no_other_name(served: str, host: str, status: int) -> None:
    port = int(served.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(f"GET /text HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert connection.recv(100).startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize("number", ["²", "9" * 5000, "-1", "1.0", "0x1", "99", "१"])
def test_cycles_that_there_are_not(number: str) -> None:
    class Nothing:
        cycles = CycleLog()
        mode = Mode.OBSERVE

    routes = data_routes(None, Nothing(), anonymize=False)  # type: ignore[arg-type]
    assert routes["/debug/cycles"](number) is None
