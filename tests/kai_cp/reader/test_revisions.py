"""The revision of a pod, by labels and owners as the controllers write them."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.reader.revisions import REVISION_LABELS, revision_of
from kai_cp_models.pods import Revision
from tests.support.tiny import node, pod, world

KNATIVE = {"serving.knative.dev/configuration": "hello", "serving.knative.dev/revision": "hello-00002"}
LWS = {
    "leaderworkerset.sigs.k8s.io/name": "llm",
    "leaderworkerset.sigs.k8s.io/template-revision-hash": "5f4",
}
HASH = {"pod-template-hash": "6b7f"}
RAY = {"ray.io/cluster": "llm-x2b9q", "ray.io/serve": "true"}
BEFORE = {"ray.io/cluster": "llm-raycluster-x2b9q"}
ORIGIN = {"ray.io/originated-from-crd": "RayService", "ray.io/originated-from-cr-name": "llm"}


def owner(kind: str, name: Any, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "controller": True, **more}


@pytest.mark.parametrize(
    ("labels", "owners", "expected"),
    [
        (HASH, [owner("ReplicaSet", "web-6b7f")], Revision("Deployment/web", "6b7f")),
        (RAY, [owner("RayCluster", "llm-x2b9q")], Revision("RayService/llm", "llm-x2b9q")),
        ({**RAY, **BEFORE}, [], Revision("RayService/llm", "llm-raycluster-x2b9q")),
        ({"ray.io/cluster": "mine", **ORIGIN}, [], Revision("RayService/llm", "mine")),
        ({"ray.io/cluster": "llm-x2b9q"}, [owner("RayCluster", "llm-x2b9q")], None),
        ({**RAY, "ray.io/cluster": "mine"}, [owner("RayCluster", "mine")], None),
        (HASH, [owner("ReplicaSet", "my-web-6b7f")], Revision("Deployment/my-web", "6b7f")),
        (
            {"rollouts-pod-template-hash": "6b7f"},
            [owner("ReplicaSet", "web-6b7f")],
            Revision("Rollout/web", "6b7f"),
        ),
        (
            {**KNATIVE, **HASH},
            [owner("ReplicaSet", "hello-00002-deployment-6b7f")],
            Revision("Service/hello", "hello-00002"),
        ),
        (
            {**LWS, "controller-revision-hash": "llm-0-77"},
            [owner("StatefulSet", "llm-0")],
            Revision("LeaderWorkerSet/llm", "5f4"),
        ),
        ({"controller-revision-hash": "77"}, [owner("DaemonSet", "ds")], Revision("DaemonSet/ds", "77")),
        (HASH, [owner("ReplicaSet", "web-other")], None),
        (HASH, [owner("ReplicaSet", "web-6b7f", controller=False)], None),
        (HASH, [owner("Job", "web-6b7f")], None),
        (HASH, [], None),
        ({"controller-revision-hash": "77"}, [], None),
        ({"pod-template-hash": ""}, [owner("ReplicaSet", "web-")], None),
        ({"serving.knative.dev/revision": "hello-00002"}, [], None),
        ({}, [owner("ReplicaSet", "web-6b7f")], None),
    ],
)  # fmt: skip
def test_labels_and_owners(
    labels: dict[str, str], owners: list[dict[str, Any]], expected: Revision | None
) -> None:
    assert revision_of(owners, labels) == expected
    others = {label: value for label, value in labels.items() if label not in REVISION_LABELS}
    assert revision_of(owners, others) is None


def test_a_bad_owner_gives_no_revision_and_no_error() -> None:
    made = [pod("a", labels=HASH), pod("b", labels=HASH)]
    made[0]["metadata"]["ownerReferences"] = [owner("ReplicaSet", 7)]
    made[1]["metadata"]["ownerReferences"] = [owner("ReplicaSet", "web-6b7f")]
    found = world([node()], made)
    assert [one.revision for one in found.pods] == [None, Revision("Deployment/web", "6b7f")]
    assert found.set_aside == ()
