"""The values of the Helm chart, stated once: defaults, schema and documentation are made from these models.

``python deploy/make_chart.py`` writes ``values.yaml``, ``values.schema.json`` and the table of the chart's
``README.md`` from them; a test holds the files equal to what it writes. A field's name is the chart's key
(camel case, as Helm's guide asks), its description the comment in ``values.yaml``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, JsonValue
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from kai_cp.kube.api.access import ControllerName
from kai_cp_models.settings import Settings

Quantity = Annotated[str, Field(pattern=r"^[0-9.]+(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")]
Cores = Quantity | Annotated[float, Field(gt=0)]
"""Also without quotes, as `cpu: 2` is written everywhere."""
_DNS: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
DnsLabel = Annotated[str, Field(pattern=f"^{_DNS}$")]
"""Name of a namespace and the like."""
DnsLabelOrEmpty = Annotated[str, Field(pattern=f"^({_DNS})?$")]
DnsNameOrEmpty = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$")]
_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
Label = Annotated[str, Field(pattern=f"^{_LABEL}$")]
"""Value of a label."""
LabelOrEmpty = Annotated[str, Field(pattern=f"^({_LABEL})?$")]
_KEY: Final = f"([a-z0-9.-]{{1,253}}/)?{_LABEL}"
_LABELLED: Final[dict[str, JsonValue]] = {f"^{_KEY}$": {"type": "string", "pattern": f"^({_LABEL})?$"}}
Labels = Annotated[
    dict[str, str],
    Field(json_schema_extra={"additionalProperties": False, "patternProperties": _LABELLED}),
]
Port = Annotated[int, Field(ge=1, le=65_535)]
Free = dict[str, Any]
"""A fragment of a Kubernetes object, put into the manifest as it is."""


class _Checked:
    """Only what is given goes into the manifest, but the schema refuses what the process would."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(Settings.__pydantic_core_schema__)


EngineSettings = Annotated[Free, _Checked()]
"""Some of the engine's settings, under the names of a settings file."""


