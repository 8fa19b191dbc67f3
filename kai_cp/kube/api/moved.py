"""Places of moved pods, until pods of their groups have taken them (4.2).

A plan that moves a pod evicts it and promises it another place. What its controller creates instead is
another pod, which comes when the old one is gone, or earlier. Until then snapshots show a stand-in on its way
to the place: a pod of the group with a BindRequest. Once a pod of the group, or of the same controller, waits
that asks for the same, snapshots show that one as nominated to the place instead, and the rules of all
promises apply. (Each pod of a Deployment is a group of its own.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api.api_objects import (
    annotations_of,
    belongs_to,
    grace_seconds,
    group_of,
    labels_of,
    nominated,
    nominated_to,
)
from kai_cp.kube.api.store import ObjectKey, key_of
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, PodKey

LATE_SECONDS: Final = 15.0
"""How long places are kept after the last of the pods that leave is gone, which it is by the end of its grace
period: the controller of Jobs creates the next pod after ten seconds, others at once."""
_ASKED: Final = (keys.GPU_FRACTION, keys.GPU_MEMORY, keys.FRACTION_DEVICES)
_CLAIMED: Final = ("nodeName", "volumes", "resourceClaims")


@dataclass(eq=False, slots=True)
class _Place:
    """``pod``: the stand-in. ``request``: its BindRequest. ``uid``: of the pod that leaves. ``until``: when
    the place is given up, which comes nearer once all that the plan moved of the group are gone."""

    pod: Object
    request: Object
    node: str
    uid: str
    until: float


class MovedPods:
    """What plans promised to pods that they moved, for a time. ``pods``: the pod of a key, if there is one.

    A new process knows nothing of it.
    """

    def __init__(self, pods: Callable[[PodKey], Object | None]) -> None:
        self._pods = pods
        self._places: dict[PodKey, _Place] = {}
        """By the stand-in."""
        self._given: Mapping[PodKey, PodKey] = {}
        """By the waiting pods that the last snapshot showed as nominated to a place: its stand-in."""

    def follow(self, plan: Plan, now: float) -> None:
        """Keep the places of the pods that the plan moves, and no longer those that it gives to others."""
        self._places = {key: place for key, place in self._places.items() if now < place.until}
        left: dict[PodKey, _Place | None] = {}
        for one in plan.decisions:
            if one.kind == "Evict":
                left[one.pod] = self._places.pop(one.pod, None)
            elif one.pod not in left:
                # It is bound, or its own status names the node from now on.
                self._places.pop(self._given.get(one.pod, one.pod), None)
        moved = [one for one in plan.decisions if one.kind == "Nominate" and one.pod in left]
        fresh = [(one, pod) for one in moved if (pod := self._pods(one.pod)) is not None]
        ends: dict[GroupKey, float] = {}
        for _, pod in fresh:
            end = now + grace_seconds(pod) + LATE_SECONDS
            ends[group_of(pod)] = max(end, ends.get(group_of(pod), end))
        for one, pod in fresh:
            stand_in, uid = _stand_in(pod), pod["metadata"].get("uid", "")
            self._places[PodKey(*key_of(stand_in))] = _place(stand_in, one, uid, ends[group_of(pod)])
        for one in moved:
            if (place := left[one.pod]) is not None:
                self._places[one.pod] = _place(place.pod, one, place.uid, place.until)

    def node_of(self, key: PodKey) -> str:
        """The node that the last snapshot showed a waiting pod as nominated to because of a moved one; ""
        for none."""
        place = self._places.get(self._given.get(key, key))
        return "" if place is None else place.node

    def next_end(self, now: float) -> float | None:
        """When the next place is given up."""
        return min((place.until for place in list(self._places.values()) if now < place.until), default=None)

    def shown(self, raw: Mapping[str, Any], now: float) -> Mapping[str, Any]:
        """The snapshot with the places that are kept."""
        kept = {key: place for key, place in list(self._places.items()) if now < place.until}
        given: dict[PodKey, PodKey] = {}
        stand_ins: list[_Place] = []
        if kept:
            objects = raw["rawObjects"]
            groups, nodes = ({key_of(one) for one in objects[kind] or ()} for kind in ("podGroups", "nodes"))
            there, stay, waiting = _kin(objects, [place.pod for place in kept.values()], groups)
            leaving = {group_of(place.pod) for place in kept.values() if place.uid in there}
            for key, place in kept.items():
                if group_of(place.pod) not in leaving:
                    place.until = min(place.until, now + LATE_SECONDS)
                # An eviction that was refused moved nothing.
                if ("", place.node) not in nodes or place.uid in stay:
                    continue
                taker = next((one for one, pod in waiting.items() if _alike(pod, place.pod)), None)
                if taker is not None:
                    del waiting[taker]
                    given[taker] = key
                elif group_of(place.pod) in groups:
                    stand_ins.append(place)
        self._given = given
        return _with(raw, {pod: kept[key].node for pod, key in given.items()}, stand_ins)


def _stand_in(pod: Object) -> Object:
    """A pod that waits in place of one that leaves; no real pod has its name."""
    meta, status = pod["metadata"], pod.get("status") or {}
    labels = {key: value for key, value in labels_of(pod).items() if not key.startswith(keys.GPU_GROUP)}
    own = {
        "name": f"{meta['name']} (moved)",
        "uid": f"{meta.get('uid', '')}-moved",
        "labels": labels,
    }
    kept = {key: value for key, value in meta.items() if key != "deletionTimestamp"}
    return {
        **pod,
        "metadata": {**kept, **own},
        # Its claims are those of the pod that leaves: they are not held.
        "spec": {key: value for key, value in pod["spec"].items() if key not in _CLAIMED},
        "status": {"phase": "Pending", **{key: status[key] for key in ("qosClass",) if key in status}},
    }


def _place(pod: Object, to: Decision, uid: str, until: float) -> _Place:
    """The place of a stand-in on its way ``to`` a node. ``uid``: of the pod that leaves."""
    meta = {**pod["metadata"], "resourceVersion": f"{uid}-to-{to.node}"}
    spec = {"podName": meta["name"], "selectedNode": to.node, "selectedGPUGroups": list(to.gpu_groups)}
    head = {name: meta[name] for name in ("name", "namespace", "resourceVersion") if name in meta}
    return _Place({**pod, "metadata": meta}, {"metadata": head, "spec": spec}, to.node, uid, until)


def _kin(
    objects: Mapping[str, Any], moved: Sequence[Object], groups: Set[ObjectKey]
) -> tuple[set[str], set[str], dict[PodKey, Object]]:
    """Of pods of the origins of ``moved`` ones, the UIDs of all, the UIDs of those that are not told to end,
    and, in the order of their age, those that wait in one of the ``groups``."""
    origins = {group_of(pod) for pod in moved} | {_controller(pod) for pod in moved} - {None}
    there = [pod for pod in objects["pods"] if group_of(pod) in origins or _controller(pod) in origins]
    there.sort(key=lambda pod: [pod["metadata"].get(name) or "" for name in ("creationTimestamp", "uid")])
    stay = [pod for pod in there if "deletionTimestamp" not in pod["metadata"]]
    requests = {key_of(request): request for request in objects["bindRequests"] or ()}
    waiting = {
        PodKey(*key_of(pod)): pod
        for pod in stay
        if group_of(pod) in groups and _waits(pod, requests.get(key_of(pod)))
    }
    uids = ({pod["metadata"].get("uid", "") for pod in some} for some in (there, stay))
    every, staying = uids
    return every, staying, waiting


def _controller(pod: Object) -> str | None:
    """The UID of what made the pod."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner.get("uid") for owner in owners if owner.get("controller")), None)


