"""Options of the binder (11.1, 1.6), with KAI's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from kai_cp.kube import names


@dataclass(frozen=True, slots=True)
class BinderOptions:
    """``cdi``: name devices as the container device interface does. ``hami``: write memory limits that
    HAMi-core enforces. Times in seconds."""

    namespace: str = "kai-scheduler"
    scheduler_name: str = "kai-scheduler"
    reservation_namespace: str = names.RESERVATION_NAMESPACE
    reservation_app: str = names.RESERVATION_APP
    reservation_service_account: str = "kai-resource-reservation"
    reservation_image: str = "kai-cp"
    runtime_class_name: str = ""
    allocation_timeout_seconds: float = 40.0
    volume_timeout_seconds: float = 120.0
    max_concurrent_reconciles: int = 10
    cdi: bool = False
    hami: bool = False
    qps: float = 0.0
    burst: int = 300
    leader_elect: bool = False
    lease_name: str = "kai-cp-binder"
