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
        Field(description="Registry host; empty: the node's default.", pattern=r"^[A-Za-z0-9._:/-]*$"),
        Field(json_schema_extra={"not": {"pattern": "://"}}),
    ] = ""
    repository: Annotated[
        str, Field(description="Repository.", pattern=r"^[a-z0-9]+([._/-]+[a-z0-9]+)*$")
    ] = "kai-cp"
    tag: Annotated[
        str,
        Field(
            description="Tag; empty: the chart's appVersion. A digest beats it.",
            pattern=r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$",
        ),
    ] = ""
    digest: Annotated[
        str, Field(description="Digest, the way to pin an image.", pattern=r"^(sha256:[0-9a-f]{64})?$")
    ] = ""
    pullPolicy: Annotated[
        Literal["Always", "IfNotPresent", "Never"], Field(description="When the image is pulled.")
    ] = "IfNotPresent"


class Requests(Values):
    """Amounts of CPU and memory."""

    cpu: Annotated[Cores | None, Field(description="CPU.")] = None
    memory: Annotated[Quantity | None, Field(description="Memory.")] = None


OURS: Final = r"^(app\.kubernetes\.io/(name|instance|version|managed-by|component)|helm\.sh/chart|kai-cp/.*)$"
NOT_OURS: Final = Field(
    json_schema_extra={"additionalProperties": False, "patternProperties": {OURS: False, **_LABELLED}}
)
"""The chart writes these labels itself, and a key that is there twice is an error."""


class Resources(Values):
    """Requests and limits of a container; docs/sizing.md has the measured table."""

    requests: Annotated[Requests, Field(description="What the container is given.")] = Requests()
    limits: Annotated[Requests, Field(description="What it may not exceed; no CPU limit by default.")] = (
        Requests()
    )


class Placement(Values):
    """Where pods of a process run."""

    nodeSelector: Annotated[dict[str, str], Field(description="Labels of the nodes it may run on.")] = {}
    tolerations: Annotated[list[Free], Field(description="Taints it accepts.")] = []
    affinity: Annotated[Free, Field(description="Affinity; empty: replicas prefer different nodes.")] = {}
    topologySpreadConstraints: Annotated[list[Free], Field(description="Spread over zones.")] = []
    priorityClassName: Annotated[DnsNameOrEmpty, Field(description="PriorityClass of the pods.")] = (
        "system-cluster-critical"
    )
    podAnnotations: Annotated[dict[str, str], Field(description="Annotations of the pods.")] = {}
    podLabels: Annotated[Labels, Field(description="Further labels of the pods."), NOT_OURS] = {}


class Process(Placement):
    """A Deployment."""

    replicas: Annotated[int, Field(description="Processes; one leads, the others stand by.", ge=0)] = 2
    resources: Annotated[Resources, Field(description="CPU and memory.")] = Resources()
    extraArgs: Annotated[list[str], Field(description="Further flags, as on the command line.")] = []
    extraEnv: Annotated[
        list[Free], Field(description="Environment variables of the container, for example of a proxy.")
    ] = []


class Scheduler(Process):
    """`kai-cp scheduler`."""

    resources: Annotated[Resources, Field(description="CPU and memory.")] = Resources(
        requests=Requests(cpu="1", memory="512Mi"), limits=Requests(memory="2Gi")
    )
    schedulePeriod: Annotated[
        str,
        Field(
            description="Least time between cycles under load.", pattern=r"^([0-9]+([.][0-9]+)?(ms|s|m|h))+$"
        ),
    ] = "1s"
    settings: Annotated[
        EngineSettings,
        Field(description="Settings of the engine, see docs/settings.md."),
    ] = {}
    anonymize: Annotated[bool, Field(description="Serve snapshots without names.")] = False


class Binder(Process):
    """`kai-cp binder`; installed in mode *enforce* only."""

    enabled: Annotated[bool, Field(description="Install our binder in mode enforce; false: KAI's binds.")] = (
        True
    )
    resources: Annotated[Resources, Field(description="CPU and memory.")] = Resources(
        requests=Requests(cpu="250m", memory="256Mi"), limits=Requests(memory="1Gi")
    )
    cdiEnabled: Annotated[bool, Field(description="Name devices as the container device interface does.")] = (
        False
    )
    hamiCoreEnabled: Annotated[bool, Field(description="Write memory limits that HAMi-core enforces.")] = (
        False
    )
    mpsLimits: Annotated[bool, Field(description="Hold pods with annotation mps to their share.")] = False


class Scaling(Values):
    """Pods that make a cluster autoscaler act (node-scale-adjuster)."""

    namespace: Annotated[DnsLabel, Field(description="Their namespace.")] = "kai-scale-adjust"
    create: Annotated[
        bool,
        Field(description="Create the namespace and the account. KAI creates them where it is installed."),
    ] = False


class Controllers(Process):
    """`kai-cp controllers`."""

    enabled: Annotated[
        list[ControllerName],
        Field(
            description="What runs, in place of KAI's part of the same name; empty: nothing is installed.",
            json_schema_extra={"uniqueItems": True},
        ),
    ] = []
    resources: Annotated[Resources, Field(description="CPU and memory.")] = Resources(
        requests=Requests(cpu="250m", memory="256Mi"), limits=Requests(memory="1Gi")
    )
    scaling: Annotated[Scaling, Field(description="Pods that make a cluster autoscaler act.")] = Scaling()


class Admission(Process):
    """`kai-cp admission`; one release of a cluster only, as its registrations have KAI's names."""

    enabled: Annotated[
        bool, Field(description="Install it and register it, in place of KAI's admission.")
    ] = False
    resources: Annotated[Resources, Field(description="CPU and memory.")] = Resources(
        requests=Requests(cpu="100m", memory="128Mi"), limits=Requests(memory="512Mi")
    )
    failurePolicy: Annotated[
        Literal["Fail", "Ignore"],
        Field(
            description="While it does not answer: Fail refuses our pods with a part of a GPU, and changes "
            "of queues, pod groups and topologies, so that no new workload gets its pod group; Ignore lets "
            "all in unjudged, and pods with a part of a GPU then start without their devices."
        ),
    ] = "Fail"
    gpuSharing: Annotated[bool, Field(description="Pods may ask for a part of a GPU.")] = True


class Defaults(Values):
    """KAI's default objects."""

    queues: Annotated[
        bool, Field(description="Make default-parent-queue and default-queue. KAI's chart makes them too.")
    ] = False
    priorityClasses: Annotated[
        bool, Field(description="Make train, build-preemptible, build and inference. KAI's chart does, too.")
    ] = False


class Reservation(Values):
    """Pods that hold a shared GPU."""

    namespace: Annotated[
        DnsLabel, Field(description="Their namespace. The default is KAI's, and KAI may have created it.")
    ] = "kai-resource-reservation"
    createNamespace: Annotated[
        bool, Field(description="Make the namespace. Leave it false where KAI is installed.")
    ] = False
    createServiceAccount: Annotated[
        bool, Field(description="Make their account and role. Leave it false where KAI is installed.")
    ] = False
    serviceAccountName: Annotated[DnsLabel, Field(description="Their account.")] = "kai-resource-reservation"
    appLabel: Annotated[Label, Field(description="Their label `app`.")] = "kai-resource-reservation"
    runtimeClassName: Annotated[DnsNameOrEmpty, Field(description="Runtime class of these pods.")] = ""


class Shard(Values):
    """One scheduler process per node pool."""

    name: Annotated[
        str,
        Field(description="Name, a part of object names.", pattern=r"^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$"),
    ]
    nodePool: Annotated[
        LabelOrEmpty,
        Field(description="Value of the node-pool label served; empty: nodes without the label."),
    ] = ""
    schedulingShard: Annotated[
        DnsNameOrEmpty,
        Field(description="SchedulingShard object whose configuration is taken; empty: defaults."),
    ] = ""
    resources: Annotated[
        Resources | None, Field(description="CPU and memory, instead of the scheduler's.")
    ] = None
    settings: Annotated[
        EngineSettings, Field(description="Settings of the engine laid over the scheduler's.")
    ] = {}
    extraArgs: Annotated[list[str], Field(description="Further flags of this shard.")] = []


class Rbac(Values):
    """Roles and bindings."""

    create: Annotated[bool, Field(description="Make roles and bindings for our accounts.")] = True
    reader: Annotated[
        bool, Field(description="Also make the read-only ClusterRole for people who use the command line.")
    ] = True
    crdInstaller: Annotated[
        bool, Field(description="Also create the ClusterRole that `kai-cp crds --apply` needs.")
    ] = False


class ServiceAccounts(Values):
    """Accounts of the processes."""

    create: Annotated[bool, Field(description="Make them.")] = True
    annotations: Annotated[dict[str, str], Field(description="Their annotations.")] = {}


class ServiceMonitor(Values):
    """For the Prometheus operator."""

    enabled: Annotated[bool, Field(description="Make a ServiceMonitor.")] = False
    interval: Annotated[str, Field(description="How often metrics are read.", pattern=r"^[0-9]+(s|m)$")] = (
        "30s"
    )
    labels: Annotated[Labels, Field(description="Labels that your Prometheus selects.")] = {}


class PrometheusRule(Values):
    """Alerts for the Prometheus operator."""

    enabled: Annotated[bool, Field(description="Make a PrometheusRule with the alerts.")] = False
    labels: Annotated[Labels, Field(description="Labels that your Prometheus selects.")] = {}


class Dashboards(Values):
    """ConfigMaps for Grafana's sidecar."""

    enabled: Annotated[bool, Field(description="Make the four dashboards.")] = False
    labels: Annotated[Labels, Field(description="Label that the sidecar looks for.")] = {
        "grafana_dashboard": "1"
    }
    annotations: Annotated[dict[str, str], Field(description="Annotations, for example the folder.")] = {}
    namespace: Annotated[DnsLabelOrEmpty, Field(description="Their namespace; empty: the release's.")] = ""


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

    enabled: Annotated[bool, Field(description="Make NetworkPolicies.")] = False
    metricsFrom: Annotated[list[Free], Field(description="Peers that may read metrics; empty: any pod.")] = []
    apiServer: Annotated[
        list[Free], Field(description="Peers that are the API server; empty: any address.")
    ] = []
    apiServerPorts: Annotated[list[Port], Field(description="Ports of the API server.")] = [443, 6443]
    extraEgress: Annotated[
        list[Free], Field(description="Further egress rules, for example to Prometheus.")
    ] = []


class DisruptionBudget(Values):
    """PodDisruptionBudgets of processes with more than one replica."""

    enabled: Annotated[bool, Field(description="Make them.")] = True
    maxUnavailable: Annotated[int, Field(description="Pods that may be unavailable at once.", ge=1)] = 1


class PriorityQuota(Values):
    """For clusters where pods of a system PriorityClass need a quota."""

    enabled: Annotated[
        bool,
        Field(
            description="Make the ResourceQuota without which some clusters (GKE) admit no pods of a class "
            "`system-…` outside kube-system."
        ),
    ] = True


class Policies(Values):
    """ValidatingAdmissionPolicies for our own accounts."""

    enabled: Annotated[
        bool,
        Field(
            description="Where anything of ours writes (advise, enforce, controllers): bound what a stolen "
            "token of ours may change (SECURITY.md)."
        ),
    ] = True
    otherSchedulers: Annotated[
        list[Annotated[str, Field(pattern=r"^system:serviceaccount:[a-z0-9.-]+:[a-z0-9.-]+$")]],
        Field(
            description="Accounts of the schedulers of other releases in this cluster "
            "(`system:serviceaccount:NAMESPACE:NAME`): they, too, write reservations of their pod groups."
        ),
    ] = []


class Crds(Values):
    """KAI's custom resource definitions."""

    install: Annotated[
        bool,
        Field(
            description="Install them with this release. Leave it false where KAI is installed: it owns them."
        ),
    ] = False


class ChartValues(Values):
    """Everything that can be set."""

    mode: Annotated[
        Literal["observe", "advise", "enforce"],
        Field(
            description="observe: record plans, write nothing; advise: also write why pods wait; "
            "enforce: bind and evict. See the README before you enforce."
        ),
    ] = "observe"
    schedulerName: Annotated[
        str, Field(description="schedulerName of the pods served.", pattern=r"^[A-Za-z0-9._-]+$")
    ] = "kai-scheduler"
    nodePoolLabelKey: Annotated[
        str,
        Field(
            description="Label that divides the cluster into node pools; empty: one pool.",
            pattern=f"^({_KEY})?$",
        ),
    ] = "kai.scheduler/node-pool"
    queueLabelKey: Annotated[str, Field(description="Label that names the queue.", pattern=f"^{_KEY}$")] = (
        "kai.scheduler/queue"
    )
    nameOverride: Annotated[
        DnsLabelOrEmpty, Field(description="Instead of the chart's name in object names.")
    ] = ""
    fullnameOverride: Annotated[
        DnsLabelOrEmpty, Field(description="Instead of the whole prefix of object names.")
    ] = ""
    commonLabels: Annotated[Labels, Field(description="Labels of every object."), NOT_OURS] = {}
    image: Annotated[Image, Field(description="The image of every process.")] = Image()
    imagePullSecrets: Annotated[
        list[dict[str, str]], Field(description="Secrets to pull it with, as `- name: NAME`.")
    ] = []
    openshift: Annotated[bool, Field(description="OpenShift gives user ids itself: none is set here.")] = (
        False
    )
    logLevel: Annotated[int, Field(description="Verbosity as KAI's; from 5 on, debug.", ge=0, le=10)] = 3
    scheduler: Annotated[Scheduler, Field(description="`kai-cp scheduler`, for every shard.")] = Scheduler()
    shards: Annotated[
        list[Shard], Field(description="Node pools: each entry is a scheduler of its own.", min_length=1)
    ] = [Shard(name="default")]
    binder: Annotated[Binder, Field(description="`kai-cp binder`, in mode enforce only.")] = Binder()
    controllers: Annotated[
        Controllers, Field(description="`kai-cp controllers`: pod grouper and the like.")
    ] = Controllers()
    admission: Annotated[Admission, Field(description="`kai-cp admission`: the webhooks.")] = Admission()
    defaults: Annotated[Defaults, Field(description="KAI's default objects.")] = Defaults()
    reservation: Annotated[Reservation, Field(description="Pods that hold a shared GPU.")] = Reservation()
    rbac: Annotated[Rbac, Field(description="Roles and bindings.")] = Rbac()
    serviceAccounts: Annotated[ServiceAccounts, Field(description="Accounts of the processes.")] = (
        ServiceAccounts()
    )
    monitoring: Annotated[Monitoring, Field(description="Prometheus and Grafana.")] = Monitoring()
    networkPolicy: Annotated[NetworkPolicy, Field(description="Who may talk to our pods.")] = NetworkPolicy()
    podDisruptionBudget: Annotated[DisruptionBudget, Field(description="PodDisruptionBudgets.")] = (
        DisruptionBudget()
    )
    priorityQuota: Annotated[
        PriorityQuota, Field(description="For clusters where pods of a system PriorityClass need a quota.")
    ] = PriorityQuota()
    policies: Annotated[Policies, Field(description="What a stolen token of ours may not change.")] = (
        Policies()
    )
    crds: Annotated[Crds, Field(description="KAI's custom resource definitions.")] = Crds()
