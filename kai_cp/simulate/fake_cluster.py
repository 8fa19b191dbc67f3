"""A cluster in memory that behaves like the real one with its binder and kubelets.

A bind creates a BindRequest; after ``bind_seconds`` the pod is bound, and after ``start_seconds`` more it
runs. An eviction starts the pod's graceful termination; after its grace period the pod is gone, and with
``recreate`` its controller creates a new pending pod in its place. Only :meth:`FakeCluster.advance` moves the
time.
"""

from __future__ import annotations

import copy
import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects
from kai_cp.kube.api.moved import MovedPods
from kai_cp.kube.api.promises import failures_note, failures_of, lost_places, moved_note
from kai_cp.kube.api.store import ObjectKey
from kai_cp.kube.api.write_results import WriteOutcome, WriteResult
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.policy import STATE_ACTIONS


class FakeCluster:
    """A twin of a live cluster, started from a raw KAI snapshot.

    ``now`` is its clock in seconds since the epoch. With ``recreate`` an evicted pod comes back as a pending
    one (its ``metadata.name`` gets a suffix, as from a controller, unless ``same_name``). ``fails`` is called
    for every bind; a returned text makes the bind fail with it, like a webhook or a lost race.
    """

    def __init__(
        self,
        raw: Mapping[str, Any],
        *,
        now: float,
        bind_seconds: float = 0.0,
        start_seconds: float = 0.0,
        recreate: bool = False,
        same_name: bool = False,
        fails: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        self.now = now
        self._raw = {**raw, "rawObjects": dict(raw.get("rawObjects") or {})}
        objects = self._raw["rawObjects"]
        self._pods = {_key(pod): copy.deepcopy(pod) for pod in objects.get("pods") or ()}
        self._groups = {_key(group): copy.deepcopy(group) for group in objects.get("podGroups") or ()}
        self._requests = {_key(item): copy.deepcopy(item) for item in objects.get("bindRequests") or ()}
        self._nodes = {item["metadata"]["name"]: item for item in objects.get("nodes") or ()}
        self._bind_seconds = bind_seconds
        self._start_seconds = start_seconds
        self._recreate = recreate
        self._same_name = same_name
        self._fails = fails or (lambda _request: "")
        self._moved = MovedPods(lambda key: self._pods.get(key))
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._born = itertools.count(1)
        self._versions = itertools.count(1)
        self.log: list[tuple[float, str, str]] = []
        """What happened: (time, *bound* | *running* | *evicted* | *gone* | *failed*, namespace/name)."""

    def snapshot(self) -> Mapping[str, Any]:
        """The cluster now, with the places of moved pods. Objects are replaced and never changed, so a
        snapshot stays as it is."""
        lists = {
            "pods": [self._pods[key] for key in sorted(self._pods)],
            "podGroups": [self._groups[key] for key in sorted(self._groups)],
            "bindRequests": [self._requests[key] for key in sorted(self._requests)],
        }
        raw = {**self._raw, "rawObjects": {**self._raw["rawObjects"], **lists}}
        return self._moved.shown(raw, self.now)

    def apply(self, plan: Plan) -> Sequence[WriteResult]:
        """Carry out the plan at the present time."""
        self._clean()
        lost = lost_places(plan, self._lost_before)
        self._nominate(plan)
        self._moved.follow(plan, self.now)
        results = [self._act(decision) for decision in plan.decisions]
        stopped = {key for one, outcome, _ in results if outcome == "done" for key in one.triggers}
        for group in lost.keys() & stopped:
            uid = self._pods[lost[group]]["metadata"].get("uid", "")
            times = failures_of(self._noted(group), uid) + 1
            self.note(group, {keys.FAILURES: failures_note(uid, times, self.now)})
        return results

    def advance(self, seconds: float) -> None:
        """Let time pass; bindings, starts and terminations happen in the order of their times."""
        end = self.now + seconds
        while self._agenda and self._agenda[0][0] <= end:
            self.now, _, happen = heapq.heappop(self._agenda)
            happen()
        self.now = end

    def add_pod(self, pod: Object) -> None:
        """Add a pod."""
        self._pods[_key(pod)] = copy.deepcopy(pod)

    def add_group(self, group: Object) -> None:
        """Add a pod group."""
        self._groups[_key(group)] = copy.deepcopy(group)

    def finish(self, namespace: str, name: str) -> None:
        """End a running pod successfully."""
        pod = self._pods.get((namespace, name))
        if pod is not None and (pod.get("status") or {}).get("phase") == "Running":
            self._change_pod(pod, status={"phase": "Succeeded"})
            self._requests.pop((namespace, name), None)

    def remove(self, namespace: str, name: str) -> None:
        """Remove a pod at once."""
        self._pods.pop((namespace, name), None)
        self._requests.pop((namespace, name), None)

    def _act(self, decision: Decision) -> WriteResult:
        pod = self._pods.get(decision.pod)
        if pod is None:
            return WriteResult(decision, "gone", "no such pod")
        if decision.kind == "Bind":
            return WriteResult(decision, *self._bind(pod, decision))
        if decision.kind == "Evict":
            return WriteResult(decision, *self._evict(pod, decision))
        return WriteResult(decision, "done")

    def _lost_before(self, key: PodKey) -> bool:
        """Whether a pod that gets a place was promised one before, or lost one."""
        pod = self._pods.get(key)
        if pod is None:
            return False
        noted = self._noted(api_objects.group_of(pod))
        return bool(api_objects.nominated_to(pod)) or failures_of(noted, pod["metadata"].get("uid", "")) > 0

    def _noted(self, group: GroupKey) -> str | None:
        item = self._groups.get(group)
        return None if item is None else api_objects.annotations_of(item).get(keys.FAILURES)

    def _nominate(self, plan: Plan) -> None:
        """Let waiting pods name the nodes that the plan promises them, and no others."""
        named = {key: api_objects.nominated_to(pod) for key, pod in self._pods.items()}
        wanted = plan.promises(lambda key: named.get(key, "") or self._moved.node_of(key))
        kept = {one.pod for one in plan.decisions if one.kind != "Nominate"} | self._requests.keys()
        for key, pod in list(self._pods.items()):
            waits = key not in kept and not pod["spec"].get("nodeName") and api_objects.group_of(pod).name
            node = wanted.get(PodKey(*key), "")
            if waits and node != named[key]:
                self._change_pod(pod, status={api_objects.NOMINATED: node})

    def _bind(self, pod: Object, decision: Decision) -> tuple[WriteOutcome, str]:
        key = _key(pod)
        if key in self._requests or pod["spec"].get("nodeName"):
            return "conflict", "it is being bound already"
        node = self._nodes.get(decision.node)
        if node is None:
            return "gone", f"no node {decision.node}"
        if decision.group is not None:
            self._note_start(decision.group)
        params = self._raw.get("schedulerParams") or {}
        partition = params.get("partitionParams") or {}
        pool = (partition.get("NodePoolLabelKey") or "", partition.get("NodePoolLabelValue") or "")
        request = api_objects.bind_request(pod, node, decision, pool)
        request["metadata"]["uid"] = f"bind-{pod['metadata'].get('uid', '')}"
        self._requests[key] = request
        uid = pod["metadata"].get("uid")
        self._at(self.now + self._bind_seconds, lambda: self._bound(key, uid))
        return "done", ""

    def _note_start(self, group: GroupKey) -> None:
        pods = [pod for pod in self._pods.values() if api_objects.group_of(pod) == group]
        placed = any(
            pod["spec"].get("nodeName") or _key(pod) in self._requests
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"]
        )
        if not placed:
            self._annotate(group, keys.LAST_START)

    def _bound(self, key: ObjectKey, uid: str | None) -> None:
        pod, request = self._pods.get(key), self._requests.get(key)
        if pod is None or request is None or pod["metadata"].get("uid") != uid:
            return
        problem = self._fails(request)
        if problem:
            status = {"phase": "Failed", "reason": problem, "failedAttempts": 1}
            self._requests[key] = {**request, "status": status}
            self._note("failed", key)
            return
        self._requests[key] = {**request, "status": {"phase": "Succeeded"}}
        labels = dict(pod["metadata"].get("labels") or {})
        groups = request["spec"].get("selectedGPUGroups") or []
        if len(groups) == 1:
            labels[keys.GPU_GROUP] = groups[0]
        elif groups:
            labels.update({f"{keys.GPU_GROUP}/{group}": group for group in groups})
        node = request["spec"]["selectedNode"]
        meta = self._changed(pod, labels=labels) if labels else self._changed(pod)
        self._pods[key] = {**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": node}}
        self._note("bound", key)
        self._at(self.now + self._start_seconds, lambda: self._running(key, uid))

    def _running(self, key: ObjectKey, uid: str | None) -> None:
        pod = self._pods.get(key)
        alive = pod is not None and "deletionTimestamp" not in pod["metadata"]
        if pod is not None and alive and pod["metadata"].get("uid") == uid:
            self._change_pod(pod, status={"phase": "Running", "startTime": api_objects.rfc3339(self.now)})
            self._note("running", key)

    def _evict(self, pod: Object, decision: Decision) -> tuple[WriteOutcome, str]:
        key = _key(pod)
        if "deletionTimestamp" in pod["metadata"]:
            return "conflict", "it is terminating already"
        if decision.group is not None and decision.action not in STATE_ACTIONS:
            self._annotate(decision.group, keys.LAST_EVICTION)
            if decision.action == "maxruntime":
                self._annotate(decision.group, keys.ENDED)
            if decision.action == "defrag":
                group = self._groups.get(decision.group)
                before = None if group is None else api_objects.annotations_of(group).get(keys.MOVED)
                self.note(decision.group, {keys.MOVED: moved_note(before, self.now, 1, 0)})
        self._note("evicted", key)
        uid = pod["metadata"].get("uid")
        grace = api_objects.grace_seconds(pod) if pod["spec"].get("nodeName") else 0.0
        self._change_pod(pod, deletionTimestamp=api_objects.rfc3339(self.now + grace))
        self._at(self.now + grace, lambda: self._gone(key, uid))
        return "done", ""

    def _gone(self, key: ObjectKey, uid: str | None) -> None:
        pod = self._pods.get(key)
        if pod is None or pod["metadata"].get("uid") != uid:
            return
        self.remove(*key)
        self._note("gone", key)
        if self._recreate:
            self._pods_born(pod)

    def _pods_born(self, pod: Object) -> None:
        number = next(self._born)
        old = pod["metadata"]
        meta = {k: v for k, v in old.items() if k not in ("deletionTimestamp", "resourceVersion")}
        meta["name"] = old["name"] if self._same_name else f"{old['name'].split('.r')[0]}.r{number}"
        meta["uid"] = f"{old.get('uid', old['name'])}.r{number}"
        meta["creationTimestamp"] = api_objects.rfc3339(self.now)
        labels = meta.get("labels") or {}
        meta["labels"] = {k: v for k, v in labels.items() if not k.startswith(keys.GPU_GROUP)}
        spec = {k: v for k, v in pod["spec"].items() if k != "nodeName"}
        self.add_pod({**pod, "metadata": meta, "spec": spec, "status": {"phase": "Pending"}})

    def _clean(self) -> None:
        failed = [
            key
            for key, request in self._requests.items()
            if api_objects.failed_for_good(request) or request["spec"].get("selectedNode") not in self._nodes
        ]
        for key in failed:
            del self._requests[key]

    def note(self, group: GroupKey, annotations: Mapping[str, str | None]) -> None:
        """Set (None: remove) annotations of a pod group."""
        item = self._groups.get(group)
        if item is not None:
            merged = {**api_objects.annotations_of(item), **annotations}
            kept = {name: text for name, text in merged.items() if text is not None}
            self._groups[group] = {**item, "metadata": self._changed(item, annotations=kept)}

    def _annotate(self, group: GroupKey, name: str) -> None:
        self.note(group, {name: api_objects.rfc3339(self.now)})

    def _change_pod(self, pod: Object, *, status: Object | None = None, **meta: Any) -> None:
        changed = {**pod, "metadata": self._changed(pod, **meta)}
        if status is not None:
            changed["status"] = {**(pod.get("status") or {}), **status}
        self._pods[_key(pod)] = changed

    def _changed(self, item: Object, **meta: Any) -> Object:
        """The metadata of a changed object, with a new version so that readers notice."""
        return {**item["metadata"], **meta, "resourceVersion": f"changed-{next(self._versions)}"}

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (when, next(self._order), happen))
        if when <= self.now:
            self.advance(0.0)

    def _note(self, what: str, key: ObjectKey) -> None:
        self.log.append((self.now, what, "/".join(key)))


def _key(item: Mapping[str, Any]) -> ObjectKey:
    return (item["metadata"].get("namespace") or "", item["metadata"]["name"])
