"""The rendered chart, applied with kubectl; its accounts may do what they need, and nothing else.

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

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.access import ACCESS, WITH_OPTIONS, ControllerName, Grant, Process
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.controllers.catalogue import rights
from kai_cp.kube.demo.controlplane import ControlPlane
from tests.deploy.helm import instead_of_kai, objects, template
from tests.e2e.admin import AdminTransport
from tests.e2e.world import admin
from tests.kai_cp.kube.conftest import until
from tests.kubetest.build import find

REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False)
SCOPES = {
    "system": "kai-scheduler",
    "reservation": "kai-resource-reservation",
    "scaling": "kai-scale-adjust",
    "defaults": "kai-scheduler",
}
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
            # The chart makes no namespaces, because KAI may own them.
            for name in set(SCOPES.values()):
                kubectl(made, "create", "namespace", name)
            yield made


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[AdminTransport]:
    made = admin(plane)
    yield made
    made.close()


def kubectl(plane: ControlPlane, *arguments: str, text: str = "") -> str:
    """The output of kubectl, which must succeed."""
    command = [str(find()), "kubectl", f"--kubeconfig={plane.kubeconfig()}", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def applied(plane: ControlPlane, items: list[Object]) -> list[Object]:
    """Apply objects server-side; returns them as the server has them."""
    text = yaml.safe_dump_all(items)
    kubectl(plane, "apply", "--server-side", "-f", "-", text=text)
    found: list[Object] = yaml.safe_load(kubectl(plane, "get", "-f", "-", "-o", "yaml", text=text))["items"]
    return found


def without_webhooks() -> list[Object]:
    """Everything except what sends requests to processes that no kubelet starts here."""
    return [item for item in instead_of_kai() if not item["kind"].endswith("WebhookConfiguration")]


def versions(objects: list[Object]) -> dict[str, int]:
    """By kind and name: generation, or else resource version, because status alone may change meanwhile."""
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


def test_the_manifest_is_applied_twice_and_changes_nothing_the_second_time(
    plane: ControlPlane, api: AdminTransport
) -> None:
    items = without_webhooks()
    first = applied(plane, items)
    assert len(first) == len(items)
    assert versions(applied(plane, items)) == versions(first)

    def pods() -> list[Object]:
        items: list[Object] = api.raw(r.PODS.path("kai-scheduler"))["items"]
        return items

    until(lambda: len(pods()) == 8)
    names = {pod["spec"]["serviceAccountName"] for pod in pods()}
    assert names == {f"kai-cp-{part}" for part in ("scheduler", "binder", "controllers", "admission")}
    # A refused pod shows as an event of its ReplicaSet; the API server warns about other things on its own.
    events = api.raw(r.EVENTS.path("kai-scheduler"))["items"]
    refused = [
        event["message"]
        for event in events
        if event["type"] == "Warning" and event["involvedObject"]["kind"] == "ReplicaSet"
    ]
    assert not refused


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
    watched = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    items = objects(template({"monitoring": watched}, "kai-cp", "kai-scheduler"))
    kinds = {item["kind"] for item in applied(plane, items)}
    assert {"ServiceMonitor", "PrometheusRule", "Service", "Deployment"} <= kinds


def allowed(api: AdminTransport, user: str, grant: Grant, namespace: str) -> bool:
    """The answer of the server's authorizer."""
    resource, _, subresource = grant.resource.partition("/")
    attributes = {
        "verb": grant.verb,
        "group": grant.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": namespace,
        "name": grant.name,
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
        ("admission", "system:serviceaccount:kai-scheduler:kai-cp-admission"),
    ],
)
def test_accounts_may_do_what_is_declared_and_nothing_else(
    plane: ControlPlane, api: AdminTransport, process: Process, user: str
) -> None:
    applied(plane, without_webhooks())
    # The controller of shards exists, so there may be node pools.
    options = ACCESS[WITH_OPTIONS[process]] if process in WITH_OPTIONS else frozenset()
    grants = rights(get_args(ControllerName)) if process == "controllers" else ACCESS[process] | options
    part = {"reader": "reader", "admin": "crd-installer"}.get(process)
    if part is not None:
        role = f"kai-scheduler-kai-cp-{part}"
        kubectl(plane, "create", "clusterrolebinding", user, f"--clusterrole={role}", f"--user={user}")
    for grant in grants:
        namespace = SCOPES[grant.scope] if grant.scope else "default"
        named = grant._replace(name="by-kind") if grant.scope == "defaults" else grant
        until(lambda g=named, n=namespace: allowed(api, user, g, n))
    everywhere = {grant[:3] for grant in grants if not grant.scope}
    known = {grant[:3] for grants in ACCESS.values() for grant in grants}
    risky = itertools.product(
        ("get", "list", "create", "update", "delete"), ("secrets", "nodes", "pods/exec")
    )
    for verb, group, resource in {*known, *((verb, "", name) for verb, name in risky)} - everywhere:
        assert not allowed(api, user, Grant(verb, group, resource), "default"), (verb, resource)  # type: ignore[arg-type]