class Values(BaseModel):
    """A part of the values; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


class Image(Values):
    """The image of every process; GPU reservation pods run the same one."""

    registry: Annotated[
        str,
        Field(
            description="Registry host. Empty: the default of the container runtime.",
            pattern=r"^[A-Za-z0-9._:/-]*$",
        ),
        Field(json_schema_extra={"not": {"pattern": "://"}}),
    ] = ""
    repository: Annotated[
        str, Field(description="Repository of the image.", pattern=r"^[a-z0-9]+([._/-]+[a-z0-9]+)*$")
    ] = "kai-cp"
    tag: Annotated[
        str,
        Field(
            description="Tag. Empty: the chart's appVersion. Has no effect if a digest is given.",
            pattern=r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$",
        ),
    ] = ""
    digest: Annotated[
        str, Field(description="Digest (`sha256:…`). Pins the image.", pattern=r"^(sha256:[0-9a-f]{64})?$")
    ] = ""
    pullPolicy: Annotated[
        Literal["Always", "IfNotPresent", "Never"], Field(description="Pull policy of the image.")
    ] = "IfNotPresent"


class Requests(Values):
    """Amounts of CPU and memory."""

    cpu: Annotated[Cores | None, Field(description="Amount of CPU.")] = None
    memory: Annotated[Quantity | None, Field(description="Amount of memory.")] = None


OURS: Final = r"^(app\.kubernetes\.io/(name|instance|version|managed-by|component)|helm\.sh/chart|kai-cp/.*)$"
NOT_OURS: Final = Field(
    json_schema_extra={"additionalProperties": False, "patternProperties": {OURS: False, **_LABELLED}}
)
"""The chart writes these labels itself, and a key that is there twice is an error."""


class Resources(Values):
    """Requests and limits of a container; docs/sizing.md has the measured table."""

    requests: Annotated[Requests, Field(description="Requests of the container.")] = Requests()
    limits: Annotated[Requests, Field(description="Limits of the container. No CPU limit by default.")] = (
        Requests()
    )


class Placement(Values):
    """Where pods of a process run."""

    nodeSelector: Annotated[dict[str, str], Field(description="Node selector of the pods.")] = {}
    tolerations: Annotated[list[Free], Field(description="Tolerations of the pods.")] = []
    affinity: Annotated[
        Free, Field(description="Affinity of the pods. Empty: the replicas prefer different nodes.")
    ] = {}
    topologySpreadConstraints: Annotated[
        list[Free], Field(description="Topology spread constraints of the pods.")
    ] = []
    priorityClassName: Annotated[DnsNameOrEmpty, Field(description="PriorityClass of the pods.")] = (
        "system-cluster-critical"
    )
    podAnnotations: Annotated[dict[str, str], Field(description="Annotations of the pods.")] = {}
    podLabels: Annotated[Labels, Field(description="Additional labels of the pods."), NOT_OURS] = {}


class Process(Placement):
    """A Deployment."""

    replicas: Annotated[int, Field(description="Number of pods. One leads, the others stand by.", ge=0)] = 2
    resources: Annotated[Resources, Field(description="CPU and memory.")] = Resources()
    extraArgs: Annotated[
        list[str], Field(description="Additional flags of the process, as on its command line.")
    ] = []
    extraEnv: Annotated[
        list[Free], Field(description="Environment variables of the container, for example for a proxy.")
    ] = []


class Scheduler(Process):
    """`kai-cp scheduler`."""

    resources: Annotated[Resources, Field(description="CPU and memory.")] = Resources(
        requests=Requests(cpu="1", memory="512Mi"), limits=Requests(memory="2Gi")
    )
    schedulePeriod: Annotated[
        str,
        Field(
            description="Longest pause between cycles while changes come.",
            pattern=r"^([0-9]+([.][0-9]+)?(ms|s|m|h))+$",
        ),
    ] = "1s"
    settings: Annotated[
        EngineSettings,
        Field(description="Settings of the engine (docs/settings.md)."),
    ] = {}
    anonymize: Annotated[
        bool, Field(description="Replace all names in what `/get-snapshot` and the page serve.")
    ] = False


class Binder(Process):
    """`kai-cp binder`; installed in mode *enforce* only."""

    enabled: Annotated[
        bool, Field(description="Install the binder of kai_cp in mode enforce. False: KAI's binder stays.")
    ] = True
    resources: Annotated[Resources, Field(description="CPU and memory.")] = Resources(
        requests=Requests(cpu="250m", memory="256Mi"), limits=Requests(memory="1Gi")
    )
    cdiEnabled: Annotated[
        bool, Field(description="Name devices as the Container Device Interface (CDI) does.")
    ] = False
    hamiCoreEnabled: Annotated[bool, Field(description="Write memory limits that HAMi-core enforces.")] = (
        False
    )
    mpsLimits: Annotated[
        bool, Field(description="Limit pods with the annotation `mps` to their share of the GPU.")
    ] = False


class Scaling(Values):
    """Pods that make a cluster autoscaler act (node-scale-adjuster)."""

    namespace: Annotated[DnsLabel, Field(description="Namespace of the scaling pods.")] = "kai-scale-adjust"
    create: Annotated[
        bool,
        Field(
            description="Create this namespace and the account in it. Leave it false where KAI is installed."
        ),
    ] = False


class DefaultPriorities(Values):
    """The ConfigMap in which KAI's pod grouper finds the priority class of a kind that names none."""

    configMap: Annotated[DnsNameOrEmpty, Field(description="Its name; empty: there is none.")] = ""
    namespace: Annotated[DnsLabelOrEmpty, Field(description="Its namespace; empty: the release's.")] = ""


class Controllers(Process):
    """`kai-cp controllers`."""

    enabled: Annotated[
        list[ControllerName],
        Field(
            description="Which controllers run, each in place of KAI's part of the same name: "
            "`podgrouper`, `podgroup-controller`, `queue-controller`, `shards`, "
            "`node-scale-adjuster`, `provisioning-requests`. Empty: nothing is installed.",
            json_schema_extra={"uniqueItems": True},
        ),
    ] = []
    resources: Annotated[Resources, Field(description="CPU and memory.")] = Resources(
        requests=Requests(cpu="250m", memory="256Mi"), limits=Requests(memory="1Gi")
    )
    scaling: Annotated[Scaling, Field(description="Pods that make a cluster autoscaler act.")] = Scaling()
    defaultPriorities: Annotated[
        DefaultPriorities,
        Field(description="Defaults by kind: the only ConfigMap that the pod grouper may read."),
    ] = DefaultPriorities()


