"""Historic usage of queues from Prometheus (3.4): a thread queries, and cycles use the last answer."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from kai_cp.decisions import rfc3339
from kai_cp.kube.scheduler.options import BadConfiguration
from kai_cp.kube.scheduler.windows import last_cron, last_tumbling
from kai_cp.reader.fields import Malformed
from kai_cp.reader.times import duration, instant, prometheus_duration

LOG = logging.getLogger(__name__)
METRICS: Final = {
    "gpu": (
        ("gpuAllocationMetric", "max by (queue_name) (kai_queue_allocated_gpus)"),
        ("gpuCapacityMetric", 'sum(kube_node_status_capacity{resource="nvidia_com_gpu"})'),
    ),
    "cpu": (
        ("cpuAllocationMetric", "max by (queue_name) (kai_queue_allocated_cpu_cores)"),
        ("cpuCapacityMetric", 'sum(kube_node_status_capacity{resource="cpu"})'),
    ),
    "memory": (
        ("memoryAllocationMetric", "max by (queue_name) (kai_queue_allocated_memory_bytes)"),
        ("memoryCapacityMetric", 'sum(kube_node_status_capacity{resource="memory"})'),
    ),
}
"""By resource: allocation and capacity, each as the parameter that overrides it and its default.

KAI's queue controller and our scheduler both export allocations; the greatest is taken, not the sum.
"""
UsageByQueue = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class UsageOptions:
    """The parsed ``usageDBConfig``. Times in seconds; with ``half_life`` 0 the whole window counts
    equally.
    """

    address: str
    window: float = 604_800.0
    window_type: str = "sliding"
    half_life: float = 0.0
    tumbling_start: float = 0.0
    cron: str = ""
    fetch_interval: float = 60.0
    staleness: float = 300.0
    wait: float = 60.0
    query_timeout: float = 10.0
    resolution: str = "1m"
    metrics: Mapping[str, tuple[str, str]] = field(default_factory=dict)


RESERVED_IDLE: Final = "max by (queue_name) (kai_cp_reserved_idle_gpus)"


def with_reserved(metric: str) -> str:
    """Allocated GPUs plus those that are idle because they are promised to the same queue."""
    return f"(({metric}) + on (queue_name) {RESERVED_IDLE}) or on (queue_name) ({metric})"


def usage_options(config: Mapping[str, Any] | None, *, charge_idle: bool = False) -> UsageOptions | None:
    """The options of a ``usageDBConfig``, or None if it is off.

    With ``charge_idle``, promised idle GPUs count as used by the queue to which they are promised.
    Raises ``BadConfiguration``, which names the field.
    """
    if not config or not config.get("clientType"):
        return None
    if config["clientType"] != "prometheus":
        raise BadConfiguration(f"usageDBConfig: clientType {config['clientType']!r} is not prometheus")
    address = config.get("connectionString") or os.environ.get(config.get("connectionStringEnvVar") or "", "")
    if not address:
        raise BadConfiguration("usageDBConfig: neither connectionString nor its variable gives an address")
    given = config.get("usageParams") or {}
    extra = given.get("extraParams") or {}
    kind = given.get("windowType") or "sliding"
    if kind not in ("sliding", "tumbling", "cron"):
        raise BadConfiguration(f"usageDBConfig: windowType {kind!r} is not sliding, tumbling or cron")
    try:
        if kind == "cron":
            last_cron(given.get("cronString") or "", time.time())
        interval = _seconds(given.get("fetchInterval"), 60.0)
        start = given.get("tumblingWindowStartTime")
        return UsageOptions(
            address=str(address).rstrip("/"),
            window=prometheus_duration(given.get("windowSize") or "1w"),
            window_type=kind,
            half_life=_seconds(given.get("halfLifePeriod"), 0.0),
            tumbling_start=instant(start, "tumblingWindowStartTime") if start else 0.0,
            cron=given.get("cronString") or "",
            fetch_interval=interval,
            staleness=max(interval, _seconds(given.get("stalenessPeriod"), 300.0)),
            wait=_seconds(given.get("waitTimeout"), 60.0),
            query_timeout=_seconds(extra.get("usageQueryTimeout"), 10.0),
            resolution=str(extra.get("queryResolution") or "1m"),
            metrics={
                name: (
                    with_reserved(extra.get(a[0]) or a[1])
                    if charge_idle and name == "gpu"
                    else extra.get(a[0]) or a[1],
                    extra.get(c[0]) or c[1],
                )
                for name, (a, c) in METRICS.items()
            },
        )
    except (Malformed, ValueError) as problem:
        raise BadConfiguration(f"usageDBConfig: {problem}") from None


def _seconds(text: str | None, default: float) -> float:
    return duration(text, "usageDBConfig") if text else default


def window_seconds(options: UsageOptions, now: float) -> float:
    """How far back usage counts at ``now``, in seconds."""
    if options.window_type == "tumbling":
        return max(1.0, now - last_tumbling(options.tumbling_start, options.window, now))
    if options.window_type == "cron":
        return max(1.0, now - last_cron(options.cron, now))
    return options.window


def query(options: UsageOptions, metric: str, now: float) -> str:
    """The PromQL expression that sums a metric over the window; a half-life gives older samples less
    weight.
    """
    if options.half_life > 0:
        metric = f"({metric}) * (0.5 ^ (({now:.0f} - time()) / {options.half_life:g}))"
    return f"sum_over_time(({metric})[{round(window_seconds(options, now))}s:{options.resolution}])"


class UsageClient:
    """Queries Prometheus every ``fetch_interval``. A stale answer is still used, with a warning."""

    def __init__(
        self, options: UsageOptions, *, clock: Callable[[], float] = time.time, changed: Callable[[], None]
    ) -> None:
        self._options = options
        self._clock = clock
        self._changed = changed
        self._usage: UsageByQueue | None = None
        self._fetched = 0.0
        self._first = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self.query_milliseconds = 0.0

    def start(self) -> None:
        """Begin to query, and wait at most ``wait`` seconds for the first answer."""
        self._thread.start()
        if not self._first.wait(self._options.wait):
            LOG.warning(
                "there is no past usage yet, so fair shares count present use alone: see usageDBConfig",
                extra={"address": self._options.address},
            )

    def stop(self) -> None:
        """Stop querying."""
        self._stopping.set()

    def __call__(self) -> Mapping[str, Any] | None:
        """Usage by queue and resource; None before the first answer."""
        if self._usage is not None and self._clock() - self._fetched > self._options.staleness:
            LOG.error(
                "past usage is older than its stalenessPeriod, and counts on: see whether Prometheus answers",
                extra={"age": round(self._clock() - self._fetched), "address": self._options.address},
            )
        return self._usage

    def age(self) -> float:
        """Seconds since the last answer; infinite before the first."""
        return self._clock() - self._fetched if self._usage is not None else math.inf

    def recorded(self) -> dict[str, Any] | None:
        """The last answer and its time, as a snapshot shows them; None before the first."""
        if self._usage is None:
            return None
        return {"fetchedAt": rfc3339(self._fetched), "queues": self._usage}

    def fetch(self) -> UsageByQueue:
        """Query Prometheus now, and return the usage by queue and resource."""
        now = self._clock()
        began = time.monotonic()
        usage: UsageByQueue = {}
        for resource, (allocation, capacity) in self._options.metrics.items():
            whole = sum(self._ask(query(self._options, capacity, now), now).values())
            if whole <= 0:
                continue
            for queue, amount in self._ask(query(self._options, allocation, now), now).items():
                usage.setdefault(queue, {})[resource] = max(0.0, amount / whole)
        self.query_milliseconds = (time.monotonic() - began) * 1000
        return usage

    def _ask(self, expression: str, now: float) -> dict[str, float]:
        """The values of an instant vector by ``queue_name`` ("" if it has none)."""
        body = urllib.parse.urlencode({"query": expression, "time": f"{now:.3f}"}).encode()
        request = urllib.request.Request(f"{self._options.address}/api/v1/query", data=body)
        with self._opener.open(request, timeout=self._options.query_timeout) as answer:
            document = orjson.loads(answer.read())
        found: dict[str, float] = {}
        for entry in document["data"]["result"]:
            name = entry["metric"].get("queue_name", "")
            found[name] = found.get(name, 0.0) + float(entry["value"][1])
        return found

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                fresh = self.fetch()
            except Exception as error:  # Whatever is answered, the thread goes on.
                LOG.warning(
                    "past usage was not told, and is asked for again: see whether Prometheus answers",
                    extra={"address": self._options.address, "error": f"{type(error).__name__}: {error}"},
                )
            else:
                differs = fresh != self._usage
                self._usage, self._fetched = fresh, self._clock()
                self._first.set()
                if differs:
                    self._changed()
            self._stopping.wait(self._options.fetch_interval)
