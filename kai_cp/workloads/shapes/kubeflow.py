"""Kubeflow's training jobs beyond what their rows say: PyTorchJob and MPIJob."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kai_cp.workloads.groups import Grouped, GroupSubgroup, GroupTopology, Subgroups
from kai_cp.workloads.items import Item, integer_in, label, object_in, path, spelled_integer, text_in
from kai_cp.workloads.rows import by_row, first_integer, minimum
from kai_cp.workloads.shapes import segments
from kai_cp.workloads.workload import Workload, inherited

_ROLE: Final = "training.kubeflow.org/replica-type"
_INDEX: Final = "training.kubeflow.org/replica-index"
_JOB: Final = "training.kubeflow.org/job-name"
_JOB_ROLE: Final = "training.kubeflow.org/job-role"
_LAUNCHER: Final = "launcher"
_ELASTIC: Final = path("spec.elasticPolicy.minReplicas")
_LAUNCHER_POLICY: Final = path("spec.launcherCreationPolicy")
_LAUNCHERS: Final = path("spec.mpiReplicaSpecs.Launcher.replicas")
_ROLES: Final = path("spec.pytorchReplicaSpecs")
_MASTER: Final = _ROLES.below("Master")
_WORKER: Final = _ROLES.below("Worker")


def mpi(workload: Workload) -> Grouped:
    """A launcher that is created last counts only once its pod exists."""
    found = by_row(workload)
    owner = workload.owner
    if text_in(owner, _LAUNCHER_POLICY) != "WaitForWorkersReady":
        return found
    labels = {_JOB: owner.name, _JOB_ROLE: _LAUNCHER}
    if any(not pod.deleted for pod in workload.reads.pods(workload.pod.namespace, labels)):
        return found
    launchers = integer_in(owner, _LAUNCHERS)
    if not launchers:
        raise owner.bad(str(_LAUNCHERS), "is missing or 0; at least 1 is needed")
    return replace(found, group=replace(found.group, min_member=found.group.min_member - launchers))


def pytorch(workload: Workload) -> Grouped:
    """Master and workers as subgroups, the workers in segments if their size is given."""
    owner, pod = workload.owner, workload.pod
    least = first_integer(owner, workload.kind.min_member)
    if least is None:
        # The replicas must be valid even if an elastic minimum replaces their sum.
        total = minimum(workload) or 0
        elastic = integer_in(owner, _ELASTIC)
        least = total if elastic is None else elastic
    elif object_in(owner, _ROLES) is None:
        raise owner.bad(str(_ROLES), "is missing")
    group = replace(inherited(workload), min_member=least)
    masters = integer_in(owner, _MASTER.below("replicas")) or 0
    master = (GroupSubgroup("master", masters),) if masters else ()
    role = pod.labels.get(_ROLE, "")
    subgroup = "master" if role == "master" and masters else ""
    if object_in(owner, _WORKER) is None:
        return Grouped(replace(group, subgroups=Subgroups(master)), subgroup)
    subgroups, inside = _workers(workload, master, max(0, least - masters))
    return Grouped(replace(group, subgroups=subgroups), inside if role == "worker" else subgroup)


def _workers(workload: Workload, master: tuple[GroupSubgroup, ...], least: int) -> tuple[Subgroups, str]:
    """All subgroups, and the one of this pod if it is a worker."""
    owner, pod = workload.owner, workload.pod
    template = _WORKER.below("template")
    size, item, where = next(segments.stated_sizes((pod, None), (owner, template)), (1, owner, ""))
    if size <= 0:
        raise item.bad(where, f"{size} is below 1")
    replicas = integer_in(owner, _WORKER.below("replicas"))
    count = 1 if replicas is None else replicas
    if where and count < 0:
        raise owner.bad(str(_WORKER.below("replicas")), f"{count} is negative")
    if not where or not count:
        return Subgroups((*master, GroupSubgroup("worker", least))), "worker"
    pieces = -(-count // size)
    segments.refuse_too_many(owner, pieces)
    topology = segments.segment_placement(pod, owner, template)
    found = owner.once(_tree, master, count, size, least, topology)
    if pod.labels.get(_ROLE) != "worker":
        return found, ""
    number = _index(pod) // size
    return found, f"worker-{number}" if number < pieces else ""  # A surplus worker is about to end.


def _tree(
    _owner: Item,
    master: tuple[GroupSubgroup, ...],
    count: int,
    size: int,
    least: int,
    topology: GroupTopology,
) -> Subgroups:
    pieces, needed = -(-count // size), -(-least // size)
    found = [*master, GroupSubgroup("worker", min_subgroup=pieces)]
    for i in range(pieces):
        full = size if i < pieces - 1 else count - size * (pieces - 1)
        found.append(
            GroupSubgroup(f"worker-{i}", full if i < needed else 0, parent="worker", topology=topology)
        )
    return Subgroups(found)


def _index(pod: Item) -> int:
    text = pod.labels.get(_INDEX)
    if text is None:
        raise pod.bad(label(_INDEX), "is missing; segments need it")
    index = spelled_integer(pod, label(_INDEX), text)
    if index < 0:
        raise pod.bad(label(_INDEX), f"{index} is negative")
    return index
