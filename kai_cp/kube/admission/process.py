"""``kai-cp admission``: the process of the webhook server, from start to end. It has no state and no
lease.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kai_cp.admission.framing import PATHS, ClusterFacts, answer
from kai_cp.admission.request import AdmissionSettings
from kai_cp.json_types import Object
from kai_cp.kube.admission.keeper import (
    CertificateSource,
    FileSource,
    Keeper,
    Publisher,
    SecretSource,
    names_of,
)
from kai_cp.kube.admission.options import AdmissionOptions
from kai_cp.kube.admission.registration import SHARES
from kai_cp.kube.admission.server import TlsServer
from kai_cp.kube.api import access
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.informers import Informers
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.serving.address import opening
from kai_cp.kube.serving.http import Response
from kai_cp.kube.serving.process import (
    LISTEN_ADDRESS,
    OK,
    Connection,
    Lifecycle,
    connect,
    listen,
    probes,
    serving,
)
from kai_cp.memory import one_heap

LOG = logging.getLogger(__name__)
FIRST_LOOK_SECONDS: Final = 60.0
"""A process that has no certificate after this time ends, and says why."""
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class AdmissionMetrics:
    """The metrics of one admission process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reviews = Counter(
            "kai_cp_admission_reviews_total",
            "Requests judged.",
            ["kind", "operation", "result"],
            registry=registry,
        )
        self.latency = Histogram(
            "kai_cp_admission_review_seconds",
            "Time for checking one object.",
            buckets=SECONDS,
            registry=registry,
        )
        self.certificate = Gauge(
            "kai_cp_admission_certificate_end_timestamp_seconds",
            "Time at which the certificate in use expires.",
            registry=registry,
        )


class FollowedCluster:
    """Queues and runtime classes that this process follows, so that no request waits for the API server."""

    def __init__(self, transport: Transport) -> None:
        self.informers = Informers(transport)
        self._queues = self.informers.store(r.QUEUES, transform=_queue, optional=True)
        self._classes = self.informers.store(r.RUNTIME_CLASSES, transform=_nothing, metadata_only=True)

    def facts(self) -> ClusterFacts:
        """What is known now; nothing before the first list."""
        queues, classes = map(self.informers.listed, (r.QUEUES, r.RUNTIME_CLASSES))
        return ClusterFacts(
            queues={queue["metadata"]["name"]: queue for queue in self._queues.all()} if queues else None,
            runtime_classes=frozenset(item["metadata"]["name"] for item in self._classes.all())
            if classes
            else None,
        )


def _queue(queue: Object) -> Object:
    meta = {key: queue["metadata"].get(key) for key in ("name", "uid", "resourceVersion")}
    return {"metadata": meta, "spec": queue.get("spec"), "status": queue.get("status")}


def _nothing(item: Object) -> Object:
    return {"metadata": {key: item["metadata"].get(key) for key in ("name", "uid", "resourceVersion")}}


class ReviewJudging:
    """The function that the server calls for each request."""

    def __init__(
        self, settings: AdmissionSettings, cluster: FollowedCluster, metrics: AdmissionMetrics
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._metrics = metrics

    def __call__(self, path: str, document: Any) -> Any:
        """The AdmissionReview that answers ``document``."""
        if path not in PATHS:
            raise LookupError(path)
        began = time.perf_counter()
        review, request, verdict = answer(path, document, self._settings, self._cluster.facts())
        kind = PATHS[path][0]
        result = "allowed" if verdict.allowed else "refused"
        self._metrics.reviews.labels(kind, request.operation, result).inc()
        self._metrics.latency.observe(time.perf_counter() - began)
        if not verdict.allowed:
            meta = request.object.get("metadata")
            named = meta if isinstance(meta, dict) else {}
            name = f"{request.namespace}/{named.get('name') or named.get('generateName')}"
            LOG.info("refused", extra={"kind": kind, "object": name, "error": verdict.message})
        return review


def run(connection: Connection, options: AdmissionOptions, life: Lifecycle) -> int:
    """Run until the process is told to end; returns the exit status."""
    one_heap()
    with serving(life) as parts:
        _run(connection, options, life, parts)
    return life.status


def _run(connection: Connection, options: AdmissionOptions, life: Lifecycle, parts: ExitStack) -> None:
    life.ending_seconds += options.drain_seconds
    transport = connect(connection, "admission", life)
    parts.callback(transport.close)
    registry = CollectorRegistry()
    metrics = AdmissionMetrics(registry)
    cluster = FollowedCluster(transport)
    judging = ReviewJudging(options.settings, cluster, metrics)
    with opening("--webhook-addr", str(options.webhook_addr)):
        server = TlsServer(f":{options.webhook_addr}", judging)
    publisher = (
        Publisher(
            transport,
            access.MUTATING_CONFIGURATIONS,
            access.VALIDATING_CONFIGURATIONS,
            unwanted=SHARES["name"] if options.block_nvidia_visible_devices else "",
        )
        if options.publish_ca_bundle
        else None
    )
    keeper = Keeper(_source(options, transport), publisher, server.use)
    metrics.certificate.set_function(lambda: keeper.ends_at)

    def readyz(_rest: str) -> Response:
        return OK if server.ready else Response(b"no certificate yet, or ending\n", status=503)

    listen(parts, LISTEN_ADDRESS, options.listen_address, probes(registry, list) | {"/readyz": readyz})
    parts.callback(server.stop)
    parts.callback(cluster.informers.stop)
    cluster.informers.start()
    began = time.monotonic()
    while not life.over:
        keeper.look()
        if not keeper.shown and time.monotonic() - began > FIRST_LOOK_SECONDS:
            LOG.error("there is no certificate, so this process ends: the warnings before say why")
            life.end(1)
        elif keeper.shown and not server.serving:
            server.start()
            LOG.info("admitting", extra={"port": server.port})
        life.event.wait(keeper.poll_seconds)
    server.draining = True
    if not life.status and server.serving:
        time.sleep(options.drain_seconds)


def _source(options: AdmissionOptions, transport: Transport) -> CertificateSource:
    if options.certificate_directory:
        return FileSource(Path(options.certificate_directory))
    names = names_of(options.service_name, options.namespace, options.certificate_names)
    lifetime = options.certificate_lifetime
    return SecretSource(transport, options.namespace, access.ADMISSION_SECRET, names, lifetime)
