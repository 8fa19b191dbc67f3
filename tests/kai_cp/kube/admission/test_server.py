"""The webhook server: TLS that changes while it runs, bad callers, and the keeper of the certificate."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from prometheus_client import CollectorRegistry

from kai_cp.kube.admission import process
from kai_cp.kube.admission import server as tls_server
from kai_cp.kube.admission.certificates import Bundle, renewed
from kai_cp.kube.admission.keeper import (
    FileSource,
    Keeper,
    Material,
    Publisher,
    SecretSource,
    names_of,
    tls_context,
)
from kai_cp.kube.admission.options import AdmissionOptions, FailurePolicy, RegistrationOptions
from kai_cp.kube.admission.process import AdmissionMetrics, FollowedCluster, ReviewJudging
from kai_cp.kube.admission.registration import SHARES, configurations
from kai_cp.kube.admission.server import MOST_BYTES, MOST_LARGE, SMALL_BYTES, TlsServer
from kai_cp.kube.api import access
from kai_cp.kube.api import resources as r
from tests.kai_cp.admission.build import pod
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.stub import StubServer

NAMES = ["127.0.0.1"]
LIFE = 3600.0


def bundle() -> Bundle:
    return renewed(None, NAMES, LIFE, time.time())


def context(made: Bundle) -> ssl.SSLContext:
    return tls_context(Material(made.certificate, made.key, made.authorities))


def echo(path: str, document: Any) -> Any:
    if path != "/echo":
        raise LookupError(path)
    if document == "fail":
        raise RuntimeError("a defect")
    return document


@pytest.fixture
def serving() -> Iterator[tuple[TlsServer, Bundle]]:
    made = bundle()
    server = TlsServer("127.0.0.1:0", echo)
    server.use(context(made))
    server.start()
    yield server, made
    server.stop()


OPEN: list[http.client.HTTPSConnection] = []


@pytest.fixture(autouse=True)
def _hang_up() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def connect(server: TlsServer, trusted: Bundle) -> http.client.HTTPSConnection:
    client = ssl.create_default_context(cadata=trusted.authorities.decode())
    made = http.client.HTTPSConnection("127.0.0.1", server.port, context=client, timeout=PATIENCE_SECONDS)
    OPEN.append(made)
    return made


def post(connection: http.client.HTTPSConnection, body: Any, path: str = "/echo") -> tuple[int, bytes]:
    connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode())
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_bad_callers_get_a_status_and_good_ones_go_on(serving: tuple[TlsServer, Bundle]) -> None:
    server, made = serving
    good = connect(server, made)
    assert post(good, [1]) == (200, b"[1]")
    assert post(good, b"{")[0] == 400
    assert post(good, b"[" * 100_000)[0] == 400
    assert post(good, {}, "/other")[0] == 404
    assert post(good, "fail") == (500, b"internal error\n")
    assert post(good, [2]) == (200, b"[2]"), "the same connection"
    large = connect(server, made)
    large.putrequest("POST", "/echo")
    large.putheader("Content-Length", str(MOST_BYTES + 1))
    large.endheaders()
    assert large.getresponse().status == 413
    endless = connect(server, made)
    endless.request("POST", "/echo", iter([b"1"]), {"Transfer-Encoding": "chunked"})
    assert endless.getresponse().status == 411
    assert post(good, [3]) == (200, b"[3]")


def test_a_body_that_does_not_come_costs_its_own_connection(
    serving: tuple[TlsServer, Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_server, "READ_SECONDS", 0.2)
    server, made = serving
    slow = connect(server, made)
    slow.putrequest("POST", "/echo")
    slow.putheader("Content-Length", "10")
    slow.endheaders()
    slow.send(b"1")
    # A busy machine may be as slow with another one; it then asks again.
    until(lambda: post(connect(server, made), [1])[0] == 200)
    assert slow.getresponse().status == 408


def test_large_requests_are_judged_one_at_a_time_and_small_ones_do_not_wait(
    serving: tuple[TlsServer, Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, made = serving
    judged: list[int] = []
    go_on = threading.Event()

    def judge(_path: str, document: Any) -> Any:
        if len(document) > SMALL_BYTES:
            judged.append(len(document))
            assert go_on.wait(PATIENCE_SECONDS)
        return [len(document)]

    server.judge = judge
    large = "x" * 2 * SMALL_BYTES
    monkeypatch.setattr(tls_server, "READ_SECONDS", PATIENCE_SECONDS)
    with ThreadPoolExecutor() as clients:
        asked = [clients.submit(post, connect(server, made), large) for _ in range(MOST_LARGE + 2)]
        until(lambda: bool(judged))
        assert post(connect(server, made), "small") == (200, b"[5]")
        assert judged == [len(large)]
        go_on.set()
        assert {one.result() for one in asked} == {(200, b"[%d]" % len(large))}


def test_a_large_request_waits_no_longer_than_its_caller(
    serving: tuple[TlsServer, Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_server, "READ_SECONDS", 0.2)
    server, made = serving
    large = "x" * 2 * SMALL_BYTES
    for turns in (server.largest, server.large):
        while turns.acquire(blocking=False):
            pass
        assert post(connect(server, made), large)[0] == 503
    assert post(connect(server, made), [1])[0] == 200
    server.large.release(MOST_LARGE)
    server.largest.release()
    until(lambda: post(connect(server, made), large)[0] == 200)


def test_a_client_without_tls_disturbs_no_other(serving: tuple[TlsServer, Bundle]) -> None:
    server, made = serving
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address), socket.create_connection(address) as plain:
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert post(connect(server, made), [1])[0] == 200
        with contextlib.suppress(ConnectionResetError):
            assert b"HTTP" not in plain.recv(100)


def test_a_client_with_many_connections_keeps_no_other_out(serving: tuple[TlsServer, Bundle]) -> None:
    """Some ask nothing, some never end their handshake: the oldest of the client with most make way."""
    server, made = serving
    server.most_connections = 4
    with contextlib.ExitStack() as held:
        address = ("127.0.0.1", server.port)
        idle = connect(server, made)
        assert post(idle, [1])[0] == 200
        for _ in range(8):
            held.enter_context(socket.create_connection(address))
        other = socket.create_connection(address, source_address=("127.0.0.2", 0), timeout=PATIENCE_SECONDS)
        context = ssl.create_default_context(cadata=made.authorities.decode())
        with context.wrap_socket(held.enter_context(other), server_hostname="127.0.0.1") as tls:
            for _ in range(8):
                held.enter_context(socket.create_connection(address))
            tls.sendall(b"POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\n[2]")
            assert tls.recv(100).startswith(b"HTTP/1.1 200")
        with pytest.raises((ConnectionError, http.client.HTTPException, ssl.SSLError)):
            post(idle, [3])


def test_a_new_certificate_is_shown_to_new_connections_and_old_ones_stay(
    serving: tuple[TlsServer, Bundle],
) -> None:
    server, first = serving
    old = connect(server, first)
    assert post(old, [1])[0] == 200
    second = bundle()
    server.use(context(second))
    assert post(old, [2])[0] == 200
    assert post(connect(server, second), [3])[0] == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        post(connect(server, first), [4])


def test_an_ending_server_answers_and_lets_go(serving: tuple[TlsServer, Bundle]) -> None:
    server, made = serving
    assert server.ready
    connection = connect(server, made)
    post(connection, [1])
    server.draining = True
    assert not server.ready
    connection.request("POST", "/echo", b"[2]")
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("Connection")) == (200, "close")


# --- the keeper ----------------------------------------------------------------------------------

SECRET = r.SECRETS.path("kai-scheduler", access.ADMISSION_SECRET)


@pytest.fixture
def stub() -> Iterator[StubServer]:
    made = StubServer()
    yield made
    made.close()


def secret_source(stub: StubServer) -> SecretSource:
    transport = stub.transport("admission")
    return SecretSource(transport, "kai-scheduler", access.ADMISSION_SECRET, NAMES, LIFE)


def empty_secret(stub: StubServer) -> None:
    meta = {"name": access.ADMISSION_SECRET, "namespace": "kai-scheduler"}
    stub.put(r.SECRETS, {"kind": "Secret", "metadata": meta, "type": "Opaque"})


def test_replicas_agree_on_what_the_secret_holds(stub: StubServer) -> None:
    empty_secret(stub)
    one, other = secret_source(stub), secret_source(stub)
    now = time.time()
    first = one.current(now)
    assert other.current(now) == first
    later = other.current(now + 0.7 * LIFE)
    assert later.certificate != first.certificate
    assert one.current(now + 0.7 * LIFE) == later
    assert later.authorities == first.authorities


def test_a_secret_that_is_emptied_or_garbled_is_written_again(stub: StubServer) -> None:
    empty_secret(stub)
    source = secret_source(stub)
    now = time.time()
    first = source.current(now)
    for data in ({}, {"tls.crt": "!", "tls.key": "!", "ca.crt": "!", "ca.key": "!"}):
        stored = stub.get(r.SECRETS, "kai-scheduler", access.ADMISSION_SECRET)
        assert stored is not None
        stub.put(r.SECRETS, {**stored, "data": data})
        assert source.current(now) == first
    assert secret_source(stub).current(now) == first


def test_a_missing_secret_says_what_to_apply(stub: StubServer, caplog: pytest.LogCaptureFixture) -> None:
    used: list[ssl.SSLContext] = []
    keeper = Keeper(secret_source(stub), None, used.append)
    assert not keeper.look()
    assert "the chart makes it" in str(caplog.records[-1].__dict__)
    empty_secret(stub)
    assert keeper.look()
    assert keeper.look()
    assert len(used) == 1
    assert keeper.ends_at > time.time()


def test_the_bundle_is_written_where_it_differs_and_to_our_objects_only(stub: StubServer) -> None:
    for found in configurations(RegistrationOptions()):
        kind = r.MUTATING_WEBHOOKS if found["kind"].startswith("Mut") else r.VALIDATING_WEBHOOKS
        if found["metadata"]["name"] == "kai-queue-validation-v2":
            found["metadata"]["labels"] = {"app": "queue-controller"}  # KAI's own
        stub.put(kind, found)
    publisher = Publisher(
        stub.transport("admission"), access.MUTATING_CONFIGURATIONS, access.VALIDATING_CONFIGURATIONS
    )
    publisher.publish(b"one")
    assert len(stub.requests("PUT")) == 3
    assert not stub.requests("PUT", "kai-queue")
    publisher.publish(b"one")
    assert len(stub.requests("PUT")) == 3
    publisher.publish(b"two")
    hooks = (stub.get(r.VALIDATING_WEBHOOKS, "", "validating-kai-admission") or {})["webhooks"]
    assert [base64.b64decode(hook["clientConfig"]["caBundle"]) for hook in hooks] == [b"two", b"two"]


@pytest.mark.parametrize("devices_are_blocked", [False, True])
def test_registrations_that_keep_judged_pods_away_are_reported_once(
    stub: StubServer, caplog: pytest.LogCaptureFixture, devices_are_blocked: bool
) -> None:
    for found in configurations(RegistrationOptions(block_nvidia_visible_devices=devices_are_blocked)):
        kind = r.MUTATING_WEBHOOKS if found["kind"].startswith("Mut") else r.VALIDATING_WEBHOOKS
        stub.put(kind, found)
    publisher = Publisher(
        stub.transport("admission"),
        access.MUTATING_CONFIGURATIONS,
        access.VALIDATING_CONFIGURATIONS,
        unwanted=SHARES["name"],
    )
    publisher.publish(b"one")
    publisher.publish(b"two")
    told = [record for record in caplog.records if "not sent here" in record.message]
    assert len(told) == (0 if devices_are_blocked else 1)


def test_files_of_cert_manager_are_read_anew(tmp_path: Path) -> None:
    used: list[ssl.SSLContext] = []
    keeper = Keeper(FileSource(tmp_path), None, used.append)
    assert not keeper.look()
    for made in (bundle(), bundle()):
        (tmp_path / "tls.crt").write_bytes(made.certificate)
        (tmp_path / "tls.key").write_bytes(made.key)
        (tmp_path / "ca.crt").write_bytes(made.authorities)
        assert keeper.look()
        assert keeper.look()
    assert len(used) == 2
    (tmp_path / "tls.key").write_bytes(bundle().key)
    assert not keeper.look(), "certificate and key are of two generations for a moment"
    assert len(used) == 2


def test_the_service_is_the_default_name() -> None:
    assert names_of("admission", "kai", "")[0] == "admission.kai.svc"
    assert names_of("admission", "kai", "a.b, 127.0.0.1") == ["a.b", "127.0.0.1"]


# --- registration and judging --------------------------------------------------------------------


def test_the_manifest_is_what_the_command_prints() -> None:
    import yaml

    root = Path(__file__).parents[4]
    manifest = list(yaml.safe_load_all((root / "deploy/chart/kai-cp/files/webhooks.yaml").read_text()))
    assert manifest == configurations(RegistrationOptions())


def test_pods_of_other_schedulers_never_come_here() -> None:
    found = configurations(
        RegistrationOptions(FailurePolicy.IGNORE, scheduler_name="mine", url="https://h:1/")
    )
    hooks = [hook for configuration in found for hook in configuration["webhooks"]]
    assert {hook["failurePolicy"] for hook in hooks} == {"Ignore"}
    pods = [hook for hook in hooks if hook["rules"][0]["resources"] == ["pods"]]
    assert len(pods) == 2
    for hook in pods:
        assert hook["matchConditions"][0]["expression"] == "object.spec.schedulerName == 'mine'"
        assert hook["clientConfig"]["url"].startswith("https://h:1/")


def test_threads_of_admission_share_one_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread's own kept what its largest request took: thirty of 8 MiB left 517 MiB of 512."""
    code = """if True:
        import ctypes, threading
        from concurrent.futures import ThreadPoolExecutor
        from kai_cp.memory import one_heap
        one_heap()
        met = threading.Barrier(8)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: bytearray(5000) and met.wait(), range(8)))
        libc = ctypes.CDLL(None)
        libc.fdopen.restype = ctypes.c_void_p
        libc.malloc_info(0, ctypes.c_void_p(libc.fdopen(1, b"w")))
        libc.fflush(None)
    """
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert told.count("<heap") == 1
    monkeypatch.setattr(process, "one_heap", Mock(side_effect=SystemExit))
    with pytest.raises(SystemExit):
        process.run(Mock(), Mock(), Mock())


