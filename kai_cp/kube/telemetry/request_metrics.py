"""Metrics of requests to the API server and of waiting reports."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.transport import Transport


class RequestMetrics(Collector):
    """Reads the transport's counters at each scrape."""

    def __init__(self, registry: CollectorRegistry, transport: Transport, writer: BackgroundWriter) -> None:
        self._transport = transport
        self._writer = writer
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        sent = CounterMetricFamily(
            "kai_cp_api_requests", "Requests sent to the API server.", labels=["verb", "resource"]
        )
        for (verb, resource), count in self._transport.counted().items():
            sent.add_metric([verb, resource], count)
        yield sent
        yield GaugeMetricFamily("kai_cp_reports_waiting", "Reports not written yet.", self._writer.waiting())
        yield CounterMetricFamily("kai_cp_reports_dropped", "Reports given up.", self._writer.dropped)
