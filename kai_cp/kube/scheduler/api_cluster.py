"""The live cluster: plans become BindRequests, deletions and annotations (9.1, 9.6)."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects, resources
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.errors import ApiError, KubeError, LeaseLost, NotGranted, NotReachable
from kai_cp.kube.api.moved import MovedPods
from kai_cp.kube.api.promises import failures_note, failures_of, lost_places, moved_note
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.store import key_of
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.api.write_results import WriteOutcome, WriteResult
from kai_cp.kube.scheduler.backoff import BindBackoff
from kai_cp.kube.scheduler.cache import ClusterCache
from kai_cp.kube.scheduler.group_annotations import GroupAnnotations
from kai_cp.kube.scheduler.nominations import Nominations
from kai_cp.kube.scheduler.options import SchedulerOptions
from kai_cp.kube.scheduler.orders import Order, Orders, Sending
from kai_cp.kube.scheduler.rivals import Rivals
from kai_cp.reader.annotations import failures_noted
from kai_cp.reader.fields import Malformed
from kai_cp.reader.times import seconds_of
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.policy import STATE_ACTIONS

LOG = logging.getLogger(__name__)
NEAR_SECONDS: Final = 60.0
"""Start times this close are taken for the same."""
PREEMPTED: Final = "PreemptionByScheduler"
LATER: Final = "another pod has its name by now"
"""The reason that kube-scheduler and KAI give."""
BINDING_SECONDS: Final = 1.0
"""Reports stand back until nothing was ordered for this long."""


class ApiCluster:
    """A cluster behind its API server. The next snapshot shows all decisions, sent or not.

    With ``budgets`` the server tests each eviction against the PodDisruptionBudgets, as it always does for
    defragmentation: another program may have used them up since the snapshot.
    """

    def __init__(
        self,
        transport: Transport,
        cache: ClusterCache,
        options: SchedulerOptions,
        recorder: Recorder,
        writer: BackgroundWriter,
        *,
        backoff: BindBackoff,
        clock: Callable[[], float] = time.time,
        foreign: Callable[[], object] = lambda: None,
        budgets: bool = False,
    ) -> None:
        self._transport = transport
        self._budgets = budgets
        self._options = options
        self._recorder = recorder
        self._writer = writer
        self._backoff = backoff
        self._clock = clock
        self._cache = cache
        self._pods = cache.stores[resources.PODS]
        self._waiting = self._pods.index(
            lambda pod: () if pod["spec"].get("nodeName") else (pod["metadata"]["uid"],)
        )
        """The pod with a uid, if it waits for a node."""
        self._nodes = cache.stores[resources.NODES]
        self._groups = cache.stores[resources.POD_GROUPS]
        self._requests = cache.stores[resources.BIND_REQUESTS]
        self._requests.listen(self._request_changed)
        self._pool = (options.nodepool_label_key, options.partition_label_value)
        self.rivals = Rivals(
            self._pods,
            self._requests,
            recorder,
            scheduler_name=options.scheduler_name,
            pod_served=self._is_served,
            request_served=self._is_ours,
            seen=foreign,
        )
        self._bound_at = -math.inf
        self.annotations = GroupAnnotations(transport, self._groups, writer)
        self._nominations = Nominations(transport, self._pods, writer, self._may_be_nominated)
        self.moved = MovedPods(self._pods.get)
        self.deciding: Callable[[], bool] = lambda: False
        """Whether a cycle is under way."""
        writer.busy = lambda: self.deciding() or self.binding()
        self.orders = Orders(self._send)

    def hurry(self, hurried: Callable[[], bool]) -> None:
        """Let work that can wait do so while new pods are to be decided."""
        self.orders.hurried = self._writer.hurried = hurried

    def binding(self) -> bool:
        """Whether pods are being bound now, or were just: reports can wait meanwhile."""
        return time.monotonic() - self._bound_at < BINDING_SECONDS

    def close(self) -> None:
        """End the writing threads; waiting writes are dropped."""
        self.orders.close()

    def snapshot(self) -> Mapping[str, Any]:
        """The cluster now, with decisions that are not written yet; held pods show as gated.

        Raises :class:`LeaseLost` if a write found that the lease is lost.
        """
        self.annotations.submit_again()
        self._nominations.submit_again()
        raw = self._nominations.shown(self.orders.shown(self._cache.snapshot))
        now = self._clock()
        return self.moved.shown(self._backoff.mask(self.annotations.shown(raw), now), now)

    def catch_up(self) -> None:
        """Read what an earlier process ordered last, and write the start times and pool labels that it
        decided and could not write.

        From now on no other scheduler is expected to bind pods of this pool.

        A pod group started when the first of its present pods was ordered to be bound, unless its annotation
        says something near that or later.
        """
        # A watch may be behind the lease: those orders would be a rival's, and their places free.
        self._requests.replace(*self._transport.list_pages(resources.BIND_REQUESTS))
        self.rivals.begin()
        started: dict[GroupKey, float] = {}
        for request in self._requests.all():
            if not self._is_ours(request) or api_objects.failed_for_good(request):
                continue
            namespace = request["metadata"]["namespace"]
            pod = self._pods.get((namespace, request["spec"]["podName"]))
            if pod is None or not api_objects.belongs_to(request, pod):
                continue
            self._label_pool(pod)
            name = api_objects.annotations_of(pod).get(keys.POD_GROUP)
            if name:
                key = GroupKey(namespace, name)
                ordered = seconds_of(request["metadata"]["creationTimestamp"])
                started[key] = min(started.get(key, ordered), ordered)
        for key, began in started.items():
            group = self._groups.get(key)
            if group is not None and began - _last_start(group) > NEAR_SECONDS:
                self.annotations.set(key, {keys.LAST_START: api_objects.rfc3339(began)})

    def tidy(self) -> bool:
        """Delete BindRequests that failed for good, whose node is gone, or whose pod is another one by now;
        the pods are free again. Those of a deleted pod are the garbage collector's.

        False when one could not be deleted.
        """
        done = True
        for request in self._requests.all():
            if not self._is_ours(request) or (request.get("status") or {}).get("phase") == "Succeeded":
                continue
            key = (request["metadata"]["namespace"], request["spec"]["podName"])
            pod = self._pods.get(key)
            lost = self._nodes.get(("", request["spec"]["selectedNode"])) is None
            stranger = pod is not None and not api_objects.belongs_to(request, pod)
            failed = api_objects.failed_for_good(request)
            if failed or lost or stranger:
                dropped = self._drop(request)
                if dropped and failed and pod is not None and not stranger:
                    self._note_failure(pod)
                done = dropped and done
        return done

    def order(self, plan: Plan, seen: Mapping[PodKey, str] = MappingProxyType({})) -> Sending:
        """Begin to carry out the plan; decisions that are no longer possible get their result at once.

        ``seen``: the uids of the pods that were decided. None is carried out about a later pod of a name.
        """
        later = {one.pod for one in plan.decisions if self._is_later(one.pod, seen.get(one.pod))}
        rest = replace(plan, decisions=tuple(one for one in plan.decisions if one.pod not in later))
        starts, lost = self._note_starts(rest), lost_places(rest, self._lost_before)
        self._nominations.follow(rest, self.moved.node_of)
        self.moved.follow(rest, self._clock())
        sending = Sending(plan.decisions, partial(self._note_results, starts, lost))
        orders = []
        for place, decision in enumerate(plan.decisions):
            other = decision.pod in later
            made = WriteResult(decision, "gone", LATER) if other else self._prepared(decision)
            if isinstance(made, WriteResult):
                sending.add(place, made)
            else:
                orders.append(Order(decision, made, place, sending))
        self.orders.put(orders)
        return sending

    def _is_later(self, key: PodKey, uid: str | None) -> bool:
        pod = self._pods.get(key)
        return pod is not None and uid not in (None, pod["metadata"]["uid"])

    def _prepared(self, decision: Decision) -> Object | WriteResult:
        """The object that the cluster will have after a decision: the BindRequest, or the leaving pod."""
        try:
            pod = self._pods.get(decision.pod)
            if pod is None:
                return WriteResult(decision, "gone", "no such pod")
            if (obstacle := self._obstacle(pod, decision)) is not None:
                return obstacle
            if decision.kind == "Bind":
                node = self._nodes.get(("", decision.node))
                return api_objects.bind_request(pod, node, decision, self._pool)
            if decision.kind == "Evict":
                return leaving(pod, api_objects.rfc3339(self._clock()))
            message = decision.message or f"waits for capacity on node {decision.node}"
            self._recorder.say(pod, resources.PODS, "Normal", "Pipelined", message, topic="scheduling")
            return WriteResult(decision, "done")
        except Exception as error:
            return _failed(decision, error)

    def _obstacle(self, pod: Object, decision: Decision) -> WriteResult | None:
        """The reason that a decision about a pod can no longer be carried out, if there is one."""
        if decision.kind == "Nominate":
            return None
        if rival := self.rivals.present():
            return WriteResult(decision, "conflict", rival)
        if decision.kind == "Evict":
            terminating = "deletionTimestamp" in pod["metadata"]
            return WriteResult(decision, "conflict", "it is terminating already") if terminating else None
        if pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            return WriteResult(decision, "conflict", "it is bound or terminating")
        if self._nodes.get(("", decision.node)) is None:
            return WriteResult(decision, "gone", f"no node {decision.node}")
        return None

    def _send(self, order: Order) -> WriteResult:
        """Write an order, if it is still right."""
        decision = order.decision
        try:
            pod = self._pods.get(decision.pod)
            if pod is None or not order.meant_for(pod):
                return WriteResult(decision, "gone", "no such pod")
            if (obstacle := self._obstacle(pod, decision)) is not None:
                return obstacle
            if decision.kind == "Bind":
                return WriteResult(decision, *self._bind(pod, decision, order.shown))
            return WriteResult(decision, *self._evict(pod, decision))
        except LeaseLost:
            raise
        except Exception as error:
            return _failed(decision, error)

    def _bind(self, pod: Object, decision: Decision, request: Object) -> tuple[WriteOutcome, str]:
        namespace, name = decision.pod
        request = self.rivals.mark(request)
        try:
            made = self._transport.create(resources.BIND_REQUESTS, namespace, request)
        except (ApiError, NotReachable) as error:
            exists = isinstance(error, ApiError) and error.status == 409
            known = self._known(request) if exists or error.unknown else None
            if known is None or not api_objects.belongs_to(known, pod) or known["spec"] != request["spec"]:
                return self._not_ordered(pod, known, error)
            made = known
        self._bound_at = time.monotonic()
        self._requests.put(made, ours=True)
        self._backoff.ordered(pod["metadata"]["uid"])
        self._label_pool(pod)
        message = f"pod {namespace}/{name} is to be bound to node {decision.node}"
        self._recorder.say(pod, resources.PODS, "Normal", "Scheduled", message, topic="scheduling")
        return "done", ""

    def _label_pool(self, pod: Object) -> None:
        label, value = self._pool
        if label and value and api_objects.labels_of(pod).get(label) != value:
            namespace, name = key_of(pod)
            body = {"metadata": {"uid": pod["metadata"]["uid"], "labels": {label: value}}}
            write = partial(self._label, namespace, name, body)
            self._writer.submit(("pool", namespace, name), write, namespace=namespace)

    def _label(self, namespace: str, name: str, body: Object) -> None:
        self._keep_pod(self._transport.patch(resources.PODS, namespace, name, body))

    def _known(self, request: Object) -> Object | None:
        """The BindRequest that the server has under the name of one that was not answered, or is there."""
        meta = request["metadata"]
        return self._transport.get(resources.BIND_REQUESTS, meta["namespace"], meta["name"])

    def _not_ordered(self, pod: Object, known: Object | None, error: KubeError) -> tuple[WriteOutcome, str]:
        if known is not None:
            if not api_objects.belongs_to(known, pod):
                self._drop(known)
            return "conflict", "another BindRequest of the same name exists"
        if not isinstance(error, ApiError):
            raise error
        if error.not_found:
            return "gone", error.message
        if error.status == 409:
            return "conflict", "a BindRequest existed, and is gone"
        self._backoff.failed(pod["metadata"]["uid"], self._clock())
        self._note_failure(pod)
        self._recorder.say(pod, resources.PODS, "Warning", "FailedBinding", error.message, topic="scheduling")
        self._condition(pod, "PodScheduled", "BindingError", error.message)
        return "failed", str(error)

    def _note_failure(self, pod: Object) -> None:
        """Note in its pod group that a bind of the pod failed, or that its place was lost; of several pods
        that wait, the one that failed most often counts."""
        uid, key = pod["metadata"]["uid"], api_objects.group_of(pod)
        if not key.name:
            return
        before = self.annotations.of(key).get(keys.FAILURES)
        times = max(self._backoff.failures(uid), failures_of(before, uid) + 1)
        other = failures_noted(before)
        if other is not None and other.uid != uid and other.times >= times and self._waiting(other.uid):
            return
        self.annotations.set(key, {keys.FAILURES: failures_note(uid, times, self._clock())})

    def _evict(self, pod: Object, decision: Decision) -> tuple[WriteOutcome, str]:
        limited = self._budgets or decision.action == "defrag"
        # With the Eviction API the server writes the condition, once the budgets allow the eviction.
        marks = self._options.update_pod_eviction_condition and not limited and not _is_target(pod)
        try:
            if marks:
                self._write_condition(pod, "DisruptionTarget", PREEMPTED, decision.message, status="True")
            answer = self._ask_to_leave(pod) if limited else self._delete(pod)
        except LeaseLost:
            raise
        except KubeError as error:
            found = self._look(pod)
            if found is None or "deletionTimestamp" in found["metadata"]:
                return ("done", "") if error.unknown else ("gone", "it left by itself")
            if marks:
                self._condition(found, "DisruptionTarget", "NotEvicted", str(error))
            if isinstance(error, ApiError) and (error.status == 409 or error.over_budget):
                return "conflict", error.message
            raise
        if answer is None:
            return "gone", "it left by itself"
        if answer.get("kind") == "Pod" or "spec" in answer:
            self._keep_pod(answer)
        else:
            self._pods.remove(pod, ours=True)
        return "done", ""

    def _delete(self, pod: Object) -> Object | None:
        meta, grace = pod["metadata"], api_objects.shorter_grace(pod)
        return self._transport.delete(
            resources.PODS, meta["namespace"], meta["name"], uid=meta["uid"], grace=grace
        )

    def _ask_to_leave(self, pod: Object) -> Object | None:
        """Evict the pod if its PodDisruptionBudgets allow that; the pod as it leaves, None when it is gone.

        Raises :class:`ApiError`.
        """
        meta, grace = pod["metadata"], api_objects.shorter_grace(pod)
        shorter = {} if grace is None else {"gracePeriodSeconds": grace}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "deleteOptions": {"preconditions": {"uid": meta["uid"]}, **shorter},
        }
        try:
            self._transport.create(
                resources.PODS, meta["namespace"], body, name=meta["name"], subresource="eviction"
            )
        except ApiError as error:
            if error.not_found:
                return None
            raise
        return self._look(pod) or {}

    def _look(self, pod: Object) -> Object | None:
        """The pod as the server has it now; None when it is gone."""
        meta = pod["metadata"]
        found = self._transport.get(resources.PODS, meta["namespace"], meta["name"])
        return found if found is not None and found["metadata"]["uid"] == meta["uid"] else None

    def _note_results(
        self,
        starts: Mapping[GroupKey, str | None],
        lost: dict[GroupKey, PodKey],
        key: GroupKey,
        results: Sequence[WriteResult],
    ) -> None:
        """Note the results of a pod group. ``starts``: as :meth:`_note_starts` answers. ``lost``: pods that
        lost their place, by pod group; those are taken out that are noted."""
        done = [decision for decision, outcome, _ in results if outcome == "done"]
        if key in starts and not any(decision.kind == "Bind" for decision in done):
            self.annotations.set(key, {keys.LAST_START: starts[key]})
        evicted: dict[str, list[Decision]] = defaultdict(list)
        for decision in done:
            if decision.kind == "Evict":
                evicted[decision.action].append(decision)
                # Of an eviction that was refused nothing came, but it stopped nothing either.
                again = [self._pods.get(lost.pop(one)) for one in decision.triggers if one in lost]
                for pod in filter(None, again):
                    self._note_failure(pod)
        for action, decisions in evicted.items():
            self._note_evictions(key, action, decisions)

    def _note_evictions(self, key: GroupKey, action: str, decisions: list[Decision]) -> None:
        group = self._groups.get(key)
        if group is None:
            return
        annotations = {keys.EVICTED_PODS: str(len(decisions)), keys.EVICTOR_ACTION: action}
        trigger = next((t for d in decisions for t in d.triggers), None)
        if trigger is not None:
            annotations[keys.EVICTOR_NAME] = trigger.name
            annotations[keys.EVICTOR_NAMESPACE] = trigger.namespace
        message = decisions[0].message or f"{len(decisions)} pods evicted by {action}"
        self._recorder.say(
            group,
            resources.POD_GROUPS,
            "Normal",
            "Evict",
            message,
            again=True,
            annotations=annotations,
            urgent=True,
        )
        if action not in STATE_ACTIONS:
            stamp = api_objects.rfc3339(self._clock())
            more = {keys.ENDED: stamp} if action == "maxruntime" else {}
            if action == "defrag":
                before = self.annotations.of(key).get(keys.MOVED)
                back = self._alive(key) + len(decisions)
                more[keys.MOVED] = moved_note(before, self._clock(), len(decisions), back)
            self.annotations.set(key, {keys.LAST_EVICTION: stamp, **more})

    def _lost_before(self, key: PodKey) -> bool:
        """Whether a pod that is to get a place was promised one before, or lost one."""
        pod = self._pods.get(key)
        if pod is None:
            return False
        uid = pod["metadata"]["uid"]
        noted = self.annotations.of(api_objects.group_of(pod)).get(keys.FAILURES)
        # A bind that failed is counted already.
        lost = failures_of(noted, uid) > 0 and not self._backoff.failures(uid)
        return lost or bool(self._nominations.node_of(pod))

    def _alive(self, key: GroupKey) -> int:
        """The pods of a group that run and stay."""
        return sum(
            pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
            for pod in self._members(key)
        )

    def _note_starts(self, plan: Plan) -> dict[GroupKey, str | None]:
        """Note the start of the pod groups that begin with the plan; what was noted of each before.

        What a plan nominates of a group beside what it binds is surplus: a minimum starts as a whole (4.2).
        """
        binds = {d.group for d in plan.decisions if d.kind == "Bind" and d.group is not None}
        before = {}
        stamp = api_objects.rfc3339(self._clock())
        for key in sorted(key for key in binds if not self._has_place(key)):
            before[key] = self.annotations.of(key).get(keys.LAST_START)
            self.annotations.set(key, {keys.LAST_START: stamp})
        return before

    def _condition(self, pod: Object, kind: str, reason: str, message: str) -> None:
        try:
            self._write_condition(pod, kind, reason, message)
        except LeaseLost:
            raise
        except KubeError as error:
            LOG.warning(
                "a condition was not written, so the pod does not show what became of the decision",
                extra={"pod": "/".join(key_of(pod)), "error": str(error)},
            )

    def _write_condition(
        self, pod: Object, kind: str, reason: str, message: str, *, status: str = "False"
    ) -> None:
        meta = pod["metadata"]
        body = api_objects.condition_patch(pod, kind, status, reason, message, now=self._clock())
        self._keep_pod(
            self._transport.patch(
                resources.PODS, meta["namespace"], meta["name"], body, subresource="status", strategic=True
            )
        )

    def _keep_pod(self, pod: Object | None) -> None:
        if pod is not None:
            self._pods.put(pod, ours=True)

    def _drop(self, request: Object) -> bool:
        meta = request["metadata"]
        try:
            self._transport.delete(
                resources.BIND_REQUESTS, meta["namespace"], meta["name"], uid=meta.get("uid", "")
            )
        except LeaseLost:
            raise
        except KubeError as error:
            LOG.warning(
                "a BindRequest was not deleted, and is tried again in a later cycle",
                extra={"bindRequest": f"{meta['namespace']}/{meta['name']}", "error": str(error)},
            )
            return False
        self._requests.remove(request, ours=True)
        return True

    def _is_ours(self, request: Object) -> bool:
        key, value = self._pool
        return not key or (api_objects.labels_of(request).get(key) or "") == value

    def _is_served(self, pod: Object) -> bool:
        """Whether the pod's group is of this pool."""
        name = api_objects.annotations_of(pod).get(keys.POD_GROUP)
        return bool(name) and self._groups.get((key_of(pod)[0], str(name))) is not None

    def _may_be_nominated(self, pod: Object) -> bool:
        """Whether a pod waits here and was not ordered to be bound."""
        key, ours = PodKey(*key_of(pod)), pod["spec"].get("schedulerName") == self._options.scheduler_name
        placed = pod["spec"].get("nodeName") or self._requests.get(key) or self.orders.binds(key)
        return ours and not placed and "deletionTimestamp" not in pod["metadata"] and self._is_served(pod)

    def _has_place(self, key: GroupKey) -> bool:
        for pod in self._members(key):
            meta = pod["metadata"]
            name = PodKey(meta["namespace"], meta["name"])
            placed = pod["spec"].get("nodeName") or self._requests.get(name) or self.orders.binds(name)
            if placed and "deletionTimestamp" not in meta:
                return True
        return False

    def _members(self, key: GroupKey) -> list[Object]:
        return self._cache.members.of(key)

    def _request_changed(self, old: Object | None, new: Object | None) -> None:
        request = new or old
        assert request is not None
        owners = request["metadata"].get("ownerReferences") or ()
        uid = next((entry["uid"] for entry in owners if entry.get("kind") == "Pod"), "")
        before = ((old or {}).get("status") or {}).get("phase")
        after = ((new or {}).get("status") or {}).get("phase")
        if not uid or before == after:
            return
        if after == "Failed":
            self._backoff.failed(uid, self._clock())
        elif after == "Succeeded":
            self._backoff.succeeded(uid)


