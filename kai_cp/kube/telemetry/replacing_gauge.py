"""Gauges that show the series of the last cycle only."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge


class ReplacingGauge:
    """A gauge whose series are all replaced at once."""

    def __init__(self, registry: CollectorRegistry, name: str, text: str, labels: tuple[str, ...]) -> None:
        self._gauge = Gauge(name, text, labels, registry=registry)
        self._shown: set[tuple[str, ...]] = set()

    def show(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Replace all series by these values, by labels."""
        for labels, value in values.items():
            self._gauge.labels(*labels).set(value)
        for labels in self._shown - values.keys():
            self._gauge.remove(*labels)
        self._shown = set(values)
