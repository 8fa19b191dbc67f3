"""Bare pods, Spark, Jobs, CronJobs and run.ai's RunaiJob."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kai_cp import keys
from kai_cp.workloads.groups import Grouped
from kai_cp.workloads.items import path, value_at
from kai_cp.workloads.rows import by_row
from kai_cp.workloads.workload import Workload, group_name, inherited

_SPARK_NAME: Final = "spark-app-name"
_SPARK_SELECTOR: Final = "spark-app-selector"
_PARALLELISM: Final = path("spec.parallelism")


def pod(workload: Workload) -> Grouped:
    """One group for each pod; the pods of a Spark application share one, named after their selector."""
    group = inherited(workload)
    labels = workload.pod.labels
    if _SPARK_NAME in labels and _SPARK_SELECTOR in labels:
        group = replace(group, name=labels[_SPARK_SELECTOR])
    return Grouped(group)


def job(workload: Workload) -> Grouped:
    """One group for each Job; a pod that already has its own group keeps it."""
    legacy = f"{keys.GROUP_PREFIX}-{workload.pod.name}-{workload.owner.uid}"
    if workload.settings.search_legacy_pod_groups and _exists(workload, legacy):
        return Grouped(replace(inherited(workload), name=legacy))
    return by_row(workload)


def cronjob(workload: Workload) -> Grouped:
    """Each Job of a CronJob is a group of its own, as if it had no owner."""
    pod = workload.pod
    found = next((owner for owner in pod.owners if owner.kind == "Job"), None)
    owner = workload.reads.owner(found, pod.namespace) if found is not None else None
    if owner is None:
        raise pod.bad("metadata.ownerReferences", "no Job of the CronJob owns it")
    row = workload.settings.kinds.of("batch", "v1", "Job") or workload.kind
    return by_row(replace(workload.about(owner), kind=row))


def runai_job(workload: Workload) -> Grouped:
    """One group named after the pod without its last part; existing groups with other names are kept."""
    pod, owner = workload.pod, workload.owner
    stem = pod.name.rpartition("-")[0] or pod.name
    name = f"{keys.GROUP_PREFIX}-{stem}-{owner.uid}"
    if workload.settings.search_legacy_pod_groups:
        parallelism = value_at(owner, _PARALLELISM)
        many = type(parallelism) is int and parallelism > 1
        legacy = f"{keys.GROUP_PREFIX}-{pod.name}-{owner.uid}" if many else group_name(owner)
        name = legacy if _exists(workload, legacy) else name
    return Grouped(replace(inherited(workload), name=name))


def _exists(workload: Workload, name: str) -> bool:
    return workload.reads.pod_group(workload.pod.namespace, name) is not None
