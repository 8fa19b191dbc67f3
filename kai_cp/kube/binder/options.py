"""Options of the binder (11.1, 1.6), with KAI's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typer import Option

from kai_cp import keys
from kai_cp.kube.serving.flags import Seconds


@dataclass(frozen=True, slots=True)
class BinderOptions:
    """Flags of the binder; times in seconds."""

    scheduler_name: Annotated[
        str, Option(help="Bind only pods of this scheduler, where several binders run; empty: all.")
    ] = ""
    resource_reservation_namespace: Annotated[str, Option(help="Namespace of reservation pods.")] = (
        keys.RESERVATION_NAMESPACE
    )
    resource_reservation_app_label: Annotated[str, Option(help="Label app of reservation pods.")] = (
        keys.RESERVATION_APP
    )
    resource_reservation_service_account: Annotated[str, Option(help="Account of reservation pods.")] = (
        "kai-resource-reservation"
    )
    resource_reservation_pod_image: Annotated[str, Option(help="Image of this program.")] = "kai-cp"
    resource_reservation_allocation_timeout: Annotated[
        float, Seconds("Most time for a reservation pod to name its device.")
    ] = 40.0
    runtime_class_name: Annotated[str, Option(help="Runtime class of reservation pods.")] = ""
    volume_binding_timeout_seconds: Annotated[float, Option(help="Most time for a volume to be bound.")] = (
        120.0
    )
    max_concurrent_reconciles: Annotated[int, Option(help="Pods bound at once.", min=1)] = 10
    cdi_enabled: Annotated[bool, Option(help="Name devices as the container device interface does.")] = False
    hami_core_enabled: Annotated[bool, Option(help="Write memory limits that HAMi-core enforces.")] = False
    mps_limits: Annotated[bool, Option(help="Hold pods with annotation mps to their share of a GPU.")] = False
