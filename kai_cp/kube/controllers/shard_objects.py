"""Makes the Deployment of our scheduler from a SchedulingShard and KAI's Config (6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, get_type_hints

from kai_cp.json_types import Json, Object, short_hash
from kai_cp.kube.controllers.options import ControllerOptions
from kai_cp.kube.scheduler.options import SchedulerOptions
from kai_cp.reader.fields import int_at, list_at, object_at, strings_at, text_at

OWNED: Final = frozenset(
    ("scheduler_name", "nodepool_label_key", "partition_label_value", "queue_label_key", "mode")
)
"""Flags that follow from the shard, the Config and the process, and are not a shard's to set."""
IGNORED: Final = frozenset(("qps", "burst", "listen-address", "enable-profiler", "profiler-api-port", "v"))
"""KAI's flags of a scheduler that mean nothing for ours; they are let pass."""
NAME: Final = "app.kubernetes.io/name"
INSTANCE: Final = "app.kubernetes.io/instance"
COMPONENT: Final = "app.kubernetes.io/component"
SHARD: Final = "kai.scheduler/shard"


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """The wanted Deployment, and one line for each part of the shard that is not supported."""

    deployment: Object
    problems: tuple[str, ...] = ()


def deployment_name(shard: str) -> str:
    """Name of a shard's Deployment."""
    return f"kai-cp-scheduler-{shard}"


def plan(shard: Json, config: Json, options: ControllerOptions) -> ShardPlan:
    """The Deployment of a shard. Raises ``Malformed`` that names the unreadable field.

    ``config`` is the ``spec`` of ``kai-config``, empty where there is none.
    """
    meta, spec = object_at(shard, "metadata"), object_at(shard, "spec")
    name = text_at(meta, "name")
    common = object_at(config, "global", "spec")
    ours = object_at(object_at(config, "scheduler", "spec"), "service", "spec.scheduler")
    flags, problems = _flags(strings_at(spec, "args", "spec"))
    scheduler_name = text_at(common, "schedulerName") or options.scheduler_name
    replicas = int_at(object_at(config, "scheduler", "spec"), "replicas", "spec.scheduler", minimum=0)
    replicas = replicas if replicas is not None else int_at(common, "replicaCount", "spec.global", minimum=0)
    arguments = [
        "scheduler",
        "--leader-elect",
        f"--mode={options.shard_mode}",
        f"--namespace={options.shard_namespace}",
        f"--shard={name}",
        f"--scheduler-name={scheduler_name}",
        f"--nodepool-label-key={text_at(common, 'nodePoolLabelKey') or options.nodepool_label_key}",
        f"--queue-label-key={text_at(common, 'queueLabelKey') or options.queue_label_key}",
        f"--partition-label-value={text_at(spec, 'partitionLabelValue', 'spec')}",
        f"--resource-reservation-namespace={options.resource_reservation_namespace}",
        f"--resource-reservation-app-label={options.resource_reservation_app_label}",
        f"--scale-adjust-namespace={options.scale_adjust_namespace}",
        *flags,
    ]
    labels = {NAME: "kai-cp", COMPONENT: "scheduler", SHARD: name}
    # Not of the selector, which cannot be changed.
    release = {INSTANCE: options.shard_instance} if options.shard_instance else {}
    container = _container(options.shard_image, arguments, object_at(ours, "resources", "service"))
    pod = _pod(common, options.shard_service_account, labels, container)
    owner = {
        "apiVersion": "kai.scheduler/v1",
        "kind": "SchedulingShard",
        "name": name,
        "uid": text_at(meta, "uid"),
        "controller": True,
    }
    # A scheduler reads its shard at its start only, so a change of the spec restarts it.
    generation = {f"{SHARD}-generation": str(meta.get("generation") or 0)}
    deployment = {
        "replicas": options.shard_replicas if replicas is None else replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels | release, "annotations": generation}, "spec": pod},
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": deployment_name(name),
            "namespace": options.shard_namespace,
            "labels": labels,
            # What is not wanted any more looks like what the server filled in: only this tells them apart.
            "annotations": {f"{SHARD}-spec": short_hash(deployment)},
            "ownerReferences": [owner],
        },
        "spec": deployment,
    }
    return ShardPlan(body, tuple(problems))


