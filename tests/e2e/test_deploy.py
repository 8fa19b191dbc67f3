"""What ``deploy/`` holds, applied with kubectl; its accounts may do what they need, and no more.

The API server and etcd of this control plane come from ``$KUBEBUILDER_ASSETS``, here a directory of links.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from kai_cp.kube import resources as r
from kai_cp.kube.access import ACCESS, ControllerName, Grant, Process
from kai_cp.kube.controllers.catalogue import rights
from kai_cp.kube.demo.controlplane import ControlPlane
from kai_cp.kube.resources import Resource
from tests.e2e.admin import AdminTransport
from tests.e2e.world import admin
from tests.kai_cp.kube.conftest import until
from tests.kubetest.build import find

DEPLOY = Path(__file__).parents[2] / "deploy"
REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False)
SCOPES = {"system": "kai-scheduler", "reservation": "kai-resource-reservation", "scaling": "kai-scale-adjust"}
OPERATOR = ("servicemonitors ServiceMonitor", "prometheusrules PrometheusRule")
Object = dict[str, Any]


@pytest.fixture(scope="module")
def plane(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    assets = tmp_path_factory.mktemp("assets")
    for name in ("kube-apiserver", "etcd"):
        (assets / name).symlink_to(binary)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBEBUILDER_ASSETS", str(assets))
        with ControlPlane(binary, nodes=False) as made:
            # The base makes no namespaces: KAI may own them.
            for name in SCOPES.values():
                kubectl(made, "create", "namespace", name)
            yield made


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[AdminTransport]:
    made = admin(plane)
    yield made
    made.close()


def kubectl(plane: ControlPlane, *arguments: str) -> str:
    """What kubectl prints; it must succeed."""
    command = [str(find()), "kubectl", f"--kubeconfig={plane.kubeconfig()}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def applied(plane: ControlPlane, folder: Path) -> list[Object]:
    """Apply a kustomization server-side; its objects as the server has them."""
    kubectl(plane, "apply", "--server-side", "-k", str(folder))
    found = []
    for item in yaml.safe_load_all(kubectl(plane, "kustomize", str(folder))):
        meta = item["metadata"]
        where = ["-n", meta["namespace"]] if "namespace" in meta else []
        group = item["apiVersion"].rpartition("/")[0]
        kind = f"{item['kind']}.{group}" if group else item["kind"]
        found.append(yaml.safe_load(kubectl(plane, "get", kind, meta["name"], *where, "-o", "yaml")))
    return found


def versions(objects: list[Object]) -> dict[str, int]:
    """Generation, or else resource version, by kind and name: status alone may change meanwhile."""
    return {
        f"{item['kind']} {item['metadata']['name']} {item['metadata'].get('namespace')}": int(
            item["metadata"].get("generation") or item["metadata"]["resourceVersion"]
        )
        for item in objects
    }


def test_parts_are_taken_from_the_given_assets(plane: ControlPlane) -> None:
    for name in ("kube-apiserver", "etcd"):
        started = Path(f"/proc/{plane.processes[name].pid}/cmdline").read_bytes().split(b"\0")[0].decode()
        assert Path(started).parent.name.startswith("assets")
        assert Path(started).name == name


def test_the_base_is_applied_twice_and_changes_nothing_the_second_time(
    plane: ControlPlane, api: AdminTransport
) -> None:
    first = applied(plane, DEPLOY / "base")
    assert {item["kind"] for item in first} >= {
        "Deployment",
        "ClusterRole",
        "PodDisruptionBudget",
    }
    assert versions(applied(plane, DEPLOY / "base")) == versions(first)

    def pods() -> list[Object]:
        items: list[Object] = api.raw(r.PODS.path("kai-scheduler"))["items"]
        return items

    # The namespace admits only what is confined; what is refused shows as an event of its ReplicaSet.
    until(lambda: len(pods()) == 4, 30)
    names = {pod["spec"]["serviceAccountName"] for pod in pods()}
    assert names == {"kai-cp-scheduler", "kai-cp-binder"}
    events = api.raw(r.EVENTS.path("kai-scheduler"))["items"]
    assert not [event["message"] for event in events if event["type"] == "Warning"]


def test_monitoring_is_applied_where_the_operator_is(plane: ControlPlane, api: AdminTransport) -> None:
    for entry in OPERATOR:
        plural, kind = entry.split()
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        spec = {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [version],
        }
        name = f"{plural}.monitoring.coreos.com"
        api.create(r.CRDS, "", {"metadata": {"name": name}, "spec": spec})
        kubectl(plane, "wait", "--for=condition=Established", f"crd/{name}", "--timeout=30s")
    kinds = [item["kind"] for item in applied(plane, DEPLOY / "monitoring")]
    assert {"ServiceMonitor", "PrometheusRule", "Service", "Deployment"} <= set(kinds)


def test_an_overlay_sets_the_image(plane: ControlPlane, tmp_path: Path) -> None:
    # A kustomization names what it builds on by a relative path.
    base = Path(*[".."] * len(tmp_path.resolve().parts[1:]), *DEPLOY.resolve().parts[1:], "base")
    images = [{"name": "kai-cp", "newName": "example.test/kai-cp", "newTag": "1.2"}]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [str(base)], "images": images}))
    made = list(yaml.safe_load_all(kubectl(plane, "kustomize", str(tmp_path))))
    used = {
        container["image"]
        for item in made
        if item["kind"] == "Deployment"
        for container in item["spec"]["template"]["spec"]["containers"]
    }
    assert used == {"example.test/kai-cp:1.2"}


def allowed(api: AdminTransport, user: str, grant: Grant, namespace: str) -> bool:
    """What the server's authorizer says."""
    resource, _, subresource = grant.resource.partition("/")
    attributes = {
        "verb": grant.verb,
        "group": grant.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": namespace,
    }
    body = {"metadata": {}, "spec": {"user": user, "resourceAttributes": attributes}}
    return bool(api.create(REVIEWS, "", body)["status"]["allowed"])