class Admission(Process):
    """`kai-cp admission`; one release of a cluster only, as its registrations have KAI's names."""

    enabled: Annotated[bool, Field(description="Install the webhooks of kai_cp in place of KAI's.")] = False
    resources: Annotated[Resources, Field(description="CPU and memory.")] = Resources(
        requests=Requests(cpu="100m", memory="128Mi"), limits=Requests(memory="512Mi")
    )
    failurePolicy: Annotated[
        Literal["Fail", "Ignore"],
        Field(
            description="What happens while admission does not answer. Fail: pods that ask for a part of "
            "a GPU, and changes of queues, pod groups and topologies, are refused, so no new "
            "workload gets its pod group. Ignore: all of them are admitted unchecked, and "
            "pods that ask for a part of a GPU start without their devices."
        ),
    ] = "Fail"
    gpuSharing: Annotated[bool, Field(description="Admit pods that ask for a part of a GPU.")] = True


class Defaults(Values):
    """KAI's default objects."""

    queues: Annotated[
        bool,
        Field(
            description="Create the queues default-parent-queue and default-queue. KAI's chart creates "
            "them, too."
        ),
    ] = False
    priorityClasses: Annotated[
        bool,
        Field(
            description="Create the PriorityClasses train, build-preemptible, build and inference. KAI's "
            "chart creates them, too."
        ),
    ] = False


class Reservation(Values):
    """Pods that hold a shared GPU."""

    namespace: Annotated[
        DnsLabel, Field(description="Namespace of the reservation pods. The default is KAI's.")
    ] = "kai-resource-reservation"
    createNamespace: Annotated[
        bool, Field(description="Create this namespace. Leave it false where KAI is installed.")
    ] = False
    createServiceAccount: Annotated[
        bool,
        Field(
            description="Create the account and the role of the reservation pods. Leave it false where "
            "KAI is installed."
        ),
    ] = False
    serviceAccountName: Annotated[DnsLabel, Field(description="Account of the reservation pods.")] = (
        "kai-resource-reservation"
    )
    appLabel: Annotated[Label, Field(description="Value of the label `app` of the reservation pods.")] = (
        "kai-resource-reservation"
    )
    runtimeClassName: Annotated[
        DnsNameOrEmpty, Field(description="RuntimeClass of the reservation pods.")
    ] = ""


class Shard(Values):
    """One scheduler process per node pool."""

    name: Annotated[
        str,
        Field(
            description="Name of the shard. Names of objects contain it.",
            pattern=r"^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$",
        ),
    ]
    nodePool: Annotated[
        LabelOrEmpty,
        Field(
            description="Value of the node-pool label that this shard serves. Empty: nodes without the label."
        ),
    ] = ""
    schedulingShard: Annotated[
        DnsNameOrEmpty,
        Field(description="SchedulingShard whose configuration the shard takes. Empty: the defaults."),
    ] = ""
    resources: Annotated[
        Resources | None, Field(description="CPU and memory, instead of scheduler.resources.")
    ] = None
    settings: Annotated[
        EngineSettings,
        Field(description="Settings of the engine, which override those of scheduler.settings."),
    ] = {}
    extraArgs: Annotated[list[str], Field(description="Additional flags of this shard.")] = []


class Rbac(Values):
    """Roles and bindings."""

    create: Annotated[
        bool, Field(description="Create roles and bindings for the accounts of the processes.")
    ] = True
    reader: Annotated[
        bool, Field(description="Also create the read-only ClusterRole for people who use the command line.")
    ] = True
    crdInstaller: Annotated[
        bool, Field(description="Also create the ClusterRole that `kai-cp crds --apply` needs.")
    ] = False


class ServiceAccounts(Values):
    """Accounts of the processes."""

    create: Annotated[bool, Field(description="Create the accounts of the processes.")] = True
    annotations: Annotated[dict[str, str], Field(description="Annotations of these accounts.")] = {}


