"""``kai-cp scheduler``: one shard's process from start to end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry

from kai_cp.json_types import short_hash
from kai_cp.kube.api import resources
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.lease import LeaderLease
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.scheduler.api_cluster import ApiCluster
from kai_cp.kube.scheduler.backoff import BindBackoff
from kai_cp.kube.scheduler.cache import ClusterCache
from kai_cp.kube.scheduler.decider import Decider
from kai_cp.kube.scheduler.explaining import Explaining
from kai_cp.kube.scheduler.guards import unguarded
from kai_cp.kube.scheduler.loop import Scheduler
from kai_cp.kube.scheduler.options import (
    BadConfiguration,
    Mode,
    SchedulerOptions,
    default_config,
    shard_config,
)
from kai_cp.kube.scheduler.reports import Reporter
from kai_cp.kube.scheduler.routes import data_routes, public_routes
from kai_cp.kube.scheduler.usage import UsageClient, usage_options
from kai_cp.kube.scheduler.worker_decider import WorkerDecider
from kai_cp.kube.serving.http import Route
from kai_cp.kube.serving.process import (
    LISTEN_ADDRESS,
    SYNC_SECONDS,
    Connection,
    Lifecycle,
    Service,
    candidate,
    connect,
    lead,
    listen,
    serving,
)
from kai_cp.kube.telemetry.leadership import show_leadership
from kai_cp.kube.telemetry.metrics import SchedulerMetrics
from kai_cp.kube.telemetry.request_metrics import RequestMetrics
from kai_cp_models.settings import Settings

LOG = logging.getLogger(__name__)
STOP_SECONDS: Final = 10.0
"""For what was decided to be sent when the process ends."""


@dataclass(frozen=True, slots=True)
class SchedulerSetup:
    """Everything the process is started with.

    ``config``: scheduler configuration; None is the default, or the shard's when ``shard`` names one.
    ``data``: address (``host:port``) of what shows objects; empty: not served.
    """

    connection: Connection = Connection()
    service: Service = Service()
    options: SchedulerOptions = SchedulerOptions()
    settings: Settings = Settings()
    config: Mapping[str, Any] | None = None
    shard: str = ""
    data: str = "127.0.0.1:8081"
    anonymize: bool = False


def settings_hash(setup: SchedulerSetup, config: Mapping[str, Any]) -> str:
    """Short hash of everything that shapes a decision, for logs and recorded cycles."""
    return short_hash([setup.settings.model_dump(mode="json"), setup.options.params(), config])


def run(setup: SchedulerSetup, life: Lifecycle, decider: Decider | None = None) -> int:
    """Run until the process is told to end; returns the exit status.

    ``decider`` replaces the engine in a process of its own.
    """
    with serving(life) as parts:
        _run(setup, life, parts, decider)
    return life.status


def _run(setup: SchedulerSetup, life: Lifecycle, parts: ExitStack, decider: Decider | None) -> None:
    options, service = setup.options, setup.service
    transport = connect(setup.connection, "scheduler", life, service)
    parts.callback(transport.close)
    lease = _lease(setup, life, parts, transport)
    config = setup.config if setup.config is not None else _config(transport, setup.shard)
    cache = ClusterCache(transport, options, config)
    registry = CollectorRegistry()
    metrics = SchedulerMetrics(registry, options.metrics_namespace)
    usage = _usage(setup, config, cache, metrics)
    engine = None
    if decider is None:
        decider = engine = WorkerDecider(setup.settings)
        parts.callback(engine.stop)
    backoff = BindBackoff(retried=metrics.bind_retries.inc)
    writer = BackgroundWriter(options.num_of_status_recording_workers)
    RequestMetrics(registry, transport, writer)
    show_leadership(registry, options.lease_name, lease)
    recorder = Recorder(transport, writer, options.scheduler_name)
    cluster = _cluster(setup, transport, cache, recorder, writer, backoff=backoff, metrics=metrics)
    parts.callback(cluster.close)
    reporter = Reporter(transport, cache, cluster, options, recorder, writer=writer)
    scheduler = Scheduler(
        cache,
        cluster,
        decider,
        reporter,
        backoff,
        options=options,
        metrics=metrics,
        settings_hash=settings_hash(setup, config),
        usage=usage or (lambda: None),
    )
    life.on_end(scheduler.stop)
    explaining = Explaining(scheduler.cycles, setup.settings, anonymize=setup.anonymize, wake=cache.wake.set)
    reporter.words = explaining.words
    listen(parts, LISTEN_ADDRESS, service.listen_address, public_routes(registry, cache, scheduler))
    listen(
        parts, "--plugin-server-address", setup.data, _data_routes(setup, cache, scheduler, usage, explaining)
    )
    parts.callback(writer.stop)
    parts.callback(lambda: life.status or writer.drain(2.0))
    parts.callback(cache.stop)
    parts.callback(explaining.stop)
    parts.callback(lambda: life.status or cluster.orders.drain(STOP_SECONDS))
    if _synced(cache, life) and (lease is None or lead(lease, life)):
        if usage is not None:
            parts.callback(usage.stop)
            usage.start()
        if engine is not None and options.mode is not Mode.OBSERVE:
            explaining.start()
        if danger := unguarded(transport, setup.settings):
            LOG.warning(danger)
        LOG.info("scheduling", extra={"mode": options.mode.value, "pods": len(cache.stores[resources.PODS])})
        scheduler.run()


def _cluster(
    setup: SchedulerSetup,
    transport: Transport,
    cache: ClusterCache,
    recorder: Recorder,
    writer: BackgroundWriter,
    *,
    backoff: BindBackoff,
    metrics: SchedulerMetrics,
) -> ApiCluster:
    return ApiCluster(
        transport,
        cache,
        setup.options,
        recorder,
        writer,
        backoff=backoff,
        foreign=metrics.foreign.inc,
        budgets=setup.settings.rules.pod_disruption_budgets,
    )


def _lease(
    setup: SchedulerSetup, life: Lifecycle, parts: ExitStack, transport: Transport
) -> LeaderLease | None:
    """The lease of the leader; None for a process that writes nothing, or is the only one."""
    options, service = setup.options, setup.service
    if not service.leader_elect or options.mode is Mode.OBSERVE:
        return None
    return candidate(
        parts, setup.connection, service, "scheduler", options.lease_name, life=life, transport=transport
    )


def _synced(cache: ClusterCache, life: Lifecycle) -> bool:
    """Start the watches. If a kind could not be listed in time, end the process and return False."""
    cache.start()
    synced = cache.wait_synced(SYNC_SECONDS, life.event)
    if not synced:
        LOG.error(
            "these kinds could not be listed, so this process ends: see whether the API server answers and "
            "the role may list and watch them",
            extra={"kinds": cache.unsynced()},
        )
        life.end(1)
    return synced


def _data_routes(
    setup: SchedulerSetup,
    cache: ClusterCache,
    scheduler: Scheduler,
    usage: UsageClient | None,
    explaining: Explaining,
) -> dict[str, Route]:
    """Paths whose answers name objects: snapshots, cycles, the page and explanations."""
    served = data_routes(
        cache,
        scheduler,
        anonymize=setup.anonymize,
        usage=usage.recorded if usage is not None else lambda: None,
        explain=explaining.explain,
        settings=setup.settings,
    )
    return served | explaining.routes()


def _usage(
    setup: SchedulerSetup, config: Mapping[str, Any], cache: ClusterCache, metrics: SchedulerMetrics
) -> UsageClient | None:
    """Asks Prometheus what queues have used (3.4); None where the configuration names none."""
    options = usage_options(config.get("usageDBConfig"), charge_idle=setup.settings.reservations.charge_idle)
    if options is None:
        return None
    usage = UsageClient(options, changed=cache.wake.set)
    metrics.kai.usage_query(lambda: usage.query_milliseconds)
    return usage


def _config(transport: Transport, shard: str) -> dict[str, Any]:
    if not shard:
        return default_config()
    try:
        found = transport.get(resources.SHARDS, "", shard)
    except ApiError as error:
        if error.status != 404:
            raise
        found = None  # The kind is not served.
    if found is None:
        raise BadConfiguration(f"there is no SchedulingShard {shard!r}")
    return shard_config(found.get("spec") or {})
