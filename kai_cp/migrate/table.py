"""Where each setting of KAI goes: the one table of ``kai-cp migrate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

VALUES: Final = "values"
"""A value of our chart."""
CONTROLLERS: Final = "controllers"
"""A flag of ``kai-cp controllers``."""
ADMISSION: Final = "admission"
"""A flag of ``kai-cp admission``."""


class Target(NamedTuple):
    """A setting of ours: ``place`` is a part, ``name`` a dotted value or a flag without its dashes."""

    place: str
    name: str


class MigrationRow(NamedTuple):
    """The targets of one setting; without targets it is dropped. ``note`` explains what to know."""

    targets: tuple[Target, ...] = ()
    note: str = ""


def _values(*names: str, note: str = "") -> MigrationRow:
    return MigrationRow(tuple(Target(VALUES, name) for name in names), note)


def _flag(place: str, *names: str, note: str = "") -> MigrationRow:
    return MigrationRow(tuple(Target(place, name) for name in names), note)


def _both(value: str, place: str, flag: str) -> MigrationRow:
    return MigrationRow((Target(VALUES, value), Target(place, flag)))


def _not(note: str) -> MigrationRow:
    return MigrationRow((), note)


OWN_IMAGE: Final = "ours is one image for every process: values image.*"
OWN_LIMITS: Final = "no limit by default: the API server's own priority and fairness decides"
GO: Final = "tunes the Go runtime, which ours does not have"

CONFIG: Final[Mapping[str, MigrationRow]] = {
    "namespace": _not("the namespace of the Helm release: helm install -n"),
    "global.schedulerName": MigrationRow(
        (
            Target(VALUES, "schedulerName"),
            Target(CONTROLLERS, "scheduler-name"),
            Target(ADMISSION, "scheduler-name"),
        ),
        "also for the webhooks: kai-cp webhooks --scheduler-name",
    ),
    "global.nodePoolLabelKey": _both("nodePoolLabelKey", CONTROLLERS, "nodepool-label-key"),
    "global.queueLabelKey": _both("queueLabelKey", CONTROLLERS, "queue-label-key"),
    "global.nodeSelector": _values("scheduler.nodeSelector", "binder.nodeSelector"),
    "global.tolerations": _values("scheduler.tolerations", "binder.tolerations"),
    "global.affinity": _values("scheduler.affinity", "binder.affinity"),
    "global.priorityClassName": _values("scheduler.priorityClassName", "binder.priorityClassName"),
    "global.replicaCount": _values("scheduler.replicas", "binder.replicas"),
    "global.additionalImagePullSecrets": _values("imagePullSecrets"),
    "global.imagesPullSecret": _values("imagePullSecrets"),
    "global.openshift": _values("openshift"),
    "global.jsonLog": _not("logs are JSON unless --log-text says otherwise"),
    "global.vpa": _not("make a VerticalPodAutoscaler of your own for our Deployments"),
    "global.securityContext": _not("our containers pass the restricted profile as they are"),
    "global.requireDefaultPodAntiAffinityTerm": _not(
        "replicas prefer different nodes; *.affinity can require it"
    ),
    "global.daemonsetsTolerations": _not("there is no DaemonSet"),
    "global.namespaceLabelSelector": _flag(
        CONTROLLERS,
        "namespace-label-selector",
        note="for the webhooks: add it to their namespaceSelector",
    ),
    "global.podLabelSelector": _flag(
        CONTROLLERS, "pod-label-selector", note="for the webhooks: add it as their objectSelector"
    ),
    "podGrouper.args.gangScheduleKnative": _flag(CONTROLLERS, "knative-gang-schedule"),
    "podGrouper.args.genericKartaFallback": _flag(CONTROLLERS, "generic-karta-fallback"),
    "podGrouper.args.defaultPrioritiesConfigMapName": _values("controllers.defaultPriorities.configMap"),
    "podGrouper.args.defaultPrioritiesConfigMapNamespace": _values("controllers.defaultPriorities.namespace"),
    "podGrouper.maxConcurrentReconciles": _flag(CONTROLLERS, "max-concurrent-reconciles"),
    "podGroupController.maxConcurrentReconciles": _not("shares podGrouper's: --max-concurrent-reconciles"),
    "queueController.metricsNamespace": _flag(CONTROLLERS, "metrics-namespace"),
    "queueController.queueLabelToMetricLabel": _flag(CONTROLLERS, "queue-label-to-metric-label"),
    "queueController.queueLabelToDefaultMetricValue": _flag(
        CONTROLLERS, "queue-label-to-default-metric-value"
    ),
    "binder.cdiEnabled": _values("binder.cdiEnabled", note="KAI detects it from the GPU operator"),
    "binder.plugins.hamicore.enabled": _both("binder.hamiCoreEnabled", ADMISSION, "hami-core-enabled"),
    "binder.plugins": _not("order and arguments of the binder's steps are fixed"),
    "binder.resourceReservation.namespace": _both(
        "reservation.namespace", CONTROLLERS, "resource-reservation-namespace"
    ),
    "binder.resourceReservation.serviceAccountName": _values("reservation.serviceAccountName"),
    "binder.resourceReservation.appLabel": _both(
        "reservation.appLabel", CONTROLLERS, "resource-reservation-app-label"
    ),
    "binder.resourceReservation.runtimeClassName": _values("reservation.runtimeClassName"),
    "binder.resourceReservation": _not("reservation pods are made by our binder from our image"),
    "binder.replicas": _values("binder.replicas"),
    "binder.service.resources": _values("binder.resources"),
    "binder.service.affinity": _values("binder.affinity"),
    "scheduler.replicas": _values("scheduler.replicas"),
    "scheduler.service.resources": _values("scheduler.resources"),
    "scheduler.service.affinity": _values("scheduler.affinity"),
    "scheduler.GOGC": _not(GO),
    "scheduler.schedulerService": _not("metrics are on port 8080"),
    "admission.gpuSharing": _both("admission.gpuSharing", ADMISSION, "gpu-sharing-enabled"),
    "admission.blockNvidiaVisibleDevices": _flag(
        ADMISSION,
        "block-nvidia-visible-devices",
        note="also for the webhooks: kai-cp webhooks --block-nvidia-visible-devices; the chart sees the flag",
    ),
    "admission.gpuFractionRuntimeClassName": _flag(ADMISSION, "gpu-fraction-runtime-class-name"),
    "admission.gpuPodRuntimeClassName": _flag(ADMISSION, "gpu-pod-runtime-class-name"),
    "admission.queueLabelSelector": _not("tests the namespace; write a namespaceSelector if you mean it"),
    "admission.webhook": _not("the chart chooses the ports"),
    "admission.validatingWebhookConfigurationName": _not(
        "the names are KAI's: a second set would be called too"
    ),
    "admission.mutatingWebhookConfigurationName": _not(
        "the names are KAI's: a second set would be called too"
    ),
    "nodeScaleAdjuster.args.nodeScaleNamespace": _both(
        "controllers.scaling.namespace", CONTROLLERS, "scale-adjust-namespace"
    ),
    "nodeScaleAdjuster.args.nodeScaleServiceAccount": _flag(CONTROLLERS, "scaling-pod-service-account"),
    "nodeScaleAdjuster.args.gpuMemoryToFractionRatio": _flag(CONTROLLERS, "gpu-memory-to-fraction-ratio"),
    "nodeScaleAdjuster.args.scalingPodImage": _not("scaling pods run our image: --scaling-pod-image"),
    "prometheus.externalPrometheusUrl": _not("write it as usageDBConfig.connectionString of each shard"),
    "prometheus": _not("none is installed: name yours as usageDBConfig.connectionString of each shard"),
    "numaPlacementExporter": _not("KAI's exporter stays in place; its labels are read"),
    "queueController.webhooks": _not("the chart has them (admission.enabled)"),
    "podGroupController.webhooks": _not("the chart has them (admission.enabled)"),
    "*.service.image": _not(OWN_IMAGE),
    "*.service.k8sClientConfig": _not(OWN_LIMITS),
    "*.service.podDisruptionBudget": _not("values podDisruptionBudget.*, for all at once"),
    "*.service.resources": _not("resources of this part are in its manifest"),
    "*.service.affinity": _not("affinity of this part is in its manifest"),
    "*.replicas": _not("replicas of this part are in its manifest"),
    "*.vpa": _not("make a VerticalPodAutoscaler of your own for our Deployments"),
    "*.maxConcurrentReconciles": _not("the binder's is --max-concurrent-reconciles in binder.extraArgs"),
    "*.probePort": _not("probes are on port 8080"),
    "*.metricsPort": _not("metrics are on port 8080"),
    "binder.volumeBindingTimeoutSeconds": _not("add --volume-binding-timeout-seconds to binder.extraArgs"),
}
"""By path in ``spec`` of a Config; ``*`` is one part. The most exact row counts, and covers everything below
it."""

PARTS: Final[Mapping[str, str]] = {
    "podGrouper": "podgrouper",
    "podGroupController": "podgroup-controller",
    "queueController": "queue-controller",
    "nodeScaleAdjuster": "node-scale-adjuster",
}
"""KAI's services that are controllers here."""

