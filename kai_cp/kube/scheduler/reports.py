"""Reports why pods wait where KAI's users look: in conditions and events (9.7), and only on changes."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects, resources
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.errors import KubeError
from kai_cp.kube.api.event_quota import MOST_EVENTS, WINDOW_SECONDS, EventQuota
from kai_cp.kube.api.promises import promises
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.store import key_of
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.scheduler.api_cluster import ApiCluster
from kai_cp.kube.scheduler.cache import ClusterCache
from kai_cp.kube.scheduler.options import Mode, SchedulerOptions
from kai_cp.kube.scheduler.staleness import stale_groups
from kai_cp.reader.times import seconds_of
from kai_cp_models.plan import Plan, Unscheduled
from kai_cp_models.pods import GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.snapshot import Snapshot

LOG = logging.getLogger(__name__)
CONDITION: Final = "UnschedulableOnNodePool"
SILENT: Final = frozenset({"NotDecidedInTime", "SchedulingBackoff"})
"""Reasons that say nothing about the pods now: an autoscaler must not act on them."""
NO_ROOM_SOUGHT: Final = frozenset({"NotReady", "WaitsForItsTurn", "NoAction"})
"""Reasons that say nothing about room: they get an event on the pod group and no condition."""
REWRITE_SECONDS: Final = 30.0
"""A condition or event whose message alone changed is not written again sooner."""
GROUPING_SECONDS: Final = 10.0
"""A new pod gets its pod group from the pod grouper; that it is set aside is reported once it is this old."""
_TOLD: Final[dict[str, str]] = {
    "made": "StartReserved",
    "earlier": "StartMoved",
    "later": "StartMoved",
    "dropped": "StartDropped",
}
"""Events on pod groups that hold room, by the state of their reservation; the others are not news."""
PLACED: Final = frozenset({PodStatus.BINDING, PodStatus.BOUND, PodStatus.RUNNING})


class Reporter:
    """Writes the reasons of a cycle. All writes go through the background writer."""

    def __init__(
        self,
        transport: Transport,
        cache: ClusterCache,
        cluster: ApiCluster,
        options: SchedulerOptions,
        recorder: Recorder,
        *,
        writer: BackgroundWriter,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._transport = transport
        self._cluster = cluster
        self._options = options
        self._recorder = recorder
        self._writer = writer
        self._clock = clock
        self._pods = cache.stores[resources.PODS]
        self._groups = cache.stores[resources.POD_GROUPS]
        self._cache = cache
        self._written = Lately(clock)
        """Pods and pod groups whose conditions were written."""
        self._told = Lately(clock)
        """By uid of pod or pod group: the reason of its last event."""
        self._quota = EventQuota(clock)
        self.words: Callable[[Unscheduled], str] = lambda entry: entry.message
        """What is said of a pod group that waits: the cycle's message, or more where more is known."""

    @property
    def pool(self) -> str:
        """The node pool as conditions name it."""
        return self._options.partition_label_value or "default"

    def report(self, snapshot: Snapshot, plan: Plan) -> float | None:
        """Say what the cycle found; when to look again because a rewrite was put off, or None.

        Namespaces in which little waits come first.
        """
        if self._options.mode is Mode.OBSERVE:
            return None
        placed = {decision.pod for decision in plan.decisions if decision.kind != "Evict"}
        again: list[float] = []
        waiting = {entry.group for entry in plan.unscheduled}
        load = Counter(entry.group.namespace for entry in plan.unscheduled)
        for entry in sorted(plan.unscheduled, key=lambda entry: load[entry.group.namespace]):
            if entry.reason not in SILENT:
                with _alone("podGroup", entry.group):
                    again += self._waits(snapshot, entry, placed)
        for group in snapshot.groups:
            if group.key not in waiting:
                with _alone("podGroup", group.key):
                    self._clear(snapshot, group.key, placed)
        if self._options.mode is Mode.ENFORCE:
            self._mark_stale(snapshot, plan)
            for key, annotations in promises(snapshot, plan):
                self._cluster.annotations.set(key, annotations, uid=snapshot.group_by_key[key].uid)
            self._tell_starts(plan)
        again += self._report_set_aside(snapshot, plan)
        self._tell_left_out()
        return min(again, default=None)

    def _tell_left_out(self) -> None:
        """Write one event for all objects of a namespace that got none in this window."""
        for objects, about, resource in self._quota.left_out():
            text = (
                f"events about {objects} objects of this namespace, of which this is the first, come later: "
                f"it has {MOST_EVENTS} in {WINDOW_SECONDS:g} s at most; kai-cp explain shows all"
            )
            self._recorder.say(about, resource, "Normal", "EventsLeftOut", text)

    def _tell_starts(self, plan: Plan) -> None:
        """Write one event for each start that is made, moved or given up, with its cause."""
        for entry in plan.reservations or ():
            group, state = self._groups.get(entry.group), entry.state
            if group is not None and state in _TOLD:
                kind = "Warning" if entry.cause else "Normal"
                cause = f" ({entry.cause})" if entry.cause and entry.cause not in entry.message else ""
                words = f"{entry.message}{cause}"
                self._recorder.say(
                    group, resources.POD_GROUPS, kind, _TOLD[state], words, topic="reservation"
                )

    def _waits(self, snapshot: Snapshot, entry: Unscheduled, placed: set[PodKey]) -> list[float]:
        group = self._groups.get(entry.group)
        record = snapshot.group_by_key.get(entry.group)
        if group is None or record is None or group["metadata"].get("uid", "") != record.uid:
            return []
        message = self.words(entry)
        if group["spec"].get("schedulingBackoff") == 1:
            message = f"{self.pool}: {message}"
        if entry.reason in NO_ROOM_SOUGHT:
            return self._tell(group, resources.POD_GROUPS, "Normal", entry.reason, message)
        members = snapshot.members[entry.group]
        again = self._tell(group, resources.POD_GROUPS, "Warning", "Unschedulable", message)
        for pod in members:
            if pod.status is PodStatus.PENDING and pod.key not in placed:
                again += self._mark_pod(pod, message, condition=record.mark_unschedulable)
        if not any(pod.status in PLACED for pod in members) and not any(p.key in placed for p in members):
            again += self._mark_group(group, entry, message)
        return again

    def _mark_pod(self, seen: Pod, message: str, *, condition: bool) -> list[float]:
        key, pod = seen.key, self._pods.get(seen.key)
        if pod is None or pod["spec"].get("nodeName") or pod["metadata"]["uid"] != seen.uid:
            return []
        again = self._tell(pod, resources.PODS, "Warning", "Unschedulable", message)
        if not condition:
            return again
        message = message[: api_objects.MOST_MESSAGE]
        present = api_objects.condition((pod.get("status") or {}).get("conditions"), "PodScheduled")
        if present is not None and present.get("reason") == "Unschedulable":
            if present.get("message") == message:
                return again
            put_off = self._put_off(("pod", *key))
            if put_off is not None:
                return [*again, put_off]
        entry = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": api_objects.rfc3339(self._clock()),
        }
        self._submit(("pod", *key), lambda: self._write_pod(seen, entry))
        return again

    def _tell(
        self, about: Object, resource: resources.Resource, kind: str, reason: str, message: str
    ) -> list[float]:
        """Write an event.

        One that says little new, or only "later", waits until the last one is old enough.
        """
        uid = str(about["metadata"].get("uid"))
        if self._recorder.has_said(about, "scheduling", reason, message):
            return []
        last = self._told.get(uid)
        if last is not None and (last[0] == reason or reason in NO_ROOM_SOUGHT):
            return [last[1]]
        later = self._quota.admit(about, resource)
        if later is not None:
            return [later]
        self._told.put(uid, reason)
        self._recorder.say(about, resource, kind, reason, message, topic="scheduling")
        return []

    def _write_pod(self, seen: Pod, entry: Object) -> None:
        pod = self._pods.get(seen.key)
        if pod is None or pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            return
        body = {"metadata": {"uid": seen.uid}, "status": {"conditions": [entry]}}
        changed = self._transport.patch(resources.PODS, *seen.key, body, subresource="status", strategic=True)
        if changed is not None:
            self._pods.put(changed, ours=True)

    def _mark_group(self, group: Object, entry: Unscheduled, message: str) -> list[float]:
        conditions = list((group.get("status") or {}).get("schedulingConditions") or ())
        mine = [item for item in conditions if item.get("nodePool") == self.pool]
        reason: Object = {"reason": entry.reason, "message": message}
        if "queueDetails" in entry.details:
            reason["details"] = dict(entry.details)
        if mine and conditions[-1] is mine[-1]:
            told = (mine[-1].get("reasons") or [{}])[0]
            if told.get("reason") == entry.reason:
                if told.get("message") == message:
                    return []
                put_off = self._put_off(("group", *entry.group))
                if put_off is not None:
                    return [put_off]
        last = max((int(i.get("transitionID") or 0) for i in conditions if _numeric(i)), default=0)
        new = {
            "type": CONDITION,
            "nodePool": self.pool,
            "reason": "Unschedulable",
            "message": message,
            "reasons": [reason],
            "status": "True",
            "transitionID": str(last + 1),
            "lastTransitionTime": api_objects.rfc3339(self._clock()),
        }
        kept = [item for item in conditions if item.get("nodePool") != self.pool]
        self._write_conditions(group, [*kept, new])
        return []

    def _clear(self, snapshot: Snapshot, key: GroupKey, placed: set[PodKey]) -> None:
        group = self._groups.get(key)
        if group is None:
            return
        conditions = (group.get("status") or {}).get("schedulingConditions")
        if not conditions or all(item.get("nodePool") != self.pool for item in conditions):
            return
        unsettled = (PodStatus.PENDING, PodStatus.GATED, PodStatus.BINDING)
        if any(pod.status in unsettled for pod in snapshot.members[key]):
            return
        if any(pod.key in placed for pod in snapshot.members[key]):
            return
        kept = [item for item in conditions if item.get("nodePool") != self.pool]
        self._write_conditions(group, kept)

    def _write_conditions(self, group: Object, conditions: list[Object]) -> None:
        key, uid = key_of(group), group["metadata"].get("uid")

        def write() -> None:
            # The server does not look at the uid in a status of a custom resource.
            if (self._groups.get(key) or group)["metadata"].get("uid") != uid:
                return
            body = {"status": {"schedulingConditions": conditions}}
            changed = self._transport.patch(resources.POD_GROUPS, *key, body, subresource="status")
            if changed is not None:
                self._groups.put(changed, ours=True)

        self._submit(("group", *key), write)

    def _mark_stale(self, snapshot: Snapshot, plan: Plan) -> None:
        stale = stale_groups(snapshot, plan)
        for group in snapshot.groups:
            if group.key in stale and group.stale_since is None:
                stamp = api_objects.rfc3339(self._clock())
                self._cluster.annotations.set(group.key, {keys.STALE_SINCE: stamp}, uid=group.uid)
                item = self._groups.get(group.key)
                if item is not None:
                    text = "fewer pods run than the pod group's minimum"
                    self._recorder.say(item, resources.POD_GROUPS, "Warning", "StaleJob", text, again=True)
            elif group.key not in stale and group.stale_since is not None:
                self._cluster.annotations.set(group.key, {keys.STALE_SINCE: None}, uid=group.uid)

    def _report_set_aside(self, snapshot: Snapshot, plan: Plan) -> list[float]:
        """Write an event on each object that was left out of the cycle, with the reason.

        Returns the times at which the others are due.
        """
        reasons = {entry.item: entry.reason for entry in (*snapshot.set_aside, *plan.set_aside)}
        again: list[float] = []
        for item, reason in reasons.items():
            found = self._find(item)
            if found is None or self._recorder.has_said(found[0], "SetAside", "SetAside", reason):
                continue
            later = self._settled_at(*found) or self._quota.admit(*found)
            if later is None:
                self._recorder.say(*found, "Warning", "SetAside", reason)
            else:
                again.append(later)
        return again

    def _settled_at(self, about: Mapping[str, Any], resource: resources.Resource) -> float | None:
        """When a pod that is new should have its pod group, or None for everything else.

        The cycle may have seen the pod before the pod grouper came to it, and the cache after.
        """
        if resource is not resources.PODS:
            return None
        due = seconds_of(about["metadata"]["creationTimestamp"]) + GROUPING_SECONDS
        return due if due > self._clock() else None

    def _find(self, item: str) -> tuple[Mapping[str, Any], resources.Resource] | None:
        kind, _, key = item.partition(" ")
        namespace, _, name = key.rpartition("/")
        for resource, store in self._cache.stores.items():
            if resource.kind == kind:
                found = store.find((namespace, name))
                return (found, resource) if found is not None else None
        return None

    def _put_off(self, key: tuple[str, ...]) -> float | None:
        last = self._written.get(key)
        return None if last is None else last[1]

    def _submit(self, key: tuple[str, ...], write: Callable[[], None]) -> None:
        self._written.put(key)
        self._writer.submit(("condition", *key), write, namespace=key[1])


