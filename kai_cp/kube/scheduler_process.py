"""``kai-cp scheduler``: one shard's process from start to end."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from prometheus_client import CollectorRegistry

from kai_cp.kube import resources
from kai_cp.kube.background import BackgroundWriter
from kai_cp.kube.backoff import BindBackoff
from kai_cp.kube.cache import ClusterCache
from kai_cp.kube.decider import Decider
from kai_cp.kube.errors import KubeError, LeaseLost
from kai_cp.kube.explaining import Explaining
from kai_cp.kube.http import HttpServer
from kai_cp.kube.live import LiveCluster
from kai_cp.kube.metrics import SchedulerMetrics
from kai_cp.kube.options import BadConfiguration, Mode, SchedulerOptions, default_config, shard_config
from kai_cp.kube.process import LOST_LEASE, Connection, Life, Service, connect, lead
from kai_cp.kube.recorder import Recorder
from kai_cp.kube.reports import Reporter
from kai_cp.kube.request_metrics import RequestMetrics
from kai_cp.kube.routes import data_routes, public_routes
from kai_cp.kube.scheduler import Scheduler
from kai_cp.kube.transport import Transport
from kai_cp.kube.usage import UsageClient, usage_options
from kai_cp.kube.worker_decider import WorkerDecider
from kai_cp_models.settings import Settings

LOG = logging.getLogger(__name__)
SYNC_SECONDS: Final = 600.0


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
    content = [setup.settings.model_dump(mode="json"), setup.options.params(), config]
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]


def run(setup: SchedulerSetup, life: Life, decider: Decider | None = None) -> int:
    """Run until ended; the exit status."""
    options = setup.options
    transport = connect(setup.connection, "scheduler", life, setup.service)
    config = setup.config if setup.config is not None else _config(transport, setup.shard)
    cache = ClusterCache(transport, options, config)
    registry = CollectorRegistry()
    metrics = SchedulerMetrics(registry, options.metrics_namespace)
    backoff = BindBackoff(retried=metrics.bind_retries.inc)
    writer = BackgroundWriter(options.num_of_status_recording_workers)
    RequestMetrics(registry, transport, writer)
    recorder = Recorder(transport, writer, options.scheduler_name)
    cluster = LiveCluster(transport, cache, options, recorder, writer, backoff, foreign=metrics.foreign.inc)
    reporter = Reporter(transport, cache, cluster, options, recorder, writer)
    usage_config = usage_options(
        config.get("usageDBConfig"), charge_idle=setup.settings.reservations.charge_idle
    )
    usage = UsageClient(usage_config, changed=cache.wake.set) if usage_config is not None else None
    if usage is not None:
        metrics.kai.usage_query(lambda: usage.query_milliseconds)
    engine = None
    if decider is None:
        decider = engine = WorkerDecider(setup.settings)
    scheduler = Scheduler(
        cache,
        cluster,
        decider,
        reporter,
        backoff,
        options,
        metrics,
        settings_hash=settings_hash(setup, config),
        usage=usage or (lambda: None),
    )
    explaining = Explaining(scheduler.cycles, setup.settings, anonymize=setup.anonymize)
    reporter.words = explaining.words
    servers = []
    if setup.service.listen_address:
        servers.append(HttpServer(setup.service.listen_address, public_routes(registry, cache, scheduler)))
    if setup.data:
        recorded = usage.recorded if usage is not None else lambda: None
        served = data_routes(
            cache, scheduler, anonymize=setup.anonymize, usage=recorded, explain=explaining.explain
        )
        servers.append(HttpServer(setup.data, served | explaining.routes()))
    life.on_end(scheduler.stop)
    lease = None
    try:
        for server in servers:
            server.start()
        cache.start()
        if not cache.wait_synced(SYNC_SECONDS, life.event):
            LOG.error("the cluster could not be listed", extra={"kinds": cache.unsynced()})
            return life.status or 1
        if setup.service.leader_elect and options.mode is not Mode.OBSERVE:
            name = options.lease_name
            lease = lead(setup.connection, setup.service, "scheduler", name, life, transport)
            if lease is None:
                return life.status
        if usage is not None:
            usage.start()
        if engine is not None and options.mode is not Mode.OBSERVE:
            explaining.start()
        LOG.info("scheduling", extra={"mode": options.mode.value, "pods": len(cache.stores[resources.PODS])})
        scheduler.run()
    except LeaseLost:
        life.end(LOST_LEASE)
    except KubeError as error:
        LOG.error("ended", extra={"error": str(error)})
        life.end(1)
    finally:
        explaining.stop()
        cache.stop()
        if not life.status:
            writer.drain(2.0)
        writer.stop()
        cluster.close()
        if usage is not None:
            usage.stop()
        if engine is not None:
            engine.stop()
        for server in servers:
            server.stop()
        if lease is not None:
            lease.release()
        transport.close()
    return life.status


def _config(transport: Transport, shard: str) -> dict[str, Any]:
    if not shard:
        return default_config()
    found = transport.get(resources.SHARDS, "", shard)
    if found is None:
        raise BadConfiguration(f"there is no SchedulingShard {shard!r}")
    return shard_config(found.get("spec") or {})