class ServiceMonitor(Values):
    """For the Prometheus operator."""

    enabled: Annotated[bool, Field(description="Create a ServiceMonitor.")] = False
    interval: Annotated[
        str, Field(description="How often Prometheus reads the metrics.", pattern=r"^[0-9]+(s|m)$")
    ] = "30s"
    labels: Annotated[
        Labels, Field(description="Labels by which your Prometheus selects ServiceMonitors.")
    ] = {}


class PrometheusRule(Values):
    """Alerts for the Prometheus operator."""

    enabled: Annotated[bool, Field(description="Create a PrometheusRule with the alerts.")] = False
    labels: Annotated[
        Labels, Field(description="Labels by which your Prometheus selects PrometheusRules.")
    ] = {}


class Dashboards(Values):
    """ConfigMaps for Grafana's sidecar."""

    enabled: Annotated[
        bool, Field(description="Create a ConfigMap for each of the four Grafana dashboards.")
    ] = False
    labels: Annotated[Labels, Field(description="Label by which Grafana's sidecar finds the dashboards.")] = {
        "grafana_dashboard": "1"
    }
    annotations: Annotated[
        dict[str, str], Field(description="Annotations of the dashboards, for example the folder in Grafana.")
    ] = {}
    namespace: Annotated[
        DnsLabelOrEmpty, Field(description="Namespace of the dashboards. Empty: that of the release.")
    ] = ""


class Monitoring(Values):
    """What Prometheus and Grafana are given."""

    serviceMonitor: Annotated[ServiceMonitor, Field(description="For the Prometheus operator.")] = (
        ServiceMonitor()
    )
    prometheusRule: Annotated[PrometheusRule, Field(description="Alerts for the Prometheus operator.")] = (
        PrometheusRule()
    )
    dashboards: Annotated[Dashboards, Field(description="ConfigMaps for Grafana's sidecar.")] = Dashboards()


class NetworkPolicy(Values):
    """Which peers may connect to our pods, and to which peers these connect."""

    enabled: Annotated[bool, Field(description="Create NetworkPolicies.")] = False
    metricsFrom: Annotated[
        list[Free], Field(description="Peers that may read the metrics. Empty: all pods.")
    ] = []
    apiServer: Annotated[
        list[Free], Field(description="Peers that are the API server. Empty: all addresses.")
    ] = []
    apiServerPorts: Annotated[list[Port], Field(description="Ports of the API server.", min_length=1)] = [
        443,
        6443,
    ]
    webhooksFrom: Annotated[
        list[Free],
        Field(description="Peers that may call the webhooks: the API server as pods see it; empty: any."),
    ] = []
    extraEgress: Annotated[
        list[Free], Field(description="Additional egress rules, for example to Prometheus.")
    ] = []


class DisruptionBudget(Values):
    """PodDisruptionBudgets of processes with more than one replica."""

    enabled: Annotated[
        bool, Field(description="Create a PodDisruptionBudget for each process with several pods.")
    ] = True
    maxUnavailable: Annotated[
        int, Field(description="How many pods of a process may be unavailable at once.", ge=1)
    ] = 1


class PriorityQuota(Values):
    """For clusters where pods of a system PriorityClass need a quota."""

    enabled: Annotated[
        bool,
        Field(
            description="Create a ResourceQuota for pods with a PriorityClass `system-…`. Some clusters "
            "(GKE) admit such pods outside kube-system only where a quota allows them."
        ),
    ] = True


class Policies(Values):
    """ValidatingAdmissionPolicies for our own accounts."""

    enabled: Annotated[
        bool,
        Field(
            description="Create admission policies that limit what the accounts of the processes may "
            "change, so that a stolen token does less harm (SECURITY.md). Created only where "
            "a process writes (advise, enforce, controllers)."
        ),
    ] = True
    otherSchedulers: Annotated[
        list[Annotated[str, Field(pattern=r"^system:serviceaccount:[a-z0-9.-]+:[a-z0-9.-]+$")]],
        Field(
            description="Accounts of schedulers that belong to other releases in this cluster "
            "(`system:serviceaccount:NAMESPACE:NAME`). They may write reservations of their pod groups, too."
        ),
    ] = []