def _waits(pod: Object, request: Object | None) -> bool:
    """Whether a pod waits for a place and is promised none. ``request``: the BindRequest of its name."""
    if pod["spec"].get("nodeName") or pod["spec"].get("schedulingGates") or nominated_to(pod):
        return False
    placed = request is not None and belongs_to(request, pod)
    return not placed and (pod.get("status") or {}).get("phase") == "Pending"


def _alike(pod: Object, moved: Object) -> bool:
    """Whether a pod may take the place of another one: both have one origin and ask for the same."""
    related = group_of(pod) == group_of(moved) or (_controller(pod) == _controller(moved) is not None)
    return related and _asked(pod) == _asked(moved)


def _asked(pod: Object) -> object:
    spec, annotations = pod["spec"], annotations_of(pod)
    containers = (spec.get("containers") or (), spec.get("initContainers") or ())
    return (
        labels_of(pod).get(keys.SUBGROUP),
        [[one.get("resources") or {} for one in some] for some in containers],
        spec.get("resources"),
        [annotations.get(name) for name in _ASKED],
    )


def _with(raw: Mapping[str, Any], named: Mapping[PodKey, str], places: Sequence[_Place]) -> Mapping[str, Any]:
    """The snapshot in which waiting pods are ``named`` nodes, and with these stand-ins."""
    if not (named or places):
        return raw
    objects = raw["rawObjects"]
    pods = [
        pod if (node := named.get(PodKey(*key_of(pod)))) is None else nominated(pod, node)
        for pod in objects["pods"]
    ]
    requests = [*(objects["bindRequests"] or ()), *(place.request for place in places)]
    shown = {"pods": [*pods, *(place.pod for place in places)], "bindRequests": requests}
    return {**raw, "rawObjects": {**objects, **shown}}