SHARD: Final[Mapping[str, MigrationRow]] = {
    "partitionLabelValue": MigrationRow((), "="),
    "placementStrategy": MigrationRow((), "="),
    "queueDepthPerAction": MigrationRow((), "="),
    "minRuntime": MigrationRow((), "="),
    "kValue": MigrationRow((), "="),
    "usageDBConfig": MigrationRow((), "="),
    "plugins": MigrationRow((), "="),
    "actions": MigrationRow((), "="),
    "args": MigrationRow((), "="),
    "scenarioSearchBudgets": _not("ours has one budget of time, in its settings"),
    "goMemLimitRatio": _not(GO),
    "goMemLimit": _not(GO),
}
"""By field of a SchedulingShard; "=" is read from the object itself, as KAI's scheduler does."""

HELM: Final[Mapping[str, str]] = {
    "global.gpuSharing": "admission.gpuSharing",
    "global.blockNvidiaVisibleDevices": "admission.blockNvidiaVisibleDevices",
    "global.clusterAutoscaling": "nodeScaleAdjuster.service.enabled",
    "global.nodeSelector": "global.nodeSelector",
    "global.affinity": "global.affinity",
    "global.tolerations": "global.tolerations",
    "global.securityContext": "global.securityContext",
    "global.priorityClassName": "global.priorityClassName",
    "global.requireDefaultPodAntiAffinityTerm": "global.requireDefaultPodAntiAffinityTerm",
    "global.jsonLog": "global.jsonLog",
    "global.namespaceLabelSelector": "global.namespaceLabelSelector",
    "global.podLabelSelector": "global.podLabelSelector",
    "global.nodePoolLabelKey": "global.nodePoolLabelKey",
    "global.vpa": "global.vpa",
    "global.resourceReservation": "binder.resourceReservation",
    "openshift": "global.openshift",
    "operator.replicaCount": "global.replicaCount",
    "podgrouper.queueLabelKey": "global.queueLabelKey",
    "podgrouper.genericKartaFallback": "podGrouper.args.genericKartaFallback",
    "podgrouper.enabled": "podGrouper.service.enabled",
    "podgroupcontroller.enabled": "podGroupController.service.enabled",
    "queuecontroller.enabled": "queueController.service.enabled",
    "binder.enabled": "binder.service.enabled",
    "scheduler.enabled": "scheduler.service.enabled",
    "admission.enabled": "admission.service.enabled",
    "binder.resources": "binder.service.resources",
    "scheduler.resources": "scheduler.service.resources",
    "binder.plugins": "binder.plugins",
    "binder.cdiEnabled": "binder.cdiEnabled",
    "binder.runtimeClassName": "binder.resourceReservation.runtimeClassName",
    "admission.gpuFractionRuntimeClassName": "admission.gpuFractionRuntimeClassName",
    "admission.gpuPodRuntimeClassName": "admission.gpuPodRuntimeClassName",
    "prometheus": "prometheus",
    "nodescaleadjuster.scalingPodNamespace": "nodeScaleAdjuster.args.nodeScaleNamespace",
    "scheduler.placementStrategy": "shard:placementStrategy",
    "scheduler.args": "shard:args",
    "scheduler.plugins": "shard:plugins",
    "scheduler.actions": "shard:actions",
    "scheduler.scenarioSearchBudgets": "shard:scenarioSearchBudgets",
    "scheduler.goMemLimit": "shard:goMemLimit",
    "scheduler.goMemLimitRatio": "shard:goMemLimitRatio",
}
"""Values of KAI's chart and the fields that they fill; ``shard:`` is the default shard's."""

HELM_NOT: Final[Mapping[str, str]] = {
    "global.registry": OWN_IMAGE,
    "global.tag": OWN_IMAGE,
    "global.imagePullPolicy": OWN_IMAGE,
    "global.imagePullSecrets": "write values imagePullSecrets",
    "global.fipsMode": "there is no second image",
    "global.leaderElection": "there is no operator",
    "global.podSecurityContext": "our pods pass the restricted profile as they are",
    "operator": "there is no operator",
    "defaultQueue": "set defaults.queues, or keep your queues: they stay when KAI goes",
    "defaultPriorityClasses": "set defaults.priorityClasses, or keep your classes",
    "defaultShard": "shards are objects: yours stay when KAI goes",
    "kaiConfigDeployer": "no object of ours lives in a hook",
    "kaiConfig": "no object of ours lives in a hook",
    "topologyMigration": "topologies stay as they are",
    "postCleanup": "nothing is left behind that needs it",
    "crdupgrader": "kai-cp crds --apply installs what is missing",
}
"""Values of KAI's chart that are not taken over, and why."""
