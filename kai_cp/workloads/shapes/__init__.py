"""Kinds whose pod groups need more than a row: one function for each shape, named in ``kinds.yaml``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kai_cp.workloads.groups import Grouped
from kai_cp.workloads.rows import by_row
from kai_cp.workloads.shapes.grove import grove
from kai_cp.workloads.shapes.jobs import cronjob, job, pod, runai_job
from kai_cp.workloads.shapes.jobset import jobset
from kai_cp.workloads.shapes.knative import knative
from kai_cp.workloads.shapes.kubeflow import mpi, pytorch
from kai_cp.workloads.shapes.lws import lws
from kai_cp.workloads.shapes.ray import ray
from kai_cp.workloads.workload import Workload

SHAPES: Final[Mapping[str, Callable[[Workload], Grouped]]] = {
    "": by_row,
    "pod": pod,
    "job": job,
    "cronjob": cronjob,
    "runai-job": runai_job,
    "pytorch": pytorch,
    "mpi": mpi,
    "ray": ray,
    "jobset": jobset,
    "lws": lws,
    "knative": knative,
    "grove": grove,
}
