"""What each process may ask of the API server: the one table that the chart's RBAC must equal.

Every call goes through :class:`kai_cp.kube.api.transport.Transport`, which refuses calls that are not listed.
The chart's roles are made from the table, and tests compare the table with the roles and with the source,
both ways.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.resources import Resource
from kai_cp.workloads.kinds import builtin_reads

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]
ControllerName = Literal[
    "podgrouper",
    "podgroup-controller",
    "queue-controller",
    "shards",
    "node-scale-adjuster",
    "provisioning-requests",
]
"""The controllers that ``kai-cp controllers`` may run; each has rights of its own, so that one that is off
has none.
"""
Process = Literal[
    "scheduler",
    "node-pools",
    "binder",
    "gpu-reservation",
    "reader",
    "admin",
    "admission",
    "controllers",
    ControllerName,
]


class Grant(NamedTuple):
    """One verb on one resource; ``subresource`` as in ``pods/status``. ``scope``: the namespace it is limited
    to, by the role it is in: "" is the whole cluster, ``system`` our own, ``reservation`` KAI's for GPU
    reservation pods, ``scaling`` KAI's for pods that make autoscalers act, ``defaults`` that of the ConfigMap
    of defaults by kind, whose name is an option."""

    verb: Verb
    group: str
    resource: str
    scope: str = ""
    name: str = ""
    """The only object it is for; "": every one."""


def grants(
    verbs: str, *kinds: Resource, subresource: str = "", scope: str = "", names: Iterable[str] = ("",)
) -> Iterable[Grant]:
    """Grants of every verb in ``verbs`` (space separated) on every kind, or on objects of these ``names``."""
    for kind in kinds:
        for verb in verbs.split():
            plural = f"{kind.plural}/{subresource}" if subresource else kind.plural
            for name in names:
                yield Grant(verb, kind.group, plural, scope, name)  # type: ignore[arg-type]


BINDER_LEASE: Final = "kai-cp-binder"
CONTROLLERS_LEASE: Final = "kai-cp-controllers"
"""All leases that binder and controllers may take; those of schedulers are named after what
they serve.
"""
ADMISSION_SECRET: Final = "kai-cp-admission-tls"
"""The only Secret that the program reads: the certificate that admission makes for itself."""
MUTATING_CONFIGURATIONS: Final = ("mutating-kai-admission",)
VALIDATING_CONFIGURATIONS: Final = (
    "validating-kai-admission",
    "kai-queue-validation-v2",
    "kai-podgroup-validation-v2alpha2",
)
"""Webhook configurations have KAI's names: with a second set under other names, both would be called
(components, 2.1).
"""

READ: Final = (
    r.PODS,
    r.NODES,
    r.CONFIG_MAPS,
    r.VOLUMES,
    r.VOLUME_CLAIMS,
    r.PRIORITY_CLASSES,
    r.STORAGE_CLASSES,
    r.CSI_DRIVERS,
    r.CSI_CAPACITIES,
    r.RESOURCE_CLAIMS,
    r.RESOURCE_SLICES,
    r.DEVICE_CLASSES,
    r.DEVICE_TAINT_RULES,
    r.QUEUES,
    r.POD_GROUPS,
    r.BIND_REQUESTS,
    r.TOPOLOGIES,
    r.NODE_TOPOLOGIES,
    r.NAMESPACES,
    r.DISRUPTION_BUDGETS,
    r.CSI_NODES,
)
"""What a snapshot is made of (snapshot format, section 2)."""

OWNERS: Final = tuple(Resource(group, "", f"{kind.lower()}s", kind) for group, kind in builtin_reads())
"""Kinds of workloads that the pod grouper knows; others are granted to it by an administrator."""

ACCESS: Final[dict[Process, frozenset[Grant]]] = {
    "scheduler": frozenset(
        [
            *grants("list watch", *READ),
            *grants("list", r.ADMISSION_POLICIES, r.ADMISSION_POLICY_BINDINGS),
            *grants("get create delete", r.BIND_REQUESTS),
            *grants("get delete", r.PODS),
            *grants("create", r.PODS, subresource="eviction"),
            *grants("patch", r.PODS, subresource="status"),
            *grants("patch", r.POD_GROUPS),
            *grants("patch", r.POD_GROUPS, subresource="status"),
            *grants("create patch", r.EVENTS),
            *grants("get create update", r.LEASES, scope="system"),
        ]
    ),
    "node-pools": frozenset([*grants("get", r.SHARDS), *grants("patch", r.PODS)]),
    "binder": frozenset(
        [
            *grants("list watch", r.PODS, r.NODES, r.BIND_REQUESTS, r.VOLUMES, r.VOLUME_CLAIMS),
            *grants("list watch", r.STORAGE_CLASSES),
            *grants("get create patch delete", r.RESOURCE_CLAIMS),
            *grants("create", r.PODS, subresource="binding"),
            *grants("get patch", r.PODS),
            *grants("patch", r.VOLUME_CLAIMS, r.VOLUMES),
            *grants("patch", r.PODS, subresource="status"),
            *grants("delete", r.PODS),
            *grants("patch", r.BIND_REQUESTS, subresource="status"),
            *grants("update", r.RESOURCE_CLAIMS, subresource="status"),
            *grants("update", r.RESOURCE_CLAIMS, subresource="binding"),
            *grants("create patch delete", r.CONFIG_MAPS),
            *grants("create patch", r.EVENTS),
            *grants("create", r.PODS, scope="reservation"),
            *grants("create", r.LEASES, scope="system"),
            *grants("get update", r.LEASES, scope="system", names=[BINDER_LEASE]),
        ]
    ),
    "gpu-reservation": frozenset(grants("patch", r.PODS, scope="reservation")),
    "reader": frozenset(
        [
            *grants("get list watch", *READ),
            *grants("get list watch", r.SHARDS),
            *grants("list", r.CONFIGS),
            *grants("create", r.ACCESS_REVIEWS),
        ]
    ),
    "admin": frozenset(grants("get create", r.CRDS)),
    "admission": frozenset(
        [
            *grants("list watch", r.QUEUES, r.RUNTIME_CLASSES),
            *grants("get update", r.SECRETS, scope="system", names=[ADMISSION_SECRET]),
            *grants("get update", r.MUTATING_WEBHOOKS, names=MUTATING_CONFIGURATIONS),
            *grants("get update", r.VALIDATING_WEBHOOKS, names=VALIDATING_CONFIGURATIONS),
        ]
    ),
    "controllers": frozenset(
        [
            *grants("create patch", r.EVENTS),
            *grants("create", r.LEASES, scope="system"),
            *grants("get update", r.LEASES, scope="system", names=[CONTROLLERS_LEASE]),
        ]
    ),
    "podgrouper": frozenset(
        [
            *grants("get list watch", *OWNERS),
            *grants("get list watch patch", r.PODS),
            *grants("get list watch create patch", r.POD_GROUPS),
            *grants("list watch", r.PRIORITY_CLASSES, r.KARTAS, r.NAMESPACES),
            *grants("get", r.CONFIG_MAPS, scope="defaults"),
        ]
    ),
    "podgroup-controller": frozenset(
        [
            *grants("list watch", r.PODS, r.POD_GROUPS, r.PRIORITY_CLASSES, r.RESOURCE_CLAIMS),
            *grants("get", r.NODES),
            *grants("patch", r.POD_GROUPS, subresource="status"),
        ]
    ),
    "queue-controller": frozenset(
        [
            *grants("list watch", r.QUEUES, r.POD_GROUPS),
            *grants("patch", r.QUEUES, subresource="status"),
        ]
    ),
    "node-scale-adjuster": frozenset(
        [
            *grants("list watch", r.PODS, r.POD_GROUPS, r.BIND_REQUESTS),
            *grants("create delete", r.PODS, scope="scaling"),
            *grants("patch", r.PODS, subresource="status", scope="scaling"),
        ]
    ),
    "provisioning-requests": frozenset(
        [
            *grants("list watch", r.PODS, r.POD_GROUPS),
            *grants("patch", r.PODS),
            *grants("list watch create delete", r.PROVISIONING_REQUESTS),
            *grants("create delete", r.POD_TEMPLATES),
        ]
    ),
    "shards": frozenset(
        [
            *grants("list watch", r.SHARDS, r.CONFIGS),
            *grants("patch", r.SHARDS, subresource="status"),
            *grants("get create update", r.DEPLOYMENTS, scope="system"),
        ]
    ),
}
"""Declared access by process. ``reader`` is the command line's, ``admin`` that of ``kai-cp crds --apply``."""

WITH_OPTIONS: Final[dict[Process, Process]] = {"scheduler": "node-pools"}
"""Rights that a process needs only with an option: a scheduler with a SchedulingShard or a node pool. The
chart grants them where the option is set."""


def permits(process: Process, verb: Verb, resource: Resource, subresource: str, namespace: str) -> bool:
    """Whether the table allows the call. A scoped grant needs a namespace; RBAC knows which one."""
    options = ACCESS[WITH_OPTIONS[process]] if process in WITH_OPTIONS else ()
    return listed([*ACCESS[process], *options], verb, resource, subresource, namespace)


def listed(
    allowed: Iterable[Grant], verb: Verb, resource: Resource, subresource: str, namespace: str
) -> bool:
    """Whether one of the grants allows the call."""
    name = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return any(
        grant[:3] == (verb, resource.group, name) and (not grant.scope or bool(namespace))
        for grant in allowed
    )
