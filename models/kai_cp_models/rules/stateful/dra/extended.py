"""Extended resources that device classes back (2.5), and GPUs that a device plugin still serves.

A pod that asks for such a resource gets devices through a synthetic claim on nodes that do not
advertise the resource themselves; where a device plugin advertises it, the plugin serves it. GPUs are one
dimension, whatever the name of their resource. So DRA serves a whole-GPU pod on a node if all its GPUs are
DRA devices and a class backs a resource that ends in ``gpu``. On other nodes the pod may use only the GPUs
that are not DRA devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Mask
from kai_cp_models.extras import Key
from kai_cp_models.pods import GPU, MILLI, GpuKind, Pod
from kai_cp_models.records.devices import EXACT, Claim, DeviceObject, Wanted
from kai_cp_models.rules.stateful.dra.catalog import Catalog
from kai_cp_models.rules.stateful.forked import Forked
from kai_cp_models.snapshot import Snapshot

SERVED: Final[Key[Mapping[int, frozenset[str]]]] = Key("dra_served", {})
"""Names of the nodes where DRA serves an extended resource, by dimension."""


class Extended(Forked):
    """Dimensions that DRA serves, node by node, and the whole GPUs of device plugins in use."""

    def __init__(self, catalog: Catalog) -> None:
        self.snapshot: Snapshot = catalog.snapshot
        nodes = self.snapshot.nodes
        backed = catalog.extended()
        self._resources: dict[int, tuple[str, str]] = {
            d: (name, backed[name].name) for d, name in enumerate(self.snapshot.dimensions) if name in backed
        }
        enriched = self.snapshot.extras[SERVED]
        served = {
            d: np.array(
                [n.name in enriched.get(d, ()) or n.allocatable[d] <= 0 for n in nodes], dtype=np.bool_
            )
            for d in self._resources
        }
        whole = np.array([node.allocatable[GPU] // MILLI - node.dra_gpus for node in nodes], dtype=np.int64)
        drawn = np.array([node.dra_gpus > 0 for node in nodes], dtype=np.bool_)
        gpus = sorted(
            each.extended_resource for each in backed.values() if each.extended_resource.endswith("gpu")
        )
        if gpus:
            self._resources[GPU] = (gpus[0], backed[gpus[0]].name)
            served[GPU] = drawn & (whole <= 0)
        self._served: Mapping[int, Mask] = served
        # Where no GPU is a DRA device, the vector check is enough.
        self._plugin_gpus = np.where(drawn, whole, np.iinfo(np.int64).max // 2) if drawn.any() else None
        self._plugin_used: tuple[NDArray[np.int64], NDArray[np.int64]] = (
            np.zeros(len(nodes), dtype=np.int64),
            np.zeros(len(nodes), dtype=np.int64),
        )

    def detach(self) -> None:
        """After a shallow copy, copy what changes."""
        self._plugin_used = (self._plugin_used[0].copy(), self._plugin_used[1].copy())

    def concerns(self, pod: Pod) -> bool:
        """Whether the pod asks for anything that DRA serves or competes with."""
        return bool(self._asked(pod)) or self._plugin_asked(pod) > 0

    def _asked(self, pod: Pod) -> dict[int, int]:
        """Devices by backed dimension."""
        found = {
            d: pod.spec.requests[d] // MILLI for d in self._resources if d != GPU and pod.spec.requests[d] > 0
        }
        if GPU in self._resources and _whole_gpus(pod):
            found[GPU] = _whole_gpus(pod)
        return found

    def _plugin_asked(self, pod: Pod) -> int:
        return _whole_gpus(pod) if self._plugin_gpus is not None else 0

    def parts(self, pod: Pod) -> Iterator[tuple[Claim | None, Mask]]:
        """The nodes in disjoint masks [N], each with the synthetic claim that the pod needs there."""
        everywhere = np.ones(len(self.snapshot.nodes), dtype=np.bool_)
        asked = self._asked(pod)
        if not asked:
            yield None, everywhere
            return
        number = sum(self._served[d].astype(np.int64) << i for i, d in enumerate(asked))
        for value in np.unique(number):
            chosen = {d: n for i, (d, n) in enumerate(asked.items()) if value >> i & 1}
            yield self._synthetic(pod, chosen), everywhere & (number == value)

    def claim(self, pod: Pod, node: int) -> Claim | None:
        """The synthetic claim that the pod needs on a node."""
        return self._synthetic(pod, {d: n for d, n in self._asked(pod).items() if self._served[d][node]})

    def _synthetic(self, pod: Pod, asked: Mapping[int, int]) -> Claim | None:
        if not asked:
            return None
        return Claim(
            namespace=pod.key.namespace,
            name=f"{pod.key.name}-extended-resources",
            uid=f"{pod.uid}-extended-resources",
            owner_uid=pod.uid,
            queue=None,
            requests=tuple(
                (Wanted(f"request-{i}", self._resources[d][1], mode=EXACT, count=count),)
                for i, (d, count) in enumerate(sorted(asked.items()))
            ),
            constraints=(),
            config=(),
            allocation=None,
            reserved=frozenset(),
            deleted=False,
        )

    def details(self, claim: Claim, allocation: DeviceObject) -> Mapping[str, Any]:
        """``extendedResourceClaimAllocation`` of a BindRequest (1.3).

        The pod's containers are not known here: a mapping names resource and request, and the writer of
        the BindRequest adds the container.
        """
        names = {device_class: name for name, device_class in self._resources.values()}
        wanted = [alternatives[0] for alternatives in claim.requests]
        return {
            "allocation": allocation,
            "deviceRequests": [
                {
                    "name": each.name,
                    "exactly": {
                        "deviceClassName": each.device_class,
                        "allocationMode": each.mode,
                        "count": each.count,
                    },
                }
                for each in wanted
            ],
            "containerMappings": [
                {"resourceName": names[each.device_class], "requestName": each.name} for each in wanted
            ],
        }

    def plugin_room(self, pod: Pod, *, now: bool) -> Mask | None:
        """[N] nodes whose device plugin has enough GPUs left, or whose GPUs DRA serves to the pod; None:
        all."""
        asked = self._plugin_asked(pod)
        if not asked or self._plugin_gpus is None:
            return None
        used = self._plugin_used[0] + self._plugin_used[1] if now else self._plugin_used[0]
        room: Mask = used + asked <= self._plugin_gpus
        return room | self._served[GPU] if GPU in self._served else room

    def count_plugin(self, pod: Pod, node: int, sign: int, *, leaving: bool) -> None:
        """Account the whole GPUs that a pod takes from a node's device plugin."""
        asked = self._plugin_asked(pod)
        if asked and not (GPU in self._served and self._served[GPU][node]):
            self._plugin_used[leaving][node] += sign * asked


def _whole_gpus(pod: Pod) -> int:
    gpu = pod.spec.gpu
    return gpu.devices if gpu.kind is GpuKind.REGULAR and not pod.reservation else 0
