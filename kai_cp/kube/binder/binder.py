"""Turns a BindRequest into a bound pod (9.2): one request at a time per pod, many pods at once.

Every failed attempt is written to the request, so a new leader continues where the last one stopped. The
pod's condition ``PodBound`` shows the present state. What was prepared for a pod is undone only when the
server says that the pod is not bound: an answer that was lost says nothing.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import orjson

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects, resources
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.errors import ApiError, KubeError, LeaseLost, NotReachable, Unauthorized
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.store import ObjectKey, Store, key_of
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.api.workqueue import WorkQueue
from kai_cp.kube.binder.claims import claim_names
from kai_cp.kube.binder.parking import Parking
from kai_cp.kube.binder.reservation import groups_of
from kai_cp.kube.binder.steps import Awaits, BindError, BindStep

LOG = logging.getLogger(__name__)
LONGEST_RETRY_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 1.0
NODE_LOOKS: Final = 30
"""So often a node that is not seen yet is looked for, a second apart: the watch of nodes may hang."""
STOP_SECONDS: Final = 10.0
"""For what is being written when the process ends."""
BINDING_SECONDS: Final = 1.0
"""Reports stand back until nothing was bound for this long."""
SETTLED_SECONDS: Final = 60.0
"""A server gives a request up after this time (its ``--request-timeout``), so a binding that was not
answered is made by then, or never.
"""
AWAY: Final = (LeaseLost, NotReachable, Unauthorized)
"""Nothing can be undone now either: the next attempt, or the next leader, goes on."""


@dataclass
class Begun:
    """A bind that has begun and is neither ended nor undone. Times are those of ``time.monotonic()``."""

    request: Object
    pod: Object
    started: float
    reached: int = 0
    """Steps that were begun."""
    step: BindStep | None = None
    """The step that waits for an object."""
    since: float = 0.0
    """When that step began to wait."""
    sent: float = -math.inf
    """When a binding was last sent that may have been made without an answer."""
    error: Exception | None = None
    """Why it failed. It ends when the server has said where the pod is."""

    @property
    def node(self) -> str:
        """The node that was ordered; "" where an earlier leader knew it."""
        return _node_of(self.request)


@dataclass
class BinderState:
    """What the binder remembers of a request in progress. After a restart, pods show what is still needed."""

    looks: int = 0
    """How often the node was looked for without success."""
    paused: bool = False
    """Whether the last attempt was followed by a pause."""
    begun: Begun | None = None


class Binder:
    """Carries out BindRequests. ``steps`` run in order before a pod is bound.

    Namespaces take turns. ``workers`` is the number of threads; a bind that waits holds none.
    """

    def __init__(
        self,
        transport: Transport,
        pods: Store,
        nodes: Store,
        requests: Store,
        steps: list[BindStep],
        *,
        recorder: Recorder,
        writer: BackgroundWriter,
        workers: int = 10,
        bound: Callable[[float], None] = lambda _seconds: None,
        failed: Callable[[], None] = lambda: None,
        retried: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        scheduler_name: str = "",
    ) -> None:
        self._transport = transport
        self._scheduler_name = scheduler_name
        self._pods = pods
        self._nodes = nodes
        self._requests = requests
        self._steps = steps
        self._recorder = recorder
        self._writer = writer
        self._bound_at = -math.inf
        writer.busy = self.busy
        self._bound = bound
        self._failed = failed
        self._retried = retried
        self._clock = clock
        self._states: dict[ObjectKey, BinderState] = {}
        self._lease_lost: Callable[[], None] = lambda: None
        self._queue = WorkQueue()
        self.waiting = Parking(self._queue.add)
        """Binds that wait for a volume or a device."""
        self._threads = [
            threading.Thread(target=self._work, name=f"bind-{i}", daemon=True) for i in range(workers)
        ]

    def start(self, lease_lost: Callable[[], None]) -> None:
        """Begin with every known request, and take each new one."""
        self._lease_lost = lease_lost
        self._requests.listen(self._changed)
        self._pods.listen(self._pod_changed)
        self._states = self._left_over()
        self._queue.add(self._states, after=SETTLED_SECONDS)
        for request in self._requests.all():
            self._changed(None, request)
        for thread in self._threads:
            thread.start()

    def _left_over(self) -> dict[ObjectKey, BinderState]:
        """Pods that nothing is ordered for, and that may hold what an earlier leader prepared, as binds to be
        undone. None without a scheduler's name: other schedulers prepare pods without orders.
        """
        found = {}
        for pod in self._pods.all():
            spec = pod["spec"]
            if spec.get("nodeName") or spec.get("schedulerName") != self._scheduler_name:
                continue
            if self._order(key_of(pod)) is None and (order := _order_before(pod)) is not None:
                began = Begun(order, pod, time.monotonic(), reached=len(self._steps))
                found[key_of(pod)] = BinderState(begun=began)
        return found

    def busy(self) -> bool:
        """Whether pods are being bound now, or were a moment ago; reports can wait meanwhile."""
        return time.monotonic() - self._bound_at < BINDING_SECONDS

    @property
    def idle(self) -> bool:
        """Whether no request is being carried out, or will be tried again by itself."""
        return self._queue.idle

    def hung(self) -> str:
        """The bind that has not ended in time, or ""."""
        return self._queue.hung()

    def stop(self) -> None:
        """Begin no new bind; writes in progress are finished."""
        self._queue.stop()
        end = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, end - time.monotonic()))

    def _changed(self, old: Object | None, new: Object | None) -> None:
        """Take up a new request, or one that was deleted while it waits; other changes are our own
        reports.
        """
        if new is None:
            if old is not None and key_of(old) in self._states:
                self._queue.add([key_of(old)])
        elif not api_objects.finished(new) and (old is None or _ordered(old) != _ordered(new)):
            self._queue.add([key_of(new)])

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        """Take up the request of a pod whose watch event arrives after its request's."""
        if new is not None and (old is None or old["metadata"]["uid"] != new["metadata"]["uid"]):
            request = self._requests.get(key_of(new))  # a request has its pod's name (1.3)
            if request is not None:
                self._changed(None, request)

    def _work(self) -> None:
        while (taken := self._queue.get()) is not None:
            key, _ = taken
            state = self._states.setdefault(key, BinderState())
            if state.paused:
                self._retried()
            self.waiting.leave(key)
            pause: float | None = LONGEST_RETRY_SECONDS
            try:
                pause = self._attempt(key, state)
            except LeaseLost:
                self._lease_lost()
                return
            except KubeError as error:
                LOG.warning(
                    "a pod was not bound, and is tried again",
                    extra={"pod": "/".join(key), "error": str(error)},
                )
                state.paused = True
                self._queue.failed(key)
                continue
            except Exception:
                self._failed()
                LOG.exception(
                    "a pod was not bound, and is tried again: report this defect with its trace",
                    extra={"pod": "/".join(key)},
                )
            state.paused = pause is not None and state.begun is None
            if pause is None:
                del self._states[key]
            self._queue.done(key, pause)

    def _attempt(self, key: ObjectKey, state: BinderState) -> float | None:
        """Try once; returns the seconds until the next attempt, or None if there is none."""
        try:
            if state.begun is not None and _overtaken(state.begun, self._order(key)):
                self._take_back(state.begun)
                state.begun = None
            order = self._order(key)
            if order is None:
                return None
            request, pod = order
            if pod["spec"].get("nodeName"):
                self._close(request, pod)
                return None
            if self._nodes.get(("", _node_of(request))) is None and state.looks < NODE_LOOKS:
                state.looks += 1
                return LOOK_SECONDS
            begun = state.begun = state.begun or Begun(request, pod, time.monotonic())
            error = begun.error = begun.error or self._bind(request, pod, begun)
            if error is None or self._take_back(begun):
                self._report_bound(request, pod, begun)
                return None
        except Awaits as what:
            return what.seconds if self.waiting.park(key, what) else 0.0
        state.begun = None
        return self._failure(request, pod, error)

    def _order(self, key: ObjectKey) -> tuple[Object, Object] | None:
        """The request to carry out, and its pod."""
        request = self._requests.get(key)
        if request is None or api_objects.finished(request) or "deletionTimestamp" in request["metadata"]:
            return None
        pod = self._pods.get((key[0], request["spec"]["podName"]))
        # Wait for a pod that is not seen yet; if it was deleted, the garbage collector deletes the request.
        if pod is None or not api_objects.belongs_to(request, pod) or not self._serves(pod):
            return None
        return request, pod

    def _serves(self, pod: Object) -> bool:
        return not self._scheduler_name or pod["spec"].get("schedulerName") == self._scheduler_name

    def _bind(self, request: Object, pod: Object, begun: Begun) -> Exception | None:
        """Run the steps and bind; returns what went wrong. Raises ``Awaits`` while a step waits."""
        try:
            node = self._nodes.get(("", begun.node))
            if node is None:
                raise BindError(f"node {begun.node} does not exist", final=True)
            for i, step in enumerate(self._steps):
                begun.reached = max(begun.reached, i + 1)
                self._prepare(step, pod, node, request, begun)
            self._post(request, pod, begun)
        except (*AWAY, Awaits):
            raise
        except Exception as error:
            return error
        return None

    def _prepare(self, step: BindStep, pod: Object, node: Object, request: Object, begun: Begun) -> None:
        try:
            step.prepare(pod, node, request)
        except Awaits as what:
            if begun.step is not step:
                begun.step, begun.since = step, time.monotonic()
            left = begun.since + what.seconds - time.monotonic()
            if left <= 0:
                raise BindError(what.reason) from what
            raise Awaits(what.reason, what.store, what.seen, left) from what
        if begun.step is step:
            begun.step = None

    def _report_bound(self, request: Object, pod: Object, begun: Begun) -> None:
        self._bound_at = time.monotonic()
        self._bound(self._bound_at - begun.started)
        self._say_bound(pod, begun.node)
        self._writer.submit(
            ("bound", *key_of(pod)),
            lambda: self._report(request, pod),
            namespace=pod["metadata"]["namespace"],
            dropped=lambda: self._queue.add([key_of(request)]),
        )

    def _post(self, request: Object, pod: Object, begun: Begun) -> None:
        meta = pod["metadata"]
        annotations = {keys.RECEIVED_TYPE: request["spec"].get("receivedResourceType") or "Regular"}
        zones = request["spec"].get("predictedNUMAZones")
        if zones:
            annotations[keys.NUMA_PREDICTED] = orjson.dumps(zones).decode()
        # The server copies a binding's annotations to the pod, which saves a second write.
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
                "annotations": annotations,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": begun.node},
        }
        try:
            self._transport.create(
                resources.PODS, meta["namespace"], body, name=meta["name"], subresource="binding"
            )
        except KubeError as error:
            if error.unknown:
                begun.sent = time.monotonic()
            elif isinstance(error, ApiError) and error.not_found:
                raise BindError("the pod is gone", final=True) from error
            raise

    def _take_back(self, begun: Begun) -> bool:
        """Undo a bind, unless the server says that the pod is on the node that was ordered: then it is
        bound. Raises ``Awaits`` while a binding may still be made.
        """
        meta = begun.pod["metadata"]
        found = self._transport.get(resources.PODS, meta["namespace"], meta["name"])
        if found is not None:
            self._pods.put(found, ours=True)
            found = self._pods.get(key_of(begun.pod))
        if found is not None and found["metadata"]["uid"] == meta["uid"]:
            place = found["spec"].get("nodeName")
            if place and begun.node in (place, ""):
                return True
            left = begun.sent + SETTLED_SECONDS - time.monotonic()
            if not place and left > 0:
                raise Awaits("a binding was not answered", self._pods, {key_of(found): found}, left)
        self._roll_back(begun)
        return False

    def _roll_back(self, begun: Begun) -> None:
        """Undo the steps. Raises ``KubeError`` if one is to be undone again: until then the order stays open,
        because what the pod holds is not free.
        """
        again: KubeError | None = None
        for step in reversed(self._steps[: begun.reached]):
            try:
                step.undo(begun.pod, begun.request)
            except AWAY:
                raise
            except Exception as error:
                if isinstance(error, BindError) or (isinstance(error, ApiError) and error.transient):
                    again = error
                    continue
                LOG.warning(
                    "a step of a failed bind was not undone, so what it wrote stays",
                    exc_info=not isinstance(error, KubeError),
                    extra={
                        "step": type(step).__name__,
                        "pod": "/".join(key_of(begun.pod)),
                        "error": str(error),
                    },
                )
        if again is not None:
            raise again

    def _failure(self, request: Object, pod: Object, error: Exception) -> float | None:
        """Report why a pod was not bound; returns the seconds until the next attempt, or None if there is
        none. The order is closed last, so a closed order has its reason at the pod.
        """
        self._failed()
        reason = _reason_of(error)
        LOG.warning(
            "a pod was not bound: its condition PodBound says why",
            exc_info=None if isinstance(error, KubeError) else error,
            extra={"pod": "/".join(key_of(pod)), "reason": reason, "node": _node_of(request)},
        )
        attempts = int((request.get("status") or {}).get("failedAttempts") or 0) + 1
        limit = request["spec"].get("backoffLimit")
        final = isinstance(error, BindError) and error.final
        again = not final and limit is not None and attempts < int(limit)
        self._recorder.say(pod, resources.PODS, "Warning", "BindingError", reason, topic="bind")
        try:
            self._condition(pod, "False", "BindingError", reason)
        except (ApiError, NotReachable) as problem:
            LOG.warning(
                "a condition was not written, so only an event says why the pod was not bound",
                extra={"pod": "/".join(key_of(pod)), "error": str(problem)},
            )
        self._finish(request, "Failed", reason, attempts)
        return min(LONGEST_RETRY_SECONDS, 2.0 ** min(attempts, 16)) if again else None

    def _finish(self, request: Object, phase: str, reason: str, attempts: int = 0) -> None:
        status: Object = {"phase": phase, "reason": reason or None}
        if attempts:
            status["failedAttempts"] = attempts
        meta = request["metadata"]
        # The version, because a later order may have the name; the server does not look at the UID.
        body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status}
        changed = self._transport.patch(
            resources.BIND_REQUESTS, meta["namespace"], meta["name"], body, subresource="status"
        )
        if changed is not None:
            self._requests.put(changed, ours=True)

    def _say_bound(self, pod: Object, node: str) -> None:
        self._recorder.say(pod, resources.PODS, "Normal", "Bound", bound_to(node), topic="bind")

    def _report(self, request: Object, pod: Object) -> None:
        try:
            self._close(request, pod)
        except (ApiError, NotReachable):
            self._queue.add([key_of(request)])  # the next attempt finds the pod bound and reports it again
            raise

    def _close(self, request: Object, pod: Object) -> None:
        """Report a bound pod. The request is closed last, so that a new leader reports again until then."""
        node = _node_of(request)
        if (pod["spec"].get("nodeName") or node) == node:
            self._say_bound(pod, node)
            self._condition(pod, "True", "Bound", bound_to(node))
        self._finish(request, "Succeeded", "")

    def _condition(self, pod: Object, status: str, reason: str, message: str) -> None:
        present = api_objects.condition((pod.get("status") or {}).get("conditions"), "PodBound")
        message = message[: api_objects.MOST_MESSAGE]
        if present is not None and (present.get("status"), present.get("message")) == (status, message):
            return
        meta = pod["metadata"]
        body = api_objects.condition_patch(pod, "PodBound", status, reason, message, now=self._clock())
        changed = self._transport.patch(
            resources.PODS, meta["namespace"], meta["name"], body, subresource="status", strategic=True
        )
        if changed is not None:
            self._pods.put(changed, ours=True)


