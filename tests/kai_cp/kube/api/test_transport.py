"""Requests: which are tried again, which answers are final, and which are refused before they are sent."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from kai_cp.errors import Unavailable
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import (
    ApiError,
    Gone,
    KubeError,
    LeaseLost,
    NotGranted,
    NotReachable,
    Unauthorized,
)
from kai_cp.kube.api.transport import RateLimit, configuration
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS
from tests.kai_cp.kube.samples import pod
from tests.kai_cp.kube.stub import QUICK, StubServer


def test_pages_are_smaller_where_objects_are_large(
    server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tenant's thousand pods of 3 MB would be 3 GB, and 50 GB once they are parsed."""
    monkeypatch.setattr("kai_cp.kube.api.transport.MOST_PAGE_BYTES", 20_000)
    large = {f"b{i}": pod(f"b{i}", annotations={"a": "x" * 9_000}) for i in range(9)}
    small = {f"{a}{i:03}": pod(f"{a}{i:03}") for a in "ac" for i in range(90)}
    giant = {"d": pod("d", annotations={"a": "x" * 50_000})}
    server.hold((r.PODS, one) for one in [*large.values(), *small.values(), *giant.values()])
    sizes = []
    for page, _ in server.transport().pages(r.PODS):
        sizes.append(len(page))
        assert len(page) == 1 or sum(len(orjson.dumps(one)) for one in page) <= 20_000
    assert sum(sizes) == len(large) + len(small) + 1
    assert len(sizes) < 40, "a page is as large as it may be"


def test_absent_is_an_answer(server: StubServer) -> None:
    api = server.transport()
    assert api.patch(r.PODS, "ns", "nobody", {"metadata": {}}) is None
    assert api.delete(r.PODS, "ns", "nobody") is None


@pytest.mark.parametrize("name", ["../../other/pods/p?x=", "..", ".", "", "p/status", "../pods/p", "a%2Fb"])
def test_a_text_that_is_no_name_leads_nowhere_else(server: StubServer, name: str) -> None:
    """Tenants write any text where an object names another one, as its owner or its ConfigMap."""
    api = server.transport()
    assert api.get(r.PODS, "ns", name) is None
    assert api.patch(r.PODS, "ns", name, {"metadata": {}}) is None
    assert api.delete(r.PODS, "ns", name) is None
    with pytest.raises(ApiError):
        api.update(r.LEASES, "ns", name, {"metadata": {}})
    assert server.log == []


def test_a_name_brings_no_query_along(server: StubServer) -> None:
    assert server.transport().get(r.PODS, "ns", "?watch=1&a#b c") is None
    assert [path for _, path, _ in server.log] == ["/api/v1/namespaces/ns/pods/%3Fwatch%3D1%26a%23b%20c"]


