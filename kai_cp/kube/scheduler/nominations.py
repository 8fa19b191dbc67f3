"""Nominations in the cluster: the status of a waiting pod names the node where its place is promised.

kube-scheduler writes ``status.nominatedNodeName`` in the same way. So the next cycle finds in its snapshot
what this one promised, in whichever process it runs, and serves that first (4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from kai_cp.json_types import Object
from kai_cp.kube.api import resources
from kai_cp.kube.api.api_objects import NOMINATED, group_of, nominated, nominated_to
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.store import Store, key_of
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.scheduler.unwritten import with_unwritten
from kai_cp_models.plan import Plan
from kai_cp_models.pods import PodKey

_UNDECIDED: Final = ("NotDecidedInTime", "InternalError")
"""Reasons of pod groups about which a plan says nothing."""


class _Decided(NamedTuple):
    """The node ("": none) that the status of a pod shall name."""

    uid: str
    node: str


class Nominations:
    """The nominated nodes of all waiting pods of a scheduler as they will soon be.

    They are written in the background, and only where they change. Snapshots show them at once, so no cycle
    decides without them, and none waits for a write. ``waits``: whether a pod is to be served here and was
    not ordered to be bound.
    """

    def __init__(
        self, transport: Transport, pods: Store, writer: BackgroundWriter, waits: Callable[[Object], bool]
    ) -> None:
        self._transport = transport
        self._pods = pods
        self._writer = writer
        self._waits = waits
        self._decided: dict[PodKey, _Decided] = {}
        """What is decided and not written yet."""
        self._naming = pods.index(
            lambda pod: (NOMINATED,) if nominated_to(pod) and not pod["spec"].get("nodeName") else ()
        )

    def follow(self, plan: Plan, moved: Callable[[PodKey], str] = lambda _: "") -> None:
        """Have the waiting pods that the plan promises places name their nodes, and all others that it does
        not bind name none. Pods that leave are left alone: what comes in the place of one is another pod.
        ``moved``: see ``MovedPods.node_of``."""
        wanted = plan.promises(lambda key: self._named(key) or moved(key))
        others = {one.pod for one in plan.decisions if one.kind != "Nominate"}
        silent = {one.group for one in plan.unscheduled if one.reason in _UNDECIDED}
        naming = [PodKey(*key_of(pod)) for pod in self._naming(NOMINATED)]
        for key in {*wanted, *naming, *self._decided} - others:
            pod = self._pods.get(key)
            if pod is None or group_of(pod) in silent or not self._waits(pod):
                continue
            decided = _Decided(pod["metadata"]["uid"], wanted.get(key, ""))
            # What is being written may arrive later than what is decided now, unless that is written, too.
            if key in self._decided or _as_decided(pod, decided) is not pod:
                self._decided[key] = decided
                self._submit(key)

    def node_of(self, pod: Object) -> str:
        """The node that the status of a pod names, or will soon; "" for none."""
        decided = self._decided.get(PodKey(*key_of(pod)))
        return nominated_to(pod if decided is None else _as_decided(pod, decided))

    def _named(self, key: PodKey) -> str:
        pod = self._pods.get(key)
        return "" if pod is None else self.node_of(pod)

    def submit_again(self) -> None:
        """Have everything written that is not written yet: the writer may have dropped it."""
        for key in list(self._decided):
            self._submit(key)

    def shown(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """The snapshot with what is not written yet."""
        decided = dict(self._decided)
        if not decided:
            return raw
        return with_unwritten(raw, "pods", lambda key: decided.get(PodKey(*key)), _as_decided)

    def _submit(self, key: PodKey) -> None:
        self._writer.submit((NOMINATED, *key), partial(self._write, key), namespace=key.namespace)

    def _write(self, key: PodKey) -> None:
        decided, pod = self._decided.get(key), self._pods.get(key)
        try:
            if decided is not None and pod is not None and _as_decided(pod, decided) is not pod:
                body = {"metadata": {"uid": decided.uid}, "status": {NOMINATED: decided.node or None}}
                changed = self._transport.patch(resources.PODS, *key, body, subresource="status")
                if changed is not None:
                    self._pods.put(changed, ours=True)
        finally:
            # What was refused is decided again by the next cycle.
            if self._decided.get(key) is decided:
                self._decided.pop(key, None)


def _as_decided(pod: Object, decided: _Decided) -> Object:
    """The pod with the node that its status will soon name."""
    same = decided.uid != pod["metadata"].get("uid") or decided.node == nominated_to(pod)
    return pod if same else nominated(pod, decided.node)
