"""GPU sharing for one pod: reservation, group labels, and the ConfigMaps its containers read (9.2, 9.4).

A pod with annotation ``mps`` reaches the MPS server of its node through a mounted directory and needs only
its device. The server limits a client's threads and memory only if the client's environment says so; with
``--mps-limits`` the binder writes those limits here. KAI writes none.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any, Final

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects, resources
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.memory import Memory
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.store import Store, key_of
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.binder.options import BinderOptions
from kai_cp.kube.binder.reservation import LABEL_PREFIX, GpuReservations, group_labels
from kai_cp.kube.binder.steps import BindError
from kai_cp.object_names import LONGEST_NAME

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
PORTION: Final = "GPU_PORTION"
NUMBER: Final = "RUNAI_NUM_OF_GPUS"
MEMORY_LIMIT: Final = "CUDA_DEVICE_MEMORY_LIMIT"
MPS_THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MPS_MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
CDI_PREFIX: Final = "k8s.device-plugin.nvidia.com/gpu="
REMEMBERED: Final = 10_000
"""ConfigMaps; they matter while their pod is being bound."""
DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


class Sharing:
    """The step that gives a fractional pod its devices."""

    def __init__(
        self,
        transport: Transport,
        pods: Store,
        reservations: GpuReservations,
        recorder: Recorder,
        options: BinderOptions,
    ) -> None:
        self._transport = transport
        self._pods = pods
        self._reservations = reservations
        self._recorder = recorder
        self._options = options
        self._naming = pods.index(lambda pod: (_configs_of(pod),) if _configs_of(pod) else ())
        """Pods by the ConfigMaps that they name."""
        self._taken: Memory[str, str] = Memory(REMEMBERED)
        """The pod (its uid) that is being bound with them."""
        self._taking = threading.Lock()

    def prepare(self, pod: Object, node: Object, request: Object) -> None:
        """Reserve the devices, label the pod, write its ConfigMaps; a pod of whole GPUs names no group.

        Raises ``BindError`` if one of these fails.
        """
        if request["spec"].get("receivedResourceType") != "Fraction":
            if _wants_mps(pod):
                text = "annotation mps is for parts of a GPU; this pod gets whole ones, without MPS"
                self._recorder.say(pod, resources.PODS, "Warning", "MpsWithoutFraction", text)
            self._label(pod, [])
            return
        groups = request["spec"].get("selectedGPUGroups") or []
        if not groups:
            raise BindError("the BindRequest names no GPU group", final=True)
        if other := self._other_user(pod):
            raise BindError(
                f"annotation {keys.SHARED_GPU_CONFIG} names the ConfigMaps of pod {other}, which would be "
                "told another device: leave it out, so that admission gives this pod its own"
            )
        name = node["metadata"]["name"]
        self._reservations.sync(name)
        devices = self._reservations.acquire(name, groups)
        self._label(pod, groups)
        self._wire(pod, node, request, devices)

    def undo(self, pod: Object, request: Object) -> None:
        """Remove labels and ConfigMaps, and delete unused reservations."""
        if request["spec"].get("receivedResourceType") != "Fraction":
            return
        groups = request["spec"].get("selectedGPUGroups") or []
        meta = pod["metadata"]
        labels: dict[str, None] = {keys.GPU_GROUP: None}
        labels |= {f"{LABEL_PREFIX}{group}": None for group in groups}
        body = {"metadata": {"uid": meta["uid"], "labels": labels}}
        changed = self._transport.patch(resources.PODS, meta["namespace"], meta["name"], body)
        if changed is not None:
            self._pods.put(changed, ours=True)
        for config in () if self._other_user(pod) else self._config_names(pod) or ():
            self._transport.delete(resources.CONFIG_MAPS, meta["namespace"], config)
        with self._taking:
            if self._taken.get(_configs_of(pod)) == meta["uid"]:
                del self._taken[_configs_of(pod)]
        node = request["spec"]["selectedNode"]
        self._reservations.give_up(node, groups)
        self._reservations.sync(node)

    def _other_user(self, pod: Object) -> str:
        """The name of another pod that has a pod's ConfigMaps already, or gets them now; "" if there is none,
        and then they are this pod's. Pods made from the text of another pod have its annotation.
        """
        configs, uid = _configs_of(pod), pod["metadata"]["uid"]
        with self._taking:
            for other in self._naming(configs) if configs else ():
                theirs = other["metadata"]["uid"]
                if theirs != uid and (other["spec"].get("nodeName") or self._taken.get(configs) == theirs):
                    return str(other["metadata"]["name"])
            self._taken.put(configs, uid)
        return ""

    def _label(self, pod: Object, groups: list[str]) -> None:
        single = len(groups) == 1
        wanted = {keys.GPU_GROUP if single else f"{LABEL_PREFIX}{group}": group for group in groups}
        present = group_labels(pod)
        if present == wanted:
            return
        # An earlier leader may have labelled the pod for an order that was taken back, or its owner: he would
        # keep the GPU of others reserved after them.
        labels = {**dict.fromkeys(present), **wanted}
        meta = pod["metadata"]
        body = {"metadata": {"uid": meta["uid"], "labels": labels}}
        changed = self._transport.patch(resources.PODS, meta["namespace"], meta["name"], body)
        if changed is None:
            raise BindError("the pod is gone", final=True)
        self._pods.put(changed, ours=True)

    def _wire(self, pod: Object, node: Object, request: Object, devices: list[str]) -> None:
        configs = self._config_names(pod)
        if not configs:
            text = (
                f"no annotation {keys.SHARED_GPU_CONFIG}: the admission webhook that wires GPU sharing did "
                "not see this pod, so its containers are not told which device is theirs"
            )
            self._recorder.say(pod, resources.PODS, "Warning", "GpuSharingNotWired", text)
            return
        portion = _portion(request)
        visible = ",".join(f"{CDI_PREFIX}{uuid}" if self._options.cdi_enabled else uuid for uuid in devices)
        main = {PORTION: portion, NUMBER: portion}
        variables: dict[str, str] = {}
        (main if self._refers(pod) else variables)[VISIBLE_DEVICES] = visible
        if self._options.hami_core_enabled:
            variables[MEMORY_LIMIT] = f"{_share_mib(node, portion)}m"
        if self._options.mps_limits and _wants_mps(pod):
            variables[MPS_THREADS] = f"{max(1.0, 100 * float(portion)):g}"
            limits = (f"{i}={_share_mib(node, portion)}M" for i in range(len(devices)))
            variables[MPS_MEMORY] = ",".join(limits)
        for name, data in zip(configs, (main, variables), strict=True):
            self._write(pod, name, data)

    def _write(self, pod: Object, name: str, data: Mapping[str, str]) -> None:
        namespace = pod["metadata"]["namespace"]
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "ownerReferences": [api_objects.owner(pod, resources.PODS)],
            },
            "data": dict(data),
        }
        try:
            self._transport.create(resources.CONFIG_MAPS, namespace, body)
        except ApiError as error:
            if error.status != 409:
                raise
            # It may be one of an earlier pod that is gone, and would go as that pod's.
            owners = {"ownerReferences": [api_objects.owner(pod, resources.PODS)]}
            change = {"metadata": owners, "data": dict(data)}
            changed = self._transport.patch(resources.CONFIG_MAPS, namespace, name, change)
            if changed is None:
                text = f"ConfigMap {namespace}/{name} was deleted while it was written"
                raise BindError(text) from error

    def _config_names(self, pod: Object) -> tuple[str, str] | None:
        prefix = api_objects.annotations_of(pod).get(keys.SHARED_GPU_CONFIG)
        if not prefix:
            return None
        name = f"{prefix}-{self._container(pod)[0]}"
        return name, f"{name}-evar"

    def _container(self, pod: Object) -> tuple[str, Mapping[str, Any]]:
        wanted = api_objects.annotations_of(pod).get(keys.FRACTION_CONTAINER)
        containers = pod["spec"].get("containers") or []
        if not wanted:
            return "0", containers[0]
        for key, prefix in (("containers", ""), ("initContainers", "i")):
            for i, container in enumerate(pod["spec"].get(key) or ()):
                if container["name"] == wanted:
                    return f"{prefix}{i}", container
        raise BindError(f"the pod has no container {wanted!r}", final=True)

    def _refers(self, pod: Object) -> bool:
        """Whether the container takes its devices from the ConfigMap whose name comes first."""
        entries = self._container(pod)[1].get("env") or ()
        return any(
            entry.get("name") == VISIBLE_DEVICES and "configMapKeyRef" in (entry.get("valueFrom") or {})
            for entry in entries
        )


def _configs_of(pod: Object) -> str:
    """The ConfigMaps that a pod names, with its namespace; "" for none. A longer text is no name."""
    prefix = api_objects.annotations_of(pod).get(keys.SHARED_GPU_CONFIG)
    return f"{key_of(pod)[0]}/{prefix[:LONGEST_NAME]}" if prefix else ""


def _wants_mps(pod: Object) -> bool:
    return api_objects.annotations_of(pod).get(keys.MPS) == "true"


def _portion(request: Object) -> str:
    """The share of each device that was ordered; raises ``BindError`` if there is none."""
    text = (request["spec"].get("receivedGPU") or {}).get("portion")
    if not isinstance(text, str) or not DECIMAL.fullmatch(text):
        where = f"BindRequest {'/'.join(key_of(request))}: spec.receivedGPU.portion"
        raise BindError(f"{where}: {text!r} is not a share of a GPU", final=True)
    return text


def _share_mib(node: Object, portion: str) -> int:
    """Memory in MiB of a fraction of one of the node's GPUs."""
    label = api_objects.labels_of(node).get(keys.GPU_MEMORY_LABEL, "")
    if not label.isdigit():
        raise BindError(f"node {node['metadata']['name']} has no label {keys.GPU_MEMORY_LABEL}")
    # 0 would mean no limit.
    return max(1, int(int(label) * float(portion)))
