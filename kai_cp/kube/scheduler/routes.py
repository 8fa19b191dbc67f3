"""The scheduler's HTTP paths (11.3): public paths, and paths that show objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from kai_cp.decisions import to_json
from kai_cp.kube.scheduler.anonymize import Anonymizer
from kai_cp.kube.scheduler.cache import ClusterCache
from kai_cp.kube.scheduler.job_order import job_order
from kai_cp.kube.scheduler.loop import Scheduler
from kai_cp.kube.scheduler.snapshot_file import archive
from kai_cp.kube.scheduler.view_routes import Explain, LastView, view_routes
from kai_cp.kube.serving.http import Response, Route, as_json
from kai_cp.kube.serving.process import probes
from kai_cp.kube.telemetry.cycles import CycleRecord
from kai_cp_models.settings import Settings

ZIP = "application/zip"
MOST_DIGITS = 15
USAGE = "usage"
"""Key of a snapshot that KAI's do not have: historic usage by queue, and when it was fetched."""


def public_routes(registry: CollectorRegistry, cache: ClusterCache, scheduler: Scheduler) -> dict[str, Route]:
    """``/metrics``, ``/healthz`` and ``/readyz``; of all objects they name queues and evicted pod groups."""
    return probes(registry, cache.unsynced, scheduler.fault)


def data_routes(
    cache: ClusterCache,
    scheduler: Scheduler,
    *,
    anonymize: bool,
    usage: Callable[[], Mapping[str, Any] | None] = lambda: None,
    explain: Explain | None = None,
    settings: Settings | None = None,
) -> dict[str, Route]:
    """``/get-snapshot``, ``/get-job-order``, ``/debug/cycles``, and the page, which calls ``explain``."""

    def shown(raw: Mapping[str, Any]) -> Mapping[str, Any]:
        return Anonymizer().snapshot(raw) if anonymize else raw

    def snapshot(_rest: str) -> Response:
        headers = {"Content-Disposition": "attachment; filename=snapshot.zip"}
        raw, figures = shown(cache.snapshot()), usage()
        if figures is not None and not anonymize:
            raw = {**raw, USAGE: figures}
        return Response(archive(raw), ZIP, headers=headers)

    def order(_rest: str) -> Response:
        cycles = scheduler.cycles.all()
        if not cycles:
            return Response(b"no cycle yet\n", status=503)
        return as_json(job_order(cycles[-1].snapshot))

    def cycles(rest: str) -> Response | None:
        if not rest:
            return as_json({"cycles": [cycle.summary() for cycle in scheduler.cycles.all()]})
        number = int(rest) if rest.isascii() and rest.isdecimal() and len(rest) < MOST_DIGITS else None
        found = scheduler.cycles.get(number) if number is not None else None
        return _recorded(found, anonymize=anonymize) if found is not None else None

    last = LastView(
        scheduler.cycles, scheduler.mode, anonymize=anonymize, asks=explain is not None, settings=settings
    )
    routes: dict[str, Route] = {"/get-snapshot": snapshot, "/get-job-order": order, "/debug/cycles": cycles}
    return routes | view_routes(last, explain)


def _recorded(cycle: CycleRecord, *, anonymize: bool) -> Response:
    """One cycle as a zip with its snapshot and its ``decisions/1``."""
    decisions = to_json(cycle.snapshot, cycle.plan, timings=dict(cycle.seconds))
    raw = cycle.raw
    if anonymize:
        renaming = Anonymizer()
        raw, decisions = renaming.snapshot(raw), renaming.decisions(decisions)
    name = f"attachment; filename=cycle-{cycle.number}.zip"
    return Response(archive(raw, decisions), ZIP, headers={"Content-Disposition": name})
