"""Small resource definitions for kinds of workloads that other projects define."""

from __future__ import annotations

from typing import Any

from kai_cp.kube.api.resources import Resource

Object = dict[str, Any]


def kind(group: str, version: str, name: str) -> Resource:
    """Where objects of a kind are served."""
    return Resource(group, version, f"{name.lower()}s", name)


JOBSETS = kind("jobset.x-k8s.io", "v1alpha2", "JobSet")
LEADER_WORKER_SETS = kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet")
PYTORCH_JOBS = kind("kubeflow.org", "v1", "PyTorchJob")
MPI_JOBS = kind("kubeflow.org", "v2beta1", "MPIJob")
RAY_CLUSTERS = kind("ray.io", "v1", "RayCluster")
KNATIVE_SERVICES = kind("serving.knative.dev", "v1", "Service")
KNATIVE_CONFIGURATIONS = kind("serving.knative.dev", "v1", "Configuration")
KNATIVE_REVISIONS = kind("serving.knative.dev", "v1", "Revision")
WORKFLOWS = kind("argoproj.io", "v1alpha1", "Workflow")
FLEETS = kind("example.com", "v1", "Fleet")
KARTAS = Resource("run.ai", "v1alpha1", "kartas", "Karta", namespaced=False)
ALL = (
    JOBSETS,
    LEADER_WORKER_SETS,
    PYTORCH_JOBS,
    MPI_JOBS,
    RAY_CLUSTERS,
    KNATIVE_SERVICES,
    KNATIVE_CONFIGURATIONS,
    KNATIVE_REVISIONS,
    WORKFLOWS,
    FLEETS,
    KARTAS,
)


def definition(resource: Resource) -> Object:
    """A definition that takes any object of the kind."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
            },
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }
