"""Small workloads of every kind of the table, as the objects that a cluster holds."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import yaml

from kai_cp.workloads.batch import group_documents
from kai_cp.workloads.settings import GroupingSettings

Object = dict[str, Any]
NAMESPACE = "team-a"


def grouped(*documents: Object, **settings: Any) -> Object:
    """What the pod grouper answers for the objects, with these settings."""
    return group_documents([{"kind": "GroupingSettings", "spec": settings}, *documents], GroupingSettings())


def uid(name: str) -> str:
    """The same uid for the same name."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name))


def made(api_version: str, kind: str, name: str, owner: Object | None = None, **fields: Any) -> Object:
    """An object; ``labels`` and ``annotations`` go to its metadata."""
    meta: Object = {"name": name, "namespace": NAMESPACE, "uid": uid(f"{kind}/{name}")}
    for key in ("labels", "annotations"):
        if key in fields:
            meta[key] = fields.pop(key)
    if owner is not None:
        above = owner["metadata"]
        meta["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": above["name"],
                "uid": above["uid"],
                "controller": True,
            }
        ]
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **fields}


def pod(name: str, owner: Object | None = None, **fields: Any) -> Object:
    """A pod of our scheduler that wants one GPU."""
    amounts = {"cpu": "1", "nvidia.com/gpu": "1"}
    needs = {"requests": amounts, "limits": amounts}
    spec = {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "main", "image": "a/b:1", "resources": needs}],
    }
    spec |= fields.pop("spec", {})
    return made("v1", "Pod", name, owner, spec=spec, **fields)


def chain(*links: tuple[str, str, str, Mapping[str, Any]]) -> list[Object]:
    """Owners from the top down, each owned by the one before: (apiVersion, kind, name, fields)."""
    found: list[Object] = []
    for api_version, kind, name, fields in links:
        above = found[-1] if found else None
        found.append(made(api_version, kind, name, above, **deepcopy(dict(fields))))
    return found


def kubeflow(kind: str, key: str, roles: Mapping[str, int], version: str = "v1") -> list[Object]:
    """A Kubeflow job with pods of every role."""
    specs = {role: {"replicas": count, "template": {}} for role, count in roles.items()}
    job = made(f"kubeflow.org/{version}", kind, "train", spec={key: specs})
    found = [job]
    for role, count in roles.items():
        for i in range(count):
            labels = {
                "training.kubeflow.org/job-name": "train",
                "training.kubeflow.org/replica-type": role.lower(),
                "training.kubeflow.org/replica-index": str(i),
            }
            found.append(pod(f"train-{role.lower()}-{i}", job, labels=labels))
    return found


RAY = yaml.safe_load("""
headGroupSpec: {template: {metadata: {annotations: {}}}}
workerGroupSpecs:
- {groupName: small, replicas: 2, minReplicas: 1, maxReplicas: 4, template: {}}
- {groupName: large, replicas: 1, numOfHosts: 2, template: {}}
""")
JOBSET = yaml.safe_load("""
replicatedJobs:
- {name: driver, replicas: 1, template: {spec: {parallelism: 1}}}
- {name: workers, replicas: 2, template: {spec: {parallelism: 2}}}
""")
LWS = {"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": {}}}
GANG = yaml.safe_load("""
podgroups:
- {name: prefill, minReplicas: 1, podReferences: [{namespace: team-a, name: serve-prefill}]}
- {name: decode, minReplicas: 1, podReferences: [{namespace: team-a, name: serve-decode}]}
topologyConstraintGroupConfigs:
- {name: both, podGroupNames: [prefill, decode]}
""")
KARTA = yaml.safe_load("""
structureDefinition:
  rootComponent:
    name: fleet
    kind: {group: example.com, version: v1, kind: Fleet}
    statusDefinition: {phaseDefinition: {path: .status.phase}}
  childComponents:
  - name: boss
    ownerRef: fleet
    specDefinition: {podTemplateSpecPath: .spec.boss.template}
    scaleDefinition: {replicasPath: .spec.boss.replicas}
    podSelector: {componentTypeSelector: {keyPath: '.metadata.labels["fleet/role"]', value: boss}}
  - name: crew
    ownerRef: fleet
    specDefinition: {podTemplateSpecPath: .spec.crew.template}
    scaleDefinition: {replicasPath: .spec.crew.replicas, minReplicasPath: .spec.crew.min}
    podSelector: {componentTypeSelector: {keyPath: '.metadata.labels["fleet/role"]', value: crew}}
optimizationInstructions:
  gangScheduling:
    podGroup: {name: all, subGroups: [{componentName: boss}, {componentName: crew}]}
""")


def karta() -> Object:
    """A Karta for ``Fleet.example.com``."""
    labels = {"run.ai/karta-group": "example.com", "run.ai/karta-version": "v1", "run.ai/karta-kind": "Fleet"}
    found = made("run.ai/v1alpha1", "Karta", "fleets", labels=labels, spec=deepcopy(KARTA))
    del found["metadata"]["namespace"]
    return found


def _ray(kind: str, status: Object) -> list[Object]:
    top = made("ray.io/v1", kind, "serve", spec={}, status=status)
    cluster = made("ray.io/v1", "RayCluster", "serve-c", top, spec=deepcopy(RAY))
    labels = {"headgroup": "serve-head", "small": "serve-small", "large": "serve-large"}
    pods = [pod(name, cluster, labels={"ray.io/group": group}) for group, name in labels.items()]
    return [top, cluster, *pods]


def _under(top: tuple[str, str], *below: tuple[str, str], **labels: str) -> list[Object]:
    """A pod below owners that have no fields."""
    names = [("top", top), *((f"top-{i}", link) for i, link in enumerate(below))]
    owners = chain(*((link[0], link[1], name, {"spec": {}}) for name, link in names))
    return [*owners, pod("top-pod", owners[-1], labels=labels)]


def samples() -> dict[str, list[Object]]:
    """Objects by the kind that decides: every kind of the table and some others."""
    job = made("batch/v1", "Job", "train", spec={"parallelism": 2})
    job["metadata"]["annotations"] = {"kai.scheduler/batch-min-member": "2"}
    cluster = made("ray.io/v1", "RayCluster", "serve", spec=deepcopy(RAY))
    jobset = made("jobset.x-k8s.io/v1alpha2", "JobSet", "train", spec=deepcopy(JOBSET))
    inner = made("batch/v1", "Job", "train-driver-0", jobset, spec={})
    lws = made("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "serve", spec=deepcopy(LWS))
    replicas = {"jobset.sigs.k8s.io/replicatedjob-name": "driver", "jobset.sigs.k8s.io/job-index": "0"}
    gang = made("scheduler.grove.io/v1alpha1", "PodGang", "serve-0", spec=deepcopy(GANG))
    clique = chain(
        ("grove.io/v1alpha1", "PodCliqueSet", "serve", {"spec": {}}),
        ("grove.io/v1alpha1", "PodClique", "serve-prefill", {"spec": {}}),
    )
    knative = chain(
        *(("serving.knative.dev/v1", kind, "hello", {"spec": {}}) for kind in ("Service", "Configuration")),
        (
            "serving.knative.dev/v1",
            "Revision",
            "hello-1",
            {"annotations": {"autoscaling.knative.dev/min-scale": "2"}},
        ),
        ("apps/v1", "Deployment", "hello-1", {}),
        ("apps/v1", "ReplicaSet", "hello-1-x", {}),
    )
    fleet = made(
        "example.com/v1", "Fleet", "f", spec={"boss": {"replicas": 1}, "crew": {"replicas": 4, "min": 2}}
    )
    aml = {"job": {"options": {"envs": {"AZUREML_NODE_COUNT": 2}}}}
    found = {
        "Pod": [pod("alone")],
        "Spark": [pod("driver", labels={"spark-app-name": "a", "spark-app-selector": "spark-1"})],
        "Deployment": _under(("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet")),
        "ReplicaSet": _under(("apps/v1", "ReplicaSet")),
        "StatefulSet": _under(("apps/v1", "StatefulSet")),
        "Job": [job, pod("train-a", job), pod("train-b", job)],
        "CronJob": _under(("batch/v1", "CronJob"), ("batch/v1", "Job")),
        "TFJob": kubeflow("TFJob", "tfReplicaSpecs", {"PS": 1, "Worker": 2}),
        "XGBoostJob": kubeflow("XGBoostJob", "xgbReplicaSpecs", {"Master": 1, "Worker": 1}),
        "JAXJob": kubeflow("JAXJob", "jaxReplicaSpecs", {"Worker": 2}),
        "PyTorchJob": kubeflow("PyTorchJob", "pytorchReplicaSpecs", {"Master": 1, "Worker": 4}),
        "MPIJob": kubeflow("MPIJob", "mpiReplicaSpecs", {"Launcher": 1, "Worker": 2}, "v2beta1"),
        "Notebook": _under(("kubeflow.org/v1beta1", "Notebook"), ("apps/v1", "StatefulSet")),
        "TrainJob": _under(("trainer.kubeflow.org/v1alpha1", "TrainJob"), ("batch/v1", "Job")),
        "RayCluster": [cluster, pod("serve-head", cluster, labels={"ray.io/group": "headgroup"})],
        "RayJob": _ray("RayJob", {"rayClusterName": "serve-c"}),
        "RayService": _ray("RayService", {"activeServiceStatus": {"rayClusterName": "serve-c"}}),
        "JobSet": [jobset, inner, pod("train-driver-0-0", inner, labels=replicas)],
        "LeaderWorkerSet": [
            lws,
            *(
                pod(
                    f"serve-0-{i}",
                    lws,
                    labels={
                        "leaderworkerset.sigs.k8s.io/group-index": "0",
                        "leaderworkerset.sigs.k8s.io/worker-index": str(i),
                    },
                )
                for i in range(3)
            ),
        ],
        "PodCliqueSet": [
            *clique,
            gang,
            pod("serve-prefill", clique[-1], labels={"grove.io/podgang": "serve-0"}),
        ],
        "DynamoGraphDeployment": _under(
            ("nvidia.com/v1", "DynamoGraphDeployment"), ("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet")
        ),
        "Service": [
            *knative,
            pod("hello-1-a", knative[-1], labels={"serving.knative.dev/revision": "hello-1"}),
        ],
        "Workflow": _under(("argoproj.io/v1alpha1", "Workflow")),
        "PipelineRun": _under(("tekton.dev/v1", "PipelineRun"), ("tekton.dev/v1", "TaskRun")),
        "SeldonDeployment": _under(("machinelearning.seldon.io/v1", "SeldonDeployment")),
        "VirtualMachineInstance": _under(("kubevirt.io/v1", "VirtualMachineInstance")),
        "DevWorkspace": _under(("workspace.devfile.io/v1alpha2", "DevWorkspace")),
        "AmlJob": [
            aml_job := made("amlarc.azureml.com/v1alpha1", "AmlJob", "train", spec=aml),
            pod("train-a", aml_job),
        ],
        "SPOTRequest": _under(("egx.nvidia.io/v1", "SPOTRequest")),
        "RunaiJob": _under(("run.ai/v1", "RunaiJob")),
        "TrainingWorkload": _under(("run.ai/v2alpha1", "TrainingWorkload"), ("run.ai/v1", "RunaiJob")),
        "Fleet": [fleet, karta(), pod("f-boss", fleet, labels={"fleet/role": "boss"})],
        "unknown": _under(("example.org/v7", "Whatever"), ("example.org/v7", "Part")),
    }
    return deepcopy(found)