@pytest.mark.parametrize("text", [b"<html>down for maintenance</html>", b"", b'{"items": [{}'])
def test_an_answer_of_something_else_than_the_server_is_none(
    server: StubServer, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    """A proxy that answers for a server that is away ends no watch and no lease by a defect."""
    server.put(r.PODS, pod("p"))
    api = server.transport("binder", backoff=replace(QUICK, attempts=1))
    monkeypatch.setattr(api, "_read", lambda _response, _most=None: text)
    for ask in (lambda: api.get(r.PODS, "ns", "p"), lambda: api.list_pages(r.PODS)):
        with pytest.raises(NotReachable, match="something else answers"):
            ask()


@pytest.mark.parametrize(
    ("kind", "text", "error"),
    [
        ("text/html", b"<html>no such page</html>", NotReachable),
        ("application/json", b'{"message": "no route"}', NotReachable),
        ("text/plain; charset=utf-8", b"404 page not found\n", ApiError),
    ],
)
def test_only_the_server_says_that_an_object_is_gone(
    server: StubServer, monkeypatch: pytest.MonkeyPatch, kind: str, text: bytes, error: type[KubeError]
) -> None:
    """A proxy's page made the binder give up pods, and the scheduler forget orders."""
    api = server.transport("binder", backoff=replace(QUICK, attempts=1))
    answer = SimpleNamespace(status=404, reason="", headers={"Content-Type": kind})
    client: Any = SimpleNamespace(update_params_for_auth=lambda *_: None)
    client.call_api = lambda *_args, **_options: SimpleNamespace(response=answer)
    monkeypatch.setattr(api, "_client", client)
    monkeypatch.setattr(api, "_read", lambda _response, _most=None: text)
    for ask in (
        lambda: api.get(r.PODS, "ns", "p"),
        lambda: api.delete(r.PODS, "ns", "p"),
        lambda: api.list_pages(r.PODS),
    ):
        with pytest.raises(error) as told:
            ask()
        assert not (isinstance(told.value, ApiError) and told.value.not_found)


def test_a_refusal_that_quotes_a_tenant_is_cut(server: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events and logs remember it: of four thousand pods a gigabyte."""
    api = server.transport("binder", backoff=replace(QUICK, attempts=1))
    answer = SimpleNamespace(status=422, reason="", headers={"Content-Type": "application/json"})
    client: Any = SimpleNamespace(update_params_for_auth=lambda *_: None)
    client.call_api = lambda *_args, **_options: SimpleNamespace(response=answer)
    said = orjson.dumps({"message": "Invalid value: " + "x" * 10**6, "reason": "Invalid"})
    monkeypatch.setattr(api, "_client", client)
    monkeypatch.setattr(api, "_read", lambda _response, _most=None: said)
    with pytest.raises(ApiError) as told:
        api.create(r.CONFIG_MAPS, "ns", {"metadata": {"name": "c"}})
    assert told.value.message.startswith("Invalid value: xxx")
    assert len(str(told.value)) < 3_000


def test_a_conflict_is_reported_at_once(server: StubServer) -> None:
    api = server.transport("binder")
    server.put(r.CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "ns"}})
    with pytest.raises(ApiError) as told:
        api.create(r.CONFIG_MAPS, "ns", {"metadata": {"name": "c"}})
    assert told.value.status == 409
    assert len(server.requests("POST")) == 1


def test_deleting_another_object_of_the_name_is_no_deletion(server: StubServer) -> None:
    api = server.transport()
    server.put(r.PODS, pod("p"))
    with pytest.raises(ApiError) as told:
        api.delete(r.PODS, "ns", "p", uid="an-earlier-one")
    assert told.value.status == 409
    assert server.get(r.PODS, "ns", "p") is not None


def test_gone_is_for_lists_and_watches(server: StubServer) -> None:
    server.faults = lambda _m, _p: (410, {})
    with pytest.raises(Gone):
        server.transport().list_pages(r.PODS)
    with pytest.raises(ApiError):
        server.transport().patch(r.PODS, "ns", "p", {})


@pytest.mark.parametrize("code", [500, 503, 429, 409])
def test_passing_errors_are_tried_again(server: StubServer, code: int) -> None:
    number = itertools.count()
    server.faults = lambda _m, _p: (code, {}) if next(number) < 2 else None
    server.put(r.PODS, pod("p"))
    answer = server.transport().patch(r.PODS, "ns", "p", {"metadata": {"labels": {"a": "b"}}})
    assert answer is not None
    assert answer["metadata"]["labels"] == {"a": "b"}
    assert next(number) == 3


def test_a_patch_for_an_earlier_object_says_that_it_is_gone(server: StubServer) -> None:
    server.put(r.PODS, pod("p"))
    assert server.transport().patch(r.PODS, "ns", "p", {"metadata": {"uid": "an-earlier-one"}}) is None
    assert len(server.requests("PATCH")) == 1


def test_a_patch_of_a_version_that_is_no_more_is_not_tried_again(server: StubServer) -> None:
    server.put(r.PODS, pod("p"))
    with pytest.raises(ApiError) as told:
        server.transport().patch(r.PODS, "ns", "p", {"metadata": {"resourceVersion": "77"}})
    assert (told.value.status, told.value.transient) == (409, False)
    assert len(server.requests("PATCH")) == 1


def test_a_watch_may_be_silent_once_it_is_open(server: StubServer) -> None:
    api = server.transport(read_seconds=2.0)
    events = api.watch(r.PODS, "0", seconds=60)
    threading.Timer(2.5, lambda: server.put(r.PODS, pod("p"))).start()
    assert next(events)[1]["metadata"]["name"] == "p"


def test_a_watch_that_is_not_answered_is_given_up(server: StubServer) -> None:
    given_up = threading.Event()
    server.faults = lambda _m, _p: (500, {}) if given_up.wait(PATIENCE_SECONDS) else None
    with pytest.raises(NotReachable):
        next(server.transport(read_seconds=0.2).watch(r.PODS, "0", seconds=5))
    given_up.set()


def test_a_request_is_tried_four_times(server: StubServer) -> None:
    server.faults = lambda _m, _p: (500, {})
    with pytest.raises(ApiError):
        server.transport().patch(r.PODS, "ns", "p", {})
    assert len(server.requests("PATCH")) == 4


def test_retry_after_is_obeyed(server: StubServer) -> None:
    number = itertools.count()
    server.faults = lambda _m, _p: (429, {"Retry-After": "1"}) if next(number) == 0 else None
    server.put(r.PODS, pod("p"))
    pauses: list[float] = []
    backoff = replace(QUICK, sleep=pauses.append)
    assert server.transport(backoff=backoff).patch(r.PODS, "ns", "p", {}) is not None
    assert pauses == [1.0]


def test_retry_after_beyond_our_patience_is_given_up(server: StubServer) -> None:
    server.faults = lambda _m, _p: (429, {"Retry-After": "3600"})
    with pytest.raises(ApiError):
        server.transport().patch(r.PODS, "ns", "p", {})
    assert len(server.requests("PATCH")) == 1


def test_refused_credentials_end_the_process(server: StubServer) -> None:
    told: list[bool] = []
    server.faults = lambda _m, _p: (401, {})
    api = server.transport(on_unauthorized=lambda: told.append(True))
    with pytest.raises(Unauthorized):
        api.patch(r.PODS, "ns", "p", {})
    assert told == [True]


def test_undeclared_calls_never_leave_the_process(server: StubServer) -> None:
    with pytest.raises(NotGranted):
        server.transport("gpu-reservation").delete(r.PODS, "ns", "p")
    assert server.log == []


def test_the_fence_stops_writes_and_not_reads(server: StubServer) -> None:
    def fence() -> None:
        raise LeaseLost("gone")

    api = server.transport(fence=fence)
    server.put(r.PODS, pod("p"))
    with pytest.raises(LeaseLost):
        api.patch(r.PODS, "ns", "p", {})
    assert api.list_pages(r.PODS)[0]
    assert server.requests("PATCH") == []


def test_lists_are_read_page_by_page(server: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kai_cp.kube.api.transport.PAGE", 3)
    for i in range(8):
        server.put(r.PODS, pod(f"p{i}"))
    items, version = server.transport().list_pages(r.PODS)
    assert [item["metadata"]["name"] for item in items] == [f"p{i}" for i in range(8)]
    assert version == "8"
    assert len(server.requests("GET")) == 3


def test_no_server_is_not_reachable(server: StubServer) -> None:
    api = server.transport()
    server.close()
    with pytest.raises(NotReachable):
        api.patch(r.PODS, "ns", "p", {})


def test_config_maps_are_asked_for_without_their_data(server: StubServer) -> None:
    server.transport().list_pages(r.CONFIG_MAPS, metadata_only=True)
    assert "PartialObjectMetadataList" in server.headers[0]["Accept"]


def test_rate_limit_lets_a_burst_through_then_waits() -> None:
    now, pauses = [100.0], list[float]()
    limit = RateLimit(qps=50, burst=5, monotonic=lambda: now[0], sleep=pauses.append)
    for _ in range(8):
        limit.wait()
    assert pauses == pytest.approx([0.02, 0.04, 0.06])
    now[0] += 0.1
    limit.wait()
    assert len(pauses) == 3, "what was lent is paid back, and more"


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "there is no such file"), ("[1]", "it is not a kubeconfig")],
    ids=["absent", "list"],
)
def test_a_kubeconfig_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, said: str
) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Unavailable, match=f"{path}: {said}"):
        configuration()
