"""Workloads that are only planned: the pods that their controllers would make, and the pod groups of those.

This module knows the pods of workloads of Kubernetes, JobSet and Kubeflow; the pod grouper knows the group
and the requests of each pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from kai_cp.explain.draft import BadOperation, clone
from kai_cp.explain.raw import group_of, key_of, metadata
from kai_cp.json_types import Object
from kai_cp.workloads.batch import GROUP_VERSION, BatchObjects, group_pods
from kai_cp.workloads.settings import GroupingSettings

_REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
_REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
_INDEX: Final = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, slots=True)
class AlikePods:
    """Alike pods of a workload. ``index``: label and annotation that count them, if any."""

    name: str
    count: int
    template: Object
    labels: Mapping[str, str] = field(default_factory=dict)
    index: str = ""


def _whole(spec: Object, field: str) -> int:
    value = spec.get(field, 1)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadOperation(f"{field} is {value!r}, not a whole number")
    return value


def _job(spec: Object) -> Iterator[AlikePods]:
    count = _whole(spec, "parallelism")
    if spec.get("completions") is not None:
        count = min(count, _whole(spec, "completions"))
    index = _INDEX if spec.get("completionMode") == "Indexed" else ""
    yield AlikePods("", count, spec["template"], index=index)


def _replicas(spec: Object) -> Iterator[AlikePods]:
    yield AlikePods("", _whole(spec, "replicas"), spec["template"])


def _job_set(spec: Object) -> Iterator[AlikePods]:
    for part in spec["replicatedJobs"]:
        name = str(part["name"])
        for i in range(_whole(part, "replicas")):
            labels = {_REPLICATED_JOB: name, _JOB_INDEX: str(i)}
            for job in _job(part["template"]["spec"]):
                yield replace(job, name=f"{name}-{i}", labels=labels)


def _training(field: str) -> Callable[[Object], Iterator[AlikePods]]:
    def parts(spec: Object) -> Iterator[AlikePods]:
        for kind, part in spec[field].items():
            name = str(kind).lower()
            labels = {_REPLICA_TYPE: name}
            yield AlikePods(name, _whole(part, "replicas"), part["template"], labels, _REPLICA_INDEX)

    return parts


PARTS: Final[Mapping[str, Callable[[Object], Iterator[AlikePods]]]] = {
    "Deployment": _replicas,
    "JAXJob": _training("jaxReplicaSpecs"),
    "Job": _job,
    "JobSet": _job_set,
    "MPIJob": _training("mpiReplicaSpecs"),
    "PyTorchJob": _training("pytorchReplicaSpecs"),
    "ReplicaSet": _replicas,
    "StatefulSet": _replicas,
    "TFJob": _training("tfReplicaSpecs"),
    "XGBoostJob": _training("xgbReplicaSpecs"),
}
"""The pods of a workload, by its kind."""


def planned(
    owners: Sequence[Object], classes: Sequence[Object], scheduler: str, most: int
) -> tuple[list[Object], list[Object]]:
    """The pod groups and pods of these workloads and bare pods. Raises ``BadOperation``.

    ``classes``: the cluster's PriorityClasses. ``scheduler``: this scheduler's name. ``most``: pods at most.
    """
    objects = BatchObjects()
    for item in classes:
        objects.apply({**item, "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"})
    for given in owners:
        owner = _identified(given)
        objects.apply(owner)
        if owner["kind"] != "Pod":
            for pod in _pods_of(owner, most):
                objects.apply(pod)
                if len(objects.pod_keys) > most:
                    raise BadOperation(f"more than {most} pods; no more are added at once")
    for problem in group_pods(objects, GroupingSettings(scheduler_name=scheduler)):
        raise BadOperation(f"pod {problem['pod']}: {problem['message']}")
    pods = objects.all("v1", "Pod")
    for pod in pods:
        if group_of(pod) is None:
            raise BadOperation(f"pod {key_of(pod)} is not for scheduler {scheduler} (spec.schedulerName)")
    return objects.all(GROUP_VERSION, "PodGroup"), pods


def _identified(given: Object) -> Object:
    """The workload with what the API server would add."""
    found: Object = clone(given)
    head = found["metadata"]
    head.setdefault("namespace", "default")
    head.setdefault("uid", _uid(found["kind"], key_of(found)))
    found.setdefault("apiVersion", "v1" if found["kind"] == "Pod" else "")
    if found["kind"] == "Pod":
        state_requests(found)
    return found


def state_requests(pod: Object) -> None:
    """Give containers that state a limit and no request that limit as request, as the API server does."""
    spec = pod.get("spec")
    parts = [spec.get(part) for part in ("initContainers", "containers")] if isinstance(spec, dict) else []
    for container in (one for part in parts if isinstance(part, list) for one in part):
        resources = container.get("resources") if isinstance(container, dict) else None
        if isinstance(resources, dict):
            limits, requests = resources.get("limits"), resources.get("requests") or {}
            if isinstance(limits, dict) and isinstance(requests, dict):
                resources["requests"] = {**limits, **requests}


def _uid(*parts: str) -> str:
    """A uid that is the same for the same names."""
    return str(uuid5(NAMESPACE_OID, "/".join(parts)))


def _pods_of(owner: Object, most: int) -> Iterator[Object]:
    title = f"{owner['kind']} {key_of(owner)}"
    try:
        parts = list(islice(PARTS[owner["kind"]](owner["spec"]), most + 1))
        for part in parts:
            for i in range(min(part.count, most + 1)):
                yield _pod_of(owner, part, i)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise BadOperation(f"{title}: {type(problem).__name__}: {problem}") from None


def _pod_of(owner: Object, part: AlikePods, i: int) -> Object:
    head = metadata(owner)
    template = clone(part.template)
    noted = template.get("metadata") or {}
    name = "-".join(filter(None, (head["name"], part.name, str(i))))
    counted = {part.index: str(i)} if part.index else {}
    about = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    reference = {**about, "name": head["name"], "uid": head["uid"], "controller": True}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": head["namespace"],
            "uid": _uid("Pod", head["uid"], name),
            "labels": {**(noted.get("labels") or {}), **part.labels, **counted},
            "annotations": {**(noted.get("annotations") or {}), **counted},
            "ownerReferences": [reference],
        },
        "spec": template["spec"],
    }
    state_requests(pod)
    return pod
