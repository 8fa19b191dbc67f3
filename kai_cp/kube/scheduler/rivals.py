"""Detects another scheduler that binds our pods, reports it, and stops our own writes.

Two schedulers that bind pods of one pool independently overfill nodes: KAI's scheduler beside ours, or two of
ours without leases. Each BindRequest has the mark of the process that wrote it. A new request with another
mark comes from another scheduler, and so does a binding without a request. From then on we bind and evict
nothing until the other scheduler has been silent for a while.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable
from typing import Final

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects, resources
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.store import ObjectKey, Store, key_of

LOG = logging.getLogger(__name__)
HOLD_SECONDS: Final = 30.0
"""Nothing is bound for so long after the last sign of another scheduler."""


class Rivals:
    """Watches orders and bindings from :meth:`begin` on, when this process alone should write them.

    ``served`` tells whether this scheduler places a pod, or the pod of a BindRequest.
    """

    def __init__(
        self,
        pods: Store,
        requests: Store,
        recorder: Recorder,
        *,
        scheduler_name: str,
        pod_served: Callable[[Object], bool],
        request_served: Callable[[Object], bool],
        seen: Callable[[], object] = lambda: None,
        hold_seconds: float = HOLD_SECONDS,
    ) -> None:
        self.instance = uuid.uuid4().hex[:12]
        self._pods = pods
        self._requests = requests
        self._recorder = recorder
        self._scheduler_name = scheduler_name
        self._pod_served = pod_served
        self._request_served = request_served
        self._seen = seen
        self._hold_seconds = hold_seconds
        self._ordered: dict[ObjectKey, str] = {}
        """Nodes by the pods that we ordered: what a fast binder did may be seen before the order itself, as
        they come by two watches."""
        self._begun = False
        self._held_until = -math.inf
        self._text = ""
        requests.listen(self._request_changed)
        pods.listen(self._pod_changed)

    def begin(self) -> None:
        """Treat every other writer as a rival from now on; existing objects come from an earlier process."""
        self._begun = True

    def mark(self, request: Object) -> Object:
        """The request with our mark; it counts as ours before it is sent."""
        meta, spec = request["metadata"], request["spec"]
        self._ordered[meta.get("namespace", ""), spec["podName"]] = spec["selectedNode"]
        annotations = {**(meta.get("annotations") or {}), keys.ORDERED_BY: self.instance}
        return {**request, "metadata": {**meta, "annotations": annotations}}

    def present(self) -> str:
        """What the other scheduler did, while it may still be active; "" if there is none."""
        return self._text if self.hold_seconds_left() else ""

    def hold_seconds_left(self) -> float:
        """Seconds until binding resumes if the other scheduler stays silent; 0 if there is none."""
        return max(0.0, self._held_until - time.monotonic())

    def _request_changed(self, old: Object | None, new: Object | None) -> None:
        if not self._begun or old is not None or new is None or not self._request_served(new):
            return
        by = api_objects.annotations_of(new).get(keys.ORDERED_BY, "")
        if by == self.instance:
            return
        namespace, name = new["metadata"].get("namespace", ""), new["spec"].get("podName", "")
        pod = self._pods.get((namespace, name))
        rival = f"another kai-cp scheduler ({by})" if by else "another scheduler"
        self._note(pod, f"{rival} ordered pod {namespace}/{name} to node {new['spec'].get('selectedNode')}")

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        if old is not None and new is None:
            self._ordered.pop(key_of(old), None)
        if not self._begun or old is None or new is None:
            return
        node = new["spec"].get("nodeName")
        # A list may show another pod of the name without the end of the first, made with a node by its owner.
        same = old["metadata"].get("uid") == new["metadata"].get("uid")
        if not node or old["spec"].get("nodeName") or not same:
            return
        if new["spec"].get("schedulerName") != self._scheduler_name or not self._pod_served(new):
            return
        request = self._requests.get(key_of(new)) or {"spec": {}}
        if node not in (request["spec"].get("selectedNode"), self._ordered.pop(key_of(new), None)):
            namespace, name = key_of(new)
            self._note(new, f"pod {namespace}/{name} was bound to node {node} without an order")

    def _note(self, pod: Object | None, text: str) -> None:
        advice = (
            f"{text}: two schedulers overfill nodes, so this one binds nothing until the other is silent "
            f"for {self._hold_seconds:g} s; stop one of them, or give each its own node pool"
        )
        fresh = not self.present()
        self._held_until = time.monotonic() + self._hold_seconds
        self._text = text
        self._seen()
        if not fresh:
            return
        LOG.error("another scheduler is at work, so nothing is bound: stop one", extra={"error": advice})
        if pod is not None:
            self._recorder.say(pod, resources.PODS, "Warning", "AnotherScheduler", advice, topic="rival")