def _last_start(group: Object) -> float:
    try:
        return seconds_of(api_objects.annotations_of(group).get(keys.LAST_START, ""))
    except ValueError:
        return -math.inf


def _is_target(pod: Object) -> bool:
    """Whether another program has said already that the pod is being disrupted."""
    found = api_objects.condition((pod.get("status") or {}).get("conditions"), "DisruptionTarget")
    return found is not None and found.get("status") == "True" and found.get("reason") != PREEMPTED


def leaving(pod: Object, stamp: str) -> Object:
    """The pod as it shows from the decision to evict it."""
    # What is read of an object is kept by its version.
    version = f"{pod['metadata'].get('resourceVersion', '')}-leaving"
    return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": stamp, "resourceVersion": version}}


def _failed(decision: Decision, error: Exception) -> WriteResult:
    """The result of a decision that was refused, or met a defect; the other pods are still written."""
    ours = isinstance(error, NotGranted) or not isinstance(error, (KubeError, Malformed))
    if not ours:
        return WriteResult(decision, "failed", str(error))
    LOG.error(
        "a decision was not carried out, and the next cycle decides again: report this defect with its trace",
        exc_info=error,
        extra={"pod": "/".join(decision.pod)},
    )
    return WriteResult(decision, "failed", f"{type(error).__name__}: {error}")
