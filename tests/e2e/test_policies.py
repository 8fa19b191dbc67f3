"""What a stolen token of ours may not do: the chart's policies, tried on the real API server."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.transport import Transport, configuration
from kai_cp.kube.binder.extended_claims import MARK
from kai_cp.kube.demo.controlplane import ControlPlane
from kai_cp.kube.install import install
from tests.deploy.helm import instead_of_kai
from tests.e2e.admin import AdminTransport
from tests.e2e.world import admin
from tests.kubetest.build import find

SCHEDULER = "system:serviceaccount:kai-scheduler:kai-cp-scheduler"
BINDER = "system:serviceaccount:kai-scheduler:kai-cp-binder"
CONTROLLERS = "system:serviceaccount:kai-scheduler:kai-cp-controllers"
RESERVATION = "system:serviceaccount:kai-resource-reservation:kai-resource-reservation"
OWNER_USER = "owner"
EDITED = "pods,podgroups.scheduling.run.ai"
MAXIMUM = "kai-cp/max-runtime"
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "0b5bd4ba-6c3d-4d4f-9e6e-0a6d3b0a7a11"}
VOLUME: dict[str, Any] = {
    "metadata": {"name": "v"},
    "spec": {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": "/data"},
    },
}
CLAIM: dict[str, Any] = {
    "metadata": {"name": "c"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "slow",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
DEVICES: dict[str, Any] = {
    "metadata": {"name": "d", "finalizers": ["theirs.io/keep"]},
    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
}
APPLIED = ("ServiceAccount", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
Object = dict[str, Any]


def listed(items: list[Object]) -> Object:
    """The items as one object for kubectl."""
    return {"apiVersion": "v1", "kind": "List", "items": items}


@pytest.fixture(scope="module")
def plane(binary: Path) -> Iterator[ControlPlane]:
    with ControlPlane(binary, nodes=False) as made:
        install(Transport(configuration(str(made.kubeconfig())), "admin"))
        for namespace in (
            "kai-scheduler",
            "kai-resource-reservation",
        ):  # KAI's, which the chart does not make
            run(made, "", "create", "namespace", namespace)
        applied = [item for item in instead_of_kai() if item["kind"] in APPLIED]
        assert not run(made, "", "apply", "--server-side", "-f", "-", text=json.dumps(listed(applied)))
        # All rights, so that only the policies refuse something here.
        users = [f"--user={user}" for user in (SCHEDULER, BINDER, CONTROLLERS, RESERVATION)]
        run(made, "", "create", "clusterrolebinding", "stolen", "--clusterrole=cluster-admin", *users)
        run(made, "", "create", "role", "edit", "--verb=get,patch,create", f"--resource={EDITED}")
        run(made, "", "create", "rolebinding", "edit", "--role=edit", f"--user={OWNER_USER}")
        yield made


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[AdminTransport]:
    made = admin(plane)
    for namespace in ("default", "kube-system", "kai-resource-reservation"):
        made.create(r.PODS, namespace, pod("p", owned=namespace == "default"))
        made.create(r.CONFIG_MAPS, namespace, {"metadata": {"name": "theirs"}, "data": {"a": "b"}})
    made.create(r.PODS, "kai-resource-reservation", pod("q"))
    for namespace, name, labels in (
        ("kai-resource-reservation", "reserves", {"app": "kai-resource-reservation"}),
        ("default", "shares", {"runai-gpu-group": "g"}),
        ("kube-system", "shares", {"runai-gpu-group": "g"}),
    ):
        body = pod(name, owned=True)
        body["metadata"]["labels"] = labels
        body["metadata"]["annotations"]["gpu-fraction"] = "0.5"
        assert create(plane, BINDER, namespace, body) == ""
    labelled = pod("labelled", owned=True)
    labelled["metadata"]["labels"] = {"runai-gpu-group": "g"}
    assert create(plane, BINDER, "default", labelled) == ""
    placed = pod("placed", owned=True)
    placed["metadata"]["labels"] = {"runai-gpu-group": "g"}
    placed["metadata"]["annotations"]["gpu-fraction"] = "0.5"
    placed["spec"]["nodeName"] = "n"
    assert create(plane, BINDER, "default", placed) == ""
    made.create(r.POD_GROUPS, "default", {"metadata": {"name": "g"}, "spec": {"queue": "q"}})
    made.create(r.VOLUMES, "", VOLUME)
    made.create(r.VOLUME_CLAIMS, "default", CLAIM)
    made.create(r.RESOURCE_CLAIMS, "default", DEVICES)
    policies_work(plane)
    yield made
    made.close()


def pod(name: str, *, owned: bool = False) -> Object:
    return {
        "metadata": {"name": name, "annotations": {"pod-group-name": "g"} if owned else {}},
        "spec": {
            "schedulerName": "kai-scheduler" if owned else "default-scheduler",
            "automountServiceAccountToken": False,
            "containers": [{
                "name": "c", "image": "good", "securityContext": {
                    "allowPrivilegeEscalation": False, "runAsNonRoot": True,
                    "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}},
            }],
        },
    }  # fmt: skip


def run(plane: ControlPlane, user: str, *arguments: str, text: str = "", extra: str = "") -> str:
    """What kubectl prints as ``user`` ("" is the admin); "" when it succeeded."""
    who = [f"--as={user}"] if user else []
    who += [f"--as-user-extra={extra}"] if extra else []
    command = [str(find()), "kubectl", f"--kubeconfig={plane.kubeconfig()}", *who, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def patch(plane: ControlPlane, user: str, where: str, body: Object, *more: str, kind: str = "pod") -> str:
    namespace, _, name = where.partition("/")
    return run(
        plane, user, "patch", kind, name, "-n", namespace, "--type=merge", "-p", json.dumps(body), *more
    )


def create(plane: ControlPlane, user: str, namespace: str, body: Object, *more: str) -> str:
    text = json.dumps({"apiVersion": "v1", "kind": "Pod", **body})
    return run(plane, user, "create", "-n", namespace, "-f", "-", *more, text=text)


def post(plane: ControlPlane, user: str, namespace: str, what: str, body: Object) -> str:
    """Try a subresource of the pod ``p`` that only takes POST."""
    path = f"/api/v1/namespaces/{namespace}/pods/p/{what}?dryRun=All"
    return run(plane, user, "create", "--raw", path, "-f", "-", text=json.dumps(body))


def policies_work(plane: ControlPlane) -> None:
    """Wait until the server has read them, which takes some seconds."""
    end = time.monotonic() + 60
    probe = image("probe")
    while "change no pod's spec" not in patch(plane, SCHEDULER, "default/p", probe, "--dry-run=server"):
        assert time.monotonic() < end, "the policies do not work"
        time.sleep(0.5)


def image(name: str) -> Object:
    return {"spec": {"containers": [{**pod("p")["spec"]["containers"][0], "image": name}]}}


@pytest.mark.parametrize("user", [SCHEDULER, BINDER])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (image("evil"), "change no pod's spec"),
        ({"metadata": {"labels": {"app": "x"}}}, "their own labels only"),
        ({"metadata": {"annotations": {"a": "b"}}}, "no pod's annotations"),
        ({"metadata": {"finalizers": ["a.b/c"]}}, "owners and finalizers"),
        ({"metadata": {"ownerReferences": [OWNER]}}, "owners and finalizers"),
    ],
)
def test_pods_keep_what_is_not_ours(
    plane: ControlPlane, api: AdminTransport, user: str, body: Object, words: str
) -> None:
    assert words in patch(plane, user, "default/p", body, "--dry-run=server")


@pytest.mark.parametrize("user", [SCHEDULER, BINDER])
@pytest.mark.parametrize(
    "meta", [{"labels": {"app": "x"}}, {"annotations": {"a": "b"}}, {"finalizers": ["a.b/c"]}]
)
def test_a_status_brings_nothing_else_along(
    plane: ControlPlane, api: AdminTransport, user: str, meta: Object
) -> None:
    body = {"metadata": meta, "status": {"nominatedNodeName": "n"}}
    said = patch(plane, user, "default/p", body, "--subresource=status", "--dry-run=server")
    assert "nothing but the status" in said


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"annotations": {"received-resource-type": "Regular"}}, ""),
        ({"annotations": {"pod-group-name": "theirs"}}, "how a pod shares GPUs"),
        ({"labels": {"app": "x"}}, "how a pod shares GPUs"),
    ],
)
def test_a_binding_brings_nothing_else_along(
    plane: ControlPlane, api: AdminTransport, meta: Object, words: str
) -> None:
    said = post(plane, BINDER, "default", "binding", {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p", **meta},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    })  # fmt: skip
    assert said == "" if not words else words in said


@pytest.mark.parametrize(
    ("namespace", "words"),
    [
        ("default", ""),
        ("kube-system", "evicts nothing in kube-system"),
        ("kai-resource-reservation", "evicts nothing in kube-system"),
    ],
)
def test_the_eviction_api_reaches_no_namespace_of_the_system(
    plane: ControlPlane, api: AdminTransport, namespace: str, words: str
) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": namespace}}
    said = post(plane, SCHEDULER, namespace, "eviction", body)
    assert said == "" if not words else words in said


@pytest.mark.parametrize("user", [SCHEDULER, BINDER])
def test_our_own_labels_and_conditions_are_written(
    plane: ControlPlane, api: AdminTransport, user: str
) -> None:
    labels = {"runai-gpu-group": "g", "runai-gpu-group/x": "x", "kai.scheduler/node-pool": "a"}
    assert patch(plane, user, "default/p", {"metadata": {"labels": labels}}) == ""
    assert patch(plane, user, "default/p", {"metadata": {"labels": dict.fromkeys(labels)}}) == ""
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": user}
    status = {"status": {"conditions": [waits], "nominatedNodeName": "n"}}
    assert patch(plane, user, "default/p", status, "--subresource=status") == ""


STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
RUNS = {"name": "c", "image": "none", "imageID": "", "ready": True, "restartCount": 0}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"conditions": [{"type": "Ready", "status": "True"}]}, "their own conditions only"),
        ({"phase": "Succeeded"}, "nothing about what runs"),
        ({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}, "nothing about what runs"),
        ({"hostIP": "10.0.0.1"}, "nothing about what runs"),
        ({"reason": "Evicted"}, "nothing about how a pod started"),
        ({"startTime": "2026-01-01T00:00:00Z"}, "nothing about how a pod started"),
        *(({kind: [RUNS]}, "nothing about what runs") for kind in STATUSES),
    ],
)
def test_only_the_kubelet_says_that_a_pod_runs(
    plane: ControlPlane, api: AdminTransport, status: Object, words: str
) -> None:
    said = patch(
        plane, SCHEDULER, "default/p", {"status": status}, "--subresource=status", "--dry-run=server"
    )
    assert words in said


def test_only_our_pods_are_evicted(plane: ControlPlane, api: AdminTransport) -> None:
    def delete(user: str, where: str) -> str:
        namespace, _, name = where.partition("/")
        return run(plane, user, "delete", "pod", name, "-n", namespace, "--dry-run=server", "--wait=false")

    assert delete(SCHEDULER, "default/p") == ""
    assert "evicts pods that it schedules" in delete(SCHEDULER, "kube-system/p")
    assert "evicts pods that it schedules" in delete(SCHEDULER, "kai-resource-reservation/p")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("kai-resource-reservation/reserves", ""),
        ("default/shares", ""),
        ("default/p", "only reservation pods, and pods whose shared GPU"),
        ("default/labelled", "only reservation pods, and pods whose shared GPU"),
        ("kai-resource-reservation/q", "only reservation pods, and pods whose shared GPU"),
        ("kube-system/shares", "deletes nothing in kube-system"),
    ],
)
def test_the_binder_deletes_what_shares_gpus(
    plane: ControlPlane, api: AdminTransport, where: str, words: str
) -> None:
    namespace, _, name = where.partition("/")
    said = run(plane, BINDER, "delete", "pod", name, "-n", namespace, "--dry-run=server", "--wait=false")
    assert said == "" if not words else words in said


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("pvc", {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}}, ""),
        ("pvc", {"metadata": {"annotations": {"a": "b"}}}, "which node it is for"),
        ("pvc", {"metadata": {"labels": {"a": "b"}}}, "no labels, owners and finalizers"),
        ("pvc", {"metadata": {"finalizers": None}}, "no labels, owners and finalizers"),
        ("pvc", {"metadata": {"ownerReferences": [OWNER]}}, "no labels, owners and finalizers"),
        ("pv", {"metadata": {"ownerReferences": [OWNER]}}, "no labels, owners and finalizers"),
        ("pv", {"spec": {"claimRef": {"namespace": "default", "name": "c"}}}, ""),
        ("pv", {"metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}}, ""),
        ("pv", {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}, "nothing of a volume but whose"),
        ("pv", {"spec": {"capacity": {"storage": "2Gi"}}}, "nothing of a volume but whose"),
        ("pv", {"metadata": {"annotations": {"a": "b"}}}, "which node it is for"),
    ],
)
def test_the_binder_gives_volumes_and_changes_none(
    plane: ControlPlane, api: AdminTransport, kind: str, body: Object, words: str
) -> None:
    where = "default/c" if kind == "pvc" else "/v"
    said = patch(plane, BINDER, where, body, "--dry-run=server", kind=kind)
    assert said == "" if not words else words in said


PROTECTED = ["theirs.io/keep", "resource.kubernetes.io/delete-protection"]


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"finalizers": PROTECTED}, ""),
        ({"finalizers": None}, "nothing else of its metadata"),
        ({"finalizers": ["theirs.io/keep", "a.b/c"]}, "nothing else of its metadata"),
        ({"ownerReferences": [OWNER]}, "nothing else of its metadata"),
        ({"annotations": {MARK: "true"}}, "nothing else of its metadata"),
        ({"labels": {"a": "b"}}, "nothing else of its metadata"),
    ],
)  # fmt: skip
def test_the_binder_makes_no_claim_its_own(
    plane: ControlPlane, api: AdminTransport, meta: Object, words: str
) -> None:
    said = patch(plane, BINDER, "default/d", {"metadata": meta}, "--dry-run=server", kind="resourceclaim")
    assert said == "" if not words else words in said


def test_no_volume_is_taken_from_its_claim(plane: ControlPlane, api: AdminTransport) -> None:
    theirs: Object = {**VOLUME, "metadata": {"name": "theirs"}}
    theirs["spec"] = {**VOLUME["spec"], "claimRef": {"namespace": "other", "name": "c"}}
    api.create(r.VOLUMES, "", theirs)
    body = {"spec": {"claimRef": {"namespace": "default", "name": "c"}}}
    said = patch(plane, BINDER, "/theirs", body, "--dry-run=server", kind="pv")
    assert "takes no volume from a claim" in said


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"metadata": {"annotations": {"pod-group-name": "h"}}}, ""),
        ({"metadata": {"labels": {"kai.scheduler/subgroup-name": "s"}}}, ""),
        ({"metadata": {"labels": {"app": "x"}}}, "which pod group it belongs to"),
        ({"metadata": {"annotations": {"a": "b"}}}, "which pod group it belongs to"),
        ({"metadata": {"finalizers": ["a.b/c"]}}, "no pod's owners and finalizers"),
        (image("evil"), "change no pod's spec"),
    ],
)
def test_the_controllers_group_pods_and_change_nothing_else(
    plane: ControlPlane, api: AdminTransport, body: Object, words: str
) -> None:
    said = patch(plane, CONTROLLERS, "default/p", body, "--dry-run=server")
    assert said == "" if not words else words in said


def config(name: str, *, owned: bool) -> str:
    meta: Object = {"name": name, "ownerReferences": [OWNER]} if owned else {"name": name}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"k": "v"}})


@pytest.mark.parametrize(
    ("namespace", "owned", "words"),
    [
        ("default", True, ""),
        ("default", False, "only ConfigMaps that belong to a pod"),
        ("kube-system", True, "no ConfigMaps in kube-system"),
        ("kai-scheduler", True, "no ConfigMaps in kube-system"),
    ],
)
def test_config_maps_belong_to_pods(
    plane: ControlPlane, api: AdminTransport, namespace: str, owned: bool, words: str
) -> None:
    said = run(
        plane, BINDER, "create", "-n", namespace, "-f", "-", "--dry-run=server", text=config("c", owned=owned)
    )
    assert said == "" if not words else words in said


@pytest.mark.parametrize("namespace", ["default", "kube-system"])
def test_config_maps_of_others_stay(plane: ControlPlane, api: AdminTransport, namespace: str) -> None:
    taken = {"data": {"a": "c"}, "metadata": {"ownerReferences": [OWNER]}}
    for body in ({"data": {"a": "c"}}, taken):
        said = patch(plane, BINDER, f"{namespace}/theirs", body, "--dry-run=server", kind="configmap")
        assert "only ConfigMaps that belong to a pod" in said
    said = run(plane, BINDER, "delete", "configmap", "theirs", "-n", namespace, "--dry-run=server")
    assert "only ConfigMaps that belong to a pod" in said


def test_a_reservation_pod_writes_its_device_to_itself(plane: ControlPlane, api: AdminTransport) -> None:
    own = "authentication.kubernetes.io/pod-name=q"
    device = {"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": "GPU-1"}}}
    namespace = "kai-resource-reservation"

    def write(name: str, body: Object, extra: str) -> str:
        return run(
            plane, RESERVATION, "patch", "pod", name, "-n", namespace, "--type=merge", "-p", json.dumps(body),
            extra=extra,
        )  # fmt: skip

    assert write("q", device, own) == ""
    assert "writes to itself only" in write("p", device, own)
    assert "writes to itself only" in write("q", device, "")
    assert "nothing but the device" in write("q", {"metadata": {"labels": {"app": "x"}}}, own)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"labels": {"runai-gpu-group": None}}, "only the binder says which GPU"),
        ({"labels": {"runai-gpu-group": "h"}}, "only the binder says which GPU"),
        ({"labels": {"runai-gpu-group/h": "h"}}, "only the binder says which GPU"),
        ({"annotations": {"gpu-fraction": "0.01"}}, "keeps the GPUs that it asked for"),
        ({"annotations": {"gpu-fraction": None}}, "keeps the GPUs that it asked for"),
        ({"annotations": {"gpu-fraction-num-devices": "2"}}, "keeps the GPUs that it asked for"),
        ({"annotations": {"nvidia.com/mig-1g.5gb": "1"}}, "keeps the GPUs that it asked for"),
        ({"annotations": {"pod-group-name": None}}, "stays in its pod group"),
        ({"annotations": {"pod-group-name": "h"}}, "stays in its pod group"),
        ({"labels": {"kai.scheduler/subgroup-name": "none"}}, "stays in its pod group"),
        ({"labels": {"app": "x"}, "annotations": {"mine": "y"}}, ""),
    ],
)
def test_the_owner_of_a_placed_pod_keeps_its_share(
    plane: ControlPlane, api: AdminTransport, body: Object, words: str
) -> None:
    said = patch(plane, "", "default/placed", {"metadata": body}, "--dry-run=server")
    assert said == "" if not words else words in said


@pytest.mark.parametrize(
    ("scheduler", "labels", "words"),
    [
        ("kai-scheduler", {"runai-gpu-group": "g"}, "only the binder says which GPU"),
        ("kai-scheduler", {"runai-gpu-group/g": "g"}, "only the binder says which GPU"),
        ("kai-scheduler", {"app": "x"}, ""),
        ("default-scheduler", {"runai-gpu-group": "g"}, "only the binder says which GPU"),
    ],
)
def test_no_pod_is_made_with_a_share_of_a_gpu(
    plane: ControlPlane, api: AdminTransport, scheduler: str, labels: dict[str, str], words: str
) -> None:
    body = pod("new", owned=True)
    body["spec"] |= {"schedulerName": scheduler, "nodeName": "n"}
    body["metadata"] |= {"labels": labels}
    body["metadata"]["annotations"]["gpu-fraction"] = "0.01"
    said = create(plane, OWNER_USER, "default", body, "--dry-run=server")
    assert said == "" if not words else words in said
    assert create(plane, "", "default", body, "--dry-run=server") == ""  # An account that may bind pods.


@pytest.mark.parametrize(
    "note", ["kai.scheduler/numa-placement-observed", "kai.scheduler/numa-placement-predicted"]
)
def test_the_owner_says_nothing_about_numa_zones(plane: ControlPlane, api: AdminTransport, note: str) -> None:
    noted = {"metadata": {"annotations": {note: "[]"}}}
    assert "in which NUMA zones" in patch(plane, OWNER_USER, "default/placed", noted, "--dry-run=server")
    assert patch(plane, "", "default/placed", noted, "--dry-run=server") == ""


def test_the_binder_labels_pods_and_a_pod_that_waits_may_change(
    plane: ControlPlane, api: AdminTransport
) -> None:
    label = {"metadata": {"labels": {"runai-gpu-group": "h"}}}
    assert patch(plane, BINDER, "default/placed", label, "--dry-run=server") == ""
    grouped = {"annotations": {"pod-group-name": "h"}, "labels": {"kai.scheduler/subgroup-name": "s"}}
    assert patch(plane, CONTROLLERS, "default/placed", {"metadata": grouped}, "--dry-run=server") == ""
    asks = {"metadata": {"annotations": {"gpu-fraction": "0.25"}, "labels": grouped["labels"]}}
    assert patch(plane, "", "default/p", asks, "--dry-run=server") == ""


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("10m", "1000h", "may only be lowered"),
        ("10m", None, "may only be lowered"),
        ("10m", "soon", "may only be lowered"),
        ("10m", "0s", "may only be lowered"),
        ("1h30m", "91m", "may only be lowered"),
        ("1h30m", "1.5h", ""),
        ("10m", "9m59.5s", ""),
        ("soon", "10h", ""),
        (None, "10h", ""),
    ],
)
def test_a_maximum_run_time_is_lowered_alone(
    plane: ControlPlane, api: AdminTransport, before: str | None, after: str | None, words: str
) -> None:
    """By the owner, who may do everything but change queues, and by the pod grouper as which it comes too."""
    notes = {"metadata": {"annotations": {MAXIMUM: before}}}
    assert patch(plane, "", "default/g", notes, kind="podgroup") == ""
    changed = {"metadata": {"annotations": {MAXIMUM: after, "mine": "x"}}}
    for user in (OWNER_USER, ""):
        said = patch(plane, user, "default/g", changed, "--dry-run=server", kind="podgroup")
        assert said == "" if not words or not user else words in said