@pytest.mark.parametrize(
    ("process", "user"),
    [
        ("scheduler", "system:serviceaccount:kai-scheduler:kai-cp-scheduler"),
        ("binder", "system:serviceaccount:kai-scheduler:kai-cp-binder"),
        (
            "gpu-reservation",
            "system:serviceaccount:kai-resource-reservation:kai-resource-reservation",
        ),
        ("reader", "looks"),
        ("admin", "installs"),
        ("controllers", "system:serviceaccount:kai-scheduler:kai-cp-controllers"),
    ],
)
def test_accounts_may_do_what_is_declared_and_nothing_else(
    plane: ControlPlane, api: AdminTransport, process: Process, user: str
) -> None:
    kubectl(plane, "apply", "--server-side", "-k", str(DEPLOY / "base"))
    grants = ACCESS[process]
    if process == "controllers":
        kubectl(plane, "apply", "--server-side", "-k", str(DEPLOY / "controllers"))
        grants = rights(get_args(ControllerName))
    role = {"reader": "kai-cp-reader", "admin": "kai-cp-crd-installer"}.get(process)
    if role is not None:
        kubectl(plane, "create", "clusterrolebinding", user, f"--clusterrole={role}", f"--user={user}")
    for grant in grants:
        namespace = SCOPES[grant.scope] if grant.scope else "default"
        until(lambda g=grant, n=namespace: allowed(api, user, g, n), 5)
    everywhere = {grant[:3] for grant in grants if not grant.scope}
    known = {grant[:3] for grants in ACCESS.values() for grant in grants}
    risky = itertools.product(
        ("get", "list", "create", "update", "delete"), ("secrets", "nodes", "pods/exec")
    )
    for verb, group, resource in {*known, *((verb, "", name) for verb, name in risky)} - everywhere:
        assert not allowed(api, user, Grant(verb, group, resource), "default"), (verb, resource)  # type: ignore[arg-type]