def bound_to(node: str) -> str:
    """The message about a bound pod."""
    return f"pod bound to node {node}"


def _order_before(pod: Object) -> Object | None:
    """An order, without its node, for what an unbound pod may hold: claims, and shares of GPUs."""
    groups = groups_of(pod)
    claims = [{"name": inside} for inside, name in claim_names(pod) if name]
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if not (groups or claims or extended):
        return None
    spec = {
        "selectedNode": "",
        "receivedResourceType": "Fraction" if groups else "Regular",
        "selectedGPUGroups": groups,
        "resourceClaimAllocations": claims,
        "extendedResourceClaimAllocation": extended,
    }
    return {"metadata": pod["metadata"], "spec": spec}


def _node_of(request: Object) -> str:
    return str(request["spec"]["selectedNode"])


def _ordered(request: Object) -> tuple[object, object]:
    """The fields that make a request a different one."""
    return request["metadata"].get("uid"), request["spec"]


def _reason_of(error: Exception) -> str:
    if isinstance(error, BindError):
        return error.reason
    if isinstance(error, ApiError) and error.message:
        return error.message
    return str(error) if isinstance(error, KubeError) else f"{type(error).__name__}: {error}"


def _overtaken(begun: Begun, order: tuple[Object, Object] | None) -> bool:
    """Whether a bind that has begun is not what is ordered now, or the pod is bound elsewhere."""
    if order is None or _ordered(order[0]) != _ordered(begun.request):
        return True
    return order[1]["spec"].get("nodeName") not in (None, "", begun.node)
