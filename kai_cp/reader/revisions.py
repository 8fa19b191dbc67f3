"""Finds the workload and revision of a pod from its labels and its controller (docs/inference.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kai_cp_models.pods import Revision

_NAMED: Final = (
    ("Service", "serving.knative.dev/configuration", "serving.knative.dev/revision"),
    (
        "LeaderWorkerSet",
        "leaderworkerset.sigs.k8s.io/name",
        "leaderworkerset.sigs.k8s.io/template-revision-hash",
    ),
)
"""Kind, and the labels that name workload and revision."""
HASHED: Final = (("Rollout", "rollouts-pod-template-hash"), ("Deployment", "pod-template-hash"))
"""Kind, and the label with the hash that ends the name of the pod's ReplicaSet."""
_OWNED: Final = "controller-revision-hash"
"""The label of the revision if the owner is the workload."""

_RAY_CLUSTER: Final = "ray.io/cluster"
_RAY_SERVES: Final = "ray.io/serve"
"""Label that KubeRay puts on the pods of clusters that it makes for a RayService, and on no others."""
_RAY_MADE: Final = re.compile(r"(.+?)(?:-raycluster)?-[a-z0-9]{5}")
"""The name of such a cluster: the service, ``-raycluster`` in older versions, five random characters."""
_RAY_ORIGIN: Final = ("ray.io/originated-from-crd", "ray.io/originated-from-cr-name")
"""Labels with kind and name of the object for which a cluster was made, on pods that carry them."""

REVISION_LABELS: Final = frozenset(
    (_OWNED, _RAY_CLUSTER, *(label for _, _, label in _NAMED), *(label for _, label in HASHED))
)
"""Without any of these labels a pod has no revision."""


def revision_of(owners: Sequence[Any], labels: Mapping[str, str]) -> Revision | None:
    """The pod's revision; None if nothing shows it. The first matching kind counts.

    A pod of a Knative service is also a Deployment's, and a pod of a LeaderWorkerSet is also a StatefulSet's.
    """
    for kind, workload, revision in _NAMED:
        if labels.get(workload) and labels.get(revision):
            return Revision(f"{kind}/{labels[workload]}", labels[revision])
    if (found := _ray_service(labels)) is not None:
        return found
    kind, name = _controller(owners)
    for made_by, label in HASHED:
        ending = labels.get(label)
        if ending and kind == "ReplicaSet" and name.endswith(f"-{ending}"):
            return Revision(f"{made_by}/{name.removesuffix(f'-{ending}')}", ending)
    revision = labels.get(_OWNED, "")
    return Revision(f"{kind}/{name}", revision) if kind and revision else None


def _ray_service(labels: Mapping[str, str]) -> Revision | None:
    """The revision of a RayService's pod: each revision has a Ray cluster of its own."""
    cluster = labels.get(_RAY_CLUSTER, "")
    kind, name = (labels.get(label, "") for label in _RAY_ORIGIN)
    if cluster and kind == "RayService" and name:
        return Revision(f"RayService/{name}", cluster)
    made = _RAY_MADE.fullmatch(cluster) if _RAY_SERVES in labels else None
    return None if made is None else Revision(f"RayService/{made[1]}", cluster)


def _controller(owners: Sequence[Any]) -> tuple[str, str]:
    """Kind and name of the controller; "" if there is none that can be read."""
    for owner in owners:
        if isinstance(owner, dict) and owner.get("controller") is True:
            kind, name = owner.get("kind"), owner.get("name")
            return (kind, name) if isinstance(kind, str) and isinstance(name, str) else ("", "")
    return "", ""
