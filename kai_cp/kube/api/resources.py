"""The kinds of object this program reads or writes, and where the API serves them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import quote

_NO_NAME: Final = re.compile(r"\.{0,2}|.*[/%].*", re.DOTALL)


class Resource(NamedTuple):
    """One kind: API group ("" for core), version, plural, Kind, and whether it lives in namespaces."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Value of ``apiVersion`` in its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def at(self, version: str) -> Resource:
        """The same kind in another version."""
        return self._replace(version=version)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of the collection, of the object ``name`` (see :func:`is_name`), or of a subresource."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, quote(name, safe=":"), subresource) if part]
        return "/".join(parts)


def is_name(text: str) -> bool:
    """Whether the API server takes a text for the name of an object. Tenants write any text where an object
    names another one, and as a part of a path it would lead elsewhere.
    """
    return not _NO_NAME.fullmatch(text)


PODS: Final = Resource("", "v1", "pods", "Pod")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS: Final = Resource("", "v1", "events", "Event")
VOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
VOLUME_CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
CSI_NODES: Final = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
STORAGE_CLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CSI_DRIVERS: Final = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
CSI_CAPACITIES: Final = Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity")
RESOURCE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_SLICES: Final = Resource(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False
)
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
DEVICE_TAINT_RULES: Final = Resource(
    "resource.k8s.io", "v1beta2", "devicetaintrules", "DeviceTaintRule", namespaced=False
)
ADMISSION_POLICIES: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False
)
ADMISSION_POLICY_BINDINGS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
QUEUES: Final = Resource("scheduling.run.ai", "v2", "queues", "Queue", namespaced=False)
POD_GROUPS: Final = Resource("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup")
BIND_REQUESTS: Final = Resource("scheduling.run.ai", "v1alpha2", "bindrequests", "BindRequest")
TOPOLOGIES: Final = Resource("kai.scheduler", "v1alpha1", "topologies", "Topology", namespaced=False)
SHARDS: Final = Resource("kai.scheduler", "v1", "schedulingshards", "SchedulingShard", namespaced=False)
CONFIGS: Final = Resource("kai.scheduler", "v1", "configs", "Config", namespaced=False)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
POD_TEMPLATES: Final = Resource("", "v1", "podtemplates", "PodTemplate")
PROVISIONING_REQUESTS: Final = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest"
)
NODE_TOPOLOGIES: Final = Resource(
    "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", "NodeResourceTopology", namespaced=False
)
RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
KARTAS: Final = Resource("run.ai", "v1alpha1", "kartas", "Karta", namespaced=False)
CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