class Lately:
    """What was written within the last ``REWRITE_SECONDS``, however much that is."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: OrderedDict[Hashable, tuple[str, float]] = OrderedDict()

    def put(self, key: Hashable, reason: str = "") -> None:
        """Keep a reason from now on; what is too old is forgotten."""
        now = self._clock()
        self._until[key] = reason, now + REWRITE_SECONDS
        self._until.move_to_end(key)
        # The first entry of a plain dict costs a walk over all that were deleted before it.
        while not _lasts(self._until[oldest := next(iter(self._until))][1], now):
            del self._until[oldest]

    def get(self, key: Hashable) -> tuple[str, float] | None:
        """The reason and when it is old enough, or None if it is now."""
        found = self._until.get(key)
        return found if found is not None and _lasts(found[1], self._clock()) else None


def _lasts(until: float, now: float) -> bool:
    """Whether a time is ahead; one that is too far ahead was set before the clock was set back."""
    return now < until <= now + REWRITE_SECONDS


@contextlib.contextmanager
def _alone(kind: str, about: object) -> Iterator[None]:
    """A defect of one object does not stop the reports of others."""
    try:
        yield
    except KubeError:
        raise
    except Exception:
        LOG.exception(
            "why this waits was not reported: report this defect with its trace", extra={kind: str(about)}
        )


def _numeric(item: Mapping[str, Any]) -> bool:
    return str(item.get("transitionID") or "").isdigit()