def test_the_old_name_of_the_runtime_class_counts_when_the_new_one_is_not_given() -> None:
    assert AdmissionOptions(gpu_pod_runtime_class_name="x").settings.gpu_fraction_runtime_class_name == "x"
    both = AdmissionOptions(gpu_pod_runtime_class_name="x", gpu_fraction_runtime_class_name="y")
    assert both.settings.gpu_fraction_runtime_class_name == "y"


def test_facts_come_from_watches_and_requests_are_counted(stub: StubServer) -> None:
    registry = CollectorRegistry()
    cluster = FollowedCluster(stub.transport("admission"))
    judging = ReviewJudging(
        AdmissionOptions(gpu_sharing_enabled=True).settings, cluster, AdmissionMetrics(registry)
    )
    request = {"uid": "u", "operation": "CREATE", "namespace": "team", "object": pod({"gpu-fraction": "0.5"})}
    request["object"]["spec"]["runtimeClassName"] = "nvidia"
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    assert "warnings" not in judging("/validate--v1-pod", review)["response"], "nothing is known yet"
    cluster.informers.start()
    try:
        until(lambda: cluster.facts().runtime_classes is not None)
        assert "RuntimeClass" in judging("/validate--v1-pod", review)["response"]["warnings"][0]
        stub.put(r.RUNTIME_CLASSES, {"metadata": {"name": "nvidia"}})
        until(lambda: "warnings" not in judging("/validate--v1-pod", review)["response"])
    finally:
        cluster.informers.stop()
    counted = registry.get_sample_value(
        "kai_cp_admission_reviews_total", {"kind": "Pod", "operation": "CREATE", "result": "allowed"}
    )
    assert counted is not None
    assert counted >= 3
    with pytest.raises(LookupError):
        judging("/other", review)


@pytest.mark.parametrize("metadata", [[], [None], "x", 1, None])
def test_nonsense_of_any_caller_is_a_verdict_and_no_defect(stub: StubServer, metadata: Any) -> None:
    """The port is open to the network, and a trace in the log for each call would hide what matters."""
    judging = ReviewJudging(
        AdmissionOptions().settings,
        FollowedCluster(stub.transport("admission")),
        AdmissionMetrics(CollectorRegistry()),
    )
    request = {
        "uid": "u",
        "operation": "CREATE",
        "object": {"metadata": metadata, "spec": {"minMember": "x"}},
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answer = judging("/validate-scheduling-run-ai-v2alpha2-podgroup", review)
    assert not answer["response"]["allowed"]
