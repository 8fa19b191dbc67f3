"""The node-scale adjuster shows autoscalers how many GPUs the waiting fractional pods need (5)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from kai_cp.json_types import Json, Object
from kai_cp.kube.api import resources as r
from kai_cp.kube.api import transforms as t
from kai_cp.kube.api.api_objects import rfc3339
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.store import ObjectKey, key_of
from kai_cp.kube.controllers.base import Context, Want
from kai_cp.workloads.scaling import COOL_DOWN_SECONDS, POD_NAMESPACE, ScalingSetup, adjust

WHOLE: Final[ObjectKey] = ("", "cluster")
"""The one key: every pass looks at all that waits."""
MOST_WRITES: Final = 100
"""Scaling pods that a pass creates or deletes; another pass follows. One tenant may have thousands wait."""


class NodeScaleAdjuster:
    """Keeps as many scaling pods as the GPUs that the waiting fractional pods add up to."""

    workers = 1
    settle_seconds = 1.0

    def __init__(self, context: Context) -> None:
        options = context.options
        self._context = context
        self._setup = ScalingSetup(
            namespace=options.scale_adjust_namespace,
            image=options.scaling_pod_image,
            account=options.scaling_pod_service_account,
            scheduler_name=options.scheduler_name,
            memory_ratio=options.gpu_memory_to_fraction_ratio,
        )
        self._ours = f"spec.schedulerName={options.scheduler_name}"
        self._theirs = f"metadata.namespace={options.scale_adjust_namespace}"
        informers = context.informers
        self._pods = informers.store(r.PODS, transform=t.pod, fields=self._ours)
        self._scaling = informers.store(r.PODS, transform=t.pod, fields=self._theirs)
        self._groups = informers.store(r.POD_GROUPS)
        self._orders = informers.store(r.BIND_REQUESTS)
        self._cool_until = 0.0

    def wants(self) -> Sequence[Want]:
        """Our pods, the scaling pods, pods that a quota holds back, and pods that have been given a place."""
        return (
            Want(r.PODS, _always, transform=t.pod, fields=self._ours),
            Want(r.PODS, _always, transform=t.pod, fields=self._theirs),
            Want(r.POD_GROUPS, _always),
            Want(r.BIND_REQUESTS, _always),
        )

    def reconcile(self, key: ObjectKey, attempt: int) -> float | None:
        """Make one pass over all waiting pods."""
        now = time.monotonic()
        groups = {key_of(group): group for group in self._groups.all()}
        cooling = now < self._cool_until
        ordered = {key_of(order) for order in self._orders.all()}
        found = adjust(
            self._pods.all(),
            self._scaling.all(),
            groups,
            self._setup,
            cooling=cooling,
            ordered=ordered,
            most=MOST_WRITES,
        )
        for name in found.delete[:MOST_WRITES]:
            self._delete(name)
            self._cool_until = now + COOL_DOWN_SECONDS
        self._create(found.create[:MOST_WRITES])
        if max(len(found.delete), len(found.create)) > MOST_WRITES:
            return 0.0
        left = self._cool_until - time.monotonic()
        return left if left > 0 and found.devices_needed else None

    def _delete(self, name: str) -> None:
        gone = self._scaling.get((self._setup.namespace, name))
        self._context.transport.delete(r.PODS, self._setup.namespace, name, grace=0)
        if gone is not None:
            self._scaling.remove(gone, ours=True)

    def _create(self, pods: Sequence[Json]) -> None:
        refused: dict[str, ApiError] = {}
        for pod in pods:
            source = pod["metadata"]["labels"][POD_NAMESPACE]
            if source in refused:
                continue
            try:
                made = self._context.transport.create(r.PODS, self._setup.namespace, dict(pod))
            except ApiError as error:
                if error.transient:
                    raise
                # It has what its pod has, from which other namespaces need not suffer.
                if error.status != 409:
                    refused[source] = error
                continue
            self._scaling.put(made, ours=True)
            self._show(made)
        if refused:
            raise next(iter(refused.values()))

    def _show(self, pod: Object) -> None:
        """Mark the pod unschedulable at once, since the default scheduler may take a while to do so."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "shows the GPUs that pods with parts of them wait for",
            "lastTransitionTime": rfc3339(time.time()),
        }
        answer = self._context.transport.patch(
            r.PODS,
            self._setup.namespace,
            pod["metadata"]["name"],
            {"status": {"conditions": [condition]}},
            subresource="status",
            strategic=True,
        )
        if answer is not None:
            self._scaling.put(answer, ours=True)


def _always(_old: Object | None, _new: Object | None) -> Iterable[ObjectKey]:
    return (WHOLE,)
