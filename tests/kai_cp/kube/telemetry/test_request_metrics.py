"""Requests to the API server, counted."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.telemetry.request_metrics import RequestMetrics
from tests.kai_cp.kube.stub import StubServer


def test_requests_are_counted(server: StubServer) -> None:
    api = server.transport()
    writer = BackgroundWriter(1)
    registry = CollectorRegistry()
    RequestMetrics(registry, api, writer)
    api.list_pages(r.PODS)
    api.patch(r.PODS, "ns", "nobody", {}, subresource="status")
    text = generate_latest(registry).decode()
    assert 'kai_cp_api_requests_total{resource="pods",verb="list"} 1.0' in text
    assert 'kai_cp_api_requests_total{resource="pods/status",verb="patch"} 1.0' in text
    writer.stop()
