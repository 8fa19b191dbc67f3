"""Flags of ``kai-cp controllers``, with KAI's names and defaults where KAI has them (10.1, 10.7)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from typer import Option

from kai_cp import keys
from kai_cp.workloads.provisioning import ATOMIC


def pairs(text: str, flag: str) -> dict[str, str]:
    """Parse ``a=b,c=d`` into a mapping. Raises ``ValueError`` that names the flag."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise ValueError(f"{flag}: {part!r} is not of the form key=value")
        found[key.strip()] = value.strip()
    return found


def metric_labels(options: ControllerOptions) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """The metric label for each queue label, and the value for queues without that label.

    Raises ``ValueError`` that names the wrong flag.
    """
    flag = "--queue-label-to-metric-label"
    labels = sorted(pairs(options.queue_label_to_metric_label, flag).items())
    for _, name in labels:
        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) or name.startswith(("__", "queue_")):
            raise ValueError(f"{flag}: {name!r} is not a name for a label of a metric")
    usual = pairs(options.queue_label_to_default_metric_value, "--queue-label-to-default-metric-value")
    return labels, usual


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """The options of all controllers."""

    scheduler_name: Annotated[str, Option(help="schedulerName of the pods served.")] = "kai-scheduler"
    queue_label_key: Annotated[str, Option(help="Label that names the queue.")] = keys.QUEUE
    nodepool_label_key: Annotated[str, Option(help="Label that divides the cluster.")] = keys.NODE_POOL
    max_concurrent_reconciles: Annotated[int, Option(help="Threads of each controller.", min=1)] = 10
    search_legacy_pg: Annotated[
        bool, Option(help="Keep pod groups with the names that older versions gave them.")
    ] = True
    knative_gang_schedule: Annotated[bool, Option(help="One pod group for each Knative revision.")] = True
    generic_karta_fallback: Annotated[
        bool, Option(help="Kinds without a row may be described by Kartas.")
    ] = True
    default_priorities_configmap_name: Annotated[str, Option(help="ConfigMap with defaults by kind.")] = ""
    default_priorities_configmap_namespace: Annotated[str, Option(help="Its namespace.")] = ""
    pod_label_selector: Annotated[str, Option(help="Only pods with these labels (k=v,k=v) are grouped.")] = ""
    namespace_label_selector: Annotated[
        str, Option(help="Only pods in namespaces with these labels (k=v,k=v) are grouped.")
    ] = ""
    workload_kinds: Annotated[str, Option(help="Files with kinds of your own, joined by commas.")] = ""
    metrics_namespace: Annotated[str, Option(help="Prefix of KAI's metrics.")] = "kai"
    queue_label_to_metric_label: Annotated[
        str, Option(help="Labels of queues as labels of metrics (label=metric,...).")
    ] = ""
    queue_label_to_default_metric_value: Annotated[
        str, Option(help="Values for queues without them (label=value,...).")
    ] = ""
    shard_image: Annotated[str, Option(help="Image of the schedulers that shards make.")] = "kai-cp"
    shard_mode: Annotated[str, Option(help="Their mode: observe, advise or enforce.")] = "observe"
    shard_namespace: Annotated[str, Option(help="Their namespace.")] = "kai-scheduler"
    shard_service_account: Annotated[str, Option(help="Their account.")] = "kai-cp-scheduler"
    shard_instance: Annotated[
        str, Option(help="Their label app.kubernetes.io/instance, which the chart's Service selects.")
    ] = ""
    shard_replicas: Annotated[int, Option(help="Replicas of each, where no Config says.", min=0)] = 1
    resource_reservation_namespace: Annotated[
        str, Option(help="Namespace of reservation pods; the same as for these schedulers.")
    ] = keys.RESERVATION_NAMESPACE
    resource_reservation_app_label: Annotated[
        str, Option(help="Label app of reservation pods; the same as for these schedulers.")
    ] = keys.RESERVATION_APP
    scale_adjust_namespace: Annotated[str, Option(help="Namespace of scaling pods.")] = keys.SCALING_NAMESPACE
    scaling_pod_image: Annotated[str, Option(help="Image of scaling pods.")] = "kai-cp"
    scaling_pod_service_account: Annotated[str, Option(help="Their account.")] = "kai-scale-adjust"
    provisioning_class: Annotated[str, Option(help="Class of ProvisioningRequests that are made.")] = ATOMIC
    gpu_memory_to_fraction_ratio: Annotated[
        float,
        Option(help="Part of a GPU that a gpu-memory pod counts for.", metavar="NUMBER", min=0.01, max=1.0),
    ] = 0.1