class Crds(Values):
    """KAI's custom resource definitions."""

    install: Annotated[
        bool,
        Field(
            description="Install KAI's custom resource definitions with this release. Leave it false "
            "where KAI is installed."
        ),
    ] = False


class ChartValues(Values):
    """Everything that can be set."""

    mode: Annotated[
        Literal["observe", "advise", "enforce"],
        Field(
            description="observe: record plans, write nothing. advise: also write why pods wait. "
            "enforce: bind and evict. Read docs/observe-to-enforce.md before you enforce."
        ),
    ] = "observe"
    schedulerName: Annotated[
        str,
        Field(
            description="The `schedulerName` of the pods that this release schedules.",
            pattern=r"^[A-Za-z0-9._-]+$",
        ),
    ] = "kai-scheduler"
    nodePoolLabelKey: Annotated[
        str,
        Field(
            description="Label that divides the cluster into node pools. Empty: one pool.",
            pattern=f"^({_KEY})?$",
        ),
    ] = "kai.scheduler/node-pool"
    queueLabelKey: Annotated[str, Field(description="Label that names the queue.", pattern=f"^{_KEY}$")] = (
        "kai.scheduler/queue"
    )
    nameOverride: Annotated[
        DnsLabelOrEmpty, Field(description="Replaces the chart's name in the names of objects.")
    ] = ""
    fullnameOverride: Annotated[
        DnsLabelOrEmpty, Field(description="Replaces the whole prefix of the names of objects.")
    ] = ""
    commonLabels: Annotated[Labels, Field(description="Labels of all objects."), NOT_OURS] = {}
    image: Annotated[Image, Field(description="The image of every process.")] = Image()
    imagePullSecrets: Annotated[
        list[dict[str, str]], Field(description="Secrets for pulling the image, as `- name: NAME`.")
    ] = []
    openshift: Annotated[bool, Field(description="Set no user IDs, because OpenShift assigns them.")] = False
    logLevel: Annotated[
        int,
        Field(
            description="Verbosity, with KAI's meaning. From 5 on, debug messages are logged.", ge=0, le=10
        ),
    ] = 3
    scheduler: Annotated[Scheduler, Field(description="`kai-cp scheduler`, for every shard.")] = Scheduler()
    shards: Annotated[
        list[Shard],
        Field(description="Schedulers, one for each node pool; see deploy/README.md.", min_length=1),
    ] = [Shard(name="default")]
    binder: Annotated[Binder, Field(description="`kai-cp binder`, in mode enforce only.")] = Binder()
    controllers: Annotated[
        Controllers, Field(description="`kai-cp controllers`: the pod grouper and other controllers.")
    ] = Controllers()
    admission: Annotated[Admission, Field(description="`kai-cp admission`: the webhooks.")] = Admission()
    defaults: Annotated[Defaults, Field(description="KAI's default objects.")] = Defaults()
    reservation: Annotated[Reservation, Field(description="Reservation pods, which hold shared GPUs.")] = (
        Reservation()
    )
    rbac: Annotated[Rbac, Field(description="Roles and bindings.")] = Rbac()
    serviceAccounts: Annotated[ServiceAccounts, Field(description="Accounts of the processes.")] = (
        ServiceAccounts()
    )
    monitoring: Annotated[Monitoring, Field(description="Prometheus and Grafana.")] = Monitoring()
    networkPolicy: Annotated[NetworkPolicy, Field(description="Which connections the pods may have.")] = (
        NetworkPolicy()
    )
    podDisruptionBudget: Annotated[DisruptionBudget, Field(description="PodDisruptionBudgets.")] = (
        DisruptionBudget()
    )
    priorityQuota: Annotated[
        PriorityQuota, Field(description="For clusters where pods of a system PriorityClass need a quota.")
    ] = PriorityQuota()
    policies: Annotated[Policies, Field(description="Limits of what a stolen token may change.")] = Policies()
    crds: Annotated[Crds, Field(description="KAI's custom resource definitions.")] = Crds()