def _pod(common: Json, service_account: str, labels: Json, container: Json) -> Json:
    """The pod spec; ``common`` is ``spec.global`` of ``kai-config``, which holds for all pods."""
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": dict(labels)}}
    preferred = [{"weight": 100, "podAffinityTerm": apart}]
    pod: dict[str, Any] = {
        "serviceAccountName": service_account,
        "priorityClassName": text_at(common, "priorityClassName") or "system-cluster-critical",
        # The image names its user: OpenShift refuses pods that name one.
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}],
    }
    for key in ("nodeSelector", "affinity"):
        value = object_at(common, key, "spec.global")
        if value:
            pod[key] = dict(value)
    if list_at(common, "tolerations", "spec.global"):
        pod["tolerations"] = list(list_at(common, "tolerations", "spec.global"))
    secrets = [text_at(common, "imagesPullSecret", "spec.global")]
    secrets += [str(one) for one in list_at(common, "additionalImagePullSecrets", "spec.global")]
    if any(secrets):
        pod["imagePullSecrets"] = [{"name": one} for one in dict.fromkeys(secrets) if one]
    return pod


def owned(deployment: Object, shard: Object) -> bool:
    """Whether a Deployment was made for this shard and not by another program under the same name."""
    owners = deployment["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == shard["metadata"].get("uid") for owner in owners)


def _flags(arguments: Mapping[str, str]) -> tuple[list[str], list[str]]:
    known = {field.name.replace("_", "-"): field.name for field in fields(SchedulerOptions)}
    hints = get_type_hints(SchedulerOptions)
    flags, problems = [], []
    for key, value in sorted(arguments.items()):
        field = known.get(key)
        if field is None:
            if key not in IGNORED:
                problems.append(f"spec.args[{key}]: this scheduler has no such flag, and goes on without it")
        elif field in OWNED:
            problems.append(f"spec.args[{key}]: follows from the shard and the Config, and is not taken")
        elif hints[field] is bool:
            if value not in ("true", "false"):
                problems.append(f"spec.args[{key}]: {value!r} is neither true nor false")
            else:
                flags.append(f"--{key}" if value == "true" else f"--no-{key}")
        else:
            flags.append(f"--{key}={value}")
    return flags, problems


def _container(image: str, arguments: list[str], resources: Json) -> dict[str, Any]:
    probe = {"path": "/healthz", "port": "metrics"}
    patience = {"timeoutSeconds": 5}
    usual: Json = {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}
    return {
        "name": "scheduler",
        "image": image,
        "args": arguments,
        "ports": [{"name": "metrics", "containerPort": 8080}],
        "livenessProbe": {"httpGet": probe, "initialDelaySeconds": 30, "periodSeconds": 20, **patience},
        "readinessProbe": {"httpGet": {**probe, "path": "/readyz"}, "periodSeconds": 5, **patience},
        "resources": dict(resources or usual),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def contained(wanted: Any, found: Any) -> bool:
    """Whether all wanted fields are there; defaults that the API server filled in do not matter."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(contained(v, found.get(k)) for k, v in wanted.items())
    if isinstance(wanted, list):
        same = isinstance(found, list) and len(wanted) == len(found)
        return same and all(contained(a, b) for a, b in zip(wanted, found, strict=True))
    return bool(wanted == found)


def conditions(
    plan_: ShardPlan | None, deployment: Object | None, problem: str, generation: int
) -> list[Object]:
    """KAI's conditions of a shard: Deployed, Available and Ready (1.5)."""
    deployed = plan_ is not None and deployment is not None and not problem
    available = deployed and deployment is not None and _available(deployment)
    told = problem or "; ".join(plan_.problems if plan_ is not None else ())
    reason = "Failed" if problem else ("NotAllFollowed" if told else "Deployed")
    waiting = problem or "the Deployment is not available yet"
    found = [
        ("Deployed", deployed, reason, told or "Resources deployed"),
        ("Available", available, "Available" if available else "Waiting", "" if available else waiting),
        ("Ready", available, "Ready" if available else "Waiting", "" if available else waiting),
    ]
    texts = {"Available": "System available", "Ready": "System is ready"}
    return [
        {
            "type": kind,
            "status": "True" if holds else "False",
            "reason": why,
            "message": text or texts[kind],
            "observedGeneration": generation,
        }
        for kind, holds, why, text in found
    ]


def _available(deployment: Object) -> bool:
    status = deployment.get("status") or {}
    wanted = (deployment.get("spec") or {}).get("replicas", 1)
    current = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    listed = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    return current and status.get("updatedReplicas", 0) == wanted and listed.get("Available") == "True"
