"""The webhook configurations: which requests the API server sends, and what it does if none answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kai_cp.admission.sharing import ANNOTATIONS
from kai_cp.kube.admission.keeper import LABEL
from kai_cp.kube.admission.options import RegistrationOptions
from kai_cp.kube.api import access

TIMEOUT_SECONDS: Final = 5
"""An answer takes milliseconds; a request that waits longer than this is better tried again."""


UNCHANGED: Final = "request.operation != 'UPDATE' || object.spec != oldObject.spec"
"""Only changes of the specification are judged: labels, annotations and finalizers never wait for us."""
_SHARING: Final = list(ANNOTATIONS)
ANNOTATED: Final = (
    f"request.operation == 'CREATE' || {_SHARING}.exists(name, "
    "object.metadata.?annotations[?name] != oldObject.metadata.?annotations[?name])"
)
"""What is judged of a pod cannot change after creation, but for these annotations."""
SHARES: Final = {
    "name": "shares-a-gpu",
    "expression": f"request.operation == 'UPDATE' || {_SHARING}.exists(name, "
    "object.metadata.?annotations[?name].hasValue())",
}
"""Nothing is changed or refused in a pod without these annotations, unless devices are blocked."""


POD: Final = ("", "v1", "pods", "Namespaced")
TOPOLOGY: Final = ("kai.scheduler", "v1alpha1", "topologies", "Cluster")
QUEUE: Final = ("scheduling.run.ai", "v2", "queues", "Cluster")
POD_GROUP: Final = ("scheduling.run.ai", "v2alpha2", "podgroups", "Namespaced")
"""API group, version, plural, and scope."""


def configurations(options: RegistrationOptions) -> list[dict[str, Any]]:
    """The four objects, with KAI's names. The process writes ``caBundle`` later."""
    name = f"object.spec.schedulerName == '{options.scheduler_name}'"
    asked = [{"name": "scheduler-name-match", "expression": name}]
    if not options.block_nvidia_visible_devices:
        asked.append(SHARES)
    judged = {"name": "judged", "expression": UNCHANGED}
    selector = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", options.service_namespace],
    }
    elsewhere = {"namespaceSelector": {"matchExpressions": [selector]}}
    service = f"{options.service_name}.{options.service_namespace}.svc"
    mutate = {
        **_hook(options, service, "/mutate--v1-pod", POD, "CREATE"),
        **elsewhere,
        "matchConditions": asked,
        "reinvocationPolicy": "IfNeeded",
    }
    validate = {
        **_hook(options, service, "/validate--v1-pod", POD, "CREATE", "UPDATE"),
        **elsewhere,
        "matchConditions": [*asked, {"name": "judged", "expression": ANNOTATED}],
    }

    def specification(name: str, path: str, kind: tuple[str, str, str, str], *more: str) -> dict[str, Any]:
        return {
            **_hook(options, name, path, kind, "CREATE", "UPDATE", *more),
            "matchConditions": [judged],
        }

    topology = specification(f"topology.{service}", "/validate-kai-scheduler-v1alpha1-topology", TOPOLOGY)
    queue = specification(
        "queue-validation.kai.scheduler", "/validate-scheduling-run-ai-v2-queue", QUEUE, "DELETE"
    )
    group = specification(
        "podgroup-validation.kai.scheduler", "/validate-scheduling-run-ai-v2alpha2-podgroup", POD_GROUP
    )
    pods, queues, groups = access.VALIDATING_CONFIGURATIONS
    return [
        _configuration("MutatingWebhookConfiguration", access.MUTATING_CONFIGURATIONS[0], mutate),
        _configuration("ValidatingWebhookConfiguration", pods, validate, topology),
        _configuration("ValidatingWebhookConfiguration", queues, queue),
        _configuration("ValidatingWebhookConfiguration", groups, group),
    ]


def _configuration(kind: str, name: str, *hooks: Mapping[str, Any]) -> dict[str, Any]:
    labels = {LABEL[0]: LABEL[1], "app.kubernetes.io/component": "admission"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
        "webhooks": list(hooks),
    }


def _hook(
    options: RegistrationOptions, name: str, path: str, kind: tuple[str, str, str, str], *operations: str
) -> dict[str, Any]:
    group, version, plural, scope = kind
    client: dict[str, Any] = {
        "service": {"namespace": options.service_namespace, "name": options.service_name, "path": path}
    }
    if options.url:
        client = {"url": options.url.rstrip("/") + path}
    return {
        "name": name,
        "clientConfig": client,
        "rules": [
            {
                "apiGroups": [group],
                "apiVersions": [version],
                "resources": [plural],
                "operations": list(operations),
                "scope": scope,
            }
        ],
        "failurePolicy": options.failure_policy.value,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": TIMEOUT_SECONDS,
    }
