"""Whether a process leads, so that an alert finds a cluster in which none does."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from kai_cp.kube.api.lease import LeaderLease


def show_leadership(registry: CollectorRegistry, name: str, lease: LeaderLease | None) -> None:
    """Show at each scrape whether this process holds the lease ``name``; one that needs none leads."""
    text = "1 if this process holds the lease, or needs none; 0 if it waits."
    gauge = Gauge("kai_cp_leader", text, ("lease",), registry=registry)
    gauge.labels(name).set_function(lambda: float(lease is None or lease.held))
